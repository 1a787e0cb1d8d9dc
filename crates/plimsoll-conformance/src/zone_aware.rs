//! Suite `zone_aware`: routing state, host source, configuration, and order of localities. Settings
//! are resolved by `ClusterConfig`, as in production. `inputs` translates the cases. Functions
//! compute the outcome from counts of hosts; a cluster of the engine whose hosts have these counts
//! must come to the same state (`hosts`).

mod hosts;
mod inputs;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::host_source::SourcePolicy;
use plimsoll_core::locality_picking::demand::Demand;
use plimsoll_core::locality_picking::sampling::LocalitySampler;
use plimsoll_core::locality_picking::zone_aware::{self, Reason, ZoneRouting, ZoneState};
use plimsoll_core::model::assignment::DEFAULT_OVERPROVISIONING_FACTOR;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::priority::{PriorityHealthPolicy, PriorityLoads};
use plimsoll_core::rng::{Rng as _, ScriptedRng};
use plimsoll_core::stats::{BalancerStats, PickerStats};
use serde_json::{Value, json};

use super::compare::{Outcome, table};
use super::translate::{source, triple};
use super::{Case, CaseError, CaseResult, Engine};
use inputs::{
    ConfigInputs, OrderInputs, RoutingInputs, Triple, cluster, host_set, literal_demand,
    measured_demand,
};

