//! Suite `orca`: ORCA reports in response headers and trailers, and their metrics in LRS reports.

use std::collections::BTreeMap;

use plimsoll_core::model::orca::{MetricMap, MetricName, OrcaLoadReport};
use plimsoll_xds::orca::{self, FirstReport, OrcaError, OrcaLimits};
use serde_json::{Map, Value, json};

use super::compare::{Outcome, table};
use super::report::ReportInput;
use super::{Case, CaseError, CaseResult};

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "parse" => parse(case),
        "once" => once(case),
        "lrs_metrics" => lrs_metrics(case),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

type Pairs = Vec<(String, String)>;

fn parse(case: &Case) -> CaseResult {
    let headers: Pairs = case.input("headers")?;
    Ok(match orca::parse(bytes(&headers), &OrcaLimits::default()) {
        Ok(found) => json!({"result": "ok", "report": shown(&found)}).into(),
        Err(error) => refused(&error, &case.expected),
    })
}

/// Describes an error; a case expects the whole message or a part of it.
fn refused(error: &OrcaError, expected: &Map<String, Value>) -> Outcome {
    let part = expected.get("message_contains").and_then(Value::as_str);
    let contained = part.filter(|part| error.message().contains(part));
    json!({
        "result": "error",
        "code": error.code().as_str(),
        "message": error.message(),
        "message_contains": contained.unwrap_or(error.message()),
    })
    .into()
}

/// Takes the first ORCA report of a response; an invalid report in the headers is skipped, as in
/// production.
fn once(case: &Case) -> CaseResult {
    let mut first = FirstReport::default();
    let mut used = Vec::new();
    for part in ["headers", "trailers"] {
        let pairs: Option<Pairs> = case.input(part)?;
        let pairs = pairs.unwrap_or_default();
        let found = first.parse(bytes(&pairs), &OrcaLimits::default());
        used.extend(found.ok().flatten().map(|report| (part, report)));
    }
    match used.as_slice() {
        [] => Ok(json!({"taken_from": null, "report": null}).into()),
        [(part, report)] => Ok(json!({"taken_from": part, "report": shown(report)}).into()),
        _ => Err(CaseError::inputs("two reports of one response were used")),
    }
}

fn lrs_metrics(case: &Case) -> CaseResult {
    let metric_names: Vec<String> = case.input("metric_names")?;
    let names: Vec<_> = metric_names
        .iter()
        .map(|name| MetricName::new(name))
        .collect();
    let report: ReportInput = case.input("report")?;
    let mut stats: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    report.0.lrs_metrics(&names, |name, value| {
        let (requests, total) = stats.entry(name.to_owned()).or_default();
        *requests += 1;
        *total += value;
    });
    let stats = stats
        .into_iter()
        .map(|(name, (requests, total))| (name, json!([requests, number(total)])));
    Ok(json!({"stats": table(stats)}).into())
}

fn bytes(pairs: &Pairs) -> impl Iterator<Item = (&str, &[u8])> {
    let pairs = pairs.iter();
    pairs.map(|(name, value)| (name.as_str(), value.as_bytes()))
}

fn shown(report: &OrcaLoadReport) -> Value {
    json!({
        "cpu_utilization": number(report.cpu_utilization),
        "mem_utilization": number(report.mem_utilization),
        "application_utilization": number(report.application_utilization),
        "rps": report.rps,
        "rps_fractional": number(report.rps_fractional),
        "eps": number(report.eps),
        "named_metrics": metrics(&report.named_metrics),
        "utilization": metrics(&report.utilization),
        "request_cost": metrics(&report.request_cost),
    })
}

fn metrics(map: &MetricMap) -> Value {
    table(map.iter().map(|(name, value)| (name, number(value))))
}

/// Formats a number; NaN and infinities have names, as in the JSON mapping of protobuf.
fn number(value: f64) -> Value {
    if value.is_finite() {
        return value.into();
    }
    let name = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    name.into()
}
