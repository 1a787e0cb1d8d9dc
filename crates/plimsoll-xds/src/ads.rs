//! The aggregated discovery service, as protocol state without IO.
//!
//! [`message`] holds the four messages in our own words, so that machines and their tests need no
//! protobuf; `convert::discovery` turns them into bytes and back. [`view`] is what receivers are to
//! see, [`server`] one stream of a server, [`client`] a subscriber. Sockets belong to `driver`.

use std::sync::Arc;

use self::message::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, NodeMessage,
};

pub mod client;
pub mod message;
pub mod server;
pub mod view;

/// `type.googleapis.com/envoy.config.cluster.v3.Cluster`
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// `type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment`
pub const CLUSTER_LOAD_ASSIGNMENT: &str =
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// `type.googleapis.com/envoy.config.listener.v3.Listener`
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// `type.googleapis.com/envoy.config.route.v3.RouteConfiguration`
pub const ROUTE_CONFIGURATION: &str =
    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// `type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration`
pub const SCOPED_ROUTE_CONFIGURATION: &str =
    "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
/// `type.googleapis.com/envoy.config.route.v3.VirtualHost`
pub const VIRTUAL_HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

/// Which of the two protocols a stream speaks; the RPC decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// State of the world: `StreamAggregatedResources`.
    Sotw,
    /// Incremental: `DeltaAggregatedResources`.
    Delta,
}

/// A request of either variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// State of the world.
    Sotw(DiscoveryRequest),
    /// Incremental.
    Delta(DeltaDiscoveryRequest),
}

impl Request {
    /// Which type it is about.
    pub fn type_url(&self) -> &Arc<str> {
        match self {
            Self::Sotw(request) => &request.type_url,
            Self::Delta(request) => &request.type_url,
        }
    }

    /// Who sends it, if it says so.
    pub fn node(&self) -> Option<&NodeMessage> {
        match self {
            Self::Sotw(request) => request.node.as_ref(),
            Self::Delta(request) => request.node.as_ref(),
        }
    }
}

/// A response of either variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// State of the world.
    Sotw(DiscoveryResponse),
    /// Incremental.
    Delta(DeltaDiscoveryResponse),
}

impl Response {
    /// Which type it is about.
    pub fn type_url(&self) -> &Arc<str> {
        match self {
            Self::Sotw(response) => &response.type_url,
            Self::Delta(response) => &response.type_url,
        }
    }

    /// What the answer must repeat.
    pub fn nonce(&self) -> &str {
        match self {
            Self::Sotw(response) => &response.nonce,
            Self::Delta(response) => &response.nonce,
        }
    }
}

/// Whether an empty first request of this type means all, and a state-of-the-world response of it
/// lists all: what it leaves out is gone. Of the other types it may list what changed.
fn has_wildcard(type_url: &str) -> bool {
    [LISTENER, CLUSTER, SCOPED_ROUTE_CONFIGURATION].contains(&type_url)
}
