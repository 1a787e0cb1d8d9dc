//! Finds all faults of a scenario file, although reading stops at the first.
//!
//! A field with a fault is removed from the parsed file, and the file is read again; positions stay
//! those of the text. Faults that only follow from a removal are not reported. Sections that do not
//! depend on others are checked in any case, also if the zones cannot be used at all.

use plimsoll_core::units::FieldError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parts::ScenarioParts;
use super::position::{ScenarioError, is_within};
use super::{Scenario, check};

/// Most faults that are looked for in a file.
const MAX_ROUNDS: usize = 100;

impl Scenario {
    /// Returns all faults of a scenario file; none if [`Scenario::parse`] accepts it.
    pub fn faults(text: &str) -> Vec<ScenarioError> {
        let Err(first) = Self::parse(text) else {
            return Vec::new();
        };
        let Ok(table) = DeTable::parse(text) else {
            // Nothing can be read behind a syntax error.
            return vec![first];
        };
        let mut search = Search {
            table,
            removed: Vec::new(),
            items: Vec::new(),
        };
        let mut faults = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let error = match read(search.table.clone(), text) {
                Ok(parts) => match Self::try_new(parts.clone()) {
                    Ok(_) => break,
                    Err(error) => {
                        search.add_independent(&parts, &mut faults, text);
                        ScenarioError::from(error)
                    }
                },
                Err(error) => error,
            };
            let path = search.original(error.field.path());
            if !search.is_consequence(&path) {
                add(&mut faults, located(error.clone(), &path, text));
            }
            if !search.remove(error.field.path()) {
                break;
            }
        }
        if faults.is_empty() {
            faults.push(first);
        }
        faults.sort_by_key(|fault| fault.position.unwrap_or_default());
        faults
    }
}

/// Deserializes a parsed file.
pub(super) fn read(
    table: Spanned<DeTable<'_>>,
    text: &str,
) -> Result<ScenarioParts, ScenarioError> {
    serde_path_to_error::deserialize(toml::Deserializer::from(table)).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        ScenarioError::of_toml(path, error.inner(), text)
    })
}

fn located(error: ScenarioError, path: &str, text: &str) -> ScenarioError {
    let field = FieldError::new(path, error.field.reason());
    match error.position {
        Some(_) => ScenarioError { field, ..error },
        None => ScenarioError::of_field(field, text),
    }
}

fn add(faults: &mut Vec<ScenarioError>, fault: ScenarioError) {
    if !faults.iter().any(|known| known.field == fault.field) {
        faults.push(fault);
    }
}

struct Search<'i> {
    table: Spanned<DeTable<'i>>,
    /// Paths of fields that were removed, as in the text.
    removed: Vec<String>,
    /// Items removed from lists: the path of the list and the index at that time.
    items: Vec<(String, usize)>,
}

impl Search<'_> {
    fn is_consequence(&self, path: &str) -> bool {
        self.removed.iter().any(|removed| is_within(removed, path))
    }

    fn add_independent(&self, parts: &ScenarioParts, faults: &mut Vec<ScenarioError>, text: &str) {
        for error in check::independent_faults(parts) {
            if !self.is_consequence(error.path()) {
                add(faults, ScenarioError::of_field(error, text));
            }
        }
    }

    /// Removes the innermost field or list item on `path` that exists; returns whether there was
    /// one.
    fn remove(&mut self, path: &str) -> bool {
        let Some(found) = remove(self.table.get_mut(), path) else {
            return false;
        };
        match found.rsplit_once('[') {
            Some((list, index)) if found.ends_with(']') => {
                let index = index.trim_end_matches(']').parse();
                self.removed.push(self.original(&found));
                self.items
                    .extend(index.map(|index| (list.to_owned(), index)));
            }
            _ => self.removed.push(self.original(&found)),
        }
        true
    }

    /// Undoes the shift of indexes that the removal of list items causes.
    fn original(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for (list, removed) in self.items.iter().rev() {
            let rest = path.strip_prefix(list.as_str());
            let index = rest.and_then(|rest| rest.strip_prefix('[')?.split_once(']'));
            if let Some((index, rest)) = index
                && let Ok(index) = index.parse::<usize>()
                && index >= *removed
            {
                path = format!("{list}[{}]{rest}", index + 1);
            }
        }
        path
    }
}

/// Removes the innermost field or list item on `path`; returns its path.
fn remove(table: &mut DeTable<'_>, path: &str) -> Option<String> {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    let key = table.keys().find(|key| key.get_ref() == name)?.clone();
    if let Some(value) = table.get_mut(&key)
        && let Some(inner) = remove_within(value.get_mut(), rest)
    {
        return Some(format!("{name}{inner}"));
    }
    table.remove(&key);
    Some(name.to_owned())
}

fn remove_within(value: &mut DeValue<'_>, path: &str) -> Option<String> {
    if let Some(field) = path.strip_prefix('.') {
        let DeValue::Table(table) = value else {
            return None;
        };
        return remove(table, field).map(|inner| format!(".{inner}"));
    }
    let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
    let (DeValue::Array(items), Ok(at)) = (value, index.parse::<usize>()) else {
        return None;
    };
    let item = items.get_mut(at)?;
    if let Some(inner) = remove_within(item.get_mut(), rest) {
        return Some(format!("[{index}]{inner}"));
    }
    let others = items.iter().enumerate();
    let kept = others
        .filter(|(other, _)| *other != at)
        .map(|(_, item)| item.clone());
    *items = kept.collect();
    Some(format!("[{index}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let faults = Scenario::faults(text);
        faults.iter().map(ToString::to_string).collect()
    }

    const GOOD: &str = "[traffic]\nmean_utilization = 0.5\n\
        [[zone]]\nname = \"a\"\ndemand = 1\n[[zone.hosts]]\ncount = 2\ncapacity = 10\n\
        [[zone]]\nname = \"b\"\ndemand = 1\n[[zone.hosts]]\ncount = 2\ncapacity = 10\n";

    #[test]
    fn a_good_file_has_none() {
        assert_eq!(faults(GOOD), [""; 0]);
        assert_eq!(faults("").len(), 1);
        assert_eq!(faults("[traffic").len(), 1, "syntax");
    }

    #[test]
    fn all_faults_have_a_position_and_are_sorted_by_it() {
        let text = format!(
            "durationn = 5\nmeasure_from = true\n{GOOD}[host]\nservers = 0\n\
             [control_plane]\nreport_interval = \"1ms\"\n[[event]]\nat = \"5s\"\nkind = 7\n"
        );
        let found = faults(&text);
        let starts = [
            ("durationn: unknown field", "(at 1:1)"),
            ("measure_from: ", "(at 2:16)"),
            ("host.servers: ", "(at 18:1)"),
            ("control_plane.report_interval: ", "(at 20:1)"),
            ("event[0].kind: ", "(at 23:"),
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (fault, (start, position)) in found.iter().zip(starts) {
            assert!(fault.starts_with(start), "{fault} {start}");
            assert!(fault.contains(position), "{fault} {position}");
        }
    }

    #[test]
    fn faults_of_several_items_keep_their_index() {
        let text = format!("{GOOD}[[zone]]\nname = \"a\"\n[[zone]]\nname = 5\n");
        let found = faults(&text);
        assert!(
            found.iter().any(|fault| fault.contains("zone[3].name")),
            "{found:#?}"
        );
        assert!(
            found.iter().any(|fault| fault.contains("zone[2]")),
            "{found:#?}"
        );
    }
}
