//! Discovered services: what changes, and that a change leaves the same state as a build of
//! everything.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use plimsoll_xds::node::NodeInfo;
use proptest::prelude::*;

use super::driver::{Driver, HEAD, config, fleet, locality_weights, node, parse};
use crate::config::Service;
use crate::delivery::NodeClass;
use crate::state::{DiscoveredChanges, DiscoveredService, ViewKey};

const ZONES: [&str; 3] = ["a", "b", "c"];

/// A service with `hosts` endpoints per zone, and further settings in YAML flow style.
fn service(name: &str, settings: &str, hosts: [u8; 3]) -> DiscoveredService {
    let text = format!("services: [{{cluster: {{name: '{name}'}}, {settings}}}]");
    let config = parse(&text);
    let service = Service::clone(&config.services[name]);
    let localities = ZONES
        .iter()
        .zip(hosts)
        .enumerate()
        .map(|(index, (zone, hosts))| {
            let net = u8::try_from(index).unwrap();
            let address = |host| SocketAddr::from(([10, 0, net, host + 1], 80));
            LocalityParts::new(Locality::zone_only(zone), (0..hosts).map(address))
        });
    let parts = AssignmentParts::new(name, localities);
    let assignment = Arc::new(ClusterLoadAssignment::try_new(parts).unwrap());
    DiscoveredService {
        service: Arc::new(Service {
            assignment,
            ..service
        }),
        origin: format!("Service n/{name}").into(),
    }
}

impl Driver {
    fn discover(&mut self, changes: &[(&str, Option<DiscoveredService>)]) {
        self.discover_without_drain(changes);
        self.drain();
    }

    fn discover_without_drain(&mut self, changes: &[(&str, Option<DiscoveredService>)]) {
        let shared = changes
            .iter()
            .map(|(name, one)| (Arc::from(*name), one.clone()));
        let discovered = DiscoveredChanges {
            is_complete: false,
            services: shared.collect(),
        };
        self.state.handle_discovered(&discovered, self.now);
    }

    /// Replaces all discovered services.
    fn discover_all(&mut self, services: &BTreeMap<String, DiscoveredService>) {
        let shared = services
            .iter()
            .map(|(name, one)| (Arc::from(name.as_str()), Some(one.clone())));
        let changes = DiscoveredChanges {
            is_complete: true,
            services: shared.collect(),
        };
        self.state.handle_discovered(&changes, self.now);
        self.drain();
    }

    fn services(&self, key: &ViewKey) -> Vec<String> {
        let clusters = self.view(key).get(CLUSTER).unwrap();
        clusters.iter().map(|one| one.name.to_string()).collect()
    }
}

fn empty() -> Driver {
    Driver::with_config(parse(HEAD))
}

#[test]
fn discovered_services_are_beside_those_of_the_file() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Envoy);
    let key = driver.open(&a);
    let before = driver.assignment(&key, "orders").unwrap();
    let written = Arc::clone(driver.state.config());
    driver.discover(&[("orders", Some(service("orders", "", [9, 9, 9])))]);
    assert!(Arc::ptr_eq(&written, driver.state.config()));
    driver.discover(&[
        ("users", Some(service("users", "", [1, 1, 1]))),
        ("orders", Some(service("orders", "", [9, 9, 9]))),
    ]);
    assert_eq!(driver.services(&key), ["orders", "users"]);
    let after = driver.assignment(&key, "orders").unwrap();
    assert_eq!(before, after, "the file wins");
    let known: Vec<_> = driver
        .state
        .discovered()
        .keys()
        .map(AsRef::as_ref)
        .collect();
    assert_eq!(known, ["orders", "users"]);
    // Without the file's service, the discovered one is in force, and the reverse.
    driver.reload(parse(HEAD));
    assert_ne!(driver.assignment(&key, "orders").unwrap(), before);
    driver.reload(config(""));
    assert_eq!(driver.assignment(&key, "orders").unwrap(), before);
    driver.reload(parse(HEAD));
    assert_ne!(driver.assignment(&key, "orders").unwrap(), before);
    assert_eq!(driver.services(&key), ["orders", "users"]);
    driver.discover(&[("users", None)]);
    assert_eq!(driver.services(&key), ["orders"]);
    driver.discover_all(&BTreeMap::new());
    assert_eq!(driver.services(&key), [""; 0]);
}

