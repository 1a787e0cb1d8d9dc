//! Cases of zone-aware routing as a cluster of the engine: hosts with the counts of the case in,
//! the routing state of the snapshot out.
//!
//! Some cases have numbers that no hosts can have, such as sizes of flat lists. For these, the
//! functions of the core are all there is.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::counts::LocalityCounts;
use plimsoll_core::locality_picking::zone_aware::ZoneRouting;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;

use super::inputs::{FlatInput, HostSetInput, RoutingInputs, fraction_map};
use super::{Regenerated, describe};
use crate::{CaseError, Engine, Unsupported};

const NOW: Instant = Instant::from_secs(1);
/// What a cluster and the functions must agree on. The order of localities is that of their names
/// in a cluster, and that of the case in the functions; what follows it is not compared.
const COMPARED: [&str; 3] = ["state", "early_exit", "local_percent_to_route"];

/// Returns an error if a cluster with these hosts comes to another state, or if there can be none
/// and the engine runs no functions.
pub(super) fn check(
    inputs: &RoutingInputs,
    functions: &Regenerated,
    engine: &dyn Engine,
) -> Result<(), CaseError> {
    let zone = match routing(inputs, functions, engine) {
        Err(CaseError::Unsupported(_)) if engine.runs_functions() => return Ok(()),
        routing => routing?,
    };
    let (expected, actual) = (describe(&functions.zone), describe(&zone));
    let differs = |field: &&str| expected[*field] != actual[*field];
    match COMPARED.into_iter().find(differs) {
        None => Ok(()),
        Some(field) => Err(CaseError::Wrong {
            field,
            expected: format!("{}, as from counts of hosts", expected[field]),
            actual: format!("{} from hosts", actual[field]),
        }),
    }
}

fn routing(
    inputs: &RoutingInputs,
    functions: &Regenerated,
    engine: &dyn Engine,
) -> Result<ZoneRouting, CaseError> {
    if inputs.literal_fractions.is_some() {
        return Err(Unsupported("fractions without a unit").into());
    }
    if inputs.priority > 0 {
        return Err(Unsupported("hosts at a priority alone").into());
    }
    let config = Arc::new(functions.cluster.clone());
    let upstream = assignment(&inputs.upstream, 1)?;
    let mut cluster = engine.start(&config, &own(inputs)?, NOW)?;
    cluster.handle_hosts(upstream, NOW)?;
    if let Some(fleet) = &inputs.local {
        cluster.handle_fleet(assignment(fleet, 2)?, NOW)?;
    }
    if let Some(fractions) = &inputs.measured_fractions {
        cluster.handle_observed_traffic(fraction_map(fractions)?, NOW);
    }
    let snapshot = cluster.snapshot();
    let policy = snapshot.source_policy(0);
    let policy = policy.ok_or_else(|| CaseError::inputs("the cluster has no hosts"))?;
    Ok(policy.zone.clone())
}

/// Returns the locality of the proxy, on which both host sets must agree.
fn own(inputs: &RoutingInputs) -> Result<Locality, Unsupported> {
    let sets = || std::iter::once(&inputs.upstream).chain(&inputs.local);
    let first = |set: &HostSetInput| set.localities.first().map(|first| first.counts().locality);
    let own = sets()
        .filter(|set| set.has_local_locality)
        .find_map(first)
        .unwrap_or_else(|| Locality::zone_only("elsewhere"));
    let agree = |set: &HostSetInput| {
        let mut localities = set.localities.iter().map(|entry| entry.counts().locality);
        if set.has_local_locality {
            localities.next().as_ref() == Some(&own)
        } else {
            localities.all(|locality| locality != own)
        }
    };
    if sets().all(agree) {
        return Ok(own);
    }
    Err(Unsupported("host sets of proxies in two localities"))
}

/// Returns hosts with the counts of a host set.
fn assignment(set: &HostSetInput, network: u8) -> Result<ClusterLoadAssignment, CaseError> {
    if set.flat != FlatInput::default() {
        return Err(Unsupported("sizes of lists that differ from the sums").into());
    }
    let mut endpoints = Vec::new();
    for (slot, entry) in (0_u8..).zip(&set.localities) {
        let counts = entry.counts();
        if counts.excluded > 0 {
            return Err(Unsupported("excluded hosts").into());
        }
        if counts.all == 0 && slot == 0 && set.has_local_locality {
            return Err(Unsupported("a local locality without hosts").into());
        }
        let weight = |number: usize| entry.healthy_weights()?.get(number).copied();
        let hosts = (0_u16..).zip(healths(&counts)).map(|(number, health)| {
            let [high, low] = number.to_be_bytes();
            let address = SocketAddr::from(([10, network, slot, low], 80 + u16::from(high)));
            LbEndpoint {
                health_status: health,
                load_balancing_weight: weight(number.into()).map(|weight| weight.max(1)),
                ..LbEndpoint::new(address)
            }
        });
        let lb_endpoints: Vec<_> = hosts.collect();
        if !lb_endpoints.is_empty() {
            endpoints.push(LocalityParts {
                locality: counts.locality.clone(),
                lb_endpoints,
                ..LocalityParts::default()
            });
        }
    }
    Ok(ClusterLoadAssignment::try_new(AssignmentParts {
        endpoints,
        ..AssignmentParts::default()
    })?)
}

/// Returns the health of every host of a locality: healthy hosts first, then degraded ones.
fn healths(counts: &LocalityCounts) -> impl Iterator<Item = HealthStatus> + use<> {
    let (all, healthy, degraded) = (counts.all, counts.healthy, counts.degraded);
    (0..all).map(move |number| match number {
        _ if number < healthy => HealthStatus::Healthy,
        _ if number < healthy + degraded => HealthStatus::Degraded,
        _ => HealthStatus::Unhealthy,
    })
}
