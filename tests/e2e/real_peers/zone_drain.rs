//! A zone is drained and returned under load, by the command line: no request fails, the zone is
//! empty, and the others are as full as the control plane has computed.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use plimsoll_testing::http::get;
use plimsoll_testing::plimsoll;
use serde_json::{Value, json};

use crate::support::backends::{Backends, Counts};
use crate::support::control::{Control, bootstrap};
use crate::support::envoy::{CURRENT, Envoy, ingress};
use crate::support::fleet::measure;
use crate::support::load::{Load, Source};
use crate::support::proxy::{Proxy, steered};
use crate::support::{scratch, wait_to_see, wait_until};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Six sources of one request per tick: 216 requests per second, fewer on a busy machine.
const TICK: Duration = Duration::from_micros(27_777);
/// Capacity of a host so that twelve of them are half full: 216 ÷ 12 ÷ 0.5.
const CAPACITY: u64 = 36;

fn config(backends: &Backends) -> String {
    format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 2s, heartbeat: 2s}}
evacuation: {{return_time: 10s}}
services:
- cluster: {{name: orders, connect_timeout: 5s}}
  capacity: {{requests_per_second: {CAPACITY}}}
  endpoints:
{}",
        backends.endpoints()
    )
}

fn envoy(directory: &Path, zone: &str, control: &Control) -> Envoy {
    let address = control.xds.to_string();
    let mut args = vec!["envoy", "--zone", zone, "--region", "r1", "--fleet", "edge"];
    args.extend(["--control", &address, "--admin-port", "0"]);
    let mut bootstrap = bootstrap(&args);
    bootstrap["static_resources"]["listeners"] = json!([ingress()]);
    let directory = directory.join("edge");
    std::fs::create_dir_all(&directory).unwrap();
    Envoy::start_with(&directory, zone, CURRENT, &bootstrap)
}

fn zone(control: &Control, arguments: &[&str]) -> Output {
    let mut command = Command::new(plimsoll());
    command.arg("zone").args(arguments);
    command.arg("--address").arg(control.admin.to_string());
    command.output().unwrap()
}

/// Requests that a zone serves.
fn served(counts: &Counts, zone: &str) -> u64 {
    let own = counts.iter().filter(|((_, to), _)| to == zone);
    own.map(|(_, count)| count).sum()
}

#[test]
fn a_zone_is_drained_and_returned_without_a_failed_request() {
    let directory = scratch("zone-drain");
    let backends = Backends::start(&ZONES.map(|zone| (zone, 4)));
    let control = Control::start(&directory, &config(&backends));
    let envoys = ZONES.map(|zone| envoy(&directory, zone, &control));
    let proxies = ZONES.map(|zone| {
        let file = steered(zone, control.xds);
        (
            zone,
            Proxy::start(&directory, &format!("proxy-{zone}"), &file),
        )
    });
    let mut sources: Vec<Source> = Vec::new();
    for envoy in &envoys {
        wait_until("the Envoy serves", || get(envoy.listener, "/").is_some());
        sources.push(Source {
            to: envoy.listener,
            from: envoy.zone.clone(),
            per_tick: 1,
        });
    }
    for (zone, proxy) in &proxies {
        let to = proxy.listener("ingress");
        wait_until("the proxy serves", || get(to, "/").is_some());
        sources.push(Source {
            to,
            from: (*zone).to_owned(),
            per_tick: 1,
        });
    }
    let load = Load::start(&sources, TICK);
    let losses = || control.page("zone-loss")["services"][0].clone();
    wait_to_see("demand is known", losses, |service| {
        service["demand_requests_per_second"].as_f64() > Some(100.0)
    });

    // What is said first is what happens: two thirds of the capacity are left.
    let said = zone(&control, &["drain", "zone-b", "--dry-run", "--json"]);
    assert!(said.status.success(), "{said:?}");
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["order"], Value::Null);
    assert_eq!(said["allowed_percent"], 100, "{said:#}");
    let listed = || control.page("zones")["zones"].clone();
    assert!(
        listed()
            .as_array()
            .unwrap()
            .iter()
            .all(|zone| zone["state"] == "in_service")
    );

    let began = Instant::now();
    let drain = ["drain", "zone-b", "--reason", "a test", "--step", "3s"];
    let drained = zone(&control, &drain);
    assert!(drained.status.success(), "{drained:?}");
    let none = || served(&measure(&backends, &load, 200), "zone-b");
    wait_to_see("zone-b gets no request", none, |served| *served == 0);
    println!(
        "zone-b got its last request after at most {:?}",
        began.elapsed()
    );
    let again = zone(&control, &drain);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let counts = measure(&backends, &load, 2000);
    let share = |zone: &str| served(&counts, zone) as f64 / 2000.0;
    // Each serves half, with a standard deviation of 0.011: 0.06 is five of them.
    for zone in ["zone-a", "zone-c"] {
        assert!((share(zone) - 0.5).abs() < 0.06, "{counts:?}");
    }
    let states = || {
        listed()
            .as_array()
            .unwrap()
            .iter()
            .map(|zone| zone["state"].clone())
            .collect::<Vec<_>>()
    };
    assert!(states().contains(&json!("out")), "{:?}", listed());

    let returned = zone(&control, &["return", "zone-b"]);
    assert!(returned.status.success(), "{returned:?}");
    wait_to_see("all zones are in service", states, |states| {
        states.iter().all(|state| state == "in_service")
    });
    let part = || served(&measure(&backends, &load, 1000), "zone-b");
    wait_to_see("zone-b serves its third", part, |part| {
        (250..420).contains(part)
    });
    assert_eq!(load.failed(), 0, "no request failed");
}
