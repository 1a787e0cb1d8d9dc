//! Tests of load lines: shadow, ramp and enforce from the same measured demand, for every class of
//! nodes; the worked example has capacity 3/5/2 and demand 50/35/15.

use plimsoll_core::model::load_report::UpstreamLocalityStats;
use plimsoll_core::time::Instant;

mod cache;

use super::collect::collect;
use super::compute::load_line;
use super::*;
use crate::delivery::NodeClass;
use crate::relay::RelayedResource;
use crate::state::State;
use crate::state::tests::driver::{self, Driver, fleet, stats};

/// Computes all load lines of a state, as `Context::load_lines` does beside the writer.
pub(crate) fn lines(driver: &Driver, cache: &ShareCache) -> Vec<LoadLine> {
    lines_of(&driver.state, cache, driver.now).0
}

pub(crate) fn lines_of(state: &State, cache: &ShareCache, now: Instant) -> LoadLines {
    cache.refresh_now(state, now);
    let collected = collect(state, cache, now);
    LoadLines(collected.into_iter().map(load_line).collect())
}

/// A line of `orders` with these zones.
pub(crate) fn line_of_zones(fleet: &str, zones: Vec<ZoneLine>) -> LoadLine {
    LoadLine {
        fleet: fleet.into(),
        cluster: "orders".into(),
        mode: Mode::Enforce,
        ramp: 100,
        basis: "measured_demand",
        on_fallback: false,
        warming_up: false,
        objective: Objective::LEVEL,
        target_utilization: None,
        bill: None,
        cost: Arc::default(),
        withheld: FailingZones::default(),
        undelivered: None,
        zones,
        seen: None,
        now: Err(Unknown::NotComputed),
        enforce: Err(Unknown::NotComputed),
    }
}

/// A zone with one proxy, this demand, and this share of the capacity.
pub(crate) fn zone_line(name: &str, demand: f64, capacity_share: f64) -> ZoneLine {
    ZoneLine {
        locality: Locality::zone_only(name),
        demand,
        proxies: 1,
        capacity_share,
        capacity: None,
        line: 0.0,
        above_line: None,
        failed_share: None,
        fails: false,
        fails_only_from: Vec::new(),
        planned: None,
    }
}

/// A fleet of one proxy per zone that reports 50/35/15 requests per second.
fn driver(service: &str, class: NodeClass) -> Driver {
    let mut driver = Driver::new(service);
    let nodes = fleet(class);
    for node in &nodes {
        driver.open(node);
    }
    let traffic = [(&nodes[0], 50), (&nodes[1], 35), (&nodes[2], 15)];
    driver.traffic(&traffic, 5);
    driver
}

fn loads(traffic: Result<&Traffic, &Unknown>) -> Vec<String> {
    let zones = &traffic.expect("there is traffic").zones;
    let load = |zone: &ZoneTraffic| zone.load.map(|load| format!("{load:.2}"));
    zones.iter().filter_map(load).collect()
}

fn line(service: &str, class: NodeClass) -> LoadLine {
    let driver = driver(service, class);
    let mut lines = lines(&driver, &ShareCache::default());
    assert_eq!(lines.len(), 1);
    let mut line = lines.remove(0);
    // The reports of the driver name no upstream locality.
    line.zones.retain(|zone| !zone.locality.is_unset());
    line
}

const CLASSES: [NodeClass; 4] = NodeClass::ALL;

