//! Cluster settings for connections, protocols, circuit breakers, outlier detection and health
//! checks.

use bytes::Bytes;
use plimsoll_core::model::transport::{HttpMethod, HttpVersion};
use plimsoll_schema_derive::Described;
use prost::Message;

use super::enums::RoutingPriority;
use super::route::HeaderValueOptionMessage;
use super::{AnyMessage, ConfigSourceMessage, DurationMessage, PercentMessage};

/// `Cluster.EdsClusterConfig`: subscription to endpoints.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.EdsClusterConfig")]
pub struct EdsClusterConfigMessage {
    /// Source of the endpoints. Must be set.
    #[prost(message, optional, tag = "1")]
    pub eds_config: Option<ConfigSourceMessage>,
    /// Name of the endpoint assignment. Default the name of the cluster.
    #[prost(string, tag = "2")]
    pub service_name: String,
}

/// `CircuitBreakers`: limits of a cluster.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.CircuitBreakers")]
#[schema(changes_request = "2 per_host_thresholds")]
pub struct CircuitBreakersMessage {
    /// Limits by routing priority.
    #[prost(message, repeated, tag = "1")]
    pub thresholds: Vec<ThresholdsMessage>,
}

/// `CircuitBreakers.Thresholds`: limits of one routing priority.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.CircuitBreakers.Thresholds")]
#[schema(unused = "6 track_remaining")]
#[schema(changes_request = "7 max_connection_pools")]
pub struct ThresholdsMessage {
    /// Routing priority that the limits apply to; limits for `HIGH` are ignored. Default `DEFAULT`.
    #[prost(int32, tag = "1")]
    #[schema(values = RoutingPriority)]
    pub priority: i32,
    /// Maximum number of connections to all hosts. Default 1024.
    #[prost(message, optional, tag = "2")]
    pub max_connections: Option<u32>,
    /// Maximum number of requests that wait for a connection. Default 1024.
    #[prost(message, optional, tag = "3")]
    pub max_pending_requests: Option<u32>,
    /// Maximum number of concurrent requests. Default 1024.
    #[prost(message, optional, tag = "4")]
    pub max_requests: Option<u32>,
    /// Maximum number of concurrent retries. Default 3.
    #[prost(message, optional, tag = "5")]
    pub max_retries: Option<u32>,
    /// Limit on retries as a percentage of requests, instead of `max_retries`.
    #[prost(message, optional, tag = "8")]
    pub retry_budget: Option<RetryBudgetMessage>,
}

/// `CircuitBreakers.Thresholds.RetryBudget`: limit on retries relative to requests.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.CircuitBreakers.Thresholds.RetryBudget")]
#[schema(changes_request = "3 budget_interval")]
pub struct RetryBudgetMessage {
    /// Maximum number of concurrent retries, in percent of requests in flight. Default 20.
    #[prost(message, optional, tag = "1")]
    pub budget_percent: Option<PercentMessage>,
    /// Number of concurrent retries that is always allowed. Default 3.
    #[prost(message, optional, tag = "2")]
    pub min_retry_concurrency: Option<u32>,
}

