//! Picks by consistent hashing: priority, table entry and retries all follow from the request's
//! hash (envoy-semantics §1.5, §8.3–8.5).
//!
//! The balancer builds the tables over the healthy hosts of a priority, or over all of them in
//! panic. Localities matter only through the weights in the table.

use std::sync::Arc;

use super::avoiding::other_priorities;
use super::{Choice, PickArgs, PickContext, PickError, RESELECTIONS};
use crate::endpoint_picking::bounded_load;
use crate::host::Host;
use crate::host_source::HostSource;
use crate::model::endpoint_policy::ConsistentHashing;
use crate::rng::Rng;
use crate::snapshot::{HashKind, HashTable, RoutingSnapshot};

/// Retries walk the table to a host that was not tried, then the tables of other priorities.
pub(super) fn choose<'p, R: Rng>(
    snapshot: &'p RoutingSnapshot,
    args: PickArgs<'_>,
    context: PickContext<'_, R>,
) -> Result<Choice<'p>, PickError> {
    let hash = args.hash.unwrap_or_else(|| context.rng.next_u64());
    let scratch = &mut context.state.scratch;
    let (priority, _) = snapshot.loads.choose(hash);
    let view = snapshot.priorities.get(priority).ok_or(PickError::NoHost)?;
    let table = view.hash.as_deref().ok_or(PickError::NoHost)?;
    if view.source.panic {
        context.stats.lb_healthy_panic.increment();
    }
    let choice = choose_from(table, snapshot, priority, hash, args.avoid, scratch)
        .ok_or(PickError::NoHost)?;
    if !choice.is_one_of(args.avoid) {
        return Ok(choice);
    }
    let untried = other_priorities(snapshot, priority).find_map(|priority| {
        let table = snapshot.priorities[priority].hash.as_deref()?;
        if table.panic {
            return None;
        }
        choose_from(table, snapshot, priority, hash, args.avoid, scratch)
            .filter(|choice| !choice.is_one_of(args.avoid))
    });
    Ok(untried.unwrap_or(choice))
}

/// Chooses a host from the table of one priority, if possible one that is not to be avoided.
fn choose_from<'p>(
    table: &'p HashTable,
    snapshot: &RoutingSnapshot,
    priority: usize,
    hash: u64,
    avoid: &[Arc<Host>],
    scratch: &mut Vec<u32>,
) -> Option<Choice<'p>> {
    let source = if table.panic {
        HostSource::AllHosts
    } else {
        HostSource::HealthyHosts
    };
    let mut choice = None;
    for attempt in 0..=RESELECTIONS {
        let index = index(table, snapshot, hash, attempt, scratch)?;
        let next = choice_of(table, index, priority, source);
        if !next.is_one_of(avoid) {
            return Some(next);
        }
        choice = Some(next);
    }
    choice.map(|choice| next_untried(table, choice, avoid))
}

/// Looks up the host of a hash and an attempt, with bounded load applied.
pub(super) fn index(
    table: &HashTable,
    snapshot: &RoutingSnapshot,
    hash: u64,
    attempt: u32,
    scratch: &mut Vec<u32>,
) -> Option<u32> {
    let picked = lookup(table, hash, attempt)?;
    Some(bounded(table, snapshot, hash, picked, scratch))
}

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

/// Returns `picked`, or another host if `hash_balance_factor` is set and `picked` is overloaded.
fn bounded(
    table: &HashTable,
    snapshot: &RoutingSnapshot,
    hash: u64,
    picked: u32,
    scratch: &mut Vec<u32>,
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
    bounded_load::choose(hash, picked, table.hosts.len(), scratch, load_of)
}

/// Returns the next host in table order that was not tried, or `choice` itself if all were.
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
