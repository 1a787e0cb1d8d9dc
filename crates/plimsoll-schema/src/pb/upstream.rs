//! Cluster settings for connections, protocols, circuit breakers and outlier detection.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::enums::{HeadersWithUnderscoresAction, RoutingPriority};
use super::metadata::StructMessage;
use super::{
    AnyMessage, ConfigSourceMessage, DurationMessage, PercentMessage, SocketAddressMessage,
};

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
pub struct CircuitBreakersMessage {
    /// Limits by routing priority.
    #[prost(message, repeated, tag = "1")]
    pub thresholds: Vec<ThresholdsMessage>,
    /// Limits of each host by routing priority; only `max_connections`.
    #[prost(message, repeated, tag = "2")]
    #[schema(unread = "changes_request")]
    pub per_host_thresholds: Vec<ThresholdsMessage>,
}

/// `CircuitBreakers.Thresholds`: limits of one routing priority.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.CircuitBreakers.Thresholds")]
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
    /// Whether statistics show what is left of each limit.
    #[prost(bool, tag = "6")]
    #[schema(unread = "unused")]
    pub track_remaining: bool,
    /// Maximum number of connection pools. Default no limit.
    #[prost(message, optional, tag = "7")]
    #[schema(unread = "changes_request")]
    pub max_connection_pools: Option<u32>,
    /// Limit on retries as a percentage of requests, instead of `max_retries`.
    #[prost(message, optional, tag = "8")]
    pub retry_budget: Option<RetryBudgetMessage>,
}

/// `CircuitBreakers.Thresholds.RetryBudget`: limit on retries relative to requests.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.CircuitBreakers.Thresholds.RetryBudget")]
pub struct RetryBudgetMessage {
    /// Maximum number of concurrent retries, in percent of requests in flight. Default 20.
    #[prost(message, optional, tag = "1")]
    pub budget_percent: Option<PercentMessage>,
    /// Number of concurrent retries that is always allowed. Default 3.
    #[prost(message, optional, tag = "2")]
    pub min_retry_concurrency: Option<u32>,
    /// Time during which requests count in addition to those in flight.
    #[prost(message, optional, tag = "3")]
    #[schema(unread = "changes_request")]
    pub budget_interval: Option<DurationMessage>,
}

/// `OutlierDetection`: ejection of hosts that fail requests.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.OutlierDetection")]
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
    /// Consecutive errors of gateways (502, 503, 504) after which a host is an outlier. Default 5.
    #[prost(message, optional, tag = "10")]
    #[schema(unread = "unused")]
    pub consecutive_gateway_failure: Option<u32>,
    /// Probability in percent that an outlier by gateway errors is ejected; Plimsoll's data planes
    /// support only 0. Default 0.
    #[prost(message, optional, tag = "11")]
    pub enforcing_consecutive_gateway_failure: Option<u32>,
    /// Tell errors of connections (local origin) from errors in responses; not in Plimsoll's data
    /// planes.
    #[prost(bool, tag = "12")]
    pub split_external_local_origin_errors: bool,
    /// Consecutive local-origin errors after which a host is an outlier. Default 5.
    #[prost(message, optional, tag = "13")]
    #[schema(unread = "unused")]
    pub consecutive_local_origin_failure: Option<u32>,
    /// Probability in percent that an outlier by local-origin errors is ejected. Default 100.
    #[prost(message, optional, tag = "14")]
    #[schema(unread = "unused")]
    pub enforcing_consecutive_local_origin_failure: Option<u32>,
    /// Probability in percent that an outlier by local-origin success rate is ejected.
    /// Default 100.
    #[prost(message, optional, tag = "15")]
    #[schema(unread = "unused")]
    pub enforcing_local_origin_success_rate: Option<u32>,
    /// Percentage of failed requests at which a host is an outlier. Default 85.
    #[prost(message, optional, tag = "16")]
    pub failure_percentage_threshold: Option<u32>,
    /// Probability in percent that an outlier by failure percentage is ejected. Default 0.
    #[prost(message, optional, tag = "17")]
    pub enforcing_failure_percentage: Option<u32>,
    /// Probability in percent that an outlier by local-origin failures is ejected. Default 0.
    #[prost(message, optional, tag = "18")]
    #[schema(unread = "unused")]
    pub enforcing_failure_percentage_local_origin: Option<u32>,
    /// Hosts with enough requests that are needed to evaluate failure percentages. Default 5.
    #[prost(message, optional, tag = "19")]
    pub failure_percentage_minimum_hosts: Option<u32>,
    /// Requests per interval that a host needs to be evaluated by failures. Default 50.
    #[prost(message, optional, tag = "20")]
    pub failure_percentage_request_volume: Option<u32>,
    /// Maximum duration of an ejection. Default `300s`, or the base if that is longer.
    #[prost(message, optional, tag = "21")]
    pub max_ejection_time: Option<DurationMessage>,
    /// Maximum random time that is added to ejections; Plimsoll's data planes support only `0s`.
    /// Default `0s`.
    #[prost(message, optional, tag = "22")]
    pub max_ejection_time_jitter: Option<DurationMessage>,
    /// Whether a successful health check ends an ejection. Default true.
    #[prost(message, optional, tag = "23")]
    #[schema(unread = "unused")]
    pub successful_active_health_check_uneject_host: Option<bool>,
    /// Must be empty: extension monitors are not supported.
    #[prost(message, repeated, tag = "24")]
    pub monitors: Vec<()>,
    /// Allow the ejection of one host even if that exceeds `max_ejection_percent`.
    #[prost(message, optional, tag = "25")]
    pub always_eject_one_host: Option<bool>,
}