/// `OutlierDetection`: ejection of hosts that fail requests.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.OutlierDetection")]
#[schema(
    unused = "10 consecutive_gateway_failure, 13 consecutive_local_origin_failure, \
          14 enforcing_consecutive_local_origin_failure, 15 enforcing_local_origin_success_rate, \
          18 enforcing_failure_percentage_local_origin, \
          23 successful_active_health_check_uneject_host"
)]
#[schema(changes_host = "26 detect_degraded_hosts?")]
pub struct OutlierDetectionMessage {
    /// Consecutive errors after which a host is an outlier. Default 5.
    #[prost(message, optional, tag = "1")]
    pub consecutive_5xx: Option<u32>,
    /// Interval between evaluations of success rates and ejection times. Default `10s`.
    #[prost(message, optional, tag = "2")]
    pub interval: Option<DurationMessage>,
    /// Duration of the first ejection; each further one is longer by this time. Default `30s`.
    #[prost(message, optional, tag = "3")]
    pub base_ejection_time: Option<DurationMessage>,
    /// Maximum percentage of hosts that may be ejected at the same time. Default 10.
    #[prost(message, optional, tag = "4")]
    pub max_ejection_percent: Option<u32>,
    /// Probability in percent that an outlier by consecutive errors is ejected. Default 100.
    #[prost(message, optional, tag = "5")]
    pub enforcing_consecutive_5xx: Option<u32>,
    /// Probability in percent that an outlier by success rate is ejected. Default 100.
    #[prost(message, optional, tag = "6")]
    pub enforcing_success_rate: Option<u32>,
    /// Hosts with enough requests that are needed to evaluate success rates. Default 5.
    #[prost(message, optional, tag = "7")]
    pub success_rate_minimum_hosts: Option<u32>,
    /// Requests per interval that a host needs for its success rate to be evaluated. Default 100.
    #[prost(message, optional, tag = "8")]
    pub success_rate_request_volume: Option<u32>,
    /// Standard deviations below the mean, times 1000, that make an outlier. Default 1900.
    #[prost(message, optional, tag = "9")]
    pub success_rate_stdev_factor: Option<u32>,
    /// Must be 0: gateway failures are not detected separately.
    #[prost(message, optional, tag = "11")]
    pub enforcing_consecutive_gateway_failure: Option<u32>,
    /// Must be false: local errors are not distinguished from upstream errors.
    #[prost(bool, tag = "12")]
    pub split_external_local_origin_errors: bool,
    /// Percentage of failed requests at which a host is an outlier. Default 85.
    #[prost(message, optional, tag = "16")]
    pub failure_percentage_threshold: Option<u32>,
    /// Probability in percent that an outlier by failure percentage is ejected. Default 0.
    #[prost(message, optional, tag = "17")]
    pub enforcing_failure_percentage: Option<u32>,
    /// Hosts with enough requests that are needed to evaluate failure percentages. Default 5.
    #[prost(message, optional, tag = "19")]
    pub failure_percentage_minimum_hosts: Option<u32>,
    /// Requests per interval that a host needs to be evaluated by failures. Default 50.
    #[prost(message, optional, tag = "20")]
    pub failure_percentage_request_volume: Option<u32>,
    /// Maximum duration of an ejection. Default `300s`, or the base if that is longer.
    #[prost(message, optional, tag = "21")]
    pub max_ejection_time: Option<DurationMessage>,
    /// Must be 0: ejection times have no jitter.
    #[prost(message, optional, tag = "22")]
    pub max_ejection_time_jitter: Option<DurationMessage>,
    /// Must be empty: extension monitors are not supported.
    #[prost(message, repeated, tag = "24")]
    pub monitors: Vec<()>,
    /// Allow the ejection of one host even if that exceeds `max_ejection_percent`.
    #[prost(message, optional, tag = "25")]
    pub always_eject_one_host: Option<bool>,
}

