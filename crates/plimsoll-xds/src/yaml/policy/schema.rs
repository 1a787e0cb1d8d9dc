//! JSON Schema of `typed_config`: one of the messages we have, by its `@type`, or one that only
//! Envoy has and that is skipped.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::super::schema::typed;
use super::{
    ClientSideWeightedRoundRobinYaml, LeastRequestMessage, LoadAwareLocalityMessage, MaglevMessage,
    PREFIX, RandomMessage, RingHashMessage, RoundRobinMessage, SubsetYaml, TypedConfig,
    UNSUPPORTED, WrrLocality,
};

impl JsonSchema for TypedConfig {
    fn schema_name() -> Cow<'static, str> {
        "PolicyTypedConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let known = [
            message::<ClientSideWeightedRoundRobinYaml>(
                generator,
                "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
            ),
            message::<LeastRequestMessage>(generator, "least_request.v3.LeastRequest"),
            message::<LoadAwareLocalityMessage>(
                generator,
                "load_aware_locality.v3.LoadAwareLocality",
            ),
            message::<MaglevMessage>(generator, "maglev.v3.Maglev"),
            message::<RandomMessage>(generator, "random.v3.Random"),
            message::<RingHashMessage>(generator, "ring_hash.v3.RingHash"),
            message::<RoundRobinMessage>(generator, "round_robin.v3.RoundRobin"),
            message::<SubsetYaml>(generator, "subset.v3.Subset"),
            message::<WrrLocality>(generator, "wrr_locality.v3.WrrLocality"),
        ];
        let skipped = UNSUPPORTED.map(type_url);
        let skipped = json!({
            "description": "A policy that only Envoy has: skipped.",
            "type": "object",
            "properties": { "@type": { "enum": skipped } },
            "required": ["@type"],
        });
        let all: Vec<Value> = known.into_iter().chain([skipped]).collect();
        json_schema!({ "oneOf": all })
    }
}

fn message<T: JsonSchema>(generator: &mut SchemaGenerator, name: &str) -> Value {
    let short = name.rsplit('.').next().unwrap_or(name);
    typed::<T>(generator, short, &type_url(name)).to_value()
}

fn type_url(name: &str) -> String {
    format!("type.googleapis.com/{PREFIX}{name}")
}
