//! Services of the sources: what changes, and that a change leaves the same state as a build of
//! everything, whatever source it comes from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::view::{Resource, View};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT};
use plimsoll_xds::node::NodeInfo;
use proptest::prelude::*;

use super::driver::{Driver, HEAD, config, config_of, fleet, locality_weights, node, parse};
use crate::config::{ControlConfig, Service};
use crate::delivery::NodeClass;
use crate::services::{Found, ServiceChanges};
use crate::sources::SourceId;
use crate::state::{ControlEvent, ViewKey};

const ZONES: [&str; 3] = ["a", "b", "c"];

/// A service with `hosts` endpoints per zone, and further settings in YAML flow style.
fn service(name: &str, settings: &str, hosts: [u8; 3]) -> Found {
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
    Found {
        service: Arc::new(Service {
            assignment,
            ..service
        }),
        object: Some(format!("Service n/{name}").into()),
    }
}

impl Driver {
    fn discover(&mut self, changes: &[(&str, Option<Found>)]) {
        self.discover_without_drain(changes);
        self.drain();
    }

    fn discover_without_drain(&mut self, changes: &[(&str, Option<Found>)]) {
        let shared = changes
            .iter()
            .map(|(name, one)| (Arc::from(*name), one.clone()));
        let changes = ServiceChanges {
            is_complete: false,
            services: shared.collect(),
            ..ServiceChanges::none(SourceId::Kubernetes)
        };
        self.state.handle_services(changes, self.now);
    }

    /// Replaces all discovered services.
    fn discover_all(&mut self, services: &BTreeMap<String, Found>) {
        self.discover_all_without_drain(services);
        self.drain();
    }

