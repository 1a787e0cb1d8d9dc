//! Printer of encoded messages as JSON in protobuf's mapping, as shown by `/config_dump`.
//!
//! Fields that are not declared are omitted; values of fields that may contain a private key are
//! redacted.

use plimsoll_core::model::metadata::Metadata;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde_json::{Map, Value, json};

use crate::error::DecodeError;
use crate::field::raw_fields;
use crate::metadata::{encode_struct, struct_json};
use crate::pb::metadata::StructMessage;
use crate::pb::{AnyMessage, DurationMessage};
use crate::{Descriptor, Field, Kind, Label, by_name};
use prost::Message as _;

/// Printed in place of a value that may contain a private key.
const REDACTED: &str = "[redacted]";

/// Prints the message with this descriptor as a JSON object.
pub fn message(bytes: &[u8], descriptor: &Descriptor) -> Result<Value, DecodeError> {
    let mut object = Map::new();
    put_fields(bytes, descriptor, &mut object)?;
    Ok(Value::Object(object))
}

/// Prints load-balancing metadata as an `envoy.config.core.v3.Metadata`.
pub fn metadata(fields: &Metadata) -> Value {
    json!({ "filter_metadata": { "envoy.lb": struct_json(&encode_struct(fields)) } })
}

fn put_fields(
    bytes: &[u8],
    descriptor: &Descriptor,
    object: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    for raw in raw_fields(bytes) {
        let raw = raw?;
        let Some(field) = descriptor.field(raw.number) else {
            continue;
        };
        if field.secret {
            object.insert(field.name.to_owned(), json!(REDACTED));
            continue;
        }
        match field.label {
            Label::One => {
                let value = value(field.kind, raw.raw, raw.value)
                    .map_err(|error| error.under(field.name))?;
                object.insert(field.name.to_owned(), value);
            }
            Label::Many => {
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                if let Value::Array(list) = list {
                    put_items(field, raw.raw, raw.value, list)?;
                }
            }
            Label::Map => {
                let map = object.entry(field.name).or_insert_with(|| json!({}));
                if let Value::Object(map) = map {
                    put_entry(field.kind, raw.value, map)?;
                }
            }
        }
    }
    Ok(())
}

/// Appends one element of a repeated field, or all of them if they are packed.
fn put_items(
    field: &Field,
    raw: &[u8],
    inner: &[u8],
    list: &mut Vec<Value>,
) -> Result<(), DecodeError> {
    let is_number = matches!(
        field.kind,
        Kind::Bool | Kind::Int | Kind::Uint32 | Kind::Uint64 | Kind::Enum(_)
    );
    let (_, wire_type) = decode_key(&mut &*raw)?;
    if !is_number || wire_type != WireType::LengthDelimited {
        let path = || format!("{}[{}]", field.name, list.len());
        let item = value(field.kind, raw, inner).map_err(|error| error.under(&path()))?;
        list.push(item);
        return Ok(());
    }
    let mut packed = inner;
    while !packed.is_empty() {
        list.push(number(field.kind, decode_varint(&mut packed)?));
    }
    Ok(())
}

fn put_entry(kind: Kind, entry: &[u8], map: &mut Map<String, Value>) -> Result<(), DecodeError> {
    let mut key = String::new();
    let mut inner = value(kind, &[], &[]).unwrap_or_default();
    for raw in raw_fields(entry) {
        let raw = raw?;
        match raw.number {
            1 => key = String::from_utf8_lossy(raw.value).into_owned(),
            2 => inner = value(kind, raw.raw, raw.value)?,
            _ => {}
        }
    }
    map.insert(key, inner);
    Ok(())
}

/// Prints one value: `raw` is the field with its tag, `inner` the length-delimited value.
fn value(kind: Kind, raw: &[u8], inner: &[u8]) -> Result<Value, DecodeError> {
    Ok(match kind {
        Kind::Bool | Kind::Int | Kind::Uint32 | Kind::Uint64 | Kind::Enum(_) => {
            number(kind, varint(raw)?)
        }
        Kind::Double => json!(f64::from_le_bytes(last(raw))),
        Kind::Float => json!(f32::from_le_bytes(last(raw))),
        Kind::String => Value::String(String::from_utf8_lossy(inner).into_owned()),
        Kind::Bytes => {
            use ::base64::Engine as _;
            json!(::base64::engine::general_purpose::STANDARD.encode(inner))
        }
        Kind::Wrapper(scalar) => match raw_fields(inner).next() {
            Some(field) => {
                let field = field?;
                value(*scalar, field.raw, field.value)?
            }
            None => default(*scalar),
        },
        Kind::Message(descriptor) => message(inner, descriptor())?,
        Kind::Presence => json!({}),
        Kind::Duration => {
            let duration = DurationMessage::decode(inner)?;
            json!(duration_text(duration))
        }
        Kind::Any(_) => any(&AnyMessage::decode(inner)?)?,
        Kind::Struct => struct_json(&StructMessage::decode(inner)?),
    })
}

fn varint(mut raw: &[u8]) -> Result<u64, DecodeError> {
    decode_key(&mut raw)?;
    Ok(decode_varint(&mut raw)?)
}

/// Returns the last `N` bytes of a field, or zeros if it is shorter.
fn last<const N: usize>(raw: &[u8]) -> [u8; N] {
    let bytes = raw.last_chunk::<N>();
    bytes.copied().unwrap_or([0; N])
}

fn number(kind: Kind, number: u64) -> Value {
    match kind {
        Kind::Bool => json!(number != 0),
        Kind::Int => json!(number.cast_signed()),
        // The JSON mapping quotes 64-bit numbers: a double cannot represent all of them.
        Kind::Uint64 => json!(number.to_string()),
        Kind::Enum(values) => {
            let signed = number.cast_signed();
            values
                .iter()
                .find(|(_, known)| *known == signed)
                .map_or(json!(signed), |(name, _)| json!(name))
        }
        _ => json!(number),
    }
}

fn default(scalar: Kind) -> Value {
    match scalar {
        Kind::String | Kind::Bytes => json!(""),
        Kind::Double | Kind::Float => json!(0.0),
        scalar => number(scalar, 0),
    }
}

/// Prints an `Any`, with the fields of its message if that type is declared.
fn any(any: &AnyMessage) -> Result<Value, DecodeError> {
    let mut object = Map::new();
    object.insert("@type".to_owned(), json!(any.type_url));
    if let Some(descriptor) = by_name(any.type_name()) {
        put_fields(&any.value, descriptor, &mut object)?;
    }
    Ok(Value::Object(object))
}

/// Formats a duration in seconds with 0, 3, 6 or 9 decimals.
fn duration_text(duration: DurationMessage) -> String {
    let nanos = duration.nanos;
    match (nanos % 1_000_000, nanos % 1_000) {
        _ if nanos == 0 => format!("{}s", duration.seconds),
        (0, _) => format!("{}.{:03}s", duration.seconds, nanos / 1_000_000),
        (_, 0) => format!("{}.{:06}s", duration.seconds, nanos / 1_000),
        _ => format!("{}.{nanos:09}s", duration.seconds),
    }
}
