//! `google.protobuf.Struct` and `envoy.config.core.v3.Metadata`.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

/// Namespace of the metadata that load balancing reads.
const ENVOY_LB: &str = "envoy.lb";

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StructMessage {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) fields: BTreeMap<String, ValueMessage>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueMessage {
    #[prost(oneof = "KindMessage", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) kind: Option<KindMessage>,
}

/// `google.protobuf.Value.kind`.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum KindMessage {
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

/// `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<ValueMessage>,
}

impl From<KindMessage> for ValueMessage {
    fn from(kind: KindMessage) -> Self {
        Self { kind: Some(kind) }
    }
}

/// `envoy.config.core.v3.Metadata`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetadataMessage {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) filter_metadata: BTreeMap<String, StructMessage>,
}

impl MetadataMessage {
    /// Metadata of which load balancing reads `fields`.
    pub(crate) fn envoy_lb(fields: StructMessage) -> Self {
        Self {
            filter_metadata: BTreeMap::from([(ENVOY_LB.to_owned(), fields)]),
        }
    }

    /// `filter_metadata["envoy.lb"]`.
    pub(crate) fn into_envoy_lb(mut self) -> Option<StructMessage> {
        self.filter_metadata.remove(ENVOY_LB)
    }

    /// `filter_metadata["envoy.lb"][key]`.
    pub(crate) fn in_envoy_lb(&self, key: &str) -> Option<&ValueMessage> {
        self.filter_metadata.get(ENVOY_LB)?.fields.get(key)
    }
}
