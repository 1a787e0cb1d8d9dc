//! The suite `orca`: reports in headers and trailers, and the metrics that load reporting takes.

use std::collections::BTreeMap;

use plimsoll_core::model::orca::{MetricMap, MetricName, OrcaLoadReport};
use plimsoll_xds::orca::{self, FirstReport, OrcaError, OrcaLimits};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::compare::Outcome;
use super::report::ReportInput;
use super::{Case, CaseError};

const KINDS: [&str; 3] = ["parse", "once", "lrs_metrics"];

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "parse" => Ok(parse(&case.inputs()?, &case.expected)),
        "once" => once(&case.inputs()?, &case.expected),
        "lrs_metrics" => Ok(lrs_metrics(&case.inputs()?)),
        _ => Err(CaseError::unknown_kind(case, &KINDS)),
    }
}

type Pairs = Vec<(String, String)>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseInputs {
    headers: Pairs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnceInputs {
    #[serde(default)]
    headers: Pairs,
    #[serde(default)]
    trailers: Pairs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LrsInputs {
    metric_names: Vec<String>,
    report: ReportInput,
}

fn parse(inputs: &ParseInputs, expected: &Map<String, Value>) -> Outcome {
    match orca::parse(bytes(&inputs.headers), &OrcaLimits::default()) {
        Ok(found) => Outcome::default()
            .exact("result", "ok")
            .exact("report", shown(&found, expected)),
        Err(error) => refused(&error, expected),
    }
}

/// A case gives the whole message or a part of it.
fn refused(error: &OrcaError, expected: &Map<String, Value>) -> Outcome {
    let part = expected.get("message_contains").and_then(Value::as_str);
    let contained = part.filter(|part| error.message().contains(part));
    Outcome::default()
        .exact("result", "error")
        .exact("code", error.code().as_str())
        .exact("message", error.message())
        .exact("message_contains", contained.unwrap_or(error.message()))
}

/// A broken report in the headers is passed over, as in production.
fn once(inputs: &OnceInputs, expected: &Map<String, Value>) -> Result<Outcome, CaseError> {
    let mut first = FirstReport::default();
    let mut look = |pairs| first.look(bytes(pairs), &OrcaLimits::default());
    let parts = [("headers", &inputs.headers), ("trailers", &inputs.trailers)];
    let used: Vec<_> = parts
        .into_iter()
        .filter_map(|(part, pairs)| Some((part, look(pairs).ok().flatten()?)))
        .collect();
    match used.as_slice() {
        [] => Ok(Outcome::default()
            .exact("taken_from", Value::Null)
            .exact("report", Value::Null)),
        [(part, report)] => Ok(Outcome::default()
            .exact("taken_from", *part)
            .exact("report", shown(report, expected))),
        _ => Err(CaseError::inputs("two reports of one response were used")),
    }
}

fn lrs_metrics(inputs: &LrsInputs) -> Outcome {
    let names = inputs.metric_names.iter();
    let names: Vec<_> = names.map(|name| MetricName::new(name)).collect();
    let mut stats: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    inputs.report.0.lrs_metrics(&names, |name, value| {
        let (requests, total) = stats.entry(name.to_owned()).or_default();
        *requests += 1;
        *total += value;
    });
    let stats: Map<_, _> = stats
        .into_iter()
        .map(|(name, (requests, total))| (name, json!([requests, number(total)])))
        .collect();
    Outcome::default().exact("stats", stats)
}

fn bytes(pairs: &Pairs) -> impl Iterator<Item = (&str, &[u8])> {
    let pairs = pairs.iter();
    pairs.map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// The report as cases write it. Fields that are 0 or empty may be left out of the case; where it
/// has them they are compared.
fn shown(report: &OrcaLoadReport, expected: &Map<String, Value>) -> Value {
    let fields = [
        ("cpu_utilization", number(report.cpu_utilization)),
        ("mem_utilization", number(report.mem_utilization)),
        (
            "application_utilization",
            number(report.application_utilization),
        ),
        ("rps", report.rps.into()),
        ("rps_fractional", number(report.rps_fractional)),
        ("eps", number(report.eps)),
        ("named_metrics", metrics(&report.named_metrics)),
        ("utilization", metrics(&report.utilization)),
        ("request_cost", metrics(&report.request_cost)),
    ];
    let wanted = expected.get("report").and_then(Value::as_object);
    let in_the_case = |name| wanted.is_some_and(|wanted| wanted.contains_key(name));
    let defaults = [json!(0), json!(0.0), json!({})];
    let fields = fields.map(|(name, value)| {
        let left_out = defaults.contains(&value) && !in_the_case(name);
        (name.to_owned(), if left_out { Value::Null } else { value })
    });
    Value::Object(fields.into_iter().collect())
}

fn metrics(map: &MetricMap) -> Value {
    let entries = map.iter();
    let entries = entries.map(|(name, value)| (name.to_owned(), number(value)));
    Value::Object(entries.collect())
}

/// What is not finite has a name, as in the JSON mapping of protobuf.
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

#[cfg(test)]
mod tests;
