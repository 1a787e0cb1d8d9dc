//! What one replica writes, and which effects it returns, for each kind of input.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::{NodeRecord, ReplicaRecord};

use super::super::{
    Effect, NodeKey, Replicas, StoreInput, StoreSnapshot, StoredNode, Timing, Write,
};
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::state::tests::driver::{node, stats};

const LEASE_TTL: Duration = Duration::from_secs(30);
const START: Instant = Instant::ORIGIN;

/// How long a node without a stream stays.
const LEAVE_AFTER: Duration = Duration::from_secs(60);

/// The replica `r0`, which has not read the store.
fn replica() -> Replicas {
    let timing = Timing {
        interval: Duration::from_secs(1),
        missed_intervals: 3,
        lease_ttl: LEASE_TTL,
        leave_after: LEAVE_AFTER,
    };
    Replicas::new("r0".into(), 1, timing)
}

/// The replica `r0` with an empty store.
fn connected() -> Replicas {
    let mut replica = replica();
    assert_eq!(replica.handle_store(snapshot(Vec::new()), START), []);
    replica
}

fn at(milliseconds: u64) -> Instant {
    START.saturating_add(Duration::from_millis(milliseconds))
}

fn proxy(id: &str) -> NodeInfo {
    node(NodeClass::Envoy, id, "a")
}

fn key(id: &str) -> NodeKey {
    NodeKey::of(&proxy(id).node)
}

fn snapshot(nodes: Vec<StoredNode>) -> StoreInput {
    StoreInput::Snapshot(StoreSnapshot {
        nodes,
        ..StoreSnapshot::default()
    })
}

/// A record that `r1` wrote; without a load report for `None`.
fn of_other(info: &NodeInfo, revision: i64, requests: Option<u64>) -> StoredNode {
    StoredNode {
        record: record("r1", 2, info, requests),
        revision,
    }
}

fn record(replica: &str, instance: u64, info: &NodeInfo, requests: Option<u64>) -> NodeRecord {
    let report = requests.map(|requests| stats("orders", requests));
    NodeRecord {
        replica: replica.into(),
        instance,
        node: info.clone(),
        cluster_stats: report.into_iter().collect(),
    }
}

fn put_by_other(
    replica: &mut Replicas,
    info: &NodeInfo,
    revision: i64,
    requests: Option<u64>,
    now: Instant,
) -> Vec<Effect> {
    let stored = of_other(info, revision, requests);
    replica.handle_store(StoreInput::NodePut(stored), now)
}

fn report_here(replica: &mut Replicas, info: &NodeInfo, requests: u64, now: Instant) {
    let mut effects = Vec::new();
    replica.handle_report(info, &[stats("orders", requests)], &mut effects, now);
}

fn joined(info: &NodeInfo) -> Effect {
    Effect::Join(Arc::new(info.clone()))
}

fn reported(info: &NodeInfo, requests: u64) -> Effect {
    let report = [stats("orders", requests)];
    Effect::Report(Arc::new(info.clone()), Arc::from(report))
}

fn lost(id: &str) -> [Effect; 2] {
    [Effect::Leave(key(id)), Effect::Silent(key(id))]
}

/// Takes out all writes.
fn writes(replica: &mut Replicas) -> Vec<(NodeKey, Write)> {
    std::iter::from_fn(|| replica.poll_write()).collect()
}

/// Writes of this replica's records.
fn own(info: &NodeInfo, requests: Option<u64>) -> (NodeKey, Write) {
    let record = record("r0", 1, info, requests);
    let write = match requests {
        Some(_) => Write::Put(record),
        None => Write::PutIfOwn(record),
    };
    (NodeKey::of(&info.node), write)
}

fn owner(replica: &Replicas, id: &str) -> Option<String> {
    let owner = replica.owner("gateway", id);
    owner.map(ToString::to_string)
}

#[test]
fn a_load_reporting_stream_takes_a_node_over_and_a_discovery_stream_does_not() {
    let mut replica = replica();
    let (a, b) = (proxy("a"), proxy("b"));
    assert!(!replica.handle_open(&a, StreamKind::Ads, START), "unknown");
    assert_eq!(writes(&mut replica), [own(&a, None)]);
    let effects = put_by_other(&mut replica, &b, 1, Some(5), START);
    assert_eq!(effects, [joined(&b), reported(&b, 5)]);
    assert!(!replica.handle_open(&b, StreamKind::Ads, START));
    assert_eq!(writes(&mut replica), []);
    assert_eq!(owner(&replica, "b").as_deref(), Some("r1"));
    assert_eq!(replica.counts(), (2, 1));
    assert!(replica.handle_open(&b, StreamKind::Lrs, START));
    assert_eq!(writes(&mut replica), [own(&b, Some(5))]);
    assert_eq!(owner(&replica, "b").as_deref(), Some("r0"));
    assert_eq!(replica.counts(), (2, 2));
    assert!(!replica.handle_open(&b, StreamKind::Lrs, START), "is owned");
    assert_eq!(writes(&mut replica), []);
    assert_eq!(owner(&replica, "c"), None);
}

