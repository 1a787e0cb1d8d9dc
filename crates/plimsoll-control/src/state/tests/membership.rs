//! Who comes and goes, and what a restart must not break.

use std::time::Duration;

use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};

use super::driver::{Driver, endpoint_weights, fleet, locality_weights, node, stats};
use crate::delivery::Class;
use crate::fleet::StreamKind;
use crate::state::ControlEvent;

#[test]
fn a_new_zone_is_told_at_once_and_more_of_the_same_are_gathered() {
    let mut driver = Driver::new("");
    let key = driver.open(&node(Class::Envoy, "0", "a"));
    driver.news(&key);
    driver.open(&node(Class::Envoy, "1", "b"));
    assert_eq!(
        driver.news(&key),
        1,
        "a zone that is missing is not routed by zones"
    );
    for id in 2..1000 {
        driver.open(&node(Class::Envoy, &id.to_string(), "a"));
    }
    assert_eq!(driver.news(&key), 0);
    driver.pass(1000);
    assert_eq!(driver.news(&key), 1);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert!(weights["a"] > 900 * weights["b"], "{weights:?}");
    let plan = driver.state.fleet_plan("gateway").unwrap();
    assert_eq!(plan.counts.flat.all, 1000);
}

#[test]
fn who_is_gone_for_long_leaves() {
    let mut driver = Driver::new("");
    let [a, b, _] = fleet(Class::Envoy);
    let key = driver.open(&a);
    driver.open(&b);
    driver.pass(5000);
    driver.news(&key);
    driver.close(&b);
    driver.pass(29_000);
    assert_eq!(
        driver.news(&key),
        0,
        "a reconnect is no change of membership"
    );
    driver.pass(2000);
    assert_eq!(driver.news(&key), 1);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(endpoint_weights(&local).len(), 1);
    let last = driver.events.last();
    assert!(
        matches!(last, Some(ControlEvent::FleetChanged { nodes: 1, .. })),
        "{last:?}"
    );
}

#[test]
fn a_fleet_that_is_gone_is_forgotten() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(Class::Envoy);
    let keys = [&a, &b, &c].map(|node| driver.open(node));
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 5);
    assert!(driver.state.fleet_plan("gateway").is_some());
    for (node, key) in [&a, &b, &c].into_iter().zip(&keys) {
        driver.close(node);
        driver.state.handle_unused(key);
    }
    driver.pass(60_000);
    assert_eq!(driver.state.fleets().iter().count(), 0);
    assert!(driver.state.fleet_plan("gateway").is_none());
    assert!(keys.iter().all(|key| driver.state.view(key).is_none()));
    // And comes back as if it were new.
    let key = driver.open(&a);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(endpoint_weights(&local).len(), 1);
}

#[test]
fn after_a_restart_returning_receivers_keep_their_weights_until_demand_is_known() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(Class::Envoy);
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
    // Somebody who has nothing yet cannot wait.
    let fresh = driver.open(&node(Class::Envoy, "new", "a"));
    assert!(driver.assignment(&fresh, "local_cluster").is_some());

    driver.pass(5000);
    // What an Envoy says after it has tried for 5 s in vain.
    for (node, requests) in [(&a, 2500), (&b, 1750), (&c, 750)] {
        let mut late = stats("orders", requests);
        late.load_report_interval = Duration::from_secs(5);
        driver.state.handle_report(node, &[late], driver.now);
        driver.settle();
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
    // Whoever reconnects from now on does not wait.
    assert!(!driver.open_as(&a, true).returning);
}

#[test]
fn after_a_restart_the_first_reports_of_everybody_are_enough() {
    let mut driver = Driver::new("");
    let proxies = fleet(Class::Envoy);
    let keys = proxies.each_ref().map(|node| driver.open_as(node, true));
    driver.pass(5000);
    for (node, requests) in proxies.iter().zip([2500, 1750, 750]) {
        assert!(driver.assignment(&keys[0], "local_cluster").is_none());
        let mut late = stats("orders", requests);
        late.load_report_interval = Duration::from_secs(5);
        driver.state.handle_report(node, &[late], driver.now);
        driver.settle();
    }
    let local = driver.assignment(&keys[0], "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert_eq!(weights["a"] * 7, weights["b"] * 10, "{weights:?}");
}

#[test]
fn a_restart_holds_back_locality_weights_too() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(Class::Grpc);
    let key = driver.open_as(&a, true);
    assert!(driver.assignment(&key, "orders").is_none());
    driver.pass(12_000);
    let orders = driver.assignment(&key, "orders").unwrap();
    let weights = locality_weights(&orders);
    assert_eq!(
        weights["a"], 3000,
        "the whole fleet is here, three tenths of the servers are"
    );
}

#[test]
fn a_returning_receiver_without_demand_is_served_in_the_end() {
    let mut driver = Driver::new("");
    let key = driver.open_as(&node(Class::Envoy, "0", "a"), true);
    assert!(driver.assignment(&key, "local_cluster").is_none());
    driver.pass(11_000);
    assert!(driver.assignment(&key, "local_cluster").is_none());
    driver.pass(1000);
    assert!(driver.assignment(&key, "local_cluster").is_some());
}

#[test]
fn one_view_for_all_who_see_the_same() {
    let mut driver = Driver::new("");
    let keys: Vec<_> = (0..10)
        .map(|id| driver.open(&node(Class::Envoy, &id.to_string(), "a")))
        .collect();
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
    let grpc = driver.open(&node(Class::Grpc, "g", "a"));
    let b = driver.open(&node(Class::Envoy, "b", "b"));
    assert!(keys[0] != grpc && keys[0] != b);
}

#[test]
fn a_node_with_two_streams_leaves_with_the_last() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(Class::Envoy);
    driver.open(&a);
    driver.open(&a);
    driver.close(&a);
    driver.pass(60_000);
    assert_eq!(driver.state.fleets().members("gateway").count(), 1);
    driver.state.handle_close(&a, StreamKind::Ads, driver.now);
    driver.pass(60_000);
    assert_eq!(
        driver.state.fleets().members("gateway").count(),
        1,
        "it still reports"
    );
    driver.state.handle_close(&a, StreamKind::Lrs, driver.now);
    driver.pass(60_000);
    assert_eq!(driver.state.fleets().members("gateway").count(), 0);
}
