//! JSON Schemas of scalars in protobuf's JSON mapping, for files specific to Plimsoll. Schemas of
//! messages are generated from their descriptors.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::StructYaml;
use super::proto_json::{
    BasisPointShare, Double, Ignored, Named, ProtoDuration, ProtoEnum, Share, Uint, WholePercent,
};

/// Makes a schema inline instead of a named definition.
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
        json_schema!({ "type": "string", "pattern": r"^[0-9]*\.?[0-9]* ?(ns|us|ms|s|m|min|h|d)$" })
    }
}

/// Pattern of a percentage.
const PERCENT: &str = r"^[0-9]*\.?[0-9]* ?%$";

impl JsonSchema for WholePercent {
    inline!("WholePercent");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"], "minimum": 0, "maximum": 100,
            "pattern": r"^[0-9]+ ?%?$",
        })
    }
}

impl JsonSchema for BasisPointShare {
    inline!("BasisPointShare");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"], "minimum": 0, "maximum": 10_000, "pattern": PERCENT,
        })
    }
}

impl JsonSchema for Share {
    inline!("Share");

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"], "minimum": 0, "pattern": PERCENT })
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