#[test]
fn shadow_shows_the_overload_of_now_and_what_enforce_would_do() {
    for class in CLASSES {
        let line = line("mode: SHADOW", class);
        // gRPC clients do not know zones: they send to all hosts alike.
        let (loads_now, cross_zone) = match class {
            NodeClass::Grpc => (["1.00", "1.00", "1.00"], 64.5),
            _ => (["1.50", "0.92", "0.45"], 11.0),
        };
        assert_eq!(loads(line.now.as_ref()), loads_now, "{class:?}");
        assert_eq!(
            loads(line.enforce.as_ref()),
            ["1.00", "1.00", "1.00"],
            "{class:?}"
        );
        assert_eq!(line.basis, "host_counts");
        let now = line.now.unwrap();
        // By host counts every zone has a third of the demand: zones a and c spill.
        assert!((now.cross_zone - cross_zone).abs() < 0.1, "{now:?}");
        let enforce = line.enforce.unwrap();
        assert!((enforce.cross_zone - 20.0).abs() < 0.05, "{enforce:?}");
        assert!((enforce.kept_local().unwrap() - 0.8).abs() < 0.001);
        let demand: Vec<f64> = line.zones.iter().map(|zone| zone.demand.round()).collect();
        assert_eq!(demand, [50.0, 35.0, 15.0]);
        let lines: Vec<f64> = line.zones.iter().map(|zone| zone.line.round()).collect();
        assert_eq!(lines, [30.0, 50.0, 20.0]);
        for traffic in [&now, &enforce] {
            let has_requests = |(_, _, rate): &(usize, usize, f64)| *rate > 0.0;
            assert!(traffic.flows.iter().all(has_requests), "{traffic:?}");
        }
        assert!(!line.on_fallback, "{class:?}");
    }
}

#[test]
fn nothing_is_said_about_enforce_while_a_zone_fails() {
    let mut driver = driver("mode: SHADOW", NodeClass::Envoy);
    let mut stats = stats("orders", 0);
    stats.upstream_locality_stats[0].locality = Locality::zone_only("b");
    stats.upstream_locality_stats[0].total_error_requests = 35;
    driver.report_stats(&fleet(NodeClass::Envoy)[1], stats);
    driver.advance(1000);
    let line = lines(&driver, &ShareCache::default()).remove(0);
    assert_eq!(line.enforce, Err(Unknown::ZoneFails));
    assert!(!line.on_fallback, "host counts are right");
    let zone = |name| {
        line.zones
            .iter()
            .find(move |zone| zone.locality.zone() == name)
    };
    let [a, b] = ["a", "b"].map(|name| zone(name).unwrap());
    assert_eq!((a.fails, b.fails, b.failed_share), (false, true, Some(1.0)));
    assert!(line.now.is_ok());
}

/// Requests of zone b vanish: nobody knows that they fail, but host counts decide.
#[test]
fn a_zone_that_nobody_reports_requests_to_is_the_reason_of_host_counts() {
    let mut driver = Driver::new("");
    let nodes = fleet(NodeClass::Envoy);
    for node in &nodes {
        driver.open(node);
    }
    for second in 0..10 {
        for (node, zone, requests) in [
            (&nodes[0], "a", 700),
            (&nodes[1], "b", 200),
            (&nodes[2], "c", 200),
        ] {
            let mut stats = stats("orders", requests);
            stats.upstream_locality_stats[0].locality = Locality::zone_only(zone);
            if zone == "b" && second > 3 {
                stats.upstream_locality_stats.clear();
            }
            driver.report_stats(node, stats);
        }
        driver.advance(1000);
    }
    let line = lines(&driver, &ShareCache::default()).remove(0);
    let zone_b = Locality::zone_only("b");
    assert!(
        line.zones.iter().all(|zone| !zone.fails),
        "nobody knows that it does"
    );
    assert!(line.withheld.failing.is_empty());
    assert_eq!(line.withheld.unseen, [zone_b].into());
    let reasons: Vec<&str> = line
        .zones
        .iter()
        .filter_map(|zone| zone.above_line.as_deref())
        .collect();
    let expected = "host counts decide while no proxy reports requests to b";
    assert!(
        !reasons.is_empty() && reasons.iter().all(|why| *why == expected),
        "{reasons:?}"
    );
    assert!(!line.on_fallback, "host counts are right");
}

/// One second of requests, of which those to zone b fail in part.
fn report_failed(driver: &mut Driver, failed: u64) {
    let nodes = fleet(NodeClass::Envoy);
    for (node, zone, requests, failed) in [
        (&nodes[0], "a", 700, 0),
        (&nodes[1], "b", 200, failed),
        (&nodes[2], "c", 200, 0),
    ] {
        let mut stats = stats("orders", requests - failed);
        stats.upstream_locality_stats[0].locality = Locality::zone_only(zone);
        stats.upstream_locality_stats[0].total_error_requests = failed;
        driver.report_stats(node, stats);
    }
    driver.advance(1000);
}

