//! A report as a header: the formats that `header` reads, out.
//!
//! What comes out is printable ASCII without blanks at its ends, fit for a header value, and reads
//! back as the same report. Called by what reports on behalf of a backend, and by tests.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};

use super::header::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};
use super::{OrcaError, OrcaFormat::*};
use crate::convert;

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrcaFormat {
    /// `endpoint-load-metrics: TEXT …`. Cannot express everything.
    Text,
    /// `endpoint-load-metrics: JSON …`, with the names of the proto.
    Json,
    /// `endpoint-load-metrics: BIN …`, base64 with padding.
    Bin,
    /// `endpoint-load-metrics-bin: …`, base64 with padding (Envoy refuses it without).
    BinHeader,
}

/// Name and value of the header that says `report`.
///
/// Fails for [`OrcaFormat::Text`] only, when the format has no way to say it: `rps`,
/// `request_cost`, a value that is negative or not finite, a key that is empty or has a character
/// that separates or is not printable ASCII.
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
        Json => Ok((ENDPOINT_LOAD_METRICS, json(report))),
        Bin => Ok((ENDPOINT_LOAD_METRICS, format!("BIN {}", base64(report)))),
        BinHeader => Ok((ENDPOINT_LOAD_METRICS_BIN, base64(report))),
    }
}

/// The protobuf message, for out-of-band streams and for stacks that write binary headers
/// themselves. Empty for an empty report.
pub fn encode_message(report: &OrcaLoadReport) -> Vec<u8> {
    convert::orca::encode(report)
}

/// The plain fields that every format knows, with their names.
const fn plain_fields(report: &OrcaLoadReport) -> [(&'static str, f64); 5] {
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
        // Blanks at the end of a header are dropped on the way, and `TEXT` alone is no format.
        list.push_str("cpu_utilization=0");
    }
    Ok(list)
}

fn text_item(list: &mut String, start: usize, name: &str, value: f64) -> Result<(), OrcaError> {
    if !value.is_finite() || value < 0.0 {
        return Err(not_in_text(name));
    }
    let comma = if list.len() == start { "" } else { "," };
    // The shortest digits that read back as the same number, with an exponent where that is short.
    let written = write!(list, "{comma}{name}={value:?}");
    debug_assert!(written.is_ok(), "a string takes all that is written");
    Ok(())
}

fn not_in_text(name: &str) -> OrcaError {
    let name = name.escape_debug();
    OrcaError::invalid(format!("the TEXT format cannot express {name}"))
}

fn json(report: &OrcaLoadReport) -> String {
    let mut object = Object::default();
    for (name, value) in plain_fields(report) {
        if value != 0.0 {
            object.field(name, &json_number(value));
        }
    }
    if report.rps != 0 {
        // 64-bit numbers stand in quotes: readers with doubles would round them.
        object.field("rps", &format!("\"{}\"", report.rps));
    }
    let maps = [
        ("named_metrics", &report.named_metrics),
        ("utilization", &report.utilization),
        ("request_cost", &report.request_cost),
    ];
    for (name, metrics) in maps {
        if !metrics.is_empty() {
            object.field(name, &json_metrics(metrics));
        }
    }
    format!("JSON {}", object.finish())
}

fn json_metrics(metrics: &MetricMap) -> String {
    let mut object = Object::default();
    for (key, value) in metrics.iter() {
        object.field(key, &json_number(value));
    }
    object.finish()
}

fn json_number(value: f64) -> String {
    if value.is_nan() {
        "\"NaN\"".to_owned()
    } else if value == f64::INFINITY {
        "\"Infinity\"".to_owned()
    } else if value == f64::NEG_INFINITY {
        "\"-Infinity\"".to_owned()
    } else {
        format!("{value:?}")
    }
}

/// A JSON object in the making, in ASCII.
#[derive(Default)]
struct Object(String);

impl Object {
    /// Adds a field whose value is JSON already.
    fn field(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        for letter in serde_json::Value::from(name).to_string().chars() {
            if matches!(letter, ' '..='~') {
                self.0.push(letter);
                continue;
            }
            for unit in letter.encode_utf16(&mut [0; 2]) {
                self.0.push_str(&format!("\\u{unit:04x}"));
            }
        }
        self.0.push(':');
        self.0.push_str(value);
    }

    fn finish(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

fn base64(report: &OrcaLoadReport) -> String {
    let mut message = encode_message(report);
    if message.is_empty() {
        // Receivers refuse an empty value. A field that says 0 says the same.
        message = convert::orca::encode_zero();
    }
    STANDARD.encode(message)
}

#[cfg(test)]
mod tests;
