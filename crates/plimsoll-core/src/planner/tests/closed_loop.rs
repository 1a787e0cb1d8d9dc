//! Closed loop: proxies route by plans, and their load reports come back.
//!
//! Three zones, ten proxies and ten upstream hosts (3/5/2), demand 50/35/15. Proxies route with the
//! engine's own zone-aware code. Keyed by the reporter, measuring is feed-forward: demand does not
//! depend on routing. Keyed by the destination, as in the sketch of seed `000…`, each measurement
//! is the outcome of the previous one (decision 0022). That keying exists in this file only.

use super::*;
use crate::counts::{ClassCounts, LocalityCounts};
use crate::locality_picking::demand::{Demand, FractionMap};
use crate::locality_picking::zone_aware::{regenerate, seen_from};
use crate::model::zone_aware::{LocalityBasis, ZoneAware, ZoneAwareParts};
use crate::planner::fractions::largest_remainder_f64;
use crate::units::BasisPoints;

const ZONES: [&str; 3] = ["a", "b", "c"];
const HOSTS: [u64; 3] = [3, 5, 2];
const CAPACITY: [f64; 3] = [0.3, 0.5, 0.2];
/// Requests per second that arrive at the proxies of each zone.
const DEMAND: [f64; 3] = [500.0, 350.0, 150.0];

fn hosts() -> HostSetCounts {
    let slot = |(name, healthy): (&str, u64)| LocalityCounts {
        locality: zone(name),
        all: healthy,
        healthy,
        healthy_weight: healthy,
        ..Default::default()
    };
    let flat = ClassCounts {
        all: 10,
        healthy: 10,
        ..Default::default()
    };
    HostSetCounts {
        localities: ZONES.into_iter().zip(HOSTS).map(slot).collect(),
        has_local_locality: false,
        flat,
        weights: flat,
    }
}

/// Returns requests per second from each zone (rows) to each zone (columns) under these fractions.
fn route(fractions: &FractionMap) -> [[f64; 3]; 3] {
    let config = ZoneAware::try_new(ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        dead_band_bp: Some(0),
        ..Default::default()
    });
    let (config, hosts) = (config.unwrap(), hosts());
    let demand = Demand::from_fractions(fractions, &hosts)
        .unwrap_or_else(|| Demand::from_host_counts(&hosts));
    let mut flows = [[0.0; 3]; 3];
    for (row, (own, issued)) in flows.iter_mut().zip(ZONES.into_iter().zip(DEMAND)) {
        let seen = seen_from(&zone(own), &hosts);
        let shares = regenerate(&config, &seen, &seen, &demand).expected_shares();
        for (slot, share) in seen.localities.iter().zip(shares.unwrap()) {
            let column = ZONES.iter().position(|name| slot.locality.zone() == *name);
            row[column.unwrap()] = issued * share;
        }
    }
    flows
}

/// Returns requests per second that arrive at each upstream zone.
fn served(flows: &[[f64; 3]; 3]) -> [f64; 3] {
    let mut served = [0.0; 3];
    for row in flows {
        served
            .iter_mut()
            .zip(row)
            .for_each(|(sum, flow)| *sum += flow);
    }
    served
}

fn fraction_map(rates: &[f64; 3]) -> FractionMap {
    let shares = largest_remainder_f64(rates, 10_000).unwrap();
    let entry = |(name, share)| (zone(name), BasisPoints::new(share, name).unwrap());
    ZONES.into_iter().zip(shares).map(entry).collect()
}

/// Simulates the sketch of seed `000…`: rates per destination, smoothed with `alpha` per round.
/// Returns the fraction of zone a after every round.
fn keyed_by_destination(alpha: f64, rounds: usize) -> Vec<u64> {
    let mut rates: Option<[f64; 3]> = None;
    let mut history = Vec::new();
    for _ in 0..rounds {
        let fractions = rates.as_ref().map(fraction_map).unwrap_or_default();
        let measured = served(&route(&fractions));
        let mut next = rates.unwrap_or(measured);
        for (rate, measured) in next.iter_mut().zip(measured) {
            *rate += alpha * (measured - *rate);
        }
        history.push(fraction_map(&next)[&zone("a")].get());
        rates = Some(next);
    }
    history
}

/// Returns the requests of one of a zone's proxies in one interval.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most a few thousand"
)]
fn requests(per_second: f64, proxies: u64) -> u64 {
    let proxies = f64::from(u32::try_from(proxies).unwrap());
    (per_second * INTERVAL.as_secs_f64() / proxies).round() as u64
}

/// Runs rounds of 10 s with the planner between reports and routing. Returns, for every round, the
/// fraction of zone a that proxies routed by and the rate that each upstream zone served.
fn keyed_by_reporter(rounds: u64) -> Vec<(u64, [f64; 3])> {
    let mut harness = Harness::new();
    let zones = [("a", 3), ("b", 5), ("c", 2)];
    harness.endpoints(FLEET, &zones, 0);
    let mut history = Vec::new();
    for round in 0..rounds {
        harness.run(round * 10);
        let fractions = harness.plan(Some(ORDERS)).map(|plan| plan.fractions());
        let flows = route(&fractions.clone().unwrap_or_default());
        for (row, (own, proxies)) in flows.iter().zip(ZONES.into_iter().zip(HOSTS)) {
            let sent = |(name, &flow): (&str, &f64)| UpstreamLocalityStats {
                locality: zone(name),
                total_issued_requests: requests(flow, proxies),
                ..Default::default()
            };
            let report = ClusterStats {
                upstream_locality_stats: ZONES.into_iter().zip(row).map(sent).collect(),
                ..stats(ORDERS, 0, INTERVAL, "")
            };
            for proxy in 0..proxies {
                let node = node(&format!("{own}{proxy}"), own);
                harness.report_stats(&node, &report, at(round * 10));
            }
        }
        if let Some(fractions) = fractions {
            history.push((fractions[&zone("a")].get(), served(&flows)));
        }
    }
    history
}

#[test]
fn keying_by_destination_converges_to_the_wrong_fractions() {
    // With smoothing the fraction settles at sqrt(0.5 · 0.3): zone a keeps more than it can serve.
    let settled = keyed_by_destination(0.3, 200);
    let tail = &settled[150..];
    let wrong = (0.5_f64 * 0.3).sqrt();
    for &fraction in tail {
        let fraction = f64::from(u32::try_from(fraction).unwrap()) / 1e4;
        assert!(
            (fraction - wrong).abs() < 0.001,
            "{fraction} is not {wrong}"
        );
    }
    let load = served(&route(&fraction_map(&[wrong, 0.431, 0.182])))[0] / 1000.0 / CAPACITY[0];
    assert!(load > 1.28, "zone a at {load} times its fair share");
    // Without smoothing it oscillates forever: all local, spilled, then taken for little demand.
    let flips = keyed_by_destination(1.0, 50);
    for pair in flips[10..].windows(2) {
        let mut pair = [pair[0], pair[1]];
        pair.sort_unstable();
        assert_eq!(pair, [3000, 5000]);
    }
}

#[test]
fn keying_by_reporter_is_right_from_the_first_round() {
    let history = keyed_by_reporter(30);
    assert_eq!(history.len(), 29);
    for (fraction, served) in history {
        // One basis point of rounding: whole requests from three proxies.
        assert!(fraction.abs_diff(5000) <= 1, "{fraction}");
        for (served, capacity) in served.iter().zip(CAPACITY) {
            let load_factor = served / 1000.0 / capacity;
            assert!((load_factor - 1.0).abs() < 0.001, "{served:?}");
        }
    }
}
