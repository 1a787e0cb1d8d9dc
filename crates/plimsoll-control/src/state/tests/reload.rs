//! Tests of configuration changes while receivers are connected.

use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::FleetView;
use plimsoll_xds::ads::{CLUSTER, LISTENER};

use super::driver::{
    Driver, HEAD, config, endpoint_weights, fleet, locality_weights, parse, stats,
};
use crate::delivery::NodeClass;
use crate::state::ControlEvent;

#[test]
fn changes_of_endpoints_and_services_are_published() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    let key = driver.open(&a);
    driver.publications(&key);
    driver.reload(parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders}}, endpoints: [{{locality: {{zone: a}}, \
         lb_endpoints: ['10.9.9.9:80']}}]}}, {{cluster: {{name: carts}}}}]"
    )));
    assert_eq!(driver.publications(&key), 1);
    let orders = driver.assignment(&key, "orders").unwrap();
    assert_eq!(endpoint_weights(&orders).len(), 1);
    assert!(driver.assignment(&key, "carts").is_some());
    assert_eq!(driver.view(&key).get(CLUSTER).unwrap().len(), 2);
    driver.reload(parse("services: [{cluster: {name: carts}}]"));
    assert!(driver.assignment(&key, "orders").is_none());
    assert!(driver.view(&key).get(CLUSTER).unwrap().is_absent("orders"));
    let applied = |event: &&ControlEvent| matches!(event, ControlEvent::ConfigApplied { .. });
    assert_eq!(driver.events.iter().filter(applied).count(), 2);
}

#[test]
fn changes_of_mode_and_ramp_need_no_reports() {
    let mut driver = Driver::new("");
    let nodes = fleet(NodeClass::Grpc);
    let keys = [0, 1, 2].map(|index: usize| driver.open(&nodes[index]));
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 10);
    let mut local = |service: &str| {
        driver.reload(config(service));
        locality_weights(&driver.assignment(&keys[0], "orders").unwrap())["a"]
    };
    assert_eq!(local(""), 6000);
    assert_eq!(local("mode: SHADOW"), 3, "as written: one weight per host");
    let half = local("ramp: 50");
    assert_eq!(half, 4500, "half way from the share of zone a in all hosts");
    assert_eq!(local("ramp: 0"), 3000);
    assert_eq!(local("ramp: 100"), 6000);
    assert_eq!(local("mode: OFF"), 3, "as written: one weight per host");
}

#[test]
fn changes_of_load_reporting_settings_are_published() {
    let mut driver = Driver::new("");
    let settings = driver.state.lrs_settings();
    assert_eq!(settings.interval, Duration::from_secs(1));
    assert_eq!(settings.clusters, ["orders".into()]);
    assert!(
        settings.send_all_clusters,
        "names are for who cannot be told so"
    );
    driver.reload(parse(
        "load_reporting: {interval: 4s, report_endpoint_granularity: true}\n\
         services: [{cluster: {name: carts}}, {cluster: {name: orders}}]",
    ));
    let settings = driver.state.lrs_settings();
    assert_eq!(settings.interval, Duration::from_secs(4));
    assert_eq!(settings.clusters, ["carts".into(), "orders".into()]);
    assert!(settings.report_endpoint_granularity);
}

#[test]
fn the_fingerprint_is_that_of_the_file_in_force() {
    let mut driver = Driver::new("");
    let other = parse(&format!("{HEAD}services: [{{cluster: {{name: carts}}}}]"));
    assert_ne!(other.fingerprint(), config("").fingerprint());
    for file in [config(""), other] {
        driver.reload(file.clone());
        assert_eq!(driver.state.fingerprint(), file.fingerprint());
        assert_eq!(driver.state.file_config(), &file);
    }
}

#[test]
fn without_a_relay_only_reports_about_services_count() {
    let mut driver = Driver::with_config(parse(HEAD));
    let [a, ..] = &fleet(NodeClass::Envoy);
    driver.open(a);
    let mut orders = stats("orders", 10);
    orders.upstream_locality_stats[0].locality = Locality::zone_only("b");
    driver.state.handle_report(a, &[orders], driver.now);
    let view = driver.state.planner().fleet("gateway", driver.now);
    let clusters = view.iter().flat_map(FleetView::scopes);
    assert_eq!(clusters.filter_map(|one| one.upstream_cluster()).count(), 0);
    assert!(
        driver
            .state
            .fleets()
            .member("gateway", &a.node.id)
            .unwrap()
            .reported
            .is_empty()
    );
}

#[test]
fn clusters_of_management_servers_are_ignored() {
    let services = "services: [{cluster: {name: orders}}]";
    // With a relay and no services, every reported cluster with localities counts.
    let relay = "relay: {address: '127.0.0.1:18500'}";
    for text in [services, relay] {
        let mut driver = Driver::with_config(parse(&format!("{HEAD}{text}")));
        let [a, ..] = &fleet(NodeClass::Envoy);
        driver.open(a);
        let mut orders = stats("orders", 10);
        orders.upstream_locality_stats[0].locality = Locality::zone_only("b");
        let all = [stats("xds", 1), stats("lrs", 1), orders];
        driver.state.handle_report(a, &all, driver.now);
        let view = driver.state.planner().fleet("gateway", driver.now).unwrap();
        let names: Vec<_> = view
            .scopes()
            .filter_map(|scope| scope.upstream_cluster().cloned())
            .collect();
        assert_eq!(names, ["orders".into()], "{text}");
        let nodes: Vec<_> = view.nodes().map(|node| node.rate_per_second).collect();
        assert_eq!(nodes, [10.0], "{text}");
    }
}

#[test]
fn a_longer_interval_does_not_expire_reporters() {
    let mut driver = Driver::new("");
    let nodes = fleet(NodeClass::Envoy);
    let keys = [0, 1, 2].map(|index: usize| driver.open(&nodes[index]));
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 10);
    let text = "load_reporting: {interval: 20s}\nservices: [{cluster: {name: orders}}]";
    driver.reload(parse(text));
    driver.advance(30_000);
    let local = driver.assignment(&keys[0], "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert!(
        weights["a"] > weights["c"],
        "they report every 20 s now: {weights:?}"
    );
}

#[test]
fn proxies_get_listeners_of_the_file_and_clients_one_per_service() {
    let text = format!(
        "{HEAD}services: [{{cluster: {{name: orders}}}}]\nlisteners: [{{name: public, address: \
         '127.0.0.1:80', virtual_hosts: [{{name: any, routes: [{{match: {{prefix: /}}, route: \
         {{cluster: orders}}}}]}}]}}]"
    );
    let mut driver = Driver::with_config(parse(&text));
    for (class, expected) in [
        (NodeClass::Envoy, &["public"][..]),
        (NodeClass::Grpc, &["orders"]),
        (NodeClass::Plimsoll, &["public", "orders"]),
    ] {
        let [a, ..] = fleet(class);
        let key = driver.open(&a);
        let listeners = driver.view(&key).get(LISTENER).unwrap();
        assert_eq!(listeners.len(), expected.len(), "{class:?}");
        for name in expected {
            assert!(listeners.get(name).is_some(), "{class:?}: {name}");
        }
    }
}
