//! Listeners and their `HttpConnectionManager`.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::listener::RdsMessage;
use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::pb::trace::TracingMessage;
use plimsoll_xds::pb::upstream::Http2Message;
use plimsoll_xds::pb::{AddressMessage, duration};
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::decode_route_configuration;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum, Uint};
use serde::Deserialize;

use super::access_log::AccessLogYaml;
use super::bootstrap::{expect_type, socket_address};
use super::dynamic::check_ads;
use super::filter_chain::{self, FilterChainYaml, ListenerFilterYaml};
use super::filters::{self, HttpFilterYaml};
use super::tracing;
use super::{
    ClientCertDetails, Codec, EscapedSlashes, FilterChainConfig, ForwardClientCert,
    HeadersWithUnderscores, Http2Config, HttpOptions, ListenerConfig, PathOptions, RouteSource,
    StripHostPort,
};
use crate::router::RouteTable;

const HTTP_CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// A listener (`Listener`): address, protocol and routes.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerYaml {
    /// Name, unique among the listeners. Default `listener_N`, where N is its index.
    #[serde(default)]
    name: String,
    /// IP address and port to listen on; port 0 selects any.
    address: FileMessage<AddressMessage>,
    /// Protocol and routes of connections, by their `filter_chain_match`. Connections that match
    /// none are closed.
    #[serde(default)]
    filter_chains: Vec<FilterChainYaml>,
    /// Filter chain of connections that match no other. Default none.
    default_filter_chain: Option<FilterChainYaml>,
    /// Listener filters; only the TLS inspector, which has no effect: filter chains that match by
    /// server name or protocol imply it.
    #[serde(default)]
    listener_filters: Vec<ListenerFilterYaml>,
    /// Has no effect: every worker always has its own socket (`SO_REUSEPORT`).
    #[serde(default, rename = "enable_reuse_port")]
    _enable_reuse_port: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct HttpConnectionManagerYaml {
    /// Type of the filter, always
    /// `type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Prefix of this listener's statistics: `http.PREFIX.`.
    stat_prefix: String,
    /// Protocol of the clients: `HTTP1`, `HTTP2`, or `AUTO` to detect it. Default `AUTO`.
    #[serde(default)]
    codec_type: Named<Codec>,
    /// Routes, inline. Either this or `rds` is required.
    route_config: Option<FileMessage<RouteConfigurationMessage>>,
    /// Routes of the management server: their name, and `ads: {}` as the source.
    rds: Option<FileMessage<RdsMessage>>,
    /// HTTP filters: CORS, health check, local rate limit and buffer; the router must be last.
    #[serde(default)]
    http_filters: Vec<HttpFilterYaml>,
    /// Access logs. Default none.
    #[serde(default)]
    access_log: Vec<AccessLogYaml>,
    /// Spans of requests, sent to an OpenTelemetry collector. Default none: trace headers pass
    /// through unchanged.
    tracing: Option<FileMessage<TracingMessage>>,
    /// Edge proxy: append the client's address to `x-forwarded-for`, overwrite the client's
    /// `x-forwarded-proto` and `x-request-id`, and remove its `x-envoy-*` headers. Default false.
    use_remote_address: Option<bool>,
    /// Add an `x-request-id` to requests without one. Default true.
    generate_request_id: Option<bool>,
    /// Keep the client's `x-request-id` with `use_remote_address`. Default false.
    #[serde(default)]
    preserve_external_request_id: bool,
    /// Copy `x-request-id` to the response. Default false.
    #[serde(default)]
    always_set_request_id_in_response: bool,
    /// Value of the `server` response header. Default `plimsoll` with `OVERWRITE`, else not set.
    server_name: Option<String>,
    /// `OVERWRITE` replaces the `server` header of the upstream. Default `PASS_THROUGH`.
    #[serde(default)]
    server_header_transformation: Named<ServerHeader>,
    /// Limit of the size of all request headers in KiB, 1 to 8192; larger ones get 431. Default 60.
    max_request_headers_kb: Option<Uint<u32>>,
    /// Timeout from the first byte of a request to its last header; `0s` is none. Default `10s`.
    request_headers_timeout: Option<ProtoDuration>,
    /// Timeout of a request without progress in either direction; `0s` is none. Default `300s`.
    stream_idle_timeout: Option<ProtoDuration>,
    /// Timeout of receiving a request with its body, which gets 408; `0s` is none. Default none.
    request_timeout: Option<ProtoDuration>,
    /// Limits of connections and headers.
    #[serde(default)]
    common_http_protocol_options: CommonOptionsYaml,
    /// HTTP/2 options. Default 1024 streams, windows of 262144 and 1048576 bytes (65535 to
    /// 2147483647), and no keep-alive pings; the timeout of a ping is `20s`. With
    /// `use_remote_address`, the default is 100 streams and a stream window of 65536 bytes.
    #[serde(default)]
    http2_protocol_options: FileMessage<Http2Message>,
    /// Protocols that clients may upgrade to; other upgrades get 403. Default none.
    #[serde(default)]
    upgrade_configs: Vec<UpgradeConfigYaml>,
    /// Normalize paths before routing: dot segments, escaped unreserved characters, backslashes.
    /// Default false.
    #[serde(default)]
    normalize_path: bool,
    /// Replace adjacent slashes of a path by one, before routing. Default false.
    #[serde(default)]
    merge_slashes: bool,
    /// Treatment of `%2F` and `%5C` in paths: `KEEP_UNCHANGED`, `REJECT_REQUEST` (400),
    /// `UNESCAPE_AND_REDIRECT` (307) or `UNESCAPE_AND_FORWARD`. Default `KEEP_UNCHANGED`.
    #[serde(default)]
    path_with_escaped_slashes_action: Named<EscapedSlashes>,
    /// Remove the listener's port from `Host` before routing. Default false.
    #[serde(default)]
    strip_matching_host_port: bool,
    /// Remove any port from `Host` before routing. Default false.
    #[serde(default)]
    strip_any_host_port: bool,
    /// Treatment of `x-forwarded-client-cert`: `SANITIZE` removes it, `SANITIZE_SET` replaces it by
    /// the client's certificate, `APPEND_FORWARD` appends that, `FORWARD_ONLY` keeps the header of
    /// clients with a certificate, `ALWAYS_FORWARD_ONLY` that of all. Default `SANITIZE`.
    #[serde(default)]
    forward_client_cert_details: Named<ForwardClientCert>,
    /// Fields of `x-forwarded-client-cert` that are set from the client's certificate.
    #[serde(default)]
    set_current_client_cert_details: ClientCertDetails,
}

