//! Conversion of a [`Document`] to JSON, for admin pages that show the current configuration.
//!
//! Fields are converted to snake_case; keys of a `google.protobuf.Struct` keep their spelling.

use serde_json::{Map, Number, Value as Json};

use super::document::{Document, Node, Value};
use super::proto_json::snake_case;

/// Fields of type `google.protobuf.Struct`, or maps of them, with user-defined keys.
const STRUCTS: [&str; 2] = ["filter_metadata", "default_subset"];

impl Document {
    /// Converts the whole document to JSON.
    pub fn json(&self) -> Json {
        json(&self.root, false)
    }
}

fn json(node: &Node, is_struct: bool) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Signed(value) => Json::from(*value),
        Value::Unsigned(value) => Json::from(*value),
        Value::Float(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
        Value::String(value) => Json::String(value.clone()),
        Value::List(items) => items.iter().map(|item| json(item, is_struct)).collect(),
        Value::Map(entries) => {
            let fields = entries.iter().map(|entry| {
                let key = if is_struct {
                    entry.key.clone()
                } else {
                    snake_case(&entry.key).into_owned()
                };
                let is_struct = is_struct || STRUCTS.contains(&key.as_str());
                (key, json(&entry.value, is_struct))
            });
            Json::Object(fields.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_snake_case_and_metadata_keys_are_kept() {
        let text = "lbPolicy: RANDOM\nmetadata: {filterMetadata: {envoy.lb: {camelCase: [null, \
                    {InnerKey: 2.5}]}}}\ntls: {privateKey: }\n";
        let document = Document::parse(text).unwrap();
        let expected = serde_json::json!({
            "lb_policy": "RANDOM",
            "metadata": { "filter_metadata": { "envoy.lb": {
                "camelCase": [null, { "InnerKey": 2.5 }],
            } } },
            "tls": { "private_key": null },
        });
        assert_eq!(document.json(), expected);
    }
}