/// `UpstreamConnectionOptions`: socket options of upstream connections.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.UpstreamConnectionOptions")]
#[schema(changes_request = "3 happy_eyeballs_config")]
pub struct ConnectionOptionsMessage {
    /// TCP keepalive probes; disabled if not set.
    #[prost(message, optional, tag = "1")]
    pub tcp_keepalive: Option<TcpKeepaliveMessage>,
    /// Look up the name of the local interface of each connection.
    #[prost(bool, tag = "2")]
    #[schema(unread = "unused")]
    pub set_local_interface_name_on_upstream_connections: bool,
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

/// `Cluster.TransportSocketMatch`: the transport socket of endpoints with some metadata.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.TransportSocketMatch")]
pub struct TransportSocketMatchMessage {
    /// Name of the match in statistics. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Values that an endpoint has in its metadata `envoy.transport_socket_match`.
    #[prost(message, optional, tag = "2")]
    #[schema(name = "match")]
    pub socket_match: Option<StructMessage>,
    /// Transport socket of these endpoints.
    #[prost(message, optional, tag = "3")]
    pub transport_socket: Option<TransportSocketMessage>,
}

/// `BindConfig`: source address of connections.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.BindConfig")]
#[schema(changes_request = "3 socket_options, 4 additional_source_addresses, \
          5 extra_source_addresses, 6 local_address_selector")]
pub struct BindConfigMessage {
    /// Source address; port 0 selects any. Must be set.
    #[prost(message, optional, tag = "1")]
    pub source_address: Option<SocketAddressMessage>,
    /// Allow addresses that no interface has (`IP_FREEBIND`).
    #[prost(message, optional, tag = "2")]
    pub freebind: Option<bool>,
}

/// `TrackClusterStats`: optional statistics of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.TrackClusterStats")]
pub struct TrackClusterStatsMessage {
    /// Shares of timeouts that requests used.
    #[prost(bool, tag = "1")]
    pub timeout_budgets: bool,
    /// Sizes of requests and responses.
    #[prost(bool, tag = "2")]
    pub request_response_sizes: bool,
    /// Statistics of each endpoint.
    #[prost(bool, tag = "3")]
    pub per_endpoint_stats: bool,
}

/// `Cluster.PreconnectPolicy`: connections that are opened early.
#[derive(Clone, Copy, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.PreconnectPolicy")]
pub struct PreconnectPolicyMessage {
    /// Streams to have room for on each host, relative to those that are needed, 1 to 3.
    #[prost(message, optional, tag = "1")]
    pub per_upstream_preconnect_ratio: Option<f64>,
    /// Like that, for hosts that are likely to be picked next, 1 to 3.
    #[prost(message, optional, tag = "2")]
    pub predictive_preconnect_ratio: Option<f64>,
}

/// `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`: HTTP settings of upstream connections.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions")]
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
    /// The HTTP version of the client's connection, instead of `explicit_http_config`.
    #[prost(message, optional, tag = "4")]
    #[schema(unread = "harmless")]
    pub use_downstream_protocol_config: Option<ExplicitHttpConfigMessage>,
    /// The HTTP version that ALPN selects, instead of `explicit_http_config`; needs TLS.
    #[prost(message, optional, tag = "5")]
    #[schema(unread = "harmless")]
    pub auto_config: Option<AutoHttpConfigMessage>,
}

