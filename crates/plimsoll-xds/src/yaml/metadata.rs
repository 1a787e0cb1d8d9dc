//! `Metadata` and `google.protobuf.Struct` in YAML: keys stay as they are written, and null is a
//! value.
//!
//! Of a `Metadata` only `filter_metadata["envoy.lb"]` is read, which is what load balancing looks
//! at; what filters of Envoy read is passed over.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::de::{STRUCT_KEY, STRUCT_VALUE};
use super::proto_json::Ignored;

/// `envoy.config.core.v3.Metadata`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "LbMetadata")
)]
#[serde(default, deny_unknown_fields)]
pub struct MetadataYaml {
    /// Metadata by reader.
    filter_metadata: FilterMetadata,
    /// Without effect: read by filters of Envoy.
    typed_filter_metadata: Option<Ignored>,
}

/// `filter_metadata`; other keys than `envoy.lb` are for other readers.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "LbFilterMetadata")
)]
#[serde(default)]
struct FilterMetadata {
    /// What load balancing reads: any keys and values.
    #[serde(rename = "envoy.lb")]
    envoy_lb: Option<StructYaml>,
}

impl MetadataYaml {
    /// `filter_metadata["envoy.lb"]`.
    pub fn into_envoy_lb(self) -> Option<Metadata> {
        self.filter_metadata.envoy_lb.map(|fields| fields.0)
    }
}

/// `google.protobuf.Struct`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StructYaml(pub Metadata);

impl<'de> Deserialize<'de> for StructYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StructVisitor).map(Self)
    }
}

struct StructVisitor;

impl<'de> Visitor<'de> for StructVisitor {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of keys and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Metadata, A::Error> {
        let mut fields = Vec::new();
        while let Some((StructKey(key), AnyValue(value))) = entries.next_entry()? {
            fields.push((key, value));
        }
        Ok(fields.into_iter().collect())
    }
}

/// A key as it is written: `someKey` is not `some_key` here.
struct StructKey(Arc<str>);

impl<'de> Deserialize<'de> for StructKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl Visitor<'_> for KeyVisitor {
            type Value = Arc<str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: Error>(self, key: &str) -> Result<Arc<str>, E> {
                Ok(key.into())
            }
        }

        let key = deserializer.deserialize_newtype_struct(STRUCT_KEY, KeyVisitor);
        key.map(Self)
    }
}

/// `google.protobuf.Value`.
struct AnyValue(MetadataValue);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_newtype_struct(STRUCT_VALUE, ValueVisitor);
        value.map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = MetadataValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<MetadataValue, E> {
        Ok(MetadataValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<MetadataValue, E> {
        Ok(MetadataValue::Bool(value))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of a Struct are doubles"
    )]
    fn visit_i64<E: Error>(self, value: i64) -> Result<MetadataValue, E> {
        self.visit_f64(value as f64)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of a Struct are doubles"
    )]
    fn visit_u64<E: Error>(self, value: u64) -> Result<MetadataValue, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<MetadataValue, E> {
        MetadataValue::number(value).map_err(|error| E::custom(error.reason()))
    }

    fn visit_str<E>(self, value: &str) -> Result<MetadataValue, E> {
        Ok(MetadataValue::String(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<MetadataValue, A::Error> {
        let mut values = Vec::new();
        while let Some(AnyValue(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(MetadataValue::list(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<MetadataValue, A::Error> {
        StructVisitor.visit_map(entries).map(MetadataValue::Struct)
    }
}
