//! What counts at every replica while nodes move and replicas or the store go away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;

use super::super::table::{Owner, SharedNode};
use super::super::{Replicas, Timing};
use super::set::Set;
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::state::tests::driver::{fleet, node, stats};
use crate::state::{ControlEvent, Suspicion, ViewKey};

const TRUTH: [u64; 3] = [6000, 2000, 2000];

fn zones(demand: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let zone = |&(zone, rate): &(&str, u64)| (zone.to_owned(), rate);
    demand.iter().map(zone).collect()
}

fn whole() -> BTreeMap<String, u64> {
    zones(&[("a", 600), ("b", 200), ("c", 200)])
}

fn measured() -> (Set, [NodeInfo; 3]) {
    Set::new(3).measured()
}

fn assert_whole(set: &Set) {
    for replica in 0..set.replicas.len() {
        assert_eq!(set.demand(replica), whole(), "replica {replica}");
        assert_eq!(set.nodes(replica), 3, "replica {replica}");
        assert_eq!(set.delivered(replica), TRUTH, "replica {replica}");
    }
}

#[test]
fn every_replica_counts_the_nodes_of_all() {
    let (set, nodes) = measured();
    assert_whole(&set);
    assert_eq!(set.store.records.len(), 3, "one record per node");
    let owners = nodes.each_ref().map(|node| set.owner(node).unwrap());
    assert_eq!(owners, ["r0", "r1", "r2"].map(Into::into));
    let replicas = set.replicas[0].driver.state.replicas().unwrap();
    assert_eq!(replicas.counts(), (3, 1));
    assert_eq!(
        replicas.owner("gateway", &nodes[1].node.id),
        Some(&"r1".into())
    );
}

#[test]
fn a_node_that_moves_is_counted_once_and_without_a_gap() {
    let (mut set, [a, b, c]) = measured();
    set.close(0, &a);
    // Envoy retries its load reporting stream after 5 s.
    set.open_kind(1, &a, StreamKind::Ads);
    for _ in 0..5 {
        set.traffic(&[(1, &b, 200), (2, &c, 200)], 1);
        assert_whole(&set);
    }
    set.open_kind(1, &a, StreamKind::Lrs);
    assert_whole(&set);
    set.traffic(&[(1, &a, 600), (1, &b, 200), (2, &c, 200)], 60);
    assert_whole(&set);
    assert_eq!(set.owner(&a), Some("r1".into()));
    assert_eq!(set.store.records.len(), 3);
}

#[test]
fn a_discovery_stream_before_the_store_is_read_does_not_erase_the_report_in_it() {
    let (mut set, [a, b, c]) = measured();
    let dead = [0, 1, 2].map(|replica| set.instance(replica));
    for replica in 0..3 {
        set.restart(replica);
    }
    // All nodes return at once; Envoys open their load reporting streams 5 s later.
    for (replica, node) in [&a, &b, &c].into_iter().enumerate() {
        set.open_kind(replica, node, StreamKind::Ads);
    }
    for replica in 0..3 {
        set.connect(replica);
    }
    for _ in 0..12 {
        set.advance(1000);
        assert_whole(&set);
    }
    for (replica, node) in [&a, &b, &c].into_iter().enumerate() {
        set.open_kind(replica, node, StreamKind::Lrs);
    }
    assert_whole(&set);
    set.traffic(&[(0, &a, 600), (1, &b, 200), (2, &c, 200)], 3);
    for instance in dead {
        set.expire_lease(instance);
    }
    assert_whole(&set);
    set.traffic(&[(0, &a, 600), (1, &b, 200), (2, &c, 200)], 60);
    assert_whole(&set);
}

#[test]
fn reports_before_the_store_is_read_count_together_with_those_in_it() {
    let mut set = Set::new(2);
    let zones = ["a", "a", "b", "c"].into_iter().enumerate();
    let nodes: Vec<_> = zones
        .map(|(index, zone)| node(NodeClass::Envoy, &index.to_string(), zone))
        .collect();
    let reports = |replicas: [usize; 4]| {
        let rates = [300, 300, 200, 200];
        let pairs = replicas.into_iter().zip(&nodes).zip(rates);
        let reports = pairs.map(|((replica, node), requests)| (replica, node, requests));
        reports.collect::<Vec<_>>()
    };
    for (replica, node, _) in reports([0, 1, 1, 1]) {
        set.open(replica, node);
    }
    set.traffic(&reports([0, 1, 1, 1]), 5);
    set.restart(0);
    set.open(0, &nodes[0]);
    // One of two nodes of a zone reports, for longer than the smoothing lasts.
    set.traffic(&reports([0, 1, 1, 1]), 30);
    assert_eq!(set.delivered(0), [0_u64; 0], "it has a part of the demand");
    set.connect(0);
    assert_eq!(set.demand(0), whole());
    assert_eq!(set.delivered(0), TRUTH, "at once");
    set.traffic(&reports([0, 1, 1, 1]), 5);
    for replica in 0..2 {
        assert_eq!(set.delivered(replica), TRUTH);
    }
}