#[test]
fn a_report_replaces_the_node_and_the_report_in_the_record() {
    let mut replica = replica();
    let (before, after) = (proxy("a"), node(NodeClass::Envoy, "a", "b"));
    report_here(&mut replica, &before, 5, START);
    assert_eq!(writes(&mut replica), [own(&before, Some(5))]);
    report_here(&mut replica, &after, 6, at(1000));
    assert_eq!(writes(&mut replica), [own(&after, Some(6))]);
    assert_eq!(replica.poll_timeout(), None, "it reports here");
}

#[test]
fn a_node_reports_here_until_its_last_load_reporting_stream_closes() {
    let mut replica = replica();
    let a = proxy("a");
    for kind in [StreamKind::Ads, StreamKind::Lrs, StreamKind::Lrs] {
        replica.handle_open(&a, kind, START);
    }
    report_here(&mut replica, &a, 5, START);
    for (revision, kind) in [(1, StreamKind::Lrs), (2, StreamKind::Ads)] {
        replica.handle_close(&key("a"), kind, START);
        let effects = put_by_other(&mut replica, &a, revision, Some(6), START);
        assert_eq!(effects, [], "{kind:?}");
    }
    replica.handle_close(&key("a"), StreamKind::Lrs, START);
    let effects = put_by_other(&mut replica, &a, 3, Some(6), START);
    assert_eq!(effects, [joined(&a), reported(&a, 6)]);
    replica.handle_close(&key("unknown"), StreamKind::Lrs, START);
}

#[test]
fn a_closed_node_counts_for_the_time_of_a_move_while_the_store_is_connected() {
    let a = proxy("a");
    let closed = |mut replica: Replicas| {
        replica.handle_open(&a, StreamKind::Lrs, START);
        report_here(&mut replica, &a, 5, START);
        assert_eq!(replica.poll_timeout(), None);
        replica.handle_close(&key("a"), StreamKind::Lrs, START);
        assert_eq!(replica.poll_timeout(), Some(at(1500)));
        assert_eq!(replica.handle_timeout(at(1499)), []);
        assert_eq!(replica.handle_timeout(at(1500)), [reported(&a, 5)]);
        assert_eq!(replica.poll_timeout(), Some(at(3000)));
        replica
    };
    let mut replica = closed(connected());
    assert_eq!(
        replica.handle_timeout(at(7000)),
        [Effect::Silent(key("a"))],
        "the store has no other record"
    );
    assert_eq!(replica.poll_timeout(), None);
    let mut disconnected = closed(self::replica());
    let effects = disconnected.handle_timeout(at(7000));
    assert_eq!(effects, [reported(&a, 5)], "it may have moved");
    // Not forever: it would count beside its successor.
    assert_eq!(disconnected.handle_timeout(at(66_999)), [reported(&a, 5)]);
    let effects = disconnected.handle_timeout(at(68_499));
    assert_eq!(effects, [Effect::Silent(key("a"))]);
    assert_eq!(disconnected.poll_timeout(), None);
    // Without another replica it cannot have moved.
    let mut alone = closed(connected());
    let own = ReplicaRecord {
        replica: "r0".to_owned(),
        ..ReplicaRecord::default()
    };
    alone.handle_store(StoreInput::ReplicaPut(own), at(3000));
    alone.handle_store(StoreInput::Disconnected("test".to_owned()), at(3000));
    assert_eq!(alone.handle_timeout(at(7000)), [Effect::Silent(key("a"))]);
}

