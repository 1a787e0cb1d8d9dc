//! Tests of the owner of demand, without the other owners.

use super::*;
use crate::delivery::NodeClass;
use crate::fleet::Peer;
use crate::replicas::StoreSnapshot;
use crate::state::tests::driver::{config, fleet, stats};

/// Demand of the three nodes of a fleet, of which none has reported.
struct Rig {
    demand: Demand,
    fleets: Fleets,
    nodes: [NodeInfo; 3],
    scope: PlanScope,
}

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

impl Rig {
    fn new() -> Self {
        Self::with_service("")
    }

    /// The only service has these settings.
    fn with_service(settings: &str) -> Self {
        let nodes = fleet(NodeClass::Envoy);
        let mut fleets = Fleets::default();
        let mut demand = Demand::new(&config(settings), at(0));
        for node in &nodes {
            let opened = fleets.open(node, StreamKind::Lrs, &Peer::default(), at(0));
            assert!(opened.unwrap().changed);
            demand.handle_open(node, StreamKind::Lrs, at(0));
        }
        demand.handle_hosts(&"gateway".into(), fleets.counts("gateway"), at(0));
        Self {
            demand,
            fleets,
            nodes,
            scope: PlanScope {
                fleet: "gateway".into(),
                upstream_cluster: None,
            },
        }
    }

    fn replica() -> Self {
        let mut rig = Self::new();
        rig.demand.set_replica("r0".into(), 1, 7);
        rig
    }

    fn report(&mut self, nodes: usize, milliseconds: u64) {
        self.report_requests(&[100; 3][..nodes], milliseconds);
    }

    /// Reports of the first nodes.
    fn report_requests(&mut self, requests: &[u64], milliseconds: u64) {
        let now = at(milliseconds);
        for (node, requests) in self.nodes.iter().zip(requests) {
            let counted = self
                .demand
                .counted("gateway", &[stats("orders", *requests)]);
            self.demand.handle_report(node, &counted, now);
        }
        self.demand.handle_due(&self.fleets, now);
    }

    /// Shares of the zones as the service is planned for all replicas.
    fn shares(&self) -> Vec<u64> {
        let own = self.demand.plans().own("orders").unwrap();
        own.zones().iter().map(|zone| zone.fraction.get()).collect()
    }

    fn may_deliver(&self, milliseconds: u64) -> Result<(), Withheld> {
        let gate = self.demand.gate();
        gate.may_deliver(&self.scope, &self.fleets, at(milliseconds))
    }

    fn store(&mut self, input: StoreInput, milliseconds: u64) {
        let now = at(milliseconds);
        let change = self.demand.handle_store(input, now);
        while self.demand.poll_member(&self.fleets, now).is_some() {}
        self.demand.finish_store(change, &self.fleets, now);
        self.demand.handle_due(&self.fleets, now);
    }

    fn is_delivered(&self) -> bool {
        self.demand.plans().delivered(&self.scope).is_some()
    }
}

#[test]
fn demand_is_withheld_until_all_nodes_have_reported() {
    let mut rig = Rig::new();
    let until = at(12_000);
    assert_eq!(rig.may_deliver(0), Err(Withheld::Starting { until }));
    rig.report(2, 100);
    let incomplete = Withheld::Incomplete {
        reported: 2,
        nodes: 3,
    };
    assert_eq!(rig.may_deliver(100), Err(incomplete));
    assert!(!rig.is_delivered());
    rig.report(3, 200);
    assert_eq!(rig.may_deliver(200), Ok(()));
    assert!(rig.is_delivered());
    assert!(!rig.demand.gate().is_starting(&"gateway".into(), at(200)));
}

#[test]
fn the_start_ends_without_any_report() {
    let mut rig = Rig::new();
    let gateway = "gateway".into();
    assert!(rig.demand.gate().is_starting(&gateway, at(11_999)));
    assert!(!rig.demand.gate().is_starting(&gateway, at(12_000)));
    assert_eq!(rig.may_deliver(12_000), Ok(()));
    assert!(rig.demand.gate().withholds(&gateway), "not handled yet");
    assert!(rig.demand.handle_start_timeout(at(12_000)));
    assert!(!rig.demand.handle_start_timeout(at(12_000)), "once");
    assert!(!rig.demand.gate().withholds(&gateway));
}

#[test]
fn a_replica_withholds_demand_until_it_has_read_the_store() {
    let mut rig = Rig::replica();
    rig.report(3, 100);
    assert_eq!(rig.may_deliver(100), Err(Withheld::StoreUnread));
    let gate = rig.demand.gate();
    assert!(gate.is_starting(&"gateway".into(), at(100_000)));
    assert!(!rig.demand.is_connected());
    rig.store(StoreInput::Snapshot(StoreSnapshot::default()), 1000);
    assert!(rig.demand.is_connected());
    assert_ne!(rig.may_deliver(1000), Err(Withheld::StoreUnread));
}

