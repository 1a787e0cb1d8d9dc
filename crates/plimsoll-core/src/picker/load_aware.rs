//! Picks under load_aware_locality: one draw chooses priority and locality, the endpoint policy
//! picks within the locality's own hosts (envoy-semantics §4.4).
//!
//! Weights are computed by the balancer on a timer; here they are only looked up. A hash policy
//! looks into a table over the locality's hosts (decisions D6).

use super::worker::Worker;
use super::{Choice, Chosen, PickError, RequestHash, class, hashed};
use crate::host_source::HostSource;
use crate::locality_picking::load_aware_locality::{choose_locality, mix, usable_slot};
use crate::locality_picking::sampling::LocalitySampler;
use crate::priority::Availability;
use crate::rng::Rng;
use crate::snapshot::{LoadAwareSource, PriorityView, RoutingSnapshot};
use crate::stats::PickerStats;

/// The host for one request.
#[inline(never)]
pub(super) fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    (view, source): (&'p PriorityView, &'p LoadAwareSource),
    (chosen, request): (Chosen, RequestHash),
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> Result<Choice<'p>, PickError> {
    let panic = view.source.panic;
    if panic {
        stats.lb_healthy_panic.increment();
    }
    let lists = |slot: usize| match (panic, chosen.availability) {
        (true, _) => HostSource::LocalityAllHosts(slot),
        (false, Availability::Healthy) => HostSource::LocalityHealthyHosts(slot),
        (false, Availability::Degraded) => HostSource::LocalityDegradedHosts(slot),
    };
    let fraction = match &mut worker.sampler {
        LocalitySampler::Random => mix(chosen.draw),
        LocalitySampler::LowDiscrepancy { position } => LocalitySampler::advance(position),
    };
    let slots = view.table.counts.localities.len();
    let wanted = choose_locality(fraction, &source.prefix_sums);
    let usable = |slot: usize| !view.table.list(lists(slot)).is_empty();
    let slot = usable_slot(wanted, slots, usable).ok_or(PickError::NoHost)?;
    let covered = view.load_aware.as_ref().is_some_and(|table| table.covered);
    if !panic && covered && view.table.counts.has_local_locality {
        zone_counter(slot, source.all_local, stats).increment();
    }
    let (priority, list) = (chosen.priority, lists(slot));
    if let Some(Some(table)) = source.hash.get(slot) {
        let index = hashed::index(table, snapshot, request.or_draw(rng), worker);
        let index = index.ok_or(PickError::NoHost)?;
        return Ok(hashed::choice_of(table, index, priority, list));
    }
    let hosts = view.table.list(list);
    let Worker {
        priorities, rules, ..
    } = worker;
    // The child draws for itself: the parent's draw would tie hosts to localities.
    let draw = rng.next_u64();
    let index = priorities[priority].pick_host(&hosts, snapshot, (rules, draw), rng);
    let index = index.ok_or(PickError::NoHost)?;
    Ok(Choice::new(&hosts, index, priority, list))
}

/// The weights for a priority and availability, panic considered.
pub(super) fn source_of(
    view: &PriorityView,
    availability: Availability,
) -> Option<&LoadAwareSource> {
    let table = view.load_aware.as_deref()?;
    Some(
        &table.sources[if view.source.panic {
            2
        } else {
            class(availability)
        }],
    )
}

const fn zone_counter(slot: usize, all_local: bool, stats: &PickerStats) -> &crate::stats::Counter {
    match (slot, all_local) {
        (0, true) => &stats.lb_zone_routing_all_directly,
        (0, false) => &stats.lb_zone_routing_sampled,
        _ => &stats.lb_zone_routing_cross_zone,
    }
}
