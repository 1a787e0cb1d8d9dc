//! The `TEXT` format: `name=value` or `name:value`, separated by commas.
//!
//! The only format that validates values (finite, not negative) and names (no `rps`, no
//! `request_cost.*`, no duplicates). The order of the checks is Envoy's.

use std::collections::BTreeSet;

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};

use super::header::ENDPOINT_LOAD_METRICS;
use super::{OrcaCode, OrcaError};

/// Parses the list after `TEXT `. An empty list is an empty report.
pub(super) fn parse(list: &[u8]) -> Result<OrcaLoadReport, OrcaError> {
    let list = str::from_utf8(list)
        .map_err(|_| OrcaError::invalid("ORCA text header value is not UTF-8"))?;
    let mut report = OrcaLoadReport::default();
    let (mut named_metrics, mut utilization) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for item in list.split(',').map(trim).filter(|item| !item.is_empty()) {
        let (name, written) = split(item);
        if seen.contains(name) {
            let message = format!("{ENDPOINT_LOAD_METRICS} contains duplicate metric: {name}");
            return Err(OrcaError::new(OrcaCode::AlreadyExists, message));
        }
        let value = number(name, written)?;
        if let Some(key) = name.strip_prefix("named_metrics.") {
            named_metrics.push((not_empty(key, "named metric key is empty.")?, value));
        } else if let Some(key) = name.strip_prefix("utilization.") {
            utilization.push((not_empty(key, "utilization metric key is empty.")?, value));
        } else {
            *plain_field(&mut report, name)? = value;
        }
        seen.insert(name);
    }
    report.named_metrics = MetricMap::from_iter(named_metrics);
    report.utilization = MetricMap::from_iter(utilization);
    Ok(report)
}

/// Splits name and value at the first `=` or `:`. A blank part is dropped and the other one moves
/// up: `=0.5` is the name `0.5` without a value. Neither is trimmed.
fn split(item: &str) -> (&str, &str) {
    let (first, second) = item.split_once(['=', ':']).unwrap_or((item, ""));
    let mut pieces = [first, second]
        .into_iter()
        .filter(|piece| !trim(piece).is_empty());
    let name = pieces.next().unwrap_or_default();
    (name, pieces.next().unwrap_or_default())
}

/// Parses a decimal or exponent number; surrounding spaces and a leading `+` are allowed. Words for
/// infinity and NaN are recognized and rejected by name.
fn number(name: &str, written: &str) -> Result<f64, OrcaError> {
    if name.is_empty() {
        return Err(OrcaError::invalid("metric names cannot be empty strings"));
    }
    if written.is_empty() {
        return Err(OrcaError::invalid("metric values cannot be empty strings"));
    }
    let value: f64 = trim(written).parse().map_err(|_| {
        let what = "unable to parse custom backend load metric value";
        OrcaError::invalid(format!("{what}({name}): {written}"))
    })?;
    let fault = if value.is_nan() {
        "NaN"
    } else if value.is_infinite() {
        "infinity"
    } else if value < 0.0 {
        "negative"
    } else {
        return Ok(value);
    };
    let what = "custom backend load metric value";
    Err(OrcaError::invalid(format!(
        "{what}({name}) cannot be {fault}."
    )))
}

fn not_empty<'k>(key: &'k str, otherwise: &'static str) -> Result<&'k str, OrcaError> {
    if key.is_empty() {
        return Err(OrcaError::invalid(otherwise));
    }
    Ok(key)
}

fn plain_field<'r>(report: &'r mut OrcaLoadReport, name: &str) -> Result<&'r mut f64, OrcaError> {
    match name {
        "cpu_utilization" => Ok(&mut report.cpu_utilization),
        "mem_utilization" => Ok(&mut report.mem_utilization),
        "application_utilization" => Ok(&mut report.application_utilization),
        "rps_fractional" => Ok(&mut report.rps_fractional),
        "eps" => Ok(&mut report.eps),
        _ => Err(OrcaError::invalid(format!(
            "unsupported metric name: {name}"
        ))),
    }
}

/// Trims spaces, tabs and line ends, including vertical ones.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r'])
}

#[cfg(test)]
mod tests;
