//! Tests of demand: from load reports to views.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{
    Driver, ENDPOINTS, HEAD, config, config_of, endpoint_weights, fleet, fractions,
    locality_weights, node, parse, stats,
};
use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::explain::{Question, explain};
use crate::state::{ControlEvent, TrafficKey, ViewKey};
use plimsoll_core::explain::FractionStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::PlannerEvent;
use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::wire::decode_assignment;

/// Converts weights by zone to shares in basis points.
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

/// A fleet of one class with demand 50/35/15 % in zones a, b and c, and the keys of its views.
fn measured(service: &str, class: NodeClass) -> (Driver, [NodeInfo; 3], [ViewKey; 3]) {
    let mut driver = Driver::new(service);
    let nodes = fleet(class);
    let keys = [0, 1, 2].map(|index: usize| driver.open(&nodes[index]));
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 10);
    (driver, nodes, keys)
}

#[test]
fn envoys_get_fleet_weights_for_measured_demand() {
    let (mut driver, [a, b, c], keys) = measured("", NodeClass::Envoy);
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
    // A change of demand changes the locality weights at once, for every receiver.
    driver.traffic(&[(&a, 200), (&b, 200), (&c, 600)], 3);
    for key in &keys {
        let local = driver.assignment(key, "local_cluster").unwrap();
        assert_eq!(shares(&endpoint_weights(&local)), [2000, 2000, 6000]);
    }
}

#[test]
fn the_fleets_assignment_has_every_local_cluster_name() {
    let (driver, _, [key, ..]) = measured("", NodeClass::Envoy);
    for name in ["local_cluster", "local", "gateway"] {
        let resource = driver.assignment(&key, name).unwrap();
        assert_eq!(super::driver::assignment_name(&resource), name);
    }
    assert!(driver.assignment(&key, "other").is_none());
}

#[test]
fn grpc_clients_get_the_locality_weights_of_their_zone() {
    let (driver, _, [a, b, c]) = measured("", NodeClass::Grpc);
    let weights = |key| locality_weights(&driver.assignment(key, "orders").unwrap());
    assert_eq!(weights(&a), zones(&[("a", 6000), ("b", 3000), ("c", 1000)]));
    assert_eq!(weights(&b), zones(&[("b", 10_000)]));
    assert_eq!(weights(&c), zones(&[("c", 10_000)]));
}

#[test]
fn plimsoll_data_planes_get_fractions() {
    let (driver, _, [key, ..]) = measured("", NodeClass::Plimsoll);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    let expected = zones(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    assert_eq!(fractions(&local), expected);
    let traffic = driver.told(NodeClass::Plimsoll);
    assert_eq!(traffic.clusters.len(), 1);
    assert_eq!(&*traffic.clusters[0].cluster_name, "orders");
    let said: Vec<_> = traffic.clusters[0]
        .fractions
        .iter()
        .map(|(place, bp)| (place.zone(), bp.get()))
        .collect();
    assert_eq!(said, [("a", 5000), ("b", 3500), ("c", 1500)]);
}

#[test]
fn lrs_responses_have_demand_only_for_services_that_use_it() {
    for (service, wanted) in [
        ("delivery: AUTO", true),
        ("delivery: LRS_RESPONSE", true),
        ("delivery: EDS_FIELD", false),
        ("delivery: FLEET_WEIGHTS", false),
        ("mode: SHADOW", false),
        ("mode: OFF", false),
    ] {
        let (driver, ..) = measured(service, NodeClass::Plimsoll);
        let traffic = driver.told(NodeClass::Plimsoll);
        let orders = &traffic.clusters[0];
        assert_eq!(!orders.fractions.is_empty(), wanted, "{service}");
        assert_eq!(orders.observation_time.is_some(), wanted, "{service}");
    }
    let driver = Driver::new("");
    let nobody = TrafficKey {
        fleet: "nobody".into(),
        class: NodeClass::Plimsoll,
    };
    assert!(driver.state.traffic(&nobody).clusters.is_empty());
}

#[test]
fn demand_is_confirmed_before_it_expires() {
    let (mut driver, [a, b, c], [key, ..]) = measured("", NodeClass::Plimsoll);
    let before = driver.assignment(&key, "local_cluster").unwrap();
    let traffic = driver.told(NodeClass::Plimsoll);
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 25);
    let after = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(before.version, after.version);
    assert!(before.epoch < after.epoch, "the heartbeat of decision 0024");
    assert!(traffic.epoch < driver.told(NodeClass::Plimsoll).epoch);

    let (mut driver, [a, b, c], [key, ..]) = measured("", NodeClass::Envoy);
    let before = driver.assignment(&key, "local_cluster").unwrap();
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 25);
    let after = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(
        before, after,
        "an Envoy that keeps what it has hears nothing"
    );
}

