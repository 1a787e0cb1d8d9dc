//! Active health check settings of a cluster, with Envoy's defaults.
//!
//! `plimsoll-client` performs the checks.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::transport::HttpMethod;
use plimsoll_core::units::FieldError;

/// Envoy's default of `no_traffic_interval`.
const NO_TRAFFIC_INTERVAL: Duration = Duration::from_secs(60);

/// Unchecked health check settings. `None` means Envoy's default.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheckParts {
    pub timeout: Option<Duration>,
    pub interval: Option<Duration>,
    /// Random delay of the first check; default 0.
    pub initial_jitter: Option<Duration>,
    /// Random extension of every interval; default 0.
    pub interval_jitter: Option<Duration>,
    /// Random extension in percent of the interval; default 0.
    pub interval_jitter_percent: u32,
    /// Consecutive failures that make a host unhealthy; required.
    pub unhealthy_threshold: Option<u32>,
    /// Consecutive successes that make a host healthy; required.
    pub healthy_threshold: Option<u32>,
    /// Overrides the endpoint's port.
    pub alt_port: Option<u32>,
    /// Whether checks share a connection; default true.
    pub reuse_connection: Option<bool>,
    /// Interval before the first request to the cluster; default 60 s.
    pub no_traffic_interval: Option<Duration>,
    /// Like `no_traffic_interval`, for healthy hosts; default `no_traffic_interval`.
    pub no_traffic_healthy_interval: Option<Duration>,
    /// Interval while a host is unhealthy; default `interval`.
    pub unhealthy_interval: Option<Duration>,
    /// Interval after the first failure; default `unhealthy_interval`.
    pub unhealthy_edge_interval: Option<Duration>,
    /// Interval after the first success; default `interval`.
    pub healthy_edge_interval: Option<Duration>,
    pub kind: HealthCheckKind,
}

impl HealthCheckParts {
    /// Creates settings without values, except for the protocol.
    pub const fn new(kind: HealthCheckKind) -> Self {
        Self {
            timeout: None,
            interval: None,
            initial_jitter: None,
            interval_jitter: None,
            interval_jitter_percent: 0,
            unhealthy_threshold: None,
            healthy_threshold: None,
            alt_port: None,
            reuse_connection: None,
            no_traffic_interval: None,
            no_traffic_healthy_interval: None,
            unhealthy_interval: None,
            unhealthy_edge_interval: None,
            healthy_edge_interval: None,
            kind,
        }
    }
}

/// Checked health check settings.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    pub timeout: Duration,
    pub interval: Duration,
    pub initial_jitter: Duration,
    pub interval_jitter: Duration,
    pub interval_jitter_percent: u32,
    /// Consecutive failures that make a host unhealthy. An unexpected HTTP status makes it
    /// unhealthy at once, unless it is among `retriable_statuses`.
    pub unhealthy_threshold: u32,
    /// Consecutive successes that make a host healthy; one is enough for the first check of a host.
    pub healthy_threshold: u32,
    pub alt_port: Option<u16>,
    pub reuse_connection: bool,
    pub no_traffic_interval: Duration,
    pub no_traffic_healthy_interval: Duration,
    pub unhealthy_interval: Duration,
    pub unhealthy_edge_interval: Duration,
    pub healthy_edge_interval: Duration,
    pub kind: HealthCheckKind,
}

/// Protocol of a health check.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthCheckKind {
    Http(HttpHealthCheck),
    Grpc {
        /// An empty name means the whole server.
        service_name: String,
        /// An empty authority means the name of the cluster.
        authority: String,
        initial_metadata: Vec<(String, String)>,
    },
    /// Connects, sends and compares the response.
    Tcp {
        /// Only connects if it is `None`.
        send: Option<Bytes>,
        /// Blocks that the response must contain, in order.
        receive: Vec<Bytes>,
    },
}

/// HTTP request and expected statuses of a health check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpHealthCheck {
    /// Host header; empty is the hostname of the endpoint, else the name of the cluster.
    pub host: String,
    /// Starts with a slash.
    pub path: String,
    pub method: HttpMethod,
    /// Statuses that mean healthy; empty is 200.
    pub expected_statuses: Vec<StatusRange>,
    /// Statuses that count toward `unhealthy_threshold` instead of failing at once.
    pub retriable_statuses: Vec<StatusRange>,
    pub request_headers_to_add: Vec<(String, String)>,
    pub http2: bool,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl HttpHealthCheck {
    /// Returns whether a status means healthy.
    pub fn is_expected(&self, status: u16) -> bool {
        if self.expected_statuses.is_empty() {
            return status == 200;
        }
        let mut ranges = self.expected_statuses.iter();
        ranges.any(|range| range.contains(status))
    }

    /// Returns whether an unexpected status counts toward `unhealthy_threshold`.
    pub fn is_retriable(&self, status: u16) -> bool {
        let mut ranges = self.retriable_statuses.iter();
        ranges.any(|range| range.contains(status))
    }
}

