//! A stock Envoy follows the load that axum and tonic backends report through the layer.
//!
//! `make test` installs Envoy; without it these tests fail with a message. Three zones of two hosts
//! each, Envoy in the first. The tests compare the shares of requests per zone.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![expect(clippy::print_stderr, reason = "figures for people")]

mod backends;
mod envoy;

use plimsoll_testing::tasks::wait_to_see;

use backends::{Fleet, Kind};
use envoy::{CLUSTERS, Envoy};

/// Requests per measurement: the standard deviation of a share is at most 1.1 points.
const LOOK: u32 = 2_000;
/// Nearly four standard deviations.
const TOLERANCE: f64 = 4.0;

/// Utilization of each zone, and the expected shares in percent: of the free headroom
/// (`load_aware_locality`), and of requests per second over utilization.
struct Phase {
    utilization: [f64; 3],
    load_aware_locality: [f64; 3],
    client_side_weighted_round_robin: [f64; 3],
}

const PHASES: [Phase; 2] = [
    // The worked example: 30, 70 and 60 points of headroom.
    Phase {
        utilization: [0.7, 0.3, 0.4],
        load_aware_locality: [18.75, 43.75, 37.5],
        client_side_weighted_round_robin: [19.67, 45.90, 34.43],
    },
    // The shares must follow a change of the load.
    Phase {
        utilization: [0.9, 0.8, 0.2],
        load_aware_locality: [9.09, 18.18, 72.73],
        client_side_weighted_round_robin: [15.09, 16.98, 67.92],
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn real_envoy_follows_axum() {
    follows(Kind::Axum).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_envoy_follows_tonic() {
    follows(Kind::Tonic).await;
}

async fn follows(kind: Kind) {
    let fleet = Fleet::start(kind).await;
    let mut envoy = Envoy::start(&format!("{kind:?}"), &fleet.addresses());
    for phase in PHASES {
        fleet.set_utilization(phase.utilization);
        for cluster in CLUSTERS {
            let expected = if cluster.starts_with("load_aware_locality") {
                phase.load_aware_locality
            } else {
                phase.client_side_weighted_round_robin
            };
            settles(&mut envoy, kind, cluster, expected).await;
        }
    }
    let out_of_band = envoy.stat("cluster.load_aware_locality_oob.lb_orca_oob.reports_received");
    assert!(out_of_band.await > 0);
}

/// Sends traffic until the shares per zone are as expected.
async fn settles(envoy: &mut Envoy, kind: Kind, cluster: &str, expected: [f64; 3]) {
    let what = format!("{kind:?} {cluster} has {expected:.1?}");
    let shares = async || {
        let share = |count: u32| f64::from(count) * 100.0 / f64::from(LOOK);
        envoy.send(kind, cluster, LOOK).await.map(share)
    };
    let shares = wait_to_see(&what, shares, |seen| {
        let near = |(share, expected): (&f64, f64)| (share - expected).abs() <= TOLERANCE;
        seen.iter().zip(expected).all(near)
    });
    eprintln!("{:.1?}, {what}", shares.await);
}
