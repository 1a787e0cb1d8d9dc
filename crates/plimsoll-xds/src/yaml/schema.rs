//! JSON Schemas of what is read by hand-written code: scalars of `proto_json`, clusters, and
//! messages that go by their `@type`. All other schemas are derived where the struct is.
//!
//! A schema says what the reader takes, in snake_case; ranges and what cannot stand together are
//! known to the checked types only. `Option`s may be null in what schemars derives; the reader
//! refuses that, and the binary, which prints schemas, takes it out.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::metadata::StructYaml;
use super::proto_json::{Double, Ignored, Named, ProtoDuration, ProtoEnum, Uint};

/// A schema that stands where it is used, without a name of its own.
macro_rules! inline {
    ($name:literal) => {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            $name.into()
        }
    };
}

impl<T> JsonSchema for Uint<T> {
    inline!("Uint");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let digits = "^[0-9]+$";
        match size_of::<T>() {
            4 => json_schema!({
                "type": ["integer", "string"], "minimum": 0, "maximum": u32::MAX, "pattern": digits,
            }),
            _ => json_schema!({
                "type": ["integer", "string"], "minimum": 0, "pattern": digits,
            }),
        }
    }
}

impl JsonSchema for Double {
    inline!("Double");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"] })
    }
}

impl JsonSchema for ProtoDuration {
    inline!("Duration");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,9})?s$" })
    }
}

impl<T: ProtoEnum> JsonSchema for Named<T> {
    inline!("Enum");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = T::VALUES.iter().map(|(name, _, _)| json!(name));
        let numbers = T::VALUES.iter().map(|(_, number, _)| json!(number));
        json_schema!({ "enum": names.chain(numbers).collect::<Vec<_>>() })
    }
}

impl JsonSchema for StructYaml {
    inline!("Struct");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

impl JsonSchema for Ignored {
    inline!("Ignored");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// The message `T` under the name `name`, with the `@type` that it goes by.
pub(super) fn typed<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    name: &str,
    type_url: &str,
) -> Schema {
    let mut schema = T::json_schema(generator);
    let object = schema.ensure_object();
    let type_url = json!({ "const": type_url, "description": "Which message this is." });
    properties(object).insert("@type".to_owned(), type_url);
    let required = object.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        required.push(json!("@type"));
    }
    let definitions = generator.definitions_mut();
    definitions.insert(name.to_owned(), schema.to_value());
    Schema::new_ref(format!("#/$defs/{name}"))
}

/// The struct `T`, and fields that are accepted whatever they hold.
pub(super) fn with_unread<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    unread: &[&str],
) -> Schema {
    let mut schema = T::json_schema(generator);
    let properties = properties(schema.ensure_object());
    for name in unread {
        let field = json!({ "description": "Accepted and not read." });
        properties.insert((*name).to_owned(), field);
    }
    schema
}

fn properties(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    match properties {
        Value::Object(properties) => properties,
        other => {
            *other = json!({});
            other.as_object_mut().expect("just made")
        }
    }
}
