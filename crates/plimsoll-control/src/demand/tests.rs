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
        let nodes = fleet(NodeClass::Envoy);
        let mut fleets = Fleets::default();
        let mut demand = Demand::new(&config(""), at(0));
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
        let now = at(milliseconds);
        for node in &self.nodes[..nodes] {
            let counted = self.demand.counted("gateway", &[stats("orders", 100)]);
            self.demand.handle_report(node, &counted, now);
        }
        self.demand.handle_due(&self.fleets, now);
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
