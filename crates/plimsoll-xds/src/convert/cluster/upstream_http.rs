//! Protocol options of a cluster from bytes, the typed way and the deprecated one.

use std::time::Duration;

use plimsoll_core::units::FieldError;

use super::super::pb::upstream::{
    CommonHttpMessage, ExplicitHttpConfigMessage, Http2Message, HttpProtocolOptionsMessage,
    UpstreamClusterMessage, UpstreamHttpMessage,
};
use super::super::pb::{DurationMessage, duration};
use super::HTTP_PROTOCOL_OPTIONS;
use crate::upstream::{Http2Options, HttpVersion, UpstreamOptions};

/// Puts protocol options into `options`. Typed ones supersede the deprecated fields, as in Envoy.
pub(super) fn put(
    cluster: &UpstreamClusterMessage,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    let mut is_typed = false;
    for (key, any) in &cluster.typed_extension_protocol_options {
        let path = format!("typed_extension_protocol_options[{key}]");
        if any.type_name() != HTTP_PROTOCOL_OPTIONS || is_typed {
            let reason = format!("{:?} is not supported", any.type_url);
            return Err(FieldError::new("type_url", reason).under(&path));
        }
        let put = any.unpack().and_then(|message| typed(message, options));
        put.map_err(|error| error.under(&path))?;
        is_typed = true;
    }
    if is_typed {
        return Ok(());
    }
    legacy(cluster, options)
}

fn typed(
    message: HttpProtocolOptionsMessage,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    common(message.common_http_protocol_options, options)?;
    upstream(message.upstream_http_protocol_options, options);
    match message.explicit_http_config {
        Some(ExplicitHttpConfigMessage {
            http2_protocol_options: Some(http2),
            ..
        }) => put_http2(&http2, options)
            .map_err(|error| error.under("explicit_http_config.http2_protocol_options")),
        Some(ExplicitHttpConfigMessage {
            http_protocol_options: Some(()),
            ..
        }) => Ok(()),
        _ => {
            let reason = "must be HTTP/1 or HTTP/2: nothing else is supported";
            Err(FieldError::new("explicit_http_config", reason))
        }
    }
}

fn legacy(
    cluster: &UpstreamClusterMessage,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    common(cluster.common_http_protocol_options.clone(), options)?;
    upstream(cluster.upstream_http_protocol_options.clone(), options);
    if let Some(requests) = cluster.max_requests_per_connection {
        options.max_requests_per_connection = (requests > 0).then_some(requests);
    }
    match &cluster.http2_protocol_options {
        Some(http2) => {
            put_http2(http2, options).map_err(|error| error.under("http2_protocol_options"))
        }
        None => Ok(()),
    }
}

fn common(
    message: Option<CommonHttpMessage>,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    let message = message.unwrap_or_default();
    let checked = |value: Option<DurationMessage>, field: &str| {
        let path = format!("common_http_protocol_options.{field}");
        duration(value, &path)
    };
    let unless_zero = |value: Option<Duration>| value.filter(|value| !value.is_zero());
    if let Some(idle) = checked(message.idle_timeout, "idle_timeout")? {
        options.idle_timeout = unless_zero(Some(idle));
    }
    let connection = checked(message.max_connection_duration, "max_connection_duration")?;
    options.max_connection_duration = unless_zero(connection);
    let stream = checked(message.max_stream_duration, "max_stream_duration")?;
    options.max_stream_duration = unless_zero(stream);
    options.max_requests_per_connection = message
        .max_requests_per_connection
        .filter(|&requests| requests > 0);
    Ok(())
}

fn upstream(message: Option<UpstreamHttpMessage>, options: &mut UpstreamOptions) {
    let message = message.unwrap_or_default();
    options.auto_sni = message.auto_sni;
    options.auto_san_validation = message.auto_san_validation;
}

fn put_http2(message: &Http2Message, options: &mut UpstreamOptions) -> Result<(), FieldError> {
    options.http_version = HttpVersion::Http2;
    let keepalive = message.connection_keepalive.clone().unwrap_or_default();
    options.http2 = Http2Options {
        max_concurrent_streams: message.max_concurrent_streams,
        initial_stream_window_size: message.initial_stream_window_size,
        initial_connection_window_size: message.initial_connection_window_size,
        keepalive_interval: duration(keepalive.interval, "connection_keepalive.interval")?,
        keepalive_timeout: duration(keepalive.timeout, "connection_keepalive.timeout")?,
    };
    Ok(())
}