#[test]
fn a_node_that_leaves_is_forgotten_everywhere() {
    let (mut set, [a, b, c]) = measured();
    set.close(0, &a);
    let rest = [(1, &b, 200), (2, &c, 200)];
    set.traffic(&rest, 10);
    for replica in 0..3 {
        assert_eq!(set.demand(replica), zones(&[("b", 200), ("c", 200)]));
        assert_eq!(set.nodes(replica), 3, "it has not left its fleet yet");
    }
    set.traffic(&rest, 30);
    for replica in 0..3 {
        assert_eq!(set.nodes(replica), 2);
    }
    assert_eq!(set.store.records.len(), 2);
}

#[test]
fn a_silent_node_stops_counting_everywhere() {
    let (mut set, [_, b, c]) = measured();
    set.traffic(&[(1, &b, 200), (2, &c, 200)], 6);
    for replica in 0..3 {
        assert_eq!(set.demand(replica), zones(&[("b", 200), ("c", 200)]));
        assert_eq!(set.nodes(replica), 3, "its streams are open");
    }
}

#[test]
fn nodes_of_a_replica_that_dies_count_until_they_report_to_another() {
    let (mut set, [a, b, c]) = measured();
    let dead = set.instance(0);
    // It does not close anything, and its records stay until its lease expires.
    set.disconnect(0);
    for _ in 0..10 {
        set.traffic(&[(1, &b, 200), (2, &c, 200)], 1);
        for replica in [1, 2] {
            assert_eq!(set.demand(replica), whole());
            assert_eq!(set.delivered(replica), TRUTH);
        }
    }
    set.open(2, &a);
    set.expire_lease(dead);
    set.traffic(&[(2, &a, 600), (1, &b, 200), (2, &c, 200)], 10);
    for replica in [1, 2] {
        assert_eq!(set.demand(replica), whole());
        assert_eq!(set.nodes(replica), 3);
    }
    assert_eq!(set.owner(&a), Some("r2".into()));
}

#[test]
fn nodes_that_die_with_their_replica_expire_with_its_lease() {
    let (mut set, [_, b, c]) = measured();
    let dead = set.instance(0);
    set.disconnect(0);
    set.expire_lease(dead);
    set.traffic(&[(1, &b, 200), (2, &c, 200)], 3);
    for replica in [1, 2] {
        assert_eq!(set.demand(replica), zones(&[("b", 200), ("c", 200)]));
        assert_eq!(set.nodes(replica), 2);
    }
}

#[test]
fn a_replica_that_starts_knows_demand_before_its_first_report() {
    let (mut set, [_, b, c]) = measured();
    set.restart(0);
    assert!(set.delivered(0).is_empty());
    set.connect(0);
    assert_eq!(set.demand(0), whole());
    // Known from the first moment, without a warm-up.
    let d = node(NodeClass::Envoy, "new", "b");
    set.open(0, &d);
    assert_eq!(set.delivered(0), TRUTH);
    set.traffic(&[(1, &b, 200), (2, &c, 200)], 5);
    assert_eq!(set.demand(0), whole());
}

#[test]
fn all_replicas_restart() {
    let (mut set, nodes) = measured();
    for replica in 0..3 {
        set.restart(replica);
    }
    for replica in 0..3 {
        set.connect(replica);
        assert_eq!(set.delivered(replica), TRUTH);
    }
    // Every node comes back to another replica.
    for (index, node) in nodes.iter().enumerate() {
        set.open((index + 1) % 3, node);
    }
    assert_whole(&set);
    // The leases of the processes that are gone expire.
    for instance in 1..=3 {
        set.expire_lease(instance);
    }
    let [a, b, c] = &nodes;
    set.traffic(&[(1, a, 600), (2, b, 200), (0, c, 200)], 40);
    assert_whole(&set);
    assert_eq!(set.store.records.len(), 3);
}

