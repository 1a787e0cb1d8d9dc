//! Measured demand is what clients offer, also while hosts refuse connections or never answer.
//!
//! What each data plane reports in more situations is in `vectors/demand_under_failure.json`.

use std::collections::BTreeMap;

use crate::support::backends::Death;
use crate::support::control::Control;
use crate::support::fleet::{Testbed, TestbedSpec, ZONES};
use crate::support::grpc::Peer;
use crate::support::{scratch, wait_until};

/// Requests that fail before demand is compared: 14 s, almost three time constants of the
/// smoothing.
const FAILED: u64 = 4000;
/// Least share of the demand that the zone without hosts may seem to have meanwhile, instead of
/// 35 %. Sources run in lockstep, so that only a stall of single reports moves the share: it would
/// have to hide 40 % of a smoothed rate. Uncounted, the demand of the zone falls to 2 %.
const LEAST: f64 = 0.2;

#[test]
fn requests_that_envoys_cannot_connect_are_demand() {
    stays_as_offered("demand-refused", "1.40.0");
}

#[test]
fn requests_that_older_envoys_cannot_connect_are_demand() {
    stays_as_offered("demand-refused-1.39", "1.39.3");
}

fn stays_as_offered(name: &'static str, version: &'static str) {
    let testbed = Testbed::start(&TestbedSpec {
        name,
        version,
        ..Default::default()
    });
    testbed.wait_for_fleet_weights(100);
    testbed.backends.kill("zone-b", Death::Refuse);
    let failed = testbed.load.failed();
    let mut least = f64::INFINITY;
    wait_until("requests to zone-b have failed for a while", || {
        least = least.min(share(&demand(&testbed.control), "zone-b"));
        testbed.load.failed() >= failed + FAILED
    });
    eprintln!("{name}: the least share of zone-b was {least:.3}");
    assert!(least >= LEAST);
    wait_until("demand is what is offered", || {
        let demand = demand(&testbed.control);
        let near = |(zone, _, expected, _): &(&str, u64, u64, usize)| {
            (share(&demand, zone) - *expected as f64 / 1e4).abs() < 0.03
        };
        ZONES.iter().all(near)
    });
}

/// The hosts of zone-a accept calls and never answer; one more refuses connections.
#[test]
fn calls_that_exceed_their_deadline_are_demand() {
    let directory = scratch("demand-deadline");
    let (_servers, ports) = Peer::serve(&directory, &["zone-b"]);
    let (_hanging, hang) = Peer::serve_hanging(&directory, 1);
    let config = format!(
        "load_reporting: {{interval: 1s}}
demand: {{smoothing_time_constant: 3s}}
services:
- cluster: {{name: orders}}
  endpoints:
  - locality: {{region: r1, zone: zone-a}}
    lb_endpoints: ['127.0.0.1:{}', '127.0.0.1:1']
  - locality: {{region: r1, zone: zone-b}}
    lb_endpoints: ['127.0.0.1:{}']
",
        hang[0], ports[0]
    );
    let control = Control::start(&directory, &config);
    let mut client = Peer::call_within(&directory, &control, "zone-a", 10, 0.05);
    let failed = |client: &mut Peer| client.counts().get("").copied().unwrap_or_default();
    wait_until("calls fail", || failed(&mut client) >= 60);
    // The client has one call at a time and catches up on late ones.
    wait_until("demand of 10 calls per second is measured", || {
        let demand = demand(&control).get("zone-a").copied();
        demand.is_some_and(|rate| rate > 6.0 && rate < 12.0)
    });
}

/// Returns the smoothed demand for `orders` in requests per second, by zone.
fn demand(control: &Control) -> BTreeMap<String, f64> {
    let page = control.page("fleets");
    let scopes = page["fleets"][0]["demand"].as_array().cloned();
    let mut scopes = scopes.unwrap_or_default().into_iter();
    let own = scopes.find(|scope| scope["cluster"] == "orders");
    let zones = own.and_then(|scope| scope["zones"].as_array().cloned());
    let zone = |zone: &serde_json::Value| {
        let name = zone["locality"]["zone"].as_str()?.to_owned();
        Some((name, zone["smoothed_requests_per_second"].as_f64()?))
    };
    let zones = zones.unwrap_or_default();
    zones.iter().filter_map(zone).collect()
}

fn share(demand: &BTreeMap<String, f64>, zone: &str) -> f64 {
    let total: f64 = demand.values().sum();
    demand.get(zone).copied().unwrap_or_default() / total
}
