//! Suite `priority`: load and panic mode of priorities, and the priority chosen for a request.

use plimsoll_core::counts::{ClassCounts, HostSetCounts};
use plimsoll_core::host_source::SourcePolicy;
use plimsoll_core::locality_picking::sampling::LocalitySampler;
use plimsoll_core::locality_picking::zone_aware::{Reason, ZoneRouting};
use plimsoll_core::model::assignment::DEFAULT_OVERPROVISIONING_FACTOR;
use plimsoll_core::model::cluster::DEFAULT_PANIC_THRESHOLD;
use plimsoll_core::priority::{PriorityHealthPolicy, PriorityLoads, choose_priority};
use plimsoll_core::rng::ScriptedRng;
use plimsoll_core::stats::PickerStats;
use serde::Deserialize;
use serde_json::{Value, json};

use super::translate::{availability, source};
use super::{Case, CaseError, CaseResult};

/// Highest priority that an assignment may have.
const MAX_PRIORITY: usize = 128;

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "load" => load(&case.inputs()?),
        "choose_priority" => choose(case),
        _ => Err(CaseError::unknown_kind(case)),
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

/// A step: sets a panic threshold, the host set of one priority, or both in this order.
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

fn load(inputs: &LoadInputs) -> CaseResult {
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
    let fails = inputs.fail_traffic_on_panic;
    Ok(json!({
        "healthy_load": loads.healthy_load(),
        "degraded_load": loads.degraded_load(),
        "panic": loads.panic(),
        "health": loads.health(),
        "degraded_availability": loads.degraded_availability(),
        "pick": inputs.hash.map(|hash| pick(&loads, hash, fails)),
    })
    .into())
}

/// Returns priority and host source for a request with this hash, without a locality policy.
fn pick(loads: &PriorityLoads, hash: u64, fail_traffic_on_panic: bool) -> Value {
    let (priority, availability) = loads.choose(hash);
    let policy = SourcePolicy {
        panic: loads.panic().get(priority).copied().unwrap_or(false),
        fail_traffic_on_panic,
        routing_enabled: 100,
        fleet_panic: false,
        zone: ZoneRouting::off(Reason::NoLocalCluster),
    };
    let chosen = policy.choose(
        availability,
        || None,
        &mut LocalitySampler::Random,
        &mut ScriptedRng::default(),
        &PickerStats::default(),
    );
    json!({"priority": priority, "source": chosen.map(|chosen| source(chosen).0)})
}

fn choose(case: &Case) -> CaseResult {
    let loads = |key: &str| case.input::<Vec<u32>>(key);
    let (healthy, degraded) = (loads("healthy_load")?, loads("degraded_load")?);
    let (priority, chosen) = choose_priority(case.input("hash")?, &healthy, &degraded);
    Ok(json!({"priority": priority, "availability": availability(chosen)}).into())
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
