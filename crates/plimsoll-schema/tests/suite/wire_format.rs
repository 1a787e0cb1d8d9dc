//! Protobuf encoder from document and descriptor, independent of the code under test.

use plimsoll_schema::{Descriptor, Kind, Label, by_name};
use serde_json::Value;

/// Encodes a message whose document has the printed spelling.
pub(crate) fn message(descriptor: &'static Descriptor, document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let document = document.as_object().unwrap();
    for (name, value) in document.iter().filter(|(name, _)| *name != "@type") {
        if let Some(field) = descriptor
            .unsupported
            .iter()
            .find(|field| field.name == name)
        {
            bytes(&mut out, field.number, &[8, 1]);
            continue;
        }
        let field = descriptor
            .fields
            .iter()
            .find(|field| field.name == name)
            .unwrap_or_else(|| panic!("{name} of {}", descriptor.name));
        match field.label {
            Label::One => put(&mut out, field.number, field.kind, value),
            Label::Many => {
                for item in value.as_array().unwrap() {
                    put(&mut out, field.number, field.kind, item);
                }
            }
            Label::Map => {
                for (key, value) in value.as_object().unwrap() {
                    let mut entry = Vec::new();
                    bytes(&mut entry, 1, key.as_bytes());
                    put(&mut entry, 2, field.kind, value);
                    bytes(&mut out, field.number, &entry);
                }
            }
        }
    }
    out
}

/// Writes a length-delimited field.
pub(crate) fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put(out: &mut Vec<u8>, number: u32, kind: Kind, value: &Value) {
    match kind {
        Kind::Bool | Kind::Int | Kind::Uint32 | Kind::Uint64 | Kind::Enum(_) => {
            varint(out, u64::from(number) << 3);
            varint(out, scalar(kind, value));
        }
        Kind::Double => fixed(out, number, 1, &value.as_f64().unwrap().to_le_bytes()),
        Kind::Float => fixed(
            out,
            number,
            5,
            &(value.as_f64().unwrap() as f32).to_le_bytes(),
        ),
        _ => bytes(out, number, &with_length(kind, value)),
    }
}

fn fixed(out: &mut Vec<u8>, number: u32, wire_type: u64, value: &[u8]) {
    varint(out, u64::from(number) << 3 | wire_type);
    out.extend_from_slice(value);
}

fn scalar(kind: Kind, value: &Value) -> u64 {
    match (kind, value) {
        (_, Value::Bool(value)) => u64::from(*value),
        (Kind::Enum(values), Value::String(name)) => {
            let mut values = values.iter();
            values.find(|(known, _)| known == name).unwrap().1 as u64
        }
        (_, Value::String(digits)) => digits.parse().unwrap(),
        (_, number) => number.as_i64().unwrap() as u64,
    }
}

fn with_length(kind: Kind, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match kind {
        Kind::String => out.extend_from_slice(value.as_str().unwrap().as_bytes()),
        Kind::Bytes => base64(&mut out, value.as_str().unwrap()),
        Kind::Wrapper(inner) => put(&mut out, 1, *inner, value),
        Kind::Message(descriptor) => return message(descriptor(), value),
        Kind::Duration => duration(&mut out, value.as_str().unwrap()),
        Kind::Any(_) => {
            let url = value["@type"].as_str().unwrap();
            bytes(&mut out, 1, url.as_bytes());
            let known = by_name(url.rsplit('/').next().unwrap());
            let inner = known.map(|descriptor| message(descriptor, value));
            // Defaults are omitted.
            if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
                bytes(&mut out, 2, &inner);
            }
        }
        Kind::Struct => structure(&mut out, value),
        Kind::Presence => assert_eq!(value.as_object().unwrap().len(), 0),
        _ => panic!("{kind:?} has no length"),
    }
    out
}

fn base64(out: &mut Vec<u8>, text: &str) {
    let alphabet: String = ('A'..='Z')
        .chain('a'..='z')
        .chain('0'..='9')
        .chain("+/".chars())
        .collect();
    let (mut bits, mut count) = (0, 0);
    for digit in text.chars().filter(|digit| *digit != '=') {
        bits = (bits << 6 | alphabet.find(digit).unwrap()) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
}

fn duration(out: &mut Vec<u8>, text: &str) {
    let seconds: f64 = text.trim_end_matches('s').parse().unwrap();
    varint(out, 1 << 3);
    varint(out, seconds as u64);
    varint(out, 2 << 3);
    varint(out, (seconds.fract() * 1e9).round() as u64);
}

/// Writes the fields of a `google.protobuf.Struct`.
fn structure(out: &mut Vec<u8>, value: &Value) {
    for (key, value) in value.as_object().unwrap() {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, key.as_bytes());
        bytes(&mut entry, 2, &struct_value(value));
        bytes(out, 1, &entry);
    }
}

/// Encodes a value as `google.protobuf.Value`.
fn struct_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Null => out.extend_from_slice(&[1 << 3, 0]),
        Value::Number(number) => fixed(&mut out, 2, 1, &number.as_f64().unwrap().to_le_bytes()),
        Value::String(text) => bytes(&mut out, 3, text.as_bytes()),
        Value::Bool(value) => out.extend_from_slice(&[4 << 3, u8::from(*value)]),
        Value::Object(_) => {
            let mut inner = Vec::new();
            structure(&mut inner, value);
            bytes(&mut out, 5, &inner);
        }
        Value::Array(items) => {
            let mut list = Vec::new();
            for item in items {
                bytes(&mut list, 1, &struct_value(item));
            }
            bytes(&mut out, 6, &list);
        }
    }
    out
}
