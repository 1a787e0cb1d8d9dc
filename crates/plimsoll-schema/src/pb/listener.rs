//! `envoy.config.listener.v3` and the HTTP connection manager.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::access_log::AccessLogMessage;
use super::enums::{
    CodecType, ForwardClientCertDetails, HeadersWithUnderscoresAction,
    PathWithEscapedSlashesAction, ServerHeaderTransformation,
};
use super::http_filter::HttpFilterMessage;
use super::route::RouteConfigurationMessage;
use super::trace::TracingMessage;
use super::upstream::Http2Message;
use super::{AddressMessage, AnyMessage, ConfigSourceMessage, DurationMessage};

/// `Listener`: address, protocol and routes.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.Listener")]
#[schema(harmless = "6 metadata, 16 traffic_direction, 21 reuse_port, 28 stat_prefix")]
#[schema(
    unused = "5 per_connection_buffer_limit_bytes, 8 drain_type, 12 tcp_fast_open_queue_length, \
          15 listener_filters_timeout, 17 continue_on_listener_filters_timeout, \
          20 connection_balance_config, 22 access_log, 24 tcp_backlog_size, 30 enable_mptcp, \
          31 ignore_global_conn_limit"
)]
#[schema(
    changes_request = "4 use_original_dst, 10 transparent, 11 freebind, 13 socket_options, \
          18 udp_listener_config, 26 bind_to_port, 27 internal_listener, \
          32 filter_chain_matcher, 33 additional_addresses, 36 fcds_config"
)]
pub struct ListenerMessage {
    /// Name, unique among the listeners. Default `listener_N`, where N is its index.
    #[prost(string, tag = "1")]
    pub name: String,
    /// IP address and port to listen on; port 0 selects any. Must be set.
    #[prost(message, optional, tag = "2")]
    pub address: Option<AddressMessage>,
    /// Protocol and routes of connections, by their `filter_chain_match`. Connections that match
    /// none are closed.
    #[prost(message, repeated, tag = "3")]
    pub filter_chains: Vec<FilterChainMessage>,
    /// Listener filters; only the TLS inspector, which has no effect: filter chains that match by
    /// server name or protocol imply it.
    #[prost(message, repeated, tag = "9")]
    pub listener_filters: Vec<ListenerFilterMessage>,
    #[prost(message, optional, tag = "19")]
    pub api_listener: Option<ApiListenerMessage>,
    /// Filter chain of connections that match no other. Default none.
    #[prost(message, optional, tag = "25")]
    pub default_filter_chain: Option<FilterChainMessage>,
    /// Has no effect: every worker always has its own socket (`SO_REUSEPORT`).
    #[prost(message, optional, tag = "29")]
    pub enable_reuse_port: Option<bool>,
}

/// `FilterChain`: TLS and network filters of a listener.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.FilterChain")]
#[schema(harmless = "5 metadata")]
#[schema(unused = "9 transport_socket_connect_timeout")]
#[schema(changes_request = "4 use_proxy_proto")]
pub struct FilterChainMessage {
    /// Connections that use the filter chain. Default all.
    #[prost(message, optional, tag = "1")]
    pub filter_chain_match: Option<FilterChainMatchMessage>,
    /// Network filters; exactly one `HttpConnectionManager`. Must be set.
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<FilterMessage>,
    /// TLS settings. Default plain text.
    #[prost(message, optional, tag = "6")]
    pub transport_socket: Option<DownstreamTransportSocketMessage>,
    /// Name of the filter chain; has no effect.
    #[prost(string, tag = "7")]
    pub name: String,
}

/// `FilterChainMatch`: connections that use a filter chain. The most specific server name decides
/// first, then the transport protocol, then the application protocols.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.FilterChainMatch")]
#[schema(
    changes_request = "3 prefix_ranges, 4 address_suffix, 5 suffix_len, 6 source_prefix_ranges, \
          7 source_ports, 8 destination_port, 12 source_type, 13 direct_source_prefix_ranges"
)]
pub struct FilterChainMatchMessage {
    /// `tls` or `raw_buffer`. Default both.
    #[prost(string, tag = "9")]
    pub transport_protocol: String,
    /// ALPN protocols, of which the client offers one, such as `h2`. Default all.
    #[prost(string, repeated, tag = "10")]
    pub application_protocols: Vec<String>,
    /// Server names (SNI): exact, or with a wildcard in front, such as `*.example.com`. Default
    /// all.
    #[prost(string, repeated, tag = "11")]
    pub server_names: Vec<String>,
}

