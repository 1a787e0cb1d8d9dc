//! `envoy.service.discovery.v3` and `google.rpc.Status`.
//!
//! A node stands here as bytes: `convert::node` reads it, and a relay passes it on as it came.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::{AnyMessage, DurationMessage, LocalityMessage};

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DiscoveryRequestMessage {
    #[prost(string, tag = "1")]
    pub(crate) version_info: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) node: Option<Bytes>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub(crate) error_detail: Option<StatusMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DiscoveryResponseMessage {
    #[prost(string, tag = "1")]
    pub(crate) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<AnyMessage>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeltaDiscoveryRequestMessage {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) node: Option<Bytes>,
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) resource_names_unsubscribe: Vec<String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(crate) initial_resource_versions: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) error_detail: Option<StatusMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeltaDiscoveryResponseMessage {
    #[prost(string, tag = "1")]
    pub(crate) system_version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<ResourceMessage>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub(crate) removed_resources: Vec<String>,
}

/// `Resource`: an incremental resource, or a wrapper in a state-of-the-world response.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ResourceMessage {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) resource: Option<AnyMessage>,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "6")]
    pub(crate) ttl: Option<DurationMessage>,
}

/// `google.rpc.Status` without details.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StatusMessage {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// `envoy.config.core.v3.Node` without metadata, extensions and parameters.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct NodeFields {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) cluster: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) locality: Option<LocalityMessage>,
    #[prost(string, tag = "6")]
    pub(crate) user_agent_name: String,
    #[prost(string, tag = "7")]
    pub(crate) user_agent_version: String,
    #[prost(message, optional, tag = "8")]
    pub(crate) user_agent_build_version: Option<BuildVersionMessage>,
    #[prost(string, repeated, tag = "10")]
    pub(crate) client_features: Vec<String>,
}

/// `envoy.config.core.v3.BuildVersion`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct BuildVersionMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) version: Option<SemanticVersionMessage>,
}

/// `envoy.type.v3.SemanticVersion`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SemanticVersionMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) major_number: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) minor_number: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) patch: u32,
}