#[test]
fn records_of_other_replicas_count_for_half_an_hour_of_an_outage_and_again_after_it() {
    let mut replica = replica();
    let a = proxy("a");
    let read = || snapshot(vec![of_other(&a, 1, Some(5))]);
    replica.handle_store(read(), START);
    replica.handle_store(StoreInput::Disconnected("test".to_owned()), at(1000));
    // A second attempt that fails does not begin the outage again.
    replica.handle_store(StoreInput::Disconnected("test".to_owned()), at(400_000));
    assert_eq!(replica.handle_timeout(at(1_800_999)), [reported(&a, 5)]);
    assert_eq!(
        replica.handle_timeout(at(1_802_499)),
        [Effect::Silent(key("a"))]
    );
    assert_eq!(replica.poll_timeout(), None, "it is not repeated");
    assert_eq!(replica.counts(), (1, 0), "it may still be there");
    let effects = replica.handle_store(read(), at(2_000_000));
    assert_eq!(effects, [joined(&a), reported(&a, 5)], "the same record");
}

#[test]
fn nodes_that_come_and_go_in_an_outage_leave_nothing_to_write() {
    let mut replica = connected();
    replica.handle_store(StoreInput::Disconnected("test".to_owned()), START);
    let a = proxy("a");
    report_here(&mut replica, &a, 5, START);
    assert_eq!(writes(&mut replica), [own(&a, Some(5))]);
    replica.handle_left(&key("a"));
    assert_eq!(writes(&mut replica), [(key("a"), Write::Forget)]);
    // What was written before the outage is deleted when the store is read.
    let stored = StoredNode {
        record: record("r0", 1, &a, Some(5)),
        revision: 7,
    };
    replica.handle_store(snapshot(vec![stored]), START);
    assert_eq!(writes(&mut replica), [(key("a"), Write::Delete)]);
}

#[test]
fn only_own_reports_are_removed_from_the_store_when_a_node_is_silent() {
    let mut replica = replica();
    let (own_node, idle, other) = (proxy("own"), proxy("idle"), proxy("other"));
    report_here(&mut replica, &own_node, 5, START);
    replica.handle_open(&idle, StreamKind::Ads, START);
    put_by_other(&mut replica, &other, 1, Some(5), START);
    writes(&mut replica);
    for id in ["own", "idle", "other", "unknown"] {
        replica.handle_stopped_reporting(&key(id));
    }
    assert_eq!(writes(&mut replica), [own(&own_node, None)]);
    let due = replica.handle_timeout(at(1500));
    assert_eq!(due, [reported(&other, 5)], "it counts by its record");
}

#[test]
fn a_node_that_left_is_deleted_by_its_owner_only() {
    let mut replica = connected();
    let (own_node, other) = (proxy("own"), proxy("other"));
    report_here(&mut replica, &own_node, 5, START);
    put_by_other(&mut replica, &other, 1, Some(5), START);
    writes(&mut replica);
    for id in ["own", "other", "unknown"] {
        replica.handle_left(&key(id));
    }
    assert_eq!(writes(&mut replica), [(key("own"), Write::Delete)]);
    assert_eq!(replica.counts(), (1, 0));
    replica.forget(&key("other"));
    assert_eq!(replica.counts(), (0, 0));
    assert_eq!(writes(&mut replica), []);
}

#[test]
fn replicas_are_known_by_their_records() {
    let record = |replica: &str, nodes| ReplicaRecord {
        replica: replica.to_owned(),
        nodes,
        ..ReplicaRecord::default()
    };
    let mut replica = replica();
    assert!(!replica.is_connected() && !replica.is_synced());
    let names = |replica: &Replicas| {
        let all = replica.all();
        let one =
            |(record, at): &(ReplicaRecord, Instant)| (record.replica.clone(), record.nodes, *at);
        all.map(one).collect::<Vec<_>>()
    };
    let input = StoreInput::Snapshot(StoreSnapshot {
        replicas: vec![record("r1", 3), record("r2", 4)],
        ..StoreSnapshot::default()
    });
    replica.handle_store(input, at(1));
    assert!(replica.is_connected() && replica.is_synced());
    replica.handle_store(StoreInput::ReplicaPut(record("r1", 5)), at(2));
    let both = [("r1".to_owned(), 5, at(2)), ("r2".to_owned(), 4, at(1))];
    assert_eq!(names(&replica), both);
    replica.handle_store(StoreInput::ReplicaDeleted("r1".into()), at(3));
    assert_eq!(names(&replica), both[1..]);
    let lost = StoreInput::Disconnected("test".to_owned());
    assert_eq!(replica.handle_store(lost, at(4)), []);
    assert!(!replica.is_connected() && replica.is_synced());
    assert_eq!(&**replica.id(), "r0");
}

