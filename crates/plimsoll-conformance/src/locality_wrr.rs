//! Suite `locality_wrr`: effective weights of localities, and the order in which they are picked.

use plimsoll_core::edf::Edf;
use plimsoll_core::locality_picking::locality_weighted::{
    WeightedSlot, effective_weights, schedule,
};
use plimsoll_core::model::assignment::DEFAULT_OVERPROVISIONING_FACTOR;
use plimsoll_core::priority::Availability;
use serde::Deserialize;
use serde_json::{Value, json};

use super::compare::table;
use super::translate::{AvailabilityName, LocalityInput, length};
use super::{Case, CaseError, CaseResult};

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "wrr" => wrr(case, &case.inputs()?),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrrInputs {
    localities: Vec<LocalityInput>,
    overprovisioning_factor: Option<u32>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    seeds: Vec<u64>,
    availability: Option<AvailabilityName>,
    /// Alternative way for a case to request the schedule of degraded hosts.
    #[serde(default)]
    degraded: bool,
}

fn wrr(case: &Case, inputs: &WrrInputs) -> CaseResult {
    let factor = inputs
        .overprovisioning_factor
        .unwrap_or(DEFAULT_OVERPROVISIONING_FACTOR);
    let availability = inputs
        .availability
        .map_or(Availability::Healthy, Into::into);
    let degraded = inputs.degraded || availability == Availability::Degraded;
    let slots: Vec<_> = inputs
        .localities
        .iter()
        .map(|slot| weighted(slot, degraded))
        .collect();
    let effective = effective_weights(&slots, factor);
    let weights = effective.clone().unwrap_or_else(|| vec![0.0; slots.len()]);
    // Without weights there is no schedule (envoy-semantics §3.1): picks return `None`.
    let start = |seed| Schedule {
        edf: effective
            .as_ref()
            .map_or_else(Edf::default, |weights| schedule(weights, seed)),
        weights: &weights,
    };

    let mut scheduled = start(inputs.seed);
    let sequence: Vec<_> = (0..case.expected_len("sequence"))
        .map(|_| scheduled.pick())
        .collect();
    let mut scheduled = start(inputs.seed);
    let total = case.expected.get("counts").map_or(0, total);
    let picks = (0..length(total, "expected.counts")?).map(|_| scheduled.pick());
    let counts = count(picks, slots.len());
    let first = inputs.seeds.iter().map(|&seed| start(seed).pick());
    let first_pick_by_seed = count(first, slots.len());
    let by_index = weights.iter().enumerate();
    Ok(json!({
        "scheduler": effective.is_some(),
        "effective_weights": table(by_index.map(|(index, &weight)| (index.to_string(), weight))),
        "sequence": sequence,
        "counts": counts,
        "first_pick_by_seed": first_pick_by_seed,
    })
    .into())
}

/// A schedule, and the weights with which picked localities are scheduled again.
struct Schedule<'a> {
    edf: Edf,
    weights: &'a [f64],
}

impl Schedule<'_> {
    fn pick(&mut self) -> Option<u32> {
        self.edf.pick(|item| self.weights[item as usize])
    }
}

fn weighted(input: &LocalityInput, degraded: bool) -> WeightedSlot {
    let counts = input.counts();
    WeightedSlot {
        weight: input.weight.unwrap_or(0),
        considered: counts.all.saturating_sub(counts.excluded),
        eligible: if degraded {
            counts.degraded
        } else {
            counts.healthy
        },
    }
}

/// Returns the sum of `counts`: the number of picks to make.
fn total(counts: &Value) -> u64 {
    let counts = counts.as_array().into_iter().flatten();
    counts
        .filter_map(Value::as_u64)
        .fold(0, u64::saturating_add)
}

fn count(picks: impl Iterator<Item = Option<u32>>, slots: usize) -> Vec<u64> {
    let mut counts = vec![0; slots];
    for slot in picks.flatten() {
        counts[slot as usize] += 1;
    }
    counts
}