/// Half-open range of HTTP statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    start: u16,
    end: u16,
}

impl StatusRange {
    /// Checks that the range lies within 100 to 599.
    pub fn try_new(start: i64, end: i64) -> Result<Self, FieldError> {
        match (u16::try_from(start), u16::try_from(end)) {
            (Ok(start @ 100..), Ok(end @ ..=600)) if start < end => Ok(Self { start, end }),
            _ => {
                let reason =
                    format!("{start} up to {end} is not a range of statuses from 100 to 599");
                Err(FieldError::new("", reason))
            }
        }
    }

    /// Returns whether the status is in the range.
    pub const fn contains(self, status: u16) -> bool {
        self.start <= status && status < self.end
    }
}

impl HealthCheck {
    /// Checks the settings and applies defaults.
    pub fn try_new(parts: HealthCheckParts) -> Result<Self, FieldError> {
        let timeout = required("timeout", parts.timeout)?;
        let interval = required("interval", parts.interval)?;
        let no_traffic = positive("no_traffic_interval", parts.no_traffic_interval)?;
        let no_traffic_healthy = positive(
            "no_traffic_healthy_interval",
            parts.no_traffic_healthy_interval,
        )?;
        let unhealthy = positive("unhealthy_interval", parts.unhealthy_interval)?;
        let unhealthy_edge = positive("unhealthy_edge_interval", parts.unhealthy_edge_interval)?;
        let healthy_edge = positive("healthy_edge_interval", parts.healthy_edge_interval)?;
        let no_traffic_interval = no_traffic.unwrap_or(NO_TRAFFIC_INTERVAL);
        let unhealthy_interval = unhealthy.unwrap_or(interval);
        Ok(Self {
            timeout,
            interval,
            initial_jitter: parts.initial_jitter.unwrap_or_default(),
            interval_jitter: parts.interval_jitter.unwrap_or_default(),
            interval_jitter_percent: parts.interval_jitter_percent,
            unhealthy_threshold: threshold("unhealthy_threshold", parts.unhealthy_threshold)?,
            healthy_threshold: threshold("healthy_threshold", parts.healthy_threshold)?,
            alt_port: parts.alt_port.map(port).transpose()?,
            reuse_connection: parts.reuse_connection.unwrap_or(true),
            no_traffic_interval,
            no_traffic_healthy_interval: no_traffic_healthy.unwrap_or(no_traffic_interval),
            unhealthy_interval,
            unhealthy_edge_interval: unhealthy_edge.unwrap_or(unhealthy_interval),
            healthy_edge_interval: healthy_edge.unwrap_or(interval),
            kind: checked_kind(parts.kind)?,
        })
    }
}

/// Parses `Payload.text`, which is hex.
#[cfg(feature = "messages")]
pub(crate) fn payload_text(text: &str) -> Result<Bytes, FieldError> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let digits: Option<Vec<u32>> = text.as_bytes().iter().map(digit).collect();
    let pairs = digits.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0);
    let Some(digits) = pairs else {
        return Err(FieldError::new("", format!("{text:?} is not hex")));
    };
    let bytes = digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |sum, digit| sum * 16 + digit));
    Ok(bytes.filter_map(|byte| u8::try_from(byte).ok()).collect())
}

fn required(field: &str, value: Option<Duration>) -> Result<Duration, FieldError> {
    positive(field, value)?.ok_or_else(|| FieldError::new(field, "must be set"))
}

fn positive(field: &str, value: Option<Duration>) -> Result<Option<Duration>, FieldError> {
    match value {
        Some(Duration::ZERO) => Err(FieldError::new(field, "must be above 0")),
        value => Ok(value),
    }
}

fn threshold(field: &str, value: Option<u32>) -> Result<u32, FieldError> {
    match value {
        Some(0) => Err(FieldError::new(field, "must be above 0")),
        Some(value) => Ok(value),
        None => Err(FieldError::new(field, "must be set")),
    }
}

fn port(value: u32) -> Result<u16, FieldError> {
    match u16::try_from(value) {
        Ok(port @ 1..) => Ok(port),
        _ => {
            let reason = format!("{value} is not a port from 1 to 65535");
            Err(FieldError::new("alt_port", reason))
        }
    }
}

fn checked_kind(kind: HealthCheckKind) -> Result<HealthCheckKind, FieldError> {
    match &kind {
        HealthCheckKind::Http(http) if http.path.is_empty() => Err(FieldError::new(
            "http_health_check.path",
            "must not be empty",
        )),
        HealthCheckKind::Tcp { receive, .. } if receive.iter().any(Bytes::is_empty) => Err(
            FieldError::new("tcp_health_check.receive", "must not be empty"),
        ),
        _ => Ok(kind),
    }
}

#[cfg(test)]
mod tests;
