//! Tests of ramp, mode and demand in plans.

use plimsoll_core::model::load_report::ClusterStats;

use super::*;
use crate::delivery::NodeClass;
use crate::state::tests::driver::{
    Driver, ENDPOINTS, HEAD, fleet, locality_weights, node, parse, stats,
};

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
    assert!(
        !orders.weights(NodeClass::Envoy).is_empty(),
        "weights by host counts"
    );
}

/// Reports one second: 900 requests to `orders` arrive in zone c, and `arrived` in zone b, of which
/// `failed` fail there.
fn report_failures(driver: &mut Driver, arrived: u64, failed: u64) {
    let nodes = fleet(NodeClass::Envoy);
    let mut at_b = stats("orders", arrived - failed);
    at_b.upstream_locality_stats[0].locality = Locality::zone_only("b");
    at_b.upstream_locality_stats[0].total_error_requests = failed;
    driver.report_stats(&nodes[1], at_b);
    driver.report(&nodes[2], "orders", 900);
    driver.report(&nodes[0], "carts", 900);
    driver.report(&nodes[1], "carts", 100);
    driver.advance(1000);
}

/// `orders` fails in zone b, which has half of the hosts and a tenth of the demand; `carts` and the
/// fleet go on.
#[test]
fn host_counts_are_used_while_the_requests_to_a_zone_fail() {
    let mut driver = two_services("", "");
    report_failures(&mut driver, 100, 100);
    let plan = plan_of(&driver);
    let orders = &plan.services["orders"];
    assert!(orders.zones.is_empty() && !orders.weights(NodeClass::Envoy).is_empty());
    assert_eq!(orders.failing.len(), 1);
    assert!(!plan.zones.is_empty(), "other services share them");
    assert_eq!(
        shares(&plan.services["carts"].zones)[..2],
        [("a", 9000), ("b", 1000)],
        "its own demand"
    );
    for _ in 0..35 {
        report_failures(&mut driver, 100, 0);
    }
    assert!(!plan_of(&driver).services["orders"].zones.is_empty());
}

/// Zone b refuses what it cannot serve: host counts overload it, and demand relieves it.
#[test]
fn demand_steers_away_from_a_zone_that_fails_because_it_is_overloaded() {
    let mut driver = two_services("", "");
    report_failures(&mut driver, 2000, 800);
    let orders = &plan_of(&driver).services["orders"];
    assert!(!orders.zones.is_empty() && orders.failing.is_empty());
}

/// One second of requests that stay in the zone of their proxies: of `orders` as much as each zone
/// has hosts, all of zone b failing, and of `carts` in zone a alone.
fn report_a_dead_zone_beside_a_larger_service(driver: &mut Driver) {
    let nodes = fleet(NodeClass::Envoy);
    for (node, zone, requests, failed) in [
        (&nodes[0], "a", 300, 0),
        (&nodes[1], "b", 500, 500),
        (&nodes[2], "c", 200, 0),
    ] {
        driver.report_stats(node, to_zone("orders", zone, requests, failed));
    }
    driver.report_stats(&nodes[0], to_zone("carts", "a", 9000, 0));
    driver.advance(1000);
}

/// Requests to a zone in one second, of which `failed` fail.
pub(crate) fn to_zone(cluster: &str, zone: &str, requests: u64, failed: u64) -> ClusterStats {
    let mut stats = stats(cluster, requests - failed);
    stats.upstream_locality_stats[0].locality = Locality::zone_only(zone);
    stats.upstream_locality_stats[0].total_error_requests = failed;
    stats
}