#[test]
fn fleets_with_demand_at_the_start_are_known_until_they_are_forgotten() {
    let mut replica = replica();
    let of_fleet = |fleet: &str| {
        let mut info = proxy("a");
        info.node.cluster = fleet.into();
        info
    };
    let nodes = vec![
        of_other(&of_fleet("measured"), 1, Some(5)),
        of_other(&of_fleet("silent"), 2, None),
    ];
    replica.handle_store(snapshot(nodes), START);
    let later = vec![of_other(&of_fleet("later"), 3, Some(5))];
    replica.handle_store(snapshot(later), START);
    let known = |replica: &Replicas| {
        ["measured", "silent", "later"].map(|one| replica.had_demand_at_start(one))
    };
    assert_eq!(known(&replica), [true, false, false]);
    replica.clear_startup_fleets();
    assert_eq!(known(&replica), [false; 3]);
}

#[test]
fn a_snapshot_adds_reports_and_writes_what_the_store_lacks() {
    let mut replica = replica();
    let (reporting, idle, other) = (proxy("1"), proxy("2"), proxy("3"));
    report_here(&mut replica, &reporting, 5, START);
    replica.handle_open(&idle, StreamKind::Ads, START);
    writes(&mut replica);
    let read = || snapshot(vec![of_other(&other, 1, Some(6))]);
    let effects = replica.handle_store(read(), START);
    let expected = [joined(&other), reported(&other, 6), reported(&reporting, 5)];
    assert_eq!(effects, expected);
    let own_records = [own(&reporting, Some(5)), own(&idle, None)];
    assert_eq!(writes(&mut replica), own_records);
    assert_eq!(replica.handle_store(read(), START), [], "read before");
    assert_eq!(writes(&mut replica), own_records, "missing again");
    // A node with a stream here becomes this replica's if its record is missing.
    replica.handle_open(&other, StreamKind::Ads, START);
    let effects = replica.handle_store(snapshot(Vec::new()), START);
    assert_eq!(effects, [Effect::Own(key("3"))]);
    let all = [own_records.as_slice(), &[own(&other, Some(6))]].concat();
    assert_eq!(writes(&mut replica), all);
    assert_eq!(owner(&replica, "3").as_deref(), Some("r0"));
    // Records that were written under another lease are written again.
    replica.handle_store(StoreInput::LeaseChanged, START);
    assert_eq!(writes(&mut replica), all);
}

#[test]
fn a_missing_record_counts_for_the_time_of_a_lease_and_while_the_store_is_away() {
    let mut replica = replica();
    let a = proxy("a");
    let read = vec![of_other(&a, 1, Some(5))];
    replica.handle_store(snapshot(read), START);
    replica.handle_store(snapshot(Vec::new()), at(10_000));
    assert_eq!(replica.poll_timeout(), Some(at(11_500)));
    assert_eq!(replica.handle_timeout(at(11_500)), [reported(&a, 5)]);
    assert_eq!(replica.handle_timeout(at(39_999)), [reported(&a, 5)]);
    let away = StoreInput::Disconnected("test".to_owned());
    replica.handle_store(away, at(40_000));
    assert_eq!(replica.handle_timeout(at(50_000)), [reported(&a, 5)]);
    replica.handle_store(snapshot(Vec::new()), at(50_000));
    assert_eq!(replica.handle_timeout(at(52_000)), lost("a"));
    assert_eq!((replica.counts(), replica.poll_timeout()), ((0, 0), None));
    assert_eq!(writes(&mut replica), []);
}

#[test]
fn records_of_this_process_are_confirmed_or_deleted() {
    let mut replica = connected();
    let (known, dropped) = (proxy("known"), proxy("dropped"));
    report_here(&mut replica, &known, 5, START);
    writes(&mut replica);
    for (info, instance) in [(&known, 1), (&dropped, 1)] {
        let stored = StoredNode {
            record: record("r0", instance, info, Some(5)),
            revision: 7,
        };
        let effects = replica.handle_store(StoreInput::NodePut(stored), START);
        assert_eq!(effects, []);
    }
    assert_eq!(writes(&mut replica), [(key("dropped"), Write::Delete)]);
    // An earlier process of the same name is another replica.
    let stored = StoredNode {
        record: record("r0", 9, &dropped, None),
        revision: 8,
    };
    let effects = replica.handle_store(StoreInput::NodePut(stored), START);
    assert_eq!(effects, [joined(&dropped)]);
    assert_eq!(writes(&mut replica), []);
}

