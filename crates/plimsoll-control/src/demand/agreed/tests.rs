//! Plans wait until replicas agree, and for no longer than a second.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{Plan, PlanScope, SharedZone, UpdateCause};
use plimsoll_core::time::Instant;
use plimsoll_xds::replica::PlanRecord;

use super::super::plans::{PlanTable, Proposed};
use super::{AgreedPlans, PROPOSAL_TIMEOUT};
use crate::delivery::NodeClass;
use crate::replicas::{Effect, PlanKey, Proposal, StoredPlan};
use crate::state::tests::driver::{config, fleet};
use crate::state::{ControlEvent, State};

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
fn planned(count: usize) -> Vec<Arc<Plan>> {
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

/// Plans that wait for the store, and what it has.
struct Rig {
    agreed: AgreedPlans,
    plans: PlanTable,
}

impl Rig {
    fn new() -> Self {
        Self {
            agreed: AgreedPlans::new(1, 7),
            plans: PlanTable::default(),
        }
    }

    fn propose(&mut self, plan: Arc<Plan>, now: Instant) {
        let due = now.saturating_add(PROPOSAL_TIMEOUT);
        self.plans.propose(plan, due);
    }

    fn poll_proposal(&mut self) -> Option<(PlanKey, Proposal)> {
        self.agreed.poll_proposal(&mut self.plans)
    }

    fn put(&mut self, stored: StoredPlan, now: Instant) -> Vec<Effect> {
        let mut effects = VecDeque::new();
        self.agreed
            .handle_put(stored, &mut self.plans, &mut effects, now);
        effects.into()
    }

    fn snapshot(&mut self, stored: Vec<StoredPlan>, now: Instant) -> Vec<Effect> {
        let mut effects = VecDeque::new();
        self.agreed
            .handle_snapshot(stored, &mut self.plans, &mut effects, now);
        effects.into()
    }

    fn overdue(&mut self, now: Instant) -> Vec<Arc<Plan>> {
        let overdue = std::iter::from_fn(|| self.plans.take_overdue(now));
        overdue.map(Proposed::newest).collect()
    }

    fn is_empty(&mut self) -> bool {
        self.poll_proposal().is_none() && self.plans.next_due().is_none()
    }
}

#[test]
fn a_plan_is_delivered_when_the_store_has_it() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut rig = Rig::new();
    rig.propose(Arc::clone(&one), at(0));
    let (key, proposal) = rig.poll_proposal().unwrap();
    assert_eq!((key.configuration, proposal.after), (7, 0));
    assert!(rig.poll_proposal().is_none());
    // A newer plan waits for the answer, because it has to follow this one.
    rig.propose(Arc::clone(&two), at(1));
    assert!(rig.poll_proposal().is_none());
    let taken = StoredPlan {
        key,
        record: proposal.record.unwrap(),
        revision: 5,
    };
    let done = rig.put(taken.clone(), at(2));
    assert_eq!(done, [Effect::Deliver(one)]);
    let done = rig.put(taken, at(2));
    assert_eq!(done, [], "the same again");
    let (_, proposal) = rig.poll_proposal().unwrap();
    assert_eq!(
        (proposal.after, proposal.record.unwrap().zones),
        (5, two.shared().zones)
    );
}

#[test]
fn the_plan_of_another_replica_replaces_ours() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut rig = Rig::new();
    rig.propose(Arc::clone(&one), at(0));
    rig.propose(two, at(0));
    let other = stored(2, 10.0, 5);
    let done = rig.put(other.clone(), at(1));
    let [Effect::Adopt(adopted)] = &done[..] else {
        panic!("{done:?}");
    };
    assert_eq!(adopted.zones, other.record.zones);
    assert_eq!(rig.plans.next_due(), None);
    assert!(rig.poll_proposal().is_none());
    // The next one follows it.
    rig.propose(one, at(2));
    assert_eq!(rig.poll_proposal().unwrap().1.after, 5);
}

