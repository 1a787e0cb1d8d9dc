//! From reports to what receivers see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{
    Driver, ENDPOINTS, HEAD, config, config_of, endpoint_weights, fleet, fractions,
    locality_weights, node, parse, stats,
};
use crate::config::ControlConfig;
use crate::delivery::Class;
use crate::explain::{Question, explain};
use crate::state::{ControlEvent, ViewKey};
use plimsoll_core::explain::FractionStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::PlannerEvent;
use plimsoll_xds::node::NodeInfo;

/// Shares of weights in basis points.
fn shares(weights: &BTreeMap<String, u64>) -> Vec<u64> {
    let total: u64 = weights.values().sum();
    weights
        .values()
        .map(|weight| weight * 10_000 / total)
        .collect()
}

fn zones(weights: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let zone = |&(zone, weight): &(&str, u64)| (zone.to_owned(), weight);
    weights.iter().map(zone).collect()
}

/// A fleet of one class with demand 50/35/15 that has long been measured; the keys of its views.
fn measured(service: &str, class: Class) -> (Driver, [NodeInfo; 3], [ViewKey; 3]) {
    let mut driver = Driver::new(service);
    let nodes = fleet(class);
    let keys = [0, 1, 2].map(|index: usize| driver.open(&nodes[index]));
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 10);
    (driver, nodes, keys)
}

#[test]
fn envoys_get_weights_that_say_the_measured_demand() {
    let (mut driver, [a, b, c], keys) = measured("", Class::Envoy);
    for key in &keys {
        let local = driver.assignment(key, "local_cluster").unwrap();
        assert_eq!(shares(&endpoint_weights(&local)), [5000, 3500, 1500]);
        let orders = driver.assignment(key, "orders").unwrap();
        assert_eq!(
            endpoint_weights(&orders),
            zones(&[("a", 3), ("b", 5), ("c", 2)])
        );
        assert!(locality_weights(&orders).is_empty());
    }
    // Demand moves, and so do the weights, at once and for everybody.
    driver.traffic(&[(&a, 200), (&b, 200), (&c, 600)], 3);
    for key in &keys {
        let local = driver.assignment(key, "local_cluster").unwrap();
        assert_eq!(shares(&endpoint_weights(&local)), [2000, 2000, 6000]);
    }
}

#[test]
fn the_fleet_answers_to_every_name_that_proxies_ask_for() {
    let (driver, _, [key, ..]) = measured("", Class::Envoy);
    for name in ["local_cluster", "local", "gateway"] {
        let resource = driver.assignment(&key, name).unwrap();
        assert_eq!(super::driver::name_of(&resource), name);
    }
    assert!(driver.assignment(&key, "other").is_none());
}

#[test]
fn grpc_clients_get_the_weights_of_their_zone() {
    let (driver, _, [a, b, c]) = measured("", Class::Grpc);
    let weights = |key| locality_weights(&driver.assignment(key, "orders").unwrap());
    assert_eq!(weights(&a), zones(&[("a", 6000), ("b", 3000), ("c", 1000)]));
    assert_eq!(weights(&b), zones(&[("b", 10_000)]));
    assert_eq!(weights(&c), zones(&[("c", 10_000)]));
}

