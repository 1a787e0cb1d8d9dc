//! Tests of a relay: patches instead of views, and what the relayed server teaches the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::{CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::node::NodeInfo;

use super::driver::{Driver, HEAD, config, config_of, fleet, node, parse, stats};
use crate::config::{Delivery, Service};
use crate::delivery::{NodeClass, NotSteeredReason, Steering};
use crate::fleet::StreamKind;
use crate::relay::{Patch, RelayedResource};
use crate::state::{ControlEvent, ViewKey};

const RELAY: &str = "relay: {address: '127.0.0.1:18500'}\n";

fn relay(rest: &str) -> Driver {
    Driver::with_config(parse(&format!("{HEAD}{RELAY}{rest}")))
}

/// Returns patches that changed since the last call.
fn changed(driver: &mut Driver) -> Vec<(ViewKey, Arc<Patch>)> {
    driver.drain();
    std::mem::take(&mut driver.patches).into_iter().collect()
}

/// The cluster and the assignment of `orders` at the relayed server.
fn resources(service: &Service) -> [RelayedResource; 2] {
    [
        RelayedResource::cluster_of(service, "1"),
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
fn receivers_get_a_patch_of_their_class_and_zone() {
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
    for ((key, patch), (expected, held)) in all.iter().zip([(&grpc, true), (&envoy, false)]) {
        assert_eq!(key, expected);
        assert!(Arc::ptr_eq(driver.state.patch(key).unwrap(), patch));
        assert!(driver.state.view(key).is_none());
        let settings = (patch.class, patch.held, patch.observes);
        assert_eq!(settings, (key.class, held, false));
        let orders = &patch.services["orders"];
        let weights = orders.weights.as_ref().unwrap();
        assert_eq!(weights.receiver, key.locality);
        assert_eq!(orders.service.assignment.endpoints().len(), 3);
        let own = |kind: &str| patch.own.get(kind).map_or(0, BTreeMap::len);
        let listeners = usize::from(key.class == NodeClass::Envoy);
        assert_eq!(own(LISTENER), listeners);
        assert_eq!(own(ROUTE_CONFIGURATION), listeners);
        assert_eq!(own(CLUSTER_LOAD_ASSIGNMENT), 2, "the names of the file");
        let fleet = patch.fleet.as_ref().unwrap();
        assert_eq!(&*fleet.name, "gateway");
    }
}

#[test]
fn every_change_of_a_patch_has_another_generation() {
    let mut driver = relay("services: [{cluster: {name: orders}}]");
    open(&mut driver, &node(NodeClass::Envoy, "1", "a"), false);
    let mut generations = Vec::new();
    for zone in ["b", "c"] {
        let patches = changed(&mut driver);
        generations.extend(patches.iter().map(|(_, patch)| patch.generation));
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
    let patches = changed(&mut driver);
    generations.extend(patches.iter().map(|(_, patch)| patch.generation));
    assert_eq!(generations, [1, 2, 3]);
}

#[test]
fn a_resource_of_the_relayed_server_changes_patches_once_and_only_of_services() {
    for (services, patches) in [("services: [{cluster: {name: orders}}]", 1), ("", 0)] {
        let mut driver = relay(services);
        let key = open(&mut driver, &node(NodeClass::Envoy, "1", "a"), false);
        assert_eq!(changed(&mut driver).len(), 1);
        assert_eq!(driver.state.patch(&key).unwrap().observes, patches == 0);
        learn(&mut driver);
        assert_eq!(changed(&mut driver).len(), patches, "{services}");
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
    assert!(driver.state.patch(&key).is_some());
    let other = "relay: {address: '127.0.0.1:18501'}\n";
    driver.reload(parse(&format!("{HEAD}{other}{services}")));
    assert_eq!(endpoints(&driver), 0);
    assert!(driver.state.patch(&key).is_none());
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

/// One second of requests that stay in the zones a and c, which have hosts; zone `d` has proxies
/// only, and what they send goes to zone a.
fn requests_between_zones(driver: &mut Driver, nodes: &[NodeInfo], to_b: u64) {
    for (node, zone, requests) in [
        (&nodes[0], "a", 600),
        (&nodes[1], "b", to_b),
        (&nodes[2], "c", 200),
        (&nodes[3], "a", 300),
    ] {
        let mut stats = stats("orders", requests);
        stats.upstream_locality_stats[0].locality = Locality::zone_only(zone);
        driver.report_stats(node, stats);
    }
    driver.advance(1000);
}

#[test]
fn a_zone_with_proxies_and_without_hosts_does_not_keep_a_relay_from_steering() {
    let mut driver = relay("");
    learn(&mut driver);
    let zones = ["a", "b", "c", "d"];
    let nodes = zones.map(|zone| node(NodeClass::Envoy, zone, zone));
    for node in &nodes {
        driver.open(node);
    }
    for second in 0..60 {
        requests_between_zones(&mut driver, &nodes, 200);
        let plan = driver.state.fleet_plan("gateway").unwrap();
        assert!(second < 3 || !plan.zones.is_empty(), "{second}");
    }
    // The zone is unseen, as far as load reports go.
    let measured = driver.state.measured_plan(&"gateway".into(), None).unwrap();
    assert!(!measured.unseen.is_empty() || !measured.tried.is_empty());
    // A zone with hosts from which all requests vanish does.
    for _ in 0..3 {
        requests_between_zones(&mut driver, &nodes, 0);
    }
    assert!(driver.state.fleet_plan("gateway").unwrap().zones.is_empty());
}

/// The policy of the other server is not known when the file is loaded: what asks for demand
/// without effect is told once, when the cluster is learned.
#[test]
fn a_service_whose_relayed_policy_demand_cannot_steer_is_told() {
    let mut driver = relay("services: [{cluster: {name: orders}, delivery: LOCALITY_WEIGHTS}]");
    assert!(driver.state.without_effect().is_empty());
    for (policy, version) in [("RING_HASH", "1"), ("RING_HASH", "2"), ("RANDOM", "3")] {
        let upstream = config_of(&format!("lb_policy: {policy}"), "mode: 'OFF'");
        let service = &upstream.services["orders"];
        let cluster = RelayedResource::cluster_of(service, version);
        driver.state.handle_relayed(cluster, driver.now);
        driver.drain();
        let told = driver.events.drain(..).filter_map(|event| match event {
            ControlEvent::WithoutEffect { cluster, error } => Some(format!("{cluster}.{error}")),
            _ => None,
        });
        let told: Vec<String> = told.collect();
        let shown = driver.state.without_effect();
        assert_eq!(shown.len(), usize::from(policy == "RING_HASH"), "{shown:?}");
        if version == "1" {
            let [told] = &told[..] else {
                panic!("{told:?}");
            };
            let expected = "orders.delivery: requests measured demand, but consistent hashing";
            assert!(told.starts_with(expected), "{told}");
        } else {
            assert!(told.is_empty(), "told once: {told:?}");
        }
    }
}

/// Endpoints of two clusters cannot have weights for one of them: a service that needs them is told
/// of, once, and explained without.
#[test]
fn a_service_whose_endpoints_another_cluster_has_is_told() {
    let mut driver = relay("services: [{cluster: {name: orders}, ramp: 10}]");
    let upstream = config("");
    for (version, shared) in [("1", false), ("2", true), ("3", true), ("4", false)] {
        let mut cluster = RelayedResource::cluster_of(&upstream.services["orders"], version);
        if let RelayedResource::Cluster {
            shares_endpoints, ..
        } = &mut cluster
        {
            *shares_endpoints = shared;
        }
        driver.state.handle_relayed(cluster, driver.now);
        driver.drain();
        let told = driver.events.drain(..).filter_map(|event| match event {
            ControlEvent::WithoutEffect { cluster, error } => Some(format!("{cluster}.{error}")),
            _ => None,
        });
        let told: Vec<String> = told.collect();
        assert_eq!(told.len(), usize::from(version == "2"), "{told:?}");
        assert!(told.iter().all(|one| one.starts_with("orders.ramp: ")));
        assert_eq!(driver.state.without_effect().len(), usize::from(shared));
        let service = Arc::clone(driver.state.service("orders").unwrap());
        for class in NodeClass::ALL {
            let steering = driver.state.steering(&service, class, None);
            let expected = if shared {
                Steering::AsConfigured(NotSteeredReason::SharedEndpoints)
            } else {
                Steering::Demand(Delivery::LocalityWeights)
            };
            assert_eq!(steering, expected, "{class:?}");
        }
    }
}
