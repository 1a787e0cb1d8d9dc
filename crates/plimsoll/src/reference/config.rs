//! Pages about configuration files, from a JSON Schema: a section per message, a row per field.
//! Messages that an earlier page describes are linked, not repeated.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use plimsoll_xds::schema::json_schema::ACCEPTED_AND_IGNORED;
use serde_json::{Map, Value};

/// Messages described on all pages so far, with schema and page.
#[derive(Debug, Default)]
pub(super) struct Messages {
    written: BTreeMap<String, (Value, &'static str)>,
}

struct Writer<'a> {
    file: &'static str,
    definitions: &'a Map<String, Value>,
    elsewhere: &'a BTreeMap<String, (Value, &'static str)>,
    /// Messages that still need a section on this page, with their path in the file.
    waiting: VecDeque<(String, String)>,
    seen: BTreeMap<String, Value>,
}

impl Messages {
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
            if let Some(about) = message["description"].as_str().and_then(described) {
                let _ = write!(text, " {about}");
            }
            text.push('\n');
            text.push_str(&writer.fields(message, &path));
        }
        for (name, value) in writer.seen {
            self.written.entry(name).or_insert((value, file));
        }
        text
    }
}

impl Writer<'_> {
    /// Returns the table of an object's fields, or the list of alternatives.
    fn fields(&mut self, message: &Value, path: &str) -> String {
        if let Some(choices) = message["oneOf"].as_array() {
            let mut text = "\nOne of these, selected by `@type`:\n\n".to_owned();
            for choice in choices {
                let about = choice["description"]
                    .as_str()
                    .map_or_else(|| self.kind(choice, path), one_line);
                let _ = writeln!(text, "* {about}");
            }
            return text;
        }
        let none = Map::new();
        let fields = message["properties"].as_object().unwrap_or(&none);
        if fields.is_empty() {
            return "\nThis message has no fields.\n".to_owned();
        }
        let required = message["required"].as_array();
        let is_read = |(_, field): &(_, &Value)| field["description"] != ACCEPTED_AND_IGNORED;
        let mut text = String::new();
        if fields.iter().any(|entry| is_read(&entry)) {
            text.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
        }
        for (name, field) in fields.iter().filter(is_read) {
            let needed = required.is_some_and(|list| list.iter().any(|one| one == name));
            let below = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            let about = field["description"].as_str().unwrap_or_default();
            let (meaning, default) = split_default(&one_line(about));
            let (meaning, default) = match meaning.strip_suffix("Must be set.") {
                Some(meaning) => (meaning.trim_end().to_owned(), "required".to_owned()),
                None if needed => (meaning, "required".to_owned()),
                None => {
                    let default = default.or_else(|| derived_default(field));
                    (meaning, default.unwrap_or_default())
                }
            };
            let kind = self.kind(field, &below);
            let _ = writeln!(text, "| `{name}` | {kind} | {default} | {meaning} |");
        }
        let unread = fields.iter().filter(|entry| !is_read(entry));
        let names: Vec<_> = unread.map(|(name, _)| format!("`{name}`")).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "\nAccepted but ignored: {}.", names.join(", "));
        }
        text
    }

    fn kind(&mut self, schema: &Value, path: &str) -> String {
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next())
        {
            return self.link(name, path);
        }
        if let Some(values) = schema["enum"].as_array() {
            let values = values.iter().filter_map(Value::as_str);
            let names: Vec<_> = values.map(|name| format!("`{name}`")).collect();
            return names.join(", ");
        }
        if let Some(text) = schema["const"].as_str() {
            return format!("`{text}`");
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let kinds: Vec<_> = choices.iter().map(|one| self.kind(one, path)).collect();
            return kinds.join(" or ");
        }
        if schema["properties"]["@type"].is_object() {
            return "another message with `@type`".to_owned();
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
            Some("object") if schema["additionalProperties"] == false => "{}".to_owned(),
            Some("object") => {
                let inner = self.kind(&schema["additionalProperties"], &format!("{path}.*"));
                format!("map of string to {inner}")
            }
            Some("boolean") => "boolean".to_owned(),
            Some("integer") => "integer".to_owned(),
            Some("number") => "number".to_owned(),
            Some("string") if schema["pattern"].is_string() => "duration".to_owned(),
            Some("string") => "string".to_owned(),
            _ => "any value".to_owned(),
        }
    }

    /// Returns a link to the section of a message, and queues the section if no page has it.
    fn link(&mut self, name: &str, path: &str) -> String {
        let message = &self.definitions[name];
        let anchor = name.to_lowercase().replace('.', "");
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

/// Returns a description, unless it only repeats the name of the message.
fn described(text: &str) -> Option<String> {
    let text = one_line(text);
    let is_name = |name: &str| !name.contains(['`', ' ', '[']);
    let name = text
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix("`."));
    (!name.is_some_and(is_name)).then_some(text)
}

/// Splits off the default that a description ends with: `…. Default X.` or `…; default X.`
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

/// Returns the default in a field's schema if it is a boolean or a number.
fn derived_default(field: &Value) -> Option<String> {
    match &field["default"] {
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Escapes text for a table cell.
fn one_line(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_split_off_descriptions() {
        for (text, meaning, default) in [
            ("Retries. Default 3.", "Retries.", Some("3")),
            ("One way; default 0.25 ms.", "One way.", Some("0.25 ms")),
            (
                "Length; default 1 s, 0.1 to 60 s.",
                "Length.",
                Some("1 s, 0.1 to 60 s"),
            ),
            ("Default 6 (Envoy).", "", Some("6 (Envoy)")),
            ("Retries. Default 1. More.", "Retries. More.", Some("1")),
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
        assert!(page.contains("| `on` | boolean | false |  |"), "{page}");
        assert_eq!(page.matches("## Inner").count(), 1);
        let other = messages.page("two.md", &schema);
        assert!(other.contains("[Inner](one.md#inner)"), "{other}");
        assert!(!other.contains("## Inner"), "{other}");
    }
}