/// `ListenerFilter`: reads the first bytes of a connection before its filter chain is selected.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.ListenerFilter")]
#[schema(changes_request = "4 filter_disabled, 5 config_discovery")]
pub struct ListenerFilterMessage {
    /// Name of the filter; has no effect.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type of the filter. Must be set.
    #[prost(message, optional, tag = "3")]
    #[schema(types = LISTENER_FILTERS)]
    pub typed_config: Option<AnyMessage>,
}

/// `envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector`: reads the `ClientHello`.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector")]
#[schema(unused = "1 enable_ja3_fingerprinting, 2 initial_read_buffer_size, \
          3 enable_ja4_fingerprinting, 4 close_connection_on_client_hello_parsing_errors, \
          5 max_client_hello_size")]
pub struct TlsInspectorMessage {}

/// `envoy.config.core.v3.TransportSocket` of a listener: TLS.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.TransportSocket")]
#[schema(title = "DownstreamTransportSocket")]
pub struct DownstreamTransportSocketMessage {
    /// Name of the transport socket; has no effect.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type and settings of the transport socket. Must be set.
    #[prost(message, optional, tag = "3")]
    #[schema(types = DOWNSTREAM_TRANSPORT_SOCKETS)]
    pub typed_config: Option<AnyMessage>,
}

/// `Filter`: a network filter, always the `HttpConnectionManager`.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.Filter")]
#[schema(changes_request = "5 config_discovery")]
pub struct FilterMessage {
    /// Name of the filter; has no effect.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type and settings of the filter. Must be set.
    #[prost(message, optional, tag = "4")]
    #[schema(types = NETWORK_FILTERS)]
    pub typed_config: Option<AnyMessage>,
}

/// `ApiListener`: the listener of a gRPC client.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.ApiListener")]
pub struct ApiListenerMessage {
    #[prost(message, optional, tag = "1")]
    #[schema(types = NETWORK_FILTERS)]
    pub api_listener: Option<AnyMessage>,
}