#[test]
fn plans_of_other_configurations_and_expired_ones_only_count_by_their_revision() {
    let [one]: [_; 1] = planned(1).try_into().unwrap();
    let mut rig = Rig::new();
    let mut other = stored(2, 10.0, 5);
    other.key = key(8);
    assert_eq!(rig.put(other, at(0)), []);
    rig.agreed.set_configuration(8);
    rig.propose(Arc::clone(&one), at(0));
    assert_eq!(rig.poll_proposal().unwrap().1.after, 5);
    rig.agreed.handle_deleted(&key(8));
    assert_eq!(rig.overdue(at(1000)).len(), 1);
    rig.propose(one, at(1000));
    assert_eq!(rig.poll_proposal().unwrap().1.after, 0);
}

#[test]
fn a_plan_does_not_wait_for_long() {
    let [one, two, three]: [_; 3] = planned(3).try_into().unwrap();
    let mut rig = Rig::new();
    rig.propose(Arc::clone(&one), at(0));
    let (key, proposal) = rig.poll_proposal().unwrap();
    assert_eq!(rig.plans.next_due(), Some(at(1000)));
    assert_eq!(rig.overdue(at(999)), []);
    rig.propose(Arc::clone(&two), at(500));
    let late = rig.overdue(at(1000));
    assert_eq!(late, [two], "the newest");
    assert_eq!(rig.plans.next_due(), None);
    // The store takes the first one after all, when another has been proposed: it follows.
    rig.propose(Arc::clone(&three), at(1500));
    assert_eq!(rig.poll_proposal().unwrap().1.after, 0);
    let taken = StoredPlan {
        key,
        record: proposal.record.unwrap(),
        revision: 9,
    };
    let adopted = [Effect::Adopt(one.shared())];
    assert_eq!(rig.put(taken, at(1600)), adopted, "as others do");
    let (_, again) = rig.poll_proposal().unwrap();
    assert_eq!(
        (again.after, again.record.unwrap().zones),
        (9, three.shared().zones)
    );
    assert_eq!(rig.plans.next_due(), Some(at(2600)));
}

#[test]
fn a_plan_that_the_store_refuses_waits_no_longer() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut rig = Rig::new();
    rig.propose(Arc::clone(&one), at(0));
    let (key, _) = rig.poll_proposal().unwrap();
    rig.propose(Arc::clone(&two), at(1));
    let refused = rig.plans.take_proposed(&key.scope).map(Proposed::newest);
    assert_eq!(refused, Some(two), "the newest");
    assert!(rig.is_empty());
    assert!(rig.plans.take_proposed(&key.scope).is_none());
    rig.propose(one, at(2));
    assert!(rig.poll_proposal().is_some(), "the next one may fit");
}

#[test]
fn plans_that_wait_are_taken_out_when_the_store_is_lost() {
    let [one, two]: [_; 2] = planned(2).try_into().unwrap();
    let mut rig = Rig::new();
    rig.propose(one, at(0));
    rig.propose(Arc::clone(&two), at(0));
    let waiting: Vec<_> = rig.plans.take_all_proposed();
    let waiting: Vec<_> = waiting.into_iter().map(Proposed::newest).collect();
    assert_eq!(waiting, [two]);
    assert!(rig.is_empty());
}

#[test]
fn a_store_that_is_read_again_brings_what_has_changed() {
    let mut rig = Rig::new();
    let first = rig.snapshot(vec![stored(2, 1.0, 5)], at(0));
    assert_eq!(first.len(), 1);
    let same = rig.snapshot(vec![stored(2, 1.0, 5)], at(1));
    assert_eq!(same, []);
    let newer = rig.snapshot(vec![stored(2, 2.0, 6)], at(2));
    assert_eq!(newer.len(), 1);
    let none = rig.snapshot(Vec::new(), at(3));
    assert_eq!(none, []);
    let [plan]: [_; 1] = planned(1).try_into().unwrap();
    rig.propose(plan, at(4));
    assert_eq!(
        rig.poll_proposal().unwrap().1.after,
        0,
        "the store has none"
    );
}