pub(super) fn run(case: &Case, engine: &dyn Engine) -> CaseResult {
    match case.kind.as_str() {
        "state" => return state(&case.inputs()?, engine),
        "pick" => return pick(&case.inputs()?, engine),
        _ => CaseError::unless_functions(engine)?,
    }
    match case.kind.as_str() {
        "config" => config(&case.inputs()?),
        "order" => Ok(order(case.inputs()?)),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

struct Regenerated {
    cluster: ClusterConfig,
    upstream: HostSetCounts,
    fleet: Option<HostSetCounts>,
    zone: ZoneRouting,
}

fn state(inputs: &RoutingInputs, engine: &dyn Engine) -> CaseResult {
    let pick_only = [
        ("random", inputs.random.is_some()),
        ("zone_routing_draw", inputs.zone_routing_draw.is_some()),
        ("availability", inputs.availability.is_some()),
    ];
    if let Some((key, _)) = pick_only.into_iter().find(|&(_, present)| present) {
        let reason = format!("unknown field `{key}`: only for kind pick");
        return Err(CaseError::inputs(reason));
    }
    let regenerated = regenerate(inputs)?;
    hosts::check(inputs, &regenerated, engine)?;
    Ok(describe(&regenerated.zone).into())
}

fn pick(inputs: &RoutingInputs, engine: &dyn Engine) -> CaseResult {
    let regenerated = regenerate(inputs)?;
    hosts::check(inputs, &regenerated, engine)?;
    let mut outcome = describe(&regenerated.zone);
    let Regenerated {
        cluster,
        upstream,
        fleet,
        zone,
    } = regenerated;
    let zone_aware = zone_aware_of(&cluster)?;
    let threshold = cluster.panic_threshold();

    let mut rng = ScriptedRng::new(inputs.random.clone().unwrap_or_default());
    let mut loads = PriorityLoads::default();
    let policy = PriorityHealthPolicy {
        overprovisioning_factor: DEFAULT_OVERPROVISIONING_FACTOR,
        weighted_priority_health: false,
    };
    // The balancer has only this host set, even if the case calls it priority 1.
    let sets = [upstream];
    loads.set_health(0, &sets[0], policy);
    loads.recalculate(sets.iter(), threshold);
    let (priority, chosen) = loads.choose(rng.next_u64());

    // The case gives the outcome of `routing_enabled` sampling instead of a random number. Sampling
    // with 0 percent is skipped.
    let sampled = inputs
        .zone_routing_draw
        .unwrap_or(zone_aware.routing_enabled() > 0);
    let policy = SourcePolicy {
        panic: loads.panic().get(priority).copied().unwrap_or(false),
        fail_traffic_on_panic: zone_aware.fail_traffic_on_panic(),
        routing_enabled: if sampled { 100 } else { 0 },
        fleet_panic: fleet.is_some_and(|fleet| fleet.flat.in_panic(threshold)),
        zone,
    };
    let stats = PickerStats::default();
    let sampler = &mut LocalitySampler::Random;
    let availability = inputs.availability.map_or(chosen, Into::into);
    let picked = policy.choose(availability, || None, sampler, &mut rng, &stats);
    outcome["pick"] = picked.map_or(Value::Null, |picked| {
        let (name, index) = source(picked);
        json!({"source": name, "locality_index": index})
    });
    outcome["pick_stats"] = table(stats.iter());
    outcome["random_draws_used"] = rng.used().into();
    Ok(outcome.into())
}

fn config(inputs: &ConfigInputs) -> CaseResult {
    let threshold = inputs.healthy_panic_threshold_percent;
    let cluster = cluster(&inputs.config, &inputs.runtime, threshold)?;
    let resolved = zone_aware_of(&cluster)?;
    Ok(json!({
        "force_min": resolved.force_local_zone(),
        "min_cluster_size": resolved.min_cluster_size(),
        "routing_enabled": resolved.routing_enabled(),
        "fail_on_panic": resolved.fail_traffic_on_panic(),
        "basis": resolved.locality_basis(),
        "panic_threshold": cluster.panic_threshold(),
    })
    .into())
}

fn order(inputs: OrderInputs) -> Outcome {
    let locality = |(region, zone, sub_zone): Triple| Locality::new(&region, &zone, &sub_zone);
    let own = inputs
        .node_locality
        .map(locality)
        .filter(|own| !own.is_unset());
    let mut slots: Vec<_> = inputs.localities.into_iter().map(locality).collect();
    // Hosts are grouped by locality: a locality that the case names twice is one slot.
    slots.sort();
    slots.dedup();
    let has_local_locality = HostSetCounts::order(&mut slots, own.as_ref(), |slot| slot);
    let order: Vec<_> = slots.iter().map(triple).collect();
    json!({"order": order, "has_local_locality": has_local_locality}).into()
}

fn regenerate(inputs: &RoutingInputs) -> Result<Regenerated, CaseError> {
    let threshold = inputs.healthy_panic_threshold_percent;
    let cluster = cluster(&inputs.config, &inputs.runtime, threshold)?;
    let upstream = host_set(&inputs.upstream);
    let fleet = inputs.local.as_ref().map(host_set);
    let settings = zone_aware_of(&cluster)?;
    let zone = match &fleet {
        None => ZoneRouting::off(Reason::NoLocalCluster),
        Some(_) if inputs.priority > 0 => ZoneRouting::off(Reason::PriorityNotZero),
        Some(fleet) => {
            let demand = match (&inputs.literal_fractions, &inputs.measured_fractions) {
                (_, Some(fractions)) => measured_demand(fractions, fleet)?,
                (Some(fractions), None) => literal_demand(fractions, fleet),
                (None, None) => match settings.locality_basis() {
                    LocalityBasis::HealthyHostsWeight => Demand::from_host_weights(fleet),
                    // Without measurements, the other bases fall back to host counts (0024, 0016).
                    _ => Demand::from_host_counts(fleet),
                },
            };
            zone_aware::regenerate(settings, &upstream, fleet, &demand)
        }
    };
    Ok(Regenerated {
        cluster,
        upstream,
        fleet,
        zone,
    })
}

fn zone_aware_of(cluster: &ClusterConfig) -> Result<&ZoneAware, CaseError> {
    cluster
        .zone_aware()
        .ok_or_else(|| CaseError::inputs("the cluster has no zone-aware settings"))
}

fn describe(zone: &ZoneRouting) -> Value {
    let failed = zone
        .preconditions
        .iter()
        .find(|test| !test.passed)
        .map(|test| test.reason);
    let (name, residual) = match &zone.state {
        ZoneState::NoLocalityRouting(_) => ("NoLocalityRouting", None),
        ZoneState::LocalityDirect => ("LocalityDirect", None),
        ZoneState::LocalityResidual(residual) => ("LocalityResidual", Some(residual)),
    };
    let pair = |shares: &zone_aware::Percentages| (shares.local, shares.upstream);
    let percentages: Vec<_> = zone.percentages.iter().map(pair).collect();
    // Without checked preconditions, zone structures were not recalculated.
    let regenerated = u64::from(!zone.preconditions.is_empty());
    let count = |counter: &str| {
        if counter == "lb_recalculate_zone_structures" {
            regenerated
        } else {
            u64::from(failed.and_then(Reason::counter) == Some(counter))
        }
    };
    let stats = BalancerStats::default();
    json!({
        "early_exit": failed.map(Reason::code),
        "state": name,
        "percentages": zone.is_active().then_some(percentages),
        "local_percent_to_route": residual.map(|residual| residual.local_percent_to_route),
        "residual_capacity": residual.map(|residual| &residual.capacity),
        "regenerate_stats": table(stats.iter().map(|(name, _)| (name, count(name)))),
    })
}
