//! `envoy.service.load_stats.v3` and the statistics of `envoy.config.endpoint.v3`.
//!
//! A server reads the `*Counts` messages, which skip metrics and endpoints without building them; a
//! client writes the `*Message` ones, which have everything.

use bytes::Bytes;
use prost::Message;

use super::{AddressMessage, DurationMessage, LocalityMessage};

/// `LoadStatsRequest` as it is read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadStatsRequestCounts {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) node: Option<Bytes>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) cluster_stats: Vec<ClusterStatsCounts>,
}

/// `ClusterStats` as it is read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterStatsCounts {
    #[prost(string, tag = "1")]
    pub(crate) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) upstream_locality_stats: Vec<LocalityStatsCounts>,
    #[prost(uint64, tag = "3")]
    pub(crate) total_dropped_requests: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) load_report_interval: Option<DurationMessage>,
}

/// `UpstreamLocalityStats` as it is read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocalityStatsCounts {
    #[prost(message, optional, tag = "1")]
    pub(crate) locality: Option<LocalityMessage>,
    #[prost(uint64, tag = "2")]
    pub(crate) total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) total_error_requests: u64,
    #[prost(uint32, tag = "6")]
    pub(crate) priority: u32,
    #[prost(uint64, tag = "8")]
    pub(crate) total_issued_requests: u64,
}

/// `LoadStatsRequest` as it is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadStatsRequestMessage {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) node: Option<Bytes>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) cluster_stats: Vec<ClusterStatsFields>,
}

/// `ClusterStats` as it is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterStatsFields {
    #[prost(string, tag = "1")]
    pub(crate) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) upstream_locality_stats: Vec<LocalityStatsFields>,
    #[prost(uint64, tag = "3")]
    pub(crate) total_dropped_requests: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) load_report_interval: Option<DurationMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) dropped_requests: Vec<DroppedRequestsMessage>,
    #[prost(string, tag = "6")]
    pub(crate) cluster_service_name: String,
}

/// `ClusterStats.DroppedRequests`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DroppedRequestsMessage {
    #[prost(string, tag = "1")]
    pub(crate) category: String,
    #[prost(uint64, tag = "2")]
    pub(crate) dropped_count: u64,
}

/// `UpstreamLocalityStats` as it is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocalityStatsFields {
    #[prost(message, optional, tag = "1")]
    pub(crate) locality: Option<LocalityMessage>,
    #[prost(uint64, tag = "2")]
    pub(crate) total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) total_error_requests: u64,
    #[prost(message, repeated, tag = "5")]
    pub(crate) load_metric_stats: Vec<NamedMetricMessage>,
    #[prost(uint32, tag = "6")]
    pub(crate) priority: u32,
    #[prost(message, repeated, tag = "7")]
    pub(crate) upstream_endpoint_stats: Vec<EndpointStatsFields>,
    #[prost(uint64, tag = "8")]
    pub(crate) total_issued_requests: u64,
    #[prost(message, optional, tag = "12")]
    pub(crate) cpu_utilization: Option<UnnamedMetricMessage>,
    #[prost(message, optional, tag = "13")]
    pub(crate) mem_utilization: Option<UnnamedMetricMessage>,
    #[prost(message, optional, tag = "14")]
    pub(crate) application_utilization: Option<UnnamedMetricMessage>,
}

/// `UpstreamEndpointStats` as it is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointStatsFields {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<AddressMessage>,
    #[prost(uint64, tag = "2")]
    pub(crate) total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) total_error_requests: u64,
    #[prost(message, repeated, tag = "5")]
    pub(crate) load_metric_stats: Vec<NamedMetricMessage>,
    #[prost(uint64, tag = "7")]
    pub(crate) total_issued_requests: u64,
}

/// `EndpointLoadMetricStats`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NamedMetricMessage {
    #[prost(string, tag = "1")]
    pub(crate) metric_name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) num_requests_finished_with_metric: u64,
    #[prost(double, tag = "3")]
    pub(crate) total_metric_value: f64,
}

/// `UnnamedEndpointLoadMetricStats`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnnamedMetricMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) num_requests_finished_with_metric: u64,
    #[prost(double, tag = "2")]
    pub(crate) total_metric_value: f64,
}

/// `LoadStatsResponse`; the last field is ours (decisions D9).
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LoadStatsResponseMessage {
    #[prost(string, repeated, tag = "1")]
    pub(crate) clusters: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(crate) load_reporting_interval: Option<DurationMessage>,
    #[prost(bool, tag = "3")]
    pub(crate) report_endpoint_granularity: bool,
    #[prost(bool, tag = "4")]
    pub(crate) send_all_clusters: bool,
    #[prost(message, repeated, tag = "5")]
    pub(crate) observed_traffic: Vec<ClusterTrafficMessage>,
}

/// Ours: the demand for one upstream cluster (seed `000…`, option 4).
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ClusterTrafficMessage {
    #[prost(string, tag = "1")]
    pub(crate) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) fractions: Vec<LocalityFractionMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) observation_time: Option<TimestampMessage>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct TimestampMessage {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// Ours: the share of one locality, in basis points.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LocalityFractionMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) locality: Option<LocalityMessage>,
    #[prost(uint32, tag = "2")]
    pub(crate) observed_traffic_fraction: u32,
}
