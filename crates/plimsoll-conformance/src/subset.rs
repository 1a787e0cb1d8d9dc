//! Suite `subset`: which subsets exist, which one serves a request, counters, and invalid settings.
//!
//! Picks work as in production: a balancer handles an assignment, and a picker uses its snapshot
//! (`pick`). `inputs` translates the cases.

mod config;
mod inputs;
mod pick;

use std::sync::Arc;

use plimsoll_core::model::metadata::{DisplayMetadata, MatchCriteria, MetadataValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Case, CaseError, CaseResult};
use inputs::{Json, metadata, to_json, value};

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "subset_pick" => pick::run(&case.inputs()?, &case.expected),
        "subset_build" => pick::build(&case.inputs()?, &case.expected),
        "subset_config" => config::subset_config(case.inputs()?),
        "cluster_config" => config::cluster_config(case.inputs()?),
        "describe_metadata" => describe(case),
        "label_match" => label_match(case),
        "value_equal" => value_equal(case),
        "criteria" => criteria(case),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

fn describe(case: &Case) -> CaseResult {
    let pairs: Vec<(String, Value)> = case.input("metadata")?;
    let metadata: Vec<(Arc<str>, MetadataValue)> = pairs
        .iter()
        .map(|(key, json)| Ok((Arc::from(&**key), value(json)?)))
        .collect::<Result<_, CaseError>>()?;
    Ok(json!({"text": DisplayMetadata(&metadata).to_string()}).into())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    labels: Json,
    #[serde(default)]
    list_as_any: bool,
}

fn label_match(case: &Case) -> CaseResult {
    let fields: Option<Json> = case.input("metadata")?;
    let host = metadata(&fields.unwrap_or_default())?;
    let checks: Vec<Check> = case.input("checks")?;
    let matches = checks
        .iter()
        .map(|check| Ok(host.matches(&metadata(&check.labels)?, check.list_as_any)))
        .collect::<Result<Vec<bool>, CaseError>>()?;
    Ok(json!({"matches": matches}).into())
}

fn value_equal(case: &Case) -> CaseResult {
    let pairs: Vec<(Value, Value)> = case.input("pairs")?;
    let equal = pairs
        .iter()
        .map(|(one, other)| Ok(value(one)? == value(other)?))
        .collect::<Result<Vec<bool>, CaseError>>()?;
    Ok(json!({"equal": equal}).into())
}

fn criteria(case: &Case) -> CaseResult {
    let mut criteria = MatchCriteria::new(metadata(&case.input("route")?)?);
    if let Some(over) = case.input("merge")? {
        criteria = criteria.merged(&metadata(&over)?);
    }
    if let Some(keys) = case.input::<Option<Vec<String>>>("keep")? {
        criteria = criteria.filtered(&keys);
    }
    let pair = |(key, value): (&Arc<str>, &MetadataValue)| json!([&**key, to_json(value)]);
    let pairs: Vec<Value> = criteria.metadata().iter().map(pair).collect();
    Ok(json!({"criteria": pairs}).into())
}
