//! Conditions of policies, and when they are written.

use std::net::SocketAddr;

use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use plimsoll_core::model::zone_aware::ZoneAware;
use plimsoll_core::time::Instant;
use plimsoll_xds::replica::ReplicaRecord;

use super::*;
use crate::replicas::StoreInput;
use crate::state::tests::driver::config;

fn condition(kind: &str, status: &str, time: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        last_transition_time: time.to_owned(),
        reason: "R".to_owned(),
        ..Condition::default()
    }
}

fn status(conditions: Vec<Condition>, load: &str) -> PolicyStatus {
    let zone = ZoneStatus {
        zone: "a".to_owned(),
        load: load.to_owned(),
        ..ZoneStatus::default()
    };
    PolicyStatus {
        conditions,
        zones: vec![zone],
        ..PolicyStatus::default()
    }
}

#[test]
fn the_time_of_a_transition_changes_with_the_status_alone() {
    let before = status(vec![condition("Accepted", "True", "t1")], "1.00");
    let same = status(vec![condition("Accepted", "True", "")], "1.00");
    assert_eq!(next_status(&before, same.clone(), "t2", true), None);
    let mut other_reason = same;
    other_reason.conditions[0].reason = "S".to_owned();
    let next = next_status(&before, other_reason, "t2", false).unwrap();
    assert_eq!(next.conditions[0].last_transition_time, "t1");
    let changed = status(vec![condition("Accepted", "False", "")], "1.00");
    let next = next_status(&before, changed, "t2", false).unwrap();
    assert_eq!(next.conditions[0].last_transition_time, "t2");
    let added = status(
        vec![
            condition("Accepted", "True", ""),
            condition("X", "True", ""),
        ],
        "1.00",
    );
    let next = next_status(&before, added, "t3", false).unwrap();
    assert_eq!(next.conditions[1].last_transition_time, "t3");
}

#[test]
fn numbers_alone_are_written_when_they_may_be() {
    let before = status(vec![condition("Accepted", "True", "t1")], "1.00");
    let moved = status(vec![condition("Accepted", "True", "")], "1.20");
    assert_eq!(next_status(&before, moved.clone(), "t2", false), None);
    let next = next_status(&before, moved, "t2", true).unwrap();
    assert_eq!(next.zones[0].load, "1.20");
}

#[test]
fn localities_are_written_as_istio_does() {
    assert_eq!(istio_zone(&Locality::new("eu", "eu-a", "")), "eu/eu-a/*");
    let known = |rate_per_second| ReportedZone {
        rate_per_second,
        reporters: 1,
    };
    let demand = BTreeMap::from([(Locality::new("r", "a", ""), known(10.0))]);
    let hosts = (1..=10).map(|host| SocketAddr::from(([10, 0, 0, host], 80)));
    let parts = LocalityParts::new(Locality::new("r", "a", ""), hosts);
    let parts = AssignmentParts::new("orders", [parts]);
    let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
    let upstream = HostSetCounts::of_assignment(&assignment, 0, None);
    let found = distributions(&ZoneAware::default(), &upstream, &demand);
    let expected = json!({"from": "r/a/*", "to": {"r/a/*": 100}});
    assert_eq!(istio(&found[0]), expected);
}

#[test]
fn the_first_replica_in_the_store_writes() {
    let now = Instant::ORIGIN;
    let alone = State::new(config(""), now);
    assert!(is_writer(&alone), "without a store");
    let record = |name: &str| ReplicaRecord {
        replica: name.to_owned(),
        ..ReplicaRecord::default()
    };
    let mut state = State::new(config(""), now).with_replicas("r1".into(), 1);
    assert!(!is_writer(&state), "the store has not been read");
    let snapshot = |names: &[&str]| StoreInput::Snapshot {
        nodes: Vec::new(),
        replicas: names.iter().map(|name| record(name)).collect(),
    };
    state.handle_store(snapshot(&["r0", "r1", "r2"]), now);
    assert!(!is_writer(&state));
    state.handle_store(StoreInput::ReplicaDeleted("r0".into()), now);
    assert!(is_writer(&state));
    state.handle_store(StoreInput::Disconnected("gone".to_owned()), now);
    assert!(is_writer(&state), "its last state decides");
    state.handle_store(StoreInput::ReplicaPut(record("r0")), now);
    assert!(!is_writer(&state));
}
