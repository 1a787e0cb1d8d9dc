//! The suite `zone_aware`: regeneration, host source, configuration, and order of localities.
//!
//! Settings resolve through `ClusterConfig`, as those of a real cluster do. What cases say, and its
//! translation, lives in `inputs`.

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
use plimsoll_core::rng::{Rng as _, Script};
use plimsoll_core::stats::{BalancerStats, PickerStats};
use serde_json::{Value, json};

use super::compare::Outcome;
use super::translate::{source, triple};
use super::{Case, CaseError};
use inputs::{ConfigInputs, OrderInputs, RoutingInputs, Triple, cluster, host_set, literal_demand};

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    match case.kind.as_str() {
        "state" => state(&case.inputs()?),
        "pick" => pick(&case.inputs()?),
        "config" => config(&case.inputs()?),
        "order" => Ok(order(case.inputs()?)),
        _ => Err(CaseError::unknown_kind(
            case,
            &["state", "pick", "config", "order"],
        )),
    }
}

/// One regeneration.
struct Regenerated {
    cluster: ClusterConfig,
    upstream: HostSetCounts,
    fleet: Option<HostSetCounts>,
    zone: ZoneRouting,
}

fn state(inputs: &RoutingInputs) -> Result<Outcome, CaseError> {
    let of_a_pick = [
        ("random", inputs.random.is_some()),
        ("zone_routing_draw", inputs.zone_routing_draw.is_some()),
        ("availability", inputs.availability.is_some()),
    ];
    if let Some((key, _)) = of_a_pick.into_iter().find(|&(_, present)| present) {
        let reason = format!("unknown field `{key}`: a state is not picked from");
        return Err(CaseError::inputs(reason));
    }
    Ok(describe(&regenerate(inputs)?.zone))
}

fn pick(inputs: &RoutingInputs) -> Result<Outcome, CaseError> {
    let regenerated = regenerate(inputs)?;
    let outcome = describe(&regenerated.zone);
    let Regenerated {
        cluster,
        upstream,
        fleet,
        zone,
    } = regenerated;
    let zone_aware = zone_aware_of(&cluster)?;
    let threshold = cluster.panic_threshold();

    let mut rng = Script::new(inputs.random.clone().unwrap_or_default());
    let mut loads = PriorityLoads::default();
    let policy = PriorityHealthPolicy {
        overprovisioning_factor: DEFAULT_OVERPROVISIONING_FACTOR,
        weighted_priority_health: false,
    };
    // The host set stands alone, also where the case calls it priority 1.
    let sets = [upstream];
    loads.set_health(0, &sets[0], policy);
    loads.recalculate(sets.iter(), threshold);
    let (priority, chosen) = loads.choose(rng.next_u64());

    // The outcome of the sampling is given, and is not a value of the generator. What can never
    // succeed is not asked for.
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
    let picked = policy.choose(availability, || None, (sampler, &mut rng), &stats);
    let picked = picked.map_or(Value::Null, |picked| {
        let (name, index) = source(picked);
        json!({"source": name, "locality_index": index})
    });
    Ok(outcome
        .exact("pick", picked)
        .sparse(
            "pick_stats",
            stats.iter().map(|(name, count)| (name.to_owned(), count)),
        )
        .exact("random_draws_used", rng.used()))
}

fn config(inputs: &ConfigInputs) -> Result<Outcome, CaseError> {
    let threshold = inputs.healthy_panic_threshold_percent;
    let cluster = cluster(&inputs.config, &inputs.runtime, threshold)?;
    let resolved = zone_aware_of(&cluster)?;
    let basis = serde_json::to_value(resolved.locality_basis())
        .map_err(|error| CaseError::inputs(error.to_string()))?;
    Ok(Outcome::default()
        .exact("force_min", resolved.force_local_zone())
        .exact("min_cluster_size", resolved.min_cluster_size())
        .exact("routing_enabled", resolved.routing_enabled())
        .exact("fail_on_panic", resolved.fail_traffic_on_panic())
        .exact("basis", basis)
        .exact("panic_threshold", cluster.panic_threshold()))
}

fn order(inputs: OrderInputs) -> Outcome {
    let locality = |(region, zone, sub_zone): Triple| Locality::new(&region, &zone, &sub_zone);
    let own = inputs
        .node_locality
        .map(locality)
        .filter(|own| !own.is_unset());
    let mut slots: Vec<_> = inputs.localities.into_iter().map(locality).collect();
    // Hosts are grouped: a locality that is named twice is one slot.
    slots.sort();
    slots.dedup();
    let has_local_locality = HostSetCounts::order(&mut slots, own.as_ref(), |slot| slot);
    Outcome::default()
        .exact("order", slots.iter().map(triple).collect::<Vec<_>>())
        .exact("has_local_locality", has_local_locality)
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
            let demand = match &inputs.literal_fractions {
                Some(fractions) => literal_demand(fractions, fleet),
                None => match settings.locality_basis() {
                    LocalityBasis::HealthyHostsWeight => Demand::from_host_weights(fleet),
                    // Without measurements the measured bases fall back to counts (D3, D5).
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
        .ok_or_else(|| CaseError::inputs("no zone-aware settings came out"))
}

/// The fields of one regeneration.
fn describe(zone: &ZoneRouting) -> Outcome {
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
    let percentages = zone.is_active().then(|| {
        let pair = |shares: &zone_aware::Percentages| json!([shares.local, shares.upstream]);
        zone.percentages.iter().map(pair).collect::<Vec<_>>()
    });
    // No tests were made: nothing was regenerated.
    let regenerated = u64::from(!zone.preconditions.is_empty());
    let bumped = |counter: &str| {
        if counter == "lb_recalculate_zone_structures" {
            regenerated
        } else {
            u64::from(failed.and_then(Reason::counter) == Some(counter))
        }
    };
    let stats = BalancerStats::default();
    Outcome::default()
        .exact("early_exit", failed.map(Reason::code))
        .exact("state", name)
        .exact("percentages", percentages)
        .exact(
            "local_percent_to_route",
            residual.map(|residual| residual.local_percent_to_route),
        )
        .exact(
            "residual_capacity",
            residual.map(|residual| residual.capacity.clone()),
        )
        .sparse(
            "regenerate_stats",
            stats
                .iter()
                .map(|(name, _)| (name.to_owned(), bumped(name))),
        )
}

#[cfg(test)]
mod tests;
