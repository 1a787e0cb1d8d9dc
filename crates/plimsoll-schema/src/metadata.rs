//! Conversion between `google.protobuf.Struct` and the core's load-balancing [`Metadata`].

use std::sync::Arc;

use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use plimsoll_core::units::FieldError;
use serde_json::{Value, json};

use crate::pb::metadata::{KindMessage, ListMessage, MetadataMessage, StructMessage, ValueMessage};

/// Path of the load-balancing metadata within a `Metadata` message.
const ENVOY_LB_PATH: &str = "filter_metadata[envoy.lb]";

/// Decodes `filter_metadata["envoy.lb"]`; error paths are relative to the message.
pub fn envoy_lb(message: Option<MetadataMessage>) -> Result<Option<Metadata>, FieldError> {
    message
        .and_then(MetadataMessage::into_envoy_lb)
        .map(decode_struct)
        .transpose()
        .map_err(|error| error.under(ENVOY_LB_PATH))
}

/// Creates a `Metadata` message with `fields` under `envoy.lb`.
pub fn metadata(fields: &Metadata) -> MetadataMessage {
    MetadataMessage::envoy_lb(encode_struct(fields))
}

/// Decodes a struct; error paths start with the key.
pub fn decode_struct(message: StructMessage) -> Result<Metadata, FieldError> {
    let decode = |(key, value): (String, ValueMessage)| {
        let value = decode_value(value).map_err(|error| error.under(&key))?;
        Ok((Arc::from(key), value))
    };
    message.fields.into_iter().map(decode).collect()
}

fn decode_value(message: ValueMessage) -> Result<MetadataValue, FieldError> {
    Ok(match message.kind {
        None => return Err(FieldError::new("", "has no kind: a Value must set one")),
        Some(KindMessage::Null(_)) => MetadataValue::Null,
        Some(KindMessage::Number(number)) => MetadataValue::number(number)?,
        Some(KindMessage::String(text)) => MetadataValue::String(text.into()),
        Some(KindMessage::Bool(flag)) => MetadataValue::Bool(flag),
        Some(KindMessage::Struct(fields)) => MetadataValue::Struct(decode_struct(fields)?),
        Some(KindMessage::List(list)) => {
            let decode = |(index, value)| {
                decode_value(value).map_err(|error| error.under(&format!("[{index}]")))
            };
            let values = list.values.into_iter().enumerate().map(decode);
            MetadataValue::List(values.collect::<Result<_, _>>()?)
        }
    })
}

/// Prints a struct as a JSON object; whole numbers have no decimal point.
pub fn struct_json(message: &StructMessage) -> Value {
    let member = |(key, value): (&String, &ValueMessage)| (key.clone(), value_json(value));
    Value::Object(message.fields.iter().map(member).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "checked just above")]
fn value_json(message: &ValueMessage) -> Value {
    /// 2^53: every whole number below it is exactly representable as a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match &message.kind {
        None | Some(KindMessage::Null(_)) => Value::Null,
        Some(KindMessage::Bool(flag)) => json!(flag),
        Some(KindMessage::Number(number)) if number.fract() == 0.0 && number.abs() < EXACT => {
            json!(*number as i64)
        }
        Some(KindMessage::Number(number)) => json!(number),
        Some(KindMessage::String(text)) => json!(text),
        Some(KindMessage::List(list)) => list.values.iter().map(value_json).collect(),
        Some(KindMessage::Struct(fields)) => struct_json(fields),
    }
}

/// Encodes metadata as a struct.
pub fn encode_struct(fields: &Metadata) -> StructMessage {
    StructMessage {
        fields: fields
            .iter()
            .map(|(key, value)| (key.to_string(), encode_value(value)))
            .collect(),
    }
}

fn encode_value(value: &MetadataValue) -> ValueMessage {
    match value {
        MetadataValue::Null => KindMessage::Null(0),
        MetadataValue::Number(number) => KindMessage::Number(number.get()),
        MetadataValue::String(text) => KindMessage::String(text.to_string()),
        MetadataValue::Bool(flag) => KindMessage::Bool(*flag),
        MetadataValue::Struct(fields) => KindMessage::Struct(encode_struct(fields)),
        MetadataValue::List(values) => KindMessage::List(ListMessage {
            values: values.iter().map(encode_value).collect(),
        }),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn every_kind_of_value_round_trips() {
        let inner: Metadata = [(Arc::from("k"), MetadataValue::Bool(false))]
            .into_iter()
            .collect();
        let list = [
            MetadataValue::Null,
            MetadataValue::number(1.5).unwrap(),
            MetadataValue::Struct(inner),
        ];
        let fields: Metadata = [
            (
                Arc::from("list"),
                MetadataValue::List(list.into_iter().collect()),
            ),
            (Arc::from("text"), MetadataValue::String("x".into())),
        ]
        .into_iter()
        .collect();
        let message = metadata(&fields).encode_to_vec();
        let read = MetadataMessage::decode(&message[..]).unwrap();
        assert_eq!(envoy_lb(Some(read)).unwrap(), Some(fields));
        assert_eq!(envoy_lb(None).unwrap(), None);
    }

    #[test]
    fn a_value_without_kind_is_refused_with_its_path() {
        // {"a": [{}]}, where the element is an empty `Value`.
        let bytes = b"\x0a\x0b\x0a\x01a\x12\x06\x32\x04\x0a\x00\x0a\x00";
        let read = StructMessage::decode(&bytes[..]).unwrap();
        let error = decode_struct(read).unwrap_err();
        assert_eq!(error.path(), "a[0]");
    }
}
