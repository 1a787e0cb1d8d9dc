//! `envoy.config.listener.v3` and the HTTP connection manager.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::route::RouteConfigurationMessage;
use super::upstream::CommonHttpMessage;
use super::{AddressMessage, AnyMessage, ConfigSourceMessage};

/// `Listener`, as read from a management server.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.Listener")]
pub struct ListenerMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    #[schema(opaque)]
    pub address: Option<AddressMessage>,
    #[prost(message, repeated, tag = "3")]
    #[schema(opaque)]
    pub filter_chains: Vec<FilterChainMessage>,
    #[prost(message, optional, tag = "19")]
    pub api_listener: Option<ApiListenerMessage>,
}

/// `FilterChain`: network filters of a listener.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.FilterChain")]
pub struct FilterChainMessage {
    #[prost(message, repeated, tag = "3")]
    pub filters: Vec<FilterMessage>,
}

/// `Filter`; also decodes `HttpFilter`, which has `is_optional` in addition.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.listener.v3.Filter")]
pub struct FilterMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    #[schema(types = NETWORK_FILTERS)]
    pub typed_config: Option<AnyMessage>,
    #[prost(bool, tag = "6")]
    pub is_optional: bool,
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
/// settings of a listener.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)]
#[schema(harmless = "1 codec_type")]
#[schema(unused = "6 add_user_agent, 7 tracing, 8 http_protocol_options, \
          9 http2_protocol_options, 10 server_name, 12 drain_timeout, 13 access_log, \
          14 use_remote_address, 15 generate_request_id, 23 upgrade_configs, \
          24 stream_idle_timeout, 28 request_timeout, 30 normalize_path, 38 local_reply_config")]
pub struct HttpConnectionManagerMessage {
    #[prost(string, tag = "2")]
    pub stat_prefix: String,
    #[prost(message, optional, tag = "3")]
    #[schema(opaque)]
    pub rds: Option<RdsMessage>,
    #[prost(message, repeated, tag = "5")]
    #[schema(opaque)]
    pub http_filters: Vec<FilterMessage>,
    #[prost(message, optional, tag = "4")]
    pub route_config: Option<RouteConfigurationMessage>,
    #[prost(uint32, tag = "19")]
    pub xff_num_trusted_hops: u32,
    /// Not supported; decoded only to be refused.
    #[prost(message, optional, tag = "31")]
    #[schema(opaque)]
    pub scoped_routes: Option<()>,
    #[prost(message, optional, tag = "35")]
    pub common_http_protocol_options: Option<CommonHttpMessage>,
    /// Not supported; decoded only to be refused.
    #[prost(message, repeated, tag = "46")]
    pub original_ip_detection_extensions: Vec<()>,
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
