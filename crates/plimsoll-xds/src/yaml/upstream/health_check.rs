//! `health_checks` from files.

use bytes::Bytes;
use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::proto_json::{Double, Named, ProtoDuration, ProtoEnum, Uint};
use super::{duration, number};
use crate::upstream::{
    HealthCheck, HealthCheckKind, HealthCheckParts, HttpHealthCheck, HttpMethod, StatusRange,
    payload_text,
};

/// `HealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HealthCheckYaml {
    timeout: Option<ProtoDuration>,
    interval: Option<ProtoDuration>,
    initial_jitter: Option<ProtoDuration>,
    interval_jitter: Option<ProtoDuration>,
    interval_jitter_percent: Uint<u32>,
    unhealthy_threshold: Option<Uint<u32>>,
    healthy_threshold: Option<Uint<u32>>,
    alt_port: Option<Uint<u32>>,
    reuse_connection: Option<bool>,
    http_health_check: Option<HttpHealthCheckYaml>,
    tcp_health_check: Option<TcpHealthCheckYaml>,
    grpc_health_check: Option<GrpcHealthCheckYaml>,
    no_traffic_interval: Option<ProtoDuration>,
    no_traffic_healthy_interval: Option<ProtoDuration>,
    unhealthy_interval: Option<ProtoDuration>,
    unhealthy_edge_interval: Option<ProtoDuration>,
    healthy_edge_interval: Option<ProtoDuration>,
    // Logs of Envoy.
    event_log_path: Option<String>,
    event_logger: Option<IgnoredAny>,
    always_log_health_check_failures: bool,
    always_log_health_check_success: bool,
}

/// `HealthCheck.HttpHealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HttpHealthCheckYaml {
    host: String,
    path: String,
    request_headers_to_add: Vec<HeaderValueOption>,
    expected_statuses: Vec<Int64Range>,
    retriable_statuses: Vec<Int64Range>,
    codec_client_type: Named<CodecClientType>,
    method: Named<HttpMethod>,
}

/// `HealthCheck.TcpHealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TcpHealthCheckYaml {
    send: Option<Payload>,
    receive: Vec<Payload>,
}

/// `HealthCheck.GrpcHealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GrpcHealthCheckYaml {
    service_name: String,
    authority: String,
    initial_metadata: Vec<HeaderValueOption>,
}

/// `HeaderValueOption`. Whether it is appended makes no difference: a check has no other headers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
struct HeaderValueOption {
    header: HeaderValue,
    append_action: Option<IgnoredAny>,
    append: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderValue {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Int64Range {
    start: Double,
    end: Double,
}

/// `HealthCheck.Payload`; `text` is hex.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Payload {
    text: Option<String>,
    binary: Option<String>,
}

/// `CodecClientType`, those we have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CodecClientType {
    #[default]
    Http1,
    Http2,
}

impl ProtoEnum for CodecClientType {
    const VALUES: &'static [(&'static str, i64, Self)] =
        &[("HTTP1", 0, Self::Http1), ("HTTP2", 1, Self::Http2)];
}

impl ProtoEnum for HttpMethod {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("METHOD_UNSPECIFIED", 0, Self::Get),
        ("GET", 1, Self::Get),
        ("HEAD", 2, Self::Head),
        ("POST", 3, Self::Post),
        ("PUT", 4, Self::Put),
        ("DELETE", 5, Self::Delete),
        ("OPTIONS", 7, Self::Options),
        ("TRACE", 8, Self::Trace),
        ("PATCH", 9, Self::Patch),
    ];
}

impl HealthCheckYaml {
    /// The check; the path of an error starts inside the message.
    pub(crate) fn checked(self) -> Result<HealthCheck, FieldError> {
        let kind = match (
            self.http_health_check,
            self.tcp_health_check,
            self.grpc_health_check,
        ) {
            (Some(http), None, None) => http
                .checked()
                .map_err(|error| error.under("http_health_check"))?,
            (None, Some(tcp), None) => tcp
                .checked()
                .map_err(|error| error.under("tcp_health_check"))?,
            (None, None, Some(grpc)) => grpc.kind(),
            _ => {
                let reason = "must have exactly one of http_health_check, tcp_health_check and \
                              grpc_health_check";
                return Err(FieldError::new("", reason));
            }
        };
        HealthCheck::try_new(HealthCheckParts {
            timeout: duration(self.timeout),
            interval: duration(self.interval),
            initial_jitter: duration(self.initial_jitter),
            interval_jitter: duration(self.interval_jitter),
            interval_jitter_percent: self.interval_jitter_percent.0,
            unhealthy_threshold: number(self.unhealthy_threshold),
            healthy_threshold: number(self.healthy_threshold),
            alt_port: number(self.alt_port),
            reuse_connection: self.reuse_connection,
            no_traffic_interval: duration(self.no_traffic_interval),
            no_traffic_healthy_interval: duration(self.no_traffic_healthy_interval),
            unhealthy_interval: duration(self.unhealthy_interval),
            unhealthy_edge_interval: duration(self.unhealthy_edge_interval),
            healthy_edge_interval: duration(self.healthy_edge_interval),
            kind,
        })
    }
}

impl HttpHealthCheckYaml {
    fn checked(self) -> Result<HealthCheckKind, FieldError> {
        Ok(HealthCheckKind::Http(HttpHealthCheck {
            host: self.host,
            path: self.path,
            method: self.method.0,
            expected_statuses: ranges(&self.expected_statuses, "expected_statuses")?,
            retriable_statuses: ranges(&self.retriable_statuses, "retriable_statuses")?,
            request_headers_to_add: headers(self.request_headers_to_add),
            http2: self.codec_client_type.0 == CodecClientType::Http2,
        }))
    }
}

fn headers(options: Vec<HeaderValueOption>) -> Vec<(String, String)> {
    let pairs = options
        .into_iter()
        .map(|option| (option.header.key, option.header.value));
    pairs.collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is out of range is refused as a status"
)]
fn ranges(ranges: &[Int64Range], field: &str) -> Result<Vec<StatusRange>, FieldError> {
    let checked = ranges.iter().enumerate().map(|(index, range)| {
        StatusRange::try_new(range.start.0 as i64, range.end.0 as i64)
            .map_err(|error| error.under(&format!("{field}[{index}]")))
    });
    checked.collect()
}

impl TcpHealthCheckYaml {
    fn checked(self) -> Result<HealthCheckKind, FieldError> {
        let send = self.send.map(Payload::checked).transpose();
        let receive = self
            .receive
            .into_iter()
            .enumerate()
            .map(|(index, payload)| {
                let path = format!("receive[{index}]");
                payload.checked().map_err(|error| error.under(&path))
            });
        Ok(HealthCheckKind::Tcp {
            send: send.map_err(|error| error.under("send"))?,
            receive: receive.collect::<Result<_, _>>()?,
        })
    }
}

impl Payload {
    fn checked(self) -> Result<Bytes, FieldError> {
        match (self.text, self.binary) {
            (Some(text), None) => payload_text(&text).map_err(|error| error.under("text")),
            (None, Some(binary)) => super::base64(&binary, "binary"),
            _ => Err(FieldError::new("", "must have either text or binary")),
        }
    }
}

impl GrpcHealthCheckYaml {
    fn kind(self) -> HealthCheckKind {
        HealthCheckKind::Grpc {
            service_name: self.service_name,
            authority: self.authority,
            initial_metadata: headers(self.initial_metadata),
        }
    }
}
