//! Picks for requests that were tried before: another host, of another locality or priority if it
//! must be (docs/decisions/0008).
//!
//! Who is to be avoided is said by whoever tries; here is only where else there are hosts.
//! Consistent hashing has its own order of hosts (`hashed`).

use std::sync::Arc;

use super::worker::Worker;
use super::{Choice, Chosen, PickArgs, PickError, RESELECTIONS, RequestHash};
use crate::host::Host;
use crate::host_source::HostSource;
use crate::priority::Availability;
use crate::rng::Rng;
use crate::snapshot::RoutingSnapshot;
use crate::stats::PickerStats;

/// Decides, and decides again while the host was tried before, as Envoy's retry does; if that did
/// not help, searches the list and then the whole priority, and at last the other priorities. A
/// second try at the same host beats none.
pub(super) fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> Result<Choice<'p>, PickError> {
    let mut request = RequestHash {
        hash: args.hash,
        attempt: 0,
    };
    loop {
        let choice = super::choose(snapshot, Some(request), (worker, rng), stats)?;
        if !choice.is_one_of(args.avoid) {
            return Ok(choice);
        }
        if request.attempt == RESELECTIONS {
            let untried = search(snapshot, choice, args.avoid, rng).or_else(|| {
                let mut others = other_priorities(snapshot, choice.priority);
                others.find_map(|priority| within(snapshot, priority, args, (worker, rng), stats))
            });
            return Ok(untried.unwrap_or(choice));
        }
        request.attempt += 1;
    }
}

/// The other priorities, those after `priority` first.
pub(super) fn other_priorities(
    snapshot: &RoutingSnapshot,
    priority: usize,
) -> impl Iterator<Item = usize> + use<> {
    (priority + 1..snapshot.priorities.len()).chain(0..priority)
}

/// A host of `priority` that was not tried, chosen as if it were the only priority.
#[cold]
fn within<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    priority: usize,
    args: PickArgs<'_>,
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> Option<Choice<'p>> {
    let counts = snapshot.counts(priority)?.flat;
    let availability = match (counts.healthy, counts.degraded) {
        (0, 0) => return None,
        (0, _) => Availability::Degraded,
        _ => Availability::Healthy,
    };
    let mut last = None;
    for attempt in 0..=RESELECTIONS {
        let chosen = Chosen {
            priority,
            availability,
            draw: rng.next_u64(),
        };
        let request = RequestHash {
            hash: args.hash,
            attempt,
        };
        let decision = (chosen, Some(request));
        let choice = super::choose_within(snapshot, decision, (worker, rng), stats).ok()?;
        if !choice.is_one_of(args.avoid) {
            return Some(choice);
        }
        last = Some(choice);
    }
    search(snapshot, last?, args.avoid, rng)
}

/// The next host of the list that was not tried; else any such host of the priority's flat list,
/// by draws first: a whole locality may be avoided, and the hosts after it in the list must not
/// get all that it would have got.
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
        // Hosts of a list are distinct, so one more than were tried is far enough.
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