/// Numbers of SHADOW are what people decide on: they must not come from demand that vanished, or
/// from hosts that fail.
#[test]
fn nothing_is_said_about_enforce_while_failures_distort_demand() {
    for mode in ["mode: SHADOW", "mode: 'OFF'", "mode: ENFORCE"] {
        let mut driver = Driver::new(mode);
        let nodes = fleet(NodeClass::Envoy);
        for node in &nodes {
            driver.open(node);
        }
        let enforce = |driver: &Driver| {
            let line = lines(driver, &ShareCache::default()).remove(0);
            let question = crate::explain::Question {
                cluster: "orders".to_owned(),
                routing: crate::explain::Routing::Enforce,
                every_zone: true,
                ..Default::default()
            };
            let explained = crate::explain::explain(&driver.state, &question, driver.now);
            let notes = explained.expect("it is explained").notes;
            let reason = line.enforce.err();
            for distorted in [Unknown::ZoneFails, Unknown::ZoneUnseen] {
                let is_noted = notes.iter().any(|note| note == distorted.text());
                assert_eq!(is_noted, reason == Some(distorted), "{mode}: {notes:?}");
            }
            reason
        };
        for _ in 0..5 {
            report_failed(&mut driver, 0);
        }
        assert_eq!(enforce(&driver), None, "{mode}");
        // One host of five: the zone does not fail.
        for _ in 0..3 {
            report_failed(&mut driver, 38);
        }
        let line = lines(&driver, &ShareCache::default()).remove(0);
        assert!(line.zones.iter().all(|zone| !zone.fails), "{mode}");
        assert_eq!(enforce(&driver), Some(Unknown::ZoneFails), "{mode}");
        for _ in 0..35 {
            report_failed(&mut driver, 0);
        }
        assert_eq!(enforce(&driver), None, "{mode}");
        // Requests vanish: unseen for 30 s, then tried.
        for second in 0..40 {
            for (node, zone, requests) in [(&nodes[0], "a", 700), (&nodes[2], "c", 200)] {
                let mut stats = stats("orders", requests);
                stats.upstream_locality_stats[0].locality = Locality::zone_only(zone);
                driver.report_stats(node, stats);
            }
            let mut nothing = stats("orders", 0);
            nothing.upstream_locality_stats.clear();
            driver.report_stats(&nodes[1], nothing);
            driver.advance(1000);
            if second > 2 {
                let reason = enforce(&driver);
                assert_eq!(reason, Some(Unknown::ZoneUnseen), "{mode}, second {second}");
            }
        }
    }
}

/// The network between two zones fails in part: the page and `/api/v1/load` name both.
#[test]
fn a_link_that_fails_alone_is_named() {
    let mut driver = Driver::new("");
    let nodes = fleet(NodeClass::Envoy);
    for node in &nodes {
        driver.open(node);
    }
    for _ in 0..5 {
        for (node, requests, spilled, failed) in [
            (&nodes[0], ("a", 600), 100, 40),
            (&nodes[1], ("b", 200), 0, 0),
            (&nodes[2], ("c", 200), 0, 0),
        ] {
            let mut own = stats("orders", requests.1);
            own.upstream_locality_stats[0].locality = Locality::zone_only(requests.0);
            if spilled > 0 {
                let mut to_b = stats("orders", spilled - failed)
                    .upstream_locality_stats
                    .remove(0);
                to_b.locality = Locality::zone_only("b");
                to_b.total_error_requests = failed;
                own.upstream_locality_stats.push(to_b);
            }
            driver.report_stats(node, own);
        }
        driver.advance(1000);
    }
    let line = lines(&driver, &ShareCache::default()).remove(0);
    let zone_b = line
        .zones
        .iter()
        .find(|zone| zone.locality.zone() == "b")
        .unwrap();
    assert_eq!(zone_b.fails_only_from, [Locality::zone_only("a")]);
    let expected = "requests from a to b fail";
    assert_eq!(line.withheld.text().as_deref(), Some(expected));
}

