//! `envoy.service.discovery.v3` and `google.rpc.Status`.
//!
//! The node is kept as bytes: `convert::node` decodes it, and a relay forwards it unchanged.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::{AnyMessage, DurationMessage, LocalityMessage};

/// `DiscoveryRequest`: subscribes to resources of one type, or answers a response (SotW).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DiscoveryRequestMessage {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub node: Option<Bytes>,
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<StatusMessage>,
}

/// `DiscoveryResponse`: the resources of one type at one version (SotW).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DiscoveryResponseMessage {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<AnyMessage>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
}

/// `DeltaDiscoveryRequest`: changes subscriptions, or answers a response (incremental).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeltaDiscoveryRequestMessage {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub node: Option<Bytes>,
    #[prost(string, tag = "2")]
    pub type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub resource_names_unsubscribe: Vec<String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub initial_resource_versions: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<StatusMessage>,
}

/// `DeltaDiscoveryResponse`: resources that changed or were removed (incremental).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeltaDiscoveryResponseMessage {
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<ResourceMessage>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
}

/// `Resource`: an incremental resource, or a wrapper in a state-of-the-world response.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceMessage {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(message, optional, tag = "2")]
    pub resource: Option<AnyMessage>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(message, optional, tag = "6")]
    pub ttl: Option<DurationMessage>,
}

/// `google.rpc.Status` without its details.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusMessage {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `envoy.config.core.v3.Node` without metadata, extensions and parameters.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeFields {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub cluster: String,
    #[prost(message, optional, tag = "4")]
    pub locality: Option<LocalityMessage>,
    #[prost(string, tag = "6")]
    pub user_agent_name: String,
    #[prost(string, tag = "7")]
    pub user_agent_version: String,
    #[prost(message, optional, tag = "8")]
    pub user_agent_build_version: Option<BuildVersionMessage>,
    #[prost(string, repeated, tag = "10")]
    pub client_features: Vec<String>,
}

/// `envoy.config.core.v3.BuildVersion` without its metadata.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BuildVersionMessage {
    #[prost(message, optional, tag = "1")]
    pub version: Option<SemanticVersionMessage>,
}

/// `envoy.type.v3.SemanticVersion`: version of the client.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SemanticVersionMessage {
    #[prost(uint32, tag = "1")]
    pub major_number: u32,
    #[prost(uint32, tag = "2")]
    pub minor_number: u32,
    #[prost(uint32, tag = "3")]
    pub patch: u32,
}
