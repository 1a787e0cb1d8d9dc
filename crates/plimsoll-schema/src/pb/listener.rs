//! `envoy.config.listener.v3` and the HTTP connection manager.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::access_log::AccessLogMessage;
use super::enums::{
    CodecType, ForwardClientCertDetails, HeadersWithUnderscoresAction,
    PathWithEscapedSlashesAction, ServerHeaderTransformation,
};
use super::route::RouteConfigurationMessage;
use super::trace::TracingMessage;
use super::upstream::Http2Message;
use super::{AddressMessage, AnyMessage, ConfigSourceMessage, DurationMessage};

/// `Listener`, as read from a management server.
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
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub address: Option<AddressMessage>,
    #[prost(message, repeated, tag = "3")]
    pub filter_chains: Vec<FilterChainMessage>,
    #[prost(message, repeated, tag = "9")]
    pub listener_filters: Vec<ListenerFilterMessage>,
    #[prost(message, optional, tag = "19")]
    pub api_listener: Option<ApiListenerMessage>,
    #[prost(message, optional, tag = "25")]
    pub default_filter_chain: Option<FilterChainMessage>,
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
    #[prost(message, optional, tag = "1")]
    pub filter_chain_match: Option<FilterChainMatchMessage>,
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<FilterMessage>,
    #[prost(message, optional, tag = "6")]
    pub transport_socket: Option<DownstreamTransportSocketMessage>,
    #[prost(string, tag = "7")]
    pub name: String,
}

/// `FilterChainMatch`: which connections use a filter chain.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.FilterChainMatch")]
#[schema(
    changes_request = "3 prefix_ranges, 4 address_suffix, 5 suffix_len, 6 source_prefix_ranges, \
          7 source_ports, 8 destination_port, 12 source_type, 13 direct_source_prefix_ranges"
)]
pub struct FilterChainMatchMessage {
    #[prost(string, tag = "9")]
    pub transport_protocol: String,
    #[prost(string, repeated, tag = "10")]
    pub application_protocols: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub server_names: Vec<String>,
}

/// `ListenerFilter`: reads the first bytes of a connection before its filter chain is selected.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.ListenerFilter")]
#[schema(changes_request = "4 filter_disabled, 5 config_discovery")]
pub struct ListenerFilterMessage {
    #[prost(string, tag = "1")]
    pub name: String,
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
pub struct DownstreamTransportSocketMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    #[schema(types = DOWNSTREAM_TRANSPORT_SOCKETS)]
    pub typed_config: Option<AnyMessage>,
}

/// `Filter`; also decodes `HttpFilter`, which has `is_optional` in addition.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.Filter")]
#[schema(changes_request = "5 config_discovery, 7 disabled?")]
pub struct FilterMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    #[schema(types = FILTERS)]
    pub typed_config: Option<AnyMessage>,
    #[prost(bool, tag = "6")]
    pub is_optional: bool,
}

