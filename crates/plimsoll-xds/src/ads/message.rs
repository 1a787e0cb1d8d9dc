//! The messages of both ADS variants, in our own words.
//!
//! `convert::discovery` turns them into bytes and back; `ads::server` and `ads::client` speak in
//! them. Resource bodies are opaque here: the bytes of the `Any`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::node::NodeInfo;

/// Why a response was refused (`google.rpc.Status`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDetail {
    /// gRPC status code, usually 3 (INVALID_ARGUMENT).
    pub code: i32,
    /// The reason in words.
    pub message: String,
}

/// Who sends, and the bytes of its node for passing on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMessage {
    /// What was read of it.
    pub info: NodeInfo,
    /// The message as it came.
    pub raw: Bytes,
}

/// State of the world: what a client wants, and what it thinks of the last response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryRequest {
    /// On the first request of a stream; some clients send it every time.
    pub node: Option<NodeMessage>,
    /// Which type this is about.
    pub type_url: Arc<str>,
    /// The last version accepted; empty before the first.
    pub version_info: String,
    /// The nonce of the response this answers; empty on the first request of a type.
    pub response_nonce: String,
    /// The wanted names; empty on the first request of LDS and CDS means all.
    pub resource_names: Vec<Arc<str>>,
    /// Set = the response with this nonce is refused.
    pub error_detail: Option<ErrorDetail>,
}

/// One resource of a state-of-the-world response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Any {
    /// Type of the body.
    pub type_url: Arc<str>,
    /// The encoded resource.
    pub value: Bytes,
}

/// State of the world: resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryResponse {
    /// Which type this is about.
    pub type_url: Arc<str>,
    /// Version of these resources.
    pub version_info: String,
    /// What the answer must repeat.
    pub nonce: String,
    /// The resources.
    pub resources: Vec<Any>,
}

/// Incremental: changes of what a client wants, and what it thinks of the last response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaDiscoveryRequest {
    /// On the first request of a stream.
    pub node: Option<NodeMessage>,
    /// Which type this is about.
    pub type_url: Arc<str>,
    /// Names wanted from now on; `*` means all.
    pub resource_names_subscribe: Vec<Arc<str>>,
    /// Names not wanted any more.
    pub resource_names_unsubscribe: Vec<Arc<str>>,
    /// What the client has from an earlier stream, by name.
    pub initial_resource_versions: BTreeMap<Arc<str>, String>,
    /// The nonce of the response this answers; empty when it answers none.
    pub response_nonce: String,
    /// Set = the response with this nonce is refused.
    pub error_detail: Option<ErrorDetail>,
}

/// One resource of an incremental response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaResource {
    /// Its name.
    pub name: Arc<str>,
    /// Its version.
    pub version: String,
    /// The resource itself.
    pub resource: Option<Any>,
}

/// Incremental: resources that are new or changed, and names that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaDiscoveryResponse {
    /// Which type this is about.
    pub type_url: Arc<str>,
    /// For people only.
    pub system_version_info: String,
    /// What the answer must repeat.
    pub nonce: String,
    /// New or changed.
    pub resources: Vec<DeltaResource>,
    /// Gone.
    pub removed_resources: Vec<Arc<str>>,
}
