//! What receivers are sent while requests to a zone of a service fail.

use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_xds::wire::decode_cluster;

use super::*;
use crate::state::tests::driver::{ENDPOINTS, HEAD, endpoint_weights, locality_weights, parse};

/// `orders` and `carts` with demand 70/20/10.
fn two_services(class: NodeClass, settings: &str) -> (Driver, Vec<ViewKey>) {
    let text = format!(
        "{HEAD}services: [{{cluster: {{name: carts}}, {ENDPOINTS}}}, \
         {{cluster: {{name: orders}}{settings}, {ENDPOINTS}}}]"
    );
    let mut driver = Driver::with_config(parse(&text));
    let keys = fleet(class).iter().map(|node| driver.open(node)).collect();
    for _ in 0..5 {
        report(&mut driver, class, 0);
    }
    (driver, keys)
}

/// Reports a second of requests to both services, `failed` of those from zone b to `orders`.
fn report(driver: &mut Driver, class: NodeClass, failed: u64) {
    for (node, (zone, requests)) in fleet(class)
        .iter()
        .zip([("a", 700), ("b", 200), ("c", 100)])
    {
        let mut orders = stats("orders", requests);
        let entry = &mut orders.upstream_locality_stats[0];
        entry.locality = Locality::zone_only(zone);
        if zone == "b" {
            entry.total_issued_requests -= failed;
            entry.total_successful_requests -= failed;
            entry.total_error_requests += failed;
        }
        driver.report_stats(node, orders);
        driver.report(node, "carts", requests);
    }
    driver.advance(1000);
}

fn basis(driver: &Driver, key: &ViewKey, name: &str) -> Option<LocalityBasis> {
    let clusters = driver.view(key).get(CLUSTER).unwrap();
    let cluster = clusters.get(name).unwrap();
    let config = decode_cluster(&cluster.body).unwrap().config;
    config.zone_aware().map(ZoneAware::locality_basis)
}

#[test]
fn only_the_service_that_fails_is_sent_host_counts() {
    for class in [NodeClass::Envoy, NodeClass::Plimsoll] {
        let (mut driver, keys) = two_services(class, "");
        let steered = basis(&driver, &keys[0], "orders");
        assert_ne!(steered, Some(LocalityBasis::HealthyHostsNum));
        let [carts, fleet] = ["carts", "gateway"].map(|name| driver.assignment(&keys[0], name));
        report(&mut driver, class, 200);
        assert_eq!(
            basis(&driver, &keys[0], "orders"),
            Some(LocalityBasis::HealthyHostsNum),
            "{class:?}"
        );
        assert_eq!(basis(&driver, &keys[0], "carts"), steered, "{class:?}");
        assert_eq!(driver.assignment(&keys[0], "carts"), carts);
        let weights = |fleet: &Option<_>| endpoint_weights(fleet.as_ref().unwrap());
        let now = driver.assignment(&keys[0], "gateway");
        assert_eq!(weights(&now), weights(&fleet), "carts goes on by demand");
        for _ in 0..35 {
            report(&mut driver, class, 0);
        }
        assert_eq!(basis(&driver, &keys[0], "orders"), steered, "{class:?}");
    }
}

#[test]
fn small_services_are_routed_by_zone_all_the_same() {
    let (mut driver, keys) = two_services(NodeClass::Envoy, "");
    report(&mut driver, NodeClass::Envoy, 200);
    let clusters = driver.view(&keys[0]).get(CLUSTER).unwrap();
    let orders = &clusters.get("orders").unwrap().body;
    let config = decode_cluster(orders).unwrap().config;
    let rules = config.zone_aware().unwrap();
    assert_eq!(rules.written_min_cluster_size(), Some(1));
}

/// gRPC clients, and services with locality weights of their own, get weights by host counts.
#[test]
fn locality_weights_follow_host_counts() {
    for (class, settings) in [
        (NodeClass::Grpc, ""),
        (NodeClass::Envoy, ", delivery: LOCALITY_WEIGHTS"),
    ] {
        let (mut driver, keys) = two_services(class, settings);
        let weights = |driver: &Driver| -> Vec<_> {
            let of = |key| locality_weights(&driver.assignment(key, "orders").unwrap());
            keys.iter().map(of).collect()
        };
        let by_demand = weights(&driver);
        report(&mut driver, class, 200);
        let failing = weights(&driver);
        assert_ne!(failing, by_demand, "{class:?}");
        // A proxy in each zone: a third of the demand is assumed to arrive in zone a.
        assert_eq!(failing[0]["a"], 9000, "{class:?}");
    }
}

/// The module gets demand on a stream of its own, which withdraws it.
#[test]
fn load_report_responses_withdraw_the_demand_of_the_service() {
    for class in [NodeClass::Plimsoll, NodeClass::EnvoyModule] {
        let (mut driver, _) = two_services(class, "");
        let fractions = |driver: &Driver, name: &str| {
            let told = driver.told(class);
            let own = told.clusters.iter().find(|one| &*one.cluster_name == name);
            own.map(|own| own.fractions.len())
        };
        assert_eq!(fractions(&driver, "orders"), Some(3), "{class:?}");
        report(&mut driver, class, 200);
        assert_eq!(fractions(&driver, "orders"), Some(0), "{class:?}");
        assert_eq!(fractions(&driver, "carts"), Some(3), "{class:?}");
    }
}
