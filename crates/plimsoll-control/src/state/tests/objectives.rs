//! Tests of services with a plan of their own: what every class of nodes is sent for an objective,
//! and for a service that several fleets use.
//!
//! The worked example has hosts 3/5/2. With 20 requests per second and host, zones have a capacity
//! of 60/100/40; demand of 50/35/15 fills them to 0.5.

use std::sync::Arc;

use plimsoll_core::model::load_report::UpstreamLocalityStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::CLUSTER;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::wire::decode_cluster;

use super::driver::{
    Driver, ENDPOINTS, HEAD, config, endpoint_weights, fleet, locality_weights, node, parse, stats,
};
use crate::delivery::NodeClass;
use crate::explain::{Question, explain};
use crate::relay::RelayedResource;
use crate::state::ViewKey;

const WATERFALL: &str = "objective: {waterfall: {target_utilization: 0.8}}, \
                         capacity: {requests_per_second: 20}";

fn driver_of(service: &str, class: NodeClass) -> (Driver, [NodeInfo; 3], [ViewKey; 3]) {
    let mut driver = Driver::new(service);
    let nodes = fleet(class);
    let keys = nodes.each_ref().map(|node| driver.open(node));
    report(&mut driver, &nodes, [50, 35, 15], 3);
    (driver, nodes, keys)
}

fn report(driver: &mut Driver, nodes: &[NodeInfo; 3], requests: [u64; 3], seconds: u64) {
    let traffic: Vec<_> = nodes.iter().zip(requests).collect();
    driver.traffic(&traffic, seconds);
}

/// Weights of the zones a, b and c for receivers with `key`; 0 for those without.
fn weights(driver: &Driver, key: &ViewKey) -> [u64; 3] {
    let weights = locality_weights(&driver.assignment(key, "orders").unwrap());
    ["a", "b", "c"].map(|zone| weights.get(zone).copied().unwrap_or(0))
}

/// Fractions of the zones a, b and c in load report responses.
fn told(driver: &Driver, class: NodeClass) -> Vec<u64> {
    let told = driver.told(class);
    let orders = told
        .clusters
        .iter()
        .find(|one| *one.cluster_name == *"orders");
    let zones = orders.unwrap().fractions.iter();
    zones.map(|(_, share)| share.get()).collect()
}

/// Whether nodes choose zones by locality weights, as gRPC clients do always.
fn is_locality_weighted(driver: &Driver, key: &ViewKey) -> bool {
    let clusters = driver.view(key).get(CLUSTER).unwrap();
    let body = &clusters.get("orders").unwrap().body;
    key.class == NodeClass::Grpc || decode_cluster(body).unwrap().config.locality_weighted()
}

#[test]
fn nodes_that_follow_weights_get_the_rows_of_the_plan() {
    for class in [NodeClass::Envoy, NodeClass::Grpc] {
        let (driver, _, keys) = driver_of(WATERFALL, class);
        // 48 of 50 stay; headroom is 45 and 17.
        assert_eq!(weights(&driver, &keys[0]), [9600, 290, 110], "{class:?}");
        assert_eq!(weights(&driver, &keys[1]), [0, 10_000, 0], "{class:?}");
        assert_eq!(weights(&driver, &keys[2]), [0, 0, 10_000], "{class:?}");
        assert!(is_locality_weighted(&driver, &keys[0]), "{class:?}");
        // The fleet's assignment is for services without a plan of their own.
        let fleet = driver.assignment(&keys[0], "gateway").unwrap();
        assert!(endpoint_weights(&fleet).values().all(|weight| *weight == 1));
        // Level sends ten times as many requests away.
        let (level, _, keys) = driver_of("delivery: LOCALITY_WEIGHTS", class);
        assert_eq!(weights(&level, &keys[0]), [6000, 3000, 1000], "{class:?}");
    }
}

