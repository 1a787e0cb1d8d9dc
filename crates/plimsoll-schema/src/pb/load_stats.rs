//! `envoy.service.load_stats.v3` and the statistics of `envoy.config.endpoint.v3`.
//!
//! A server decodes the `*Counts` messages, which skip metrics and endpoints, and, if it asked for
//! endpoints, single [`EndpointStatsFields`]; a client encodes the `*Fields` messages, which are
//! complete.

use bytes::Bytes;
use prost::Message;

use super::{AddressMessage, DurationMessage, LocalityMessage};

/// `LoadStatsRequest` as decoded by a server.
#[derive(Clone, PartialEq, Message)]
pub struct LoadStatsRequestCounts {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub node: Option<Bytes>,
    #[prost(message, repeated, tag = "2")]
    pub cluster_stats: Vec<ClusterStatsCounts>,
}

/// `ClusterStats` as decoded by a server.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterStatsCounts {
    #[prost(string, tag = "1")]
    pub cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub upstream_locality_stats: Vec<LocalityStatsCounts>,
    #[prost(uint64, tag = "3")]
    pub total_dropped_requests: u64,
    #[prost(message, optional, tag = "4")]
    pub load_report_interval: Option<DurationMessage>,
    #[prost(message, repeated, tag = "5")]
    pub dropped_requests: Vec<DroppedRequestsCounts>,
}

/// `ClusterStats.DroppedRequests` as decoded by a server.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct DroppedRequestsCounts {
    #[prost(uint64, tag = "2")]
    pub dropped_count: u64,
}

/// `UpstreamLocalityStats` as decoded by a server.
#[derive(Clone, PartialEq, Message)]
pub struct LocalityStatsCounts {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<LocalityMessage>,
    #[prost(uint64, tag = "2")]
    pub total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub total_error_requests: u64,
    #[prost(uint32, tag = "6")]
    pub priority: u32,
    #[prost(uint64, tag = "8")]
    pub total_issued_requests: u64,
    /// Plimsoll extension, for replicas of a control plane only: a count of the server's side.
    #[prost(uint64, optional, tag = "50001")]
    pub total_unissued_requests: Option<u64>,
}

/// `LoadStatsRequest` as encoded by a client.
#[derive(Clone, PartialEq, Message)]
pub struct LoadStatsRequestMessage {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub node: Option<Bytes>,
    #[prost(message, repeated, tag = "2")]
    pub cluster_stats: Vec<ClusterStatsFields>,
}

/// `ClusterStats` as encoded by a client.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterStatsFields {
    #[prost(string, tag = "1")]
    pub cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub upstream_locality_stats: Vec<LocalityStatsFields>,
    #[prost(uint64, tag = "3")]
    pub total_dropped_requests: u64,
    #[prost(message, optional, tag = "4")]
    pub load_report_interval: Option<DurationMessage>,
    #[prost(message, repeated, tag = "5")]
    pub dropped_requests: Vec<DroppedRequestsMessage>,
    #[prost(string, tag = "6")]
    pub cluster_service_name: String,
}

/// `ClusterStats.DroppedRequests`: dropped requests of one category.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DroppedRequestsMessage {
    #[prost(string, tag = "1")]
    pub category: String,
    #[prost(uint64, tag = "2")]
    pub dropped_count: u64,
}

/// `UpstreamLocalityStats` as encoded by a client.
#[derive(Clone, PartialEq, Message)]
pub struct LocalityStatsFields {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<LocalityMessage>,
    #[prost(uint64, tag = "2")]
    pub total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub total_error_requests: u64,
    #[prost(message, repeated, tag = "5")]
    pub load_metric_stats: Vec<NamedMetricMessage>,
    #[prost(uint32, tag = "6")]
    pub priority: u32,
    #[prost(message, repeated, tag = "7")]
    pub upstream_endpoint_stats: Vec<EndpointStatsFields>,
    #[prost(uint64, tag = "8")]
    pub total_issued_requests: u64,
    #[prost(message, optional, tag = "12")]
    pub cpu_utilization: Option<UnnamedMetricMessage>,
    #[prost(message, optional, tag = "13")]
    pub mem_utilization: Option<UnnamedMetricMessage>,
    #[prost(message, optional, tag = "14")]
    pub application_utilization: Option<UnnamedMetricMessage>,
    /// Plimsoll extension, for replicas of a control plane only: a count of the server's side.
    #[prost(uint64, optional, tag = "50001")]
    pub total_unissued_requests: Option<u64>,
}

/// `UpstreamEndpointStats` as encoded by a client.
#[derive(Clone, PartialEq, Message)]
pub struct EndpointStatsFields {
    #[prost(message, optional, tag = "1")]
    pub address: Option<AddressMessage>,
    #[prost(uint64, tag = "2")]
    pub total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub total_error_requests: u64,
    #[prost(message, repeated, tag = "5")]
    pub load_metric_stats: Vec<NamedMetricMessage>,
    #[prost(uint64, tag = "7")]
    pub total_issued_requests: u64,
}

/// `EndpointLoadMetricStats`: sum of one named metric.
#[derive(Clone, PartialEq, Message)]
pub struct NamedMetricMessage {
    #[prost(string, tag = "1")]
    pub metric_name: String,
    #[prost(uint64, tag = "2")]
    pub num_requests_finished_with_metric: u64,
    #[prost(double, tag = "3")]
    pub total_metric_value: f64,
}

/// `UnnamedEndpointLoadMetricStats`: sum of one standard metric.
#[derive(Clone, PartialEq, Message)]
pub struct UnnamedMetricMessage {
    #[prost(uint64, tag = "1")]
    pub num_requests_finished_with_metric: u64,
    #[prost(double, tag = "2")]
    pub total_metric_value: f64,
}

/// `LoadStatsResponse`; the last field is a Plimsoll extension (decision 0028).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadStatsResponseMessage {
    #[prost(string, repeated, tag = "1")]
    pub clusters: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub load_reporting_interval: Option<DurationMessage>,
    #[prost(bool, tag = "3")]
    pub report_endpoint_granularity: bool,
    #[prost(bool, tag = "4")]
    pub send_all_clusters: bool,
    #[prost(message, repeated, tag = "5")]
    pub observed_traffic: Vec<ClusterTrafficMessage>,
}

/// Plimsoll extension: measured demand for one upstream cluster (decision 0028).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ClusterTrafficMessage {
    #[prost(string, tag = "1")]
    pub cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub fractions: Vec<LocalityFractionMessage>,
    #[prost(message, optional, tag = "3")]
    pub observation_time: Option<TimestampMessage>,
}

/// `google.protobuf.Timestamp`: a moment in time.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TimestampMessage {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Plimsoll extension: share of one locality, in basis points.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LocalityFractionMessage {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<LocalityMessage>,
    #[prost(uint32, tag = "2")]
    pub observed_traffic_fraction: u32,
}
