//! `google.protobuf.Struct` and the metadata of load balancing, to and from the core's nouns.

use std::sync::Arc;

use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use plimsoll_core::units::FieldError;

use super::pb::metadata::{KindMessage, ListMessage, MetadataMessage, StructMessage, ValueMessage};

/// Where the metadata of load balancing stands in a `Metadata`.
const ENVOY_LB_PATH: &str = "filter_metadata[envoy.lb]";

/// `filter_metadata["envoy.lb"]`; the path of an error starts inside the message.
pub(super) fn envoy_lb(message: Option<MetadataMessage>) -> Result<Option<Metadata>, FieldError> {
    let fields = message.and_then(MetadataMessage::into_envoy_lb);
    let fields = fields.map(decode_struct).transpose();
    fields.map_err(|error| error.under(ENVOY_LB_PATH))
}

/// A `Metadata` of which load balancing reads `fields`.
pub(super) fn metadata(fields: &Metadata) -> MetadataMessage {
    MetadataMessage::envoy_lb(encode_struct(fields))
}

/// A struct; the path of an error is that of the key.
pub(super) fn decode_struct(message: StructMessage) -> Result<Metadata, FieldError> {
    let fields = message.fields.into_iter().map(|(key, value)| {
        let value = decode_value(value).map_err(|error| error.under(&key))?;
        Ok((Arc::from(key), value))
    });
    fields.collect()
}

fn decode_value(message: ValueMessage) -> Result<MetadataValue, FieldError> {
    Ok(match message.kind {
        None => return Err(FieldError::new("", "is a value of no kind")),
        Some(KindMessage::Null(_)) => MetadataValue::Null,
        Some(KindMessage::Number(number)) => MetadataValue::number(number)?,
        Some(KindMessage::String(text)) => MetadataValue::String(text.into()),
        Some(KindMessage::Bool(flag)) => MetadataValue::Bool(flag),
        Some(KindMessage::Struct(fields)) => MetadataValue::Struct(decode_struct(fields)?),
        Some(KindMessage::List(list)) => {
            let values = list.values.into_iter().enumerate();
            let values = values.map(|(index, value)| {
                decode_value(value).map_err(|error| error.under(&format!("[{index}]")))
            });
            MetadataValue::List(values.collect::<Result<_, _>>()?)
        }
    })
}

/// The same struct, to be written.
pub(super) fn encode_struct(fields: &Metadata) -> StructMessage {
    let fields = fields.iter();
    let fields = fields.map(|(key, value)| (key.to_string(), encode_value(value)));
    StructMessage {
        fields: fields.collect(),
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
    use crate::convert::hex::hex;

    #[test]
    fn every_kind_of_value_comes_back() {
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
    fn a_value_of_no_kind_is_refused_with_its_key() {
        // {"a": [{}]}, where the element has no field at all.
        let bytes = hex("0a0b 0a0161 1206 3204 0a00 0a00");
        let read = StructMessage::decode(&bytes[..]).unwrap();
        let error = decode_struct(read).unwrap_err();
        assert_eq!(error.path(), "a[0]");
    }
}
