//! A listener and its `HttpConnectionManager`.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum, Uint};
use serde::Deserialize;

use super::access_log::AccessLogYaml;
use super::bootstrap::{AddressYaml, expect_type};
use super::dynamic::ConfigSourceYaml;
use super::route::RouteConfigurationYaml;
use super::tls::TransportSocketYaml;
use super::{Codec, Http2Config, HttpOptions, ListenerConfig, RouteSource};
use crate::router::RouteTable;

const HTTP_CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const BUFFER: &str = "envoy.extensions.filters.http.buffer.v3.Buffer";

/// `Listener`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerYaml {
    /// Its name. Default `listener_0` and so on.
    #[serde(default)]
    name: String,
    /// Where it listens.
    address: AddressYaml,
    /// Exactly one.
    filter_chains: Vec<FilterChainYaml>,
    // Every worker has a socket of its own already.
    /// Without effect: every worker has a socket of its own.
    #[serde(default, rename = "enable_reuse_port")]
    _enable_reuse_port: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FilterChainYaml {
    /// Only a name.
    #[serde(rename = "name", default)]
    _name: String,
    /// Exactly one: the `HttpConnectionManager`.
    filters: Vec<FilterYaml>,
    /// TLS; without it plain text.
    transport_socket: Option<TransportSocketYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FilterYaml {
    /// Only a name.
    #[serde(rename = "name", default)]
    _name: String,
    /// The settings.
    typed_config: HttpConnectionManagerYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HttpConnectionManagerYaml {
    /// `type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Prefix of its counters.
    stat_prefix: String,
    /// The version of HTTP; `AUTO` finds out. Default `AUTO`.
    #[serde(default)]
    codec_type: Named<Codec>,
    /// Routes; these or `rds`.
    route_config: Option<RouteConfigurationYaml>,
    /// Routes of the management server.
    rds: Option<RdsYaml>,
    /// The router, last; before it the buffer filter with a limit of bodies.
    #[serde(default)]
    http_filters: Vec<HttpFilterYaml>,
    /// Access logs.
    #[serde(default)]
    access_log: Vec<AccessLogYaml>,
    /// At the edge: the client's address is added to `x-forwarded-for`, and what it says of scheme
    /// and request id is replaced. Default false.
    use_remote_address: Option<bool>,
    /// Give requests without an `x-request-id` one. Default true.
    generate_request_id: Option<bool>,
    /// Keep the one of a client at the edge.
    #[serde(default)]
    preserve_external_request_id: bool,
    /// Put it into the response as well.
    #[serde(default)]
    always_set_request_id_in_response: bool,
    /// What the `server` field of responses says. Default `plimsoll`, if anything.
    server_name: Option<String>,
    /// `OVERWRITE` replaces what the host said. Default `PASS_THROUGH`.
    #[serde(default)]
    server_header_transformation: Named<ServerHeader>,
    /// KiB of all header fields of a request, 1 to 8192; more is 431. Default 60.
    max_request_headers_kb: Option<Uint<u32>>,
    /// From the first byte of a header to its last; `0s` is no limit. Default `10s`.
    request_headers_timeout: Option<ProtoDuration>,
    /// A connection with requests on which nothing moves is closed; `0s` is never. Default `300s`.
    stream_idle_timeout: Option<ProtoDuration>,
    /// Limits of connections.
    #[serde(default)]
    common_http_protocol_options: CommonOptionsYaml,
    /// Settings of HTTP/2.
    #[serde(default)]
    http2_protocol_options: Http2OptionsYaml,
    /// Protocols that may be upgraded to; others are 403.
    #[serde(default)]
    upgrade_configs: Vec<UpgradeConfigYaml>,
}

/// `Rds`: the name of the routes at the server of `ads_config`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RdsYaml {
    /// Name of the routes.
    route_config_name: String,
    /// Where from: `ads`.
    #[serde(rename = "config_source")]
    _config_source: ConfigSourceYaml,
}

/// `ServerHeaderTransformation`; ours leaves the upstream's name alone unless told otherwise.
#[derive(Clone, Copy, Debug, Default)]
enum ServerHeader {
    Overwrite,
    #[default]
    PassThrough,
}

impl ProtoEnum for ServerHeader {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("OVERWRITE", 0, Self::Overwrite),
        ("PASS_THROUGH", 2, Self::PassThrough),
    ];
}

