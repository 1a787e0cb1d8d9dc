//! Deserialization of single values of every [`Kind`] into the wire format.

use std::fmt;

use prost::Message as _;
use prost::encoding::{self, WireType, encode_key, encode_varint};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::seed::{fields, message};
use super::structs::StructValue;
use crate::field::put_field;
use crate::pb::{AnyMessage, DurationMessage};
use crate::registry::Types;
use crate::yaml::STRUCT_VALUE;
use crate::yaml::proto_json::{Double, Int, ProtoDuration, Uint};
use crate::{Descriptor, EnumValues, Kind};

/// Deserializes one value and encodes it as field `number`.
pub(super) fn put<'de, D: Deserializer<'de>>(
    kind: Kind,
    number: u32,
    value: D,
    out: &mut Vec<u8>,
) -> Result<(), D::Error> {
    let varint = |value: u64, out: &mut Vec<u8>| {
        encode_key(number, WireType::Varint, out);
        encode_varint(value, out);
    };
    match kind {
        Kind::Bool => varint(u64::from(bool::deserialize(value)?), out),
        Kind::Int => varint(Int::deserialize(value)?.0.cast_unsigned(), out),
        Kind::Uint32 => varint(u64::from(Uint::<u32>::deserialize(value)?.0), out),
        Kind::Uint64 => varint(Uint::<u64>::deserialize(value)?.0, out),
        Kind::Double => encoding::double::encode(number, &Double::deserialize(value)?.0, out),
        Kind::Float => {
            #[expect(clippy::cast_possible_truncation, reason = "the field is a float")]
            let narrow = Double::deserialize(value)?.0 as f32;
            encoding::float::encode(number, &narrow, out);
        }
        Kind::String => put_field(out, number, String::deserialize(value)?.as_bytes()),
        Kind::Bytes => put_field(out, number, &base64(&String::deserialize(value)?)?),
        Kind::Enum(values) => varint(value.deserialize_any(EnumVisitor(values))?, out),
        Kind::Wrapper(inner) => {
            let mut wrapped = Vec::new();
            put(*inner, 1, value, &mut wrapped)?;
            put_field(out, number, &wrapped);
        }
        Kind::Message(descriptor) => put_field(out, number, &message(descriptor(), value)?),
        Kind::Presence => {
            message(&EMPTY, value)?;
            put_field(out, number, &[]);
        }
        Kind::Duration => {
            let duration = DurationMessage::from(ProtoDuration::deserialize(value)?.0);
            put_field(out, number, &duration.encode_to_vec());
        }
        Kind::Any(types) => {
            let any = value.deserialize_struct("Any", &[], AnyVisitor(types()))?;
            put_field(out, number, &any.encode_to_vec());
        }
        Kind::Struct => {
            let fields = StructValue::deserialize(value)?.0;
            put_field(out, number, &fields.encode_to_vec());
        }
    }
    Ok(())
}

/// Decodes base64, the JSON mapping of `bytes`.
fn base64<E: Error>(text: &str) -> Result<Vec<u8>, E> {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|error| E::custom(format_args!("is not base64: {error}")))
}

/// Reads an enum value by name or number.
struct EnumVisitor(EnumValues);

impl EnumVisitor {
    fn find<E: Error>(
        &self,
        written: impl fmt::Display,
        matches: impl Fn(&str, i64) -> bool,
    ) -> Result<u64, E> {
        let mut values = self.0.iter();
        if let Some((_, number)) = values.find(|(name, number)| matches(name, *number)) {
            return Ok(number.cast_unsigned());
        }
        let names: Vec<_> = self.0.iter().map(|(name, _)| name).collect();
        Err(E::custom(format_args!(
            "unknown value {written}, expected one of {}",
            names.join(", ")
        )))
    }
}

impl Visitor<'_> for EnumVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name or number of an enum value")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<u64, E> {
        self.find(value, |name, _| name == value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        self.find(value, |_, number| number == value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        self.find(value, |_, number| u64::try_from(number) == Ok(value))
    }
}

static EMPTY: Descriptor = Descriptor {
    name: "google.protobuf.Empty",
    title: "",
    doc: "",
    fields: &[],
    unsupported: &[],
};

/// Accepts a map with any fields and ignores them.
pub(super) struct IgnoredFields;

impl<'de> Visitor<'de> for IgnoredFields {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Reads an `Any` by its `@type`, which the deserializer yields first. Fields of a type that is not
/// declared here are ignored; the converters decide whether that type is allowed.
struct AnyVisitor(Types);

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = AnyMessage;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message with \"@type\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyMessage, A::Error> {
        match map.next_key::<String>()?.as_deref() {
            Some("@type") => {}
            _ => return Err(A::Error::missing_field("@type")),
        }
        let mut any = AnyMessage {
            type_url: map.next_value()?,
            ..Default::default()
        };
        let mut value = Vec::new();
        let mut types = self.0.iter();
        match types.find(|known| known.name == any.type_name()) {
            Some(descriptor) => fields(descriptor, map, &mut value)?,
            None => IgnoredFields.visit_map(map)?,
        }
        any.value = value.into();
        Ok(any)
    }
}

/// Whether a value of any type is the default: null, false, zero or empty.
pub(super) struct IsDefault(pub(super) bool);

impl<'de> Deserialize<'de> for IsDefault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_newtype_struct(STRUCT_VALUE, DefaultVisitor)
            .map(Self)
    }
}

struct DefaultVisitor;

impl<'de> Visitor<'de> for DefaultVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(!value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<bool, E> {
        Ok(value == 0)
    }

    fn visit_u64<E>(self, value: u64) -> Result<bool, E> {
        Ok(value == 0)
    }

    fn visit_f64<E>(self, value: f64) -> Result<bool, E> {
        Ok(value == 0.0)
    }

    fn visit_str<E>(self, value: &str) -> Result<bool, E> {
        Ok(value.is_empty())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut is_empty = true;
        while items.next_element::<IgnoredAny>()?.is_some() {
            is_empty = false;
        }
        Ok(is_empty)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut is_empty = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            is_empty = false;
        }
        Ok(is_empty)
    }
}
