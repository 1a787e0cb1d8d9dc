//! Suite `pickers`: EDF schedules, round robin, least request, slow start, random, bounded load.

use std::time::Duration;

use plimsoll_core::edf::Edf;
use plimsoll_core::endpoint_picking::{
    bounded_load, least_request, random, round_robin, slow_start,
};
use plimsoll_core::rng::ScriptedRng;
use serde::Deserialize;
use serde_json::json;

use super::translate::length;
use super::{Case, CaseError, CaseResult};

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "edf" => edf(&case.inputs()?),
        "unweighted_rr" => unweighted_rr(case),
        "slow_start" => slow_start(case),
        "least_request_choices" => least_request_choices(case),
        "least_request_full_scan" => least_request_full_scan(case),
        "least_request_weight" => least_request_weight(case),
        "random" => random(case),
        "bounded_load_order" => bounded_load_order(case),
        _ => Err(CaseError::unknown_kind(case)),
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

/// One step of a case: first sets new weights, then rebuilds the schedule, then picks.
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
    /// Rebuild the schedule with the current weights.
    Flag(bool),
    /// Rebuild the schedule with new weights.
    Weights(Vec<f64>),
}

fn edf(inputs: &EdfInputs) -> CaseResult {
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
        // Every change of membership rebuilds the schedule (envoy-semantics §8.1).
        let requested = !matches!(step.rebuild, None | Some(Rebuild::Flag(false)));
        if requested || weights.len() != hosts {
            schedule = build(&weights, inputs.seed)?;
        }
        for _ in 0..length(step.picks, "steps[].picks")? {
            sequence.push(schedule.pick(|host| weights[host as usize]));
        }
    }
    Ok(json!({"sequence": sequence}).into())
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

fn unweighted_rr(case: &Case) -> CaseResult {
    let hosts = length(case.input("hosts")?, "hosts")?;
    let picks = length(case.expected_len("sequence") as u64, "expected.sequence")?;
    let seed = case.input::<Option<u64>>("seed")?;
    let cursors = std::iter::successors(seed.or(Some(0)), |cursor| Some(cursor.wrapping_add(1)));
    let sequence = cursors
        .take(picks)
        .map(|cursor| round_robin::index(cursor, hosts));
    Ok(json!({"sequence": sequence.collect::<Vec<_>>()}).into())
}

fn slow_start(case: &Case) -> CaseResult {
    let factor = slow_start::factor(
        Duration::from_millis(case.input("elapsed_ms")?),
        Duration::from_millis(case.input("window_ms")?),
        case.input::<Option<f64>>("aggression")?.unwrap_or(1.0),
        case.input::<Option<f64>>("min_weight_percent")?
            .unwrap_or(10.0),
    );
    Ok(json!({"factor": factor}).into())
}

/// Reads the requests in flight by host, and the random numbers of the case.
fn active_and_rng(case: &Case) -> Result<(Vec<u64>, ScriptedRng), CaseError> {
    let draws: Option<Vec<u64>> = case.input("random")?;
    Ok((
        case.input("active")?,
        ScriptedRng::new(draws.unwrap_or_default()),
    ))
}

fn least_request_choices(case: &Case) -> CaseResult {
    let (active, mut rng) = active_and_rng(case)?;
    let choices = case.input::<Option<u32>>("choice_count")?.unwrap_or(2);
    length(choices.into(), "choice_count")?;
    let host = least_request::choose(active.len(), choices, &mut rng, |host| active[host]);
    Ok(json!({"host": host, "random_draws_used": rng.used()}).into())
}

fn least_request_full_scan(case: &Case) -> CaseResult {
    let (active, mut rng) = active_and_rng(case)?;
    let host = least_request::full_scan(active.len(), &mut rng, |host| active[host]);
    Ok(json!({"host": host, "random_draws_used": rng.used()}).into())
}

fn least_request_weight(case: &Case) -> CaseResult {
    let bias = case.input::<Option<f64>>("bias")?.unwrap_or(1.0);
    let weight = least_request::weight(case.input("weight")?, case.input("active")?, bias);
    Ok(json!({"weight": weight}).into())
}

fn random(case: &Case) -> CaseResult {
    let hosts = length(case.input("hosts")?, "hosts")?;
    Ok(json!({"host": random::index(case.input("random")?, hosts)}).into())
}

fn bounded_load_order(case: &Case) -> CaseResult {
    let hosts = length(case.input("hosts")?, "hosts")?;
    Ok(json!({"order": bounded_load::probe_order(case.input("hash")?, hosts)}).into())
}
