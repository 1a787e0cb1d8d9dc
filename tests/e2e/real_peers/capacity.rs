//! What hosts can serve, learned, and how full their zones get, live: three stock Envoys or three
//! of our proxies, twelve servers that report their utilization, demand of 60/20/20.
//!
//! `make test` asserts limits that separate right from wrong, whatever else the machine does;
//! `make bench-loop` asserts what we promise, and more cases.

use std::time::Duration;

use crate::support::closed_loop::{ClosedLoop, Policy, ServiceSettings, Setup};
use crate::support::orca_backends::{LARGE, LARGE_UNEQUAL, UNEQUAL, UNIFORM};
use crate::support::{asserts_promises, wait_to_see};

/// Share of the requests that arrive in the first zone, and of the capacity of each.
const FIRST: f64 = 0.6;
const CAPACITY: f64 = 1.0 / 3.0;
/// A tenth of the requests per second at utilization 1, of servers of the size that `loop_quality`
/// counts with.
const TENTH: u32 = 36;
/// Servers and demand are five times as large where five seconds must show more than chance.
const SCALE: u32 = 5;
const TARGET: f64 = 0.8;

const LEARNED: ServiceSettings = ServiceSettings {
    json: r#"{"capacity": {"learned": {}}}"#,
    is_in_envoys: true,
    servers: UNEQUAL,
};
const WATERFALL: ServiceSettings = ServiceSettings {
    json: r#"{"objective": {"waterfall": {"target_utilization": 0.8}},
              "capacity": {"requests_per_second": CAPACITY}}"#,
    is_in_envoys: true,
    servers: UNIFORM,
};

fn setup(name: &'static str, mut settings: ServiceSettings, tenths: u32) -> Setup {
    let mut requests_per_second = TENTH * tenths;
    if asserts_promises() {
        requests_per_second *= SCALE;
        let is_unequal = settings.servers == UNEQUAL;
        settings.servers = if is_unequal { LARGE_UNEQUAL } else { LARGE };
    }
    Setup {
        name,
        policy: Policy::Service(settings),
        sampling: None,
        requests_per_second,
        meter: Duration::from_secs(1),
        expiration: None,
        is_out_of_band: false,
    }
}

/// Hosts of 0.5, 1 and 2 that nobody declared; counted alike, the weakest is at twice the mean.
fn learns(name: &'static str, settings: ServiceSettings) {
    let testbed = ClosedLoop::start(setup(name, settings, 6));
    let control = testbed.control.as_ref().unwrap();
    if !asserts_promises() {
        // A busy machine delays reports, and requests in bursts are no utilization. The weakest
        // host has 27 requests in five seconds, more or less one of each proxy.
        let busiest = || testbed.measure_busiest_host(10).0;
        wait_to_see("hosts are even", busiest, |busiest| *busiest < 1.5);
    } else {
        testbed.run_for(60);
        let mut quality = Vec::new();
        for demand in [[3, 1, 1], [1, 3, 1], [1, 1, 2], [3, 1, 1]] {
            testbed.set_demand(demand);
            quality.push(testbed.measure_busiest_host(20));
        }
        let average = quality.iter().map(|(average, _)| average).sum::<f64>() / 4.0;
        let peak = quality.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
        assert!(
            average <= 1.05 && peak <= 1.12,
            "{average} {peak} {quality:?}"
        );
    }
    let explained = control.page("explain?cluster=orders&region=r1&zone=zone-a");
    let notes = explained["notes"].to_string();
    assert!(notes.contains("learned of 12 of 12 hosts"), "{explained}");
}

#[test]
#[ignore = "hosts behind stock Envoys do not even out yet: the busiest is at 1.8 after a minute"]
fn stock_envoys_learn_what_hosts_can_serve() {
    learns("learned capacity in Envoys", LEARNED);
}

#[test]
fn proxies_learn_what_hosts_can_serve() {
    let settings = ServiceSettings {
        is_in_envoys: false,
        ..LEARNED
    };
    learns("learned capacity in proxies", settings);
}

/// Share of the requests that must leave the first zone at a mean utilization.
fn optimum(mean: f64) -> f64 {
    (FIRST - CAPACITY * TARGET.max(mean) / mean).max(0.0)
}

fn keeps_zones_at_the_target(settings: ServiceSettings, tenths: u32) {
    let mean = f64::from(tenths) / 10.0;
    let name = if settings.is_in_envoys {
        "waterfall in Envoys"
    } else {
        "waterfall in proxies"
    };
    let testbed = ClosedLoop::start(setup(name, settings, tenths));
    if !asserts_promises() {
        let needed = optimum(mean);
        let crossing = || testbed.measure(10).cross_zone;
        wait_to_see("what crosses is what must", crossing, |crossing| {
            (*crossing - needed).abs() < 0.04
        });
        return;
    }
    testbed.run_for(30);
    let quality = testbed.measure(60);
    let away = (quality.cross_zone - optimum(mean)).abs();
    assert!(away <= 0.015, "{mean}: {away} {quality:?}");
    let highest = quality.highest_zone / f64::from(SCALE);
    assert!(
        highest <= TARGET.max(mean) + 0.03,
        "{mean}: {highest} {quality:?}"
    );
    assert_eq!(quality.oscillation, None, "{mean}: {quality:?}");
}

/// From 0.3, where nothing crosses, to 0.8, where the target is as if it were `LEVEL`. `make test`
/// runs one where part of the excess stays.
fn waterfall(settings: ServiceSettings) {
    if !asserts_promises() {
        return keeps_zones_at_the_target(settings, 6);
    }
    for tenths in 3..=8 {
        keeps_zones_at_the_target(settings, tenths);
    }
}

#[test]
fn a_waterfall_in_envoys_sends_away_what_must_be() {
    waterfall(WATERFALL);
}

#[test]
fn a_waterfall_in_proxies_sends_away_what_must_be() {
    waterfall(ServiceSettings {
        is_in_envoys: false,
        ..WATERFALL
    });
}
