//! Stock Envoys balance by measured demand: every delivery they can take, both variants of
//! discovery, three releases.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::fleet::{World, WorldSpec, burst, measure, shares_from};
use crate::support::http::get;
use crate::support::{wait_for, wait_until};

#[test]
fn three_envoys_by_fleet_weights() {
    let mut world = World::start(&WorldSpec {
        name: "fleet-weights",
        ..Default::default()
    });
    world.wait_for_fleet_weights(60);
    only_services_are_demand(&world);
    world.assert_fair();
    reports_stop_and_return(&world);
    time_to_effect(&world);
    // The worked example, with the weights that stay when nobody is there to change them.
    world.wait_for_fleet_weights(40);
    world.control.kill();
    let kept = world.envoys[0].weights("local_cluster");
    worked_example(&world);
    assert_eq!(world.envoys[0].weights("local_cluster"), kept);
    assert_eq!(world.load.failed(), 0);
}

#[test]
fn three_envoys_by_locality_weights() {
    let mut world = World::start(&WorldSpec {
        name: "locality-weights",
        service: "delivery: LOCALITY_WEIGHTS",
        ..Default::default()
    });
    world.assert_fair();
    reports_stop_and_return(&world);
    world.wait_for_demand(40);
    world.control.kill();
    worked_example(&world);
    assert_eq!(world.load.failed(), 0);
}

#[test]
fn delta_and_older_envoys_take_fleet_weights() {
    for version in ["1.39.3", "1.38.3"] {
        let world = World::start(&WorldSpec {
            name: "older-delta",
            version,
            delta: true,
            ..Default::default()
        });
        world.wait_for_fleet_weights(60);
        let node = world.control.node("gateway-zone-a");
        assert_eq!(node["user_agent_version"], version);
        assert_eq!(node["discovery"][0]["variant"], "delta");
        world.assert_fair();
        assert_eq!(world.load.failed(), 0);
    }
}

#[test]
fn delta_and_older_envoys_take_locality_weights() {
    for (version, delta) in [("1.39.3", false), ("1.38.3", false), ("1.40.0", true)] {
        let world = World::start(&WorldSpec {
            name: "older-locality-weights",
            service: "delivery: LOCALITY_WEIGHTS",
            version,
            delta,
        });
        world.wait_for_demand(60);
        let node = world.control.node("gateway-zone-a");
        assert_eq!(node["user_agent_version"], version);
        world.assert_fair();
        assert_eq!(world.load.failed(), 0);
    }
}

/// Envoys are asked for all clusters and report those of their management servers too.
fn only_services_are_demand(world: &World) {
    let page = world.control.page("fleets");
    let demand = page["fleets"][0]["demand"].as_array().unwrap();
    let clusters: Vec<_> = demand.iter().map(|grain| &grain["cluster"]).collect();
    assert_eq!(clusters, [&Value::Null, &json!("orders")]);
    let metrics = get(world.control.admin, "/metrics").unwrap();
    assert!(
        !metrics.contains("load_reports_ignored_total{"),
        "{metrics}"
    );
    for zone in ["zone-a", "zone-b", "zone-c"] {
        let node = world.control.node(&format!("gateway-{zone}"));
        assert_eq!(node["unreported"], json!([]), "{node}");
    }
}

/// Silence is not zero: at the deadline the fleet goes by host counts, and comes back by itself.
fn reports_stop_and_return(world: &World) {
    let stopped = Instant::now();
    world.reports.set_open(false);
    wait_until("host counts are delivered", || {
        world.control.service_fractions("orders").is_empty()
    });
    eprintln!("host counts {:?} after reports stopped", stopped.elapsed());
    // One Envoy per zone: a third of the demand each, by count, against 30 % of the servers.
    wait_until("zone-a keeps nine tenths", || {
        let local = shares_from(&world.measure(2000), "zone-a")["zone-a"];
        (local - 0.9).abs() < 0.04
    });
    world.reports.set_open(true);
    world.wait_for_demand(60);
}

/// zone-a keeps 60 % and spills 3 : 1.
fn worked_example(world: &World) {
    let load = burst(&world.envoys[0]);
    // One standard deviation is 0.4 points of the local share, 0.6 of the spill.
    let counts = measure(&world.backends, &load, 15_000);
    assert_eq!(load.failed(), 0);
    let shares = shares_from(&counts, "zone-a");
    eprintln!("the worked example: {shares:.4?}");
    let local = shares["zone-a"];
    assert!((local - 0.6).abs() < 0.02, "{shares:?}");
    let spilled = shares["zone-b"] / (1.0 - local);
    assert!((spilled - 0.75).abs() < 0.04, "{shares:?}");
}

/// Prints how long it takes from the moment the control plane shows new fractions until an Envoy
/// has rebuilt its routing.
fn time_to_effect(world: &World) {
    let stat = "cluster.orders.lb_recalculate_zone_structures";
    let envoy = &world.envoys[0];
    let before = envoy.stat(stat).unwrap();
    let fractions = world.control.fleet_fractions();
    // The next material change: half of the way back to host counts.
    world
        .control
        .edit(&world.config("delivery: FLEET_WEIGHTS\n  ramp: 50", ""));
    let shown = wait_for("other fractions are in force", || {
        let changed: BTreeMap<_, _> = world.control.fleet_fractions();
        (changed != fractions).then(Instant::now)
    });
    let effective = wait_for("an Envoy has rebuilt its routing", || {
        (envoy.stat(stat)? > before).then(Instant::now)
    });
    let took = effective.saturating_duration_since(shown);
    eprintln!("effective {took:?} after the push (polled every 20 ms)");
    if took > Duration::from_millis(100) {
        eprintln!("that is more than the 100 ms aimed at; is the machine busy?");
    }
    world
        .control
        .edit(&world.config("delivery: FLEET_WEIGHTS", ""));
}