#[test]
fn a_ramp_is_between_host_counts_and_enforce() {
    for class in CLASSES {
        let line = line("ramp: 50", class);
        let load: f64 = loads(line.now.as_ref())[0].parse().unwrap();
        match class {
            // Before the ramp they send to all hosts alike, which loads all of them alike.
            NodeClass::Grpc => assert!((load - 1.0).abs() < 0.01, "{load}"),
            _ => assert!(load > 1.05 && load < 1.45, "{class:?}: {load}"),
        }
        assert_eq!(
            loads(line.enforce.as_ref()),
            ["1.00", "1.00", "1.00"],
            "{class:?}"
        );
        assert_eq!(line.basis, "measured_demand");
    }
}

#[test]
fn enforced_now_is_what_enforce_does() {
    for class in CLASSES {
        let line = line("mode: ENFORCE", class);
        assert_eq!(line.now, line.enforce, "{class:?}");
        assert_eq!(loads(line.now.as_ref()), ["1.00", "1.00", "1.00"]);
        assert_eq!(line.basis, "measured_demand");
        assert!(!line.on_fallback && !line.warming_up, "{class:?}");
    }
}

#[test]
fn off_shows_the_configured_policy_beside_enforce() {
    let line = line("mode: OFF", NodeClass::Envoy);
    assert_eq!(loads(line.now.as_ref()), ["1.50", "0.92", "0.45"]);
    assert_eq!(loads(line.enforce.as_ref()), ["1.00", "1.00", "1.00"]);
}

#[test]
fn fleets_deliver_nothing_in_shadow() {
    let shadow = driver("mode: SHADOW", NodeClass::Envoy);
    assert!(shadow.state.delivered("gateway").is_empty());
    assert_eq!(
        shadow
            .state
            .delivered_age(&"gateway".into(), None, shadow.now),
        None
    );
    let enforced = driver("mode: ENFORCE", NodeClass::Envoy);
    assert_eq!(enforced.state.delivered("gateway").len(), 3);
    assert!(
        enforced
            .state
            .delivered_age(&"gateway".into(), None, enforced.now)
            .is_some()
    );
}

#[test]
fn a_start_is_warming_up_and_lost_reports_are_a_fallback() {
    let mut driver = Driver::new("mode: ENFORCE");
    let nodes = fleet(NodeClass::Envoy);
    for node in &nodes {
        driver.open(node);
    }
    let cache = ShareCache::default();
    let line = &lines(&driver, &cache)[0];
    assert!(line.warming_up && !line.on_fallback, "{line:?}");
    let text = line.withheld_text();
    let expected = "no load report has arrived since the start";
    assert_eq!(text.as_deref(), Some(expected));
    assert_eq!(line.basis, "host_counts");
    assert_eq!(line.now, Err(Unknown::NoDemand));
    assert_eq!(line.zones.len(), 3, "zones are known before demand");
    driver.advance(60_000);
    let line = &lines(&driver, &cache)[0];
    assert!(!line.warming_up && line.on_fallback, "nobody reports");
    assert_eq!(line.withheld_text(), None, "nothing is held back");
    driver.traffic(&[(&nodes[0], 0), (&nodes[1], 0), (&nodes[2], 0)], 3);
    let line = &lines(&driver, &cache)[0];
    assert!(!line.on_fallback, "an idle fleet does not need demand");
}

