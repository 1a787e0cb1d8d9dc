//! Listeners and their `HttpConnectionManager`, from the file and from the management server.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::enums::ServerHeaderTransformation;
use plimsoll_xds::pb::listener::{
    DownstreamHttpMessage, HttpConnectionManagerMessage, ListenerMessage, RdsMessage,
    UpgradeConfigMessage,
};
use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::pb::upstream::Http2Message;
use plimsoll_xds::pb::{DurationMessage, duration, named, refuse_set, under};
use plimsoll_xds::wire::decode_route_configuration;
use prost::Message as _;

use super::access_log::access_log;
use super::bootstrap::socket_address;
use super::dynamic::check_ads;
use super::filter_chain::{check_listener_filters, filter_chains};
use super::filters::filters;
use super::tracing;
use super::{
    FilterChainConfig, Http2Config, HttpOptions, ListenerConfig, PathOptions, RouteSource,
    StripHostPort,
};
use crate::router::RouteTable;

impl ListenerConfig {
    /// Converts a `Listener` that has no unsupported fields; error paths are relative to the
    /// message. `index` names a listener without a name.
    pub(crate) fn try_new(message: ListenerMessage, index: usize) -> Result<Self, FieldError> {
        refuse_set(&[("api_listener", message.api_listener.is_some())])?;
        let address = socket_address(message.address.unwrap_or_default())
            .map_err(|error| error.under("address"))?;
        let name = if message.name.is_empty() {
            format!("listener_{index}")
        } else {
            message.name
        };
        check_listener_filters(message.listener_filters)?;
        let (chains, selector) =
            filter_chains(message.filter_chains, message.default_filter_chain)?;
        Ok(Self {
            name,
            address,
            chains,
            selector,
        })
    }
}

