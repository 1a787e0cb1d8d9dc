//! Replicas agree on the plans that they deliver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::planner::{SharedPlan, UpdateCause};
use plimsoll_xds::node::NodeInfo;

use super::set::Set;
use crate::config::ControlConfig;
use crate::state::ControlEvent;
use crate::state::tests::driver::{config, parse};

/// Smoothing of the default length, so that a change of demand is followed in many updates.
fn smoothed() -> Arc<ControlConfig> {
    let mut config = ControlConfig::clone(&config(""));
    config.reporting.planner = parse("load_reporting: {interval: 1s}")
        .reporting
        .planner
        .clone();
    Arc::new(config)
}

fn measured() -> (Set, [NodeInfo; 3]) {
    Set::with_config(3, &smoothed()).measured()
}

/// Returns what a replica delivered since its events were cleared, oldest first.
fn delivered(set: &Set, replica: usize) -> Vec<SharedPlan> {
    let events = set.replicas[replica].driver.events.iter();
    let plans = events.filter_map(|event| match event {
        ControlEvent::Planned(plan) => Some(plan.shared()),
        _ => None,
    });
    plans.collect()
}

fn clear(set: &mut Set) {
    for replica in &mut set.replicas {
        replica.driver.events.clear();
    }
}

#[test]
fn replicas_deliver_the_same_plans_in_the_same_order() {
    let (mut set, [a, b, c]) = measured();
    clear(&mut set);
    set.traffic(&[(0, &a, 200), (1, &b, 200), (2, &c, 600)], 60);
    let plans = delivered(&set, 0);
    let whole = |plan: &&SharedPlan| plan.scope.upstream_cluster.is_none();
    let moved = |plan: &&SharedPlan| plan.cause == UpdateCause::FractionsMoved;
    assert!(plans.iter().filter(whole).filter(moved).count() > 20);
    assert_eq!(plans, delivered(&set, 1));
    assert_eq!(plans, delivered(&set, 2));
    assert_eq!(set.delivered(0), set.delivered(1));
    let off = set.delivered(0)[2].abs_diff(6000);
    assert!(off < 300, "{:?}", set.delivered(0));
}

#[test]
fn a_heartbeat_is_sent_once() {
    let (mut set, [a, b, c]) = measured();
    let steady = [(0, &a, 600), (1, &b, 200), (2, &c, 200)];
    set.traffic(&steady, 60);
    clear(&mut set);
    set.traffic(&steady, 60);
    for replica in 0..3 {
        let plans = delivered(&set, replica);
        let whole = plans
            .iter()
            .filter(|plan| plan.scope.upstream_cluster.is_none());
        let causes: Vec<_> = whole.map(|plan| plan.cause).collect();
        assert_eq!(causes, [UpdateCause::Heartbeat; 3], "replica {replica}");
    }
}

#[test]
fn another_replica_goes_on_when_the_one_that_planned_is_gone() {
    let (mut set, [a, b, c]) = measured();
    set.traffic(&[(0, &a, 200), (1, &b, 200), (2, &c, 600)], 5);
    let dead = set.instance(0);
    set.disconnect(0);
    set.open(1, &a);
    let before = set.delivered(1);
    set.traffic(&[(1, &a, 200), (1, &b, 200), (2, &c, 600)], 60);
    set.expire_lease(dead);
    set.traffic(&[(1, &a, 200), (1, &b, 200), (2, &c, 600)], 60);
    assert_ne!(set.delivered(1), before);
    assert_eq!(set.delivered(1), set.delivered(2));
    let truth = [2000_u64, 2000, 6000];
    for (fraction, expected) in set.delivered(1).into_iter().zip(truth) {
        assert!(fraction.abs_diff(expected) <= 50, "{:?}", set.delivered(1));
    }
    let instances: BTreeSet<_> = set
        .store
        .plans
        .values()
        .map(|(plan, _)| plan.instance)
        .collect();
    assert!(!instances.contains(&dead), "its plans have expired");
}

#[test]
fn a_replica_that_starts_in_the_middle_of_a_change_delivers_what_the_others_do() {
    let (mut set, [a, b, c]) = measured();
    let moved = [(1, &a, 200), (1, &b, 200), (2, &c, 600)];
    set.move_node(&a, 0, 1);
    set.traffic(&moved, 8);
    set.restart(0);
    set.connect(0);
    assert_eq!(
        set.delivered(0),
        set.delivered(1),
        "not the sum of the latest reports"
    );
    clear(&mut set);
    set.traffic(&moved, 40);
    assert!(delivered(&set, 0).len() > 20);
    assert_eq!(delivered(&set, 0), delivered(&set, 1));
    assert_eq!(delivered(&set, 0), delivered(&set, 2));
}

#[test]
fn without_the_store_every_replica_delivers_its_own_plans() {
    let (mut set, [a, b, c]) = measured();
    for replica in 0..3 {
        set.disconnect(replica);
    }
    clear(&mut set);
    let moved = [(0, &a, 200), (1, &b, 200), (2, &c, 600)];
    set.traffic(&moved, 20);
    for replica in 0..3 {
        assert!(!delivered(&set, replica).is_empty());
    }
    for replica in 0..3 {
        set.connect(replica);
    }
    clear(&mut set);
    set.traffic(&moved, 60);
    assert_eq!(set.delivered(0), set.delivered(1));
    assert_eq!(set.delivered(0), set.delivered(2));
}

#[test]
fn replicas_with_another_configuration_deliver_their_own_plans() {
    let (mut set, [a, b, c]) = measured();
    let mut other = ControlConfig::clone(&smoothed());
    other.fleets.leave_after = Duration::from_secs(77);
    set.replicas[2].driver.reload(Arc::new(other));
    set.traffic(&[(0, &a, 200), (1, &b, 200), (2, &c, 600)], 60);
    let configurations: BTreeSet<_> = set
        .store
        .plans
        .keys()
        .map(|key| key.configuration)
        .collect();
    let fingerprint = |replica: usize| set.replicas[replica].driver.state.fingerprint();
    assert_eq!(
        configurations,
        BTreeSet::from([fingerprint(0), fingerprint(2)])
    );
    assert_eq!(set.delivered(0), set.delivered(1));
    let [ours, others] = [0, 2].map(|replica| set.delivered(replica)[2]);
    assert!(ours.abs_diff(others) <= 100, "{ours} and {others}");
}

#[test]
fn plans_without_demand_do_not_stay_in_the_store() {
    let (mut set, nodes) = measured();
    assert_eq!(set.store.plans.len(), 2, "of the fleet and of its service");
    for (replica, node) in nodes.iter().enumerate() {
        set.close(replica, node);
    }
    set.advance(60_000);
    assert!(set.store.plans.is_empty(), "{:?}", set.store.plans);
    for replica in 0..3 {
        assert!(set.delivered(replica).is_empty());
    }
    // Demand that ended while the store was away.
    set.store.plans = measured().0.store.plans;
    for replica in 0..3 {
        set.disconnect(replica);
        set.connect(replica);
    }
    assert!(set.store.plans.is_empty(), "{:?}", set.store.plans);
}