    fn discover_all_without_drain(&mut self, services: &BTreeMap<String, Found>) {
        let shared = services
            .iter()
            .map(|(name, one)| (Arc::from(name.as_str()), Some(one.clone())));
        let changes = ServiceChanges {
            services: shared.collect(),
            ..ServiceChanges::none(SourceId::Kubernetes)
        };
        self.state.handle_services(changes, self.now);
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
    let known = driver.state.services().names(SourceId::Kubernetes);
    let known: Vec<_> = known.map(AsRef::as_ref).collect();
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
    let conflict = |event: &ControlEvent| match event {
        ControlEvent::ServiceConflict(conflict) => Some(conflict.to_string()),
        _ => None,
    };
    let conflicts: Vec<_> = driver.events.iter().filter_map(conflict).collect();
    let text = "service orders is in the files and in Kubernetes: that of the files is used";
    assert_eq!(conflicts, [text; 2], "each time that the file has it");
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

/// `services` services, of which `s7` has a mode and a number of hosts in zone `a`.
fn many(services: usize, mode: &str, hosts: u8) -> BTreeMap<String, Found> {
    let all = (0..services).map(|number| {
        let name = format!("s{number}");
        let (mode, hosts) = if number == 7 {
            (mode, hosts)
        } else {
            ("ENFORCE", 1)
        };
        let found = service(&name, &format!("mode: {mode}"), [hosts, 1, 1]);
        (name, found)
    });
    all.collect()
}

/// A file with these services.
fn written(services: &BTreeMap<String, Found>) -> Arc<ControlConfig> {
    let pair = |(name, one): (&String, &Found)| (Arc::from(&**name), Arc::clone(&one.service));
    Arc::new(ControlConfig {
        services: Arc::new(services.iter().map(pair).collect()),
        ..ControlConfig::clone(&parse(HEAD))
    })
}

/// Returns the resources of a view that were encoded again since another view.
fn encoded(before: &View, after: &View) -> Vec<String> {
    let all = after.iter().flat_map(|(kind, resources)| {
        let old = before.get(kind).unwrap();
        let is_new = |one: &&Resource| {
            !old.get(&one.name)
                .is_some_and(|old| std::ptr::eq(old, *one))
        };
        let kind = kind.rsplit_once('.').unwrap().1;
        let encoded = resources.iter().filter(is_new);
        encoded.map(move |one| format!("{kind} {}", one.name))
    });
    all.collect()
}

#[test]
fn one_of_many_services_costs_the_same_in_a_file_and_elsewhere() {
    let steps = [
        many(50, "SHADOW", 1),
        many(50, "ENFORCE", 1),
        many(50, "ENFORCE", 2),
    ];
    let costs = [true, false].map(|is_file| {
        let apply = |driver: &mut Driver, services: &BTreeMap<String, Found>| {
            if is_file {
                driver.state.handle_config(written(services), driver.now);
            } else {
                driver.discover_all_without_drain(services);
            }
        };
        let mut driver = empty();
        apply(&mut driver, &steps[0]);
        driver.drain();
        let keys = fleets()
            .iter()
            .map(|node| driver.open(node))
            .collect::<Vec<_>>();
        let mut costs = Vec::new();
        for step in &steps[1..] {
            let before: Vec<_> = keys
                .iter()
                .map(|key| Arc::clone(driver.view(key)))
                .collect();
            driver.published.clear();
            apply(&mut driver, step);
            let rebuilt = driver.state.outputs.stale_fleets().len();
            driver.drain();
            let views = keys.iter().zip(&before).map(|(key, before)| {
                (
                    key.class,
                    driver.published.get(key).copied(),
                    encoded(before, driver.view(key)),
                )
            });
            costs.push((rebuilt, views.collect::<Vec<_>>()));
        }
        costs
    });
    let [by_edit, by_discovery] = costs;
    assert_eq!(by_edit, by_discovery);
    for ((rebuilt, views), kind) in by_edit.iter().zip(["Cluster", "ClusterLoadAssignment"]) {
        assert_eq!(*rebuilt, 0, "no fleet is planned again");
        let one = format!("{kind} s7");
        for (class, published, encoded) in views {
            if *class == NodeClass::Envoy || kind == "ClusterLoadAssignment" {
                assert_eq!(*encoded, [&*one], "{class:?}");
            }
            // The mode changes nothing for some classes, and weights, too, for gRPC clients.
            let is_own = encoded.iter().all(|one| one.ends_with(" s7"));
            assert!(is_own, "{class:?}: {encoded:?}");
            assert_eq!(published.is_some(), !encoded.is_empty(), "{class:?}");
        }
    }
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
    assert_eq!(local(&driver), 3, "one weight per host");
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
fn a_change_of_settings_rebuilds_fleets_only_if_their_demand_changes() {
    let mut driver = empty();
    let [a, ..] = fleet(NodeClass::Envoy);
    driver.open(&a);
    driver.discover(&[
        ("s1", Some(service("s1", "", [1, 1, 1]))),
        ("s2", Some(service("s2", "", [1, 1, 1]))),
    ]);
    driver.discover(&[("s1", Some(service("s1", "mode: SHADOW", [1, 1, 1])))]);
    driver.discover(&[("s2", None)]);
    for (settings, rebuilds) in [("mode: OFF", false), ("", true), ("mode: SHADOW", true)] {
        let changed = service("s1", settings, [1, 1, 1]);
        driver.discover_without_drain(&[("s1", Some(changed))]);
        assert_eq!(
            !driver.state.outputs.stale_fleets().is_empty(),
            rebuilds,
            "{settings}"
        );
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

/// Opens streams of three zones and three classes.
fn opened(config: Arc<ControlConfig>) -> (Driver, Vec<ViewKey>) {
    let mut driver = Driver::with_config(config);
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

    /// After any sequence of edits and of discovered changes, the views are those of a state that
    /// started with the last services.
    #[test]
    fn changes_leave_the_views_of_a_new_state(
        steps in prop::collection::vec(
            (
                any::<bool>(),
                0_u8..4,
                prop::option::weighted(0.8, (settings(), [0_u8..3, 0_u8..3, 0_u8..3])),
            ),
            1..12,
        )
    ) {
        let (mut driver, keys) = opened(parse(HEAD));
        let mut files: BTreeMap<String, Found> = BTreeMap::new();
        let mut discovered = files.clone();
        for (is_edit, number, change) in steps {
            let name = format!("s{number}");
            let one = change.map(|(settings, hosts)| service(&name, settings, hosts));
            let last = if is_edit { &mut files } else { &mut discovered };
            match one.clone() {
                Some(one) => drop(last.insert(name.clone(), one)),
                None => drop(last.remove(&name)),
            }
            if is_edit {
                driver.reload(written(&files));
            } else {
                driver.discover(&[(&name, one)]);
            }
        }
        driver.advance(1000);
        let (mut fresh, _) = opened(written(&files));
        fresh.discover_all(&discovered);
        fresh.advance(1000);
        for key in &keys {
            let (old, new) = (driver.view(key), fresh.view(key));
            prop_assert!(old.has_same_content(new), "{key:?}\n{old:?}\n{new:?}");
        }
    }
}

/// A file is refused; what Kubernetes discovers is in force, and told.
#[test]
fn a_discovered_service_that_asks_for_demand_without_effect_is_told_once() {
    let hashed = config_of("lb_policy: RING_HASH", "");
    let mut driver = Driver::with_config(parse(HEAD));
    let found = |demand_field, ramp| Found {
        service: Arc::new(Service {
            demand_field,
            ramp,
            ..Service::clone(&hashed.services["orders"])
        }),
        object: None,
    };
    let asks = Some("mode");
    for (field, ramp, is_told) in [
        (None, 100, false),
        (asks, 100, true),
        (asks, 50, false),
        (None, 100, false),
        (asks, 100, true),
    ] {
        driver.discover(&[("orders", Some(found(field, ramp)))]);
        let told = driver.events.drain(..).filter_map(|event| match event {
            ControlEvent::WithoutEffect { cluster, error } => Some(format!("{cluster}.{error}")),
            _ => None,
        });
        let told: Vec<String> = told.collect();
        assert_eq!(told.len(), usize::from(is_told), "{field:?}: {told:?}");
        assert!(told.iter().all(|one| one.starts_with("orders.mode: ")));
    }
}