#[test]
fn data_planes_that_compute_zones_get_virtual_demand() {
    for class in [NodeClass::Plimsoll, NodeClass::EnvoyModule] {
        for delivery in ["AUTO", "LRS_RESPONSE", "EDS_FIELD", "FLEET_WEIGHTS"] {
            let service = format!("{WATERFALL}, delivery: {delivery}");
            let (driver, ..) = driver_of(&service, class);
            // Bounds 48/80/32, and what the zones send or receive: 50, 78.55 and 31.45 of 160.
            let found = told(&driver, class);
            assert_eq!(found, [3125, 4909, 1966], "{class:?} {delivery}");
        }
        let service = format!("{WATERFALL}, delivery: LOCALITY_WEIGHTS");
        let (driver, _, keys) = driver_of(&service, class);
        assert_eq!(weights(&driver, &keys[0]), [9600, 290, 110], "{class:?}");
    }
}

/// Two requests have to leave zone a; the way to zone c costs nothing.
#[test]
fn every_data_plane_gets_the_rows_of_a_plan_with_prices() {
    let free = "cost: {usd_per_gigabyte: 0.02, bytes_per_request: 10000, \
                between: [{from: {zone: a}, to: {zone: c}, usd_per_gigabyte: 0}]}";
    for class in NodeClass::ALL {
        let (driver, _, keys) = driver_of(&format!("{WATERFALL}, {free}"), class);
        assert_eq!(weights(&driver, &keys[0]), [9600, 0, 400], "{class:?}");
        assert_eq!(weights(&driver, &keys[1]), [0, 10_000, 0], "{class:?}");
        assert!(is_locality_weighted(&driver, &keys[0]), "{class:?}");
    }
    // 20 of 100 have to leave zone a for all zones to be half full: 5 fit into c.
    let (mut level, nodes, keys) = driver_of(free, NodeClass::Plimsoll);
    assert_eq!(weights(&level, &keys[0]), [6000, 3000, 1000]);
    report(&mut level, &nodes, [50, 50, 0], 60);
    assert_eq!(weights(&level, &keys[0]), [6000, 0, 4000]);
    // One price again: the fleet's own assignment is enough.
    level.reload(config("cost: {usd_per_gigabyte: 0.02}"));
    assert!(!is_locality_weighted(&level, &keys[0]));
}

#[test]
fn modes_and_ramps_hold_for_objectives() {
    for class in NodeClass::ALL {
        for mode in ["SHADOW", "'OFF'"] {
            let bytes = |settings: &str| {
                let (driver, _, keys) = driver_of(&format!("{settings}mode: {mode}"), class);
                let view = driver.view(&keys[0]);
                let orders = driver.assignment(&keys[0], "orders").unwrap().body;
                let cluster = view
                    .get(CLUSTER)
                    .unwrap()
                    .get("orders")
                    .unwrap()
                    .body
                    .clone();
                (orders, cluster, driver.told(class).clusters.clone())
            };
            assert_eq!(
                bytes(&format!("{WATERFALL}, ")),
                bytes(""),
                "{class:?} {mode}"
            );
        }
    }
    let (half, _, keys) = driver_of(&format!("{WATERFALL}, ramp: 50"), NodeClass::Envoy);
    // Half way from the 90 % that host counts keep local to the 96 % of the plan.
    assert_eq!(weights(&half, &keys[0])[0], 9300);
}

#[test]
fn a_zone_spills_at_once_and_stops_after_a_while() {
    let (mut driver, nodes, keys) = driver_of(WATERFALL, NodeClass::Envoy);
    report(&mut driver, &nodes, [40, 35, 15], 20);
    let [kept, ..] = weights(&driver, &keys[0]);
    assert!(kept < 10_000, "the slow average leads: {kept}");
    report(&mut driver, &nodes, [40, 35, 15], 180);
    assert_eq!(weights(&driver, &keys[0]), [10_000, 0, 0]);
    report(&mut driver, &nodes, [60, 35, 15], 3);
    assert_eq!(weights(&driver, &keys[0])[0], 8000);
}

/// Shares stay as they are, and so no fraction moves; but zones fill up.
#[test]
fn demand_that_grows_everywhere_is_noticed() {
    let (mut driver, nodes, keys) = driver_of(WATERFALL, NodeClass::Envoy);
    report(&mut driver, &nodes, [30, 21, 9], 200);
    assert_eq!(weights(&driver, &keys[0]), [10_000, 0, 0]);
    report(&mut driver, &nodes, [60, 42, 18], 21);
    assert_eq!(weights(&driver, &keys[0])[0], 8000);
}

