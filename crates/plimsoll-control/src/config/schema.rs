//! JSON Schemas of parts of the configuration file that differ from the messages of plimsoll-xds:
//! the short form of endpoints, and messages of which only some fields are delivered to proxies.

use std::borrow::Cow;

use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::endpoint::EndpointMessage;
use plimsoll_xds::schema::Described as _;
use plimsoll_xds::schema::json_schema::{ACCEPTED_AND_IGNORED, Purpose, part_of_message};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::endpoints::{self, LbEndpointFields, LbEndpointYaml};
use super::objective::{ObjectiveFields, ObjectiveYaml};
use super::yaml::FileYaml;
use crate::settings::NOT_DELIVERED;

/// Returns the schema of a configuration file, without fields that data planes would ignore.
pub(super) fn file() -> Schema {
    let mut schema = schemars::schema_for!(FileYaml);
    without_unread(&mut schema);
    schema
}

fn without_unread(schema: &mut Schema) {
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields.retain(|_, field| field["description"] != ACCEPTED_AND_IGNORED);
    }
    transform_subschemas(&mut without_unread, schema);
}

impl JsonSchema for LbEndpointYaml {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "LbEndpoint".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let object = generator.subschema_for::<LbEndpointFields>();
        json_schema!({ "oneOf": [{ "type": "string" }, object] })
    }
}

impl JsonSchema for ObjectiveYaml {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ObjectiveOrLevel".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let object = generator.subschema_for::<ObjectiveFields>();
        json_schema!({ "oneOf": [{ "type": "string" }, object] })
    }
}

/// Returns the schema of `lb_endpoints[].endpoint`.
pub(super) fn endpoint(generator: &mut SchemaGenerator) -> Schema {
    let is_delivered = |field: &str| endpoints::DELIVERED.contains(&field);
    let descriptor = EndpointMessage::DESCRIPTOR;
    let schema = part_of_message(descriptor, is_delivered, Purpose::Delivery, generator);
    defined("ServiceEndpoint", schema, generator)
}

/// Returns the schema of `services[].cluster`.
pub(super) fn cluster(generator: &mut SchemaGenerator) -> Schema {
    let is_delivered = |field: &str| !NOT_DELIVERED.contains(&field);
    let descriptor = ClusterMessage::DESCRIPTOR;
    let mut schema = part_of_message(descriptor, is_delivered, Purpose::Delivery, generator);
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields["type"] = json!({
            "const": "EDS",
            "description": "Must be `EDS`; see `services[].endpoints`. Default `EDS`.",
        });
    }
    defined("ServiceCluster", schema, generator)
}

fn defined(name: &str, schema: Schema, generator: &mut SchemaGenerator) -> Schema {
    let definitions = generator.definitions_mut();
    definitions.insert(name.to_owned(), schema.to_value());
    Schema::new_ref(format!("#/$defs/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with the properties of a schema and of all its parts.
    fn properties(schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
        if let Some(Value::Object(fields)) = schema.get("properties") {
            fields.iter().for_each(|(name, field)| visit(name, field));
        }
        match schema {
            Value::Object(parts) => parts.values().for_each(|part| properties(part, visit)),
            Value::Array(parts) => parts.iter().for_each(|part| properties(part, visit)),
            _ => {}
        }
    }

    #[test]
    fn the_schema_has_the_fields_that_are_read() {
        let schema = file().to_value();
        let (mut names, mut ignored) = (Vec::new(), Vec::new());
        properties(&schema, &mut |name, field| {
            names.push(name.to_owned());
            if field["description"] == ACCEPTED_AND_IGNORED {
                ignored.push(name.to_owned());
            }
        });
        assert_eq!(ignored, [""; 0]);
        for name in ["listen", "lb_endpoints", "lb_policy", "connect_timeout"] {
            assert!(names.iter().any(|other| other == name), "{name}");
        }
        let definitions = schema["$defs"].as_object().unwrap();
        assert!(definitions.contains_key("ServiceCluster"));
        assert!(!definitions.contains_key("LbEndpoint"), "inline");
    }
}