#[test]
fn plimsoll_data_planes_get_fractions() {
    let (driver, _, [key, ..]) = measured("", Class::Plimsoll);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    let expected = zones(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    assert_eq!(fractions(&local), expected);
    let traffic = driver.state.traffic("gateway");
    assert_eq!(traffic.clusters.len(), 1);
    assert_eq!(&*traffic.clusters[0].cluster_name, "orders");
    let said = traffic.clusters[0].fractions.iter();
    let said: Vec<_> = said.map(|(place, bp)| (place.zone(), bp.get())).collect();
    assert_eq!(said, [("a", 5000), ("b", 3500), ("c", 1500)]);
}

#[test]
fn the_load_reporting_response_speaks_only_where_it_is_wanted() {
    for (service, wanted) in [
        ("delivery: AUTO", true),
        ("delivery: LRS_RESPONSE", true),
        ("delivery: EDS_FIELD", false),
        ("delivery: FLEET_WEIGHTS", false),
        ("mode: SHADOW", false),
        ("mode: OFF", false),
    ] {
        let (driver, ..) = measured(service, Class::Plimsoll);
        let traffic = driver.state.traffic("gateway");
        let orders = &traffic.clusters[0];
        assert_eq!(!orders.fractions.is_empty(), wanted, "{service}");
        assert_eq!(orders.observation_time.is_some(), wanted, "{service}");
    }
    let driver = Driver::new("");
    assert!(driver.state.traffic("nobody").clusters.is_empty());
}

#[test]
fn demand_is_heard_again_by_those_who_let_it_expire() {
    let (mut driver, [a, b, c], [key, ..]) = measured("", Class::Plimsoll);
    let before = driver.assignment(&key, "local_cluster").unwrap();
    let traffic = driver.state.traffic("gateway");
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 25);
    let after = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(before.version, after.version);
    assert!(before.epoch < after.epoch, "the heartbeat of decisions D3");
    assert!(traffic.epoch < driver.state.traffic("gateway").epoch);

    let (mut driver, [a, b, c], [key, ..]) = measured("", Class::Envoy);
    let before = driver.assignment(&key, "local_cluster").unwrap();
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 25);
    let after = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(
        before, after,
        "an Envoy that keeps what it has hears nothing"
    );
}

#[test]
fn an_envoy_that_is_asked_to_forget_is_reminded() {
    let text = format!(
        "{HEAD}fleets: {{endpoint_stale_after: 60s}}\nservices: [{{cluster: {{name: orders}}}}]"
    );
    let mut driver = Driver::with_config(parse(&text));
    let nodes = fleet(Class::Envoy);
    let keys = [0, 1, 2].map(|index: usize| driver.open(&nodes[index]));
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 10);
    let before = driver.assignment(&keys[0], "local_cluster").unwrap();
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 25);
    let after = driver.assignment(&keys[0], "local_cluster").unwrap();
    assert!(before.epoch < after.epoch);
}

#[test]
fn demand_of_a_part_of_the_fleet_is_not_delivered() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(Class::Envoy);
    let key = driver.open(&a);
    driver.open(&b);
    driver.open(&c);
    driver.pass(1000);
    driver.news(&key);
    driver.report(&a, "orders", 500);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(
        endpoint_weights(&local),
        zones(&[("a", 1), ("b", 1), ("c", 1)])
    );
    assert_eq!(
        driver.news(&key),
        0,
        "the others have not had the time to report"
    );
    driver.report(&b, "orders", 350);
    driver.report(&c, "orders", 150);
    driver.pass(1000);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(shares(&endpoint_weights(&local)), [5000, 3500, 1500]);
}

#[test]
fn silence_leads_back_to_host_counts() {
    for class in [Class::Envoy, Class::Plimsoll, Class::Grpc] {
        let (mut driver, _, [key, ..]) = measured("", class);
        driver.pass(20_000);
        let local = driver.assignment(&key, "local_cluster").unwrap();
        assert_eq!(
            endpoint_weights(&local),
            zones(&[("a", 1), ("b", 1), ("c", 1)])
        );
        assert!(fractions(&local).is_empty());
        // Said, because nobody would hear silence.
        let told = driver.state.traffic("gateway");
        let [orders] = &told.clusters[..] else {
            panic!("{told:?}");
        };
        assert_eq!(
            (&*orders.cluster_name, orders.fractions.len()),
            ("orders", 0)
        );
        let left = |event: &&ControlEvent| {
            matches!(event, ControlEvent::Planner(PlannerEvent::NodeLeft { .. }))
        };
        assert_eq!(driver.events.iter().filter(left).count(), 3);
        if class == Class::Grpc {
            // A third of the fleet in each zone, against 30 % of the servers.
            let orders = driver.assignment(&key, "orders").unwrap();
            assert_eq!(
                locality_weights(&orders)["a"],
                9000,
                "never without weights"
            );
        }
    }
}

