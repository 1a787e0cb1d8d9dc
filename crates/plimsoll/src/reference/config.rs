//! Pages about files: a section per message, a row per field, from a JSON Schema.
//!
//! A message that another page has described already is linked, not repeated.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Messages that have a section, with their schema and the page.
#[derive(Debug, Default)]
pub(super) struct Messages {
    written: BTreeMap<String, (Value, &'static str)>,
}

/// One page while it is made.
struct Writer<'a> {
    file: &'static str,
    definitions: &'a Map<String, Value>,
    elsewhere: &'a BTreeMap<String, (Value, &'static str)>,
    /// Messages that still need a section, and where they stand in the file.
    waiting: VecDeque<(String, String)>,
    seen: BTreeMap<String, Value>,
}

impl Messages {
    /// The sections of a page.
    pub(super) fn page(&mut self, file: &'static str, schema: &Value) -> String {
        let none = Map::new();
        let mut writer = Writer {
            file,
            definitions: schema["$defs"].as_object().unwrap_or(&none),
            elsewhere: &self.written,
            waiting: VecDeque::new(),
            seen: BTreeMap::new(),
        };
        let mut text = writer.fields(schema, "");
        while let Some((name, path)) = writer.waiting.pop_front() {
            let message = &writer.definitions[&name];
            let _ = write!(text, "\n## {name}\n\nAt `{path}`.");
            if let Some(about) = message["description"].as_str() {
                let _ = write!(text, " {}", one_line(about));
            }
            text.push('\n');
            text.push_str(&writer.fields(message, &path));
        }
        let new = writer.seen.into_iter();
        self.written
            .extend(new.map(|(name, value)| (name, (value, file))));
        text
    }
}

impl Writer<'_> {
    /// The table of an object, or the list of what a message may be.
    fn fields(&mut self, message: &Value, path: &str) -> String {
        if let Some(choices) = message["oneOf"].as_array() {
            let mut text = "\nOne of, by its `@type`:\n\n".to_owned();
            for choice in choices {
                let about = choice["description"].as_str().map(one_line);
                let about = about.unwrap_or_else(|| self.kind(choice, path));
                let _ = writeln!(text, "* {about}");
            }
            return text;
        }
        let none = Map::new();
        let fields = message["properties"].as_object().unwrap_or(&none);
        if fields.is_empty() {
            return "\nIt has no fields.\n".to_owned();
        }
        let required = message["required"].as_array();
        let mut text = "\n| field | type | default | meaning |\n|---|---|---|---|\n".to_owned();
        for (name, field) in fields {
            let needed = required.is_some_and(|list| list.iter().any(|one| one == name));
            let below = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            let about = field["description"].as_str().unwrap_or_default();
            let (meaning, default) = split_default(&one_line(about));
            let default = match needed || meaning.contains("Must be set.") {
                true => "required".to_owned(),
                false => default
                    .or_else(|| derived_default(field))
                    .unwrap_or_default(),
            };
            let kind = self.kind(field, &below);
            let _ = writeln!(text, "| `{name}` | {kind} | {default} | {meaning} |");
        }
        text
    }

    /// What a value may be, in words.
    fn kind(&mut self, schema: &Value, path: &str) -> String {
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next())
        {
            return self.link(name, path);
        }
        if let Some(values) = schema["enum"].as_array() {
            let names = values.iter().filter_map(Value::as_str);
            let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
            return names.join(", ");
        }
        if let Some(text) = schema["const"].as_str() {
            return format!("`{text}`");
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let kinds: Vec<_> = choices.iter().map(|one| self.kind(one, path)).collect();
            return kinds.join(" or ");
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect::<Vec<_>>(),
        };
        match types.first().copied() {
            Some("array") => {
                let inner = self.kind(&schema["items"], &format!("{path}[]"));
                format!("list of {inner}")
            }
            Some("object") => {
                let inner = self.kind(&schema["additionalProperties"], &format!("{path}.*"));
                format!("map of names to {inner}")
            }
            Some("boolean") => "true or false".to_owned(),
            Some("integer") => "whole number".to_owned(),
            Some("number") => "number".to_owned(),
            Some("string") if schema["pattern"].is_string() => "length of time".to_owned(),
            Some("string") => "text".to_owned(),
            _ => "anything".to_owned(),
        }
    }

    /// A link to the section of a message, which is written later if nobody has it.
    fn link(&mut self, name: &str, path: &str) -> String {
        let message = &self.definitions[name];
        let anchor = name.to_lowercase();
        if let Some((same, file)) = self.elsewhere.get(name)
            && same == message
            && *file != self.file
        {
            return format!("[{name}]({file}#{anchor})");
        }
        if self.seen.insert(name.to_owned(), message.clone()).is_none() {
            self.waiting.push_back((name.to_owned(), path.to_owned()));
        }
        format!("[{name}](#{anchor})")
    }
}

