//! `health_checks` from files.

use bytes::Bytes;
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::super::proto_json::{Double, Ignored, Named, ProtoDuration, ProtoEnum, Uint};
use super::{duration, number};
use crate::upstream::{
    HealthCheck, HealthCheckKind, HealthCheckParts, HttpHealthCheck, HttpMethod, StatusRange,
    payload_text,
};

/// `HealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HealthCheckYaml {
    /// How long an answer may take. Must be set.
    timeout: Option<ProtoDuration>,
    /// Time between two checks. Must be set.
    interval: Option<ProtoDuration>,
    /// The first check is delayed by up to this time. Default `0s`.
    initial_jitter: Option<ProtoDuration>,
    /// Every interval is longer by up to this time. Default `0s`.
    interval_jitter: Option<ProtoDuration>,
    /// The same in percent of the interval. Default 0.
    interval_jitter_percent: Uint<u32>,
    /// Failures in a row that make a host unhealthy. Must be set.
    unhealthy_threshold: Option<Uint<u32>>,
    /// Successes in a row that make a host healthy. Must be set.
    healthy_threshold: Option<Uint<u32>>,
    /// Port to check instead of the endpoint's.
    alt_port: Option<Uint<u32>>,
    /// Whether a connection serves several checks. Default true.
    reuse_connection: Option<bool>,
    /// Ask by HTTP. One of the three kinds must be set.
    http_health_check: Option<HttpHealthCheckYaml>,
    /// Connect, and maybe exchange bytes.
    tcp_health_check: Option<TcpHealthCheckYaml>,
    /// Ask `grpc.health.v1.Health`.
    grpc_health_check: Option<GrpcHealthCheckYaml>,
    /// Interval while the cluster has never had a request. Default `60s`.
    no_traffic_interval: Option<ProtoDuration>,
    /// The same for healthy hosts. Default `no_traffic_interval`.
    no_traffic_healthy_interval: Option<ProtoDuration>,
    /// Interval while a host is unhealthy. Default `interval`.
    unhealthy_interval: Option<ProtoDuration>,
    /// Interval after the first failure. Default `unhealthy_interval`.
    unhealthy_edge_interval: Option<ProtoDuration>,
    /// Interval after the first success. Default `interval`.
    healthy_edge_interval: Option<ProtoDuration>,
    // Logs of Envoy.
    /// Without effect: a log of Envoy.
    event_log_path: Option<String>,
    /// Without effect: a log of Envoy.
    event_logger: Option<Ignored>,
    /// Without effect: a log of Envoy.
    always_log_health_check_failures: bool,
    /// Without effect: a log of Envoy.
    always_log_health_check_success: bool,
}

/// `HealthCheck.HttpHealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct HttpHealthCheckYaml {
    /// Host of the request. Default the hostname of the endpoint, else the name of the cluster.
    host: String,
    /// Path, with a slash in front.
    path: String,
    /// Header fields to send along.
    request_headers_to_add: Vec<HeaderValueOption>,
    /// Statuses that mean healthy. Default 200.
    expected_statuses: Vec<Int64Range>,
    /// Statuses that count towards `unhealthy_threshold` instead of failing at once.
    retriable_statuses: Vec<Int64Range>,
    /// The version of HTTP. Default `HTTP1`.
    codec_client_type: Named<CodecClientType>,
    /// The method. Default `GET`.
    method: Named<HttpMethod>,
}

/// `HealthCheck.TcpHealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct TcpHealthCheckYaml {
    /// Sent first; without it connecting is enough.
    send: Option<Payload>,
    /// Blocks that must come back, in this order.
    receive: Vec<Payload>,
}

/// `HealthCheck.GrpcHealthCheck`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct GrpcHealthCheckYaml {
    /// The service that is asked for; empty asks for the server as a whole.
    service_name: String,
    /// Host of the request. Default the name of the cluster.
    authority: String,
    /// Header fields to send along.
    initial_metadata: Vec<HeaderValueOption>,
}

/// `HeaderValueOption`. Whether it is appended makes no difference: a check has no other headers.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
struct HeaderValueOption {
    /// The field.
    header: HeaderValue,
    /// Without effect: a check has no other fields.
    append_action: Option<Ignored>,
    /// Without effect: a check has no other fields.
    append: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HeaderValue {
    /// Its name.
    key: String,
    /// Its value.
    #[serde(default)]
    value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct Int64Range {
    /// First status.
    start: Double,
    /// First status behind the range.
    end: Double,
}

/// `HealthCheck.Payload`; `text` is hex.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct Payload {
    /// Bytes in hex.
    text: Option<String>,
    /// Bytes in base64.
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
