//! The messages of the load reporting service, in our own words.
//!
//! A server reads [`LoadStatsRequest`], which keeps only what decides something; a client writes
//! [`LoadReport`], which has every field that applies. `convert::load_report` turns them into bytes
//! and back; `lrs::server` and `lrs::client` speak in them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterStats, UpstreamLocalityStats};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;

use crate::node::NodeInfo;

/// What a server reads of a `LoadStatsRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadStatsRequest {
    /// On every message of Envoy, on the first one of gRPC.
    pub node: Option<NodeInfo>,
    /// One per upstream cluster.
    pub cluster_stats: Vec<ClusterStats>,
}

/// A `LoadStatsRequest` as a client writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// On the first message of a stream.
    pub node: Option<NodeInfo>,
    /// One per upstream cluster.
    pub cluster_stats: Vec<ClusterStatsMessage>,
}

/// `ClusterStats` with every field that applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterStatsMessage {
    /// The upstream cluster.
    pub cluster_name: Arc<str>,
    /// Its name in EDS when that differs; empty otherwise.
    pub cluster_service_name: Arc<str>,
    /// Per upstream locality and priority.
    pub upstream_locality_stats: Vec<UpstreamLocalityStatsMessage>,
    /// Requests dropped before they were issued, for whatever reason.
    pub total_dropped_requests: u64,
    /// The part of them that has a category.
    pub dropped_requests: BTreeMap<Arc<str>, u64>,
    /// The interval the counts cover.
    pub load_report_interval: Duration,
}

/// `UpstreamLocalityStats` with every field that applies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamLocalityStatsMessage {
    /// Locality, priority and counts.
    pub stats: UpstreamLocalityStats,
    /// Custom metrics by name.
    pub load_metric_stats: BTreeMap<Arc<str>, MetricStats>,
    /// `cpu_utilization` (field 12), where gRPC puts it.
    pub cpu_utilization: MetricStats,
    /// `mem_utilization` (field 13).
    pub mem_utilization: MetricStats,
    /// `application_utilization` (field 14).
    pub application_utilization: MetricStats,
    /// Per endpoint; empty unless the server asked for it.
    pub upstream_endpoint_stats: Vec<UpstreamEndpointStats>,
}

/// A metric summed over requests (`EndpointLoadMetricStats` without the name).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricStats {
    /// Requests that finished with this metric; zero means the metric is absent.
    pub num_requests_finished_with_metric: u64,
    /// Sum of its values.
    pub total_metric_value: f64,
}

/// What one endpoint got (`UpstreamEndpointStats`).
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamEndpointStats {
    /// Which one.
    pub address: SocketAddr,
    /// Completed without error.
    pub total_successful_requests: u64,
    /// In flight when the report was made.
    pub total_requests_in_progress: u64,
    /// Completed with an error.
    pub total_error_requests: u64,
    /// Issued in the interval.
    pub total_issued_requests: u64,
    /// Custom metrics by name.
    pub load_metric_stats: BTreeMap<Arc<str>, MetricStats>,
}

/// What a server asks for, and what it tells plimsoll data planes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStatsResponse {
    /// Names of the wanted clusters.
    pub clusters: Vec<Arc<str>>,
    /// All clusters are wanted, whatever `clusters` says.
    pub send_all_clusters: bool,
    /// Time between two reports.
    pub load_reporting_interval: Duration,
    /// Whether endpoints are reported one by one.
    pub report_endpoint_granularity: bool,
    /// Field 5, for plimsoll data planes only (decisions D9).
    pub observed_traffic: Vec<ClusterTraffic>,
}

/// How the demand for one upstream cluster is spread over the reporters' localities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTraffic {
    /// The upstream cluster.
    pub cluster_name: Arc<str>,
    /// Share of each locality.
    pub fractions: Vec<(Locality, BasisPoints)>,
}

impl ClusterStatsMessage {
    /// What a server would keep of it.
    pub fn stats(&self) -> ClusterStats {
        let localities = self.upstream_locality_stats.iter();
        ClusterStats {
            cluster_name: Arc::clone(&self.cluster_name),
            upstream_locality_stats: localities.map(|message| message.stats.clone()).collect(),
            total_dropped_requests: self.total_dropped_requests,
            load_report_interval: self.load_report_interval,
        }
    }
}