#[test]
fn a_change_of_endpoints_touches_one_assignment() {
    let mut driver = empty();
    let [a, ..] = fleet(NodeClass::Envoy);
    let key = driver.open(&a);
    let names = ["s1", "s2", "s3"];
    for name in names {
        driver.discover(&[(name, Some(service(name, "", [1, 1, 1])))]);
    }
    driver.publications(&key);
    let before = Arc::clone(driver.view(&key));
    driver.discover(&[("s2", Some(service("s2", "", [2, 1, 1])))]);
    assert_eq!(driver.publications(&key), 1);
    let after = Arc::clone(driver.view(&key));
    for kind in [
        CLUSTER,
        "type.googleapis.com/envoy.config.listener.v3.Listener",
    ] {
        let same = Arc::ptr_eq(before.get(kind).unwrap(), after.get(kind).unwrap());
        assert!(same, "{kind} is not built again");
    }
    let assignments = [&before, &after].map(|view| view.get(CLUSTER_LOAD_ASSIGNMENT).unwrap());
    let [old, new] = assignments;
    assert_eq!(old.get("s1"), new.get("s1"));
    assert_ne!(old.get("s2"), new.get("s2"));
    driver.discover(&[("s2", Some(service("s2", "", [2, 1, 1])))]);
    assert_eq!(driver.publications(&key), 0, "nothing changed");
}

#[test]
fn demand_steers_discovered_services() {
    let mut driver = empty();
    let nodes = fleet(NodeClass::Grpc);
    driver.discover(&[("orders", Some(service("orders", "mode: SHADOW", [3, 5, 2])))]);
    let key = driver.open(&nodes[0]);
    nodes[1..].iter().for_each(|node| drop(driver.open(node)));
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 10);
    let local = |driver: &Driver| {
        let assignment = driver.assignment(&key, "orders").unwrap();
        locality_weights(&assignment)["a"]
    };
    assert_eq!(local(&driver), 9000);
    driver.discover(&[(
        "orders",
        Some(service("orders", "mode: ENFORCE", [3, 5, 2])),
    )]);
    assert_eq!(local(&driver), 6000);
    driver.discover(&[(
        "orders",
        Some(service("orders", "mode: ENFORCE", [5, 3, 2])),
    )]);
    assert_eq!(
        local(&driver),
        10000,
        "zone a has half of the hosts and of the demand"
    );
}

#[test]
fn a_service_with_a_name_of_the_fleets_assignment_hides_it_until_it_is_gone() {
    for name in ["local_cluster", "gateway"] {
        let mut driver = empty();
        let [a, ..] = fleet(NodeClass::Envoy);
        let key = driver.open(&a);
        let own = driver.assignment(&key, name);
        driver.discover(&[(name, Some(service(name, "", [1, 1, 1])))]);
        assert_ne!(driver.assignment(&key, name), own, "{name}");
        driver.discover(&[(name, None)]);
        assert_eq!(driver.assignment(&key, name), own, "{name}");
    }
}

#[test]
fn a_change_of_settings_rebuilds_fleets_only_if_their_ramp_changes() {
    let mut driver = empty();
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    driver.discover(&[("s1", Some(service("s1", "", [1, 1, 1])))]);
    for (settings, rebuilds) in [("mode: SHADOW", false), ("ramp: 50", true)] {
        let changed = service("s1", settings, [1, 1, 1]);
        driver.discover_without_drain(&[("s1", Some(changed))]);
        assert_eq!(!driver.state.dirty.is_empty(), rebuilds, "{settings}");
        driver.drain();
    }
}

#[test]
fn demand_is_sent_again_after_a_change_of_settings_but_not_of_endpoints() {
    let mut driver = empty();
    let [a, ..] = fleet(NodeClass::Plimsoll);
    driver.open(&a);
    driver.discover(&[("s1", Some(service("s1", "", [1, 1, 1])))]);
    for (settings, hosts, receivers) in [
        ("mode: SHADOW", [1, 1, 1], 2),
        ("mode: SHADOW", [2, 1, 1], 0),
        ("mode: OFF", [3, 1, 1], 2),
    ] {
        let changed = service("s1", settings, hosts);
        driver.discover_without_drain(&[("s1", Some(changed))]);
        let sent = std::iter::from_fn(|| driver.state.poll_traffic()).count();
        assert_eq!(sent, receivers, "{settings} {hosts:?}");
        driver.drain();
    }
}