/// `ServerHeaderTransformation`. Unlike Envoy's default, ours keeps the upstream's `server` header.
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
    /// Timeout of a connection without requests; `0s` disables it. Default `3600s`.
    idle_timeout: Option<ProtoDuration>,
    /// Time after which a connection is drained; `0s` means never. Default never.
    max_connection_duration: Option<ProtoDuration>,
    /// Limit of the number of request headers; more get 431. Default 100.
    max_headers_count: Option<Uint<u32>>,
    /// Limit of the time of a request with its response; `0s` is none. Default none.
    max_stream_duration: Option<ProtoDuration>,
    /// Treatment of request headers whose names have underscores: `ALLOW`, `REJECT_REQUEST` (400)
    /// or `DROP_HEADER`. Default `ALLOW`.
    headers_with_underscores_action: Named<HeadersWithUnderscores>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct UpgradeConfigYaml {
    /// Name of the protocol, such as `websocket`.
    upgrade_type: String,
    /// Whether the upgrade is allowed. Default true.
    enabled: Option<bool>,
}

impl ListenerYaml {
    /// Validates the `Listener` message; error paths are relative to this message.
    pub(super) fn validate(self, index: usize) -> Result<ListenerConfig, FieldError> {
        let address = socket_address(&self.address).map_err(|error| error.under("address"))?;
        let name = if self.name.is_empty() {
            format!("listener_{index}")
        } else {
            self.name
        };
        filter_chain::check_listener_filters(&self.listener_filters)?;
        let (chains, selector) =
            filter_chain::validate(self.filter_chains, self.default_filter_chain)?;
        Ok(ListenerConfig {
            name,
            address,
            chains,
            selector,
        })
    }
}

