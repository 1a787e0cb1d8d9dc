//! Tests of a relay: overlays instead of views, and what the relayed server teaches the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::{CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::node::NodeInfo;

use super::driver::{Driver, HEAD, config, fleet, node, parse, stats};
use crate::config::Service;
use crate::delivery::NodeClass;
use crate::fleet::StreamKind;
use crate::relay::{Overlay, RelayedResource};
use crate::state::ViewKey;

const RELAY: &str = "relay: {address: '127.0.0.1:18500'}\n";

fn relay(rest: &str) -> Driver {
    Driver::with_config(parse(&format!("{HEAD}{RELAY}{rest}")))
}

/// Returns overlays that changed since the last call.
fn changed(driver: &mut Driver) -> Vec<(ViewKey, Arc<Overlay>)> {
    std::iter::from_fn(|| driver.state.poll_overlay()).collect()
}

/// The cluster and the assignment of `orders` at the relayed server.
fn resources(service: &Service) -> [RelayedResource; 2] {
    [
        RelayedResource::Cluster {
            cluster: "orders".into(),
            version: "1".into(),
            config: Arc::clone(&service.config),
        },
        RelayedResource::Assignment {
            cluster: "orders".into(),
            name: "orders".into(),
            version: "1".into(),
            assignment: Arc::clone(&service.assignment),
        },
    ]
}

fn learn(driver: &mut Driver) {
    let upstream = config("");
    for resource in resources(&upstream.services["orders"]) {
        driver.state.handle_relayed(resource, driver.now);
    }
}

fn open(driver: &mut Driver, node: &NodeInfo, returning: bool) -> ViewKey {
    let now = driver.now;
    let opened = driver.state.handle_open(
        node,
        StreamKind::Ads,
        returning,
        &crate::fleet::Peer::default(),
        now,
    );
    opened.unwrap()
}

#[test]
fn receivers_get_an_overlay_of_their_class_and_zone() {
    let mut driver = relay(
        "services: [{cluster: {name: orders}, ramp: 40}]\nlisteners: [{name: public, address: \
         '127.0.0.1:80', virtual_hosts: [{name: any, routes: [{match: {prefix: /}, route: \
         {cluster: orders}}]}]}]",
    );
    learn(&mut driver);
    let grpc = open(&mut driver, &node(NodeClass::Grpc, "1", "a"), true);
    let envoy = open(&mut driver, &node(NodeClass::Envoy, "2", "b"), false);
    let all = changed(&mut driver);
    assert_eq!(all.len(), 2);
    for ((key, overlay), (expected, held)) in all.iter().zip([(&grpc, true), (&envoy, false)]) {
        assert_eq!(key, expected);
        assert!(Arc::ptr_eq(driver.state.overlay(key).unwrap(), overlay));
        assert!(driver.state.view(key).is_none());
        let settings = (
            overlay.class,
            overlay.fleet_ramp,
            overlay.held,
            overlay.observes,
        );
        assert_eq!(settings, (key.class, 40, held, false));
        let orders = &overlay.services["orders"];
        let weights = orders.weights.as_ref().unwrap();
        assert_eq!(weights.receiver, key.locality);
        assert_eq!(orders.service.assignment.endpoints().len(), 3);
        let own = |kind: &str| overlay.own.get(kind).map_or(0, BTreeMap::len);
        let listeners = usize::from(key.class == NodeClass::Envoy);
        assert_eq!(own(LISTENER), listeners);
        assert_eq!(own(ROUTE_CONFIGURATION), listeners);
        assert_eq!(own(CLUSTER_LOAD_ASSIGNMENT), 2, "the names of the file");
        let fleet = overlay.fleet.as_ref().unwrap();
        assert_eq!(&*fleet.name, "gateway");
    }
}

#[test]
fn every_change_of_an_overlay_has_another_generation() {
    let mut driver = relay("services: [{cluster: {name: orders}}]");
    open(&mut driver, &node(NodeClass::Envoy, "1", "a"), false);
    let mut generations = Vec::new();
    for zone in ["b", "c"] {
        let overlays = changed(&mut driver);
        generations.extend(overlays.iter().map(|(_, overlay)| overlay.generation));
        // A new zone is published at once.
        let node = node(NodeClass::Envoy, zone, zone);
        let now = driver.now;
        let opened = driver.state.handle_open(
            &node,
            StreamKind::Lrs,
            false,
            &crate::fleet::Peer::default(),
            now,
        );
        opened.unwrap();
    }
    let overlays = changed(&mut driver);
    generations.extend(overlays.iter().map(|(_, overlay)| overlay.generation));
    assert_eq!(generations, [1, 2, 3]);
}

#[test]
fn a_resource_of_the_relayed_server_changes_overlays_once_and_only_of_services() {
    for (services, overlays) in [("services: [{cluster: {name: orders}}]", 1), ("", 0)] {
        let mut driver = relay(services);
        let key = open(&mut driver, &node(NodeClass::Envoy, "1", "a"), false);
        assert_eq!(changed(&mut driver).len(), 1);
        assert_eq!(driver.state.overlay(&key).unwrap().observes, overlays == 0);
        learn(&mut driver);
        assert_eq!(changed(&mut driver).len(), overlays, "{services}");
        learn(&mut driver);
        assert_eq!(changed(&mut driver).len(), 0, "the same again");
        assert!(driver.state.relayed_service("orders").is_some());
        assert!(driver.state.relayed_service("carts").is_none());
        let shown: Vec<_> = driver.state.shown_services().collect();
        assert_eq!(shown.len(), 1, "{services}");
        assert_eq!(shown[0].assignment.endpoints().len(), 3);
    }
}

#[test]
fn another_relayed_server_starts_without_the_resources_of_the_first() {
    let services = "services: [{cluster: {name: orders}}]";
    let mut driver = relay(services);
    let key = open(&mut driver, &node(NodeClass::Envoy, "1", "a"), false);
    learn(&mut driver);
    let endpoints = |driver: &Driver| {
        let orders = &driver.state.config().services["orders"];
        orders.assignment.endpoints().len()
    };
    driver.reload(parse(&format!("{HEAD}{RELAY}{services}")));
    assert_eq!(endpoints(&driver), 3);
    assert!(driver.state.overlay(&key).is_some());
    let other = "relay: {address: '127.0.0.1:18501'}\n";
    driver.reload(parse(&format!("{HEAD}{other}{services}")));
    assert_eq!(endpoints(&driver), 0);
    assert!(driver.state.overlay(&key).is_none());
}

#[test]
fn only_reports_about_services_of_a_relay_count() {
    let mut driver = relay("services: [{cluster: {name: orders}}]");
    let [a, ..] = &fleet(NodeClass::Envoy);
    driver.open(a);
    let located = |name| {
        let mut report = stats(name, 10);
        report.upstream_locality_stats[0].locality = Locality::zone_only("b");
        report
    };
    let reports = ["carts", "orders"].map(located);
    driver.state.handle_report(a, &reports, driver.now);
    let member = driver.state.fleets().member("gateway", &a.node.id);
    assert!(member.unwrap().reported.iter().eq([&"orders".into()]));
}