#[test]
fn a_first_plan_waits_until_replicas_agree_or_the_store_is_lost() {
    let mut rig = Rig::replica();
    rig.store(StoreInput::Snapshot(StoreSnapshot::default()), 0);
    rig.report(3, 100);
    assert_eq!(rig.may_deliver(100), Err(Withheld::Agreeing));
    assert!(!rig.is_delivered() && rig.demand.poll_proposal().is_some());
    rig.store(StoreInput::Disconnected("test".to_owned()), 200);
    assert_eq!(rig.may_deliver(200), Ok(()));
    assert!(rig.is_delivered());
    let told: Vec<_> = std::iter::from_fn(|| rig.demand.poll_event()).collect();
    let lost = |event: &&ControlEvent| matches!(event, ControlEvent::StoreLost { .. });
    assert_eq!(told.iter().filter(lost).count(), 1);
}

#[test]
fn a_fleet_that_is_gone_leaves_no_plan() {
    let mut rig = Rig::new();
    rig.report(3, 100);
    assert_eq!(rig.demand.plans().scopes().len(), 2, "fleet and service");
    rig.demand.handle_fleet_gone("other");
    assert!(rig.is_delivered());
    rig.demand.handle_fleet_gone("gateway");
    assert!(rig.demand.plans().scopes().is_empty());
}

#[test]
fn every_reason_has_a_label_and_a_clause() {
    let reasons = [
        Withheld::StoreUnread,
        Withheld::Incomplete {
            reported: 2,
            nodes: 3,
        },
        Withheld::Agreeing,
        Withheld::Starting { until: at(0) },
    ];
    assert_eq!(reasons.map(Withheld::label), Withheld::LABELS);
    assert_eq!(reasons[1].to_string(), "2 of 3 proxies have reported load");
    let clauses: BTreeSet<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(clauses.len(), reasons.len());
}

/// The plans in a store, which takes every proposal.
#[derive(Default)]
struct Agreed {
    plans: BTreeMap<PlanKey, StoredPlan>,
    revision: i64,
}

impl Agreed {
    /// Takes the proposals of the first replica, and shows them to all. Each has a clock of its
    /// own; the last of three does not know histories of plans, as earlier versions.
    fn take(&mut self, replicas: &mut [(Rig, u64)], milliseconds: u64) {
        while let Some((key, proposal)) = replicas[0].0.demand.poll_proposal() {
            let Some(record) = proposal.record else {
                continue;
            };
            self.revision += 1;
            let plan = StoredPlan {
                key,
                record,
                revision: self.revision,
            };
            self.plans.insert(plan.key.clone(), plan.clone());
            for (index, (rig, clock)) in replicas.iter_mut().enumerate() {
                let mut plan = plan.clone();
                plan.record.spilling.take_if(|_| index == 2);
                rig.store(StoreInput::PlanPut(plan), *clock + milliseconds);
            }
        }
    }
}

#[test]
fn a_replica_that_joins_plans_objectives_as_the_one_that_watched_them() {
    let waterfall = "objective: {waterfall: {target_utilization: 0.8}}, \
                     capacity: {requests_per_second: 20}";
    let replica = |name: &str, instance| {
        let mut rig = Rig::with_service(waterfall);
        rig.demand.set_replica(name.into(), instance, 7);
        rig
    };
    let mut replicas = vec![(replica("r0", 1), 0)];
    let empty = StoreInput::Snapshot(StoreSnapshot::default());
    replicas[0].0.store(empty, 0);
    let mut agreed = Agreed::default();
    // Zone a, which is full with 48 requests per second, sends some away; its demand was higher.
    let demand = |second: u64| {
        if second < 40 {
            [90, 35, 15]
        } else {
            [55, 35, 15]
        }
    };
    let (mut compared, mut differing) = (0, 0);
    for second in 1..100 {
        let milliseconds = 1000 * second;
        if second == 50 {
            for (instance, clock) in [(2, 5_000_000), (3, 7_000_000)] {
                let mut plans: Vec<_> = agreed.plans.values().cloned().collect();
                for plan in &mut plans {
                    plan.record.spilling.take_if(|_| instance == 3);
                }
                let snapshot = StoreSnapshot {
                    plans,
                    ..StoreSnapshot::default()
                };
                let mut joining = replica(&format!("r{instance}"), instance);
                joining.store(StoreInput::Snapshot(snapshot), clock + milliseconds);
                replicas.push((joining, clock));
            }
        }
        let before = agreed.revision;
        replicas[0].0.report_requests(&demand(second), milliseconds);
        agreed.take(&mut replicas, milliseconds + 3);
        if let [(first, _), (joined, _), (earlier, _)] = &replicas[..]
            && agreed.revision > before
        {
            assert_eq!(joined.shares(), first.shares());
            compared += 1;
            differing += u32::from(earlier.shares() != first.shares());
        }
    }
    assert!(compared > 1, "{compared} plans");
    assert!(differing > 0, "without the history plans differ");
    let history = agreed.plans.values().any(|plan| {
        let zones = plan.record.spilling.as_ref();
        zones.is_some_and(|zones| zones.iter().any(|zone| zone.slow > zone.fast))
    });
    assert!(history, "the demand of zone a was higher");
}
