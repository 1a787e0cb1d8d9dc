//! Header names and formats of in-band reports.
//!
//! Error texts are Envoy's, so that a search for them finds its documentation. One deliberate
//! difference: base64 without padding, which gRPC libraries emit, is accepted (decision 0026).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use plimsoll_core::model::orca::OrcaLoadReport;

use super::{OrcaError, OrcaLimits, json, message, text};

/// Header that carries a report as `TEXT …`, `JSON …` or `BIN …`.
pub const ENDPOINT_LOAD_METRICS: &str = "endpoint-load-metrics";
/// Header that carries a report as base64 of the protobuf message.
pub const ENDPOINT_LOAD_METRICS_BIN: &str = "endpoint-load-metrics-bin";

/// Parses the report in response headers or trailers.
///
/// Names are case-insensitive. The first value of each header counts, and
/// `endpoint-load-metrics-bin` takes precedence, even if it is malformed. Nothing is allocated if
/// there is no report ([`OrcaCode::NotFound`](super::OrcaCode::NotFound)).
///
/// ```
/// use plimsoll_xds::orca::{OrcaLimits, parse};
///
/// let headers = [("endpoint-load-metrics", &b"TEXT cpu_utilization=0.3,eps=1"[..])];
/// let report = parse(headers, &OrcaLimits::default()).unwrap();
/// assert_eq!((report.cpu_utilization, report.eps), (0.3, 1.0));
/// ```
pub fn parse<'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    limits: &OrcaLimits,
) -> Result<OrcaLoadReport, OrcaError> {
    let mut prefixed = None;
    for (name, value) in headers {
        if name.eq_ignore_ascii_case(ENDPOINT_LOAD_METRICS_BIN) {
            limits.check_bytes(value.len())?;
            return limits.check_metrics(binary(value)?);
        }
        if prefixed.is_none() && name.eq_ignore_ascii_case(ENDPOINT_LOAD_METRICS) {
            prefixed = Some(value);
        }
    }
    let value = prefixed.ok_or(OrcaError::NOT_FOUND)?;
    limits.check_bytes(value.len())?;
    limits.check_metrics(by_prefix(value)?)
}

/// Parses a protobuf message of an out-of-band stream. An empty one is an empty report.
pub fn parse_message(bytes: &[u8], limits: &OrcaLimits) -> Result<OrcaLoadReport, OrcaError> {
    limits.check_bytes(bytes.len())?;
    let report = message::decode(bytes)
        .map_err(|error| OrcaError::invalid(format!("unable to parse OrcaLoadReport: {error}")))?;
    limits.check_metrics(report)
}

fn by_prefix(value: &[u8]) -> Result<OrcaLoadReport, OrcaError> {
    if let Some(value) = value.strip_prefix(b"BIN ") {
        return binary(value);
    }
    if let Some(value) = value.strip_prefix(b"TEXT ") {
        return text::parse(value);
    }
    if let Some(value) = value.strip_prefix(b"JSON ") {
        return json::parse(value);
    }
    let start = &value[..value.len().min(5)];
    let word = start.split(|&byte| byte == b' ').next().unwrap_or(start);
    let word = String::from_utf8_lossy(word);
    Err(OrcaError::invalid(format!(
        "unsupported ORCA header format: {word}"
    )))
}

fn binary(value: &[u8]) -> Result<OrcaLoadReport, OrcaError> {
    if value.is_empty() {
        return Err(OrcaError::invalid("ORCA binary header value is empty"));
    }
    let refused = |reason: &str| {
        let value = String::from_utf8_lossy(value);
        OrcaError::invalid(format!("{reason}: {value}"))
    };
    // Full padding or none; both engines reject nonzero trailing bits.
    let engine = if value.ends_with(b"=") {
        &STANDARD
    } else {
        &STANDARD_NO_PAD
    };
    let bytes = engine
        .decode(value)
        .map_err(|_| refused("unable to decode ORCA binary header value"))?;
    message::decode(&bytes).map_err(|_| refused("unable to parse binaryheader to OrcaLoadReport"))
}

#[cfg(test)]
mod tests;