/// By its own demand nobody spills into the dead zone of `orders`; by that of the fleet, which all
/// services on the fleet's assignment share, three quarters of zone a would.
#[test]
fn a_service_is_judged_by_the_demand_of_the_fleet_that_proxies_are_sent() {
    for (delivery, expected) in [
        ("", &["b"][..]),
        (", delivery: EDS_FIELD", &["b"]),
        (", delivery: LOCALITY_WEIGHTS", &[]),
    ] {
        let mut driver = two_services("", delivery);
        for _ in 0..20 {
            report_a_dead_zone_beside_a_larger_service(&mut driver);
        }
        let plan = plan_of(&driver);
        let (zone_a, share) = shares(&plan.zones)[0];
        assert!(zone_a == "a" && share > 9000, "{share}");
        let orders = &plan.services["orders"];
        let failing: Vec<&str> = orders.failing.iter().map(Locality::zone).collect();
        assert_eq!(failing, expected, "{delivery}");
        assert!(orders.unseen.is_empty(), "{delivery}");
        assert_eq!(orders.zones.is_empty(), !expected.is_empty(), "{delivery}");
    }
}

/// Seconds of reports without any about zone b, whose requests vanish.
pub(crate) fn vanish(driver: &mut Driver, seconds: u64) {
    let nodes = fleet(NodeClass::Envoy);
    for _ in 0..seconds {
        driver.report_stats(&nodes[0], to_zone("orders", "a", 600, 0));
        driver.report_stats(
            &nodes[1],
            ClusterStats {
                upstream_locality_stats: Vec::new(),
                ..stats("orders", 0)
            },
        );
        driver.report_stats(&nodes[2], to_zone("orders", "c", 200, 0));
        driver.advance(1000);
    }
}

/// A service with requests to all zones, until those to zone b vanish.
pub(crate) fn without_zone_b(service: &str) -> (Driver, crate::state::ViewKey) {
    let mut driver = Driver::new(service);
    let nodes = fleet(NodeClass::Envoy);
    let keys = nodes.each_ref().map(|node| driver.open(node));
    for _ in 0..5 {
        for (node, zone, requests) in [
            (&nodes[0], "a", 600),
            (&nodes[1], "b", 200),
            (&nodes[2], "c", 200),
        ] {
            driver.report_stats(node, to_zone("orders", zone, requests, 0));
        }
        driver.advance(1000);
    }
    vanish(&mut driver, 2);
    let [at_a, ..] = keys;
    (driver, at_a)
}

#[test]
fn a_zone_that_was_unseen_is_tried_with_few_requests_until_one_is_seen() {
    let (mut driver, at_a) = without_zone_b("");
    let orders = &plan_of(&driver).services["orders"];
    assert!(orders.zones.is_empty(), "host counts");
    assert_eq!(orders.unseen, [Locality::zone_only("b")].into());
    assert_eq!(orders.failing, orders.unseen);
    let weights = |driver: &Driver| {
        let assignment = driver.assignment(&at_a, "orders").unwrap();
        locality_weights(&assignment)
    };
    assert_eq!(
        weights(&driver).len(),
        0,
        "zone-aware routing by host counts"
    );
    vanish(&mut driver, 31);
    let orders = &plan_of(&driver).services["orders"];
    assert!(orders.failing.is_empty() && orders.unseen.is_empty());
    assert!(orders.ramp < 50, "{}", orders.ramp);
    assert_eq!(weights(&driver).len(), 2, "weights of its own");
    let share = more_into_b(&driver);
    assert!((0.002..0.02).contains(&share), "{share}");
    let seen = to_zone("orders", "b", 1, 0);
    driver.report_stats(&fleet(NodeClass::Envoy)[1], seen);
    driver.advance(1000);
    let orders = &plan_of(&driver).services["orders"];
    assert_eq!((orders.ramp, orders.failing.len()), (100, 0));
    assert_eq!(weights(&driver).len(), 0, "fleet weights");
}

/// Returns how many more requests zones a and c send to zone b than by host counts, as a share of
/// all requests.
fn more_into_b(driver: &Driver) -> f64 {
    let orders = &plan_of(driver).services["orders"];
    let sent = orders.weights(NodeClass::Envoy);
    let more = sent.iter().zip(by_hosts(driver)).map(|(sent, counted)| {
        let part = match sent.receiver.zone() {
            "a" => 0.75,
            "c" => 0.25,
            _ => 0.0,
        };
        part * (weight_of_b(sent) - weight_of_b(&counted)) / 10_000.0
    });
    more.sum()
}