/// `HealthCheck`: an active health check of hosts.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck")]
#[schema(harmless = "13 custom_health_check")]
#[schema(
    unused = "17 event_log_path, 19 always_log_health_check_failures, 22 event_service, \
          25 event_logger, 26 always_log_health_check_success, 27 name"
)]
#[schema(changes_request = "21 tls_options, 23 transport_socket_match_criteria")]
pub struct HealthCheckMessage {
    /// Timeout of a health check. Must be set.
    #[prost(message, optional, tag = "1")]
    pub timeout: Option<DurationMessage>,
    /// Interval between health checks of a host. Must be set.
    #[prost(message, optional, tag = "2")]
    pub interval: Option<DurationMessage>,
    /// Maximum random time that is added to each interval. Default `0s`.
    #[prost(message, optional, tag = "3")]
    pub interval_jitter: Option<DurationMessage>,
    /// Consecutive failures after which a host is unhealthy. Must be set.
    #[prost(message, optional, tag = "4")]
    pub unhealthy_threshold: Option<u32>,
    /// Consecutive successes after which a host is healthy. Must be set.
    #[prost(message, optional, tag = "5")]
    pub healthy_threshold: Option<u32>,
    /// Port for health checks instead of the endpoint's port.
    #[prost(message, optional, tag = "6")]
    pub alt_port: Option<u32>,
    /// Whether health checks reuse a connection. Default true.
    #[prost(message, optional, tag = "7")]
    pub reuse_connection: Option<bool>,
    /// Check by an HTTP request. One of `http_health_check`, `tcp_health_check` and
    /// `grpc_health_check` must be set.
    #[prost(message, optional, tag = "8")]
    pub http_health_check: Option<HttpCheckMessage>,
    /// Check by connecting, optionally with an exchange of bytes.
    #[prost(message, optional, tag = "9")]
    pub tcp_health_check: Option<TcpCheckMessage>,
    /// Check by calling `grpc.health.v1.Health`.
    #[prost(message, optional, tag = "11")]
    pub grpc_health_check: Option<GrpcCheckMessage>,
    /// Interval while the cluster has not received any request yet. Default `60s`.
    #[prost(message, optional, tag = "12")]
    pub no_traffic_interval: Option<DurationMessage>,
    /// Interval between checks of an unhealthy host. Default `interval`.
    #[prost(message, optional, tag = "14")]
    pub unhealthy_interval: Option<DurationMessage>,
    /// Interval after the first failure of a healthy host. Default `unhealthy_interval`.
    #[prost(message, optional, tag = "15")]
    pub unhealthy_edge_interval: Option<DurationMessage>,
    /// Interval after the first success of an unhealthy host. Default `interval`.
    #[prost(message, optional, tag = "16")]
    pub healthy_edge_interval: Option<DurationMessage>,
    /// Maximum random time that is added to each interval, in percent of the interval. Default 0.
    #[prost(uint32, tag = "18")]
    pub interval_jitter_percent: u32,
    /// Maximum random delay of the first check. Default `0s`.
    #[prost(message, optional, tag = "20")]
    pub initial_jitter: Option<DurationMessage>,
    /// Interval between checks of a healthy host while the cluster has not received any request
    /// yet. Default `no_traffic_interval`.
    #[prost(message, optional, tag = "24")]
    pub no_traffic_healthy_interval: Option<DurationMessage>,
}

/// `HealthCheck.HttpHealthCheck`: check by an HTTP request.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.HttpHealthCheck")]
#[schema(unused = "14 response_buffer_size")]
#[schema(
    changes_request = "3 send, 4 receive, 8 request_headers_to_remove, 11 service_name_matcher, \
          15 use_alpn_protocol"
)]
pub struct HttpCheckMessage {
    /// `Host` header. Default the hostname of the endpoint, else the name of the cluster.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Path of the check; must start with a slash.
    #[prost(string, tag = "2")]
    pub path: String,
    /// Headers to add to the check.
    #[prost(message, repeated, tag = "6")]
    pub request_headers_to_add: Vec<HeaderValueOptionMessage>,
    /// Statuses of a healthy host. Default 200.
    #[prost(message, repeated, tag = "9")]
    pub expected_statuses: Vec<Int64RangeMessage>,
    /// HTTP version of the check. Default `HTTP1`.
    #[prost(int32, tag = "10")]
    #[schema(values = HttpVersion)]
    pub codec_client_type: i32,
    /// Statuses that count toward `unhealthy_threshold` instead of failing immediately.
    #[prost(message, repeated, tag = "12")]
    pub retriable_statuses: Vec<Int64RangeMessage>,
    /// HTTP method of the check. Default `GET`.
    #[prost(int32, tag = "13")]
    #[schema(values = HttpMethod)]
    pub method: i32,
}

/// `HealthCheck.TcpHealthCheck`: check by a TCP connection.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.TcpHealthCheck")]
#[schema(changes_request = "3 proxy_protocol_config")]
pub struct TcpCheckMessage {
    /// Bytes to send; if not set, a successful connection is enough.
    #[prost(message, optional, tag = "1")]
    pub send: Option<PayloadMessage>,
    /// Byte sequences that the response must contain, in this order.
    #[prost(message, repeated, tag = "2")]
    pub receive: Vec<PayloadMessage>,
}

/// `HealthCheck.Payload`: bytes to send or expect.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.Payload")]
pub struct PayloadMessage {
    /// Bytes in hexadecimal notation.
    #[prost(string, optional, tag = "1")]
    pub text: Option<String>,
    /// Bytes in base64 encoding.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub binary: Option<Bytes>,
}