#[test]
fn hosts_and_settings_change_the_plan() {
    let (mut driver, _, keys) = driver_of(WATERFALL, NodeClass::Envoy);
    driver.publications(&keys[0]);
    driver.reload(config("delivery: LOCALITY_WEIGHTS"));
    assert_eq!(weights(&driver, &keys[0]), [6000, 3000, 1000]);
    driver.reload(config(WATERFALL));
    assert_eq!(weights(&driver, &keys[0]), [9600, 290, 110]);
    // Hosts of twice the weight in zone a have room for all of its requests.
    let double = ENDPOINTS.replace(
        "'10.0.0.1:80'",
        "{address: '10.0.0.1:80', load_balancing_weight: 2}",
    );
    let cluster = "cluster: {name: orders}";
    driver.reload(parse(&format!(
        "{HEAD}services: [{{{cluster}, {WATERFALL}, {double}}}]"
    )));
    assert_eq!(weights(&driver, &keys[0]), [10_000, 0, 0]);
}

/// Zones are equal, so that host counts keep all requests in their zone. Zone a has to send a few
/// away.
#[test]
fn a_zone_whose_requests_fail_is_no_headroom() {
    let endpoints = "endpoints: [{locality: {zone: a}, lb_endpoints: ['10.0.0.1:80']}, \
                     {locality: {zone: b}, lb_endpoints: ['10.0.1.1:80']}, \
                     {locality: {zone: c}, lb_endpoints: ['10.0.2.1:80']}]";
    let objective = WATERFALL.replace("20}", "60}");
    let service = format!("{{cluster: {{name: orders}}, {objective}, {endpoints}}}");
    let mut driver = Driver::with_config(parse(&format!("{HEAD}services: [{service}]")));
    let nodes = fleet(NodeClass::Envoy);
    let keys = nodes.each_ref().map(|node| driver.open(node));
    report(&mut driver, &nodes, [60, 20, 20], 3);
    assert_eq!(weights(&driver, &keys[0]), [8000, 1000, 1000]);
    for _ in 0..40 {
        driver.advance(1000);
        for (node, requests) in nodes.iter().zip([60, 20, 20]) {
            let own = node.node.locality.zone();
            let sent = |requests: u64, fails: bool| UpstreamLocalityStats {
                locality: Locality::zone_only(own),
                total_issued_requests: requests,
                total_successful_requests: if fails { 0 } else { requests },
                total_error_requests: if fails { requests } else { 0 },
                ..Default::default()
            };
            let mut stats = stats("orders", 0);
            stats.upstream_locality_stats = vec![sent(requests, own == "c")];
            driver.report_stats(node, stats);
        }
    }
    assert_eq!(weights(&driver, &keys[0]), [8000, 2000, 0], "b takes all");
    assert_eq!(
        weights(&driver, &keys[2]),
        [0, 0, 10_000],
        "c is still tried"
    );
}

fn of_fleet(name: &str, class: NodeClass, zone: &str) -> NodeInfo {
    let mut node = node(class, &format!("{name}-{zone}"), zone);
    node.node.cluster = name.into();
    node
}

fn two_zones(service: &str) -> Driver {
    let endpoints = "endpoints: [{locality: {zone: a}, lb_endpoints: ['10.0.0.1:80', \
                     '10.0.0.2:80']}, {locality: {zone: b}, lb_endpoints: ['10.0.1.1:80', \
                     '10.0.1.2:80']}]";
    let service = format!("{{cluster: {{name: orders}}{service}, {endpoints}}}");
    Driver::with_config(parse(&format!("{HEAD}services: [{service}]")))
}