#[test]
fn clusters_of_somebody_else_are_no_demand() {
    let (mut driver, [a, b, c], [key, ..]) = measured("", Class::Envoy);
    for _ in 0..5 {
        driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 1);
        driver.report(&c, "somebody_elses", 1_000_000);
    }
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(shares(&endpoint_weights(&local)), [5000, 3500, 1500]);
    // A message with both counts what is ours.
    let both = [stats("somebody_elses", 1_000_000), stats("orders", 150)];
    driver.state.handle_report(&c, &both, driver.now);
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 2);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(shares(&endpoint_weights(&local)), [5000, 3500, 1500]);
}

#[test]
fn a_ramp_goes_from_host_counts_to_demand() {
    for (ramp, expected) in [(0, 3333), (50, 4167), (100, 5000)] {
        let (driver, _, [key, ..]) = measured(&format!("ramp: {ramp}"), Class::Envoy);
        let local = driver.assignment(&key, "local_cluster").unwrap();
        let share = shares(&endpoint_weights(&local))[0];
        assert!(share.abs_diff(expected) <= 1, "{share} at {ramp} %");
    }
}

#[test]
fn a_shadow_is_measured_and_delivers_host_counts() {
    let (driver, _, [a, ..]) = measured("mode: SHADOW", Class::Grpc);
    let orders = driver.assignment(&a, "orders").unwrap();
    assert_eq!(locality_weights(&orders)["a"], 9000);
    let plan = driver.state.fleet_plan("gateway").unwrap();
    assert!(plan.services["orders"].zones.is_empty());
    let view = driver.state.planner().fleet("gateway", driver.now).unwrap();
    let grain = view
        .grains()
        .find(|grain| grain.upstream_cluster().is_some())
        .unwrap();
    let measured = grain.plan().unwrap().zones[0].fraction.get();
    assert_eq!(measured, 5000, "shown, not delivered");
}

#[test]
fn a_zone_without_a_proxy_keeps_its_demand() {
    let (mut driver, [a, b, c], [key, ..]) = measured("", Class::Envoy);
    // The proxy of zone c says on its reports that it is in zone d.
    let moved = node(Class::Envoy, &c.node.id, "d");
    driver
        .state
        .handle_report(&moved, &[stats("orders", 150)], driver.now);
    driver.traffic(&[(&a, 500), (&b, 350), (&moved, 150)], 3);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert_eq!(weights.len(), 4, "a phantom stands in zone d: {weights:?}");
    let total: u64 = weights.values().sum();
    // Zone c has a proxy that says nothing of it, so its demand is estimated.
    assert_eq!(weights["d"] * 10_000 / total, 1000);
}

#[test]
fn a_receiver_in_an_unknown_place_is_served_as_well() {
    let mut driver = Driver::new("");
    let nowhere = node(Class::Envoy, "x", "");
    let key = driver.open(&nowhere);
    assert_eq!(key.locality, Locality::default());
    driver.traffic(&[(&nowhere, 10)], 5);
    assert!(driver.assignment(&key, "orders").is_some());
    assert!(driver.assignment(&key, "local_cluster").is_some());
}

#[test]
fn demand_that_is_told_another_way_is_withdrawn_from_the_response() {
    let (mut driver, ..) = measured("", Class::Plimsoll);
    let told = |driver: &Driver| driver.state.traffic("gateway").clusters[0].clone();
    assert_eq!(told(&driver).fractions.len(), 3);
    driver.reload(config("delivery: EDS_FIELD"));
    let withdrawn = told(&driver);
    assert_eq!(
        (&*withdrawn.cluster_name, withdrawn.fractions.len()),
        ("orders", 0)
    );
    driver.reload(config("mode: OFF"));
    assert_eq!(told(&driver).fractions.len(), 0);
    driver.reload(config(""));
    assert_eq!(told(&driver).fractions.len(), 3);
}

#[test]
fn demand_is_as_old_as_its_newest_report() {
    let (mut driver, [a, b, c], _) = measured("", Class::Plimsoll);
    let origin = Duration::from_secs(1_700_000_000);
    driver.state = driver.state.with_unix_origin(origin);
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 30);
    let observed = driver.state.traffic("gateway").clusters[0].observation_time;
    let passed = Duration::from_nanos(driver.now.as_nanos());
    let age = (origin + passed).checked_sub(observed.unwrap()).unwrap();
    assert!(
        age <= Duration::from_secs(20),
        "{age:?} since the last heartbeat"
    );
}

