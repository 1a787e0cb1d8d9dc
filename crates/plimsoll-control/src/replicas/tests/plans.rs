//! Replicas agree on the plans that they deliver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{PlanScope, SharedPlan, SharedZone, UpdateCause};
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::PlanRecord;

use super::super::plans::AgreedPlans;
use super::super::{Effect, PlanKey, StoredPlan};
use super::set::Set;
use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::state::tests::driver::{config, fleet, parse};
use crate::state::{ControlEvent, State};

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

fn key(configuration: u64) -> PlanKey {
    PlanKey {
        configuration,
        scope: PlanScope {
            fleet: "gateway".into(),
            upstream_cluster: None,
        },
    }
}

fn stored(instance: u64, rate_per_second: f64, revision: i64) -> StoredPlan {
    StoredPlan {
        key: key(7),
        record: PlanRecord {
            instance,
            cause: UpdateCause::Heartbeat,
            warming_up: false,
            zones: vec![SharedZone {
                locality: Locality::zone_only("a"),
                rate_per_second,
                reporters: 1,
                estimated: false,
            }],
            spilling: None,
        },
        revision,
    }
}

const fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// Returns plans for the fleet `gateway`, one after the other, as a planner makes them.
fn planned(count: usize) -> Vec<Arc<plimsoll_core::planner::Plan>> {
    let nodes = fleet(NodeClass::Envoy);
    let mut state = State::new(config(""), Instant::ORIGIN);
    let mut plans = Vec::new();
    for second in 0_u64.. {
        let now = at(second * 1000);
        for (index, node) in nodes.iter().enumerate() {
            let requests = 100 + 100 * (second + index as u64 % 2) % 7;
            let report = crate::state::tests::driver::stats("orders", requests);
            state.handle_report(node, &[report], now);
        }
        state.handle_timeout(now);
        while let Some(event) = state.poll_event() {
            if let ControlEvent::Planned(plan) = event
                && plan.scope.upstream_cluster.is_none()
            {
                plans.push(plan);
            }
        }
        if plans.len() >= count {
            break;
        }
    }
    plans.truncate(count);
    plans
}

fn agreed() -> AgreedPlans {
    let mut plans = AgreedPlans::new(1);
    plans.set_configuration(7);
    plans
}

/// Returns the effects of a call.
fn effects(call: impl FnOnce(&mut Vec<Effect>)) -> Vec<Effect> {
    let mut effects = Vec::new();
    call(&mut effects);
    effects
}

#[test]
fn a_plan_is_delivered_when_the_store_has_it() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut plans = agreed();
    plans.propose(Arc::clone(&one), at(0));
    let (key, proposal) = plans.poll_proposal().unwrap();
    assert_eq!((key.configuration, proposal.after), (7, 0));
    assert!(plans.poll_proposal().is_none());
    // A newer plan waits for the answer, because it has to follow this one.
    plans.propose(Arc::clone(&two), at(1));
    assert!(plans.poll_proposal().is_none());
    let taken = StoredPlan {
        key,
        record: proposal.record.unwrap(),
        revision: 5,
    };
    let done = effects(|effects| plans.handle_put(taken.clone(), effects, at(2)));
    assert_eq!(done, [Effect::Deliver(one)]);
    let done = effects(|effects| plans.handle_put(taken, effects, at(2)));
    assert_eq!(done, [], "the same again");
    let (_, proposal) = plans.poll_proposal().unwrap();
    assert_eq!(
        (proposal.after, proposal.record.unwrap().zones),
        (5, two.shared().zones)
    );
}

#[test]
fn the_plan_of_another_replica_replaces_ours() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut plans = agreed();
    plans.propose(Arc::clone(&one), at(0));
    plans.propose(two, at(0));
    let other = stored(2, 10.0, 5);
    let done = effects(|effects| plans.handle_put(other.clone(), effects, at(1)));
    let [Effect::Adopt(adopted)] = &done[..] else {
        panic!("{done:?}");
    };
    assert_eq!(adopted.zones, other.record.zones);
    assert_eq!(plans.poll_timeout(), None);
    assert!(plans.poll_proposal().is_none());
    // The next one follows it.
    plans.propose(one, at(2));
    assert_eq!(plans.poll_proposal().unwrap().1.after, 5);
}

