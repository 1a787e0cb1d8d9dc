//! The fields of `envoy.config.cluster.v3.Cluster` that are not about choosing hosts: a second view
//! of the same message, so that whoever only chooses does not build them. Fields that are refused
//! whatever they hold are in the tables of `unhonoured`.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::route::HeaderValueOptionMessage;
use super::{AnyMessage, ConfigSourceMessage, DurationMessage, PercentMessage};

/// `Cluster`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpstreamClusterMessage {
    /// `type`
    #[prost(int32, tag = "2")]
    pub(crate) discovery_type: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) eds_cluster_config: Option<EdsClusterConfigMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) connect_timeout: Option<DurationMessage>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) health_checks: Vec<HealthCheckMessage>,
    #[prost(message, optional, tag = "9")]
    pub(crate) max_requests_per_connection: Option<u32>,
    #[prost(message, optional, tag = "10")]
    pub(crate) circuit_breakers: Option<CircuitBreakersMessage>,
    #[prost(message, optional, tag = "14")]
    pub(crate) http2_protocol_options: Option<Http2Message>,
    #[prost(message, optional, tag = "16")]
    pub(crate) dns_refresh_rate: Option<DurationMessage>,
    #[prost(int32, tag = "17")]
    pub(crate) dns_lookup_family: i32,
    #[prost(message, optional, tag = "19")]
    pub(crate) outlier_detection: Option<OutlierDetectionMessage>,
    #[prost(message, optional, tag = "24")]
    pub(crate) transport_socket: Option<TransportSocketMessage>,
    #[prost(message, optional, tag = "29")]
    pub(crate) common_http_protocol_options: Option<CommonHttpMessage>,
    #[prost(message, optional, tag = "30")]
    pub(crate) upstream_connection_options: Option<ConnectionOptionsMessage>,
    #[prost(bool, tag = "31")]
    pub(crate) close_connections_on_host_health_failure: bool,
    #[prost(bytes = "bytes", optional, tag = "33")]
    pub(crate) load_assignment: Option<Bytes>,
    #[prost(btree_map = "string, message", tag = "36")]
    pub(crate) typed_extension_protocol_options: BTreeMap<String, AnyMessage>,
    #[prost(message, optional, tag = "42")]
    pub(crate) lrs_server: Option<ConfigSourceMessage>,
    #[prost(message, optional, tag = "46")]
    pub(crate) upstream_http_protocol_options: Option<UpstreamHttpMessage>,
}

/// `Cluster.EdsClusterConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EdsClusterConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) eds_config: Option<ConfigSourceMessage>,
    #[prost(string, tag = "2")]
    pub(crate) service_name: String,
}

/// `CircuitBreakers`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CircuitBreakersMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) thresholds: Vec<ThresholdsMessage>,
}

/// `CircuitBreakers.Thresholds`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ThresholdsMessage {
    #[prost(int32, tag = "1")]
    pub(crate) priority: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) max_connections: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) max_pending_requests: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) max_requests: Option<u32>,
    #[prost(message, optional, tag = "5")]
    pub(crate) max_retries: Option<u32>,
    #[prost(message, optional, tag = "8")]
    pub(crate) retry_budget: Option<RetryBudgetMessage>,
}

/// `CircuitBreakers.Thresholds.RetryBudget`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RetryBudgetMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) budget_percent: Option<PercentMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) min_retry_concurrency: Option<u32>,
}

/// `OutlierDetection`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct OutlierDetectionMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) consecutive_5xx: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub(crate) interval: Option<DurationMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) base_ejection_time: Option<DurationMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) max_ejection_percent: Option<u32>,
    #[prost(message, optional, tag = "5")]
    pub(crate) enforcing_consecutive_5xx: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub(crate) enforcing_success_rate: Option<u32>,
    #[prost(message, optional, tag = "7")]
    pub(crate) success_rate_minimum_hosts: Option<u32>,
    #[prost(message, optional, tag = "8")]
    pub(crate) success_rate_request_volume: Option<u32>,
    #[prost(message, optional, tag = "9")]
    pub(crate) success_rate_stdev_factor: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) enforcing_consecutive_gateway_failure: Option<u32>,
    #[prost(bool, tag = "12")]
    pub(crate) split_external_local_origin_errors: bool,
    #[prost(message, optional, tag = "16")]
    pub(crate) failure_percentage_threshold: Option<u32>,
    #[prost(message, optional, tag = "17")]
    pub(crate) enforcing_failure_percentage: Option<u32>,
    #[prost(message, optional, tag = "19")]
    pub(crate) failure_percentage_minimum_hosts: Option<u32>,
    #[prost(message, optional, tag = "20")]
    pub(crate) failure_percentage_request_volume: Option<u32>,
    #[prost(message, optional, tag = "21")]
    pub(crate) max_ejection_time: Option<DurationMessage>,
    #[prost(message, optional, tag = "22")]
    pub(crate) max_ejection_time_jitter: Option<DurationMessage>,
    #[prost(message, repeated, tag = "24")]
    pub(crate) monitors: Vec<()>,
    #[prost(message, optional, tag = "25")]
    pub(crate) always_eject_one_host: Option<bool>,
}

