//! Decoding of HTTP protocol options of a cluster, typed and deprecated.

use std::time::Duration;

use plimsoll_core::units::FieldError;

use super::super::Strictness;
use super::HTTP_PROTOCOL_OPTIONS;
use crate::upstream::{Http2Options, HttpVersion, UpstreamOptions};
use plimsoll_schema::pb::cluster::ClusterMessage;
use plimsoll_schema::pb::upstream::{
    CommonHttpMessage, Http2Message, HttpProtocolOptionsMessage, UpstreamHttpMessage,
};
use plimsoll_schema::pb::{DurationMessage, duration};

/// Typed protocol options supersede the deprecated fields, as in Envoy.
pub(super) fn put(
    cluster: &ClusterMessage,
    strictness: Strictness,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    let mut is_typed = false;
    for (key, any) in &cluster.typed_extension_protocol_options {
        let path = format!("typed_extension_protocol_options[{key}]");
        if any.type_name() != HTTP_PROTOCOL_OPTIONS || is_typed {
            let reason = format!("{:?} is not supported", any.type_url);
            return Err(FieldError::new("@type", reason).under(&path));
        }
        let put = any.unpack().and_then(|message| typed(message, options));
        put.map_err(|error| error.under(&path))?;
        is_typed = true;
    }
    if is_typed {
        return reject_legacy(cluster, strictness);
    }
    legacy(cluster, strictness, options)
}

/// Rejects, in a file, deprecated fields beside the typed ones that supersede them.
fn reject_legacy(cluster: &ClusterMessage, strictness: Strictness) -> Result<(), FieldError> {
    let fields = [
        (
            "common_http_protocol_options",
            cluster.common_http_protocol_options.is_some(),
        ),
        (
            "upstream_http_protocol_options",
            cluster.upstream_http_protocol_options.is_some(),
        ),
        (
            "http_protocol_options",
            cluster.http_protocol_options.is_some(),
        ),
        (
            "http2_protocol_options",
            cluster.http2_protocol_options.is_some(),
        ),
        (
            "max_requests_per_connection",
            cluster.max_requests_per_connection.is_some(),
        ),
    ];
    let reason = "cannot be combined with typed_extension_protocol_options";
    let mut fields = fields.into_iter();
    fields.try_for_each(|(field, is_set)| strictness.reject(is_set, field, reason))
}

fn typed(
    message: HttpProtocolOptionsMessage,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    common(message.common_http_protocol_options, options)?;
    upstream(message.upstream_http_protocol_options, options);
    let explicit = message.explicit_http_config.unwrap_or_default();
    match (
        explicit.http_protocol_options,
        explicit.http2_protocol_options,
    ) {
        (None, Some(http2)) => put_http2(&http2, options)
            .map_err(|error| error.under("explicit_http_config.http2_protocol_options")),
        (Some(_), None) => Ok(()),
        _ => {
            let reason = "must have either http_protocol_options or http2_protocol_options";
            Err(FieldError::new("explicit_http_config", reason))
        }
    }
}

fn legacy(
    cluster: &ClusterMessage,
    strictness: Strictness,
    options: &mut UpstreamOptions,
) -> Result<(), FieldError> {
    let both = cluster.http_protocol_options.is_some() && cluster.http2_protocol_options.is_some();
    let reason = "cannot be combined with http_protocol_options";
    strictness.reject(both, "http2_protocol_options", reason)?;
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
