//! Services that only some fleets get.

use plimsoll_xds::ads::{LISTENER, ROUTE_CONFIGURATION};

use super::*;
use crate::state::tests::driver::{ENDPOINTS, HEAD, parse};

/// `orders` is for all fleets, and `carts` as given.
fn file(carts: &str) -> Arc<ControlConfig> {
    parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders}}, {ENDPOINTS}}}, \
         {{cluster: {{name: carts}}, {carts} {ENDPOINTS}}}]"
    ))
}

/// Whether receivers get anything with the name of `carts`: the same for all types.
fn gets_carts(driver: &Driver, key: &ViewKey) -> bool {
    let view = driver.view(key);
    let has = |kind: &str, name: &str| view.get(kind).unwrap().get(name).is_some();
    let found = has(CLUSTER, "carts");
    assert_eq!(has(CLUSTER_LOAD_ASSIGNMENT, "carts"), found, "{key:?}");
    if matches!(key.class, NodeClass::Grpc | NodeClass::Plimsoll) {
        assert_eq!(has(LISTENER, "carts"), found, "{key:?}");
        assert_eq!(has(ROUTE_CONFIGURATION, "carts"), found, "{key:?}");
    }
    assert!(has(CLUSTER, "orders") && has(CLUSTER_LOAD_ASSIGNMENT, "orders"));
    found
}

#[test]
fn a_fleet_gets_the_services_that_are_visible_to_it_and_edits_take_effect() {
    let mut driver = Driver::with_config(file(""));
    let nodes: Vec<_> = CLASSES.into_iter().flat_map(fleet).collect();
    let keys: Vec<_> = nodes.iter().map(|node| driver.open(node)).collect();
    let traffic: Vec<_> = nodes.iter().map(|node| (node, 100)).collect();
    driver.traffic(&traffic, 5);
    for (carts, expected) in [
        ("", true),
        ("visible_to: [other],", false),
        ("visible_to: [other, gateway],", true),
        ("visible_to: [other, backend],", false),
        ("visible_to: ['*', other],", true),
    ] {
        driver.reload(file(carts));
        for key in &keys {
            assert_eq!(gets_carts(&driver, key), expected, "{carts} {key:?}");
        }
        // One that connects later gets the same.
        let mut later = Driver::with_config(file(carts));
        for node in &nodes {
            let key = later.open(node);
            assert_eq!(gets_carts(&later, &key), expected, "{carts} {key:?}");
        }
    }
}

#[test]
fn demand_of_a_fleet_that_does_not_get_a_service_does_not_count() {
    for (carts, counts) in [("", true), ("visible_to: [other],", false)] {
        let mut driver = Driver::with_config(file(carts));
        let nodes = fleet(NodeClass::Envoy);
        nodes.iter().for_each(|node| drop(driver.open(node)));
        for _ in 0..20 {
            for node in &nodes {
                driver.report(node, "carts", 1000);
                driver.report(node, "orders", 10);
            }
            driver.advance(1000);
        }
        let plan = driver.state.fleet_plan("gateway").unwrap();
        assert_eq!(plan.services.contains_key("carts"), counts);
        assert!(plan.services.contains_key("orders"));
        let members = driver.state.fleets().members("gateway");
        let reported = members.flat_map(|member| member.reported.iter());
        let names: BTreeSet<&str> = reported.map(AsRef::as_ref).collect();
        assert_eq!(names.contains("carts"), counts, "{names:?}");
        assert!(names.contains("orders"));
    }
}