/// `HealthCheck.GrpcHealthCheck`: check by `grpc.health.v1.Health`.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthCheck.GrpcHealthCheck")]
pub struct GrpcCheckMessage {
    /// Name of the service to check; empty checks the server as a whole.
    #[prost(string, tag = "1")]
    pub service_name: String,
    /// `:authority` of the check. Default the name of the cluster.
    #[prost(string, tag = "2")]
    pub authority: String,
    /// Headers to add to the check.
    #[prost(message, repeated, tag = "3")]
    pub initial_metadata: Vec<HeaderValueOptionMessage>,
}

/// `envoy.type.v3.Int64Range`: a half-open range of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.v3.Int64Range")]
pub struct Int64RangeMessage {
    /// First number of the range.
    #[prost(int64, tag = "1")]
    pub start: i64,
    /// First number after the range.
    #[prost(int64, tag = "2")]
    pub end: i64,
}

/// `UpstreamConnectionOptions`: socket options of upstream connections.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.UpstreamConnectionOptions")]
#[schema(unused = "2 set_local_interface_name_on_upstream_connections")]
#[schema(changes_request = "3 happy_eyeballs_config")]
pub struct ConnectionOptionsMessage {
    /// TCP keepalive probes; disabled if not set.
    #[prost(message, optional, tag = "1")]
    pub tcp_keepalive: Option<TcpKeepaliveMessage>,
}

/// `TcpKeepalive`: probes of idle TCP connections.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.TcpKeepalive")]
pub struct TcpKeepaliveMessage {
    /// Unanswered probes after which a connection is closed. Default the system's.
    #[prost(message, optional, tag = "1")]
    pub keepalive_probes: Option<u32>,
    /// Idle time in seconds before the first probe. Default the system's.
    #[prost(message, optional, tag = "2")]
    pub keepalive_time: Option<u32>,
    /// Seconds between probes. Default the system's.
    #[prost(message, optional, tag = "3")]
    pub keepalive_interval: Option<u32>,
}

/// `envoy.config.core.v3.TransportSocket`: TLS or plain text.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.TransportSocket")]
pub struct TransportSocketMessage {
    /// Name of the extension; ignored.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Settings of the transport socket; `@type` selects TLS or plain text. Must be set.
    #[prost(message, optional, tag = "3")]
    #[schema(types = TRANSPORT_SOCKETS)]
    pub typed_config: Option<AnyMessage>,
}

/// `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`: HTTP settings of upstream connections.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions")]
#[schema(harmless = "4 use_downstream_protocol_config, 5 auto_config")]
#[schema(unused = "7 header_validation_config")]
#[schema(
    changes_request = "6 http_filters, 8 outlier_detection, 9 request_mirror_policies, \
          11 retry_policy"
)]
#[schema(changes_host = "10 hash_policy")]
pub struct HttpProtocolOptionsMessage {
    /// Timeouts and limits of connections and requests.
    #[prost(message, optional, tag = "1")]
    pub common_http_protocol_options: Option<CommonHttpMessage>,
    /// SNI and certificate validation by the host of the request.
    #[prost(message, optional, tag = "2")]
    pub upstream_http_protocol_options: Option<UpstreamHttpMessage>,
    /// HTTP version of upstream connections. Must be set.
    #[prost(message, optional, tag = "3")]
    pub explicit_http_config: Option<ExplicitHttpConfigMessage>,
}

/// `HttpProtocolOptions.ExplicitHttpConfig`: the HTTP version; set one field.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions.ExplicitHttpConfig")]
#[schema(harmless = "3 http3_protocol_options")]
pub struct ExplicitHttpConfigMessage {
    /// Use HTTP/1.1 for upstream connections.
    #[prost(message, optional, tag = "1")]
    pub http_protocol_options: Option<Http1Message>,
    /// Use HTTP/2 for upstream connections.
    #[prost(message, optional, tag = "2")]
    pub http2_protocol_options: Option<Http2Message>,
}

