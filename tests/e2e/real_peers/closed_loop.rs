//! Closed control loop with real processes: three proxies, servers in three zones that report their
//! utilization, and demand of 60/20/20 at a mean utilization of 0.6. docs/proxy.md has the results.
//!
//! `make test` asserts limits that separate right from wrong, whatever else the machine does;
//! `make bench-loop` asserts what we promise.

use std::time::Duration;

use crate::support::closed_loop::{ClosedLoop, DataPlane, Policy, Setup};
use crate::support::loop_quality::Quality;
use crate::support::proxy::Proxy;
use crate::support::{asserts_promises, wait_to_see, wait_until};
use serde_json::Value;

/// Minimum share of requests that must leave their zone, and the share of probes.
const NEEDED: f64 = 0.6 - 1.0 / 3.0;
const PROBE: f64 = 0.03;
/// Requests of each zone per tick after a step in demand, and the time to observe.
const STEP: [u64; 3] = [1, 3, 1];
const STEP_SECONDS: usize = 35;
const MODULE_STEP_SECONDS: usize = 22;

/// How far measured figures may be above the ideal.
struct Limits {
    /// Busiest zone in windows of five seconds, average and maximum: of data planes that know only
    /// load reports, and of those inside Envoys.
    five: (f64, f64),
    five_in_envoys: (f64, f64),
    /// Load of a zone and of a host over the whole time.
    zone: f64,
    host: f64,
    /// Share of requests that leave their zone.
    crossing: f64,
    /// Seconds that zones are even sooner with feed-forward.
    sooner: f64,
    /// How much the busiest zone is above that of Envoy's own policy, at most.
    above_envoy: f64,
}

/// What `make bench-loop` asserts on a machine that does nothing else.
const PROMISED: Limits = Limits {
    five: (1.06, 1.12),
    five_in_envoys: (1.03, 1.06),
    zone: 0.05,
    host: 0.10,
    crossing: 0.02,
    sooner: 2.0,
    above_envoy: -0.05,
};

/// Wrong are 1.24 and 1.46 in windows (Envoy's own policy), a zone of 1.80 (all stay local), a host
/// of 2.33 (hosts count equally), 0.40 more traffic between zones (host counts). If all requests
/// were drawn independently, which `LOW_DISCREPANCY` makes much more even, a zone in a window of
/// 1,080 requests would have a deviation of 0.043, in twenty seconds of 0.022, a host in forty of
/// 0.05: each limit is at least 5.5 of them away, which chance exceeds once in ten million runs.
///
/// A busy machine stops processes. Without the proxy of zone-a, which sends 0.27 of all requests
/// to the others, for a part `f` of a window, their load is (1 - 0.4 f) / (1 - 0.6 f): the limits
/// allow 2.2 s in every window of five seconds, and 3.7 s in one, on top of 1.03.
const SEPARATING: Limits = Limits {
    five: (1.15, 1.30),
    five_in_envoys: (1.15, 1.30),
    zone: 0.12,
    host: 0.30,
    crossing: 0.06,
    // The simulator settles in 9 s instead of 17 s (docs/simulator.md): chance must delay one by
    // 8 s. Without an effect the test fails every other time.
    sooner: 0.0,
    // Not stricter than the limit of windows, unless Envoy's policy is below 1.10; it is at 1.24.
    above_envoy: 0.05,
};

fn limits() -> Limits {
    if asserts_promises() {
        PROMISED
    } else {
        SEPARATING
    }
}

const CONVERGENT: Setup = Setup {
    name: "CONVERGENT",
    policy: Policy::LoadAware("CONVERGENT"),
    sampling: None,
    requests_per_second: 216,
    meter: Duration::from_secs(1),
    expiration: None,
    is_out_of_band: false,
};
const HEADROOM: Setup = Setup {
    name: "HEADROOM",
    policy: Policy::LoadAware("HEADROOM"),
    ..CONVERGENT
};
const MEASURED: Setup = Setup {
    name: "LRS_REPORTED_RATE",
    policy: Policy::LrsReportedRate,
    ..CONVERGENT
};

