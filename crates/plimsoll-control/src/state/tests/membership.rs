//! Tests of fleet membership, and of restarts of the control plane.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};

use super::driver::{Driver, endpoint_weights, fleet, locality_weights, node, stats};
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::state::ControlEvent;

#[test]
fn new_zones_are_published_at_once_and_new_nodes_are_batched() {
    let mut driver = Driver::new("");
    let key = driver.open(&node(NodeClass::Envoy, "0", "a"));
    driver.publications(&key);
    driver.open(&node(NodeClass::Envoy, "1", "b"));
    assert_eq!(
        driver.publications(&key),
        1,
        "a zone that is missing is not routed by zones"
    );
    for id in 2..1000 {
        driver.open(&node(NodeClass::Envoy, &id.to_string(), "a"));
    }
    assert_eq!(driver.publications(&key), 0);
    driver.advance(1000);
    assert_eq!(driver.publications(&key), 1);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert!(weights["a"] > 900 * weights["b"], "{weights:?}");
    let plan = driver.state.fleet_plan("gateway").unwrap();
    assert_eq!(plan.counts.flat.all, 1000);
}

/// Every batch is an update for every node: the more there are, the fewer batches.
#[test]
fn a_large_fleet_has_fewer_batches() {
    let mut driver = Driver::new("");
    driver.open(&node(NodeClass::Envoy, "0", "a"));
    let mut opened = 1;
    let mut open_until = |driver: &mut Driver, nodes: usize| {
        while opened < nodes {
            driver.open(&node(NodeClass::Envoy, &opened.to_string(), "a"));
            opened += 1;
        }
    };
    let counted = |driver: &Driver| {
        let plan = driver.state.fleet_plan("gateway").unwrap();
        plan.counts.flat.all
    };
    open_until(&mut driver, 3000);
    driver.advance(1000);
    // The first node of a batch decides how long it waits.
    for (nodes, millis) in [(3001, 3001), (12_000, 3002), (12_001, 10_000)] {
        open_until(&mut driver, nodes);
        driver.advance(millis - 1);
        assert!(counted(&driver) < nodes as u64, "{nodes}");
        driver.advance(1);
        assert_eq!(counted(&driver), nodes as u64);
    }
}

#[test]
fn disconnected_nodes_leave_after_a_while() {
    let mut driver = Driver::new("");
    let [a, b, _] = fleet(NodeClass::Envoy);
    let key = driver.open(&a);
    driver.open(&b);
    driver.advance(5000);
    driver.publications(&key);
    driver.close(&b);
    driver.advance(29_000);
    assert_eq!(
        driver.publications(&key),
        0,
        "a reconnect does not change the membership"
    );
    driver.advance(2000);
    assert_eq!(driver.publications(&key), 1);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(endpoint_weights(&local).len(), 1);
    let last = driver.events.last();
    assert!(
        matches!(last, Some(ControlEvent::FleetChanged { nodes: 1, .. })),
        "{last:?}"
    );
}

#[test]
fn empty_fleets_are_forgotten() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    let keys = [&a, &b, &c].map(|node| driver.open(node));
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 5);
    assert!(driver.state.fleet_plan("gateway").is_some());
    for (node, key) in [&a, &b, &c].into_iter().zip(&keys) {
        driver.close(node);
        driver.state.handle_output_unused(key);
    }
    driver.advance(60_000);
    assert_eq!(driver.state.fleets().iter().count(), 0);
    assert!(driver.state.fleet_plan("gateway").is_none());
    assert!(keys.iter().all(|key| driver.state.view(key).is_none()));
    // Nodes can return after their fleet was forgotten.
    let key = driver.open(&a);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(endpoint_weights(&local).len(), 1);
}

