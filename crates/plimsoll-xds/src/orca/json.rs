//! The `JSON` format: protobuf's JSON mapping of the report, in both directions.
//!
//! Accepts snake_case and lowerCamelCase fields, null for unset, quoted numbers, `"NaN"` and the
//! infinities as words. Unknown fields and duplicate fields or keys are rejected. Values are not
//! validated. The output is ASCII.

use std::{fmt, io};

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::ser::Formatter;

use super::OrcaError;
use crate::yaml::proto_json::Uint;

/// Parses the text after `JSON `.
pub(super) fn parse(document: &[u8]) -> Result<OrcaLoadReport, OrcaError> {
    // serde would also accept an array of the values in order.
    if !document.trim_ascii_start().starts_with(b"{") {
        return Err(OrcaError::invalid("invalid JSON: not an object"));
    }
    match serde_json::from_slice::<Report>(document) {
        Ok(report) => Ok(report.into()),
        Err(error) => Err(OrcaError::invalid(format!("invalid JSON: {error}"))),
    }
}

/// Encodes the text after `JSON `, with the field names of the proto.
pub(super) fn write(report: &OrcaLoadReport) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Ascii);
    let written = Report::from(report).serialize(&mut serializer);
    debug_assert!(written.is_ok(), "numbers and strings can be written");
    String::from_utf8(text).unwrap_or_default()
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Report {
    #[serde(alias = "cpuUtilization", skip_serializing_if = "Option::is_none")]
    cpu_utilization: Option<Double>,
    #[serde(alias = "memUtilization", skip_serializing_if = "Option::is_none")]
    mem_utilization: Option<Double>,
    #[serde(
        alias = "applicationUtilization",
        skip_serializing_if = "Option::is_none"
    )]
    application_utilization: Option<Double>,
    #[serde(alias = "rpsFractional", skip_serializing_if = "Option::is_none")]
    rps_fractional: Option<Double>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eps: Option<Double>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_quotes")]
    rps: Option<Uint<u64>>,
    #[serde(alias = "namedMetrics", skip_serializing_if = "Option::is_none")]
    named_metrics: Option<Metrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    utilization: Option<Metrics>,
    #[serde(alias = "requestCost", skip_serializing_if = "Option::is_none")]
    request_cost: Option<Metrics>,
}

impl From<Report> for OrcaLoadReport {
    fn from(report: Report) -> Self {
        let double = |value: Option<Double>| value.map_or(0.0, |Double(value)| value);
        let metrics = |value: Option<Metrics>| value.map(|Metrics(map)| map).unwrap_or_default();
        Self {
            cpu_utilization: double(report.cpu_utilization),
            mem_utilization: double(report.mem_utilization),
            application_utilization: double(report.application_utilization),
            rps: report.rps.unwrap_or_default().0,
            rps_fractional: double(report.rps_fractional),
            eps: double(report.eps),
            named_metrics: metrics(report.named_metrics),
            utilization: metrics(report.utilization),
            request_cost: metrics(report.request_cost),
        }
    }
}

impl From<&OrcaLoadReport> for Report {
    /// Omits fields that are 0 or empty.
    fn from(report: &OrcaLoadReport) -> Self {
        let double = |value: f64| (value != 0.0).then_some(Double(value));
        let metrics = |map: &MetricMap| (!map.is_empty()).then(|| Metrics(map.clone()));
        Self {
            cpu_utilization: double(report.cpu_utilization),
            mem_utilization: double(report.mem_utilization),
            application_utilization: double(report.application_utilization),
            rps_fractional: double(report.rps_fractional),
            eps: double(report.eps),
            rps: (report.rps != 0).then_some(Uint(report.rps)),
            named_metrics: metrics(&report.named_metrics),
            utilization: metrics(&report.utilization),
            request_cost: metrics(&report.request_cost),
        }
    }
}

/// Quotes 64-bit numbers, as the JSON mapping requires: a double would round them.
#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn in_quotes<S: Serializer>(value: &Option<Uint<u64>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&value.unwrap_or_default().0)
}

/// Escapes everything but printable ASCII, so that the text is a valid header value.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for letter in fragment.chars() {
            match letter {
                ' '..='~' => write!(writer, "{letter}")?,
                _ => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        write!(writer, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

struct Metrics(MetricMap);

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetricsVisitor;

        impl<'de> Visitor<'de> for MetricsVisitor {
            type Value = MetricMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MetricMap, A::Error> {
                let mut list = Vec::new();
                while let Some((name, Double(value))) = map.next_entry::<String, Double>()? {
                    list.push((name, value));
                }
                let sent = list.len();
                let metrics = MetricMap::from_iter(list);
                if metrics.len() != sent {
                    return Err(A::Error::custom("a metric is set twice"));
                }
                Ok(metrics)
            }
        }

        deserializer.deserialize_map(MetricsVisitor).map(Self)
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, Double(value))))
    }
}

/// A `double`: a number, a quoted number, or one of three words.
struct Double(f64);

impl Serialize for Double {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_nan() => serializer.serialize_str("NaN"),
            f64::INFINITY => serializer.serialize_str("Infinity"),
            f64::NEG_INFINITY => serializer.serialize_str("-Infinity"),
            value => serializer.serialize_f64(value),
        }
    }
}

impl<'de> Deserialize<'de> for Double {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DoubleVisitor;

        impl Visitor<'_> for DoubleVisitor {
            type Value = f64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            #[expect(clippy::cast_precision_loss, reason = "the field is a double")]
            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }

            #[expect(clippy::cast_precision_loss, reason = "the field is a double")]
            fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
                Ok(value as f64)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
                spelled(text).ok_or_else(|| E::custom(format_args!("{text:?} is not a number")))
            }
        }

        deserializer.deserialize_any(DoubleVisitor).map(Self)
    }
}

/// Parses a quoted number: finite, or one of protobuf's three words for non-finite values.
fn spelled(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

#[cfg(test)]
mod tests;