#[test]
fn without_the_store_replicas_go_on_with_what_they_know() {
    let (mut set, [a, b, c]) = measured();
    for replica in 0..3 {
        set.disconnect(replica);
    }
    let all = [(0, &a, 600), (1, &b, 200), (2, &c, 200)];
    set.traffic(&all, 120);
    assert_whole(&set);
    // A node moves, which its old replica cannot know.
    set.move_node(&a, 0, 1);
    set.traffic(&[(1, &a, 600), (1, &b, 200), (2, &c, 200)], 30);
    assert_whole(&set);
    // Not forever: it could as well have ended.
    set.traffic(&[(1, &a, 600), (1, &b, 200), (2, &c, 200)], 120);
    assert_eq!(set.demand(0), zones(&[("b", 200), ("c", 200)]));
    assert_eq!(set.demand(1), whole(), "where it is");
    for replica in 0..3 {
        set.connect(replica);
    }
    set.traffic(&[(1, &a, 600), (1, &b, 200), (2, &c, 200)], 60);
    assert_whole(&set);
    assert_eq!(set.owner(&a), Some("r1".into()));
    let lost = |event: &&ControlEvent| matches!(event, ControlEvent::StoreLost { .. });
    assert_eq!(set.replicas[0].driver.events.iter().filter(lost).count(), 1);
}

#[test]
fn a_store_that_lost_everything_is_filled_again() {
    let (mut set, [a, b, c]) = measured();
    for replica in 0..3 {
        set.disconnect(replica);
    }
    set.store.records.clear();
    let all = [(0, &a, 600), (1, &b, 200), (2, &c, 200)];
    for replica in 0..3 {
        set.connect(replica);
        set.traffic(&all, 2);
        assert_whole(&set);
    }
    set.traffic(&all, 60);
    assert_whole(&set);
    assert_eq!(set.store.records.len(), 3);
}

#[test]
fn records_that_stay_away_are_forgotten_after_the_time_of_a_lease() {
    let (mut set, [_, b, c]) = measured();
    let dead = set.instance(0);
    for replica in 0..3 {
        set.disconnect(replica);
    }
    set.expire_lease(dead);
    set.connect(1);
    set.connect(2);
    let rest = [(1, &b, 200), (2, &c, 200)];
    set.traffic(&rest, 25);
    assert_eq!(
        set.demand(1),
        whole(),
        "its replica may still find the store"
    );
    set.traffic(&rest, 10);
    for replica in [1, 2] {
        assert_eq!(set.demand(replica), zones(&[("b", 200), ("c", 200)]));
        assert_eq!(set.nodes(replica), 2);
    }
}

#[test]
fn before_the_store_is_read_demand_is_incomplete() {
    let (mut set, [a, b, c]) = measured();
    set.restart(0);
    let key = set.replicas[0].driver.open_as(&a, true);
    assert!(key.returning, "it keeps what it has");
    set.traffic(&[(0, &a, 600), (1, &b, 200), (2, &c, 200)], 60);
    assert!(set.delivered(0).is_empty(), "it would be 100 % of zone a");
    assert!(
        set.replicas[0]
            .driver
            .assignment(&key, "local_cluster")
            .is_none()
    );
    set.connect(0);
    assert_whole(&set);
    assert!(
        set.replicas[0]
            .driver
            .assignment(&key, "local_cluster")
            .is_some()
    );
}

#[test]
fn an_id_at_two_replicas_is_reported_and_counted_once() {
    let (mut set, [a, b, c]) = measured();
    let twin = node(NodeClass::Envoy, &a.node.id, "a");
    set.open(1, &twin);
    let reports = [(0, &a, 600), (1, &twin, 600), (1, &b, 200), (2, &c, 200)];
    set.traffic(&reports, 5);
    assert_whole(&set);
    for replica in [0, 1] {
        let driver = &set.replicas[replica].driver;
        let suspects = driver.state.suspects();
        let recent = suspects.recent(Suspicion::DuplicateId, driver.now);
        assert_eq!(recent.count(), 1, "replica {replica}");
    }
    let driver = &set.replicas[2].driver;
    let recent = driver
        .state
        .suspects()
        .recent(Suspicion::DuplicateId, driver.now);
    assert_eq!(recent.count(), 0, "it cannot know");
}

#[test]
fn discovery_and_load_reporting_may_use_two_replicas() {
    let mut set = Set::new(2);
    let a = node(NodeClass::Envoy, "a", "a");
    set.open_kind(0, &a, StreamKind::Ads);
    assert_eq!(set.owner(&a), Some("r0".into()));
    assert_eq!((set.nodes(0), set.nodes(1)), (1, 1));
    set.open_kind(1, &a, StreamKind::Lrs);
    set.traffic(&[(1, &a, 100)], 40);
    assert_eq!(set.owner(&a), Some("r1".into()));
    for replica in [0, 1] {
        assert_eq!(set.demand(replica), zones(&[("a", 100)]));
        assert_eq!(set.nodes(replica), 1);
    }
    // Its load reporting stream ends for good: it is a node without load.
    let driver = &mut set.replicas[1].driver;
    driver.state.handle_close(&a, StreamKind::Lrs, driver.now);
    set.advance(60_000);
    for replica in [0, 1] {
        assert_eq!(set.demand(replica), zones(&[]));
        assert_eq!(set.nodes(replica), 1, "it has a discovery stream");
    }
    assert_eq!(set.owner(&a), Some("r0".into()));
}