const OVER_ORCA: Setup = Setup {
    name: "LRS_REPORTED_RATE over client_side_weighted_round_robin",
    policy: Policy::LrsOverOrca(DataPlane::Proxy),
    ..CONVERGENT
};
const OVER_ORCA_IN_CLIENTS: Setup = Setup {
    name: "the same in the embedded client",
    policy: Policy::LrsOverOrca(DataPlane::Client("real_peers::clients::client_process")),
    ..CONVERGENT
};

#[test]
fn convergent_evens_out_zones_without_oscillation() {
    let testbed = ClosedLoop::start(CONVERGENT);
    testbed.run_for(30);
    assert_even(&testbed.measure(60), limits().five);
}

/// CONVERGENT inside three Envoys at a mean utilization of 0.6 and 0.8, and Envoy's own policy in
/// the same run.
#[test]
fn the_module_evens_out_zones_inside_envoys() {
    let own = ClosedLoop::start(Setup {
        name: "Envoy's load_aware_locality",
        policy: Policy::Envoy,
        ..CONVERGENT
    });
    own.run_for(10);
    let envoy = own.measure(15);
    drop(own);
    let module = Setup {
        name: "CONVERGENT in Envoy's module",
        policy: Policy::Module("CONVERGENT"),
        ..CONVERGENT
    };
    for requests_per_second in [216, 288] {
        let testbed = ClosedLoop::start(Setup {
            requests_per_second,
            ..module
        });
        testbed.run_for(25);
        let quality = testbed.measure(25);
        assert_even(&quality, limits().five_in_envoys);
        assert!(
            quality.five.0 < envoy.five.0 + limits().above_envoy,
            "{quality:?} {envoy:?}"
        );
    }
}

/// Envoys whose bootstrap names only the module and the control plane, which sends the cluster with
/// the policy, and demand to the module.
#[test]
fn the_control_plane_steers_modules_inside_envoys() {
    assert_steered_with_the_module(Policy::ModuleLrs, "lrs_response");
}

/// The same Envoys follow locality weights by their own policy.
#[test]
fn locality_weights_even_out_zones_of_envoys_with_the_module() {
    assert_steered_with_the_module(Policy::ModuleWeights, "locality_weights");
}

fn assert_steered_with_the_module(policy: Policy, form: &'static str) {
    let testbed = ClosedLoop::start(Setup {
        name: form,
        policy,
        ..CONVERGENT
    });
    let control = testbed.control.as_ref().unwrap();
    wait_until("the control plane knows the demand", || {
        let fractions = control.service_fractions("orders");
        let share = fractions.get("zone-a").copied().unwrap_or_default();
        share.abs_diff(6000) <= 60
    });
    control.wait_for_delivery("gateway-zone-a", form);
    control.wait_for_node("gateway-zone-a", "is known by its module", |node| {
        node["class"] == "envoy_module"
            && (policy != Policy::ModuleLrs || node["module_streams"] == 1)
    });
    let clusters = control.type_status("gateway-zone-a", "Cluster");
    assert!(clusters["nacked"].is_null(), "{clusters}");
    testbed.run_for(3);
    let quality = testbed.measure(20);
    assert_level(&quality);
}

#[test]
fn demand_feed_forward_speeds_up_modules() {
    let settling_time = |feed_forward: bool| {
        let testbed = ClosedLoop::start(Setup {
            name: if feed_forward {
                "CONVERGENT with feed-forward in Envoy's module"
            } else {
                "CONVERGENT without feed-forward in Envoy's module"
            },
            policy: Policy::ModuleConvergent { feed_forward },
            ..CONVERGENT
        });
        let control = testbed.control.as_ref().unwrap();
        let delivery = if feed_forward {
            "feed_forward"
        } else {
            "as_configured"
        };
        control.wait_for_delivery("gateway-zone-a", delivery);
        testbed.run_for(20);
        testbed.step(STEP, MODULE_STEP_SECONDS)
    };
    let with = settling_time(true).expect("zones settle");
    // If zones do not settle within the time, count all of it.
    let without = settling_time(false).unwrap_or(MODULE_STEP_SECONDS as f64);
    assert!(
        with + limits().sooner <= without,
        "{with} s with feed-forward, {without} s without"
    );
}

