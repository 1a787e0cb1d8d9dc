//! Picks for retries: a host that was not tried yet, in another locality or priority if necessary
//! (docs/decisions/0008).
//!
//! The caller decides which hosts to avoid; this module finds alternatives. Consistent hashing has
//! its own order of hosts (`hashed`).

use std::sync::Arc;

use super::{Choice, ChosenPriority, PickArgs, PickContext, PickError, RESELECTIONS, RequestHash};
use crate::host::Host;
use crate::host_source::HostSource;
use crate::priority::Availability;
use crate::rng::Rng;
use crate::snapshot::RoutingSnapshot;

/// Chooses again while the host is one to avoid, as Envoy's retries do; then searches the list, the
/// priority and the other priorities. A second attempt at the same host is better than none.
pub(super) fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    mut context: PickContext<'_, R>,
) -> Result<Choice<'p>, PickError> {
    let mut request = RequestHash {
        hash: args.hash,
        attempt: 0,
    };
    loop {
        let choice = super::choose(snapshot, Some(request), context.reborrow())?;
        if !choice.is_one_of(args.avoid) {
            return Ok(choice);
        }
        if request.attempt == RESELECTIONS {
            let untried = search(snapshot, choice, args.avoid, context.rng).or_else(|| {
                other_priorities(snapshot, choice.priority)
                    .find_map(|priority| within(snapshot, priority, args, context.reborrow()))
            });
            return Ok(untried.unwrap_or(choice));
        }
        request.attempt += 1;
    }
}

/// Returns the other priorities, those after `priority` first.
pub(super) fn other_priorities(
    snapshot: &RoutingSnapshot,
    priority: usize,
) -> impl Iterator<Item = usize> + use<> {
    (priority + 1..snapshot.priorities.len()).chain(0..priority)
}

/// Chooses a host of `priority` that was not tried, as if it were the only priority.
#[cold]
fn within<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    priority: usize,
    args: PickArgs<'_>,
    mut context: PickContext<'_, R>,
) -> Option<Choice<'p>> {
    let counts = snapshot.counts(priority)?.flat;
    let availability = match (counts.healthy, counts.degraded) {
        (0, 0) => return None,
        (0, _) => Availability::Degraded,
        _ => Availability::Healthy,
    };
    let mut last = None;
    for attempt in 0..=RESELECTIONS {
        let chosen = ChosenPriority {
            priority,
            availability,
            draw: context.rng.next_u64(),
        };
        let request = RequestHash {
            hash: args.hash,
            attempt,
        };
        let choice =
            super::choose_within(snapshot, chosen, Some(request), context.reborrow()).ok()?;
        if !choice.is_one_of(args.avoid) {
            return Some(choice);
        }
        last = Some(choice);
    }
    search(snapshot, last?, args.avoid, context.rng)
}

/// Finds the next untried host of the list, or any of the flat list. The flat list is sampled
/// first: if a whole locality is avoided, its traffic must not all go to the hosts that follow it.
#[cold]
fn search<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    choice: Choice<'p>,
    avoid: &[Arc<Host>],
    rng: &mut R,
) -> Option<Choice<'p>> {
    let table = &snapshot.priorities[choice.priority].table;
    let choice_at = |source: HostSource, index: u32| {
        let list = table.list(source);
        let choice = Choice::new(&list, index, choice.priority, source);
        (!choice.is_one_of(avoid)).then_some(choice)
    };
    let scan = |source: HostSource, from: u32| {
        let len = table.list(source).len();
        let from = from.min(len);
        // Hosts in a list are distinct, so one more than were tried is enough.
        let mut indices = (from..len).chain(0..from).take(avoid.len() + 1);
        indices.find_map(|index| choice_at(source, index))
    };
    let flat = match choice.source {
        HostSource::LocalityHealthyHosts(_) => HostSource::HealthyHosts,
        HostSource::LocalityDegradedHosts(_) => HostSource::DegradedHosts,
        HostSource::LocalityAllHosts(_) => HostSource::AllHosts,
        same => same,
    };
    if let Some(untried) = scan(choice.source, choice.index) {
        return Some(untried);
    }
    let len = u64::from(table.list(flat).len().max(1));
    let mut draw = || u32::try_from(rng.next_u64() % len).unwrap_or_default();
    (0..=RESELECTIONS)
        .find_map(|_| choice_at(flat, draw()))
        .or_else(|| scan(flat, 0))
}
