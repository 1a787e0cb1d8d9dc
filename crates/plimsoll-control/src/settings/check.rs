//! Checks of a cluster's settings that Envoy would make on arrival.
//!
//! What Plimsoll's data planes read is checked by their strict reader, which names the same fields
//! as in their own files. The rest of this file has Envoy's rules for fields that they do not read.

use std::ops::RangeInclusive;

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::tls::{
    CommonTlsMessage, SdsSecretConfigMessage, UpstreamTlsMessage, ValidationMessage,
};
use plimsoll_xds::pb::upstream::{
    EdsClusterConfigMessage, Http2Message, OutlierDetectionMessage, TransportSocketMessage,
};
use plimsoll_xds::pb::{AnyMessage, ConfigSourceMessage};
use plimsoll_xds::schema::Described as _;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::upstream::UpstreamCluster;

use super::plimsoll::{is_readable, readable};
use super::{EDS, HTTP_PROTOCOL_OPTIONS, http_options};

/// Envoy's bounds of HTTP/2 flow-control windows.
const WINDOW: RangeInclusive<u32> = 65_535..=0x7fff_ffff;
/// Envoy's bounds of preconnect ratios.
const PRECONNECT: RangeInclusive<f64> = 1.0..=3.0;

/// Checks the settings; error paths start at the cluster.
pub(super) fn check(cluster: &ClusterMessage) -> Result<(), FieldError> {
    as_in_our_files(cluster)?;
    outliers(cluster.outlier_detection.as_ref())?;
    protocols(cluster)?;
    if let Some(socket) = &cluster.transport_socket {
        transport_socket(socket).map_err(|error| error.under("transport_socket"))?;
    }
    for (index, entry) in cluster.transport_socket_matches.iter().enumerate() {
        let under = |error: FieldError| error.under(&format!("transport_socket_matches[{index}]"));
        if entry.name.is_empty() {
            return Err(under(FieldError::new("name", "must be set")));
        }
        let socket = entry.transport_socket.as_ref().map(transport_socket);
        let checked = socket.transpose();
        checked.map_err(|error| under(error.under("transport_socket")))?;
    }
    let preconnect = cluster.preconnect_policy.unwrap_or_default();
    for (field, ratio) in [
        (
            "per_upstream_preconnect_ratio",
            preconnect.per_upstream_preconnect_ratio,
        ),
        (
            "predictive_preconnect_ratio",
            preconnect.predictive_preconnect_ratio,
        ),
    ] {
        if let Some(ratio) = ratio.filter(|ratio| !PRECONNECT.contains(ratio)) {
            let reason = format!("{ratio} is outside 1 to 3");
            return Err(FieldError::new(field, reason).under("preconnect_policy"));
        }
    }
    Ok(())
}

/// Checks the part that our data planes read, by the reader of their files.
fn as_in_our_files(cluster: &ClusterMessage) -> Result<(), FieldError> {
    let mut probe = ClusterMessage {
        name: "probe".to_owned(),
        discovery_type: Some(EDS),
        eds_cluster_config: Some(EdsClusterConfigMessage {
            eds_config: Some(ConfigSourceMessage::ads()),
            ..Default::default()
        }),
        ..readable(cluster)
    };
    let socket = cluster.transport_socket.as_ref();
    if socket.is_some_and(|socket| !is_readable(socket)) {
        probe.transport_socket = probe.transport_socket.as_ref().map(with_authorities);
    }
    UpstreamCluster::try_from(FileMessage::from(&probe))?;
    Ok(())
}

/// Returns the socket with certificate authorities: those of the file may be in a field that our
/// readers do not read, and they refuse to check names without any.
fn with_authorities(socket: &TransportSocketMessage) -> TransportSocketMessage {
    let name = UpstreamTlsMessage::DESCRIPTOR.name;
    let any = socket.typed_config.as_ref();
    let any = any.filter(|any| any.type_name() == name);
    let Some(Ok(mut context)) = any.map(AnyMessage::unpack::<UpstreamTlsMessage>) else {
        return socket.clone();
    };
    let tls = context.common_tls_context.get_or_insert_default();
    let validation = tls.validation_context.get_or_insert_default();
    validation.system_root_certs = Some(());
    TransportSocketMessage {
        typed_config: Some(AnyMessage::pack(name, &context)),
        ..socket.clone()
    }
}

