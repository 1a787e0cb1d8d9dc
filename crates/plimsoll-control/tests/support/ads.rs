//! A discovery stream over a socket: sends requests and receives responses, nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_xds::ads::message::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, NodeMessage,
};
use plimsoll_xds::driver::{DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES};
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::wire;
use tokio::sync::mpsc;
use tonic::Streaming;

use super::stream;

pub(crate) const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub(crate) const ASSIGNMENTS: &str =
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Only failing tests wait this long for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An open stream; closed when dropped.
pub(crate) struct Ads {
    requests: mpsc::Sender<Bytes>,
    responses: Streaming<Bytes>,
}

/// The node in the form of a request.
pub(crate) fn message(info: &NodeInfo) -> Option<NodeMessage> {
    Some(NodeMessage {
        info: info.clone(),
        raw: wire::encode_node(info),
    })
}

pub(crate) fn names<const N: usize>(names: [&str; N]) -> Vec<Arc<str>> {
    names.map(Arc::from).into()
}

impl Ads {
    pub(crate) async fn sotw(address: SocketAddr) -> Self {
        Self::open(address, STREAM_AGGREGATED_RESOURCES).await
    }

    pub(crate) async fn delta(address: SocketAddr) -> Self {
        Self::open(address, DELTA_AGGREGATED_RESOURCES).await
    }

    async fn open(address: SocketAddr, path: &'static str) -> Self {
        let (requests, responses) = stream::open(address, path).await;
        Self {
            requests,
            responses,
        }
    }

    pub(crate) async fn request(&mut self, request: &DiscoveryRequest) {
        self.send(wire::encode_discovery_request(request)).await;
    }

    pub(crate) async fn request_delta(&mut self, request: &DeltaDiscoveryRequest) {
        self.send(wire::encode_delta_discovery_request(request))
            .await;
    }

    /// Waits for a response of a state-of-the-world stream.
    pub(crate) async fn response(&mut self) -> DiscoveryResponse {
        wire::decode_discovery_response(self.receive().await).unwrap()
    }

    /// Waits for a response of an incremental stream and acknowledges it.
    pub(crate) async fn response_delta(&mut self) -> DeltaDiscoveryResponse {
        let received = self.receive().await;
        let response = wire::decode_delta_discovery_response(received).unwrap();
        self.request_delta(&DeltaDiscoveryRequest {
            type_url: Arc::clone(&response.type_url),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
        response
    }

    async fn send(&mut self, message: Vec<u8>) {
        self.requests.send(message.into()).await.unwrap();
    }

    async fn receive(&mut self) -> Bytes {
        let received = tokio::time::timeout(TIMEOUT, self.responses.message()).await;
        let message = received.expect("a response").unwrap();
        message.expect("the stream is open")
    }
}