#[test]
fn after_a_restart_weights_are_withheld_until_demand_is_known() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    let returning = driver.open_as(&a, true);
    driver.open_as(&b, true);
    driver.open_as(&c, true);
    assert!(returning.returning);
    let held = driver
        .view(&returning)
        .get(CLUSTER_LOAD_ASSIGNMENT)
        .unwrap();
    assert!(!held.is_complete(), "nothing may be announced as gone");
    assert!(held.get("local_cluster").is_none());
    assert!(
        held.get("orders").is_some(),
        "what does not depend on demand is there"
    );
    assert_eq!(driver.view(&returning).get(CLUSTER).unwrap().len(), 1);
    // A receiver that has no resources gets them at once.
    let fresh = driver.open(&node(NodeClass::Envoy, "new", "a"));
    assert!(driver.assignment(&fresh, "local_cluster").is_some());

    driver.advance(5000);
    // The load report of an Envoy whose connection attempts have failed for 5 s.
    for (node, requests) in [(&a, 2500), (&b, 1750), (&c, 750)] {
        let mut late = stats("orders", requests);
        late.load_report_interval = Duration::from_secs(5);
        driver.state.handle_report(node, &[late], driver.now);
        driver.drain();
    }
    let traffic = [(&a, 500), (&b, 350), (&c, 150)];
    driver.traffic(&traffic, 4);
    assert!(
        driver.assignment(&returning, "local_cluster").is_none(),
        "not complete yet"
    );
    driver.traffic(&traffic, 2);
    let local = driver.assignment(&returning, "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert_eq!(weights["a"] * 7, weights["b"] * 10, "{weights:?}");
    assert!(
        driver
            .view(&returning)
            .get(CLUSTER_LOAD_ASSIGNMENT)
            .unwrap()
            .is_complete()
    );
    // Demand is known: nothing is withheld from receivers that reconnect from now on.
    assert!(!driver.open_as(&a, true).returning);
}

#[test]
fn after_a_restart_one_report_of_each_node_is_enough() {
    let mut driver = Driver::new("");
    let proxies = fleet(NodeClass::Envoy);
    let keys = proxies.each_ref().map(|node| driver.open_as(node, true));
    driver.advance(5000);
    for (node, requests) in proxies.iter().zip([2500, 1750, 750]) {
        assert!(driver.assignment(&keys[0], "local_cluster").is_none());
        let mut late = stats("orders", requests);
        late.load_report_interval = Duration::from_secs(5);
        driver.state.handle_report(node, &[late], driver.now);
        driver.drain();
    }
    let local = driver.assignment(&keys[0], "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert_eq!(weights["a"] * 7, weights["b"] * 10, "{weights:?}");
}

#[test]
fn after_a_restart_locality_weights_are_withheld_too() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Grpc);
    let key = driver.open_as(&a, true);
    assert!(driver.assignment(&key, "orders").is_none());
    driver.advance(12_000);
    let orders = driver.assignment(&key, "orders").unwrap();
    let weights = locality_weights(&orders);
    assert_eq!(
        weights["a"], 3000,
        "the whole fleet is here, three tenths of the servers are"
    );
}

#[test]
fn without_demand_the_hold_ends() {
    let mut driver = Driver::new("");
    let key = driver.open_as(&node(NodeClass::Envoy, "0", "a"), true);
    assert!(driver.assignment(&key, "local_cluster").is_none());
    driver.advance(11_000);
    assert!(driver.assignment(&key, "local_cluster").is_none());
    driver.advance(1000);
    assert!(driver.assignment(&key, "local_cluster").is_some());
}

#[test]
fn receivers_of_one_key_share_a_view() {
    let mut driver = Driver::new("");
    let keys: Vec<_> = (0..10)
        .map(|id| driver.open(&node(NodeClass::Envoy, &id.to_string(), "a")))
        .collect();
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
    let grpc = driver.open(&node(NodeClass::Grpc, "g", "a"));
    let b = driver.open(&node(NodeClass::Envoy, "b", "b"));
    assert!(keys[0] != grpc && keys[0] != b);
    // Stock Envoys get the same resources in every zone.
    let [a, b] = [driver.view(&keys[0]), driver.view(&b)];
    assert!(Arc::ptr_eq(a, b));
}

