//! Discovery requests and responses of both ADS variants as plain structs.
//!
//! `convert::discovery` encodes and decodes them. Resource bodies are opaque bytes here.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::node::NodeInfo;

/// Reason of a NACK (`google.rpc.Status`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDetail {
    /// gRPC status code, usually 3 (INVALID_ARGUMENT).
    pub code: i32,
    pub message: String,
}

impl ErrorDetail {
    /// Cuts the message to at most `bytes`, at a character boundary, and marks the cut.
    pub fn cut(&mut self, bytes: usize) {
        if self.message.len() > bytes {
            let mut ends = (0..=bytes).rev();
            let end = ends.find(|&end| self.message.is_char_boundary(end));
            self.message.truncate(end.unwrap_or_default());
            self.message.push('…');
            self.message.shrink_to_fit();
        }
    }
}

/// Node of a client, parsed, and as the encoded message for relaying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMessage {
    pub info: NodeInfo,
    pub raw: Bytes,
}

/// SotW request: subscribed names, and ACK or NACK of the last response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryRequest {
    /// Sent on the first request of a stream; some clients send it every time.
    pub node: Option<NodeMessage>,
    pub type_url: Arc<str>,
    /// Version of the last accepted response; empty before the first.
    pub version_info: String,
    /// Nonce of the response that this request answers; empty on the first request of a type.
    pub response_nonce: String,
    /// Subscribed names; empty on the first LDS or CDS request means wildcard.
    pub resource_names: Vec<Arc<str>>,
    pub error_detail: Option<ErrorDetail>,
}

/// One resource of a SotW response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Any {
    pub type_url: Arc<str>,
    pub value: Bytes,
}

/// SotW response with the resources of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryResponse {
    pub type_url: Arc<str>,
    pub version_info: String,
    pub nonce: String,
    pub resources: Vec<Any>,
}

/// Incremental request: subscription changes, and ACK or NACK of the last response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaDiscoveryRequest {
    pub node: Option<NodeMessage>,
    pub type_url: Arc<str>,
    pub resource_names_subscribe: Vec<Arc<str>>,
    pub resource_names_unsubscribe: Vec<Arc<str>>,
    /// Versions the client kept from an earlier stream, by resource name.
    pub initial_resource_versions: BTreeMap<Arc<str>, String>,
    /// Nonce of the response that this request answers; empty in a request without ACK or NACK.
    pub response_nonce: String,
    pub error_detail: Option<ErrorDetail>,
}

/// One resource of an incremental response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaResource {
    pub name: Arc<str>,
    pub version: String,
    pub resource: Option<Any>,
}

/// Incremental response: added or changed resources and the names of removed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaDiscoveryResponse {
    pub type_url: Arc<str>,
    /// For debugging only, as the protocol demands.
    pub system_version_info: String,
    pub nonce: String,
    pub resources: Vec<DeltaResource>,
    pub removed_resources: Vec<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let cut = |message: &str, bytes| {
            let mut detail = ErrorDetail {
                code: 3,
                message: message.to_owned(),
            };
            detail.cut(bytes);
            detail.message
        };
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "abc…");
        assert_eq!(cut("aéé", 2), "a…");
        assert_eq!(cut("é", 0), "…");
    }
}