/// `HttpProtocolOptions.AutoHttpConfig`: settings of each HTTP version that ALPN may select.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions.AutoHttpConfig")]
#[schema(changes_request = "3 http3_protocol_options, 4 alternate_protocols_cache_options")]
pub struct AutoHttpConfigMessage {
    /// Settings for connections on which ALPN selects HTTP/1.1.
    #[prost(message, optional, tag = "1")]
    pub http_protocol_options: Option<Http1Message>,
    /// Settings for connections on which ALPN selects HTTP/2.
    #[prost(message, optional, tag = "2")]
    pub http2_protocol_options: Option<Http2Message>,
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
#[schema(title = "CommonHttpProtocolOptions")]
#[schema(unused = "8 max_connection_duration_jitter")]
pub struct CommonHttpMessage {
    /// Idle connections are closed after this time; `0s` disables it. Default `3600s`.
    #[prost(message, optional, tag = "1")]
    pub idle_timeout: Option<DurationMessage>,
    /// Maximum number of response headers. Default 100.
    #[prost(message, optional, tag = "2")]
    #[schema(unread = "unused")]
    pub max_headers_count: Option<u32>,
    /// Maximum age of a connection, which is then drained; `0s` means no limit. Default never.
    #[prost(message, optional, tag = "3")]
    pub max_connection_duration: Option<DurationMessage>,
    /// Maximum duration of a request and its response; `0s` means no limit. Default no limit.
    #[prost(message, optional, tag = "4")]
    pub max_stream_duration: Option<DurationMessage>,
    /// What happens to headers whose names have underscores. Default `ALLOW`.
    #[prost(int32, tag = "5")]
    #[schema(values = HeadersWithUnderscoresAction, unread = "unused")]
    pub headers_with_underscores_action: i32,
    /// Maximum number of requests per connection; 0 means no limit. Default no limit.
    #[prost(message, optional, tag = "6")]
    pub max_requests_per_connection: Option<u32>,
    /// Maximum size of response headers in KiB. Default 60.
    #[prost(message, optional, tag = "7")]
    #[schema(unread = "unused")]
    pub max_response_headers_kb: Option<u32>,
}

/// `envoy.config.core.v3.UpstreamHttpProtocolOptions`: TLS names by request.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.UpstreamHttpProtocolOptions")]
pub struct UpstreamHttpMessage {
    /// Use the host of the request as SNI.
    #[prost(bool, tag = "1")]
    pub auto_sni: bool,
    /// Require that the host's certificate is valid for the host of the request.
    #[prost(bool, tag = "2")]
    pub auto_san_validation: bool,
    /// Request header to use as SNI instead of the host.
    #[prost(string, tag = "3")]
    #[schema(unread = "changes_request")]
    pub override_auto_sni_header: String,
}

/// Settings of HTTP/1.1, which an empty message selects:
/// `envoy.config.core.v3.Http1ProtocolOptions`.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.Http1ProtocolOptions")]
#[schema(
    unused = "1 allow_absolute_url, 2 accept_http_10, 3 default_host_for_http_10, \
          4 header_key_format, 9 use_balsa_parser, 10 allow_custom_methods, \
          11 ignore_http_11_upgrade"
)]
pub struct Http1Message {
    /// Trailers of requests and responses are passed on instead of being dropped.
    #[prost(bool, tag = "5")]
    #[schema(unread = "unused")]
    pub enable_trailers: bool,
    /// Accept responses with both `content-length` and chunked encoding.
    #[prost(bool, tag = "6")]
    #[schema(unread = "unused")]
    pub allow_chunked_length: bool,
    /// Whether an invalid message ends only its request, not the connection.
    #[prost(message, optional, tag = "7")]
    #[schema(unread = "unused")]
    pub override_stream_error_on_invalid_http_message: Option<bool>,
    /// Send the whole URL in the request line, as to a proxy.
    #[prost(bool, tag = "8")]
    #[schema(unread = "unused")]
    pub send_fully_qualified_url: bool,
}