#[test]
fn demand_leads_a_convergent_service() {
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let typed = |rest: &str| {
        let config = format!("'@type': {package}.{rest}");
        format!(
            "{{policies: [{{typed_extension_config: {{name: x, typed_config: {{{config}}}}}}}]}}"
        )
    };
    let child = typed("round_robin.v3.RoundRobin");
    let policy = typed(&format!(
        "load_aware_locality.v3.LoadAwareLocality, spill_controller: CONVERGENT, \
         endpoint_picking_policy: {child}"
    ));
    let cluster = format!("load_balancing_policy: {policy}");
    for (service, leads) in [("", true), ("mode: SHADOW", false), ("mode: OFF", false)] {
        let mut driver = Driver::with_config(config_of(&cluster, service));
        let nodes = fleet(Class::Plimsoll);
        for node in &nodes {
            driver.open(node);
        }
        let [a, b, c] = &nodes;
        driver.traffic(&[(a, 500), (b, 350), (c, 150)], 3);
        let traffic = driver.state.traffic("gateway");
        assert_eq!(
            !traffic.clusters[0].fractions.is_empty(),
            leads,
            "{service}"
        );
        let question = Question {
            cluster: "orders".to_owned(),
            ..Question::default()
        };
        let explained = explain(&driver.state, &question, driver.now).unwrap();
        let expected = match leads {
            true => FractionStatus::FeedForward,
            false => FractionStatus::Unused,
        };
        assert_eq!(explained.fractions.status, expected, "{service}");
    }
}

/// A measured service whose fractions count for so long, and the settings of demand.
fn patience(threshold: &str, demand: &str) -> Arc<ControlConfig> {
    let lrs = format!("lrs_rate_config: {{staleness_threshold: {threshold}}}");
    let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3";
    let text = format!(
        "load_reporting: {{interval: 1s}}\ndemand: {{smoothing_time_constant: 0.001s{demand}}}\n\
         services: [{{cluster: {{name: orders, load_balancing_policy: {{policies: \
         [{{typed_extension_config: {{name: x, typed_config: {{'@type': {policy}.RoundRobin, \
         locality_lb_config: {{zone_aware_lb_config: {{locality_basis: LRS_REPORTED_RATE, \
         {lrs}}}}}}}}}}}]}}}}, {ENDPOINTS}}}]"
    );
    parse(&text)
}

#[test]
fn demand_is_confirmed_three_times_while_it_counts() {
    let heartbeat = |driver: &Driver| driver.state.planner().config().heartbeat();
    let shortened = |driver: &mut Driver| {
        driver.settle();
        let events = std::mem::take(&mut driver.events).into_iter();
        let shortened =
            |event: &ControlEvent| matches!(event, ControlEvent::HeartbeatShortened { .. });
        events.filter(shortened).count()
    };
    let mut driver = Driver::with_config(patience("6s", ", heartbeat: 5s"));
    assert_eq!(
        (heartbeat(&driver).as_secs(), shortened(&mut driver)),
        (2, 1)
    );
    let nodes = fleet(Class::Plimsoll);
    let keys: Vec<_> = nodes.iter().map(|node| driver.open(node)).collect();
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 3);
    for _ in 0..5 {
        let epoch = |driver: &Driver| driver.assignment(&keys[0], "local_cluster").unwrap().epoch;
        let before = epoch(&driver);
        driver.traffic(&[(a, 500), (b, 350), (c, 150)], 2);
        assert!(before < epoch(&driver), "every 2 s");
    }
    // A patient service, and the file is followed again.
    driver.reload(patience("60s", ", heartbeat: 5s"));
    assert_eq!(
        (heartbeat(&driver).as_secs(), shortened(&mut driver)),
        (5, 0)
    );
    // Nobody wrote it down: it follows the services.
    driver.reload(patience("30s", ""));
    assert_eq!(
        (heartbeat(&driver).as_secs(), shortened(&mut driver)),
        (10, 1)
    );
    assert_eq!(driver.state.config().heartbeat_fault, None);
}