/// `envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`: HTTP
/// settings of a listener. gRPC clients read the routes and `max_stream_duration` only.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)]
#[schema(
    unused = "6 add_user_agent, 8 http_protocol_options, 12 drain_timeout, \
          18 proxy_100_continue, 20 represent_ipv4_remote_address_as_ipv4_mapped_ipv6, 22 via, \
          25 internal_address_config, 26 delayed_close_timeout, \
          36 request_id_extension, 38 local_reply_config, \
          40 stream_error_on_invalid_http_message, 43 path_normalization_options, \
          44 http3_protocol_options, 47 strip_trailing_host_dot, \
          48 scheme_header_transformation, 49 proxy_status_config, \
          50 typed_header_validation_config, 51 append_x_forwarded_port, \
          52 early_header_mutation_extensions"
)]
#[schema(changes_request = "21 skip_xff_append?")]
pub struct HttpConnectionManagerMessage {
    /// Protocol of the clients: `HTTP1`, `HTTP2`, or `AUTO` to detect it. Default `AUTO`.
    #[prost(int32, tag = "1")]
    #[schema(values = CodecType)]
    pub codec_type: i32,
    /// Prefix of this listener's statistics: `http.PREFIX.`. Must be set.
    #[prost(string, tag = "2")]
    pub stat_prefix: String,
    /// Routes of the management server: their name, and `ads: {}` as the source.
    #[prost(message, optional, tag = "3")]
    pub rds: Option<RdsMessage>,
    /// HTTP filters: CORS, health check, local rate limit and buffer; the router must be last.
    #[prost(message, repeated, tag = "5")]
    pub http_filters: Vec<HttpFilterMessage>,
    /// Routes, inline. Either this or `rds` is required.
    #[prost(message, optional, tag = "4")]
    pub route_config: Option<RouteConfigurationMessage>,
    /// Spans of requests, sent to an OpenTelemetry collector. Default none: trace headers pass
    /// through unchanged.
    #[prost(message, optional, tag = "7")]
    pub tracing: Option<TracingMessage>,
    /// HTTP/2 options. Default 1024 streams, windows of 262144 and 1048576 bytes (65535 to
    /// 2147483647), and no keep-alive pings; the timeout of a ping is `20s`. With
    /// `use_remote_address`, the default is 100 streams and a stream window of 65536 bytes.
    #[prost(message, optional, tag = "9")]
    pub http2_protocol_options: Option<Http2Message>,
    /// Value of the `server` response header. Default `plimsoll` with `OVERWRITE`, else not set.
    #[prost(string, tag = "10")]
    pub server_name: String,
    /// Access logs. Default none.
    #[prost(message, repeated, tag = "13")]
    pub access_log: Vec<AccessLogMessage>,
    /// Edge proxy: append the client's address to `x-forwarded-for`, overwrite the client's
    /// `x-forwarded-proto` and `x-request-id`, and remove its `x-envoy-*` headers. Default false.
    #[prost(message, optional, tag = "14")]
    pub use_remote_address: Option<bool>,
    /// Add an `x-request-id` to requests without one. Default true.
    #[prost(message, optional, tag = "15")]
    pub generate_request_id: Option<bool>,
    /// Treatment of `x-forwarded-client-cert`: `SANITIZE` removes it, `SANITIZE_SET` replaces it by
    /// the client's certificate, `APPEND_FORWARD` appends that, `FORWARD_ONLY` keeps the header of
    /// clients with a certificate, `ALWAYS_FORWARD_ONLY` that of all. Default `SANITIZE`.
    #[prost(int32, tag = "16")]
    #[schema(values = ForwardClientCertDetails)]
    pub forward_client_cert_details: i32,
    /// Fields of `x-forwarded-client-cert` that are set from the client's certificate.
    #[prost(message, optional, tag = "17")]
    pub set_current_client_cert_details: Option<SetCurrentClientCertDetailsMessage>,
    #[prost(uint32, tag = "19")]
    pub xff_num_trusted_hops: u32,
    /// Protocols that clients may upgrade to; other upgrades get 403. Default none.
    #[prost(message, repeated, tag = "23")]
    pub upgrade_configs: Vec<UpgradeConfigMessage>,
    /// Timeout of a request without progress in either direction; `0s` is none. Default `300s`.
    #[prost(message, optional, tag = "24")]
    pub stream_idle_timeout: Option<DurationMessage>,
    /// Timeout of receiving a request with its body, which gets 408; `0s` is none. Default none.
    #[prost(message, optional, tag = "28")]
    pub request_timeout: Option<DurationMessage>,
    /// Limit of the size of all request headers in KiB, 1 to 8192; larger ones get 431. Default 60.
    #[prost(message, optional, tag = "29")]
    pub max_request_headers_kb: Option<u32>,
    /// Normalize paths before routing: dot segments, escaped unreserved characters, backslashes.
    /// Default false.
    #[prost(message, optional, tag = "30")]
    pub normalize_path: Option<bool>,
    // Decoded only to be refused.
    #[prost(message, optional, tag = "31")]
    #[schema(opaque)]
    pub scoped_routes: Option<()>,
    /// Keep the client's `x-request-id` with `use_remote_address`. Default false.
    #[prost(bool, tag = "32")]
    pub preserve_external_request_id: bool,
    /// Replace adjacent slashes of a path by one, before routing. Default false.
    #[prost(bool, tag = "33")]
    pub merge_slashes: bool,
    /// `OVERWRITE` replaces the `server` header of the upstream. Default `PASS_THROUGH`, unlike in
    /// Envoy.
    #[prost(int32, optional, tag = "34")]
    #[schema(values = ServerHeaderTransformation)]
    pub server_header_transformation: Option<i32>,
    /// Limits of connections and headers.
    #[prost(message, optional, tag = "35")]
    pub common_http_protocol_options: Option<DownstreamHttpMessage>,
    /// Copy `x-request-id` to the response. Default false.
    #[prost(bool, tag = "37")]
    pub always_set_request_id_in_response: bool,
    /// Remove the listener's port from `Host` before routing. Default false.
    #[prost(bool, tag = "39")]
    pub strip_matching_host_port: bool,
    /// Timeout from the first byte of a request to its last header; `0s` is none. Default `10s`.
    #[prost(message, optional, tag = "41")]
    pub request_headers_timeout: Option<DurationMessage>,
    /// Remove any port from `Host` before routing. Default false.
    #[prost(bool, tag = "42")]
    pub strip_any_host_port: bool,
    /// Treatment of `%2F` and `%5C` in paths: `KEEP_UNCHANGED`, `REJECT_REQUEST` (400),
    /// `UNESCAPE_AND_REDIRECT` (307) or `UNESCAPE_AND_FORWARD`. Default `KEEP_UNCHANGED`.
    #[prost(int32, tag = "45")]
    #[schema(values = PathWithEscapedSlashesAction)]
    pub path_with_escaped_slashes_action: i32,
    // Decoded only to be refused.
    #[prost(message, repeated, tag = "46")]
    pub original_ip_detection_extensions: Vec<()>,
}

