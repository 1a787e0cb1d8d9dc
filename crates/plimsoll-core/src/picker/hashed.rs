//! Picks by consistent hashing: priority, table entry and retries all follow from the request's
//! hash (envoy-semantics §1.5, §8.3–8.5).
//!
//! Tables are built by the balancer over the healthy hosts of a priority, or over all of them in
//! panic. Localities take part only through the weights in the table.

use std::sync::Arc;

use super::avoiding::other_priorities;
use super::worker::Worker;
use super::{Choice, PickArgs, PickError, RESELECTIONS};
use crate::endpoint_picking::bounded_load;
use crate::host::Host;
use crate::host_source::HostSource;
use crate::model::endpoint_policy::ConsistentHashing;
use crate::rng::Rng;
use crate::snapshot::{HashKind, HashTable, RoutingSnapshot};
use crate::stats::PickerStats;

/// One decision; further attempts walk the table until a host is found that was not tried, and then
/// the tables of other priorities.
pub(super) fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    (worker, rng): (&mut Worker, &mut R),
    stats: &PickerStats,
) -> Result<Choice<'p>, PickError> {
    let hash = args.hash.unwrap_or_else(|| rng.next_u64());
    let (priority, _) = snapshot.loads.choose(hash);
    let view = snapshot.priorities.get(priority).ok_or(PickError::NoHost)?;
    let table = view.hash.as_deref().ok_or(PickError::NoHost)?;
    if view.source.panic {
        stats.lb_healthy_panic.increment();
    }
    let choice = look_up(snapshot, (table, priority), (hash, args.avoid), worker);
    let choice = choice.ok_or(PickError::NoHost)?;
    if !choice.is_one_of(args.avoid) {
        return Ok(choice);
    }
    let mut others = other_priorities(snapshot, priority);
    let untried = others.find_map(|priority| {
        let table = snapshot.priorities[priority].hash.as_deref()?;
        let table = (!table.panic).then_some((table, priority))?;
        let choice = look_up(snapshot, table, (hash, args.avoid), worker)?;
        (!choice.is_one_of(args.avoid)).then_some(choice)
    });
    Ok(untried.unwrap_or(choice))
}

/// A host of the table of a priority, if possible one that is not to be avoided.
fn look_up<'p>(
    snapshot: &RoutingSnapshot,
    (table, priority): (&'p HashTable, usize),
    (hash, avoid): (u64, &[Arc<Host>]),
    worker: &mut Worker,
) -> Option<Choice<'p>> {
    let source = if table.panic {
        HostSource::AllHosts
    } else {
        HostSource::HealthyHosts
    };
    let mut choice = None;
    for attempt in 0..=RESELECTIONS {
        let index = index(table, snapshot, (hash, attempt), worker)?;
        let next = choice_of(table, index, priority, source);
        if !next.is_one_of(avoid) {
            return Some(next);
        }
        choice = Some(next);
    }
    choice.map(|choice| next_untried(table, choice, avoid))
}

/// The host that a table gives for a hash and an attempt, bounded load considered.
pub(super) fn index(
    table: &HashTable,
    snapshot: &RoutingSnapshot,
    (hash, attempt): (u64, u32),
    worker: &mut Worker,
) -> Option<u32> {
    let picked = lookup(table, hash, attempt)?;
    Some(bounded(table, snapshot, (hash, picked), worker))
}

/// A host of a table as a choice.
pub(super) fn choice_of(
    table: &HashTable,
    index: u32,
    priority: usize,
    source: HostSource,
) -> Choice<'_> {
    let at = index as usize;
    Choice {
        host: &table.hosts[at],
        index,
        local: at < table.local,
        priority,
        source,
    }
}

fn lookup(table: &HashTable, hash: u64, attempt: u32) -> Option<u32> {
    match &table.kind {
        HashKind::Maglev(maglev) => maglev.lookup(hash, attempt),
        HashKind::Ring(ring) => ring.lookup(hash, attempt),
    }
}

/// The host after bounded load had its say, where it is configured.
fn bounded(
    table: &HashTable,
    snapshot: &RoutingSnapshot,
    (hash, picked): (u64, u32),
    worker: &mut Worker,
) -> u32 {
    let consistent_hashing = snapshot.config.endpoint_policy().consistent_hashing();
    let Some(factor) = consistent_hashing.and_then(ConsistentHashing::hash_balance_factor) else {
        return picked;
    };
    let cluster_active = table.hosts[picked as usize].cluster_load().active();
    let load_of = |host: u32| {
        let active = table.hosts[host as usize].active_requests();
        let slots = bounded_load::slots(cluster_active, factor, table.weights[host as usize]);
        bounded_load::overload_factor(active, slots)
    };
    bounded_load::choose(
        hash,
        picked,
        table.hosts.len(),
        &mut worker.scratch,
        load_of,
    )
}

/// The next host in table order that was not tried and has weight; else the choice as it stands.
fn next_untried<'p>(table: &'p HashTable, choice: Choice<'p>, avoid: &[Arc<Host>]) -> Choice<'p> {
    let Ok(len) = u32::try_from(table.hosts.len()) else {
        return choice;
    };
    (choice.index + 1..len)
        .chain(0..choice.index)
        .take(avoid.len() + 1)
        .map(|index| choice_of(table, index, choice.priority, choice.source))
        .find(|next| !next.is_one_of(avoid))
        .unwrap_or(choice)
}
