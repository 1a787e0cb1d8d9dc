//! Decoding of the `health_checks` of a cluster.

use bytes::Bytes;
use plimsoll_core::units::FieldError;

use super::super::{exactly_one, named};
use crate::upstream::{
    HealthCheck, HealthCheckKind, HealthCheckParts, HttpHealthCheck, HttpVersion, StatusRange,
    payload_text,
};
use plimsoll_schema::pb::health_check::{
    GrpcCheckMessage, HealthCheckMessage, HttpCheckMessage, Int64RangeMessage, PayloadMessage,
    TcpCheckMessage,
};
use plimsoll_schema::pb::route::HeaderValueOptionMessage;
use plimsoll_schema::pb::{duration, under};

/// Decodes the health checks of a cluster; error paths start at the cluster.
pub(super) fn health_checks(
    messages: Vec<HealthCheckMessage>,
) -> Result<Vec<HealthCheck>, FieldError> {
    let checks = messages.into_iter().enumerate().map(|(index, message)| {
        let path = format!("health_checks[{index}]");
        health_check(message).map_err(|error| error.under(&path))
    });
    checks.collect()
}

fn health_check(message: HealthCheckMessage) -> Result<HealthCheck, FieldError> {
    let http = under(message.http_health_check.map(http), "http_health_check")?;
    let tcp = under(message.tcp_health_check.map(tcp), "tcp_health_check")?;
    let grpc = message.grpc_health_check.map(grpc);
    let reason = "must have exactly one of http_health_check, tcp_health_check and \
                  grpc_health_check";
    let kind = exactly_one([http, tcp, grpc], reason)?;
    HealthCheck::try_new(HealthCheckParts {
        timeout: duration(message.timeout, "timeout")?,
        interval: duration(message.interval, "interval")?,
        initial_jitter: duration(message.initial_jitter, "initial_jitter")?,
        interval_jitter: duration(message.interval_jitter, "interval_jitter")?,
        interval_jitter_percent: message.interval_jitter_percent,
        unhealthy_threshold: message.unhealthy_threshold,
        healthy_threshold: message.healthy_threshold,
        alt_port: message.alt_port,
        reuse_connection: message.reuse_connection,
        no_traffic_interval: duration(message.no_traffic_interval, "no_traffic_interval")?,
        no_traffic_healthy_interval: duration(
            message.no_traffic_healthy_interval,
            "no_traffic_healthy_interval",
        )?,
        unhealthy_interval: duration(message.unhealthy_interval, "unhealthy_interval")?,
        unhealthy_edge_interval: duration(
            message.unhealthy_edge_interval,
            "unhealthy_edge_interval",
        )?,
        healthy_edge_interval: duration(message.healthy_edge_interval, "healthy_edge_interval")?,
        kind,
    })
}

fn http(message: HttpCheckMessage) -> Result<HealthCheckKind, FieldError> {
    let codec: HttpVersion = named(message.codec_client_type, "codec_client_type")?;
    Ok(HealthCheckKind::Http(HttpHealthCheck {
        host: message.host,
        path: message.path,
        method: named(message.method, "method")?,
        expected_statuses: ranges(&message.expected_statuses, "expected_statuses")?,
        retriable_statuses: ranges(&message.retriable_statuses, "retriable_statuses")?,
        request_headers_to_add: headers(message.request_headers_to_add),
        http2: codec == HttpVersion::Http2,
        _non_exhaustive: (),
    }))
}

fn ranges(messages: &[Int64RangeMessage], field: &str) -> Result<Vec<StatusRange>, FieldError> {
    let ranges = messages.iter().enumerate().map(|(index, range)| {
        StatusRange::try_new(range.start, range.end)
            .map_err(|error| error.under(&format!("{field}[{index}]")))
    });
    ranges.collect()
}

fn headers(options: Vec<HeaderValueOptionMessage>) -> Vec<(String, String)> {
    let headers = options.into_iter().filter_map(|option| option.header);
    headers.map(|header| (header.key, header.value)).collect()
}

fn tcp(message: TcpCheckMessage) -> Result<HealthCheckKind, FieldError> {
    let receive = message
        .receive
        .into_iter()
        .enumerate()
        .map(|(index, block)| {
            payload(block).map_err(|error| error.under(&format!("receive[{index}]")))
        });
    Ok(HealthCheckKind::Tcp {
        send: under(message.send.map(payload), "send")?,
        receive: receive.collect::<Result<_, _>>()?,
    })
}

fn payload(message: PayloadMessage) -> Result<Bytes, FieldError> {
    let text = under(message.text.map(|text| payload_text(&text)), "text")?;
    exactly_one([text, message.binary], "must have either text or binary")
}

fn grpc(message: GrpcCheckMessage) -> HealthCheckKind {
    HealthCheckKind::Grpc {
        service_name: message.service_name,
        authority: message.authority,
        initial_metadata: headers(message.initial_metadata),
    }
}
