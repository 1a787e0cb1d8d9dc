//! The closed loop, alive: three proxies, servers in three zones that report their utilization, and
//! demand of 60/20/20 at a mean utilization of 0.6. What came out is in docs/proxy.md.

use std::time::Duration;

use crate::support::closed_loop::{ClosedLoop, DataPlane, Policy, Setup};
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

#[test]
fn measured_demand_levels_zones_and_weights_from_orca_their_hosts() {
    assert_hosts_are_level(OVER_ORCA);
}

#[test]
fn embedded_clients_level_zones_by_demand_and_hosts_by_weights_from_orca() {
    assert_hosts_are_level(OVER_ORCA_IN_CLIENTS);
}

/// Zones have hosts of half, once and twice a size each, so host counts are right about zones and
/// wrong about hosts.
fn assert_hosts_are_level(setup: Setup) {
    let world = ClosedLoop::start(setup);
    wait_for_demand(&world);
    for explained in world.explanations() {
        assert_eq!(explained["locality_basis"], "LRS_REPORTED_RATE");
        let policy = &explained["endpoint_policy"];
        assert_eq!(policy, "client_side_weighted_round_robin");
    }
    let control = world.control.as_ref().unwrap();
    let explained = control.page("explain?cluster=orders&zone=zone-a");
    assert_eq!(explained["locality_basis"], "LRS_REPORTED_RATE");
    assert_eq!(explained["fractions"]["status"], "fresh");
    // Hosts must have reported for blackout_period (10 s) before their weights count.
    world.pass(15);
    let (quality, hosts) = world.judge_hosts(40);
    for factor in quality.load_factors {
        assert!((factor - 1.0).abs() <= 0.05, "{quality:?}");
    }
    for factor in hosts.iter().flatten() {
        assert!((factor - 1.0).abs() <= 0.10, "{hosts:.3?}");
    }
    assert!(quality.swing.is_none(), "{quality:?}");
    assert!(quality.cross_zone <= NEEDED + 0.02, "{quality:?}");
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

/// Waits until every data plane knows the demand of the first zone to within 0.4 points.
fn wait_for_demand(world: &ClosedLoop) {
    wait_until("proxies go by measured demand", || {
        world.explanations().iter().all(|explained| {
            let localities = explained["localities"].as_array();
            let mut all = localities.into_iter().flatten();
            let own = all.find(|locality| locality["zone"] == "zone-a");
            let share = own.and_then(|own| own["local_bp"].as_u64());
            share.is_some_and(|share| share.abs_diff(6000) <= 40)
        })
    });
}
