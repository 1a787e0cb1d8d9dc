//! Encoding of a report as a header, in the formats that `header` parses.
//!
//! The result is a valid header value: printable ASCII without surrounding spaces. It parses back
//! to the same report. Called by the reporting layer of a backend, and by tests.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_core::model::orca::OrcaLoadReport;

use super::header::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};
use super::{OrcaError, OrcaFormat::*, json, message};

/// Header format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrcaFormat {
    /// `endpoint-load-metrics: TEXT …`. Cannot express every report.
    Text,
    /// `endpoint-load-metrics: JSON …`, with the field names of the proto.
    Json,
    /// `endpoint-load-metrics: BIN …`, base64 with padding.
    Bin,
    /// `endpoint-load-metrics-bin: …`, base64 with padding (Envoy rejects it without).
    BinHeader,
}

/// Encodes `report` as a header name and value.
///
/// Fails for [`OrcaFormat::Text`] only, which cannot express `rps`, `request_cost`, negative and
/// non-finite values, and keys that are empty or contain separators or anything but printable
/// ASCII.
///
/// ```
/// use plimsoll_core::model::orca::OrcaLoadReport;
/// use plimsoll_xds::orca::{OrcaFormat, encode};
///
/// let report = OrcaLoadReport { cpu_utilization: 0.3, ..Default::default() };
/// let header = encode(&report, OrcaFormat::Json).unwrap();
/// assert_eq!(header, ("endpoint-load-metrics", r#"JSON {"cpu_utilization":0.3}"#.to_owned()));
/// ```
pub fn encode(
    report: &OrcaLoadReport,
    format: OrcaFormat,
) -> Result<(&'static str, String), OrcaError> {
    match format {
        Text => Ok((ENDPOINT_LOAD_METRICS, text(report)?)),
        Json => Ok((
            ENDPOINT_LOAD_METRICS,
            format!("JSON {}", json::write(report)),
        )),
        Bin => Ok((ENDPOINT_LOAD_METRICS, format!("BIN {}", base64(report)))),
        BinHeader => Ok((ENDPOINT_LOAD_METRICS_BIN, base64(report))),
    }
}

/// Encodes the protobuf message, for out-of-band streams and for libraries that write binary
/// headers themselves. Empty for an empty report.
pub fn encode_message(report: &OrcaLoadReport) -> Vec<u8> {
    message::encode(report)
}

/// Returns the plain fields that every format has, with their names.
pub(super) const fn plain_fields(report: &OrcaLoadReport) -> [(&'static str, f64); 5] {
    [
        ("cpu_utilization", report.cpu_utilization),
        ("mem_utilization", report.mem_utilization),
        ("application_utilization", report.application_utilization),
        ("rps_fractional", report.rps_fractional),
        ("eps", report.eps),
    ]
}

fn text(report: &OrcaLoadReport) -> Result<String, OrcaError> {
    if report.rps != 0 {
        return Err(not_in_text("rps"));
    }
    if !report.request_cost.is_empty() {
        return Err(not_in_text("request_cost"));
    }
    let mut list = String::from("TEXT ");
    let start = list.len();
    for (name, value) in plain_fields(report) {
        if value != 0.0 {
            text_item(&mut list, start, name, value)?;
        }
    }
    let maps = [
        ("named_metrics", &report.named_metrics),
        ("utilization", &report.utilization),
    ];
    for (map, metrics) in maps {
        for (key, value) in metrics.iter() {
            let name = format!("{map}.{key}");
            let sayable = |byte: u8| matches!(byte, b' '..=b'~') && !b",=:".contains(&byte);
            if key.is_empty() || !key.bytes().all(sayable) {
                return Err(not_in_text(&name));
            }
            text_item(&mut list, start, &name, value)?;
        }
    }
    if list.len() == start {
        // Trailing spaces of a header are dropped in transit, and `TEXT` alone is invalid.
        list.push_str("cpu_utilization=0");
    }
    Ok(list)
}

fn text_item(list: &mut String, start: usize, name: &str, value: f64) -> Result<(), OrcaError> {
    if !value.is_finite() || value < 0.0 {
        return Err(not_in_text(name));
    }
    let comma = if list.len() == start { "" } else { "," };
    // The shortest representation that parses back to the same number.
    let written = write!(list, "{comma}{name}={value:?}");
    debug_assert!(written.is_ok(), "a string takes all that is written");
    Ok(())
}

fn not_in_text(name: &str) -> OrcaError {
    let name = name.escape_debug();
    OrcaError::invalid(format!("the TEXT format cannot express {name}"))
}

fn base64(report: &OrcaLoadReport) -> String {
    let mut bytes = message::encode(report);
    if bytes.is_empty() {
        // Receivers reject an empty value. An explicit 0 is equivalent.
        bytes = message::encode_zero();
    }
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests;