/// Returns the source of the routes: exactly one of `route_config` and `rds` must be set.
fn routes(
    route_config: Option<FileMessage<RouteConfigurationMessage>>,
    rds: Option<FileMessage<RdsMessage>>,
) -> Result<RouteSource, FieldError> {
    match (route_config, rds) {
        (Some(routes), None) => {
            let table = decode_route_configuration(routes.bytes())
                .map_err(FieldError::from)
                .map(Arc::new)
                .and_then(RouteTable::try_from)
                .map_err(|error| error.under("route_config"))?;
            Ok(RouteSource::Inline(Arc::new(table)))
        }
        (None, Some(written)) => {
            let rds = written.message().map_err(|error| error.under("rds"))?;
            if rds.route_config_name.is_empty() {
                let reason = "must not be empty";
                return Err(FieldError::new("rds.route_config_name", reason));
            }
            check_ads(rds.config_source).map_err(|error| error.under("rds.config_source"))?;
            Ok(RouteSource::Rds(rds.route_config_name.into()))
        }
        (Some(_), Some(_)) => Err(FieldError::new(
            "rds",
            "cannot be combined with route_config",
        )),
        (None, None) => Err(FieldError::new("", "must have route_config or rds")),
    }
}

/// Converts a timeout of the file: zero disables the timeout.
fn timeout(value: Option<ProtoDuration>, default: Option<Duration>) -> Option<Duration> {
    match value {
        None => default,
        Some(ProtoDuration(value)) => (!value.is_zero()).then_some(value),
    }
}

impl HttpConnectionManagerYaml {
    /// Validates everything but TLS; error paths are relative to this message.
    pub(super) fn validate(self) -> Result<FilterChainConfig, FieldError> {
        expect_type(&self.type_url, HTTP_CONNECTION_MANAGER)?;
        let http = self.options()?;
        let routes = routes(self.route_config, self.rds)?;
        if let RouteSource::Inline(table) = &routes
            && table.has_cors
            && !http.cors
        {
            let reason = "has typed_per_filter_config of envoy.filters.http.cors, which has no \
                          effect without this filter in http_filters";
            return Err(FieldError::new("route_config", reason));
        }
        let mut access_log = Vec::new();
        for (index, log) in self.access_log.into_iter().enumerate() {
            let prefix = format!("access_log[{index}]");
            access_log.push(log.validate().map_err(|error| error.under(&prefix))?);
        }
        let tracing = self.tracing.as_ref().map(tracing::validate).transpose();
        let tracing = tracing.map_err(|error| error.under("tracing"))?;
        Ok(FilterChainConfig {
            tls: None,
            http,
            routes,
            access_log,
            tracing: tracing.map(Arc::new),
        })
    }