#[test]
fn the_hold_after_a_restart_ends_exactly_at_its_deadline() {
    let mut driver = Driver::new("");
    let gateway = "gateway".into();
    let until = driver.now.saturating_add(Duration::from_secs(12));
    let before = driver.now.saturating_add(Duration::from_millis(11_999));
    for (now, holds) in [(driver.now, true), (before, true), (until, false)] {
        assert_eq!(driver.state.is_holding(&gateway, now), holds, "{now:?}");
        let [a, ..] = fleet(NodeClass::Envoy);
        let key = driver
            .state
            .handle_open(
                &a,
                StreamKind::Ads,
                true,
                &crate::fleet::Peer::default(),
                now,
            )
            .unwrap();
        assert_eq!(key.returning, holds, "{now:?}");
    }
    assert_eq!(driver.state.poll_timeout(), Some(until));
    driver.advance(12_000);
    let late = driver.open_as(&node(NodeClass::Envoy, "late", "a"), true);
    assert!(!late.returning, "it ends without demand, too");
}

#[test]
fn a_service_without_reports_is_not_warming_up_with_others() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    let is_warming_up = |driver: &Driver, cluster: &str| {
        let [gateway, cluster] = ["gateway", cluster].map(Into::into);
        driver.state.is_warming_up(&gateway, &cluster, driver.now)
    };
    assert!(is_warming_up(&driver, "carts"), "during the hold");
    driver.advance(13_000);
    driver.report(&a, "orders", 100);
    assert!(is_warming_up(&driver, "orders"), "since its first report");
    assert!(!is_warming_up(&driver, "carts"));
    driver.advance(1000);
    assert!(!is_warming_up(&driver, "orders"));
}

#[test]
fn demand_ends_with_the_last_load_reporting_stream_only() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    driver.open(&a);
    driver.traffic(&[(&a, 100)], 3);
    let reporting = |driver: &Driver| {
        let view = driver.state.planner().fleet("gateway", driver.now);
        view.map_or(0, |view| view.nodes_with_demand())
    };
    for (kind, expected) in [
        (StreamKind::Ads, 1),
        (StreamKind::Ads, 1),
        (StreamKind::Lrs, 1),
        (StreamKind::Lrs, 0),
    ] {
        driver.state.handle_close(&a, kind, driver.now);
        // Shorter than a report that is missing.
        driver.advance(1500);
        assert_eq!(reporting(&driver), expected, "{kind:?}");
        if expected > 0 {
            driver.report(&a, "orders", 100);
        }
    }
}

#[test]
fn a_fleet_is_known_while_it_has_a_node_or_a_view() {
    let mut driver = Driver::new("");
    let reporting = node(NodeClass::Envoy, "1", "a");
    let state = &mut driver.state;
    let opened = state.handle_open(
        &reporting,
        StreamKind::Lrs,
        false,
        &crate::fleet::Peer::default(),
        driver.now,
    );
    opened.unwrap();
    driver.traffic(&[(&reporting, 100)], 3);
    assert!(driver.state.fleet_plan("gateway").is_some(), "no view");
    let key = driver.open(&reporting);
    driver.close(&reporting);
    driver
        .state
        .handle_close(&reporting, StreamKind::Lrs, driver.now);
    driver.advance(60_000);
    assert_eq!(driver.state.fleets().node_count("gateway"), 0);
    assert!(driver.state.fleet_plan("gateway").is_some(), "no node");
    assert!(driver.state.view(&key).is_some());
}

#[test]
fn a_node_leaves_with_its_last_stream() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    driver.open(&a);
    driver.close(&a);
    driver.advance(60_000);
    assert_eq!(driver.state.fleets().members("gateway").count(), 1);
    driver.state.handle_close(&a, StreamKind::Ads, driver.now);
    driver.advance(60_000);
    assert_eq!(
        driver.state.fleets().members("gateway").count(),
        1,
        "it still reports"
    );
    driver.state.handle_close(&a, StreamKind::Lrs, driver.now);
    driver.advance(60_000);
    assert_eq!(driver.state.fleets().members("gateway").count(), 0);
}
