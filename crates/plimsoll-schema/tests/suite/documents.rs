//! Generates a document with every field of a message set, from its descriptor.

use std::collections::BTreeSet;

use plimsoll_schema::{Descriptor, Field, Kind, Label};
use serde_json::{Map, Value, json};

/// Spelling of names and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `snake_case`, enums by name, quoted 64-bit numbers: as messages are printed.
    Printed,
    /// `lowerCamelCase`, enums by number, other numbers quoted too.
    Other,
}

/// Generates documents and remembers their fields.
pub(crate) struct Maker {
    pub(crate) spelling: Spelling,
    /// Names of messages and fields.
    pub(crate) covered: BTreeSet<(&'static str, &'static str)>,
    /// Enclosing messages: policies may contain policies.
    around: Vec<&'static str>,
}

impl Maker {
    pub(crate) const fn new(spelling: Spelling) -> Self {
        Self {
            spelling,
            covered: BTreeSet::new(),
            around: Vec::new(),
        }
    }

    /// Generates the document; empty for a message nested in itself.
    pub(crate) fn message(&mut self, descriptor: &'static Descriptor) -> Map<String, Value> {
        if self.around.contains(&descriptor.name) {
            return Map::new();
        }
        self.around.push(descriptor.name);
        let mut document = Map::new();
        for field in descriptor.fields {
            self.covered.insert((descriptor.name, field.name));
            let value = self.field(field);
            document.insert(self.name(field.name), value);
        }
        self.around.pop();
        document
    }

    fn field(&mut self, field: &Field) -> Value {
        match field.label {
            Label::One => self.value(field.kind),
            Label::Many => json!([self.value(field.kind), self.value(field.kind)]),
            // Map keys are not converted.
            Label::Map => json!({
                "some.Key": self.value(field.kind),
                "other_key": self.value(field.kind),
            }),
        }
    }

    fn value(&mut self, kind: Kind) -> Value {
        let quoted = self.spelling == Spelling::Other;
        let number = |text: &str| {
            if quoted {
                json!(text)
            } else {
                serde_json::from_str(text).unwrap()
            }
        };
        match kind {
            Kind::Bool => json!(true),
            Kind::Int => number("-3"),
            Kind::Uint32 => number("4000000000"),
            Kind::Uint64 => json!("18000000000000000000"),
            Kind::Double => number("0.1"),
            Kind::Float => number("0.25"),
            Kind::String => json!("text"),
            Kind::Bytes => json!("AAECAw=="),
            Kind::Enum(values) => {
                let (name, number) = values.iter().last().unwrap();
                if quoted { json!(number) } else { json!(name) }
            }
            Kind::Wrapper(scalar) => self.value(*scalar),
            Kind::Message(descriptor) => Value::Object(self.message(descriptor())),
            Kind::Presence => json!({}),
            Kind::Duration => json!("1.500s"),
            Kind::Any(types) => {
                let mut any = match types().first() {
                    Some(descriptor) => self.message(descriptor),
                    None => Map::new(),
                };
                let name = types().first().map_or("other.Type", |first| first.name);
                let url = format!("type.googleapis.com/{name}");
                any.insert("@type".to_owned(), json!(url));
                Value::Object(any)
            }
            Kind::Struct => json!({
                "someKey": 1, "some_key": [2.5, "x", null, true], "inner": { "aB": -1 },
            }),
        }
    }

    fn name(&self, name: &str) -> String {
        match self.spelling {
            Spelling::Printed => name.to_owned(),
            Spelling::Other => camel_case(name),
        }
    }
}

/// Converts to lowerCamelCase as protobuf's JSON mapping does.
fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at(1);
        camel.push_str(&first.to_ascii_uppercase());
        camel.push_str(rest);
    }
    camel
}

/// Returns the document as printed, without sensitive values.
pub(crate) fn redacted(document: &Value, descriptor: &'static Descriptor) -> Value {
    let Value::Object(fields) = document else {
        return document.clone();
    };
    let mut out = Map::new();
    for (name, value) in fields {
        let field = descriptor.fields.iter().find(|field| field.name == name);
        let value = match field {
            Some(field) if field.secret => json!("[redacted]"),
            Some(field) => redacted_field(value, field),
            None => value.clone(),
        };
        out.insert(name.clone(), value);
    }
    Value::Object(out)
}

fn redacted_field(value: &Value, field: &Field) -> Value {
    let one = |value: &Value| match field.kind {
        Kind::Message(descriptor) => redacted(value, descriptor()),
        Kind::Any(types) => types()
            .first()
            .map_or_else(|| value.clone(), |first| redacted(value, first)),
        _ => value.clone(),
    };
    match (field.label, value) {
        (Label::Many, Value::Array(items)) => items.iter().map(one).collect(),
        (Label::Map, Value::Object(entries)) => {
            let entries = entries.iter().map(|(key, value)| (key.clone(), one(value)));
            Value::Object(entries.collect())
        }
        _ => one(value),
    }
}
