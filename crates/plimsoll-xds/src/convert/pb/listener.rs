//! `envoy.config.listener.v3` and the HTTP connection manager.

use prost::Message;

use super::route::RouteConfigurationMessage;
use super::upstream::CommonHttpMessage;
use super::{AddressMessage, AnyMessage, ConfigSourceMessage};

/// `Listener`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ListenerMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) address: Option<AddressMessage>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) filter_chains: Vec<FilterChainMessage>,
    #[prost(message, optional, tag = "19")]
    pub(crate) api_listener: Option<ApiListenerMessage>,
}

/// `FilterChain`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FilterChainMessage {
    #[prost(message, repeated, tag = "3")]
    pub(crate) filters: Vec<FilterMessage>,
}

/// `Filter`, and `HttpFilter`, which has the same first two fields and the third.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FilterMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) typed_config: Option<AnyMessage>,
    #[prost(bool, tag = "6")]
    pub(crate) is_optional: bool,
}

/// `ApiListener`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ApiListenerMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) api_listener: Option<AnyMessage>,
}

/// `envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpConnectionManagerMessage {
    #[prost(string, tag = "2")]
    pub(crate) stat_prefix: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) rds: Option<RdsMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) http_filters: Vec<FilterMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) route_config: Option<RouteConfigurationMessage>,
    #[prost(uint32, tag = "19")]
    pub(crate) xff_num_trusted_hops: u32,
    /// Read only to be refused.
    #[prost(message, optional, tag = "31")]
    pub(crate) scoped_routes: Option<()>,
    #[prost(message, optional, tag = "35")]
    pub(crate) common_http_protocol_options: Option<CommonHttpMessage>,
    /// Read only to be refused.
    #[prost(message, repeated, tag = "46")]
    pub(crate) original_ip_detection_extensions: Vec<()>,
}

/// `Rds`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RdsMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) config_source: Option<ConfigSourceMessage>,
    #[prost(string, tag = "2")]
    pub(crate) route_config_name: String,
}