#[test]
fn headroom_oscillates_or_locks_out_like_envoy() {
    let testbed = ClosedLoop::start(HEADROOM);
    testbed.run_for(20);
    let quality = testbed.measure(40);
    if !asserts_promises() {
        assert_uneven(&quality);
    } else if quality.cross_zone > 0.8 {
        assert_locked_out(&quality);
    } else {
        assert_oscillates(&quality);
    }
}

#[test]
fn measured_demand_evens_out_zones() {
    let testbed = ClosedLoop::start(MEASURED);
    wait_for_demand(&testbed);
    let quality = testbed.measure(40);
    assert_level(&quality);
}

#[test]
fn demand_feed_forward_speeds_up_convergent() {
    let settling_time = |feed_forward: bool| {
        let testbed = ClosedLoop::start(Setup {
            name: if feed_forward {
                "CONVERGENT with feed-forward"
            } else {
                "CONVERGENT without feed-forward"
            },
            policy: Policy::Convergent { feed_forward },
            ..CONVERGENT
        });
        let status = if feed_forward {
            "feed_forward"
        } else {
            "unused"
        };
        wait_until("fractions have the expected status", || {
            let explain = |proxy: &Proxy| proxy.explain("orders");
            testbed
                .proxies
                .iter()
                .map(explain)
                .all(|page| page["fractions"]["status"] == status)
        });
        testbed.run_for(25);
        testbed.step(STEP, STEP_SECONDS)
    };
    let with = settling_time(true).expect("zones settle");
    // If zones do not settle within the time, count all of it.
    let without = settling_time(false).unwrap_or(STEP_SECONDS as f64);
    assert!(
        with + limits().sooner <= without,
        "{with} s with feed-forward, {without} s without"
    );
}

#[test]
fn proxies_even_out_zones_by_demand_and_hosts_by_orca() {
    assert_even_hosts(OVER_ORCA);
}

#[test]
fn embedded_clients_even_out_zones_by_demand_and_hosts_by_orca() {
    assert_even_hosts(OVER_ORCA_IN_CLIENTS);
}

/// Every zone has hosts of relative size 1, 2 and 4, so host counts are right for zones but wrong
/// for hosts.
fn assert_even_hosts(setup: Setup) {
    let testbed = ClosedLoop::start(setup);
    wait_for_demand(&testbed);
    for explained in testbed.explanations() {
        assert_eq!(explained["locality_basis"], "LRS_REPORTED_RATE");
        let policy = &explained["endpoint_policy"];
        assert_eq!(policy, "client_side_weighted_round_robin");
    }
    let control = testbed.control.as_ref().unwrap();
    let explained = || control.page("explain?cluster=orders&zone=zone-a");
    wait_to_see(
        "the page explains demand that is fresh",
        explained,
        |page| {
            page["locality_basis"] == "LRS_REPORTED_RATE" && page["fractions"]["status"] == "fresh"
        },
    );
    // Weights are used after a host has reported for blackout_period (10 s).
    testbed.run_for(15);
    let (quality, hosts) = testbed.measure_hosts(40);
    assert_level(&quality);
    for factor in hosts.iter().flatten() {
        assert!((factor - 1.0).abs() <= limits().host, "{hosts:.3?}");
    }
}

