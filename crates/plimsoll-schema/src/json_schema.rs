//! JSON Schemas of messages, generated from their descriptors.
//!
//! A schema lists the fields that a file may contain, in snake_case; value ranges and mutually
//! exclusive fields are known only to the converters. Fields without a doc comment are omitted:
//! they are either read only to be refused, or read only by gRPC clients.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::{Descriptor, Field, Impact, Kind, Label};

/// Description of unsupported fields that are accepted. Readers that refuse them remove them.
pub const ACCEPTED_AND_IGNORED: &str = "Accepted and ignored.";

/// What the files of a schema are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A program of ours acts on the messages.
    Reading,
    /// A control plane delivers the messages: it accepts declared fields that we do not read.
    Delivery,
}

/// End of the descriptions of fields that must be set.
const REQUIRED: &str = "Must be set.";

/// Messages of listeners and routes.
const STRICT: [&str; 7] = [
    "envoy.config.accesslog.",
    "envoy.config.listener.",
    "envoy.config.route.",
    "envoy.config.trace.",
    "envoy.extensions.access_loggers.",
    "envoy.extensions.filters.",
    "envoy.extensions.transport_sockets.tls.v3.Downstream",
];

const SUBSET: &str = "envoy.extensions.load_balancing_policies.subset.v3.Subset";

/// Whether files must not contain unsupported fields of a message, and schemas name the fields that
/// must be set.
fn is_strict(descriptor: &Descriptor) -> bool {
    STRICT.iter().any(|name| descriptor.name.starts_with(name))
}

/// Returns the schema name of a message: its title, or its name in Envoy without the package.
pub fn schema_name(descriptor: &Descriptor) -> String {
    if !descriptor.title.is_empty() {
        return descriptor.title.to_owned();
    }
    let parts = descriptor.name.split('.');
    let types = parts.filter(|part| part.starts_with(|c: char| c.is_ascii_uppercase()));
    types.collect::<Vec<_>>().join(".")
}

/// Generates the schema of a message; nested messages become definitions of the generator.
pub fn message(descriptor: &'static Descriptor, generator: &mut SchemaGenerator) -> Schema {
    part_of_message(descriptor, |_| true, Purpose::Reading, generator)
}

/// Generates the schema of a message with only the fields for which `is_part` is true.
pub fn part_of_message(
    descriptor: &'static Descriptor,
    is_part: impl Fn(&str) -> bool,
    purpose: Purpose,
    generator: &mut SchemaGenerator,
) -> Schema {
    let mut schema = Map::new();
    if !descriptor.doc.is_empty() {
        schema.insert("description".to_owned(), json!(descriptor.doc));
    }
    schema.insert("type".to_owned(), json!("object"));
    schema.insert(
        "properties".to_owned(),
        properties(descriptor, &is_part, purpose, generator).into(),
    );
    let is_required = |field: &&Field| is_part(field.name) && field.doc.ends_with(REQUIRED);
    let required = descriptor.fields.iter().filter(is_required);
    let required: Vec<&str> = required.map(|field| field.name).collect();
    if is_strict(descriptor) && !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema.into()
}

fn properties(
    descriptor: &'static Descriptor,
    is_part: impl Fn(&str) -> bool,
    purpose: Purpose,
    generator: &mut SchemaGenerator,
) -> Map<String, Value> {
    let is_used = |field: &&Field| purpose == Purpose::Delivery || field.unread.is_none();
    let mut properties: Map<_, _> = descriptor
        .fields
        .iter()
        .filter(|field| is_part(field.name) && !field.doc.is_empty())
        .filter(is_used)
        .map(|field| (field.name.to_owned(), property(field, purpose, generator)))
        .collect();
    let undeclared = descriptor.unsupported.iter();
    let unsupported = undeclared.map(|field| (field.name, field.impact));
    let unused = descriptor.fields.iter().filter(|field| !is_used(field));
    let unread = unused.filter_map(|field| Some((field.name, field.unread?.impact)));
    for (name, impact) in unsupported.chain(unread) {
        if impact == Impact::Unused && !is_strict(descriptor) && is_part(name) {
            let accepted = json!({ "description": ACCEPTED_AND_IGNORED });
            properties.insert(name.to_owned(), accepted);
        }
    }
    properties
}

