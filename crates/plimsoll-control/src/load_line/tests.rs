//! Tests of load lines: shadow, ramp and enforce from the same measured demand, for every class of
//! nodes; the worked example has capacity 3/5/2 and demand 50/35/15.

use plimsoll_core::model::load_report::UpstreamLocalityStats;

use super::collect::collect;
use super::compute::load_line;
use super::*;
use crate::delivery::NodeClass;
use crate::state::tests::driver::{Driver, fleet, stats};

/// Computes all load lines of a state, as `Context::load_lines` does beside the writer.
fn lines(driver: &Driver, cache: &ShareCache) -> Vec<LoadLine> {
    cache.refresh_now(&driver.state, driver.now);
    let collected = collect(&driver.state, cache, driver.now);
    collected.into_iter().map(load_line).collect()
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

fn loads(traffic: Option<&Traffic>) -> Vec<String> {
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

const CLASSES: [NodeClass; 3] = [NodeClass::Plimsoll, NodeClass::Grpc, NodeClass::Envoy];

#[test]
fn shadow_shows_the_overload_of_now_and_what_enforce_would_do() {
    for class in CLASSES {
        let line = line("mode: SHADOW", class);
        assert_eq!(
            loads(line.now.as_ref()),
            ["1.50", "0.92", "0.45"],
            "{class:?}"
        );
        assert_eq!(
            loads(line.enforce.as_ref()),
            ["1.00", "1.00", "1.00"],
            "{class:?}"
        );
        assert_eq!(line.basis, "host_counts");
        let now = line.now.unwrap();
        // By host counts every zone has a third of the demand: zones a and c spill.
        assert!((now.cross_zone - 11.0).abs() < 0.1, "{now:?}");
        let enforce = line.enforce.unwrap();
        assert!((enforce.cross_zone - 20.0).abs() < 0.05, "{enforce:?}");
        assert!((enforce.kept_local().unwrap() - 0.8).abs() < 0.001);
        let demand: Vec<f64> = line.zones.iter().map(|zone| zone.demand.round()).collect();
        assert_eq!(demand, [50.0, 35.0, 15.0]);
    }
}

#[test]
fn a_ramp_is_between_host_counts_and_enforce() {
    for class in CLASSES {
        let line = line("ramp: 50", class);
        let load: f64 = loads(line.now.as_ref())[0].parse().unwrap();
        assert!(load > 1.05 && load < 1.45, "{class:?}: {load}");
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
    assert_eq!((line.basis, line.now.as_ref()), ("host_counts", None));
    assert_eq!(line.zones.len(), 3, "zones are known before demand");
    driver.advance(60_000);
    let line = &lines(&driver, &cache)[0];
    assert!(!line.warming_up && line.on_fallback, "nobody reports");
    driver.traffic(&[(&nodes[0], 0), (&nodes[1], 0), (&nodes[2], 0)], 3);
    let line = &lines(&driver, &cache)[0];
    assert!(!line.on_fallback, "an idle fleet does not need demand");
}

#[test]
fn seen_traffic_is_smoothed_and_counts_what_proxies_reported() {
    let text = "demand: {smoothing_time_constant: 5s}\nload_reporting: {interval: 1s}\n";
    let service = format!(
        "{text}services: [{{cluster: {{name: orders}}, {}}}]",
        crate::state::tests::driver::ENDPOINTS
    );
    let mut driver = Driver::with_config(crate::state::tests::driver::parse(&service));
    let nodes = fleet(NodeClass::Envoy);
    let report = |driver: &mut Driver, sent: [u64; 2]| {
        driver.advance(1000);
        for node in &nodes {
            let zone = |(zone, requests): (&str, u64)| UpstreamLocalityStats {
                locality: Locality::zone_only(zone),
                total_issued_requests: requests,
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