/// Prints the table of docs/proxy.md; each row is measured for two minutes after thirty seconds.
#[test]
#[ignore = "takes twenty minutes; prints what docs/proxy.md shows"]
fn every_row_of_the_table() {
    let slow_meters = Duration::from_secs(10);
    let rows = [
        CONVERGENT,
        Setup {
            name: "CONVERGENT, independent draws",
            sampling: Some("RANDOM"),
            ..CONVERGENT
        },
        Setup {
            name: "CONVERGENT, meters of 10 s",
            meter: slow_meters,
            ..CONVERGENT
        },
        Setup {
            name: "CONVERGENT, mean 0.8",
            requests_per_second: 288,
            ..CONVERGENT
        },
        HEADROOM,
        Setup {
            name: "Envoy 1.40",
            policy: Policy::Envoy,
            ..HEADROOM
        },
        Setup {
            name: "CONVERGENT in the module inside Envoy 1.40",
            policy: Policy::Module("CONVERGENT"),
            ..CONVERGENT
        },
        Setup {
            name: "CONVERGENT in the module inside Envoy 1.40, mean 0.8",
            policy: Policy::Module("CONVERGENT"),
            requests_per_second: 288,
            ..CONVERGENT
        },
    ];
    for setup in rows {
        let testbed = ClosedLoop::start(setup);
        testbed.run_for(30);
        testbed.measure(120);
    }
    let testbed = ClosedLoop::start(MEASURED);
    wait_for_demand(&testbed);
    testbed.measure(120);
}

/// Asserts even zones over the whole time, minimal traffic between zones, and no oscillation.
fn assert_level(quality: &Quality) {
    let limits = limits();
    for factor in quality.load_factors {
        assert!((factor - 1.0).abs() <= limits.zone, "{quality:?}");
    }
    assert_steady(quality, NEEDED + limits.crossing);
}

/// Asserts even zones in windows of five seconds, minimal traffic between zones including probes,
/// and no oscillation.
fn assert_even(quality: &Quality, five: (f64, f64)) {
    assert!(quality.five.0 <= five.0, "{quality:?}");
    assert!(quality.five.1 <= five.1, "{quality:?}");
    assert_steady(quality, NEEDED + PROBE + limits().crossing);
}

fn assert_steady(quality: &Quality, cross_zone: f64) {
    assert!(quality.oscillation.is_none(), "{quality:?}");
    assert!(quality.cross_zone <= cross_zone, "{quality:?}");
}

/// Asserts that zones are not even, as they are in Envoy 1.40: windows of five seconds are 1.24
/// above the mean when it oscillates, and 1.34 when it is locked out. Other controllers reach 1.03,
/// and chance adds less than 0.03 to an average of 36 windows.
fn assert_uneven(quality: &Quality) {
    assert!(quality.five.0 >= 1.12, "{quality:?}");
}

/// Asserts the oscillation of Envoy 1.40: 1.24 and 1.46 over five seconds, a peak of 1.81 over one,
/// a period of 2.5 s, and less traffic between zones than needed.
fn assert_oscillates(quality: &Quality) {
    let period = quality.oscillation.unwrap_or_else(|| panic!("{quality:?}"));
    assert!((1.5..=6.0).contains(&period), "{quality:?}");
    assert!((1.10..=1.45).contains(&quality.five.0), "{quality:?}");
    assert!((1.45..=2.10).contains(&quality.one.1), "{quality:?}");
    assert!(quality.first_zone.0 < 0.45, "{quality:?}");
    assert!(quality.cross_zone < NEEDED, "{quality:?}");
}

/// Asserts the lockout after some cold starts of Envoy 1.40, which the test cannot predict: at the
/// first peak no request stays local, so the own zone does not report any more, and 89 to 93 % of
/// the requests cross zones until its last report expires.
fn assert_locked_out(quality: &Quality) {
    assert!((0.85..=0.97).contains(&quality.cross_zone), "{quality:?}");
    assert!(quality.load_factors[0] < 0.8, "{quality:?}");
}

/// Waits until every data plane knows the demand of the first zone to within 0.4 percentage points.
fn wait_for_demand(testbed: &ClosedLoop) {
    let share = |explained: &Value| {
        let localities = explained["localities"].as_array();
        let mut all = localities.into_iter().flatten();
        let own = all.find(|locality| locality["zone"] == "zone-a");
        own.and_then(|own| own["local_bp"].as_u64())
    };
    let shares = || -> Vec<_> { testbed.explanations().iter().map(share).collect() };
    wait_to_see("data planes use measured demand", shares, |seen| {
        seen.iter()
            .all(|share| share.is_some_and(|share| share.abs_diff(6000) <= 40))
    });
}