fn outliers(written: Option<&OutlierDetectionMessage>) -> Result<(), FieldError> {
    let Some(written) = written else {
        return Ok(());
    };
    let under = |error: FieldError| error.under("outlier_detection");
    for (field, percent) in [
        (
            "enforcing_consecutive_gateway_failure",
            written.enforcing_consecutive_gateway_failure,
        ),
        (
            "enforcing_consecutive_local_origin_failure",
            written.enforcing_consecutive_local_origin_failure,
        ),
        (
            "enforcing_local_origin_success_rate",
            written.enforcing_local_origin_success_rate,
        ),
        (
            "enforcing_failure_percentage_local_origin",
            written.enforcing_failure_percentage_local_origin,
        ),
    ] {
        if let Some(percent @ 101..) = percent {
            let reason = format!("{percent} is not a percentage between 0 and 100");
            return Err(under(FieldError::new(field, reason)));
        }
    }
    Ok(())
}

fn protocols(cluster: &ClusterMessage) -> Result<(), FieldError> {
    let all = &cluster.typed_extension_protocol_options;
    if let Some(key) = all.keys().find(|key| *key != HTTP_PROTOCOL_OPTIONS) {
        let reason = format!("Envoy knows these options as {HTTP_PROTOCOL_OPTIONS}");
        let path = format!("typed_extension_protocol_options[{key}]");
        return Err(FieldError::new(path, reason));
    }
    let path = format!("typed_extension_protocol_options[{HTTP_PROTOCOL_OPTIONS}]");
    let options = http_options(cluster)?.unwrap_or_default();
    let explicit = options.explicit_http_config.unwrap_or_default();
    let chosen = [
        ("explicit_http_config", explicit != Default::default()),
        (
            "use_downstream_protocol_config",
            options.use_downstream_protocol_config.is_some(),
        ),
        ("auto_config", options.auto_config.is_some()),
    ];
    let mut chosen = chosen.into_iter().filter(|(_, is_set)| *is_set);
    if let (Some((first, _)), Some((field, _))) = (chosen.next(), chosen.next()) {
        let reason = format!("cannot be combined with {first}");
        return Err(FieldError::new(field, reason).under(&path));
    }
    if options.auto_config.is_some() && cluster.transport_socket.is_none() {
        let reason = "needs a transport_socket with TLS, whose ALPN selects the protocol";
        return Err(FieldError::new("auto_config", reason).under(&path));
    }
    let downstream = options.use_downstream_protocol_config.unwrap_or_default();
    let auto = options.auto_config.unwrap_or_default();
    let deprecated = "http2_protocol_options".to_owned();
    for (at, http2) in [
        (deprecated, cluster.http2_protocol_options.as_ref()),
        (
            format!("{path}.explicit_http_config.http2_protocol_options"),
            explicit.http2_protocol_options.as_ref(),
        ),
        (
            format!("{path}.use_downstream_protocol_config.http2_protocol_options"),
            downstream.http2_protocol_options.as_ref(),
        ),
        (
            format!("{path}.auto_config.http2_protocol_options"),
            auto.http2_protocol_options.as_ref(),
        ),
    ] {
        if let Some(http2) = http2 {
            self::http2(http2).map_err(|error| error.under(&at))?;
        }
    }
    let has_http2 = cluster.http2_protocol_options.is_some()
        || explicit.http2_protocol_options.is_some()
        || downstream.http2_protocol_options.is_some()
        || auto.http2_protocol_options.is_some();
    let mut checks = cluster.health_checks.iter().enumerate();
    if let Some((index, _)) = checks.find(|(_, check)| check.grpc_health_check.is_some())
        && !has_http2
    {
        let path = format!("health_checks[{index}].grpc_health_check");
        return Err(FieldError::new(path, "needs http2_protocol_options"));
    }
    Ok(())
}