#[test]
fn a_node_that_never_reports_again_does_not_count_forever() {
    let (mut set, [a, b, c]) = measured();
    set.move_node(&a, 0, 1);
    set.traffic(&[(1, &b, 200), (2, &c, 200)], 20);
    for replica in 0..3 {
        assert_eq!(set.demand(replica), zones(&[("b", 200), ("c", 200)]));
    }
}

#[test]
fn replicas_send_the_same_versions() {
    let (set, nodes) = measured();
    let versions = (0..3).map(|replica| {
        let driver = &set.replicas[replica].driver;
        let key = ViewKey::of(&nodes[replica], false);
        let view = driver.view(&key);
        let types = view
            .iter()
            .map(|(name, all)| (name.clone(), all.version().clone()));
        types.collect::<Vec<_>>()
    });
    let versions: Vec<_> = versions.collect();
    assert!(!versions[0].is_empty());
    assert_eq!(versions[0], versions[1]);
    assert_eq!(versions[0], versions[2]);
}

#[test]
fn reports_are_repeated_after_the_next_is_due_and_before_they_are_forgotten() {
    const INTERVAL: Duration = Duration::from_secs(10);
    let [info, ..] = fleet(NodeClass::Envoy);
    let repeated_after = |missed_intervals, reported: Option<u64>| {
        let timing = Timing {
            interval: INTERVAL,
            missed_intervals,
            lease_ttl: INTERVAL,
            leave_after: INTERVAL,
        };
        let replicas = Replicas::new("r0".into(), 1, timing);
        let mut node = SharedNode::new(Arc::new(info.clone()), Owner::Us);
        let report = |seconds| ClusterStats {
            load_report_interval: Duration::from_secs(seconds),
            ..stats("orders", 1)
        };
        node.stats = reported.map(report).into_iter().collect();
        replicas.schedule(&mut node, Instant::ORIGIN);
        node.due.unwrap().saturating_duration_since(Instant::ORIGIN)
    };
    assert_eq!(repeated_after(3, None), INTERVAL * 3 / 2);
    assert_eq!(repeated_after(2, None), INTERVAL * 3 / 2);
    assert_eq!(repeated_after(1, None), INTERVAL * 9 / 10);
    // By the interval that the node used, which counts up to three times the requested one.
    assert_eq!(repeated_after(3, Some(20)), INTERVAL * 3);
    assert_eq!(repeated_after(1, Some(100)), INTERVAL * 27 / 10);
    assert_eq!(repeated_after(3, Some(0)), Duration::from_millis(150));
}

#[test]
fn a_node_that_reports_too_often_is_written_twice_per_interval_with_its_newest_report() {
    let mut set = Set::new(2);
    let [a, ..] = fleet(NodeClass::Envoy);
    set.open(0, &a);
    let mut written = BTreeSet::new();
    for step in 1..=50 {
        set.advance(100);
        set.report(0, &a, step);
        written.insert(set.revision(&a));
    }
    // 5 s with an interval of 1 s.
    assert_eq!(written.len(), 10);
    let delayed = |event: &&ControlEvent| matches!(event, ControlEvent::WriteDelayed { .. });
    let events = &set.replicas[0].driver.events;
    assert_eq!(
        events.iter().filter(delayed).count(),
        49,
        "all but the first"
    );
    set.advance(500);
    assert_eq!(set.demand(1), zones(&[("a", 50)]), "the newest");
    let last = set.revision(&a);
    set.advance(500);
    assert_eq!(set.revision(&a), last, "nothing waits");
}

#[test]
fn reports_that_wait_are_written_when_the_store_is_read_and_not_after_the_node_left() {
    let mut set = Set::new(2);
    let [a, b, _] = fleet(NodeClass::Envoy);
    for node in [&a, &b] {
        set.open(0, node);
        set.report(0, node, 100);
        set.report(0, node, 200);
    }
    set.disconnect(0);
    set.connect(0);
    assert_eq!(set.demand(1), zones(&[("a", 200), ("b", 200)]));
    set.report(0, &b, 300);
    set.move_node(&b, 0, 1);
    set.report(1, &b, 400);
    set.advance(1000);
    assert_eq!(set.owner(&b), Some("r1".into()));
    assert_eq!(set.demand(0)["b"], 400);
}
