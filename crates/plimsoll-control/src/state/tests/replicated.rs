//! Tests of the part of the state that replicas share.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_xds::replica::NodeRecord;

use super::driver::{Driver, config, node, stats};
use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::fleet::OpenRefusal;
use crate::replicas::{NodeKey, StoreInput, StoreSnapshot, StoredNode};
use crate::state::ControlEvent;

/// A replica that knows at most `nodes` nodes, and has not read its store.
fn replica(nodes: usize) -> Driver {
    let mut config = ControlConfig::clone(&config(""));
    config.operation.limits.fleets.nodes = nodes;
    let mut driver = Driver::with_config(Arc::new(config));
    driver.state = driver.state.with_replicas("r0".into(), 1);
    driver
}

/// The record of a node that another replica serves, with its load report.
fn stored(id: &str, requests: u64) -> StoredNode {
    StoredNode {
        record: NodeRecord {
            replica: "r1".into(),
            instance: 2,
            node: node(NodeClass::Envoy, id, "a"),
            cluster_stats: vec![stats("orders", requests)],
        },
        revision: 1,
    }
}

fn snapshot(nodes: &[StoredNode]) -> StoreInput {
    StoreInput::Snapshot(StoreSnapshot {
        nodes: nodes.to_vec(),
        ..StoreSnapshot::default()
    })
}

fn input(driver: &mut Driver, input: StoreInput) {
    driver.state.handle_store(input, driver.now);
    driver.drain();
}

/// Returns the events about the store.
fn store_events(driver: &Driver) -> Vec<ControlEvent> {
    let about_store = |event: &&ControlEvent| {
        matches!(
            event,
            ControlEvent::StoreConnected { .. } | ControlEvent::StoreLost { .. }
        )
    };
    driver.events.iter().filter(about_store).cloned().collect()
}

#[test]
fn the_store_is_reported_when_it_connects_and_when_it_is_lost() {
    let mut driver = replica(10);
    let lost = || StoreInput::Disconnected("refused".to_owned());
    for step in [
        lost(),
        snapshot(&[stored("1", 10)]),
        StoreInput::NodePut(stored("2", 10)),
        lost(),
        lost(),
        snapshot(&[stored("1", 10), stored("2", 10), stored("3", 10)]),
    ] {
        input(&mut driver, step);
    }
    let reason = "refused".to_owned();
    let expected = [
        ControlEvent::StoreConnected { nodes: 1 },
        ControlEvent::StoreLost { reason },
        ControlEvent::StoreConnected { nodes: 3 },
    ];
    assert_eq!(store_events(&driver), expected);
}

#[test]
fn the_hold_begins_when_the_store_is_read_for_the_first_time() {
    let mut driver = replica(10);
    assert_eq!(driver.state.demand.starting_until(), None);
    driver.advance(5000);
    input(&mut driver, snapshot(&[]));
    let until = driver.now.saturating_add(Duration::from_secs(12));
    assert_eq!(driver.state.demand.starting_until(), Some(until));
    driver.advance(1000);
    input(&mut driver, StoreInput::NodePut(stored("1", 10)));
    input(&mut driver, StoreInput::Disconnected("test".to_owned()));
    input(&mut driver, snapshot(&[]));
    assert_eq!(driver.state.demand.starting_until(), Some(until));
}

#[test]
fn a_node_of_another_replica_beyond_the_limit_does_not_count() {
    let mut driver = replica(1);
    input(
        &mut driver,
        snapshot(&[stored("1", 100), stored("2", 1000)]),
    );
    driver.advance(1000);
    assert_eq!(driver.state.fleets().node_count("gateway"), 1);
    let refused = ControlEvent::StreamRefused {
        fleet: "gateway".into(),
        node: "2".into(),
        refusal: OpenRefusal::Nodes(1),
    };
    assert!(driver.events.contains(&refused), "{:?}", driver.events);
    let view = driver.state.planner().fleet("gateway", driver.now).unwrap();
    let nodes: Vec<_> = view.nodes().map(|node| node.rate_per_second).collect();
    assert_eq!(nodes, [100.0]);
}

#[test]
fn a_node_that_its_replica_deletes_leaves_at_once() {
    let mut driver = replica(10);
    input(&mut driver, snapshot(&[stored("1", 10), stored("2", 10)]));
    driver.events.clear();
    let key = NodeKey {
        fleet: "gateway".into(),
        id: "1".into(),
    };
    input(&mut driver, StoreInput::NodeDeleted(key));
    let changed = ControlEvent::FleetChanged {
        fleet: "gateway".into(),
        nodes: 1,
    };
    assert!(driver.events.contains(&changed), "{:?}", driver.events);
    assert_eq!(driver.state.fleets().node_count("gateway"), 1);
}

#[test]
fn another_interval_of_the_configuration_applies_to_replicas() {
    let mut driver = replica(10);
    input(&mut driver, snapshot(&[]));
    let mut config = ControlConfig::clone(driver.state.config());
    config.reporting.load_reporting_interval = Duration::from_secs(4);
    driver.reload(Arc::new(config));
    driver.open(&node(NodeClass::Envoy, "1", "a"));
    let replicas = driver.state.replicas().unwrap();
    let repeated = driver.now.saturating_add(Duration::from_secs(6));
    assert_eq!(replicas.poll_timeout(), Some(repeated));
}

#[test]
fn an_edit_of_endpoints_is_another_configuration_for_other_replicas() {
    let mut driver = replica(10);
    let edited = config("");
    let mut without = ControlConfig::clone(&edited);
    Arc::make_mut(&mut without.services).clear();
    for config in [Arc::new(without), edited] {
        driver.reload(Arc::clone(&config));
        let agreed = driver.state.demand.agreed();
        assert_eq!(agreed.configuration(), config.fingerprint());
    }
}