#[test]
fn seen_traffic_is_smoothed_and_counts_what_proxies_reported() {
    let text = "demand: {smoothing_time_constant: 5s}\nload_reporting: {interval: 1s}\n";
    let service = format!(
        "{text}services: [{{cluster: {{name: orders}}, {}}}]",
        driver::ENDPOINTS
    );
    let mut driver = Driver::with_config(driver::parse(&service));
    let nodes = fleet(NodeClass::Envoy);
    let report = |driver: &mut Driver, sent: [u64; 2]| {
        driver.advance(1000);
        for node in &nodes {
            let zone = |(zone, requests): (&str, u64)| UpstreamLocalityStats {
                locality: Locality::zone_only(zone),
                total_issued_requests: requests,
                total_successful_requests: requests,
                ..Default::default()
            };
            let mut stats = stats("orders", 0);
            stats.upstream_locality_stats = ["a", "b"].into_iter().zip(sent).map(zone).collect();
            driver.state.handle_report(node, &[stats], driver.now);
            driver.drain();
        }
    };
    for node in &nodes {
        driver.open(node);
    }
    (0..5).for_each(|_| report(&mut driver, [10, 0]));
    let cache = ShareCache::default();
    let served = |driver: &Driver| {
        let line = lines(driver, &cache).remove(0);
        let seen = line.seen.unwrap();
        (seen.zones[0].served, seen.zones[1].served, seen.cross_zone)
    };
    assert_eq!(served(&driver), (30.0, 0.0, 20.0));
    report(&mut driver, [0, 10]);
    let (a, b, _) = served(&driver);
    assert!(
        a > 20.0 && b > 0.0,
        "one report moves the value a part of the way: {a}, {b}"
    );
    assert!((a + b - 30.0).abs() < 1e-6);
}

#[test]
fn traffic_without_requests_has_no_shares() {
    let mut traffic = Traffic::default();
    assert_eq!((traffic.kept_local(), traffic.highest_load()), (None, None));
    let loads = [Some(0.5), None, Some(2.5), Some(1.5)];
    let zone = |load| ZoneTraffic {
        load,
        ..ZoneTraffic::default()
    };
    traffic.zones = loads.map(zone).to_vec();
    (traffic.requests, traffic.cross_zone) = (80.0, 20.0);
    assert_eq!(
        (traffic.kept_local(), traffic.highest_load()),
        (Some(0.75), Some(2.5))
    );
}

#[test]
fn kinds_of_traffic_have_their_names() {
    let mut line = line("mode: SHADOW", NodeClass::Envoy);
    assert!((line.demand() - 100.0).abs() < 0.1, "{}", line.demand());
    line.enforce = Err(Unknown::NotComputed);
    let expected = [
        ("seen", line.seen.as_ref()),
        ("now", line.now.as_ref().ok()),
        ("enforce", None),
    ];
    assert_eq!(line.kinds(), expected);
    assert!(line.seen.is_some() && line.now.is_ok());
}

#[test]
fn before_shares_are_computed_capacity_is_that_of_healthy_hosts() {
    let driver = driver("", NodeClass::Envoy);
    let collected = collect(&driver.state, &ShareCache::default(), driver.now);
    let line = load_line(collected.into_iter().next().unwrap());
    let zones = line.zones.iter().filter(|zone| !zone.locality.is_unset());
    let capacity: Vec<f64> = zones.map(|zone| zone.capacity_share).collect();
    assert_eq!(capacity, [0.3, 0.5, 0.2]);
    assert_eq!(line.now, Err(Unknown::NotComputed));
    assert_eq!(line.enforce, Err(Unknown::NotComputed));
}

#[test]
fn measured_demand_is_that_of_the_service() {
    let mut driver = Driver::with_config(driver::parse(&format!(
        "{}services: [{{cluster: {{name: carts}}, {}}}, {{cluster: {{name: orders}}}}]",
        driver::HEAD,
        driver::ENDPOINTS,
    )));
    let [a, b, _] = fleet(NodeClass::Envoy);
    driver.open(&a);
    driver.open(&b);
    for _ in 0..3 {
        driver.advance(1000);
        driver.report(&a, "carts", 10);
        driver.report(&b, "orders", 20);
    }
    let demand = |driver: &Driver, cluster: &str| {
        let all = measured_demand(&driver.state, "gateway", &cluster.into(), driver.now)?;
        let counted = all.into_iter().filter(|(_, rate)| *rate > 0.0);
        let row = |(zone, rate): (Locality, f64)| (zone.zone().to_owned(), rate.round());
        Some(counted.map(row).collect::<Vec<_>>())
    };
    assert_eq!(demand(&driver, "carts"), Some(vec![("a".to_owned(), 10.0)]));
    assert_eq!(
        demand(&driver, "orders"),
        Some(vec![("b".to_owned(), 20.0)])
    );
    driver.traffic(&[(&a, 0), (&b, 0)], 3);
    assert_eq!(demand(&driver, "orders"), None, "no requests");
    assert_eq!(demand(&driver, "unknown"), None);
}

