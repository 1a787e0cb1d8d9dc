//! The format `JSON`: the JSON mapping of the protobuf message.
//!
//! Fields in snake_case or lowerCamelCase, null for "not set", numbers also in quotes, `"NaN"` and
//! the infinities in words. Unknown fields are refused, and so is a field or key that is there
//! twice: nobody could say which one was meant. Values are not judged.

use std::fmt;

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::OrcaError;
use crate::yaml::proto_json::Uint;

/// Reads what follows `JSON `.
pub(super) fn parse(document: &[u8]) -> Result<OrcaLoadReport, OrcaError> {
    match serde_json::from_slice(document) {
        Ok(Report(report)) => Ok(report),
        Err(error) => Err(OrcaError::invalid(format!("invalid JSON: {error}"))),
    }
}

struct Report(OrcaLoadReport);

#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    #[serde(alias = "cpuUtilization")]
    CpuUtilization,
    #[serde(alias = "memUtilization")]
    MemUtilization,
    #[serde(alias = "applicationUtilization")]
    ApplicationUtilization,
    Rps,
    #[serde(alias = "rpsFractional")]
    RpsFractional,
    Eps,
    #[serde(alias = "namedMetrics")]
    NamedMetrics,
    Utilization,
    #[serde(alias = "requestCost")]
    RequestCost,
}

impl<'de> Deserialize<'de> for Report {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReportVisitor).map(Self)
    }
}

struct ReportVisitor;

impl<'de> Visitor<'de> for ReportVisitor {
    type Value = OrcaLoadReport;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the fields of a load report")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrcaLoadReport, A::Error> {
        let mut report = OrcaLoadReport::default();
        let mut seen = 0_u16;
        while let Some(field) = map.next_key::<Field>()? {
            let bit = 1 << field as u16;
            if seen & bit != 0 {
                return Err(A::Error::custom("a field is set twice"));
            }
            seen |= bit;
            match field {
                Field::CpuUtilization => report.cpu_utilization = double(&mut map)?,
                Field::MemUtilization => report.mem_utilization = double(&mut map)?,
                Field::ApplicationUtilization => {
                    report.application_utilization = double(&mut map)?;
                }
                Field::Rps => {
                    report.rps = map.next_value::<Option<Uint<u64>>>()?.unwrap_or_default().0;
                }
                Field::RpsFractional => report.rps_fractional = double(&mut map)?,
                Field::Eps => report.eps = double(&mut map)?,
                Field::NamedMetrics => report.named_metrics = metrics(&mut map)?,
                Field::Utilization => report.utilization = metrics(&mut map)?,
                Field::RequestCost => report.request_cost = metrics(&mut map)?,
            }
        }
        Ok(report)
    }
}

fn double<'de, A: MapAccess<'de>>(map: &mut A) -> Result<f64, A::Error> {
    let value: Option<Double> = map.next_value()?;
    Ok(value.map_or(0.0, |Double(value)| value))
}

fn metrics<'de, A: MapAccess<'de>>(map: &mut A) -> Result<MetricMap, A::Error> {
    let value: Option<Metrics> = map.next_value()?;
    Ok(value.map_or_else(MetricMap::default, |Metrics(metrics)| metrics))
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

/// A `double`: a number, a number in quotes, or one of three words.
struct Double(f64);

impl<'de> Deserialize<'de> for Double {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DoubleVisitor;

        impl Visitor<'_> for DoubleVisitor {
            type Value = f64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            #[expect(clippy::cast_precision_loss, reason = "a double is what was asked for")]
            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }

            #[expect(clippy::cast_precision_loss, reason = "a double is what was asked for")]
            fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
                Ok(value as f64)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
                in_quotes(text).ok_or_else(|| E::custom(format_args!("{text:?} is not a number")))
            }
        }

        deserializer.deserialize_any(DoubleVisitor).map(Self)
    }
}

/// Other words for what is not finite, and numbers that overflow, are refused.
fn in_quotes(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

#[cfg(test)]
mod tests;
