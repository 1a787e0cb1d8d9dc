//! The suite `subset`: which subsets there are, which of them serves a request, what is counted,
//! and which settings are refused.
//!
//! Picks go the way of production: an assignment to a balancer, its snapshot to a picker
//! (`pick`). What cases say, and its translation, lives in `inputs`.

mod config;
mod inputs;
mod pick;

use std::sync::Arc;

use plimsoll_core::model::metadata::{Described, MatchCriteria, Metadata, MetadataValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::compare::Outcome;
use super::{Case, CaseError};
use inputs::{Json, metadata, to_json, value};

const KINDS: [&str; 8] = [
    "subset_pick",
    "subset_build",
    "subset_config",
    "cluster_config",
    "describe_metadata",
    "label_match",
    "value_equal",
    "criteria",
];

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "subset_pick" => pick::run(&case.inputs()?, &case.expected),
        "subset_build" => pick::build(&case.inputs()?, &case.expected),
        "subset_config" => config::subset_config(case.inputs()?),
        "cluster_config" => config::cluster_config(case.inputs()?),
        "describe_metadata" => describe(&case.inputs()?),
        "label_match" => label_match(&case.inputs()?),
        "value_equal" => value_equal(&case.inputs()?),
        "criteria" => criteria(&case.inputs()?),
        _ => Err(CaseError::unknown_kind(case, &KINDS)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribeInputs {
    metadata: Vec<(String, Value)>,
}

fn describe(inputs: &DescribeInputs) -> Result<Outcome, CaseError> {
    let pairs = inputs.metadata.iter();
    let pairs = pairs.map(|(key, json)| Ok((Arc::from(&**key), value(json)?)));
    let pairs: Vec<(Arc<str>, MetadataValue)> = pairs.collect::<Result<_, CaseError>>()?;
    Ok(Outcome::default().exact("text", Described(&pairs).to_string()))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelInputs {
    metadata: Option<Json>,
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    labels: Json,
    #[serde(default)]
    list_as_any: bool,
}

fn label_match(inputs: &LabelInputs) -> Result<Outcome, CaseError> {
    let host = match &inputs.metadata {
        Some(fields) => metadata(fields)?,
        None => Metadata::default(),
    };
    let matches = inputs
        .checks
        .iter()
        .map(|check| Ok(host.matches(&metadata(&check.labels)?, check.list_as_any)))
        .collect::<Result<Vec<bool>, CaseError>>()?;
    Ok(Outcome::default().exact("matches", matches))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EqualInputs {
    pairs: Vec<(Value, Value)>,
}

fn value_equal(inputs: &EqualInputs) -> Result<Outcome, CaseError> {
    let pairs = inputs.pairs.iter();
    let equal = pairs
        .map(|(one, other)| Ok(value(one)? == value(other)?))
        .collect::<Result<Vec<bool>, CaseError>>()?;
    Ok(Outcome::default().exact("equal", equal))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CriteriaInputs {
    route: Json,
    merge: Option<Json>,
    keep: Option<Vec<String>>,
}

fn criteria(inputs: &CriteriaInputs) -> Result<Outcome, CaseError> {
    let mut criteria = MatchCriteria::new(metadata(&inputs.route)?);
    if let Some(over) = &inputs.merge {
        criteria = criteria.merged(&metadata(over)?);
    }
    if let Some(keys) = &inputs.keep {
        criteria = criteria.filtered(keys);
    }
    let pairs = criteria.metadata().iter();
    let pairs: Vec<Value> = pairs.map(|(k, v)| json!([&**k, to_json(v)])).collect();
    Ok(Outcome::default().exact("criteria", pairs))
}
