//! Services with a plan of their own, live: a waterfall keeps requests in their zone that LEVEL
//! sends away, and two fleets with opposite demand exchange nothing.

use std::path::Path;
use std::time::Duration;

use plimsoll_testing::http::get;
use serde_json::json;

use crate::support::backends::{Backends, Counts};
use crate::support::control::{Control, bootstrap};
use crate::support::envoy::{CURRENT, Envoy, ingress};
use crate::support::fleet::measure;
use crate::support::load::{Load, Source};
use crate::support::{scratch, wait_to_see, wait_until};

/// At most 20 requests per tick are 800 per second: fewer on a busy machine.
const TICK: Duration = Duration::from_millis(25);
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

fn config(backends: &Backends, service: &str) -> String {
    format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 2s, heartbeat: 2s}}
services:
- cluster: {{name: orders, connect_timeout: 5s}}
  {service}
  endpoints:
{}",
        backends.endpoints()
    )
}

/// Starts an Envoy of a fleet in a zone.
fn envoy(directory: &Path, fleet: &str, zone: &str, control: &Control) -> Envoy {
    let address = control.xds.to_string();
    let mut args = vec!["envoy", "--zone", zone, "--region", "r1", "--fleet", fleet];
    args.extend(["--control", &address, "--admin-port", "0"]);
    let mut bootstrap = bootstrap(&args);
    bootstrap["static_resources"]["listeners"] = json!([ingress()]);
    let directory = directory.join(fleet);
    std::fs::create_dir_all(&directory).unwrap();
    let envoy = Envoy::start_with(&directory, zone, CURRENT, &bootstrap);
    wait_until("the Envoy serves", || get(envoy.listener, "/").is_some());
    envoy
}

fn load(envoys: &[Envoy], per_tick: &[u64]) -> Load {
    let source = |(envoy, per_tick): (&Envoy, &u64)| Source {
        to: envoy.listener,
        from: envoy.zone.clone(),
        per_tick: *per_tick,
    };
    let sources: Vec<Source> = envoys.iter().zip(per_tick).map(source).collect();
    Load::start(&sources, TICK)
}

/// Share of the requests that left their zone.
fn crossing(counts: &Counts) -> f64 {
    let all: u64 = counts.values().sum();
    let crossed = counts.iter().filter(|((from, to), _)| from != to);
    crossed.map(|(_, count)| count).sum::<u64>() as f64 / all as f64
}

/// Demand 60/20/20 over three zones of four servers, at a mean utilization of at most 0.4.
#[test]
fn a_waterfall_keeps_requests_that_level_sends_away() {
    let directory = scratch("waterfall");
    let backends = Backends::start(&ZONES.map(|zone| (zone, 4)));
    let level = config(&backends, "mode: ENFORCE");
    let control = Control::start(&directory, &level);
    let envoys = ZONES.map(|zone| envoy(&directory, "gateway", zone, &control));
    let load = load(&envoys, &[12, 4, 4]);
    let share = || crossing(&measure(&backends, &load, 2000));
    // 0.267, with a standard deviation of 0.010: four of them either way, in any of the attempts.
    wait_until("LEVEL sends 26.7 % away", || (share() - 0.267).abs() < 0.04);

    let waterfall = "objective: {waterfall: {target_utilization: 0.8}}
  capacity: {requests_per_second: 167}";
    control.edit(&config(&backends, waterfall));
    // Zone a is at 0.72 at most, and every request stays: there is no chance in it.
    wait_until("nothing crosses", || share() < 0.001);
    let line = || control.page("load")["load_lines"][0].clone();
    wait_to_see("the page says that zone a keeps all", line, |line| {
        let planned = line["zones"][0]["planned"]["text"].as_str();
        line["target_utilization"] == 0.8 && planned.is_some_and(|text| text.contains("keeps all"))
    });

    // Half of the capacity: zone a is at 1.44, and the target holds as demand forces it.
    control.edit(&config(&backends, &waterfall.replace("167", "84")));
    wait_until("zone a spills", || (0.15..0.31).contains(&share()));
    assert_eq!(load.failed(), 0);
}

/// Planned one by one, each fleet would send 30 % of its requests across.
#[test]
fn two_fleets_with_opposite_demand_exchange_nothing() {
    let directory = scratch("two-fleets");
    let zones = [ZONES[0], ZONES[1]];
    let backends = Backends::start(&zones.map(|zone| (zone, 4)));
    let control = Control::start(&directory, &config(&backends, "mode: ENFORCE"));
    let envoys =
        ["one", "two"].map(|fleet| zones.map(|zone| envoy(&directory, fleet, zone, &control)));
    let envoys: Vec<Envoy> = envoys.into_iter().flatten().collect();
    let load = load(&envoys, &[8, 2, 2, 8]);
    // Demand is equal in both zones but for what the reports of different moments differ.
    wait_until("at most 1 % crosses", || {
        crossing(&measure(&backends, &load, 2000)) <= 0.01
    });
    assert_eq!(load.failed(), 0);
}
