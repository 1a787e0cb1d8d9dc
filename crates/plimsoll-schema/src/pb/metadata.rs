//! Messages `google.protobuf.Struct` and `envoy.config.core.v3.Metadata`.

use std::collections::BTreeMap;

use plimsoll_schema_derive::Described;
use prost::{Message, Oneof};

use crate::{FieldType, Kind};

/// Namespace of load-balancing metadata.
const ENVOY_LB: &str = "envoy.lb";

/// `google.protobuf.Struct`: a JSON object.
#[derive(Clone, PartialEq, Message)]
pub struct StructMessage {
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, ValueMessage>,
}

impl FieldType for StructMessage {
    const KIND: Kind = Kind::Struct;
}

/// `google.protobuf.Value`: a JSON value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueMessage {
    #[prost(oneof = "KindMessage", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<KindMessage>,
}

/// `google.protobuf.Value.kind`: the variants of a JSON value.
#[derive(Clone, PartialEq, Oneof)]
pub enum KindMessage {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(StructMessage),
    #[prost(message, tag = "6")]
    List(ListMessage),
}

/// `google.protobuf.ListValue`: a JSON array.
#[derive(Clone, PartialEq, Message)]
pub struct ListMessage {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<ValueMessage>,
}

impl From<KindMessage> for ValueMessage {
    fn from(kind: KindMessage) -> Self {
        Self { kind: Some(kind) }
    }
}

/// `envoy.config.core.v3.Metadata`: metadata by namespace.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.core.v3.Metadata")]
#[schema(harmless = "2 typed_filter_metadata")]
pub struct MetadataMessage {
    /// Metadata by namespace; load balancing reads `envoy.lb`.
    #[prost(btree_map = "string, message", tag = "1")]
    pub filter_metadata: BTreeMap<String, StructMessage>,
}

impl MetadataMessage {
    /// Creates metadata with `fields` in the namespace `envoy.lb`.
    pub fn envoy_lb(fields: StructMessage) -> Self {
        Self {
            filter_metadata: BTreeMap::from([(ENVOY_LB.to_owned(), fields)]),
        }
    }

    /// Returns `filter_metadata["envoy.lb"]` if it is set.
    pub fn into_envoy_lb(mut self) -> Option<StructMessage> {
        self.filter_metadata.remove(ENVOY_LB)
    }

    /// Returns `filter_metadata["envoy.lb"][key]` if it is set.
    pub fn in_envoy_lb(&self, key: &str) -> Option<&ValueMessage> {
        self.filter_metadata.get(ENVOY_LB)?.fields.get(key)
    }
}