#[test]
fn consistent_hashing_does_not_follow_demand() {
    let config = driver::config_of("lb_policy: RING_HASH", "");
    let mut driver = Driver::with_config(config);
    let nodes = fleet(NodeClass::Plimsoll);
    for node in &nodes {
        driver.open(node);
    }
    driver.traffic(&[(&nodes[0], 50), (&nodes[1], 35), (&nodes[2], 15)], 5);
    let orders = driver.state.service("orders").unwrap();
    assert_eq!(driver.state.basis("gateway", orders), "host_counts");
    assert_eq!(driver.state.delivered_for("gateway", orders), []);
    assert!(!driver.state.is_on_fallback("gateway", orders));
}

#[test]
fn every_reason_for_missing_numbers_has_its_own_text() {
    let texts = [
        Unknown::NotComputed,
        Unknown::NoDemand,
        Unknown::NoShares,
        Unknown::NotReported,
        Unknown::OnlyProxiesKnow,
    ]
    .map(Unknown::text);
    let distinct: std::collections::BTreeSet<_> = texts.into_iter().collect();
    assert_eq!(distinct.len(), 5, "{texts:?}");
}

/// A policy of the cluster in the spelling of files.
fn policy(name: &str, message: &str) -> String {
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    format!(
        "load_balancing_policy: {{policies: [\
         {{typed_extension_config: {{name: x, typed_config: {{'@type': {package}.{name}, \
         {message}}}}}}}]}}"
    )
}

fn load_aware(feed_forward: bool) -> String {
    let controller = if feed_forward {
        "spill_controller: CONVERGENT, demand_feed_forward: true, "
    } else {
        ""
    };
    let child = "endpoint_picking_policy: {policies: [{typed_extension_config: {name: x, \
                 typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                 load_balancing_policies.round_robin.v3.RoundRobin}}}]}";
    policy(
        "load_aware_locality.v3.LoadAwareLocality",
        &format!("{controller}{child}"),
    )
}

fn observed_load() -> String {
    policy(
        "round_robin.v3.RoundRobin",
        "locality_lb_config: {zone_aware_lb_config: {locality_basis: OBSERVED_LOAD}}",
    )
}

/// A line of Plimsoll proxies that report 50/35/15 requests, a fifth of zone a's to zone b.
fn observed_line(cluster: &str, mode: &str, reports_localities: bool) -> LoadLine {
    let config = driver::config_of(cluster, mode);
    let mut driver = Driver::with_config(config);
    let nodes = fleet(NodeClass::Plimsoll);
    for node in &nodes {
        driver.open(node);
    }
    let sent = [("a", [40, 10, 0]), ("b", [0, 35, 0]), ("c", [0, 0, 15])];
    for _ in 0..5 {
        driver.advance(1000);
        for (node, (_, to)) in nodes.iter().zip(sent) {
            let mut stats = stats("orders", to.iter().sum());
            if reports_localities {
                let zone = |(zone, requests): (&str, u64)| UpstreamLocalityStats {
                    locality: Locality::zone_only(zone),
                    total_issued_requests: requests,
                    total_successful_requests: requests,
                    ..Default::default()
                };
                let zones = ["a", "b", "c"].into_iter().zip(to);
                stats.upstream_locality_stats = zones.map(zone).collect();
            }
            driver.state.handle_report(node, &[stats], driver.now);
            driver.drain();
        }
    }
    lines(&driver, &ShareCache::default()).remove(0)
}

#[test]
fn policies_that_observe_load_are_shown_in_the_shares_that_proxies_report() {
    for (cluster, basis) in [
        (load_aware(false), "utilization"),
        (observed_load(), "observed_load"),
    ] {
        // The second one is enforced; `OBSERVED_LOAD` may not say so.
        for mode in ["mode: SHADOW", ""] {
            let line = observed_line(&cluster, mode, true);
            assert_eq!(line.basis, basis);
            let now = line.now.as_ref().unwrap();
            assert!((now.kept_local().unwrap() - 0.9).abs() < 0.001, "{now:?}");
            let seen = line.seen.as_ref().unwrap();
            assert!(
                (now.requests - seen.requests).abs() < 1.0,
                "{now:?} {seen:?}"
            );
            assert_eq!(line.enforce, line.now, "mode changes nothing: {cluster}");
            let reasons: Vec<_> = line.zones.iter().map(|zone| &zone.above_line).collect();
            let reason = Some("proxies choose zones by the load that they observe".into());
            assert_eq!(reasons, [&reason, &None, &None], "zone a is above its line");
        }
    }
}

