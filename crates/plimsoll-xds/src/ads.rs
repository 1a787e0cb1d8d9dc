//! Aggregated Discovery Service (ADS): protocol state machines without IO.
//!
//! [`message`] holds the four discovery messages as plain structs, so the state machines and their
//! tests need no protobuf; `convert::discovery` encodes and decodes them. [`view`] is the set of
//! resources a client is served, [`server`] one server-side stream, [`client`] the subscriber.
//! `driver` owns the sockets.

use std::sync::Arc;

use self::message::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, NodeMessage,
};

pub mod client;
pub mod message;
pub mod server;
pub mod view;

/// Type URL of clusters (CDS).
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of endpoint assignments (EDS).
pub const CLUSTER_LOAD_ASSIGNMENT: &str =
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Type URL of listeners (LDS).
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Type URL of route configurations (RDS).
pub const ROUTE_CONFIGURATION: &str =
    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// Type URL of scoped routes (SRDS).
pub const SCOPED_ROUTE_CONFIGURATION: &str =
    "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
/// Type URL of virtual hosts (VHDS).
pub const VIRTUAL_HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

/// Protocol variant of a stream, chosen by the RPC method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// State of the world: `StreamAggregatedResources`.
    Sotw,
    /// Incremental (delta) variant: `DeltaAggregatedResources`.
    Delta,
}

/// A discovery request of either variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Sotw(DiscoveryRequest),
    Delta(DeltaDiscoveryRequest),
}

impl Request {
    /// Returns the type URL of the requested resources.
    pub fn type_url(&self) -> &Arc<str> {
        match self {
            Self::Sotw(request) => &request.type_url,
            Self::Delta(request) => &request.type_url,
        }
    }

    /// Returns the node, which clients must send on the first request of a stream.
    pub fn node(&self) -> Option<&NodeMessage> {
        match self {
            Self::Sotw(request) => request.node.as_ref(),
            Self::Delta(request) => request.node.as_ref(),
        }
    }
}

/// A discovery response of either variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    Sotw(DiscoveryResponse),
    Delta(DeltaDiscoveryResponse),
}

impl Response {
    /// Returns the type URL of the resources in the response.
    pub fn type_url(&self) -> &Arc<str> {
        match self {
            Self::Sotw(response) => &response.type_url,
            Self::Delta(response) => &response.type_url,
        }
    }

    /// Returns the nonce that the ACK or NACK must echo.
    pub fn nonce(&self) -> &str {
        match self {
            Self::Sotw(response) => &response.nonce,
            Self::Delta(response) => &response.nonce,
        }
    }
}

/// Returns whether the type supports the legacy wildcard: an empty name list in the first request
/// subscribes to all resources, and a SotW response carries the full state, so an omitted resource
/// is deleted. SotW responses of other types may carry only changed resources.
fn has_wildcard(type_url: &str) -> bool {
    [LISTENER, CLUSTER, SCOPED_ROUTE_CONFIGURATION].contains(&type_url)
}