/// `envoy.config.core.v3.Http2ProtocolOptions`: settings of HTTP/2.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.Http2ProtocolOptions")]
#[schema(
    unused = "12 stream_error_on_invalid_http_messaging, 13 custom_settings_parameters, \
          16 use_oghttp2_codec, 17 max_metadata_size, 18 enable_huffman_encoding, \
          19 max_header_field_size_kb, \
          20 disallow_obs_text, 21 stream_reset_burst, 22 stream_reset_rate"
)]
pub struct Http2Message {
    /// Size of the HPACK table in bytes. Default 4096.
    #[prost(message, optional, tag = "1")]
    #[schema(unread = "unused")]
    pub hpack_table_size: Option<u32>,
    /// Maximum number of concurrent requests per connection.
    #[prost(message, optional, tag = "2")]
    pub max_concurrent_streams: Option<u32>,
    /// Flow-control window of a stream in bytes.
    #[prost(message, optional, tag = "3")]
    pub initial_stream_window_size: Option<u32>,
    /// Flow-control window of a connection in bytes.
    #[prost(message, optional, tag = "4")]
    pub initial_connection_window_size: Option<u32>,
    /// Allow extended CONNECT requests, such as WebSocket over HTTP/2.
    #[prost(bool, tag = "5")]
    #[schema(unread = "unused")]
    pub allow_connect: bool,
    /// METADATA frames of HTTP/2 are passed on, an extension that only Envoys know.
    #[prost(bool, tag = "6")]
    #[schema(unread = "unused")]
    pub allow_metadata: bool,
    /// Maximum number of queued frames. Default 10000.
    #[prost(message, optional, tag = "7")]
    #[schema(unread = "unused")]
    pub max_outbound_frames: Option<u32>,
    /// Maximum number of queued control frames. Default 1000.
    #[prost(message, optional, tag = "8")]
    #[schema(unread = "unused")]
    pub max_outbound_control_frames: Option<u32>,
    /// Maximum number of consecutive empty frames. Default 1.
    #[prost(message, optional, tag = "9")]
    #[schema(unread = "unused")]
    pub max_consecutive_inbound_frames_with_empty_payload: Option<u32>,
    /// Maximum number of PRIORITY frames per stream. Default 100.
    #[prost(message, optional, tag = "10")]
    #[schema(unread = "unused")]
    pub max_inbound_priority_frames_per_stream: Option<u32>,
    /// Maximum number of WINDOW_UPDATE frames per DATA frame. Default 10.
    #[prost(message, optional, tag = "11")]
    #[schema(unread = "unused")]
    pub max_inbound_window_update_frames_per_data_frame_sent: Option<u32>,
    /// Whether an invalid message ends only its request, not the connection.
    #[prost(message, optional, tag = "14")]
    #[schema(unread = "unused")]
    pub override_stream_error_on_invalid_http_message: Option<bool>,
    /// HTTP/2 PING frames that detect broken connections.
    #[prost(message, optional, tag = "15")]
    pub connection_keepalive: Option<KeepaliveMessage>,
}

/// `envoy.config.core.v3.KeepaliveSettings`: interval and timeout of HTTP/2 pings.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.KeepaliveSettings")]
#[schema(unused = "3 interval_jitter")]
pub struct KeepaliveMessage {
    /// Interval between pings; disabled if not set.
    #[prost(message, optional, tag = "1")]
    pub interval: Option<DurationMessage>,
    /// Time to wait for the answer before the connection is closed.
    #[prost(message, optional, tag = "2")]
    pub timeout: Option<DurationMessage>,
    /// Idle time after which a connection is pinged before its next request.
    #[prost(message, optional, tag = "4")]
    #[schema(unread = "unused")]
    pub connection_idle_interval: Option<DurationMessage>,
}