/// `HttpConnectionManager.UpgradeConfig`: a protocol that clients may upgrade to.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.UpgradeConfig"
)]
#[schema(changes_request = "2 filters")]
pub struct UpgradeConfigMessage {
    /// Name of the protocol, such as `websocket`. Must be set.
    #[prost(string, tag = "1")]
    pub upgrade_type: String,
    /// Whether the upgrade is allowed. Default true.
    #[prost(message, optional, tag = "3")]
    pub enabled: Option<bool>,
}

/// `HttpConnectionManager.SetCurrentClientCertDetails`: fields of the client certificate in
/// `x-forwarded-client-cert`, besides `By` and `Hash`.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.SetCurrentClientCertDetails"
)]
pub struct SetCurrentClientCertDetailsMessage {
    /// `Subject`: the distinguished name, in the format of RFC 2253. Default false.
    #[prost(message, optional, tag = "1")]
    pub subject: Option<bool>,
    /// `Cert`: the certificate in PEM format, percent-encoded. Default false.
    #[prost(bool, tag = "3")]
    pub cert: bool,
    /// `DNS`: the DNS names of the certificate. Default false.
    #[prost(bool, tag = "4")]
    pub dns: bool,
    /// `URI`: the URI names of the certificate. Default false.
    #[prost(bool, tag = "5")]
    pub uri: bool,
    /// `Chain`: the certificate chain in PEM format, percent-encoded. Default false.
    #[prost(bool, tag = "6")]
    pub chain: bool,
}

/// `envoy.config.core.v3.HttpProtocolOptions` of a listener: timeouts and limits of connections.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HttpProtocolOptions")]
#[schema(title = "DownstreamHttpProtocolOptions")]
#[schema(unused = "7 max_response_headers_kb, 8 max_connection_duration_jitter")]
pub struct DownstreamHttpMessage {
    /// Timeout of a connection without requests; `0s` disables it. Default `3600s`.
    #[prost(message, optional, tag = "1")]
    pub idle_timeout: Option<DurationMessage>,
    /// Limit of the number of request headers; more get 431. Default 100.
    #[prost(message, optional, tag = "2")]
    pub max_headers_count: Option<u32>,
    /// Time after which a connection is drained; `0s` means never. Default never.
    #[prost(message, optional, tag = "3")]
    pub max_connection_duration: Option<DurationMessage>,
    /// Limit of the time of a request with its response; `0s` is none. Default none.
    #[prost(message, optional, tag = "4")]
    pub max_stream_duration: Option<DurationMessage>,
    /// Treatment of request headers whose names have underscores: `ALLOW`, `REJECT_REQUEST` (400)
    /// or `DROP_HEADER`. Default `ALLOW`.
    #[prost(int32, tag = "5")]
    #[schema(values = HeadersWithUnderscoresAction)]
    pub headers_with_underscores_action: i32,
    /// Number of requests after which a connection is drained; 0 means no limit. Default no limit.
    #[prost(message, optional, tag = "6")]
    pub max_requests_per_connection: Option<u32>,
}

/// `Rds`: subscription to a route configuration.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.network.http_connection_manager.v3.Rds")]
pub struct RdsMessage {
    /// Source of the route configuration; only `ads` is supported. Must be set.
    #[prost(message, optional, tag = "1")]
    pub config_source: Option<ConfigSourceMessage>,
    /// Name of the route configuration. Must be set.
    #[prost(string, tag = "2")]
    pub route_config_name: String,
}
