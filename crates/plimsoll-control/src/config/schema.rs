//! JSON Schemas of what is read by hand-written code: endpoints in their short form, and the fields
//! of a cluster that this control plane delivers.

use std::borrow::Cow;

use plimsoll_xds::yaml::ClusterYaml;
use plimsoll_xds::yaml::proto_json::{Ignored, ProtoDuration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::endpoints::{LbEndpointFields, LbEndpointYaml};
use super::service::LOAD_BALANCING;

impl JsonSchema for LbEndpointYaml {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "LbEndpoint".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<LbEndpointFields>();
        json_schema!({ "oneOf": [{ "type": "string" }, long] })
    }
}

/// `services[].cluster`: what is about load balancing, and the few other fields that are delivered.
pub(super) fn cluster(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = ClusterYaml::json_schema(generator);
    let mut fields = match schema.remove("properties") {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.retain(|name, _| LOAD_BALANCING.contains(&name.as_str()));
    let timeout = generator.subschema_for::<ProtoDuration>();
    let delivered = [
        (
            "connect_timeout",
            "How long connecting may take. Default `5s`.",
            timeout,
        ),
        (
            "http2_protocol_options",
            "Endpoints speak HTTP/2; what it holds is not looked at.",
            generator.subschema_for::<Ignored>(),
        ),
        (
            "lrs_report_endpoint_metrics",
            "Metrics of backends that load reports sum up, such as `named_metrics.*`.",
            generator.subschema_for::<Vec<String>>(),
        ),
        (
            "type",
            "Only `EDS`: endpoints stand beside the cluster. Default `EDS`.",
            json_schema!({ "const": "EDS" }),
        ),
    ];
    for (name, description, mut field) in delivered {
        field.insert("description".to_owned(), json!(description));
        fields.insert(name.to_owned(), field.to_value());
    }
    schema.insert("properties".to_owned(), fields.into());
    let definition = schema.to_value();
    let definitions = generator.definitions_mut();
    definitions.insert("ServiceCluster".to_owned(), definition);
    Schema::new_ref("#/$defs/ServiceCluster".to_owned())
}