impl ProtoEnum for Codec {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("AUTO", 0, Self::Auto),
        ("HTTP1", 1, Self::Http1),
        ("HTTP2", 2, Self::Http2),
    ];
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct CommonOptionsYaml {
    /// A connection without a request is closed; `0s` is never. Default `3600s`.
    idle_timeout: Option<ProtoDuration>,
    /// A connection ends after its requests; `0s` is never. Default never.
    max_connection_duration: Option<ProtoDuration>,
    /// Header fields of a request; more is 431. Default 100.
    max_headers_count: Option<Uint<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct Http2OptionsYaml {
    /// Requests at a time on one connection. Default 1024.
    max_concurrent_streams: Option<Uint<u32>>,
    /// Bytes that may arrive unread on one stream, 65535 to 2147483647. Default 262144.
    initial_stream_window_size: Option<Uint<u32>>,
    /// Bytes that may arrive unread on one connection, 65535 to 2147483647. Default 1048576.
    initial_connection_window_size: Option<Uint<u32>>,
    /// Pings on connections; without it none are sent.
    connection_keepalive: Option<KeepaliveYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct KeepaliveYaml {
    /// Time between two pings.
    interval: ProtoDuration,
    /// How long the answer may take. Default `20s`.
    timeout: Option<ProtoDuration>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct UpgradeConfigYaml {
    /// Such as `websocket`.
    upgrade_type: String,
    /// Whether it is allowed. Default true.
    enabled: Option<bool>,
}

/// `HttpFilter`: the router, and the limit of bodies.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HttpFilterYaml {
    /// Only a name.
    #[serde(rename = "name", default)]
    _name: String,
    /// The settings.
    typed_config: HttpFilterConfigYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HttpFilterConfigYaml {
    /// `type.googleapis.com/` and `envoy.extensions.filters.http.router.v3.Router`, or
    /// `envoy.extensions.filters.http.buffer.v3.Buffer`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Of the buffer filter, which needs it: bytes of a body; more is 413.
    max_request_bytes: Option<Uint<u32>>,
}

impl ListenerYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self, index: usize) -> Result<ListenerConfig, FieldError> {
        let address = self.address.checked();
        let address = address.map_err(|error| error.under("address"))?;
        let name = match self.name.is_empty() {
            true => format!("listener_{index}"),
            false => self.name,
        };
        let chain = only(self.filter_chains, "filter_chains")?;
        let tls = chain.transport_socket.map(|socket| {
            let place = "filter_chains[0].transport_socket";
            socket.checked().map_err(|error| error.under(place))
        });
        let filter = only(chain.filters, "filters");
        let filter = filter.map_err(|error| error.under("filter_chains[0]"))?;
        let place = "filter_chains[0].filters[0].typed_config";
        let manager = filter.typed_config.checked(name, address);
        let mut listener = manager.map_err(|error| error.under(place))?;
        listener.tls = tls.transpose()?;
        Ok(listener)
    }
}

fn only<T>(list: Vec<T>, path: &str) -> Result<T, FieldError> {
    let count = list.len();
    let mut list = list.into_iter();
    match (list.next(), count) {
        (Some(one), 1) => Ok(one),
        _ => {
            let reason = format!("must have exactly one entry, not {count}");
            Err(FieldError::new(path, reason))
        }
    }
}

/// Where routes are: here, or at the management server.
fn routes(
    route_config: Option<RouteConfigurationYaml>,
    rds: Option<RdsYaml>,
) -> Result<RouteSource, FieldError> {
    match (route_config, rds) {
        (Some(routes), None) => {
            let table = routes
                .checked()
                .map(Arc::new)
                .and_then(RouteTable::try_from);
            let table = table.map_err(|error| error.under("route_config"))?;
            Ok(RouteSource::Inline(Arc::new(table)))
        }
        (None, Some(rds)) if rds.route_config_name.is_empty() => {
            let reason = "must not be empty";
            Err(FieldError::new("rds.route_config_name", reason))
        }
        (None, Some(rds)) => Ok(RouteSource::Rds(rds.route_config_name.into())),
        (Some(_), Some(_)) => Err(FieldError::new("rds", "stands beside route_config")),
        (None, None) => Err(FieldError::new("", "must have route_config or rds")),
    }
}

/// Zero means no limit.
fn limit(value: Option<ProtoDuration>, default: Option<Duration>) -> Option<Duration> {
    match value {
        None => default,
        Some(ProtoDuration(value)) => (!value.is_zero()).then_some(value),
    }
}

impl HttpConnectionManagerYaml {
    fn checked(
        self,
        name: String,
        address: std::net::SocketAddr,
    ) -> Result<ListenerConfig, FieldError> {
        expect_type(&self.type_url, HTTP_CONNECTION_MANAGER)?;
        let http = self.options()?;
        let routes = routes(self.route_config, self.rds)?;
        let mut access_log = Vec::new();
        for (index, log) in self.access_log.into_iter().enumerate() {
            let place = format!("access_log[{index}]");
            access_log.push(log.checked().map_err(|error| error.under(&place))?);
        }
        Ok(ListenerConfig {
            name,
            address,
            tls: None,
            http,
            routes,
            access_log,
        })
    }

    fn options(&self) -> Result<HttpOptions, FieldError> {
        let defaults = HttpOptions::default();
        let common = &self.common_http_protocol_options;
        let header_bytes = match &self.max_request_headers_kb {
            Some(Uint(kb @ 1..=8192)) => kb << 10,
            Some(Uint(kb)) => {
                let reason = format!("{kb} is not from 1 to 8192");
                return Err(FieldError::new("max_request_headers_kb", reason));
            }
            None => defaults.max_request_header_bytes,
        };
        let mut upgrades = Vec::new();
        for config in &self.upgrade_configs {
            if config.enabled != Some(false) {
                upgrades.push(config.upgrade_type.to_ascii_lowercase());
            }
        }
        Ok(HttpOptions {
            stat_prefix: self.stat_prefix.clone(),
            codec: self.codec_type.0,
            max_request_header_bytes: header_bytes,
            max_headers: common
                .max_headers_count
                .map_or(defaults.max_headers, |n| n.0),
            request_headers_timeout: limit(
                self.request_headers_timeout,
                defaults.request_headers_timeout,
            ),
            idle_timeout: limit(common.idle_timeout, defaults.idle_timeout),
            max_connection_duration: limit(common.max_connection_duration, None),
            stream_idle_timeout: limit(self.stream_idle_timeout, defaults.stream_idle_timeout),
            max_request_bytes: self.max_request_bytes()?,
            http2: self.http2_protocol_options.checked()?,
            use_remote_address: self.use_remote_address.unwrap_or(false),
            generate_request_id: self.generate_request_id.unwrap_or(true),
            preserve_external_request_id: self.preserve_external_request_id,
            always_set_request_id_in_response: self.always_set_request_id_in_response,
            server: self.server()?,
            upgrades,
        })
    }

    fn server(&self) -> Result<Option<HeaderValue>, FieldError> {
        let name = self.server_name.as_deref().filter(|name| !name.is_empty());
        let name = match (self.server_header_transformation.0, name) {
            (ServerHeader::PassThrough, None) => return Ok(None),
            (ServerHeader::Overwrite, None) => "plimsoll",
            (_, Some(name)) => name,
        };
        let value = HeaderValue::from_str(name);
        value
            .map(Some)
            .map_err(|_| FieldError::new("server_name", "is not a header value"))
    }

    /// The router must be last; the limit of bodies may stand before it.
    fn max_request_bytes(&self) -> Result<Option<u64>, FieldError> {
        let mut limit = None;
        let last = self.http_filters.len().saturating_sub(1);
        for (index, filter) in self.http_filters.iter().enumerate() {
            let place = format!("http_filters[{index}].typed_config");
            let config = &filter.typed_config;
            let wanted = if index == last { ROUTER } else { BUFFER };
            expect_type(&config.type_url, wanted).map_err(|error| error.under(&place))?;
            match (config.max_request_bytes, index == last) {
                (Some(bytes), false) => limit = Some(u64::from(bytes.0)),
                (None, true) => {}
                _ => {
                    let path = format!("{place}.max_request_bytes");
                    return Err(FieldError::new(
                        path,
                        "is for the buffer filter, which needs it",
                    ));
                }
            }
        }
        Ok(limit)
    }
}

impl Http2OptionsYaml {
    fn checked(&self) -> Result<Http2Config, FieldError> {
        /// Bound of the protocol.
        const MAX_WINDOW: u32 = (1 << 31) - 1;
        let defaults = Http2Config::default();
        let window = |value: Option<Uint<u32>>, default: u32, field: &str| match value {
            None => Ok(default),
            Some(Uint(bytes @ 65_535..=MAX_WINDOW)) => Ok(bytes),
            Some(Uint(bytes)) => {
                let path = format!("http2_protocol_options.{field}");
                let reason = format!("{bytes} is not from 65535 to {MAX_WINDOW}");
                Err(FieldError::new(path, reason))
            }
        };
        let streams = self
            .max_concurrent_streams
            .map_or(defaults.max_concurrent_streams, |n| n.0);
        let keepalive = self.connection_keepalive.as_ref();
        Ok(Http2Config {
            max_concurrent_streams: streams,
            initial_stream_window_size: window(
                self.initial_stream_window_size,
                defaults.initial_stream_window_size,
                "initial_stream_window_size",
            )?,
            initial_connection_window_size: window(
                self.initial_connection_window_size,
                defaults.initial_connection_window_size,
                "initial_connection_window_size",
            )?,
            keepalive_interval: keepalive.map(|keepalive| keepalive.interval.0),
            keepalive_timeout: keepalive
                .and_then(|keepalive| keepalive.timeout)
                .map_or(defaults.keepalive_timeout, |timeout| timeout.0),
        })
    }
}
