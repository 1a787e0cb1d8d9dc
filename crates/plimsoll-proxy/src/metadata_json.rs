//! Metadata of load balancing as JSON in the shape of Envoy's `Metadata`, for `/config_dump`.

use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use serde_json::{Value, json};

/// Numbers up to here are whole numbers in JSON if they are whole.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A `Metadata` of which load balancing reads `fields`.
pub(crate) fn metadata(fields: &Metadata) -> Value {
    json!({ "filter_metadata": { "envoy.lb": structure(fields) } })
}

fn structure(fields: &Metadata) -> Value {
    let fields = fields.iter();
    let fields = fields.map(|(key, field)| (key.to_string(), value(field)));
    Value::Object(fields.collect())
}

#[expect(clippy::cast_possible_truncation, reason = "checked just above")]
fn value(value_of: &MetadataValue) -> Value {
    match value_of {
        MetadataValue::Null => Value::Null,
        MetadataValue::Bool(flag) => json!(flag),
        MetadataValue::Number(number) => {
            let number = number.get();
            match number.fract() == 0.0 && number.abs() < EXACT {
                true => json!(number as i64),
                false => json!(number),
            }
        }
        MetadataValue::String(text) => json!(text),
        MetadataValue::List(values) => values.iter().map(value).collect(),
        MetadataValue::Struct(fields) => structure(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_xds::yaml::{Document, MetadataYaml};

    #[test]
    fn what_is_written_reads_as_the_same_metadata() {
        let text = "{filter_metadata: {envoy.lb: {camelCase: null, n: [1, -2.5, 1e300], b: true, \
                    s: {inner: 'x'}}}}";
        let read = |text: &str| {
            let document = Document::parse(text).unwrap();
            let read: MetadataYaml = document.read().unwrap();
            read.into_envoy_lb().unwrap()
        };
        let fields = read(text);
        let written = metadata(&fields).to_string();
        assert_eq!(read(&written), fields, "{written}");
        assert!(written.contains(r#""camelCase":null"#), "{written}");
        assert!(written.contains("[1,-2.5,1e+300]"), "{written}");
    }
}
