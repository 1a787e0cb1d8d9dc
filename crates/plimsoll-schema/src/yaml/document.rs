//! [`Document`]: a YAML text parsed into a tree with line and column of every value.
//!
//! This module parses the text (with serde-saphyr) and locates fields by their path; `de` turns the
//! tree into structs. Duplicate keys, multiple documents, unknown tags and excessive nesting are
//! errors; `yes` and `no` are strings, because they may be names of zones.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_core::units::FieldError;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DuplicateKeyPolicy, NonFiniteFloatPolicy, Options, Spanned, UserMessageFormatter,
};

use super::error::{ConfigError, Location};
use super::proto_json::snake_case;

/// Nesting limit. Deserialization is recursive and takes 40 KiB of stack per level without
/// optimization, so the parser's own limit would overflow a thread with 2 MiB. A cluster that sets
/// every field needs half of this depth.
const MAX_DEPTH: usize = 32;
/// Limit of nodes that aliases repeat. Aliases of aliases multiply: a kilobyte of text could fill
/// 60 MB with the library's limit of a million.
const MAX_REPLAYED: usize = 100_000;

/// A parsed YAML document.
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) root: Node,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) location: Location,
}

/// A YAML value. Non-finite numbers are strings, as in the JSON mapping of protobuf.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    String(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// Entry of a map; entries keep the order of the text.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) location: Location,
    pub(super) value: Node,
}

impl Document {
    /// Parses a text that contains exactly one YAML document.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let error = match serde_saphyr::from_str_with_options(text, options()) {
            Ok(root) => return Ok(Self { root }),
            Err(error) => error,
        };
        let duplicate = matches!(
            error.without_snippet(),
            serde_saphyr::Error::DuplicateMappingKey { .. }
        );
        let found = duplicate.then(|| duplicate_key(text)).flatten();
        Err(found.unwrap_or_else(|| syntax_error(&error)))
    }

    /// Deserializes the document as a `T`. A text without content is an error: a file that was cut
    /// off or not yet written must not count as a file without settings.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, ConfigError> {
        if matches!(self.root.value, Value::Null) {
            let reason = "the file is empty; write {} if it is to have no settings";
            return Err(ConfigError::new("", reason));
        }
        T::deserialize(&self.root)
    }

    /// Adds the location of the field to an error, and spells its path as the text does. If the
    /// field is not in the text, the location is that of the innermost enclosing value.
    pub fn locate(&self, error: FieldError) -> ConfigError {
        let (written, location) = self.root.find(error.path());
        let error = ConfigError::new(written, error.reason());
        match location {
            Some(location) => error.or_at(location),
            None => error,
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
    }
}

/// Finds the first duplicate key with its path. The parser knows the location of the second key but
/// not the path to it, so the text is parsed again with duplicates allowed.
fn duplicate_key(text: &str) -> Option<ConfigError> {
    let mut lenient = options();
    lenient.duplicate_keys = DuplicateKeyPolicy::LastWins;
    let root: Node = serde_saphyr::from_str_with_options(text, lenient).ok()?;
    root.duplicate_key()
}

fn syntax_error(error: &serde_saphyr::Error) -> ConfigError {
    let text = error.render_with_formatter(&UserMessageFormatter);
    let Some(place) = error.location() else {
        return ConfigError::new("", text);
    };
    let location = Location::from(place);
    let suffix = format!(" at line {}, column {}", location.line, location.column);
    let reason = text.strip_suffix(&suffix).unwrap_or(&text);
    ConfigError::new("", reason).or_at(location)
}

impl Node {
    /// Finds the first key that occurs twice in its map.
    fn duplicate_key(&self) -> Option<ConfigError> {
        match &self.value {
            Value::Map(entries) => {
                let mut seen = BTreeSet::new();
                entries.iter().find_map(|entry| {
                    if !seen.insert(&entry.key) {
                        let error = ConfigError::new(&entry.key, "duplicate key");
                        return Some(error.or_at(entry.location));
                    }
                    let error = entry.value.duplicate_key()?;
                    Some(error.under(&entry.key))
                })
            }
            Value::List(items) => items.iter().enumerate().find_map(|(index, item)| {
                let error = item.duplicate_key()?;
                Some(error.under(&format!("[{index}]")))
            }),
            _ => None,
        }
    }