#[test]
fn plans_of_other_configurations_and_expired_ones_only_count_by_their_revision() {
    let [one]: [_; 1] = planned(1).try_into().unwrap();
    let mut plans = agreed();
    let mut other = stored(2, 10.0, 5);
    other.key = key(8);
    assert_eq!(
        effects(|effects| plans.handle_put(other, effects, at(0))),
        []
    );
    plans.set_configuration(8);
    plans.propose(Arc::clone(&one), at(0));
    assert_eq!(plans.poll_proposal().unwrap().1.after, 5);
    plans.handle_deleted(&key(8));
    assert_eq!(
        effects(|effects| plans.handle_timeout(effects, at(1000))).len(),
        1
    );
    plans.propose(one, at(1000));
    assert_eq!(plans.poll_proposal().unwrap().1.after, 0);
}

#[test]
fn a_plan_does_not_wait_for_long() {
    let [one, two, three]: [_; 3] = planned(3).try_into().unwrap();
    let mut plans = agreed();
    plans.propose(Arc::clone(&one), at(0));
    let (key, proposal) = plans.poll_proposal().unwrap();
    assert_eq!(plans.poll_timeout(), Some(at(1000)));
    assert_eq!(
        effects(|effects| plans.handle_timeout(effects, at(999))),
        []
    );
    plans.propose(Arc::clone(&two), at(500));
    let late = effects(|effects| plans.handle_timeout(effects, at(1000)));
    assert_eq!(late, [Effect::Deliver(two)], "the newest");
    assert_eq!(plans.poll_timeout(), None);
    // The store takes the first one after all, when another has been proposed: it follows.
    plans.propose(Arc::clone(&three), at(1500));
    assert_eq!(plans.poll_proposal().unwrap().1.after, 0);
    let taken = StoredPlan {
        key,
        record: proposal.record.unwrap(),
        revision: 9,
    };
    assert_eq!(
        effects(|effects| plans.handle_put(taken, effects, at(1600))),
        []
    );
    let (_, again) = plans.poll_proposal().unwrap();
    assert_eq!(
        (again.after, again.record.unwrap().zones),
        (9, three.shared().zones)
    );
    assert_eq!(plans.poll_timeout(), Some(at(2600)));
}

#[test]
fn a_plan_that_the_store_refuses_is_delivered_alone() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut plans = agreed();
    plans.propose(Arc::clone(&one), at(0));
    let (key, _) = plans.poll_proposal().unwrap();
    plans.propose(Arc::clone(&two), at(1));
    let done = effects(|effects| plans.handle_refused(&key, effects));
    assert_eq!(done, [Effect::Deliver(two)], "the newest");
    assert!(plans.poll_proposal().is_none() && plans.poll_timeout().is_none());
    assert_eq!(effects(|effects| plans.handle_refused(&key, effects)), []);
    plans.propose(one, at(2));
    assert!(plans.poll_proposal().is_some(), "the next one may fit");
}

#[test]
fn plans_that_wait_are_delivered_when_the_store_is_lost() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut plans = agreed();
    plans.propose(one, at(0));
    plans.propose(Arc::clone(&two), at(0));
    let done = effects(|effects| plans.handle_disconnected(effects));
    assert_eq!(done, [Effect::Deliver(two)]);
    assert!(plans.poll_proposal().is_none() && plans.poll_timeout().is_none());
}

#[test]
fn a_store_that_is_read_again_brings_what_has_changed() {
    let mut plans = agreed();
    let first = effects(|effects| plans.handle_snapshot(vec![stored(2, 1.0, 5)], effects, at(0)));
    assert_eq!(first.len(), 1);
    let same = effects(|effects| plans.handle_snapshot(vec![stored(2, 1.0, 5)], effects, at(1)));
    assert_eq!(same, []);
    let newer = effects(|effects| plans.handle_snapshot(vec![stored(2, 2.0, 6)], effects, at(2)));
    assert_eq!(newer.len(), 1);
    let none = effects(|effects| plans.handle_snapshot(Vec::new(), effects, at(3)));
    assert_eq!(none, []);
    let [plan]: [_; 1] = planned(1).try_into().unwrap();
    plans.propose(plan, at(4));
    assert_eq!(
        plans.poll_proposal().unwrap().1.after,
        0,
        "the store has none"
    );
}
