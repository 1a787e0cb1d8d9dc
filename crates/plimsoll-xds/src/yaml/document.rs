//! [`Document`]: a YAML text as a tree in which every value knows its line and column.
//!
//! Here lives reading the text (serde-saphyr does the parsing) and finding places again; turning
//! the tree into structs lives in `de`. Duplicate keys, several documents, unknown tags and nesting
//! beyond the parser's budget are errors; `yes` and `no` are strings (a zone may be called so).

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_core::units::FieldError;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DuplicateKeyPolicy, NonFiniteFloatPolicy, Options, Spanned, UserMessageFormatter,
};

use super::error::{ConfigError, Location};
use super::proto_json::snake_case;

/// Deeper nesting is refused. Reading goes down the stack, 40 KiB per level without optimization,
/// so that the parser's own limit is more than a thread of 2 MiB holds. A cluster with every field
/// needs half of this.
const MAX_DEPTH: usize = 32;

/// A YAML text, read.
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) root: Node,
}

/// One value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) location: Location,
}

/// A value. Non-finite numbers are strings, as in the JSON mapping of protobuf.
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

/// One key of a map, in the order of the text.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) location: Location,
    pub(super) value: Node,
}

impl Document {
    /// Reads a text that holds one YAML document.
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

    /// The document as a `T`.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, ConfigError> {
        T::deserialize(&self.root)
    }

    /// An error of a checked type, with the place in the text and the spelling used there. Where
    /// the field itself is not written down, the place is that of the innermost value around it.
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
    }
}

/// The first duplicate key with its path. The parser knows line and column of a second key, but not
/// the path to it: it is looked for in a lenient second reading.
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
    /// The first key that its map has already.
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

    /// Follows `path` as far as it is written down: the path in the spelling of the text, and the
    /// place of the last value found (`None` when nothing of the path is there).
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

    /// The first segment of `path`: how the text spells it, what is left of the path, the value.
    fn step<'a>(&'a self, path: &'a str) -> Option<(String, &'a str, &'a Self)> {
        match &self.value {
            Value::Map(entries) => entries.iter().find_map(|entry| {
                // A key may have dots in it (runtime keys do), so keys are matched, not split off.
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
        // Integer keys are compared by value by the parser; the path is not known, the place is.
        let error = Document::parse("a: 1\n11: x\n0xB: y\n").unwrap_err();
        assert!(error.reason().contains("duplicate"), "{error}");
        assert_eq!(error.location(), Some(Location { line: 3, column: 1 }));
    }

    #[test]
    fn what_is_not_one_yaml_document_is_refused_with_its_place() {
        assert_eq!(refused("a: [1,\n b: 2\n"), "unclosed bracket '[' (at 1:4)");
        assert!(refused("a: b\n---\nc: d\n").contains("(at 3:1)"));
        assert!(refused("a: *nope\n").contains("(at 1:4)"));
        assert!(refused("a: !secret 1\n").contains("secret"));
        let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
        assert!(Document::parse(&deep).is_err(), "no stack is overrun");
    }

    #[test]
    fn fields_are_found_in_the_spelling_of_the_text() {
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
    fn a_field_that_is_not_written_is_located_in_what_surrounds_it() {
        let document = Document::parse("a:\n  b: {c: 1}\n").unwrap();
        let found = |path| document.locate(FieldError::new(path, "no")).to_string();
        assert_eq!(found("a.b.d.e"), "a.b.d.e: no (at 2:6)");
        assert_eq!(found("a.b[3]"), "a.b[3]: no (at 2:6)");
        assert_eq!(found("name"), "name: no");
        assert_eq!(found("ab"), "ab: no", "a prefix is not the field");
    }
}
