//! The part of a cluster's settings that Plimsoll's own data planes understand.
//!
//! They refuse a cluster with a setting that would change how requests are handled and that they
//! do not have, so such settings are not sent. TLS is the exception: a transport socket that they
//! cannot use is sent and refused, because without it they would connect in plain text.

use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::tls::UpstreamTlsMessage;
use plimsoll_xds::pb::upstream::{
    AutoHttpConfigMessage, ExplicitHttpConfigMessage, HttpProtocolOptionsMessage,
    TransportSocketMessage,
};
use plimsoll_xds::schema::{Described as _, Impact, unread, unsupported};
use prost::Message as _;

use super::{http_options, put_http_options};

/// Returns the part of `written` that Plimsoll's data planes understand.
pub(super) fn part(written: &ClusterMessage) -> ClusterMessage {
    let socket = written
        .transport_socket
        .as_ref()
        .map(without_unused_providers);
    let mut part = readable(written);
    if socket.as_ref().is_some_and(|socket| !is_readable(socket)) {
        part.transport_socket = socket;
    }
    part.transport_socket_matches
        .clone_from(&written.transport_socket_matches);
    part
}

/// Returns `written` without the settings that are not read, whatever they are.
pub(super) fn readable(written: &ClusterMessage) -> ClusterMessage {
    let mut part = written.clone();
    if let Some(socket) = &mut part.transport_socket {
        *socket = without_unused_providers(socket);
    }
    if let Ok(Some(options)) = http_options(&part)
        && options.explicit_http_config.is_none()
    {
        put_http_options(&mut part, &with_explicit_protocol(options));
    }
    if let Some(outliers) = &mut part.outlier_detection {
        outliers.enforcing_consecutive_gateway_failure = None;
        outliers.split_external_local_origin_errors = false;
        outliers.max_ejection_time_jitter = None;
    }
    let bytes = part.encode_to_vec();
    let known = unread::without_unread(&bytes, ClusterMessage::DESCRIPTOR);
    // The message has just been encoded, so that it can be read.
    let read = known
        .ok()
        .and_then(|bytes| ClusterMessage::decode(&*bytes).ok());
    read.unwrap_or(part)
}

/// Whether a data plane reads all of the socket that decides about connections.
pub(super) fn is_readable(socket: &TransportSocketMessage) -> bool {
    let bytes = socket.encode_to_vec();
    let descriptor = TransportSocketMessage::DESCRIPTOR;
    unsupported::refuse(&bytes, descriptor, Impact::Request).is_ok()
}

/// Removes certificate providers beside certificates in files: they are for gRPC clients.
fn without_unused_providers(socket: &TransportSocketMessage) -> TransportSocketMessage {
    let without = |any: &AnyMessage| {
        let mut context: UpstreamTlsMessage = any.unpack().ok()?;
        let tls = context.common_tls_context.as_mut()?;
        if !tls.tls_certificates.is_empty() {
            tls.tls_certificate_provider_instance = None;
        }
        if let Some(validation) = &mut tls.validation_context
            && (validation.trusted_ca.is_some() || validation.system_root_certs.is_some())
        {
            validation.ca_certificate_provider_instance = None;
        }
        Some(AnyMessage::pack(any.type_name(), &context))
    };
    let tls = UpstreamTlsMessage::DESCRIPTOR.name;
    let any = socket.typed_config.as_ref();
    let any = any.filter(|any| any.type_name() == tls);
    match any.and_then(without) {
        Some(any) => TransportSocketMessage {
            typed_config: Some(any),
            ..socket.clone()
        },
        None => socket.clone(),
    }
}

/// Replaces a protocol that ALPN or the client's connection selects: HTTP/2 if only that has
/// settings, otherwise HTTP/1.1.
fn with_explicit_protocol(options: HttpProtocolOptionsMessage) -> HttpProtocolOptionsMessage {
    let auto = options.auto_config.clone().unwrap_or_default();
    let AutoHttpConfigMessage {
        http_protocol_options: http1,
        http2_protocol_options: http2,
    } = match options.use_downstream_protocol_config.clone() {
        Some(downstream) => AutoHttpConfigMessage {
            http_protocol_options: downstream.http_protocol_options,
            http2_protocol_options: downstream.http2_protocol_options,
        },
        None => auto,
    };
    let explicit = match (http1, http2) {
        (None, Some(http2)) => ExplicitHttpConfigMessage {
            http2_protocol_options: Some(http2),
            ..Default::default()
        },
        (http1, _) => ExplicitHttpConfigMessage {
            http_protocol_options: Some(http1.unwrap_or_default()),
            ..Default::default()
        },
    };
    HttpProtocolOptionsMessage {
        explicit_http_config: Some(explicit),
        use_downstream_protocol_config: None,
        auto_config: None,
        ..options
    }
}
