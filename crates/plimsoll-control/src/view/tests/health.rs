//! Tests that unhealthy hosts count once: weights are planned for healthy hosts, and receivers
//! reduce the weight of a zone with many unhealthy ones again.

use super::*;
use crate::explain::tests::read_back;
use crate::state::tests::driver::{HEAD, locality_weights, parse};

/// Classes that reduce the weight of a zone with unhealthy hosts; gRPC clients do not.
const REDUCING: [NodeClass; 3] = [
    NodeClass::Plimsoll,
    NodeClass::EnvoyModule,
    NodeClass::Envoy,
];

/// Ten hosts in each of two zones, of which five in zone a are unhealthy or draining; all demand
/// is in zone a.
fn driver(class: NodeClass, settings: &str, health: &str) -> (Driver, ViewKey) {
    driver_of(class, "", [""; 2], settings, health)
}

/// The same with further fields of the cluster and of its zones.
fn driver_of(
    class: NodeClass,
    cluster: &str,
    zones: [&str; 2],
    settings: &str,
    health: &str,
) -> (Driver, ViewKey) {
    let hosts = |net: u8, broken: u8| {
        let host = |host| match host {
            host if host <= broken => {
                format!("{{address: '10.0.{net}.{host}:80', health_status: {health}}}")
            }
            host => format!("'10.0.{net}.{host}:80'"),
        };
        (1..=10).map(host).collect::<Vec<_>>().join(", ")
    };
    let mut driver = Driver::with_config(parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders{cluster}}}{settings}, endpoints: [\
         {{locality: {{zone: a}}{}, lb_endpoints: [{}]}}, \
         {{locality: {{zone: b}}{}, lb_endpoints: [{}]}}]}}]",
        zones[0],
        hosts(0, 5),
        zones[1],
        hosts(1, 0)
    )));
    let nodes = ["a", "b"].map(|zone| node(class, zone, zone));
    let [key, _] = nodes.each_ref().map(|node| driver.open(node));
    driver.traffic(&[(&nodes[0], 100), (&nodes[1], 0)], 5);
    (driver, key)
}

fn share_of_a(class: NodeClass, settings: &str, health: &str) -> f64 {
    let (driver, key) = driver(class, settings, health);
    read_back(&driver, &key).localities[0].expected_share
}

#[test]
fn planned_shares_survive_the_receivers_health() {
    for class in REDUCING {
        for health in ["UNHEALTHY", "TIMEOUT", "DRAINING"] {
            let share = |settings: &str| share_of_a(class, settings, health);
            let weights = share(", delivery: LOCALITY_WEIGHTS");
            assert!(
                (weights - 1.0 / 3.0).abs() < 1e-3,
                "{class:?} {health}: {weights}"
            );
            let off = share(", mode: 'OFF'");
            let half = share(", ramp: 50");
            let expected = f64::midpoint(off, 1.0 / 3.0);
            assert!((half - expected).abs() < 1e-3, "{class:?} {health}: {half}");
        }
    }
}

/// The start of the ramp is what receivers make of the written weights: they reduce that of zone a.
#[test]
fn a_ramp_starts_from_written_weights_as_receivers_reduce_them() {
    let cluster = ", common_lb_config: {locality_weighted_lb_config: {}}";
    let zones = [", load_balancing_weight: 9", ", load_balancing_weight: 1"];
    for class in REDUCING {
        for health in ["UNHEALTHY", "TIMEOUT", "DRAINING"] {
            let share = |settings: &str| {
                let (driver, key) = driver_of(class, cluster, zones, settings, health);
                read_back(&driver, &key).localities[0].expected_share
            };
            let (off, end) = (share(", mode: 'OFF'"), share(""));
            assert!(off - end > 0.4, "{class:?} {health}: {off} → {end}");
            for ramp in [1, 50] {
                let part = f64::from(ramp) / 100.0;
                let (found, expected) = (
                    share(&format!(", ramp: {ramp}")),
                    (1.0 - part) * off + part * end,
                );
                assert!(
                    (found - expected).abs() < 1e-3,
                    "{class:?} {health} {ramp}: {found}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn grpc_clients_get_the_planned_weights_as_they_reduce_none() {
    let (driver, key) = driver(NodeClass::Grpc, "", "UNHEALTHY");
    let weights = locality_weights(&driver.assignment(&key, "orders").unwrap());
    assert_eq!((weights["a"], weights["b"]), (3333, 6667));
}

/// Without the correction this zone would get 26 % (five of ten hosts make 0.7 of the weight).
#[test]
fn weights_are_raised_where_receivers_reduce_them() {
    let (driver, key) = driver(
        NodeClass::Envoy,
        ", delivery: LOCALITY_WEIGHTS",
        "UNHEALTHY",
    );
    let weights = locality_weights(&driver.assignment(&key, "orders").unwrap());
    // 33.33 ÷ 0.7 = 47.6, and 66.67 as it is.
    assert_eq!((weights["a"], weights["b"]), (4166, 5834));
}