/// Returns the weights for the proxies of all zones by host counts.
fn by_hosts(driver: &Driver) -> Vec<ReceiverWeights> {
    let service = &driver.state.config().services["orders"];
    let upstream = HostSetCounts::of_assignment(&service.assignment, 0, None);
    let fleet = &plan_of(driver).counts;
    plimsoll_core::planner::weights::locality_weights(&rules(service), &upstream, Some(fleet), &[])
}

fn weight_of_b(weights: &ReceiverWeights) -> f64 {
    let is_b = |entry: &&(Locality, Option<u32>)| entry.0 == Locality::zone_only("b");
    let found = weights.weights.iter().find(is_b);
    f64::from(found.and_then(|(_, weight)| *weight).unwrap_or_default())
}

/// Requests to zone b fail and are in no load report. From 30 s after the loss on, for a minute and
/// a half with two trials, the zones a and c send there one request in a hundred more than by host
/// counts at most.
#[test]
fn trials_of_a_dead_zone_fail_few_requests() {
    let (mut driver, _) = without_zone_b("");
    vanish(&mut driver, 25);
    let (mut more, mut trials) = (0.0, 0);
    for _ in 0..90 {
        vanish(&mut driver, 1);
        trials += u64::from(plan_of(&driver).services["orders"].ramp < 100);
        more += more_into_b(&driver);
    }
    let share = more / 90.0;
    assert!(
        (10..=20).contains(&trials),
        "two of seven seconds: {trials}"
    );
    assert!((0.0005..0.01).contains(&share), "{share}");
}

/// Outlier detection learns nothing from the requests that load reports lack, too: refused
/// connections in Envoy 1.38, and connections that hang for longer than clients wait. By default it
/// ejects a tenth of the hosts, and with `enforcing_consecutive_5xx: 0` none.
#[test]
fn only_health_checks_explain_that_a_zone_is_unseen() {
    for (settings, is_withheld) in [
        ("", true),
        ("outlier_detection: {}", true),
        ("outlier_detection: {consecutive_5xx: 5}", true),
        ("outlier_detection: {enforcing_consecutive_5xx: 0}", true),
        (
            "health_checks: [{timeout: 1s, interval: 5s, unhealthy_threshold: 2, \
             healthy_threshold: 1, http_health_check: {path: /}}]",
            false,
        ),
    ] {
        let text =
            format!("{HEAD}services: [{{cluster: {{name: orders, {settings}}}, {ENDPOINTS}}}]");
        let mut driver = Driver::with_config(parse(&text));
        let nodes = fleet(NodeClass::Envoy);
        for node in &nodes {
            driver.open(node);
        }
        for (node, zone) in nodes.iter().zip(["a", "b", "c"]) {
            driver.report_stats(node, to_zone("orders", zone, 200, 0));
        }
        for _ in 0..3 {
            driver.advance(1000);
            vanish(&mut driver, 1);
        }
        let orders = &plan_of(&driver).services["orders"];
        assert_eq!(orders.zones.is_empty(), is_withheld, "{settings}");
        assert_eq!(orders.unseen.is_empty(), !is_withheld, "{settings}");
        assert_eq!(orders.ramp, 100, "{settings}");
        vanish(&mut driver, 31);
        let trial = plan_of(&driver).services["orders"].ramp;
        assert_eq!(
            trial < 50,
            is_withheld,
            "{settings}: a small trial, {trial}"
        );
    }
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
    let at_a = plan.services["orders"].weights_at(&Locality::zone_only("a"), NodeClass::Envoy);
    assert_eq!(at_a.unwrap().weights.len(), 3);
    let nowhere = Locality::zone_only("nowhere");
    assert!(
        plan.services["orders"]
            .weights_at(&nowhere, NodeClass::Envoy)
            .is_none()
    );
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