/// Returns the source of the routes: exactly one of `route_config` and `rds` must be set.
fn routes(
    route_config: Option<&RouteConfigurationMessage>,
    rds: Option<RdsMessage>,
) -> Result<RouteSource, FieldError> {
    match (route_config, rds) {
        (Some(routes), None) => {
            let table = decode_route_configuration(&routes.encode_to_vec())
                .map_err(FieldError::from)
                .map(Arc::new)
                .and_then(RouteTable::try_from)
                .map_err(|error| error.under("route_config"))?;
            Ok(RouteSource::Inline(Arc::new(table)))
        }
        (None, Some(rds)) => {
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

/// Converts a timeout: zero disables it.
fn timeout(
    message: Option<DurationMessage>,
    default: Option<Duration>,
    path: &str,
) -> Result<Option<Duration>, FieldError> {
    Ok(match duration(message, path)? {
        None => default,
        Some(time) => (!time.is_zero()).then_some(time),
    })
}

/// Converts everything of a filter chain but TLS; error paths are relative to the message.
pub(super) fn connection_manager(
    mut message: HttpConnectionManagerMessage,
) -> Result<FilterChainConfig, FieldError> {
    refuse_set(&[
        ("scoped_routes", message.scoped_routes.is_some()),
        ("xff_num_trusted_hops", message.xff_num_trusted_hops != 0),
        (
            "original_ip_detection_extensions",
            !message.original_ip_detection_extensions.is_empty(),
        ),
    ])?;
    let logs = std::mem::take(&mut message.access_log);
    let (tracing, rds) = (message.tracing.take(), message.rds.take());
    let route_config = message.route_config.take();
    let http = options(message)?;
    let routes = routes(route_config.as_ref(), rds)?;
    if let RouteSource::Inline(table) = &routes
        && table.has_cors
        && !http.cors
    {
        let reason = "has typed_per_filter_config of envoy.filters.http.cors, which has no effect \
                      without this filter in http_filters";
        return Err(FieldError::new("route_config", reason));
    }
    let mut access_logs = Vec::new();
    for (index, log) in logs.into_iter().enumerate() {
        let log = access_log(log).map_err(|error| error.under(&format!("access_log[{index}]")))?;
        access_logs.push(log);
    }
    let tracing = under(tracing.map(tracing::tracing), "tracing")?;
    Ok(FilterChainConfig {
        tls: None,
        http,
        routes,
        access_log: access_logs,
        tracing: tracing.map(Arc::new),
    })
}

fn options(message: HttpConnectionManagerMessage) -> Result<HttpOptions, FieldError> {
    if message.stat_prefix.is_empty() {
        return Err(FieldError::new("stat_prefix", "must not be empty"));
    }
    let defaults = HttpOptions::default();
    let header_bytes = match message.max_request_headers_kb {
        Some(kb @ 1..=8192) => kb << 10,
        Some(kb) => {
            let reason = format!("must be from 1 to 8192, not {kb}");
            return Err(FieldError::new("max_request_headers_kb", reason));
        }
        None => defaults.max_request_header_bytes,
    };
    let server = server(&message)?;
    let strip_host_port = strip_host_port(&message)?;
    let upgrades = upgrades(message.upgrade_configs)?;
    let filters = filters(message.http_filters)?;
    let use_remote_address = message.use_remote_address.unwrap_or(false);
    let options = HttpOptions {
        stat_prefix: message.stat_prefix,
        codec: named(message.codec_type, "codec_type")?,
        max_request_header_bytes: header_bytes,
        request_headers_timeout: timeout(
            message.request_headers_timeout,
            defaults.request_headers_timeout,
            "request_headers_timeout",
        )?,
        stream_idle_timeout: timeout(
            message.stream_idle_timeout,
            defaults.stream_idle_timeout,
            "stream_idle_timeout",
        )?,
        request_timeout: timeout(message.request_timeout, None, "request_timeout")?,
        max_request_bytes: filters.max_request_bytes,
        http2: http2_config(message.http2_protocol_options, use_remote_address)
            .map_err(|error| error.under("http2_protocol_options"))?,
        use_remote_address,
        generate_request_id: message.generate_request_id.unwrap_or(true),
        preserve_external_request_id: message.preserve_external_request_id,
        always_set_request_id_in_response: message.always_set_request_id_in_response,
        server,
        upgrades,
        suppress_envoy_headers: filters.suppress_envoy_headers,
        local_rate_limit: filters.local_rate_limit,
        cors: filters.cors,
        health_check_path: filters.health_check_path,
        path: PathOptions {
            normalize: message.normalize_path.unwrap_or(false),
            merge_slashes: message.merge_slashes,
            escaped_slashes: named(
                message.path_with_escaped_slashes_action,
                "path_with_escaped_slashes_action",
            )?,
        },
        strip_host_port,
        forward_client_cert: named(
            message.forward_client_cert_details,
            "forward_client_cert_details",
        )?,
        client_cert_details: message.set_current_client_cert_details.unwrap_or_default(),
        ..defaults
    };
    common_options(
        message.common_http_protocol_options.unwrap_or_default(),
        options,
    )
    .map_err(|error| error.under("common_http_protocol_options"))
}

/// Sets timeouts and limits of connections; error paths are relative to the message.
fn common_options(
    message: DownstreamHttpMessage,
    defaults: HttpOptions,
) -> Result<HttpOptions, FieldError> {
    Ok(HttpOptions {
        max_headers: message.max_headers_count.unwrap_or(defaults.max_headers),
        max_requests_per_connection: message.max_requests_per_connection.filter(|max| *max > 0),
        idle_timeout: timeout(message.idle_timeout, defaults.idle_timeout, "idle_timeout")?,
        max_connection_duration: timeout(
            message.max_connection_duration,
            None,
            "max_connection_duration",
        )?,
        max_stream_duration: timeout(message.max_stream_duration, None, "max_stream_duration")?,
        headers_with_underscores: named(
            message.headers_with_underscores_action,
            "headers_with_underscores_action",
        )?,
        ..defaults
    })
}

/// Returns the names of the protocols that clients may upgrade to.
fn upgrades(messages: Vec<UpgradeConfigMessage>) -> Result<Vec<String>, FieldError> {
    let mut names = Vec::new();
    for (index, message) in messages.into_iter().enumerate() {
        if message.upgrade_type.is_empty() {
            let path = format!("upgrade_configs[{index}].upgrade_type");
            return Err(FieldError::new(path, "must be set"));
        }
        if message.enabled != Some(false) {
            names.push(message.upgrade_type.to_ascii_lowercase());
        }
    }
    Ok(names)
}

fn strip_host_port(message: &HttpConnectionManagerMessage) -> Result<StripHostPort, FieldError> {
    match (
        message.strip_matching_host_port,
        message.strip_any_host_port,
    ) {
        (false, false) => Ok(StripHostPort::None),
        (true, false) => Ok(StripHostPort::Matching),
        (false, true) => Ok(StripHostPort::Any),
        (true, true) => Err(FieldError::new(
            "strip_any_host_port",
            "cannot be combined with strip_matching_host_port",
        )),
    }
}

/// Returns the value of the `server` header; by default that of the upstream stays, unlike in
/// Envoy.
fn server(message: &HttpConnectionManagerMessage) -> Result<Option<HeaderValue>, FieldError> {
    let transformation = message
        .server_header_transformation
        .map(|number| named(number, "server_header_transformation"))
        .transpose()?;
    let name = match (transformation, message.server_name.as_str()) {
        (Some(ServerHeaderTransformation::Overwrite), "") => "plimsoll",
        (_, "") => return Ok(None),
        (_, name) => name,
    };
    let value = HeaderValue::from_str(name);
    value
        .map(Some)
        .map_err(|_| FieldError::new("server_name", "is not a valid header value"))
}

fn http2_config(message: Option<Http2Message>, is_edge: bool) -> Result<Http2Config, FieldError> {
    /// Largest flow-control window of HTTP/2 (RFC 9113, 6.9.1).
    const MAX_WINDOW: u32 = (1 << 31) - 1;
    let message = message.unwrap_or_default();
    let defaults = if is_edge {
        Http2Config::edge()
    } else {
        Http2Config::default()
    };
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
