//! The aggregated discovery service, as protocol state without IO.
//!
//! [`message`] holds the four messages in our own words, so that machines and their tests need no
//! protobuf; `convert::discovery` turns them into bytes and back.

pub mod message;

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