/// The default that a description ends with: `…. Default X.` or `…; default X.`
fn split_default(text: &str) -> (String, Option<String>) {
    for start in ["Default ", ". Default ", "; default "] {
        let found = match start {
            "Default " => text.strip_prefix(start).map(|rest| ("", rest)),
            start => text.split_once(start),
        };
        if let Some((meaning, rest)) = found {
            let end = rest
                .find(". ")
                .or_else(|| rest.strip_suffix('.').map(str::len));
            let (default, rest) = rest.split_at(end.unwrap_or(rest.len()));
            let rest = rest.trim_start_matches(['.', ' ']);
            let meaning = match (meaning.is_empty(), rest.is_empty()) {
                (true, _) => rest.to_owned(),
                (false, true) => format!("{meaning}."),
                (false, false) => format!("{meaning}. {rest}"),
            };
            return (meaning, Some(default.to_owned()));
        }
    }
    (text.to_owned(), None)
}

/// What the code says when nothing is written, where that says something.
fn derived_default(field: &Value) -> Option<String> {
    match &field["default"] {
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Text as it can stand in a table.
fn one_line(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_taken_out_of_descriptions() {
        for (text, meaning, default) in [
            ("So many. Default 3.", "So many.", Some("3")),
            ("One way; default 0.25 ms.", "One way.", Some("0.25 ms")),
            (
                "Length; default 1 s, 0.1 to 60 s.",
                "Length.",
                Some("1 s, 0.1 to 60 s"),
            ),
            ("Default 6 (Envoy).", "", Some("6 (Envoy)")),
            ("So many. Default 1. More.", "So many. More.", Some("1")),
            (
                "`paced` (default) or `poisson`.",
                "`paced` (default) or `poisson`.",
                None,
            ),
        ] {
            let found = split_default(text);
            assert_eq!(found, (meaning.to_owned(), default.map(str::to_owned)));
        }
    }

    #[test]
    fn a_message_has_one_section_and_is_linked_from_other_pages() {
        let schema = json!({
            "properties": {
                "b": { "type": "array", "items": { "$ref": "#/$defs/Inner" } },
                "a": { "$ref": "#/$defs/Inner", "description": "First. Default `x`." },
            },
            "required": ["b"],
            "$defs": { "Inner": {
                "description": "An a|b.",
                "properties": {
                    "again": { "$ref": "#/$defs/Inner" },
                    "on": { "default": false, "type": "boolean" },
                },
            } },
        });
        let mut messages = Messages::default();
        let page = messages.page("one.md", &schema);
        assert!(
            page.contains("| `a` | [Inner](#inner) | `x` | First. |"),
            "{page}"
        );
        assert!(
            page.contains("| `b` | list of [Inner](#inner) | required |  |"),
            "{page}"
        );
        assert!(page.contains("\n## Inner\n\nAt `a`. An a\\|b.\n"), "{page}");
        assert!(
            page.contains("| `on` | true or false | false |  |"),
            "{page}"
        );
        assert_eq!(page.matches("## Inner").count(), 1);
        let other = messages.page("two.md", &schema);
        assert!(other.contains("[Inner](one.md#inner)"), "{other}");
        assert!(!other.contains("## Inner"), "{other}");
    }
}