/// `HealthCheck`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HealthCheckMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) interval: Option<DurationMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) interval_jitter: Option<DurationMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) unhealthy_threshold: Option<u32>,
    #[prost(message, optional, tag = "5")]
    pub(crate) healthy_threshold: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub(crate) alt_port: Option<u32>,
    #[prost(message, optional, tag = "7")]
    pub(crate) reuse_connection: Option<bool>,
    #[prost(message, optional, tag = "8")]
    pub(crate) http_health_check: Option<HttpCheckMessage>,
    #[prost(message, optional, tag = "9")]
    pub(crate) tcp_health_check: Option<TcpCheckMessage>,
    #[prost(message, optional, tag = "11")]
    pub(crate) grpc_health_check: Option<GrpcCheckMessage>,
    #[prost(message, optional, tag = "12")]
    pub(crate) no_traffic_interval: Option<DurationMessage>,
    #[prost(message, optional, tag = "14")]
    pub(crate) unhealthy_interval: Option<DurationMessage>,
    #[prost(message, optional, tag = "15")]
    pub(crate) unhealthy_edge_interval: Option<DurationMessage>,
    #[prost(message, optional, tag = "16")]
    pub(crate) healthy_edge_interval: Option<DurationMessage>,
    #[prost(uint32, tag = "18")]
    pub(crate) interval_jitter_percent: u32,
    #[prost(message, optional, tag = "20")]
    pub(crate) initial_jitter: Option<DurationMessage>,
    #[prost(message, optional, tag = "24")]
    pub(crate) no_traffic_healthy_interval: Option<DurationMessage>,
}

/// `HealthCheck.HttpHealthCheck`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HttpCheckMessage {
    #[prost(string, tag = "1")]
    pub(crate) host: String,
    #[prost(string, tag = "2")]
    pub(crate) path: String,
    #[prost(message, repeated, tag = "6")]
    pub(crate) request_headers_to_add: Vec<HeaderValueOptionMessage>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) expected_statuses: Vec<Int64RangeMessage>,
    #[prost(int32, tag = "10")]
    pub(crate) codec_client_type: i32,
    #[prost(message, repeated, tag = "12")]
    pub(crate) retriable_statuses: Vec<Int64RangeMessage>,
    #[prost(int32, tag = "13")]
    pub(crate) method: i32,
}

/// `HealthCheck.TcpHealthCheck`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TcpCheckMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) send: Option<PayloadMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) receive: Vec<PayloadMessage>,
}

/// `HealthCheck.Payload`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PayloadMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) text: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) binary: Option<Bytes>,
}

/// `HealthCheck.GrpcHealthCheck`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct GrpcCheckMessage {
    #[prost(string, tag = "1")]
    pub(crate) service_name: String,
    #[prost(string, tag = "2")]
    pub(crate) authority: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) initial_metadata: Vec<HeaderValueOptionMessage>,
}

/// `envoy.type.v3.Int64Range`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Int64RangeMessage {
    #[prost(int64, tag = "1")]
    pub(crate) start: i64,
    #[prost(int64, tag = "2")]
    pub(crate) end: i64,
}

/// `UpstreamConnectionOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConnectionOptionsMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) tcp_keepalive: Option<TcpKeepaliveMessage>,
}

/// `TcpKeepalive`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TcpKeepaliveMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) keepalive_probes: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub(crate) keepalive_time: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) keepalive_interval: Option<u32>,
}

/// `envoy.config.core.v3.TransportSocket`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TransportSocketMessage {
    #[prost(message, optional, tag = "3")]
    pub(crate) typed_config: Option<AnyMessage>,
}

/// `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HttpProtocolOptionsMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) common_http_protocol_options: Option<CommonHttpMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) upstream_http_protocol_options: Option<UpstreamHttpMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) explicit_http_config: Option<ExplicitHttpConfigMessage>,
}

/// `HttpProtocolOptions.ExplicitHttpConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ExplicitHttpConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) http_protocol_options: Option<()>,
    #[prost(message, optional, tag = "2")]
    pub(crate) http2_protocol_options: Option<Http2Message>,
}

/// `envoy.config.core.v3.HttpProtocolOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommonHttpMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) idle_timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) max_connection_duration: Option<DurationMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) max_stream_duration: Option<DurationMessage>,
    #[prost(message, optional, tag = "6")]
    pub(crate) max_requests_per_connection: Option<u32>,
}

/// `envoy.config.core.v3.UpstreamHttpProtocolOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UpstreamHttpMessage {
    #[prost(bool, tag = "1")]
    pub(crate) auto_sni: bool,
    #[prost(bool, tag = "2")]
    pub(crate) auto_san_validation: bool,
}

/// `envoy.config.core.v3.Http2ProtocolOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Http2Message {
    #[prost(message, optional, tag = "2")]
    pub(crate) max_concurrent_streams: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) initial_stream_window_size: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) initial_connection_window_size: Option<u32>,
    #[prost(message, optional, tag = "15")]
    pub(crate) connection_keepalive: Option<KeepaliveMessage>,
}

/// `envoy.config.core.v3.KeepaliveSettings`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeepaliveMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) interval: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) timeout: Option<DurationMessage>,
}