/// `ApiListener`: the listener of a gRPC client.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.ApiListener")]
pub struct ApiListenerMessage {
    #[prost(message, optional, tag = "1")]
    #[schema(types = FILTERS)]
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
pub struct HttpConnectionManagerMessage {
    #[prost(int32, tag = "1")]
    #[schema(values = CodecType)]
    pub codec_type: i32,
    #[prost(string, tag = "2")]
    pub stat_prefix: String,
    #[prost(message, optional, tag = "3")]
    pub rds: Option<RdsMessage>,
    #[prost(message, repeated, tag = "5")]
    pub http_filters: Vec<FilterMessage>,
    #[prost(message, optional, tag = "4")]
    pub route_config: Option<RouteConfigurationMessage>,
    #[prost(message, optional, tag = "7")]
    pub tracing: Option<TracingMessage>,
    #[prost(message, optional, tag = "9")]
    pub http2_protocol_options: Option<Http2Message>,
    #[prost(string, tag = "10")]
    pub server_name: String,
    #[prost(message, repeated, tag = "13")]
    pub access_log: Vec<AccessLogMessage>,
    #[prost(message, optional, tag = "14")]
    pub use_remote_address: Option<bool>,
    #[prost(message, optional, tag = "15")]
    pub generate_request_id: Option<bool>,
    #[prost(int32, tag = "16")]
    #[schema(values = ForwardClientCertDetails)]
    pub forward_client_cert_details: i32,
    #[prost(message, optional, tag = "17")]
    pub set_current_client_cert_details: Option<SetCurrentClientCertDetailsMessage>,
    #[prost(uint32, tag = "19")]
    pub xff_num_trusted_hops: u32,
    #[prost(bool, tag = "21")]
    pub skip_xff_append: bool,
    #[prost(message, repeated, tag = "23")]
    pub upgrade_configs: Vec<UpgradeConfigMessage>,
    #[prost(message, optional, tag = "24")]
    pub stream_idle_timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "28")]
    pub request_timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "29")]
    pub max_request_headers_kb: Option<u32>,
    #[prost(message, optional, tag = "30")]
    pub normalize_path: Option<bool>,
    /// Not supported; decoded only to be refused.
    #[prost(message, optional, tag = "31")]
    #[schema(opaque)]
    pub scoped_routes: Option<()>,
    #[prost(bool, tag = "32")]
    pub preserve_external_request_id: bool,
    #[prost(bool, tag = "33")]
    pub merge_slashes: bool,
    #[prost(int32, tag = "34")]
    #[schema(values = ServerHeaderTransformation)]
    pub server_header_transformation: i32,
    #[prost(message, optional, tag = "35")]
    pub common_http_protocol_options: Option<DownstreamHttpMessage>,
    #[prost(bool, tag = "37")]
    pub always_set_request_id_in_response: bool,
    #[prost(bool, tag = "39")]
    pub strip_matching_host_port: bool,
    #[prost(message, optional, tag = "41")]
    pub request_headers_timeout: Option<DurationMessage>,
    #[prost(bool, tag = "42")]
    pub strip_any_host_port: bool,
    #[prost(int32, tag = "45")]
    #[schema(values = PathWithEscapedSlashesAction)]
    pub path_with_escaped_slashes_action: i32,
    /// Not supported; decoded only to be refused.
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
    #[prost(string, tag = "1")]
    pub upgrade_type: String,
    #[prost(message, optional, tag = "3")]
    pub enabled: Option<bool>,
}

/// `HttpConnectionManager.SetCurrentClientCertDetails`: content of `x-forwarded-client-cert`.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.SetCurrentClientCertDetails"
)]
pub struct SetCurrentClientCertDetailsMessage {
    #[prost(message, optional, tag = "1")]
    pub subject: Option<bool>,
    #[prost(bool, tag = "3")]
    pub cert: bool,
    #[prost(bool, tag = "4")]
    pub dns: bool,
    #[prost(bool, tag = "5")]
    pub uri: bool,
    #[prost(bool, tag = "6")]
    pub chain: bool,
}

/// `envoy.config.core.v3.HttpProtocolOptions` of a listener: timeouts and limits of connections.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HttpProtocolOptions")]
#[schema(unused = "7 max_response_headers_kb, 8 max_connection_duration_jitter")]
pub struct DownstreamHttpMessage {
    #[prost(message, optional, tag = "1")]
    pub idle_timeout: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub max_headers_count: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub max_connection_duration: Option<DurationMessage>,
    #[prost(message, optional, tag = "4")]
    pub max_stream_duration: Option<DurationMessage>,
    #[prost(int32, tag = "5")]
    #[schema(values = HeadersWithUnderscoresAction)]
    pub headers_with_underscores_action: i32,
    #[prost(message, optional, tag = "6")]
    pub max_requests_per_connection: Option<u32>,
}

/// `envoy.extensions.filters.http.router.v3.Router`: the filter that forwards requests.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.router.v3.Router")]
#[schema(harmless = "1 dynamic_stats, 2 start_child_span")]
pub struct RouterMessage {
    #[prost(bool, tag = "4")]
    pub suppress_envoy_headers: bool,
}

/// `envoy.extensions.filters.http.buffer.v3.Buffer`: limit of request bodies.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.buffer.v3.Buffer")]
pub struct BufferMessage {
    #[prost(message, optional, tag = "1")]
    pub max_request_bytes: Option<u32>,
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