#[test]
fn what_only_proxies_can_tell_has_a_reason() {
    let line = observed_line(&load_aware(true), "mode: SHADOW", true);
    assert!(line.now.is_ok(), "{:?}", line.now);
    assert_eq!(line.enforce, Err(Unknown::OnlyProxiesKnow));
    let enforced = observed_line(&load_aware(true), "mode: ENFORCE", true);
    assert_eq!(enforced.enforce, enforced.now);
    assert!(enforced.now.is_ok());
    assert!(
        Unknown::OnlyProxiesKnow
            .text()
            .contains("only they can tell")
    );
}

/// The fleet's assignment has 200 of 300 proxies: host counts are those of the sample.
#[test]
fn a_sample_of_a_large_fleet_is_named_where_it_holds_a_zone_above_its_line() {
    let mut driver = Driver::new("mode: SHADOW");
    let zone = |index: usize| ["a", "b", "c"][index.saturating_sub(297)];
    let nodes: Vec<_> = (0..300)
        .map(|index| driver::node(NodeClass::Envoy, &format!("n{index}"), zone(index)))
        .collect();
    for node in &nodes {
        driver.open(node);
    }
    driver.traffic(&[(&nodes[0], 25), (&nodes[298], 15), (&nodes[299], 60)], 5);
    let line = lines(&driver, &ShareCache::default()).remove(0);
    let reason = |zone: &str| {
        let of = |line: &&ZoneLine| line.locality == Locality::zone_only(zone);
        let found = line.zones.iter().find(of).unwrap();
        found.above_line.as_deref().map(str::to_owned)
    };
    let c = reason("c").unwrap();
    assert!(c.contains("routing assumes 0.5"), "{c}");
    assert!(
        c.ends_with("host counts are those of 199 proxies that stand for 300")
            || c.ends_with("host counts are those of 200 proxies that stand for 300"),
        "{c}"
    );
    assert_eq!(reason("a"), None, "below its line");
}

/// With SHADOW the policy of a relayed server passes as it is: if it says that proxies follow
/// demand, they do.
#[test]
fn a_relayed_policy_decides_what_routing_is_based_on() {
    let policy = policy(
        "round_robin.v3.RoundRobin",
        "locality_lb_config: {zone_aware_lb_config: {min_cluster_size: 1, locality_basis: \
         LRS_REPORTED_RATE}}",
    );
    let upstream = driver::config_of(&policy, "mode: 'OFF'");
    let relayed = &upstream.services["orders"];
    for (class, basis) in [
        (NodeClass::Plimsoll, "measured_demand"),
        (NodeClass::Envoy, "host_counts"),
    ] {
        let mut driver = Driver::with_config(driver::parse(
            "{relay: {address: 'a:1'}, load_reporting: {interval: 1s}, \
             services: [{cluster: {name: orders}, mode: SHADOW}]}",
        ));
        let nodes = fleet(class);
        for node in &nodes {
            driver.open(node);
        }
        let cluster = RelayedResource::cluster_of(relayed, "1");
        let assignment = RelayedResource::Assignment {
            cluster: "orders".into(),
            name: "orders".into(),
            version: "1".into(),
            assignment: Arc::clone(&relayed.assignment),
        };
        for resource in [cluster, assignment] {
            driver.state.handle_relayed(resource, driver.now);
        }
        driver.traffic(&[(&nodes[0], 50), (&nodes[1], 35), (&nodes[2], 15)], 5);
        let line = lines(&driver, &ShareCache::default()).remove(0);
        assert_eq!(line.basis, basis, "{class:?}");
    }
}