#[test]
fn zones_of_discovered_services_are_those_that_count() {
    let mut driver = empty();
    for zone in ["a", "x"] {
        driver.open(&node(NodeClass::Envoy, zone, zone));
    }
    let counted = |driver: &Driver| {
        let plan = driver.state.fleet_plan("gateway").unwrap();
        let nodes = driver.state.fleets().counted_nodes("gateway");
        (nodes, plan.counts.flat.all)
    };
    assert_eq!(counted(&driver), (2, 2), "no zone is known");
    driver.discover(&[("users", Some(service("users", "", [1, 1, 1])))]);
    assert_eq!(counted(&driver), (1, 1));
}

#[test]
fn discovered_services_are_withheld_from_returning_clients_until_the_hold_ends() {
    let mut driver = Driver::new("");
    let [a, ..] = fleet(NodeClass::Grpc);
    let key = driver.open_as(&a, true);
    driver.discover(&[("users", Some(service("users", "", [1, 1, 1])))]);
    assert!(driver.assignment(&key, "users").is_none());
    driver.advance(12_000);
    assert!(driver.assignment(&key, "users").is_some());
    driver.discover(&[("carts", Some(service("carts", "", [1, 1, 1])))]);
    assert!(driver.assignment(&key, "carts").is_some(), "without demand");
}

#[test]
fn receivers_of_the_same_resources_share_the_updated_view() {
    let mut driver = Driver::new("");
    let envoys = ["a", "b"].map(|zone| driver.open(&node(NodeClass::Envoy, zone, zone)));
    let unknown = ["x", "y"].map(|zone| driver.open(&node(NodeClass::Grpc, zone, zone)));
    // The second change affects the cluster of Envoys, and no assignment.
    for (settings, publications) in [("", [1, 1]), ("mode: OFF", [1, 0])] {
        let before = [&envoys[0], &unknown[0]].map(|key| driver.view(key).generation());
        driver.published.clear();
        driver.discover(&[("users", Some(service("users", settings, [1, 1, 1])))]);
        let keys = [&envoys, &unknown].into_iter();
        for (([one, other], before), published) in keys.zip(before).zip(publications) {
            assert_eq!(driver.publications(one), published, "{settings} {one:?}");
            assert!(Arc::ptr_eq(driver.view(one), driver.view(other)));
            let is_new = before < driver.view(one).generation();
            assert_eq!(is_new, published > 0);
        }
    }
}

fn fleets() -> Vec<NodeInfo> {
    let classes = [NodeClass::Envoy, NodeClass::Grpc, NodeClass::Plimsoll];
    classes.into_iter().flat_map(fleet).collect()
}

/// Opens streams of three zones and three classes, and reports load.
fn opened() -> (Driver, Vec<ViewKey>) {
    let mut driver = empty();
    let nodes = fleets();
    let keys = nodes.iter().map(|node| driver.open(node)).collect();
    (driver, keys)
}

fn settings() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "mode: SHADOW",
        "mode: OFF",
        "ramp: 50",
        "delivery: LOCALITY_WEIGHTS",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After any sequence of changes, the views are those of a state that got the last services at
    /// once.
    #[test]
    fn changes_leave_the_views_of_a_new_state(
        steps in prop::collection::vec(
            (0_u8..4, prop::option::weighted(0.8, (settings(), [0_u8..3, 0_u8..3, 0_u8..3]))),
            1..12,
        )
    ) {
        let (mut driver, keys) = opened();
        let mut last: BTreeMap<String, DiscoveredService> = BTreeMap::new();
        for (number, change) in steps {
            let name = format!("s{number}");
            let one = change.map(|(settings, hosts)| service(&name, settings, hosts));
            driver.discover(&[(&name, one.clone())]);
            match one {
                Some(one) => drop(last.insert(name, one)),
                None => drop(last.remove(&name)),
            }
        }
        driver.advance(1000);
        let (mut fresh, _) = opened();
        fresh.discover_all(&last);
        fresh.advance(1000);
        for key in &keys {
            let (old, new) = (driver.view(key), fresh.view(key));
            prop_assert!(old.has_same_content(new), "{key:?}\n{old:?}\n{new:?}");
        }
    }
}