    fn options(&self) -> Result<HttpOptions, FieldError> {
        let defaults = HttpOptions::default();
        let common = &self.common_http_protocol_options;
        let header_bytes = match &self.max_request_headers_kb {
            Some(Uint(kb @ 1..=8192)) => kb << 10,
            Some(Uint(kb)) => {
                let reason = format!("must be from 1 to 8192, not {kb}");
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
        let filters = filters::validate(&self.http_filters)?;
        let use_remote_address = self.use_remote_address.unwrap_or(false);
        let http2 = if use_remote_address {
            Http2Config::edge()
        } else {
            Http2Config::default()
        };
        Ok(HttpOptions {
            stat_prefix: self.stat_prefix.clone(),
            codec: self.codec_type.0,
            max_request_header_bytes: header_bytes,
            max_headers: common
                .max_headers_count
                .map_or(defaults.max_headers, |n| n.0),
            request_headers_timeout: timeout(
                self.request_headers_timeout,
                defaults.request_headers_timeout,
            ),
            idle_timeout: timeout(common.idle_timeout, defaults.idle_timeout),
            max_connection_duration: timeout(common.max_connection_duration, None),
            stream_idle_timeout: timeout(self.stream_idle_timeout, defaults.stream_idle_timeout),
            request_timeout: timeout(self.request_timeout, None),
            max_stream_duration: timeout(common.max_stream_duration, None),
            max_request_bytes: filters.max_request_bytes,
            http2: http2_config(&self.http2_protocol_options, http2)
                .map_err(|error| error.under("http2_protocol_options"))?,
            use_remote_address,
            generate_request_id: self.generate_request_id.unwrap_or(true),
            preserve_external_request_id: self.preserve_external_request_id,
            always_set_request_id_in_response: self.always_set_request_id_in_response,
            server: self.server()?,
            upgrades,
            suppress_envoy_headers: filters.suppress_envoy_headers,
            local_rate_limit: filters.local_rate_limit,
            cors: filters.cors,
            health_check_path: filters.health_check_path,
            path: PathOptions {
                normalize: self.normalize_path,
                merge_slashes: self.merge_slashes,
                escaped_slashes: self.path_with_escaped_slashes_action.0,
            },
            headers_with_underscores: common.headers_with_underscores_action.0,
            strip_host_port: self.strip_host_port()?,
            forward_client_cert: self.forward_client_cert_details.0,
            client_cert_details: self.set_current_client_cert_details,
        })
    }

    fn strip_host_port(&self) -> Result<StripHostPort, FieldError> {
        match (self.strip_matching_host_port, self.strip_any_host_port) {
            (false, false) => Ok(StripHostPort::None),
            (true, false) => Ok(StripHostPort::Matching),
            (false, true) => Ok(StripHostPort::Any),
            (true, true) => Err(FieldError::new(
                "strip_any_host_port",
                "cannot be combined with strip_matching_host_port",
            )),
        }
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
            .map_err(|_| FieldError::new("server_name", "is not a valid header value"))
    }
}

fn http2_config(
    written: &FileMessage<Http2Message>,
    defaults: Http2Config,
) -> Result<Http2Config, FieldError> {
    /// Largest flow-control window of HTTP/2 (RFC 9113, 6.9.1).
    const MAX_WINDOW: u32 = (1 << 31) - 1;
    let message = written.message()?;
    let window = |value: Option<u32>, default: u32, field: &str| match value.unwrap_or(default) {
        bytes @ 65_535..=MAX_WINDOW => Ok(bytes),
        bytes => {
            let reason = format!("must be from 65535 to {MAX_WINDOW}, not {bytes}");
            Err(FieldError::new(field, reason))
        }
    };
    let keepalive = message.connection_keepalive.unwrap_or_default();
    let timeout = duration(keepalive.timeout, "connection_keepalive.timeout")?;
    Ok(Http2Config {
        max_concurrent_streams: message
            .max_concurrent_streams
            .unwrap_or(defaults.max_concurrent_streams),
        initial_stream_window_size: window(
            message.initial_stream_window_size,
            defaults.initial_stream_window_size,
            "initial_stream_window_size",
        )?,
        initial_connection_window_size: window(
            message.initial_connection_window_size,
            defaults.initial_connection_window_size,
            "initial_connection_window_size",
        )?,
        keepalive_interval: duration(keepalive.interval, "connection_keepalive.interval")?,
        keepalive_timeout: timeout.unwrap_or(defaults.keepalive_timeout),
    })
}