    /// Follows `path` as far as it exists in the text. Returns the path in the spelling of the text
    /// and the location of the last value found, `None` if not even the first segment exists.
    fn find(&self, path: &str) -> (String, Option<Location>) {
        let Some((written, rest, value)) = self.step(path) else {
            return (path.to_owned(), None);
        };
        let (inner, location) = value.find(rest);
        let dot = if inner.is_empty() || inner.starts_with('[') {
            ""
        } else {
            "."
        };
        let location = location.unwrap_or(value.location);
        (format!("{written}{dot}{inner}"), Some(location))
    }

    /// Resolves the first segment of `path`: its spelling in the text, the rest of the path, its
    /// value.
    fn step<'a>(&'a self, path: &'a str) -> Option<(String, &'a str, &'a Self)> {
        match &self.value {
            Value::Map(entries) => entries.iter().find_map(|entry| {
                // A key of a map with user-defined keys.
                if let Some(inside) = path.strip_prefix('[') {
                    let rest = inside.strip_prefix(entry.key.as_str())?.strip_prefix(']')?;
                    let rest = rest.strip_prefix('.').unwrap_or(rest);
                    return Some((format!("[{}]", entry.key), rest, &entry.value));
                }
                // Keys may contain dots (runtime keys do), so the path cannot be split at dots.
                let rest = path
                    .strip_prefix(entry.key.as_str())
                    .or_else(|| path.strip_prefix(snake_case(&entry.key).as_ref()))?;
                let rest = match rest.strip_prefix('.') {
                    Some(rest) => rest,
                    None if rest.is_empty() || rest.starts_with('[') => rest,
                    None => return None,
                };
                Some((entry.key.clone(), rest, &entry.value))
            }),
            Value::List(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let item = items.get(index.parse::<usize>().ok()?)?;
                let rest = rest.strip_prefix('.').unwrap_or(rest);
                Some((format!("[{index}]"), rest, item))
            }
            _ => None,
        }
    }
}

impl From<serde_saphyr::Location> for Location {
    fn from(location: serde_saphyr::Location) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            location: spanned.referenced.into(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, Node>()? {
            map.push(Entry {
                location: key.referenced.into(),
                key: key.value,
                value,
            });
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Document::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn duplicate_keys_are_refused_with_their_path() {
        let text = "a:\n- {b: 1}\n- c: 2\n  d: {e: 1, f: 2, e: 3}\n";
        assert_eq!(refused(text), "a[1].d.e: duplicate key (at 4:19)");
        assert_eq!(refused("a: 1\na: 2\na: 3\n"), "a: duplicate key (at 2:1)");
        // The parser compares integer keys by value: the location is known, the path is not.
        let error = Document::parse("a: 1\n11: x\n0xB: y\n").unwrap_err();
        assert!(error.reason().contains("duplicate"), "{error}");
        assert_eq!(error.location(), Some(Location { line: 3, column: 1 }));
    }

    #[test]
    fn syntax_errors_have_a_location() {
        assert_eq!(refused("a: [1,\n b: 2\n"), "unclosed bracket '[' (at 1:4)");
        assert!(refused("a: b\n---\nc: d\n").contains("(at 3:1)"));
        assert!(refused("a: *nope\n").contains("(at 1:4)"));
        assert!(refused("a: !secret 1\n").contains("secret"));
        let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
        assert!(Document::parse(&deep).is_err(), "no stack overflow");
    }

    #[test]
    fn located_errors_use_the_spelling_of_the_text() {
        let text = "lbPolicy:\n- zone: a\n- zoneName:\n    upstream.zone_routing: 1\n";
        let document = Document::parse(text).unwrap();
        let found = |path| document.locate(FieldError::new(path, "no")).to_string();
        assert_eq!(found("lb_policy[0].zone"), "lbPolicy[0].zone: no (at 2:9)");
        assert_eq!(
            found("lb_policy[1].zone_name.upstream.zone_routing"),
            "lbPolicy[1].zoneName.upstream.zone_routing: no (at 4:28)"
        );
    }

    #[test]
    fn a_missing_field_is_located_at_the_enclosing_value() {
        let document = Document::parse("a:\n  b: {c: 1}\n").unwrap();
        let found = |path| document.locate(FieldError::new(path, "no")).to_string();
        assert_eq!(found("a.b.d.e"), "a.b.d.e: no (at 2:6)");
        assert_eq!(found("a.b[3]"), "a.b[3]: no (at 2:6)");
        assert_eq!(found("name"), "name: no");
        assert_eq!(found("ab"), "ab: no", "a prefix is not the field");
    }
}
