//! The `JSON` format: protobuf's JSON mapping of the report, in both directions.
//!
//! Accepts snake_case and lowerCamelCase fields, null for unset, quoted numbers, `"NaN"` and the
//! infinities as words. Unknown fields and duplicate fields or keys are rejected. Values are not
//! validated. The output is ASCII. `reader` has the syntax of JSON.

mod reader;

use std::fmt::Write as _;

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};

use self::reader::{JsonError, Reader, Scalar};
use super::OrcaError;
use super::encode::plain_fields;

/// Parses the text after `JSON `.
pub(super) fn parse(document: &[u8]) -> Result<OrcaLoadReport, OrcaError> {
    read(document).map_err(|error| OrcaError::invalid(format!("invalid JSON: {error}")))
}

fn read(document: &[u8]) -> Result<OrcaLoadReport, JsonError> {
    let mut report = OrcaLoadReport::default();
    let mut seen = Vec::new();
    let mut reader = Reader::try_new(document)?;
    reader.object(|reader, name| {
        let field = Field::named(name)
            .ok_or_else(|| JsonError::new(format!("unknown field `{}`", name.escape_debug())))?;
        if seen.contains(&field) {
            return Err(JsonError::new(format!("duplicate field `{name}`")));
        }
        seen.push(field);
        field.read(reader, &mut report)
    })?;
    reader.end()?;
    Ok(report)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    CpuUtilization,
    MemUtilization,
    ApplicationUtilization,
    Rps,
    RpsFractional,
    Eps,
    NamedMetrics,
    Utilization,
    RequestCost,
}

impl Field {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "cpu_utilization" | "cpuUtilization" => Self::CpuUtilization,
            "mem_utilization" | "memUtilization" => Self::MemUtilization,
            "application_utilization" | "applicationUtilization" => Self::ApplicationUtilization,
            "rps" => Self::Rps,
            "rps_fractional" | "rpsFractional" => Self::RpsFractional,
            "eps" => Self::Eps,
            "named_metrics" | "namedMetrics" => Self::NamedMetrics,
            "utilization" => Self::Utilization,
            "request_cost" | "requestCost" => Self::RequestCost,
            _ => return None,
        })
    }

    fn read(self, reader: &mut Reader<'_>, report: &mut OrcaLoadReport) -> Result<(), JsonError> {
        if reader.null() {
            return Ok(());
        }
        match self {
            Self::CpuUtilization => report.cpu_utilization = double(reader)?,
            Self::MemUtilization => report.mem_utilization = double(reader)?,
            Self::ApplicationUtilization => report.application_utilization = double(reader)?,
            Self::Rps => report.rps = uint(reader)?,
            Self::RpsFractional => report.rps_fractional = double(reader)?,
            Self::Eps => report.eps = double(reader)?,
            Self::NamedMetrics => report.named_metrics = metrics(reader)?,
            Self::Utilization => report.utilization = metrics(reader)?,
            Self::RequestCost => report.request_cost = metrics(reader)?,
        }
        Ok(())
    }
}

fn metrics(reader: &mut Reader<'_>) -> Result<MetricMap, JsonError> {
    let mut list = Vec::new();
    reader.object(|reader, name| {
        list.push((name.to_owned(), double(reader)?));
        Ok(())
    })?;
    let sent = list.len();
    let metrics = MetricMap::from_iter(list);
    if metrics.len() != sent {
        return Err(JsonError::new("a metric is set twice"));
    }
    Ok(metrics)
}

/// Reads a `double`: a number, a quoted number, or one of three words.
fn double(reader: &mut Reader<'_>) -> Result<f64, JsonError> {
    let (value, written) = match reader.scalar()? {
        Scalar::Number(text) => (finite(text), text.to_owned()),
        Scalar::Text(text) => (spelled(&text), text),
    };
    value.ok_or_else(|| JsonError::new(format!("{written:?} is not a number")))
}

/// Reads a `uint64`, which may be quoted or written as a whole float.
fn uint(reader: &mut Reader<'_>) -> Result<u64, JsonError> {
    let (value, written) = match reader.scalar()? {
        Scalar::Number(text) => {
            let exact = text.parse().ok();
            (exact.or_else(|| whole(finite(text)?)), text.to_owned())
        }
        Scalar::Text(text) => (text.parse().ok(), text),
    };
    value.ok_or_else(|| {
        let max = u64::MAX;
        JsonError::new(format!("{written:?} is not a whole number from 0 to {max}"))
    })
}

/// Parses a quoted number: finite, or one of protobuf's three words for non-finite values.
fn spelled(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => finite(text),
    }
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Converts a whole number of at most 2^53, above which doubles skip whole numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked just above"
)]
fn whole(value: f64) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    ((0.0..=EXACT).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// Encodes the text after `JSON `, with the field names of the proto. Omits fields that are 0 or
/// empty.
pub(super) fn write(report: &OrcaLoadReport) -> String {
    let mut object = Object::default();
    for (name, value) in plain_fields(report) {
        if value != 0.0 {
            object.entry(name, &number(value));
        }
    }
    if report.rps != 0 {
        // 64-bit numbers are quoted: a double would round them.
        object.entry("rps", &format!("\"{}\"", report.rps));
    }
    let maps = [
        ("named_metrics", &report.named_metrics),
        ("utilization", &report.utilization),
        ("request_cost", &report.request_cost),
    ];
    for (name, metrics) in maps {
        if !metrics.is_empty() {
            let mut map = Object::default();
            for (key, value) in metrics.iter() {
                map.entry(key, &number(value));
            }
            object.entry(name, &map.finish());
        }
    }
    object.finish()
}

/// JSON object under construction: what stands between the braces.
#[derive(Default)]
struct Object(String);

impl Object {
    fn entry(&mut self, key: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        quote(&mut self.0, key);
        self.0.push(':');
        self.0.push_str(value);
    }

    fn finish(self) -> String {
        format!("{{{}}}", self.0)
    }
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "\"NaN\"".to_owned(),
        f64::INFINITY => "\"Infinity\"".to_owned(),
        f64::NEG_INFINITY => "\"-Infinity\"".to_owned(),
        // The shortest representation that parses back to the same number.
        value => format!("{value:?}"),
    }
}

/// Escapes everything but printable ASCII, so that the text is a valid header value.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            ' '..='~' => out.push(letter),
            _ => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    let written = write!(out, "\\u{unit:04x}");
                    debug_assert!(written.is_ok(), "a string takes all that is written");
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests;
