//! Picks under load_aware_locality: one draw chooses priority and locality, the endpoint policy
//! picks within the locality's own hosts (envoy-semantics §4.4).
//!
//! The balancer computes the weights on a timer; this module only reads them. Hash policies use one
//! table per locality (decision 0025).

use super::state::HostPick;
use super::{Choice, ChosenPriority, PickContext, PickError, RequestHash, hashed};
use crate::host_source::{HostClass, HostSource};
use crate::locality_picking::load_aware_locality::{choose_locality, usable_slot};
use crate::locality_picking::sampling::LocalitySampler;
use crate::priority::Availability;
use crate::rng::{Rng, splitmix64};
use crate::snapshot::{LoadAwareSource, PriorityView, RoutingSnapshot};
use crate::stats::PickerStats;

/// Chooses a locality by the weights in `source`, then a host of it.
#[inline(never)]
pub(super) fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    view: &'p PriorityView,
    source: &'p LoadAwareSource,
    chosen: ChosenPriority,
    request: RequestHash,
    context: PickContext<'_, R>,
) -> Result<Choice<'p>, PickError> {
    let PickContext {
        state,
        rng,
        stats,
        active,
    } = context;
    let panic = view.source.panic;
    if panic {
        stats.lb_healthy_panic.increment();
    }
    let class = class_of(view, chosen.availability);
    let list_of = |slot: usize| HostSource::locality(class, slot);
    let fraction = match &mut state.sampler {
        LocalitySampler::Random => splitmix64(chosen.draw),
        LocalitySampler::LowDiscrepancy { position } => LocalitySampler::advance(position),
    };
    let slots = view.table.counts.localities.len();
    let wanted = choose_locality(fraction, &source.prefix_sums);
    let usable = |slot: usize| !view.table.list(list_of(slot)).is_empty();
    let slot = usable_slot(wanted, slots, usable).ok_or(PickError::NoHost)?;
    let covered = view.load_aware.as_ref().is_some_and(|table| table.covered);
    if !panic && covered && view.table.counts.has_local_locality {
        zone_counter(slot, source.all_local, stats).increment();
    }
    let (priority, list) = (chosen.priority, list_of(slot));
    if let Some(Some(table)) = source.hash.get(slot) {
        let hash = request.hash.unwrap_or_else(|| rng.next_u64());
        let index = hashed::index(table, snapshot, hash, request.attempt, &mut state.scratch)
            .ok_or(PickError::NoHost)?;
        return Ok(hashed::choice_of(table, index, priority, list));
    }
    let hosts = view.table.list(list);
    // A fresh draw: reusing the one that chose the locality would tie hosts to localities.
    let draw = rng.next_u64();
    let call = HostPick {
        snapshot,
        summary: &state.summary,
        draw,
        active,
    };
    let index = state.priorities[priority]
        .pick_host(&hosts, call, rng)
        .ok_or(PickError::NoHost)?;
    Ok(Choice::new(&hosts, index, priority, list))
}

/// Returns the weights for an availability; those of all hosts if the priority is in panic.
pub(super) fn source_of(
    view: &PriorityView,
    availability: Availability,
) -> Option<&LoadAwareSource> {
    let table = view.load_aware.as_deref()?;
    Some(&table.sources[class_of(view, availability)])
}

fn class_of(view: &PriorityView, availability: Availability) -> HostClass {
    if view.source.panic {
        HostClass::All
    } else {
        availability.into()
    }
}

const fn zone_counter(slot: usize, all_local: bool, stats: &PickerStats) -> &crate::stats::Counter {
    match (slot, all_local) {
        (0, true) => &stats.lb_zone_routing_all_directly,
        (0, false) => &stats.lb_zone_routing_sampled,
        _ => &stats.lb_zone_routing_cross_zone,
    }
}