#[test]
fn assignments_with_endpoint_stale_after_are_repeated() {
    let text = format!(
        "{HEAD}fleets: {{endpoint_stale_after: 60s}}\nservices: [{{cluster: {{name: orders}}}}]"
    );
    let mut driver = Driver::with_config(parse(&text));
    let nodes = fleet(NodeClass::Envoy);
    let keys = [0, 1, 2].map(|index: usize| driver.open(&nodes[index]));
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 10);
    let before = driver.assignment(&keys[0], "local_cluster").unwrap();
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 25);
    let after = driver.assignment(&keys[0], "local_cluster").unwrap();
    assert!(before.epoch < after.epoch);
    assert_eq!(stale_after(&after), Some(Duration::from_secs(60)));
    // Nobody reports any more: what follows needs no confirmation.
    driver.advance(120_000);
    let silent = driver.assignment(&keys[0], "local_cluster").unwrap();
    assert!(driver.state.fleet_plan("gateway").unwrap().zones.is_empty());
    assert_eq!(stale_after(&silent), None);
}

fn stale_after(resource: &Resource) -> Option<Duration> {
    decode_assignment(&resource.body)
        .unwrap()
        .endpoint_stale_after()
}

#[test]
fn partial_demand_is_not_delivered() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    let key = driver.open(&a);
    driver.open(&b);
    driver.open(&c);
    driver.advance(1000);
    driver.publications(&key);
    driver.report(&a, "orders", 500);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(
        endpoint_weights(&local),
        zones(&[("a", 1), ("b", 1), ("c", 1)])
    );
    assert_eq!(
        driver.publications(&key),
        0,
        "the others have not had the time to report"
    );
    driver.report(&b, "orders", 350);
    driver.report(&c, "orders", 150);
    driver.advance(1000);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(shares(&endpoint_weights(&local)), [5000, 3500, 1500]);
}

#[test]
fn nodes_that_never_report_do_not_hold_back_demand() {
    let mut driver = Driver::new("");
    let [a, b, c] = fleet(NodeClass::Envoy);
    for node in [&a, &b, &c] {
        driver.open(node);
    }
    driver.traffic(&[(&a, 300), (&b, 100)], 5);
    let plan = driver.state.fleet_plan("gateway").unwrap();
    let zones: Vec<_> = plan.zones.iter().map(|zone| zone.locality.zone()).collect();
    assert_eq!(zones, ["a", "b", "c"], "the silent zone is estimated");
}

#[test]
fn due_timers_of_the_planner_are_processed_with_any_input() {
    let (mut driver, [a, ..], _) = measured("", NodeClass::Envoy);
    driver.events.clear();
    driver.now = driver.now.saturating_add(Duration::from_secs(60));
    driver.report(&a, "orders", 500);
    let left = |event: &&ControlEvent| {
        matches!(event, ControlEvent::Planner(PlannerEvent::NodeLeft { .. }))
    };
    assert_eq!(driver.events.iter().filter(left).count(), 2);
}

#[test]
fn changed_demand_is_sent_to_all_receivers_of_lrs_responses() {
    let (mut driver, [a, b, c], _) = measured("", NodeClass::Plimsoll);
    let changed = |driver: &mut Driver| -> Vec<_> {
        std::iter::from_fn(|| driver.state.poll_traffic()).collect()
    };
    assert_eq!(changed(&mut driver), []);
    for (node, requests) in [(&a, 100), (&b, 100), (&c, 800)] {
        let report = [stats("orders", requests)];
        driver.state.handle_report(node, &report, driver.now);
    }
    let later = driver.now.saturating_add(Duration::from_secs(2));
    driver.state.handle_timeout(later);
    let sent = changed(&mut driver);
    let keys = TrafficKey::all(&"gateway".into());
    let expected = keys.map(|key| (key.clone(), driver.state.traffic(&key)));
    assert_eq!(sent, expected);
}