/// Planned one by one, each fleet would send 30 of 80 requests across.
#[test]
fn two_fleets_with_opposite_skew_exchange_nothing() {
    for class in NodeClass::ALL {
        let mut driver = two_zones("");
        let nodes = ["one", "two"].map(|name| ["a", "b"].map(|zone| of_fleet(name, class, zone)));
        let keys = nodes
            .each_ref()
            .map(|fleet| fleet.each_ref().map(|node| driver.open(node)));
        let [one, two] = &nodes;
        driver.traffic(&[(&one[0], 80), (&one[1], 20)], 2);
        assert_eq!(
            is_locality_weighted(&driver, &keys[0][0]),
            class == NodeClass::Grpc
        );
        let both = [(&one[0], 80), (&one[1], 20), (&two[0], 20), (&two[1], 80)];
        driver.traffic(&both, 2);
        for key in keys.iter().flatten() {
            let fleet = driver.state.fleet_plan(&key.fleet).unwrap();
            let own = &fleet.services["orders"];
            let shares: Vec<u64> = own.zones.iter().map(|zone| zone.fraction.get()).collect();
            assert_eq!(shares, [5000, 5000], "{class:?}");
            let at = driver
                .state
                .delivered_age(&key.fleet, Some(&"orders".into()), driver.now);
            assert!(at.is_some(), "{class:?}");
            if matches!(class, NodeClass::Envoy | NodeClass::Grpc) {
                let own = key.locality.zone();
                let weights = locality_weights(&driver.assignment(key, "orders").unwrap());
                assert_eq!(weights.len(), 1, "{weights:?}");
                assert_eq!(weights[own], 10_000, "{class:?} {own}");
                assert!(is_locality_weighted(&driver, key));
            }
        }
        // The other fleet goes: the first is planned alone again.
        for node in two {
            driver.close(node);
        }
        driver.traffic(&[(&one[0], 80), (&one[1], 20)], 60);
        let fleet = driver.state.fleet_plan("one").unwrap();
        let own = &fleet.services["orders"].zones;
        let shares: Vec<u64> = own.iter().map(|zone| zone.fraction.get()).collect();
        assert_eq!(shares, [8000, 2000], "{class:?}");
        assert_eq!(
            is_locality_weighted(&driver, &keys[0][0]),
            class == NodeClass::Grpc
        );
    }
}

/// Where fleets have the same demand, each form is as precise as the other, and the shared one is
/// fewer updates.
#[test]
fn fleets_with_the_same_demand_share_the_assignment_of_the_fleet() {
    let mut driver = two_zones("");
    let nodes =
        ["one", "two"].map(|name| ["a", "b"].map(|zone| of_fleet(name, NodeClass::Envoy, zone)));
    let keys = nodes
        .each_ref()
        .map(|fleet| fleet.each_ref().map(|node| driver.open(node)));
    let [one, two] = &nodes;
    driver.traffic(
        &[(&one[0], 800), (&one[1], 200), (&two[0], 81), (&two[1], 20)],
        5,
    );
    assert!(
        keys.iter()
            .flatten()
            .all(|key| !is_locality_weighted(&driver, key))
    );
}

/// Questions about other hosts or other demand are answered by another plan, in every form.
#[test]
fn what_if_questions_are_planned() {
    for class in NodeClass::ALL {
        let (driver, ..) = driver_of(WATERFALL, class);
        let ask = |hosts: &[(&str, u32)], demand: &[(&str, f64)]| {
            let hosts = hosts
                .iter()
                .map(|(zone, count)| ((*zone).to_owned(), *count));
            let demand = demand
                .iter()
                .map(|(zone, rate)| ((*zone).to_owned(), *rate));
            let question = Question {
                cluster: "orders".to_owned(),
                hosts: hosts.collect(),
                demand: demand.collect(),
                every_zone: true,
                ..Question::default()
            };
            let explained = explain(&driver.state, &question, driver.now).unwrap();
            let kept = |zone: &str| {
                let mut rows = explained.zones.iter();
                rows.find(|row| row.locality.zone() == zone)
                    .unwrap()
                    .kept_local
            };
            ["a", "b", "c"].map(|zone| (kept(zone) * 100.0).round())
        };
        // 48 of 50 stay. With two hosts 32 do, with four all.
        assert_eq!(ask(&[("a", 3)], &[]), [96.0, 100.0, 100.0], "{class:?}");
        assert_eq!(ask(&[("a", 2)], &[]), [64.0, 100.0, 100.0], "{class:?}");
        assert_eq!(ask(&[("a", 4)], &[]), [100.0; 3], "{class:?}");
        // Requests per second: 48 of 96 stay.
        let evening = [("a", 96.0), ("b", 35.0), ("c", 15.0)];
        assert_eq!(ask(&[], &evening), [50.0, 100.0, 100.0], "{class:?}");
    }
}

