//! The closed loop, alive: three proxies, twelve servers that report their utilization, and demand
//! of 60/20/20 at a mean utilization of 0.6. What came out is in docs/proxy.md.

use std::time::Duration;

use crate::support::closed_loop::{ClosedLoop, Policy, Setup};
use crate::support::loop_quality::Quality;
use crate::support::proxy::Proxy;
use crate::support::wait_until;

/// Least share that must leave its zone, and what proxies send elsewhere to look.
const NEEDED: f64 = 0.6 - 1.0 / 3.0;
const PROBE: f64 = 0.03;
/// Requests of each zone per tick after a step, and how long it is looked at.
const STEP: [u64; 3] = [1, 3, 1];
const STEP_SECONDS: usize = 35;

const CONVERGENT: Setup = Setup {
    name: "CONVERGENT",
    policy: Policy::LoadAware("CONVERGENT"),
    sampling: None,
    requests_per_second: 216,
    meter: Duration::from_secs(1),
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

#[test]
fn convergent_levels_zones_and_does_not_cycle() {
    let world = ClosedLoop::start(CONVERGENT);
    world.pass(30);
    assert_level(&world.judge(60));
}

#[test]
fn headroom_swings_or_locks_out_as_envoys_does() {
    let world = ClosedLoop::start(HEADROOM);
    world.pass(20);
    let quality = world.judge(40);
    if quality.cross_zone > 0.8 {
        assert_locked_out(&quality);
    } else {
        assert_swings(&quality);
    }
}

#[test]
fn measured_demand_levels_zones() {
    let world = ClosedLoop::start(MEASURED);
    wait_for_demand(&world);
    let quality = world.judge(40);
    for factor in quality.load_factors {
        assert!((factor - 1.0).abs() <= 0.05, "{quality:?}");
    }
    assert!(quality.swing.is_none(), "{quality:?}");
    assert!(quality.cross_zone <= NEEDED + 0.02, "{quality:?}");
}

#[test]
fn measured_demand_leads_a_step_of_convergent() {
    let settle = |led: bool| {
        let world = ClosedLoop::start(Setup {
            name: if led {
                "CONVERGENT, led"
            } else {
                "CONVERGENT, not led"
            },
            policy: Policy::Convergent { led },
            ..CONVERGENT
        });
        let status = if led { "feed_forward" } else { "unused" };
        wait_until("demand leads, or does not", || {
            let explain = |proxy: &Proxy| proxy.explain("orders");
            world
                .proxies
                .iter()
                .map(explain)
                .all(|page| page["fractions"]["status"] == status)
        });
        world.pass(25);
        world.step(STEP, STEP_SECONDS)
    };
    let led = settle(true).expect("zones are level again");
    // Never level within the time counts as the whole of it.
    let alone = settle(false).unwrap_or(STEP_SECONDS as f64);
    assert!(led + 2.0 <= alone, "{led} s led, {alone} s not led");
}

/// The table of docs/proxy.md, each row two minutes after thirty seconds.
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
    ];
    for setup in rows {
        let world = ClosedLoop::start(setup);
        world.pass(30);
        world.judge(120);
    }
    let world = ClosedLoop::start(MEASURED);
    wait_for_demand(&world);
    world.judge(120);
}

/// Every zone has its load, nothing is carried about for nothing, and it stays so.
fn assert_level(quality: &Quality) {
    assert!(quality.five.0 <= 1.06, "{quality:?}");
    assert!(quality.five.1 <= 1.12, "{quality:?}");
    assert!(quality.swing.is_none(), "{quality:?}");
    assert!(quality.cross_zone <= NEEDED + PROBE + 0.02, "{quality:?}");
}

/// Envoy 1.40 had 1.24 and 1.46 over five seconds, 1.81 at the peak of one, a period of 2.5 s, and
/// less traffic between zones than is needed.
fn assert_swings(quality: &Quality) {
    let period = quality.swing.unwrap_or_else(|| panic!("{quality:?}"));
    assert!((1.5..=6.0).contains(&period), "{quality:?}");
    assert!((1.10..=1.45).contains(&quality.five.0), "{quality:?}");
    assert!((1.45..=2.10).contains(&quality.one.1), "{quality:?}");
    assert!(quality.first_zone.0 < 0.45, "{quality:?}");
    assert!(quality.cross_zone < NEEDED, "{quality:?}");
}

/// Some cold starts of Envoy 1.40 end like this, and the test cannot choose: at the first peak
/// nothing stays local, no report of the own zone comes again, and 89 to 93 % cross zones until
/// what is known expires.
fn assert_locked_out(quality: &Quality) {
    assert!((0.85..=0.97).contains(&quality.cross_zone), "{quality:?}");
    assert!(quality.load_factors[0] < 0.8, "{quality:?}");
}

/// Waits until every proxy knows the demand of the first zone to within 0.4 points.
fn wait_for_demand(world: &ClosedLoop) {
    wait_until("proxies go by measured demand", || {
        world.proxies.iter().all(|proxy| {
            let explained = proxy.explain("orders");
            let localities = explained["localities"].as_array();
            let mut all = localities.into_iter().flatten();
            let own = all.find(|locality| locality["zone"] == "zone-a");
            let share = own.and_then(|own| own["local_bp"].as_u64());
            share.is_some_and(|share| share.abs_diff(6000) <= 40)
        })
    });
}