/// `envoy.config.core.v3.HttpProtocolOptions`: timeouts and limits of connections.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HttpProtocolOptions")]
#[schema(unused = "2 max_headers_count, 5 headers_with_underscores_action, \
          7 max_response_headers_kb, 8 max_connection_duration_jitter")]
pub struct CommonHttpMessage {
    /// Idle connections are closed after this time; `0s` disables it. Default `3600s`.
    #[prost(message, optional, tag = "1")]
    pub idle_timeout: Option<DurationMessage>,
    /// Maximum age of a connection, which is then drained; `0s` means no limit. Default never.
    #[prost(message, optional, tag = "3")]
    pub max_connection_duration: Option<DurationMessage>,
    /// Maximum duration of a request and its response; `0s` means no limit. Default no limit.
    #[prost(message, optional, tag = "4")]
    pub max_stream_duration: Option<DurationMessage>,
    /// Maximum number of requests per connection; 0 means no limit. Default no limit.
    #[prost(message, optional, tag = "6")]
    pub max_requests_per_connection: Option<u32>,
}

/// `envoy.config.core.v3.UpstreamHttpProtocolOptions`: TLS names by request.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.UpstreamHttpProtocolOptions")]
#[schema(changes_request = "3 override_auto_sni_header")]
pub struct UpstreamHttpMessage {
    /// Use the host of the request as SNI.
    #[prost(bool, tag = "1")]
    pub auto_sni: bool,
    /// Require that the host's certificate is valid for the host of the request.
    #[prost(bool, tag = "2")]
    pub auto_san_validation: bool,
}

/// `envoy.config.core.v3.Http1ProtocolOptions`: selects HTTP/1.1, without settings of its own.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.Http1ProtocolOptions")]
#[schema(
    unused = "1 allow_absolute_url, 2 accept_http_10, 3 default_host_for_http_10, \
          4 header_key_format, 5 enable_trailers, 6 allow_chunked_length, \
          7 override_stream_error_on_invalid_http_message, 8 send_fully_qualified_url, \
          9 use_balsa_parser, 10 allow_custom_methods, 11 ignore_http_11_upgrade"
)]
pub struct Http1Message {}

/// `envoy.config.core.v3.Http2ProtocolOptions`: settings of HTTP/2.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.Http2ProtocolOptions")]
#[schema(
    unused = "1 hpack_table_size, 5 allow_connect, 6 allow_metadata, 7 max_outbound_frames, \
          8 max_outbound_control_frames, 9 max_consecutive_inbound_frames_with_empty_payload, \
          10 max_inbound_priority_frames_per_stream, \
          11 max_inbound_window_update_frames_per_data_frame_sent, \
          12 stream_error_on_invalid_http_messaging, 13 custom_settings_parameters, \
          14 override_stream_error_on_invalid_http_message, 16 use_oghttp2_codec, \
          17 max_metadata_size, 18 enable_huffman_encoding, 19 max_header_field_size_kb, \
          20 disallow_obs_text, 21 stream_reset_burst, 22 stream_reset_rate"
)]
pub struct Http2Message {
    /// Maximum number of concurrent requests per connection.
    #[prost(message, optional, tag = "2")]
    pub max_concurrent_streams: Option<u32>,
    /// Flow-control window of a stream in bytes.
    #[prost(message, optional, tag = "3")]
    pub initial_stream_window_size: Option<u32>,
    /// Flow-control window of a connection in bytes.
    #[prost(message, optional, tag = "4")]
    pub initial_connection_window_size: Option<u32>,
    /// HTTP/2 PING frames that detect broken connections.
    #[prost(message, optional, tag = "15")]
    pub connection_keepalive: Option<KeepaliveMessage>,
}

/// `envoy.config.core.v3.KeepaliveSettings`: interval and timeout of HTTP/2 pings.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.KeepaliveSettings")]
#[schema(unused = "3 interval_jitter, 4 connection_idle_interval")]
pub struct KeepaliveMessage {
    /// Interval between pings; disabled if not set.
    #[prost(message, optional, tag = "1")]
    pub interval: Option<DurationMessage>,
    /// Time to wait for the answer before the connection is closed.
    #[prost(message, optional, tag = "2")]
    pub timeout: Option<DurationMessage>,
}