/// A waterfall counts the demand of all fleets.
#[test]
fn fleets_fill_zones_together() {
    let mut driver = two_zones(
        ", objective: {waterfall: {target_utilization: 0.5}}, \
                                capacity: {requests_per_second: 100}",
    );
    let nodes =
        ["one", "two"].map(|name| ["a", "b"].map(|zone| of_fleet(name, NodeClass::Grpc, zone)));
    let keys = nodes
        .each_ref()
        .map(|fleet| fleet.each_ref().map(|node| driver.open(node)));
    let [one, two] = &nodes;
    driver.traffic(
        &[(&one[0], 80), (&one[1], 5), (&two[0], 70), (&two[1], 5)],
        3,
    );
    for key in &keys {
        let weights = locality_weights(&driver.assignment(&key[0], "orders").unwrap());
        // 150 requests arrive in zone a, and 100 are its target.
        assert_eq!(weights["a"], 6667, "{weights:?}");
    }
}

/// Each heartbeat of one of many fleets would be an update for the proxies of all.
#[test]
fn noise_of_one_fleet_is_no_update_for_another() {
    let mut driver = two_zones("");
    let nodes =
        ["one", "two"].map(|name| ["a", "b"].map(|zone| of_fleet(name, NodeClass::Grpc, zone)));
    let keys = nodes
        .each_ref()
        .map(|fleet| fleet.each_ref().map(|node| driver.open(node)));
    let [one, two] = &nodes;
    let steady = [(&one[0], 900), (&one[1], 100)];
    let with = |requests: [u64; 2]| {
        let other = [(&two[0], requests[0]), (&two[1], requests[1])];
        [steady.to_vec(), other.to_vec()].concat()
    };
    driver.traffic(&with([200, 400]), 5);
    driver.publications(&keys[0][0]);
    for requests in [[202, 398], [198, 402], [201, 399]] {
        driver.traffic(&with(requests), 25);
    }
    assert_eq!(driver.publications(&keys[0][0]), 0);
    driver.traffic(&with([100, 800]), 3);
    assert_ne!(driver.publications(&keys[0][0]), 0);
}

/// A fleet whose own demand is as before gets what the demand of another one changed.
#[test]
fn a_relay_plans_fleets_together() {
    let relay = "relay: {address: '127.0.0.1:18500'}\nservices: [{cluster: {name: orders}}]";
    let mut driver = Driver::with_config(parse(&format!("{HEAD}{relay}")));
    let upstream = two_zones("");
    let service = &upstream.state.config().services["orders"];
    let assignment = RelayedResource::Assignment {
        cluster: "orders".into(),
        name: "orders".into(),
        version: "1".into(),
        assignment: Arc::clone(&service.assignment),
    };
    for resource in [RelayedResource::cluster_of(service, "1"), assignment] {
        driver.state.handle_relayed(resource, driver.now);
    }
    let nodes =
        ["one", "two"].map(|name| ["a", "b"].map(|zone| of_fleet(name, NodeClass::Envoy, zone)));
    let [one, two] = &nodes;
    let key = driver.open(&one[0]);
    driver.open(&one[1]);
    let orders = |driver: &Driver| driver.state.patch(&key).unwrap().services["orders"].clone();
    let kept = |driver: &Driver| {
        let weights = orders(driver).weights.unwrap().weights;
        let own = weights.iter().find(|(zone, _)| zone.zone() == "a");
        own.unwrap().1
    };
    let steady = [(&one[0], 80), (&one[1], 20)];
    driver.traffic(&steady, 2);
    assert!(!orders(&driver).service.has_own_plan);
    assert_eq!(kept(&driver), Some(6250));
    driver.publications(&key);
    two.iter().for_each(|node| drop(driver.open(node)));
    driver.traffic(&[steady, [(&two[0], 20), (&two[1], 80)]].concat(), 2);
    assert!(orders(&driver).service.has_own_plan);
    assert_eq!(kept(&driver), Some(10_000));
    assert_ne!(driver.publications(&key), 0);
}
