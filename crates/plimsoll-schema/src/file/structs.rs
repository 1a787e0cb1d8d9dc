//! `google.protobuf.Struct` in files: keys keep their spelling, and null is a valid value.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::model::metadata::Metadata;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::metadata::decode_struct;
use crate::pb::metadata::{KindMessage, ListMessage, StructMessage, ValueMessage};
use crate::yaml::{STRUCT_KEY, STRUCT_VALUE};

pub(super) struct StructValue(pub(super) StructMessage);

impl<'de> Deserialize<'de> for StructValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StructVisitor).map(Self)
    }
}

/// A `google.protobuf.Struct` read from a file as load-balancing metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StructYaml(pub Metadata);

impl<'de> Deserialize<'de> for StructYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = StructValue::deserialize(deserializer)?.0;
        decode_struct(fields).map(Self).map_err(D::Error::custom)
    }
}

struct StructVisitor;

impl<'de> Visitor<'de> for StructVisitor {
    type Value = StructMessage;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of keys and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<StructMessage, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((RawKey(key), AnyValue(value))) = entries.next_entry()? {
            fields.insert(key, value);
        }
        Ok(StructMessage { fields })
    }
}

/// A map key in its original spelling: `someKey` is not converted to `some_key`.
pub(super) struct RawKey(pub(super) String);

impl<'de> Deserialize<'de> for RawKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
                Ok(key.to_owned())
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                key: D,
            ) -> Result<String, D::Error> {
                String::deserialize(key)
            }
        }

        deserializer
            .deserialize_newtype_struct(STRUCT_KEY, KeyVisitor)
            .map(Self)
    }
}

struct AnyValue(ValueMessage);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_newtype_struct(STRUCT_VALUE, ValueVisitor)
            .map(|kind| Self(kind.into()))
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = KindMessage;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<KindMessage, E> {
        Ok(KindMessage::Null(0))
    }

    fn visit_bool<E>(self, value: bool) -> Result<KindMessage, E> {
        Ok(KindMessage::Bool(value))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of a Struct are doubles"
    )]
    fn visit_i64<E>(self, value: i64) -> Result<KindMessage, E> {
        Ok(KindMessage::Number(value as f64))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of a Struct are doubles"
    )]
    fn visit_u64<E>(self, value: u64) -> Result<KindMessage, E> {
        Ok(KindMessage::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<KindMessage, E> {
        Ok(KindMessage::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<KindMessage, E> {
        Ok(KindMessage::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<KindMessage, A::Error> {
        let mut values = Vec::new();
        while let Some(AnyValue(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(KindMessage::List(ListMessage { values }))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<KindMessage, A::Error> {
        StructVisitor.visit_map(entries).map(KindMessage::Struct)
    }
}
