//! Load reporting messages as plain structs.
//!
//! A server decodes [`LoadStatsRequest`], reduced to the fields it needs; a client encodes
//! [`LoadReport`] with all fields. `convert::load_report` encodes and decodes them.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats};
pub use plimsoll_core::model::load_report::{ClusterLoadStats, MetricStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;

use crate::node::NodeInfo;

/// `LoadStatsRequest` as a server decodes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadStatsRequest {
    /// Envoy sends the node in every message, gRPC in the first.
    pub node: Option<NodeInfo>,
    pub cluster_stats: Vec<ClusterStats>,
    /// Drops of each cluster in `cluster_stats` without a category: those of circuit breakers.
    pub refused_requests: Vec<u64>,
    /// What it says of single hosts; only decoded if the client was asked for it.
    pub host_stats: Vec<ClusterHostStats>,
}

/// `LoadStatsRequest` as a client encodes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Sent in the first message of a stream.
    pub node: Option<NodeInfo>,
    pub cluster_stats: Vec<ClusterLoadStats>,
}

/// Reporting settings of a server, and traffic data for plimsoll data planes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStatsResponse {
    pub clusters: Vec<Arc<str>>,
    /// Requests all clusters, regardless of `clusters`.
    pub send_all_clusters: bool,
    pub load_reporting_interval: Duration,
    pub report_endpoint_granularity: bool,
    /// Field 5, for plimsoll data planes only (decision 0028).
    pub observed_traffic: Vec<ClusterTraffic>,
}

/// Distribution of the demand for one upstream cluster over the reporters' localities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTraffic {
    pub cluster_name: Arc<str>,
    /// Share of each locality. Empty withdraws the previous shares.
    pub fractions: Vec<(Locality, BasisPoints)>,
    /// When the control plane observed the demand, since the Unix epoch, by its clock. Clients
    /// compare it with other timestamps of the same server only, never with their own clock.
    pub observation_time: Option<Duration>,
}