#[test]
fn without_reports_host_counts_are_delivered() {
    for class in NodeClass::ALL {
        let (mut driver, _, [key, ..]) = measured("", class);
        driver.advance(20_000);
        let local = driver.assignment(&key, "local_cluster").unwrap();
        assert_eq!(
            endpoint_weights(&local),
            zones(&[("a", 1), ("b", 1), ("c", 1)])
        );
        assert!(fractions(&local).is_empty());
        // Sent without fractions: receivers cannot tell missing demand from a missing update.
        let told = driver.told(NodeClass::Plimsoll);
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
        if class == NodeClass::Grpc {
            // A third of the proxies is in each zone; zone a has 30 % of the servers.
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
fn reports_about_unknown_clusters_are_ignored() {
    let (mut driver, [a, b, c], [key, ..]) = measured("", NodeClass::Envoy);
    for _ in 0..5 {
        driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 1);
        driver.report(&c, "somebody_elses", 1_000_000);
    }
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(shares(&endpoint_weights(&local)), [5000, 3500, 1500]);
    // Of a report with known and unknown clusters, only configured clusters count.
    let both = [stats("somebody_elses", 1_000_000), stats("orders", 150)];
    driver.state.handle_report(&c, &both, driver.now);
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 2);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    assert_eq!(shares(&endpoint_weights(&local)), [5000, 3500, 1500]);
}

#[test]
fn the_ramp_leads_from_what_off_delivers_to_demand() {
    // Zone a has a third of the proxies, half of the demand and three of ten hosts. gRPC clients
    // send to all hosts alike, others route by host counts.
    for (class, off) in [(NodeClass::Grpc, 3000), (NodeClass::Envoy, 9000)] {
        for ramp in [0, 1, 50, 99] {
            let (driver, _, [key, ..]) = measured(&format!("ramp: {ramp}"), class);
            let weights = locality_weights(&driver.assignment(&key, "orders").unwrap());
            let expected = (off * (100 - ramp) + 6000 * ramp) / 100;
            let near = weights["a"].abs_diff(expected) <= 1;
            assert!(near, "{class:?} {ramp} %: {weights:?}");
            assert_eq!(weights.values().sum::<u64>(), 10_000);
            let local = driver.assignment(&key, "local_cluster").unwrap();
            let counted = shares(&endpoint_weights(&local));
            assert_eq!(counted, [3333, 3333, 3333], "no demand for others");
        }
    }
}

#[test]
fn shadow_mode_measures_demand_and_delivers_what_is_written() {
    let (driver, _, [a, ..]) = measured("mode: SHADOW", NodeClass::Grpc);
    let orders = driver.assignment(&a, "orders").unwrap();
    assert_eq!(locality_weights(&orders)["a"], 3, "one weight per host");
    let plan = driver.state.fleet_plan("gateway").unwrap();
    assert!(plan.services["orders"].zones.is_empty());
    let view = driver.state.planner().fleet("gateway", driver.now).unwrap();
    let scope = view
        .scopes()
        .find(|scope| scope.upstream_cluster().is_some())
        .unwrap();
    let measured = scope.plan().unwrap().zones[0].fraction.get();
    assert_eq!(measured, 5000, "shown, not delivered");
}

#[test]
fn a_zone_without_a_proxy_keeps_its_demand() {
    let (mut driver, [a, b, c], [key, ..]) = measured("", NodeClass::Envoy);
    // The proxy of zone c reports load with zone d as its locality.
    let moved = node(NodeClass::Envoy, &c.node.id, "d");
    let mut config = ControlConfig::clone(driver.state.config());
    config.fleets.zones.insert("d".into());
    driver.reload(Arc::new(config));
    driver
        .state
        .handle_report(&moved, &[stats("orders", 150)], driver.now);
    driver.traffic(&[(&a, 500), (&b, 350), (&moved, 150)], 3);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    let weights = endpoint_weights(&local);
    assert_eq!(weights.len(), 4, "a phantom stands in zone d: {weights:?}");
    let total: u64 = weights.values().sum();
    // Zone c has a proxy that does not report, so its demand is estimated.
    assert_eq!(weights["d"] * 10_000 / total, 1000);
}

#[test]
fn plimsoll_data_planes_get_fractions_of_zones_without_a_proxy() {
    let (mut driver, [a, b, c], [key, ..]) = measured("", NodeClass::Plimsoll);
    let mut config = ControlConfig::clone(driver.state.config());
    config.fleets.zones.insert("d".into());
    driver.reload(Arc::new(config));
    let moved = node(NodeClass::Plimsoll, &c.node.id, "d");
    driver.traffic(&[(&a, 500), (&b, 350), (&moved, 150)], 3);
    let local = driver.assignment(&key, "local_cluster").unwrap();
    let fractions = fractions(&local);
    assert_eq!(fractions.keys().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert_eq!(fractions["d"], 1000, "{fractions:?}");
}

#[test]
fn receivers_in_unknown_zones_are_served() {
    let mut driver = Driver::new("");
    let nowhere = node(NodeClass::Envoy, "x", "");
    let key = driver.open(&nowhere);
    assert_eq!(key.locality, Locality::default());
    driver.traffic(&[(&nowhere, 10)], 5);
    assert!(driver.assignment(&key, "orders").is_some());
    assert!(driver.assignment(&key, "local_cluster").is_some());
}

#[test]
fn demand_with_another_delivery_is_withdrawn_from_lrs_responses() {
    let (mut driver, ..) = measured("", NodeClass::Plimsoll);
    let told = |driver: &Driver| driver.told(NodeClass::Plimsoll).clusters[0].clone();
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
fn the_age_of_demand_is_that_of_the_latest_report() {
    let (mut driver, [a, b, c], _) = measured("", NodeClass::Plimsoll);
    let origin = Duration::from_secs(1_700_000_000);
    driver.state = driver.state.with_unix_origin(origin, driver.now);
    driver.traffic(&[(&a, 500), (&b, 350), (&c, 150)], 30);
    let observed = driver.told(NodeClass::Plimsoll).clusters[0].observation_time;
    let passed = Duration::from_nanos(driver.now.as_nanos());
    let age = (origin + passed).checked_sub(observed.unwrap()).unwrap();
    assert!(
        age <= Duration::from_secs(20),
        "{age:?} since the last heartbeat"
    );
}

#[test]
fn demand_is_delivered_as_feed_forward() {
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
        let nodes = fleet(NodeClass::Plimsoll);
        for node in &nodes {
            driver.open(node);
        }
        let [a, b, c] = &nodes;
        driver.traffic(&[(a, 500), (b, 350), (c, 150)], 3);
        let traffic = driver.told(NodeClass::Plimsoll);
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
        let expected = if leads {
            FractionStatus::FeedForward
        } else {
            FractionStatus::Unused
        };
        assert_eq!(explained.fractions.status, expected, "{service}");
    }
}

/// A service with this `staleness_threshold`, and further fields of `demand`.
fn with_staleness_threshold(threshold: &str, demand: &str) -> Arc<ControlConfig> {
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
fn the_heartbeat_is_a_third_of_the_shortest_staleness_threshold() {
    let heartbeat = |driver: &Driver| driver.state.planner().confirmation();
    let shortened = |driver: &mut Driver| {
        driver.drain();
        let events = std::mem::take(&mut driver.events).into_iter();
        let shortened =
            |event: &ControlEvent| matches!(event, ControlEvent::HeartbeatShortened { .. });
        events.filter(shortened).count()
    };
    let mut driver = Driver::with_config(with_staleness_threshold("6s", ", heartbeat: 5s"));
    assert_eq!(
        (heartbeat(&driver).as_secs(), shortened(&mut driver)),
        (2, 1)
    );
    let nodes = fleet(NodeClass::Plimsoll);
    let keys: Vec<_> = nodes.iter().map(|node| driver.open(node)).collect();
    let [a, b, c] = &nodes;
    driver.traffic(&[(a, 500), (b, 350), (c, 150)], 3);
    for _ in 0..5 {
        let epoch = |driver: &Driver| driver.assignment(&keys[0], "local_cluster").unwrap().epoch;
        let before = epoch(&driver);
        driver.traffic(&[(a, 500), (b, 350), (c, 150)], 2);
        assert!(before < epoch(&driver), "every 2 s");
    }
    // With a longer `staleness_threshold` the configured heartbeat applies again.
    driver.reload(with_staleness_threshold("60s", ", heartbeat: 5s"));
    assert_eq!(
        (heartbeat(&driver).as_secs(), shortened(&mut driver)),
        (5, 0)
    );
    // The default heartbeat adapts to the `staleness_threshold` of the services.
    driver.reload(with_staleness_threshold("30s", ""));
    assert_eq!(
        (heartbeat(&driver).as_secs(), shortened(&mut driver)),
        (10, 1)
    );
    assert_eq!(driver.state.config().reporting.heartbeat_error, None);
}
