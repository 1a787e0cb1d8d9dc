//! The part of a cluster's settings that gRPC clients know.
//!
//! gRFC A50 (outlier detection), A32 (circuit breakers), A29 and A65 (TLS). gRPC ignores most other
//! fields, and refuses a cluster whose transport socket it cannot use: such a socket is not sent,
//! and the client uses the credentials that its application chose.

use plimsoll_xds::pb::AnyMessage;
use plimsoll_xds::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use plimsoll_xds::pb::enums::RoutingPriority;
use plimsoll_xds::pb::tls::{
    CommonTlsMessage, SanMatcherMessage, UpstreamTlsMessage, ValidationMessage,
};
use plimsoll_xds::pb::upstream::{
    CircuitBreakersMessage, OutlierDetectionMessage, ThresholdsMessage, TransportSocketMessage,
};
use plimsoll_xds::schema::Described as _;

/// Returns the part of `written` that gRPC clients know.
pub(super) fn part(written: &ClusterMessage) -> ClusterMessage {
    let socket = written.transport_socket.as_ref();
    ClusterMessage {
        circuit_breakers: written.circuit_breakers.as_ref().and_then(breakers),
        outlier_detection: written.outlier_detection.as_ref().map(outlier_detection),
        transport_socket: socket.and_then(transport_socket),
        metadata: written.metadata.clone(),
        lrs_report_endpoint_metrics: written.lrs_report_endpoint_metrics.clone(),
        common_lb_config: written.common_lb_config.as_ref().and_then(common),
        ..Default::default()
    }
}

/// `override_host_status`, for stateful sessions (A55).
fn common(written: &CommonLbConfigMessage) -> Option<CommonLbConfigMessage> {
    let status = written.override_host_status.clone()?;
    Some(CommonLbConfigMessage {
        override_host_status: Some(status),
        ..Default::default()
    })
}

/// `max_requests` of the default priority (A32).
fn breakers(written: &CircuitBreakersMessage) -> Option<CircuitBreakersMessage> {
    let is_default =
        |limits: &&ThresholdsMessage| limits.priority == RoutingPriority::Default as i32;
    let max_requests = written.thresholds.iter().find(is_default)?.max_requests?;
    Some(CircuitBreakersMessage {
        thresholds: vec![ThresholdsMessage {
            max_requests: Some(max_requests),
            ..Default::default()
        }],
        ..Default::default()
    })
}

/// Ejection by success rate and by failure percentage (A50).
///
/// Every limit is sent, with its default if it is not written: grpc-js 1.14 reads an unset one as
/// `undefined`, and its process ends with the first interval in which no host had enough requests.
/// For the same reason at least one host is needed.
fn outlier_detection(written: &OutlierDetectionMessage) -> OutlierDetectionMessage {
    OutlierDetectionMessage {
        interval: written.interval,
        base_ejection_time: written.base_ejection_time,
        max_ejection_time: written.max_ejection_time,
        max_ejection_percent: written.max_ejection_percent,
        enforcing_success_rate: written.enforcing_success_rate,
        success_rate_minimum_hosts: at_least_one(written.success_rate_minimum_hosts),
        success_rate_request_volume: Some(written.success_rate_request_volume.unwrap_or(100)),
        success_rate_stdev_factor: Some(written.success_rate_stdev_factor.unwrap_or(1900)),
        failure_percentage_threshold: Some(written.failure_percentage_threshold.unwrap_or(85)),
        enforcing_failure_percentage: written.enforcing_failure_percentage,
        failure_percentage_minimum_hosts: at_least_one(written.failure_percentage_minimum_hosts),
        failure_percentage_request_volume: Some(
            written.failure_percentage_request_volume.unwrap_or(50),
        ),
        ..Default::default()
    }
}

fn at_least_one(minimum_hosts: Option<u32>) -> Option<u32> {
    Some(minimum_hosts.unwrap_or(5).max(1))
}

/// Returns TLS with certificates from providers of the client's bootstrap file; `None` if the
/// authorities have no provider, or if a check of certificates would be lost.
fn transport_socket(written: &TransportSocketMessage) -> Option<TransportSocketMessage> {
    let any = written.typed_config.as_ref()?;
    let name = UpstreamTlsMessage::DESCRIPTOR.name;
    if any.type_name() != name {
        return None;
    }
    let context: UpstreamTlsMessage = any.unpack().ok()?;
    let tls = context.common_tls_context?;
    let combined = tls.combined_validation_context;
    let validation = combined.and_then(|combined| combined.default_validation_context);
    let validation = validation.or(tls.validation_context)?;
    let has_other_checks = !validation.verify_certificate_hash.is_empty()
        || !validation.verify_certificate_spki.is_empty()
        || validation.crl.is_some();
    if has_other_checks {
        return None;
    }
    let part = UpstreamTlsMessage {
        common_tls_context: Some(CommonTlsMessage {
            tls_certificate_provider_instance: tls.tls_certificate_provider_instance,
            validation_context: Some(ValidationMessage {
                ca_certificate_provider_instance: Some(
                    validation.ca_certificate_provider_instance.clone()?,
                ),
                match_subject_alt_names: names(&validation),
                ..Default::default()
            }),
            ..Default::default()
        }),
        sni: context.sni,
        auto_host_sni: context.auto_host_sni,
        auto_sni_san_validation: context.auto_sni_san_validation,
        ..Default::default()
    };
    Some(TransportSocketMessage {
        name: written.name.clone(),
        typed_config: Some(AnyMessage::pack(name, &part)),
    })
}

/// Returns the names to check, of any type: gRPC ignores the field that has types (A29).
fn names(validation: &ValidationMessage) -> Vec<plimsoll_xds::pb::tls::StringMatcherMessage> {
    let typed = validation.match_typed_subject_alt_names.iter();
    let typed = typed.filter_map(|typed: &SanMatcherMessage| typed.matcher.clone());
    let untyped = validation.match_subject_alt_names.iter().cloned();
    typed.chain(untyped).collect()
}
