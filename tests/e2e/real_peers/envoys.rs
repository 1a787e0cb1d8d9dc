//! Unmodified Envoys balance by measured demand: every delivery they support, both variants of
//! discovery, three releases.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_testing::http::get;
use serde_json::{Value, json};

use crate::support::fleet::{Testbed, TestbedSpec, burst, measure, shares_from};
use crate::support::{wait_for, wait_until};

#[test]
fn fleet_weights_even_out_zones_of_envoys() {
    let mut testbed = Testbed::start(&TestbedSpec {
        name: "fleet-weights",
        ..Default::default()
    });
    testbed.wait_for_fleet_weights(60);
    assert_only_services_are_demand(&testbed);
    testbed.assert_fair();
    assert_fallback_without_reports(&testbed);
    print_time_to_effect(&testbed);
    // Envoys keep their weights without a control plane, so the split can be measured exactly.
    testbed.wait_for_fleet_weights(40);
    testbed.control.kill();
    let kept = testbed.envoys[0].weights("local_cluster");
    assert_split(&testbed);
    assert_eq!(testbed.envoys[0].weights("local_cluster"), kept);
    assert_eq!(testbed.load.failed(), 0);
}

#[test]
fn locality_weights_even_out_zones_of_envoys() {
    let mut testbed = Testbed::start(&TestbedSpec {
        name: "locality-weights",
        service: "delivery: LOCALITY_WEIGHTS",
        ..Default::default()
    });
    testbed.assert_fair();
    assert_fallback_without_reports(&testbed);
    testbed.wait_for_demand(40);
    testbed.control.kill();
    assert_split(&testbed);
    assert_eq!(testbed.load.failed(), 0);
}

#[test]
fn delta_and_older_envoys_accept_fleet_weights() {
    for version in ["1.39.3", "1.38.3"] {
        let testbed = Testbed::start(&TestbedSpec {
            name: "older-delta",
            version,
            delta: true,
            ..Default::default()
        });
        testbed.wait_for_fleet_weights(60);
        let node = testbed.control.node("gateway-zone-a");
        assert_eq!(node["user_agent_version"], version);
        assert_eq!(node["discovery"][0]["variant"], "delta");
        testbed.assert_fair();
        assert_eq!(testbed.load.failed(), 0);
    }
}

#[test]
fn delta_and_older_envoys_accept_locality_weights() {
    for (version, delta) in [("1.39.3", false), ("1.38.3", false), ("1.40.0", true)] {
        let testbed = Testbed::start(&TestbedSpec {
            name: "older-locality-weights",
            service: "delivery: LOCALITY_WEIGHTS",
            version,
            delta,
        });
        testbed.wait_for_demand(60);
        let node = testbed.control.node("gateway-zone-a");
        assert_eq!(node["user_agent_version"], version);
        testbed.assert_fair();
        assert_eq!(testbed.load.failed(), 0);
    }
}

/// Asserts that load reports of other clusters, such as the management server's, are not demand.
fn assert_only_services_are_demand(testbed: &Testbed) {
    let page = testbed.control.page("fleets");
    let demand = page["fleets"][0]["demand"].as_array().unwrap();
    let clusters: Vec<_> = demand.iter().map(|scope| &scope["cluster"]).collect();
    assert_eq!(clusters, [&Value::Null, &json!("orders")]);
    let metrics = get(testbed.control.admin, "/metrics").unwrap();
    let mut ignored = metrics
        .lines()
        .filter(|line| line.contains("load_reports_ignored_total{"));
    assert!(ignored.all(|line| line.ends_with(" 0")), "{metrics}");
    for zone in ["zone-a", "zone-b", "zone-c"] {
        let node = format!("gateway-{zone}");
        // A report that is late on a busy machine makes the service unreported until the next one.
        testbed
            .control
            .wait_for_node(&node, "reports every service", |node| {
                node["unreported"] == json!([])
            });
    }
}

/// Asserts that missing reports are not zero demand: after the deadline host counts are delivered,
/// and demand again when reports return.
fn assert_fallback_without_reports(testbed: &Testbed) {
    let stopped = Instant::now();
    testbed.reports.set_open(false);
    wait_until("host counts are delivered", || {
        testbed.control.service_fractions("orders").is_empty()
    });
    eprintln!("host counts {:?} after reports stopped", stopped.elapsed());
    // By host counts each zone has a third of the demand; zone-a has 30 % of the servers.
    wait_until("zone-a keeps 90 %", || {
        let local = shares_from(&testbed.measure(2000), "zone-a")["zone-a"];
        (local - 0.9).abs() < 0.04
    });
    testbed.reports.set_open(true);
    testbed.wait_for_demand(60);
}

/// Asserts that zone-a keeps 60 % and spills 3 : 1.
fn assert_split(testbed: &Testbed) {
    let load = burst(&testbed.envoys[0]);
    // One standard deviation is 0.4 points of the local share, 0.6 of the spill: chance passes the
    // limits once in 10^6 runs.
    let counts = measure(&testbed.backends, &load, 15_000);
    assert_eq!(load.failed(), 0);
    let shares = shares_from(&counts, "zone-a");
    eprintln!("split: {shares:.4?}");
    let local = shares["zone-a"];
    assert!((local - 0.6).abs() < 0.02, "{shares:?}");
    let spilled = shares["zone-b"] / (1.0 - local);
    assert!((spilled - 0.75).abs() < 0.04, "{shares:?}");
}

/// Prints the time from the new fractions in the control plane to the rebuilt routing in an Envoy.
fn print_time_to_effect(testbed: &Testbed) {
    let stat = "cluster.orders.lb_recalculate_zone_structures";
    let envoy = &testbed.envoys[0];
    let before = envoy.stat(stat).unwrap();
    let fractions = testbed.control.fleet_fractions();
    // With a ramp of 50 % the fleet's assignment has no demand any more.
    testbed
        .control
        .edit(&testbed.config("delivery: FLEET_WEIGHTS\n  ramp: 50", ""));
    let shown = wait_for("other fractions are in force", || {
        let changed: BTreeMap<_, _> = testbed.control.fleet_fractions();
        (changed != fractions).then(Instant::now)
    });
    let effective = wait_for("an Envoy has rebuilt its routing", || {
        (envoy.stat(stat)? > before).then(Instant::now)
    });
    let took = effective.saturating_duration_since(shown);
    eprintln!("effective {took:?} after the push (polled every 20 ms)");
    if took > Duration::from_millis(100) {
        eprintln!("more than the goal of 100 ms; is the machine busy?");
    }
    testbed
        .control
        .edit(&testbed.config("delivery: FLEET_WEIGHTS", ""));
}
