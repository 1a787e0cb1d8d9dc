//! [`HealthCheck`]: one active check of a cluster, with Envoy's defaults.
//!
//! Checking lives in the client; here is only what is asked for and how often.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::units::FieldError;

/// Envoy's default of `no_traffic_interval`.
const NO_TRAFFIC_INTERVAL: Duration = Duration::from_secs(60);

/// A check, unchecked. What is `None` gets Envoy's default.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheckParts {
    /// How long an answer may take; required.
    pub timeout: Option<Duration>,
    /// Time between two checks; required.
    pub interval: Option<Duration>,
    /// The first check is delayed by up to this time; default 0.
    pub initial_jitter: Option<Duration>,
    /// Every interval is longer by up to this time; default 0.
    pub interval_jitter: Option<Duration>,
    /// The same in percent of the interval; default 0.
    pub interval_jitter_percent: u32,
    /// Failures in a row that make a host unhealthy; required.
    pub unhealthy_threshold: Option<u32>,
    /// Successes in a row that make a host healthy; required.
    pub healthy_threshold: Option<u32>,
    /// Port to check instead of the endpoint's.
    pub alt_port: Option<u32>,
    /// Whether a connection serves several checks; default true.
    pub reuse_connection: Option<bool>,
    /// Interval while the cluster has never had a request; default 60 s.
    pub no_traffic_interval: Option<Duration>,
    /// The same for hosts that are healthy; default `no_traffic_interval`.
    pub no_traffic_healthy_interval: Option<Duration>,
    /// Interval while a host is unhealthy; default `interval`.
    pub unhealthy_interval: Option<Duration>,
    /// Interval after the first failure; default `unhealthy_interval`.
    pub unhealthy_edge_interval: Option<Duration>,
    /// Interval after the first success; default `interval`.
    pub healthy_edge_interval: Option<Duration>,
    /// What is asked.
    pub kind: HealthCheckKind,
}

/// A check.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// How long an answer may take.
    pub timeout: Duration,
    /// Time between two checks.
    pub interval: Duration,
    /// The first check is delayed by up to this time.
    pub initial_jitter: Duration,
    /// Every interval is longer by up to this time.
    pub interval_jitter: Duration,
    /// And by up to so many percent of itself.
    pub interval_jitter_percent: u32,
    /// Failures in a row that make a host unhealthy. An HTTP status that is not expected does so at
    /// once, unless it is among `retriable_statuses`.
    pub unhealthy_threshold: u32,
    /// Successes in a row that make a host healthy; for the first check of a host one is enough.
    pub healthy_threshold: u32,
    /// Port to check instead of the endpoint's.
    pub alt_port: Option<u16>,
    /// Whether a connection serves several checks.
    pub reuse_connection: bool,
    /// Interval while the cluster has never had a request.
    pub no_traffic_interval: Duration,
    /// The same for hosts that are healthy.
    pub no_traffic_healthy_interval: Duration,
    /// Interval while a host is unhealthy.
    pub unhealthy_interval: Duration,
    /// Interval after the first failure of a healthy host.
    pub unhealthy_edge_interval: Duration,
    /// Interval after the first success of an unhealthy host.
    pub healthy_edge_interval: Duration,
    /// What is asked.
    pub kind: HealthCheckKind,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthCheckKind {
    /// A request with an expected status.
    Http(HttpHealthCheck),
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Empty asks for the server as a whole.
        service_name: String,
        /// Empty is the name of the cluster.
        authority: String,
        /// Headers to send along.
        initial_metadata: Vec<(String, String)>,
    },
    /// A connection, and what is said on it.
    Tcp {
        /// Sent first; `None` only connects.
        send: Option<Bytes>,
        /// Blocks that must come back, in this order.
        receive: Vec<Bytes>,
    },
}

/// `HttpHealthCheck`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpHealthCheck {
    /// Host header; empty is the hostname of the endpoint, else the name of the cluster.
    pub host: String,
    /// Path, starting with a slash.
    pub path: String,
    /// Method.
    pub method: HttpMethod,
    /// Statuses that mean healthy; empty is 200.
    pub expected_statuses: Vec<StatusRange>,
    /// Statuses that count towards the threshold instead of failing at once.
    pub retriable_statuses: Vec<StatusRange>,
    /// Headers to send along.
    pub request_headers_to_add: Vec<(String, String)>,
    /// `codec_client_type: HTTP2`.
    pub http2: bool,
}

impl HttpHealthCheck {
    /// Whether an answer with that status is a success.
    pub fn is_expected(&self, status: u16) -> bool {
        if self.expected_statuses.is_empty() {
            return status == 200;
        }
        let mut ranges = self.expected_statuses.iter();
        ranges.any(|range| range.contains(status))
    }

    /// Whether an answer that is not expected counts towards the threshold.
    pub fn is_retriable(&self, status: u16) -> bool {
        let mut ranges = self.retriable_statuses.iter();
        ranges.any(|range| range.contains(status))
    }
}

/// `RequestMethod`, those that a check may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "methods are their own names")]
pub enum HttpMethod {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Patch,
}

impl HttpMethod {
    /// As it is sent.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
        }
    }
}

/// Statuses from `start` up to, and without, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    start: u16,
    end: u16,
}

impl StatusRange {
    /// Checks that there are such statuses: 100 to 599.
    pub fn try_new(start: i64, end: i64) -> Result<Self, FieldError> {
        match (u16::try_from(start), u16::try_from(end)) {
            (Ok(start @ 100..), Ok(end @ ..=600)) if start < end => Ok(Self { start, end }),
            _ => {
                let reason = format!("{start} up to {end} are no statuses between 100 and 600");
                Err(FieldError::new("", reason))
            }
        }
    }

    /// Whether it is one of them.
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

/// `Payload.text`: bytes in hex.
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
