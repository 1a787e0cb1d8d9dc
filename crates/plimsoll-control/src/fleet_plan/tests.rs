//! Tests of ramp, mode and demand in plans.

use super::*;
use crate::delivery::NodeClass;
use crate::state::tests::driver::{Driver, ENDPOINTS, HEAD, fleet, node, parse};

/// Two services; the demand for `first` is in zone a, the demand for `second` in zone b.
fn two_services(first: &str, second: &str) -> Driver {
    let text = format!(
        "{HEAD}services: [{{cluster: {{name: carts}}{first}, {ENDPOINTS}}}, \
         {{cluster: {{name: orders}}{second}, {ENDPOINTS}}}]"
    );
    let mut driver = Driver::with_config(parse(&text));
    let nodes = fleet(NodeClass::Envoy);
    for node in &nodes {
        driver.open(node);
    }
    for _ in 0..5 {
        driver.advance(1000);
        driver.report(&nodes[0], "carts", 900);
        driver.report(&nodes[1], "carts", 100);
        driver.report(&nodes[1], "orders", 1000);
        driver.report(&nodes[2], "orders", 0);
    }
    driver
}

fn shares(zones: &[ZoneFraction]) -> Vec<(&str, u64)> {
    let share = |zone: &ZoneFraction| zone.fraction.get();
    zones
        .iter()
        .map(|zone| (zone.locality.zone(), share(zone)))
        .collect()
}

fn plan_of(driver: &Driver) -> &FleetPlan {
    driver.state.fleet_plan("gateway").unwrap()
}

#[test]
fn the_fleet_has_the_total_demand_and_each_service_its_own() {
    let driver = two_services("", "");
    let plan = plan_of(&driver);
    assert_eq!(shares(&plan.zones)[..2], [("a", 4500), ("b", 5500)]);
    assert_eq!(
        shares(&plan.services["carts"].zones)[..2],
        [("a", 9000), ("b", 1000)]
    );
    let orders = shares(&plan.services["orders"].zones);
    assert!(orders.contains(&("b", 10_000)), "{orders:?}");
    assert!(plan.epoch > 0 && plan.services["orders"].epoch > 0);
}

#[test]
fn ramp_and_mode_apply_to_one_service() {
    let driver = two_services(", ramp: 50", ", mode: SHADOW");
    let plan = plan_of(&driver);
    let carts = shares(&plan.services["carts"].zones);
    let (_, zone_a) = carts[0];
    assert!(
        (6150..=6180).contains(&zone_a),
        "half of the way from 3333 to 9000: {carts:?}"
    );
    let orders = &plan.services["orders"];
    assert!(orders.zones.is_empty() && orders.epoch == 0);
    assert!(!orders.weights.is_empty(), "weights by host counts");
}

#[test]
fn host_counts_are_used_before_demand_is_measured() {
    let mut driver = Driver::new("");
    driver.open(&node(NodeClass::Envoy, "1", "a"));
    driver.open(&node(NodeClass::Envoy, "2", "b"));
    let plan = plan_of(&driver);
    assert!(plan.zones.is_empty() && plan.services["orders"].zones.is_empty());
    assert_eq!(plan.counts.flat.all, 2);
    let weights: Vec<_> = plan
        .fleet_weights
        .endpoints
        .iter()
        .map(|one| one.weight)
        .collect();
    assert_eq!(weights, [5000, 5000]);
    let at_a = plan.services["orders"].weights_at(&Locality::zone_only("a"));
    assert_eq!(at_a.unwrap().weights.len(), 3);
    let nowhere = Locality::zone_only("nowhere");
    assert!(plan.services["orders"].weights_at(&nowhere).is_none());
}

#[test]
fn large_fleets_are_sampled_but_counted_completely() {
    let mut driver = Driver::new("");
    for id in 0..900 {
        let zone = if id % 3 == 0 { "a" } else { "b" };
        driver.open(&node(NodeClass::Envoy, &id.to_string(), zone));
    }
    driver.advance(1000);
    let plan = plan_of(&driver);
    assert_eq!(plan.counts.flat.all, 900);
    let entries = plan.assignment.endpoints().iter();
    let listed: Vec<_> = entries.map(|entry| entry.lb_endpoints.len()).collect();
    assert_eq!(listed, [66, 133]);
    let in_a = |one: &&plimsoll_core::planner::fleet_weights::EndpointWeight| {
        one.locality == Locality::zone_only("a")
    };
    let all = &plan.fleet_weights.endpoints;
    let zone_a: u64 = all
        .iter()
        .filter(in_a)
        .map(|one| u64::from(one.weight))
        .sum();
    let total: u64 = all.iter().map(|one| u64::from(one.weight)).sum();
    assert_eq!(zone_a * 10_000 / total, 3333);
}