fn property(field: &Field, purpose: Purpose, generator: &mut SchemaGenerator) -> Value {
    let one = match field.kind {
        Kind::Presence if field.opaque => json!({ "type": "object" }),
        kind => value(kind, purpose, generator),
    };
    let mut schema = match field.label {
        Label::One => one,
        Label::Many => json!({ "type": "array", "items": one }),
        Label::Map => json!({ "type": "object", "additionalProperties": one }),
    };
    if let Value::Object(object) = &mut schema {
        object.insert("description".to_owned(), json!(field.doc));
    }
    schema
}

fn value(kind: Kind, purpose: Purpose, generator: &mut SchemaGenerator) -> Value {
    let digits = "^[0-9]+$";
    match kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Int => json!({ "type": ["integer", "string"], "pattern": "^-?[0-9]+$" }),
        Kind::Uint32 => json!({
            "type": ["integer", "string"], "minimum": 0, "maximum": u32::MAX, "pattern": digits,
        }),
        Kind::Uint64 => json!({
            "type": ["integer", "string"], "minimum": 0, "pattern": digits,
        }),
        Kind::Double | Kind::Float => json!({ "type": ["number", "string"] }),
        Kind::String | Kind::Bytes => json!({ "type": "string" }),
        Kind::Enum(values) => {
            let names = values.iter().map(|(name, _)| json!(name));
            let numbers = values.iter().map(|(_, number)| json!(number));
            json!({ "enum": names.chain(numbers).collect::<Vec<_>>() })
        }
        Kind::Wrapper(scalar) => value(*scalar, purpose, generator),
        Kind::Message(descriptor) => reference(descriptor(), None, purpose, generator),
        Kind::Presence => json!({ "type": "object", "additionalProperties": false }),
        Kind::Struct => json!({ "type": "object" }),
        Kind::Duration => json!({ "type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,9})?s$" }),
        Kind::Any(types) => any(types(), purpose, generator),
    }
}

/// Accepts each of `types` by its `@type`, or a message of another type.
fn any(
    types: &'static [&'static Descriptor],
    purpose: Purpose,
    generator: &mut SchemaGenerator,
) -> Value {
    let mut known: Vec<Value> = Vec::with_capacity(types.len() + 1);
    for descriptor in types {
        let type_url = format!("type.googleapis.com/{}", descriptor.name);
        known.push(reference(descriptor, Some(&type_url), purpose, generator));
    }
    let urls: Vec<_> = types
        .iter()
        .map(|known| format!("type.googleapis.com/{}", known.name))
        .collect();
    let other = json!({
        "description": "A message of another type.",
        "type": "object",
        "properties": { "@type": { "type": "string", "not": { "enum": urls } } },
        "required": ["@type"],
    });
    known.push(other);
    json!({ "oneOf": known })
}

/// References the definition of a message, generating it if needed.
fn reference(
    descriptor: &'static Descriptor,
    type_url: Option<&str>,
    purpose: Purpose,
    generator: &mut SchemaGenerator,
) -> Value {
    let name = match (type_url, descriptor.name) {
        // The only policy that a cluster also contains without `@type`, under this name.
        (None, SUBSET) => "Cluster.LbSubsetConfig".to_owned(),
        _ => schema_name(descriptor),
    };
    if !generator.definitions().contains_key(&name) {
        // A placeholder first: messages may be recursive.
        generator.definitions_mut().insert(name.clone(), json!({}));
        let schema = part_of_message(descriptor, |_| true, purpose, generator);
        let mut schema = schema.to_value();
        if let Some(type_url) = type_url {
            let property = json!({ "const": type_url, "description": "Type of this message." });
            schema["properties"]["@type"] = property;
            match &mut schema["required"] {
                Value::Array(required) => required.push(json!("@type")),
                none => *none = json!(["@type"]),
            }
        }
        generator.definitions_mut().insert(name.clone(), schema);
    }
    json!({ "$ref": format!("#/$defs/{name}") })
}
