//! The suite `priority`: load and panic of priorities, and what one draw chooses.

use plimsoll_core::counts::{ClassCounts, HostSetCounts};
use plimsoll_core::host_source::SourcePolicy;
use plimsoll_core::locality_picking::sampling::LocalitySampler;
use plimsoll_core::locality_picking::zone_aware::{Reason, ZoneRouting};
use plimsoll_core::model::assignment::DEFAULT_OVERPROVISIONING_FACTOR;
use plimsoll_core::model::cluster::DEFAULT_PANIC_THRESHOLD;
use plimsoll_core::priority::{PriorityHealthPolicy, PriorityLoads, choose_priority};
use plimsoll_core::rng::Script;
use plimsoll_core::stats::PickerStats;
use serde::Deserialize;
use serde_json::{Value, json};

use super::compare::Outcome;
use super::translate::{availability, source};
use super::{Case, CaseError};

/// Highest priority of an assignment.
const MAX_PRIORITY: usize = 128;

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "load" => load(&case.inputs()?),
        "choose_priority" => Ok(choose(&case.inputs()?)),
        _ => Err(CaseError::unknown_kind(case, &["load", "choose_priority"])),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadInputs {
    panic_threshold: Option<u32>,
    updates: Vec<Update>,
    hash: Option<u64>,
    #[serde(default)]
    fail_traffic_on_panic: bool,
}

/// A host set of one priority, or a threshold for what follows, or the second and then the first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    panic_threshold: Option<u32>,
    priority: Option<usize>,
    host_set: Option<HostSetInput>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostSetInput {
    hosts: u64,
    healthy: Option<u64>,
    #[serde(default)]
    degraded: u64,
    #[serde(default)]
    excluded: u64,
    overprovisioning_factor: Option<u32>,
    #[serde(default)]
    weighted_priority_health: bool,
    host_weights: Option<Vec<HostWeight>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostWeight {
    class: HostClass,
    weight: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HostClass {
    Healthy,
    Degraded,
    Unhealthy,
    Excluded,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChooseInputs {
    hash: u64,
    healthy_load: Vec<u32>,
    degraded_load: Vec<u32>,
}

fn load(inputs: &LoadInputs) -> Result<Outcome, CaseError> {
    let mut threshold = inputs
        .panic_threshold
        .unwrap_or(DEFAULT_PANIC_THRESHOLD)
        .min(100);
    let mut loads = PriorityLoads::default();
    let mut sets: Vec<HostSetCounts> = Vec::new();
    for (index, update) in inputs.updates.iter().enumerate() {
        if let Some(changed) = update.panic_threshold {
            threshold = changed.min(100);
        }
        let (priority, input) = match (update.priority, &update.host_set) {
            (Some(priority @ ..=MAX_PRIORITY), Some(input)) => (priority, input),
            (None, None) if update.panic_threshold.is_some() => continue,
            _ => {
                let reason = format!("updates[{index}]: needs a host_set and a priority up to 128");
                return Err(CaseError::inputs(reason));
            }
        };
        if sets.len() <= priority {
            sets.resize(priority + 1, HostSetCounts::default());
        }
        sets[priority] = input.counts();
        loads.set_health(priority, &sets[priority], input.policy()?);
        loads.recalculate(sets.iter(), threshold);
    }
    let outcome = Outcome::default()
        .exact("healthy_load", loads.healthy_load())
        .exact("degraded_load", loads.degraded_load())
        .exact("panic", loads.panic())
        .exact("health", loads.health())
        .exact("degraded_availability", loads.degraded_availability());
    Ok(match inputs.hash {
        Some(hash) => outcome.exact("pick", pick(&loads, hash, inputs.fail_traffic_on_panic)),
        None => outcome,
    })
}

/// The list that serves a request with this hash, without any locality policy.
fn pick(loads: &PriorityLoads, hash: u64, fail_traffic_on_panic: bool) -> Value {
    let (priority, availability) = loads.choose(hash);
    let policy = SourcePolicy {
        panic: loads.panic().get(priority).copied().unwrap_or(false),
        fail_traffic_on_panic,
        routing_enabled: 100,
        fleet_panic: false,
        zone: ZoneRouting::off(Reason::NoLocalCluster),
    };
    let draws = (&mut LocalitySampler::Random, &mut Script::default());
    let chosen = policy.choose(availability, || None, draws, &PickerStats::default());
    json!({"priority": priority, "source": chosen.map(|chosen| source(chosen).0)})
}

fn choose(inputs: &ChooseInputs) -> Outcome {
    let (priority, chosen) =
        choose_priority(inputs.hash, &inputs.healthy_load, &inputs.degraded_load);
    Outcome::default()
        .exact("priority", priority)
        .exact("availability", availability(chosen))
}

impl HostSetInput {
    fn counts(&self) -> HostSetCounts {
        let flat = ClassCounts {
            all: self.hosts,
            healthy: self.healthy.unwrap_or(self.hosts),
            degraded: self.degraded,
            excluded: self.excluded,
        };
        let mut weights = flat;
        if let Some(hosts) = &self.host_weights {
            weights = ClassCounts::default();
            for host in hosts {
                // A host weighs at least 1 (envoy-semantics §1.1).
                let weight = u64::from(host.weight.max(1));
                weights.all += weight;
                match host.class {
                    HostClass::Healthy => weights.healthy += weight,
                    HostClass::Degraded => weights.degraded += weight,
                    HostClass::Excluded => weights.excluded += weight,
                    HostClass::Unhealthy => {}
                }
            }
        }
        HostSetCounts {
            flat,
            weights,
            ..HostSetCounts::default()
        }
    }

    fn policy(&self) -> Result<PriorityHealthPolicy, CaseError> {
        let factor = self
            .overprovisioning_factor
            .unwrap_or(DEFAULT_OVERPROVISIONING_FACTOR);
        if factor == 0 {
            return Err(CaseError::inputs(
                "overprovisioning_factor: must be above 0",
            ));
        }
        Ok(PriorityHealthPolicy {
            overprovisioning_factor: factor,
            weighted_priority_health: self.weighted_priority_health,
        })
    }
}

#[cfg(test)]
mod tests;
