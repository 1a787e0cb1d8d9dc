//! The suite `pickers`: schedules, cursors, least request, slow start, probe order.

use std::time::Duration;

use plimsoll_core::edf::Edf;
use plimsoll_core::endpoint_picking::{
    bounded_load, least_request, random, round_robin, slow_start,
};
use plimsoll_core::rng::Script;
use serde::Deserialize;

use super::compare::Outcome;
use super::translate::length;
use super::{Case, CaseError};

const KINDS: [&str; 8] = [
    "edf",
    "unweighted_rr",
    "slow_start",
    "least_request_choices",
    "least_request_full_scan",
    "least_request_weight",
    "random",
    "bounded_load_order",
];

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "edf" => edf(&case.inputs()?),
        "unweighted_rr" => unweighted_rr(&case.inputs()?, case.expected_len("sequence")),
        "slow_start" => Ok(slow_start(&case.inputs()?)),
        "least_request_choices" => least_request_choices(case.inputs()?),
        "least_request_full_scan" => Ok(least_request_full_scan(case.inputs()?)),
        "least_request_weight" => Ok(least_request_weight(&case.inputs()?)),
        "random" => random(&case.inputs()?),
        "bounded_load_order" => bounded_load_order(&case.inputs()?),
        _ => Err(CaseError::unknown_kind(case, &KINDS)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EdfInputs {
    weights: Vec<f64>,
    #[serde(default)]
    seed: u64,
    steps: Vec<Step>,
}

/// New weights first, then a rebuild, then picks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    set_weights: Option<Vec<f64>>,
    rebuild: Option<Rebuild>,
    #[serde(default)]
    picks: u64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Rebuild {
    /// With the weights there are.
    Flag(bool),
    /// With these.
    Weights(Vec<f64>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundRobinInputs {
    hosts: u64,
    #[serde(default)]
    seed: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowStartInputs {
    elapsed_ms: u64,
    window_ms: u64,
    aggression: Option<f64>,
    min_weight_percent: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoicesInputs {
    active: Vec<u64>,
    #[serde(default)]
    random: Vec<u64>,
    choice_count: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FullScanInputs {
    active: Vec<u64>,
    #[serde(default)]
    random: Vec<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightInputs {
    weight: f64,
    active: u64,
    bias: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RandomInputs {
    random: u64,
    hosts: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeInputs {
    hash: u64,
    hosts: u64,
}

fn edf(inputs: &EdfInputs) -> Result<Outcome, CaseError> {
    let mut weights = inputs.weights.clone();
    let mut schedule = build(&weights, inputs.seed)?;
    let mut sequence = Vec::new();
    for step in &inputs.steps {
        let hosts = weights.len();
        if let Some(changed) = &step.set_weights {
            weights.clone_from(changed);
        }
        if let Some(Rebuild::Weights(changed)) = &step.rebuild {
            weights.clone_from(changed);
        }
        // Every change of membership rebuilds (envoy-semantics §8.1), asked for or not.
        let asked = !matches!(step.rebuild, None | Some(Rebuild::Flag(false)));
        if asked || weights.len() != hosts {
            schedule = build(&weights, inputs.seed)?;
        }
        for _ in 0..length(step.picks, "steps[].picks")? {
            sequence.push(schedule.pick(|host| weights[host as usize]));
        }
    }
    Ok(Outcome::default().exact("sequence", sequence))
}

fn build(weights: &[f64], seed: u64) -> Result<Edf, CaseError> {
    if weights.iter().any(|&weight| weight <= 0.0) {
        return Err(CaseError::inputs(format!(
            "weights {weights:?}: must be above 0"
        )));
    }
    if weights.is_empty() {
        return Ok(Edf::default());
    }
    let items: Vec<_> = (0..).zip(weights.iter().copied()).collect();
    Ok(Edf::with_emulated_picks(&items, seed))
}

fn unweighted_rr(inputs: &RoundRobinInputs, picks: usize) -> Result<Outcome, CaseError> {
    let hosts = length(inputs.hosts, "hosts")?;
    let picks = length(picks as u64, "expected.sequence")?;
    let cursors = std::iter::successors(Some(inputs.seed), |cursor| Some(cursor.wrapping_add(1)));
    let sequence = cursors
        .take(picks)
        .map(|cursor| round_robin::index(cursor, hosts));
    Ok(Outcome::default().exact("sequence", sequence.collect::<Vec<_>>()))
}

fn slow_start(inputs: &SlowStartInputs) -> Outcome {
    let elapsed = Duration::from_millis(inputs.elapsed_ms);
    let window = Duration::from_millis(inputs.window_ms);
    let aggression = inputs.aggression.unwrap_or(1.0);
    let min_weight_percent = inputs.min_weight_percent.unwrap_or(10.0);
    let factor = slow_start::factor(elapsed, window, aggression, min_weight_percent);
    Outcome::default().exact("factor", factor)
}

fn least_request_choices(inputs: ChoicesInputs) -> Result<Outcome, CaseError> {
    let ChoicesInputs {
        active,
        random,
        choice_count,
    } = inputs;
    let choices = choice_count.unwrap_or(2);
    length(choices.into(), "choice_count")?;
    let mut rng = Script::new(random);
    let host = least_request::choose(active.len(), choices, &mut rng, |host| active[host]);
    Ok(Outcome::default()
        .exact("host", host)
        .exact("random_draws_used", rng.used()))
}

fn least_request_full_scan(inputs: FullScanInputs) -> Outcome {
    let FullScanInputs { active, random } = inputs;
    let mut rng = Script::new(random);
    let host = least_request::full_scan(active.len(), &mut rng, |host| active[host]);
    Outcome::default()
        .exact("host", host)
        .exact("random_draws_used", rng.used())
}

fn least_request_weight(inputs: &WeightInputs) -> Outcome {
    let bias = inputs.bias.unwrap_or(1.0);
    Outcome::default().exact(
        "weight",
        least_request::weight(inputs.weight, inputs.active, bias),
    )
}

fn random(inputs: &RandomInputs) -> Result<Outcome, CaseError> {
    let hosts = length(inputs.hosts, "hosts")?;
    Ok(Outcome::default().exact("host", random::index(inputs.random, hosts)))
}

fn bounded_load_order(inputs: &ProbeInputs) -> Result<Outcome, CaseError> {
    let hosts = length(inputs.hosts, "hosts")?;
    Ok(Outcome::default().exact("order", bounded_load::probe_order(inputs.hash, hosts)))
}

#[cfg(test)]
mod tests;
