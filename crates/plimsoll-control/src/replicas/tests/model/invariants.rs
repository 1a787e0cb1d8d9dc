//! What docs/replicas.md promises, as checks of a [`World`].

use std::collections::{BTreeMap, BTreeSet};

use super::action::Action;
use super::world::{LEASE_SECONDS, World};
use crate::fleet_plan::FleetPlan;
use crate::replicas::NodeKey;

/// Seconds after which everything is right once the faults have ended: a lease that is gone, and a
/// move, each with what is left of the time at which a report is repeated.
const SETTLED: u64 = LEASE_SECONDS + 7 + 4;
/// Seconds for which it has to stay so.
const STABLE: u64 = 10;

/// Holds in every state.
pub(super) fn always(world: &World) -> Result<(), String> {
    for (index, replica) in world.replicas.iter().enumerate() {
        counts_each_node_once(world, index)?;
        // What a replica holds is bounded by the nodes that there are.
        let nodes = world.proxies.len();
        let known = replica.driver.state.replicas().expect("a replica").counts();
        if replica.outbox.len() > nodes || known.0 > nodes {
            return Err(format!(
                "r{index} holds {} records and knows {} of {nodes} nodes",
                replica.outbox.len(),
                known.0
            ));
        }
        delivers_what_was_agreed(world, index)?;
    }
    Ok(())
}

/// Each node counts with one report that it has sent, or not at all. There is at most one node per
/// zone.
fn counts_each_node_once(world: &World, replica: usize) -> Result<(), String> {
    let demand = world.demand(replica);
    for proxy in &world.proxies {
        let zone = proxy.info.node.locality.zone();
        let counted = demand.get(zone).copied().unwrap_or_default();
        if counted % 100 != 0 || counted > 500 {
            return Err(format!(
                "r{replica} counts {counted} requests per second of {zone}, which no report has"
            ));
        }
    }
    Ok(())
}

/// A replica with a session that has seen all changes, and waits for none of its own, delivers the
/// plan in the store, or says that it does not.
fn delivers_what_was_agreed(world: &World, index: usize) -> Result<(), String> {
    let replica = &world.replicas[index];
    let state = &replica.driver.state;
    let has_seen_all = replica.has_session && replica.changes.is_empty();
    if !has_seen_all || !replica.proposed.is_empty() {
        return Ok(());
    }
    for stored in world.etcd.plans() {
        let scope = &stored.key.scope;
        if stored.key.configuration != state.fingerprint()
            || state.not_agreed().any(|alone| alone == scope)
        {
            continue;
        }
        let delivered = state.measured_plan(&scope.fleet, scope.upstream_cluster.as_ref());
        let Some(delivered) = delivered else { continue };
        if delivered.shared().zones != stored.record.zones {
            return Err(format!(
                "r{index} delivers {:?} for {scope:?}, and the store has {:?}",
                delivered.shared().zones,
                stored.record.zones
            ));
        }
    }
    Ok(())
}

/// Ends all faults, and checks that every replica is right within the stated time, and stays so.
pub(super) fn in_the_end(world: &mut World) -> Result<(), String> {
    calm(world);
    for second in 0..SETTLED + STABLE {
        if second == LEASE_SECONDS {
            let kept: BTreeSet<_> = world.kept_leases().collect();
            for lease in world.etcd.leases.clone().difference(&kept) {
                world.expire(*lease);
            }
            world.exchange();
        }
        // Two halves: half an interval is also the time between two writes of a node.
        for _ in 0..2 {
            world.advance(500);
            world.exchange();
        }
        for node in 0..world.proxies.len() {
            world.report(node);
        }
        world.exchange();
        always(world)?;
        if second >= SETTLED {
            is_right(world).map_err(|problem| format!("{second} s later, {problem}"))?;
        }
    }
    Ok(())
}

fn calm(world: &mut World) {
    for node in 0..world.proxies.len() {
        for replica in 0..world.replicas.len() {
            world.notice(node, replica);
        }
    }
    for replica in 0..world.replicas.len() {
        if !world.replicas[replica].has_session {
            world.find(replica);
        }
    }
    for node in 0..world.proxies.len() {
        if world.proxies[node].is_alive && world.proxies[node].at.is_none() {
            let to = node % world.replicas.len();
            world.apply(Action::Move { node, to });
        }
    }
    world.exchange();
}

fn is_right(world: &World) -> Result<(), String> {
    let alive = world.proxies.iter().filter(|proxy| proxy.is_alive);
    let truth: BTreeMap<String, u64> = alive
        .clone()
        .map(|proxy| (proxy.info.node.locality.zone().to_owned(), proxy.rate()))
        .collect();
    for index in 0..world.replicas.len() {
        let demand = world.demand(index);
        if demand != truth {
            return Err(format!("r{index} counts {demand:?} instead of {truth:?}"));
        }
        let plan = world.replicas[index].driver.state.fleet_plan("gateway");
        let first = world.replicas[0].driver.state.fleet_plan("gateway");
        let zones =
            |plan: Option<&FleetPlan>| plan.map(|plan| plan.zones.clone()).unwrap_or_default();
        if zones(plan) != zones(first) {
            return Err(format!(
                "r{index} delivers {:?} and r0 {:?}",
                zones(plan),
                zones(first)
            ));
        }
    }
    let expected: BTreeSet<NodeKey> = alive.map(|proxy| NodeKey::of(&proxy.info.node)).collect();
    let stored: BTreeSet<NodeKey> = world.etcd.node_keys().cloned().collect();
    if stored != expected {
        return Err(format!("the store has {stored:?} instead of {expected:?}"));
    }
    Ok(())
}