#[test]
fn a_write_that_replaces_the_record_of_another_replica_makes_the_node_this_ones_again() {
    let mut replica = connected();
    let a = proxy("a");
    report_here(&mut replica, &a, 5, START);
    replica.handle_close(&key("a"), StreamKind::Lrs, START);
    // The other one takes over; the record of this one was on its way, and is the last.
    put_by_other(&mut replica, &a, 1, Some(6), START);
    assert_eq!(owner(&replica, "a").as_deref(), Some("r1"));
    let stored = StoredNode {
        record: record("r0", 1, &a, Some(5)),
        revision: 2,
    };
    let effects = replica.handle_store(StoreInput::NodePut(stored), START);
    assert_eq!(effects, [Effect::Own(key("a")), reported(&a, 5)]);
    assert_eq!(owner(&replica, "a").as_deref(), Some("r0"));
    let mut later = Vec::new();
    for second in 1..=10 {
        later.extend(replica.handle_timeout(at(second * 1000)));
    }
    assert_eq!(later.last(), Some(&Effect::Silent(key("a"))), "{later:?}");
}

#[test]
fn a_record_counts_once_per_revision_and_with_the_report_in_it() {
    let mut replica = connected();
    let a = proxy("a");
    let mut put = |revision, requests| put_by_other(&mut replica, &a, revision, requests, START);
    assert_eq!(put(0, Some(5)), [joined(&a), reported(&a, 5)], "new");
    assert_eq!(put(0, Some(5)), [], "seen");
    assert_eq!(put(1, Some(6)), [joined(&a), reported(&a, 6)]);
    assert_eq!(put(2, None), [joined(&a), Effect::Silent(key("a"))]);
    assert_eq!(put(3, None), [joined(&a)], "silent before");
    // A node that moves may describe itself in another way; a stream here knows it best.
    let mut renamed = a.clone();
    renamed.user_agent_version = "2".to_owned();
    let effects = put_by_other(&mut replica, &renamed, 4, Some(7), START);
    assert_eq!(effects, [joined(&renamed), reported(&renamed, 7)]);
    replica.handle_open(&renamed, StreamKind::Ads, START);
    let effects = put_by_other(&mut replica, &a, 5, Some(8), START);
    assert_eq!(effects, [joined(&a), reported(&renamed, 8)]);
}

#[test]
fn three_reports_elsewhere_make_a_node_that_reports_here_a_duplicate() {
    let mut replica = connected();
    let a = proxy("a");
    report_here(&mut replica, &a, 5, START);
    let effects = [1, 2, 3, 4].map(|revision| {
        let now = at(1499);
        put_by_other(&mut replica, &a, revision, Some(6), now)
    });
    let duplicate = vec![Effect::Duplicate(key("a"), "r1".into())];
    assert_eq!(effects, [vec![], vec![], duplicate, vec![]]);
    // Silent here for one and a half intervals.
    let effects = put_by_other(&mut replica, &a, 5, Some(6), at(1500));
    assert_eq!(effects, [joined(&a), reported(&a, 6)]);
    assert_eq!(
        writes(&mut replica),
        [],
        "the other replica owns the record"
    );
}

#[test]
fn a_deleted_record_is_written_again_by_the_replica_with_the_node() {
    let mut replica = connected();
    let (reporting, visiting, other) = (proxy("1"), proxy("2"), proxy("3"));
    report_here(&mut replica, &reporting, 5, START);
    for info in [&visiting, &other] {
        put_by_other(&mut replica, info, 1, Some(6), START);
    }
    replica.handle_open(&visiting, StreamKind::Ads, START);
    writes(&mut replica);
    let effects = ["1", "2", "3", "4"].map(|id| {
        let deleted = StoreInput::NodeDeleted(key(id));
        replica.handle_store(deleted, START)
    });
    let owned = vec![Effect::Own(key("2"))];
    assert_eq!(effects, [vec![], owned, lost("3").to_vec(), vec![]]);
    let expected = [own(&reporting, Some(5)), own(&visiting, Some(6))];
    assert_eq!(writes(&mut replica), expected);
    assert_eq!(replica.counts(), (2, 2));
}

#[test]
fn changed_settings_apply_to_the_next_deadline() {
    let mut replica = connected();
    let a = proxy("a");
    put_by_other(&mut replica, &a, 1, None, START);
    assert_eq!(replica.poll_timeout(), Some(at(1500)));
    replica.set_timing(Timing {
        interval: Duration::from_secs(10),
        missed_intervals: 1,
        lease_ttl: LEASE_TTL,
        leave_after: LEAVE_AFTER,
    });
    put_by_other(&mut replica, &a, 2, None, START);
    assert_eq!(replica.poll_timeout(), Some(at(9000)));
}
