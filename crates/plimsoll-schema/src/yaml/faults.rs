//! [`FaultFinder`]: finds all faults of a file with readers that stop at the first.
//!
//! A field with a fault is removed from the tree, and the file is read again; other values keep
//! their line and column. A message that lacks a required field is removed as a whole, and faults
//! that only follow from a removal are not reported.

use super::document::{Document, Node, Value};
use super::error::ConfigError;
use super::proto_json::snake_case;

/// Most faults that are looked for in a file.
const MAX_ROUNDS: usize = 100;

/// A document whose faults are removed one by one.
#[derive(Clone, Debug)]
pub struct FaultFinder {
    document: Document,
    /// Paths of fields that were removed, as in the text.
    removed: Vec<String>,
    /// Items removed from lists: the path of the list and the index at that time.
    items: Vec<(String, usize)>,
    rounds: usize,
}

/// What a fault means for the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The fault with the path as in the text; `None` if it only follows from a removed field.
    pub fault: Option<ConfigError>,
    /// Whether reading the document again may find another fault.
    pub again: bool,
}

impl FaultFinder {
    /// Starts with a document that has been parsed.
    pub const fn new(document: Document) -> Self {
        Self {
            document,
            removed: Vec::new(),
            items: Vec::new(),
            rounds: 0,
        }
    }

    /// Returns the document without the fields that have faults.
    pub const fn document(&self) -> &Document {
        &self.document
    }

    /// Takes the fault that a reader reported and removes its field.
    pub fn found(&mut self, error: ConfigError) -> Found {
        self.rounds += 1;
        let path = self.original_path(error.path());
        let is_consequence = self.removed.iter().any(|removed| is_within(removed, &path));
        let removed = self.document.root.remove(error.path());
        match &removed {
            Some(Removed::Field(removed)) => {
                let removed = self.original_path(removed);
                self.removed.push(removed);
            }
            Some(Removed::Item(list, index)) => self.items.push((list.clone(), *index)),
            None => (),
        }
        Found {
            fault: (!is_consequence).then(|| error.with_path(path)),
            again: removed.is_some() && self.rounds < MAX_ROUNDS,
        }
    }

    /// Undoes the shift of indexes that the removal of list items causes.
    fn original_path(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for (list, removed) in self.items.iter().rev() {
            let Some(rest) = path.strip_prefix(list.as_str()) else {
                continue;
            };
            let Some((index, rest)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            else {
                continue;
            };
            if let Ok(index) = index.parse::<usize>()
                && index >= *removed
            {
                path = format!("{list}[{}]{rest}", index + 1);
            }
        }
        path
    }
}

/// Reads a text and returns all its faults.
pub fn all_faults(
    text: &str,
    read: impl Fn(&Document) -> Result<(), ConfigError>,
) -> Vec<ConfigError> {
    let mut finder = match Document::parse(text) {
        Ok(document) => FaultFinder::new(document),
        Err(error) => return vec![error],
    };
    let mut faults = Vec::new();
    while let Err(error) = read(finder.document()) {
        let Found { fault, again } = finder.found(error);
        faults.extend(fault);
        if !again {
            break;
        }
    }
    faults
}

/// Whether `path` is `outer` or encloses it.
fn is_within(inner: &str, path: &str) -> bool {
    inner
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

enum Removed {
    Field(String),
    Item(String, usize),
}

impl Removed {
    fn under(self, prefix: &str) -> Self {
        let join = |path: String| match path.as_str() {
            "" => prefix.to_owned(),
            inner if inner.starts_with('[') => format!("{prefix}{inner}"),
            inner => format!("{prefix}.{inner}"),
        };
        match self {
            Self::Field(path) => Self::Field(join(path)),
            Self::Item(list, index) => Self::Item(join(list), index),
        }
    }
}

impl Node {
    /// Removes the innermost field or list item on `path` that exists.
    fn remove(&mut self, path: &str) -> Option<Removed> {
        match &mut self.value {
            Value::Map(entries) => {
                let (position, rest) = entries
                    .iter()
                    .enumerate()
                    .find_map(|(at, entry)| Some((at, rest_of(path, &entry.key)?)))?;
                let key = entries[position].key.clone();
                let inner = Some(rest).filter(|rest| !rest.is_empty());
                if let Some(removed) = inner.and_then(|rest| entries[position].value.remove(rest)) {
                    return Some(removed.under(&key));
                }
                entries.remove(position);
                Some(Removed::Field(key))
            }
            Value::List(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let position = index.parse::<usize>().ok()?;
                let rest = rest.strip_prefix('.').unwrap_or(rest);
                let inner = Some(rest).filter(|rest| !rest.is_empty());
                let item = items.get_mut(position)?;
                if let Some(removed) = inner.and_then(|rest| item.remove(rest)) {
                    return Some(removed.under(&format!("[{position}]")));
                }
                items.remove(position);
                Some(Removed::Item(String::new(), position))
            }
            _ => None,
        }
    }
}

/// Returns the path inside the field `key`, if `path` begins with it.
fn rest_of<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let rest = path
        .strip_prefix(key)
        .or_else(|| path.strip_prefix(snake_case(key).as_ref()))?;
    match rest.strip_prefix('.') {
        Some(rest) => Some(rest),
        None if rest.is_empty() || rest.starts_with('[') => Some(rest),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::yaml::proto_json::{ProtoDuration, Uint};

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct File {
        #[serde(default)]
        hosts: Vec<Host>,
        timeout: Option<ProtoDuration>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Host {
        name: String,
        weight: Option<Uint<u32>>,
    }

    fn faults(text: &str) -> Vec<String> {
        let read = |document: &Document| document.read::<File>().map(drop);
        let faults = all_faults(text, read);
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_fault_is_found_with_its_place() {
        let text = "hosts:\n- {name: a, weigth: 1}\n- {weight: 2}\n- {name: c, weight: x}\n\
                    timeout: 5\nport: 80\n";
        assert_eq!(
            faults(text),
            [
                "hosts[0].weigth: unknown field, did you mean weight? (at 2:13)",
                "hosts[1].name: must be set (at 3:3)",
                "hosts[2].weight: \"x\" is not a whole number from 0 on (at 4:21)",
                "timeout: 5 has no unit; write for example \"250ms\", \"1.5s\", \"2m\" or \"1h\" \
                 (at 5:10)",
                "port: unknown field, expected one of hosts, timeout (at 6:1)",
            ]
        );
        assert_eq!(faults("hosts: []\n"), Vec::<String>::new());
    }

    #[test]
    fn text_that_is_not_yaml_has_one_fault() {
        assert_eq!(faults("hosts: [").len(), 1);
        assert_eq!(faults("- a\n- b\n").len(), 1, "not even a map");
    }
}