fn http2(options: &Http2Message) -> Result<(), FieldError> {
    let streams = options.max_concurrent_streams;
    if streams.is_some_and(|streams| !(1..=*WINDOW.end()).contains(&streams)) {
        let reason = "is outside 1 to 2147483647";
        return Err(FieldError::new("max_concurrent_streams", reason));
    }
    for (field, window) in [
        (
            "initial_stream_window_size",
            options.initial_stream_window_size,
        ),
        (
            "initial_connection_window_size",
            options.initial_connection_window_size,
        ),
    ] {
        if window.is_some_and(|window| !WINDOW.contains(&window)) {
            let reason = "is outside 65535 to 2147483647";
            return Err(FieldError::new(field, reason));
        }
    }
    for (field, count) in [
        ("max_outbound_frames", options.max_outbound_frames),
        (
            "max_outbound_control_frames",
            options.max_outbound_control_frames,
        ),
        (
            "max_inbound_window_update_frames_per_data_frame_sent",
            options.max_inbound_window_update_frames_per_data_frame_sent,
        ),
    ] {
        if count == Some(0) {
            return Err(FieldError::new(field, "must be above 0"));
        }
    }
    if let Some(keepalive) = &options.connection_keepalive
        && keepalive.timeout.is_none()
    {
        return Err(FieldError::new(
            "connection_keepalive.timeout",
            "must be set",
        ));
    }
    Ok(())
}

fn transport_socket(socket: &TransportSocketMessage) -> Result<(), FieldError> {
    if socket.name.is_empty() {
        let reason = "must be set, for TLS to envoy.transport_sockets.tls";
        return Err(FieldError::new("name", reason));
    }
    let Some(any) = &socket.typed_config else {
        return Err(FieldError::new("typed_config", "must be set"));
    };
    if any.type_name() != UpstreamTlsMessage::DESCRIPTOR.name {
        return Ok(());
    }
    let under = |error: FieldError| error.under("typed_config.common_tls_context");
    let context: UpstreamTlsMessage = any.unpack()?;
    common_tls(&context.common_tls_context.unwrap_or_default()).map_err(under)
}

fn common_tls(tls: &CommonTlsMessage) -> Result<(), FieldError> {
    for (index, secret) in tls.tls_certificate_sds_secret_configs.iter().enumerate() {
        let path = format!("tls_certificate_sds_secret_configs[{index}]");
        self::secret(secret).map_err(|error| error.under(&path))?;
    }
    if let Some(secret) = &tls.validation_context_sds_secret_config {
        let path = "validation_context_sds_secret_config";
        self::secret(secret).map_err(|error| error.under(path))?;
    }
    if let Some(validation) = &tls.validation_context {
        self::validation(validation).map_err(|error| error.under("validation_context"))?;
    }
    if let Some(combined) = &tls.combined_validation_context {
        let under = |error: FieldError| error.under("combined_validation_context");
        match &combined.validation_context_sds_secret_config {
            Some(secret) => self::secret(secret)
                .map_err(|error| under(error.under("validation_context_sds_secret_config")))?,
            None => {
                let path = "validation_context_sds_secret_config";
                return Err(under(FieldError::new(path, "must be set")));
            }
        }
        let written = combined.default_validation_context.clone();
        let defaults = written.unwrap_or_default();
        let checked = validation(&defaults);
        checked.map_err(|error| under(error.under("default_validation_context")))?;
    }
    Ok(())
}

fn secret(secret: &SdsSecretConfigMessage) -> Result<(), FieldError> {
    if secret.name.is_empty() {
        return Err(FieldError::new("name", "must be set"));
    }
    Ok(())
}

fn validation(validation: &ValidationMessage) -> Result<(), FieldError> {
    let lists = [
        (
            "verify_certificate_hash",
            &validation.verify_certificate_hash,
            64..=95,
        ),
        (
            "verify_certificate_spki",
            &validation.verify_certificate_spki,
            44..=44,
        ),
    ];
    for (field, values, lengths) in lists {
        let mut values = values.iter().enumerate();
        if let Some((index, _)) = values.find(|(_, value)| !lengths.contains(&value.len())) {
            let path = format!("{field}[{index}]");
            return Err(FieldError::new(path, "is not a SHA-256 hash"));
        }
    }
    Ok(())
}
