//! Tests of locality weights: the worked example, conservation, preconditions.

use super::*;
use crate::counts::ClassCounts;
use crate::model::zone_aware::{LocalityBasis, ZoneAwareParts};
use crate::planner::fractions::largest_remainder;
use crate::units::BasisPoints;
use proptest::prelude::*;

const EXAMPLE: [(&str, u64); 3] = [("a", 3), ("b", 5), ("c", 2)];

fn counts(zones: &[(&str, u64)]) -> HostSetCounts {
    let slot = |&(zone, healthy): &(&str, u64)| LocalityCounts {
        locality: Locality::zone_only(zone),
        all: healthy,
        healthy,
        healthy_weight: healthy,
        ..Default::default()
    };
    let total = zones.iter().map(|&(_, healthy)| healthy).sum();
    let flat = ClassCounts {
        all: total,
        healthy: total,
        ..Default::default()
    };
    HostSetCounts {
        localities: zones.iter().map(slot).collect(),
        has_local_locality: false,
        flat,
        weights: flat,
    }
}

fn zones(zones: &[(&str, u64)]) -> Vec<ZoneFraction> {
    let zone = |&(zone, bp): &(&str, u64)| ZoneFraction {
        locality: Locality::zone_only(zone),
        fraction: BasisPoints::new(bp, zone).unwrap(),
        rate_per_second: 1.0,
        reporters: 1,
        estimated: false,
    };
    zones.iter().map(zone).collect()
}

/// Zone-aware settings as a control plane uses them for weights.
fn config(change: impl FnOnce(&mut ZoneAwareParts)) -> ZoneAware {
    let mut parts = ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        dead_band_bp: Some(0),
        ..Default::default()
    };
    change(&mut parts);
    ZoneAware::try_new(parts).unwrap()
}

fn weights(
    upstream: &[(&str, u64)],
    fleet: Option<&[(&str, u64)]>,
    demand: &[(&str, u64)],
) -> Vec<ReceiverWeights> {
    let config = config(|_| ());
    let fleet = fleet.map(counts);
    locality_weights(&config, &counts(upstream), fleet.as_ref(), &zones(demand))
}

/// Receiver, weights in order of localities, and whether zone-aware routing applies.
fn table(weights: &[ReceiverWeights]) -> Vec<(String, Vec<Option<u32>>, bool)> {
    let row = |weights: &ReceiverWeights| {
        let numbers = weights.weights.iter().map(|(_, weight)| *weight).collect();
        (weights.receiver.to_string(), numbers, weights.off.is_none())
    };
    weights.iter().map(row).collect()
}

#[test]
fn the_worked_example() {
    let demand = [("a", 5000), ("b", 3500), ("c", 1500)];
    let weights = weights(&EXAMPLE, Some(&EXAMPLE), &demand);
    let expected = [
        ("a", vec![Some(6000), Some(3000), Some(1000)]),
        ("b", vec![None, Some(10_000), None]),
        ("c", vec![None, None, Some(10_000)]),
    ];
    assert_eq!(
        table(&weights),
        expected.map(|(zone, row)| (zone.to_string(), row, true))
    );
    let order: Vec<_> = weights[1]
        .weights
        .iter()
        .map(|(zone, _)| zone.to_string())
        .collect();
    assert_eq!(
        order,
        ["a", "b", "c"],
        "the order is the same for every receiver"
    );
}

#[test]
fn demand_barely_above_capacity_spills_barely() {
    // No dead band: weights have no state that could flip.
    let weights = weights(
        &EXAMPLE,
        Some(&EXAMPLE),
        &[("a", 3010), ("b", 4990), ("c", 2000)],
    );
    assert_eq!(
        table(&weights)[0],
        ("a".into(), vec![Some(9966), Some(34), None], true)
    );
}

#[test]
fn a_small_cluster_is_spread_by_capacity() {
    let demand = [("a", 5000), ("b", 3500), ("c", 1500)];
    let small = [("a", 1), ("b", 3), ("c", 1)];
    for receiver in weights(&small, Some(&EXAMPLE), &demand) {
        assert_eq!(receiver.off, Some(Reason::UpstreamTooSmall));
        let numbers: Vec<_> = receiver.weights.iter().map(|(_, weight)| *weight).collect();
        assert_eq!(numbers, [Some(2000), Some(6000), Some(2000)]);
    }
    let config = config(|parts| parts.min_cluster_size = Some(5));
    let allowed = locality_weights(
        &config,
        &counts(&small),
        Some(&counts(&EXAMPLE)),
        &zones(&demand),
    );
    assert!(allowed.iter().all(|receiver| receiver.off.is_none()));
}

#[test]
fn a_fleet_in_one_zone_is_spread_by_capacity() {
    let weights = weights(&EXAMPLE, Some(&[("a", 3)]), &[("a", 10_000)]);
    assert_eq!(weights[0].off, Some(Reason::LocalFewerThan2Localities));
    assert_eq!(
        table(&weights),
        [("a".into(), vec![Some(3000), Some(5000), Some(2000)], false)]
    );
}

#[test]
fn reporters_count_as_hosts_without_an_assignment() {
    let demand = [("a", 5000), ("b", 3500), ("c", 1500)];
    let listed = weights(&EXAMPLE, Some(&EXAMPLE), &demand);
    assert_eq!(weights(&EXAMPLE, None, &demand), listed);
    assert_eq!(
        weights(&EXAMPLE, Some(&[("a", 3), ("c", 1)]), &demand),
        listed
    );
    assert_eq!(
        weights(&EXAMPLE, Some(&[("a", 3), ("b", 0), ("c", 1)]), &demand),
        listed
    );
}

#[test]
fn every_zone_of_the_fleet_receives_even_without_demand() {
    let fleet = [("a", 3), ("b", 5), ("d", 1)];
    let weights = weights(
        &EXAMPLE,
        Some(&fleet),
        &[("a", 6000), ("b", 4000), ("d", 0)],
    );
    let receivers: Vec<_> = weights.iter().map(|w| w.receiver.to_string()).collect();
    assert_eq!(receivers, ["a", "b", "d"]);
    // Zone d has no upstream host: its requests go to spare capacity, b 1000 and c 2000.
    assert_eq!(
        table(&weights)[2],
        ("d".into(), vec![None, Some(3333), Some(6667)], true)
    );
}

#[test]
fn zones_without_healthy_hosts_get_no_weight() {
    let upstream = [("a", 0), ("b", 5), ("c", 5)];
    let weights = weights(
        &upstream,
        Some(&EXAMPLE),
        &[("a", 5000), ("b", 2500), ("c", 2500)],
    );
    for receiver in &weights {
        assert_eq!(receiver.weights[0].1, None, "{receiver:?}");
        let sum: u32 = receiver
            .weights
            .iter()
            .filter_map(|(_, weight)| *weight)
            .sum();
        assert_eq!(sum, 10_000);
    }
    assert_eq!(
        table(&weights)[0],
        ("a".into(), vec![None, Some(5000), Some(5000)], true)
    );
}

#[test]
fn a_cluster_without_healthy_hosts_has_no_weights() {
    let none = weights(&[("a", 0), ("b", 0)], Some(&EXAMPLE), &[("a", 10_000)]);
    for receiver in none {
        assert_eq!(receiver.off, Some(Reason::UpstreamTooSmall));
        assert!(receiver.weights.iter().all(|(_, weight)| weight.is_none()));
    }
}

#[test]
fn without_data_demand_follows_the_fleet() {
    // The same shares of proxies and hosts everywhere: everything stays local.
    let level = weights(&EXAMPLE, Some(&EXAMPLE), &[]);
    let stays = |row: &ReceiverWeights| {
        row.weights
            .iter()
            .all(|(zone, weight)| *weight == (*zone == row.receiver).then_some(10_000))
    };
    assert!(level.iter().all(stays), "{level:?}");
    // Half of the proxies in a, which has 30 % of the hosts.
    let skewed = weights(&EXAMPLE, Some(&[("a", 10), ("b", 7), ("c", 3)]), &[]);
    assert_eq!(
        table(&skewed)[0],
        ("a".into(), vec![Some(6000), Some(3000), Some(1000)], true)
    );
    assert_eq!(weights(&EXAMPLE, None, &[]), [], "there is no receiver");
}

#[test]
fn capacity_can_be_measured_by_weight() {
    let by_weight =
        config(|parts| parts.upstream_locality_basis = CapacityBasis::HealthyHostsWeight);
    let mut upstream = counts(&EXAMPLE);
    for (slot, weight) in upstream.localities.iter_mut().zip([50, 40, 10]) {
        slot.healthy_weight = weight;
    }
    let demand = zones(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    let fleet = counts(&EXAMPLE);
    let weights = locality_weights(&by_weight, &upstream, Some(&fleet), &demand);
    assert_eq!(
        table(&weights)[0],
        ("a".into(), vec![Some(10_000), None, None], true)
    );
    assert_eq!(
        table(&weights)[2],
        ("c".into(), vec![None, Some(3334), Some(6666)], true)
    );
    let alone = counts(&[("a", 3)]);
    let spread = locality_weights(
        &by_weight,
        &upstream,
        Some(&alone),
        &zones(&[("a", 10_000)]),
    );
    assert_eq!(
        table(&spread)[0],
        ("a".into(), vec![Some(5000), Some(4000), Some(1000)], false)
    );
}

/// The weights of each receiver as shares of its requests, zones in order.
fn shares(weights: &[ReceiverWeights]) -> Vec<Vec<f64>> {
    let row = |receiver: &ReceiverWeights| {
        let weights = receiver.weights.iter();
        weights
            .map(|(_, weight)| f64::from(weight.unwrap_or(0)) / 1e4)
            .collect()
    };
    weights.iter().map(row).collect()
}

#[test]
fn routing_enabled_sends_the_rest_to_all_hosts() {
    let some = config(|parts| parts.routing_enabled = Some(20.0));
    let demand = zones(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    let fleet = counts(&EXAMPLE);
    let weights = locality_weights(&some, &fleet, Some(&fleet), &demand);
    // 80 % of 30/50/20, and 20 % of 60/30/10, of 0/100/0, or of 0/0/100.
    assert_eq!(
        table(&weights),
        [
            ("a".into(), vec![Some(3600), Some(4600), Some(1800)], true),
            ("b".into(), vec![Some(2400), Some(6000), Some(1600)], true),
            ("c".into(), vec![Some(2400), Some(4000), Some(3600)], true),
        ]
    );
    let none = config(|parts| parts.routing_enabled = Some(0.0));
    let weights = locality_weights(&none, &fleet, Some(&fleet), &demand);
    for row in shares(&weights) {
        assert_eq!(row, [0.3, 0.5, 0.2]);
    }
}

#[test]
fn a_ramp_of_zero_is_the_start() {
    let demand = zones(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    let (fleet, upstream) = (counts(&EXAMPLE), counts(&EXAMPLE));
    let written = ["a", "b", "x"].map(Locality::zone_only).into_iter();
    let written: Vec<_> = written.zip([1.0, 3.0, 9.0]).collect();
    let rules = ZoneAware::default();
    let many = config(|parts| parts.min_cluster_size = Some(11));
    for (start, at_b) in [
        (RampStart::Hosts, [0.3, 0.5, 0.2]),
        (RampStart::Weights(&written), [0.25, 0.75, 0.0]),
        (RampStart::HostCounts(&rules), [0.0, 1.0, 0.0]),
        // Too few hosts for its own minimum: over all hosts.
        (RampStart::HostCounts(&many), [0.3, 0.5, 0.2]),
    ] {
        let weights = ramped_weights(&config(|_| ()), start, &upstream, Some(&fleet), &demand, 0);
        assert_eq!(shares(&weights)[1], at_b, "{start:?}");
    }
    let mut broken = counts(&[("a", 0), ("b", 5), ("c", 5)]);
    broken.localities[0].all = 3;
    let start = RampStart::Weights(&written);
    let weights = ramped_weights(&config(|_| ()), start, &broken, Some(&fleet), &demand, 0);
    assert_eq!(shares(&weights)[0], [0.0, 1.0, 0.0], "no healthy host in a");
}

#[test]
fn weights_of_zones_without_hosts_start_from_all_hosts() {
    let demand = zones(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    let fleet = counts(&EXAMPLE);
    let elsewhere = [(Locality::zone_only("x"), 7.0)];
    let start = RampStart::Weights(&elsewhere);
    let weights = ramped_weights(&config(|_| ()), start, &fleet, Some(&fleet), &demand, 0);
    assert_eq!(shares(&weights)[1], [0.3, 0.5, 0.2]);
}

/// Returns the share of the fleet's requests that every upstream zone serves.
fn traffic(weights: &[ReceiverWeights], demand: &[ZoneFraction]) -> Vec<f64> {
    let mut traffic = vec![0.0; weights[0].weights.len()];
    for zone in demand {
        let receiver = weights
            .iter()
            .find(|w| w.receiver == zone.locality)
            .unwrap();
        for (sum, (_, weight)) in traffic.iter_mut().zip(&receiver.weights) {
            *sum += f64::from(weight.unwrap_or(0)) / 1e4 * as_share(zone.fraction.get());
        }
    }
    traffic
}

#[expect(clippy::cast_precision_loss, reason = "basis points")]
fn as_share(basis_points: u64) -> f64 {
    basis_points as f64 / 1e4
}

#[test]
fn true_fractions_load_all_zones_equally() {
    for demand in [
        [("a", 5000), ("b", 3500), ("c", 1500)],
        [("a", 9000), ("b", 1000), ("c", 0)],
        [("a", 3000), ("b", 5000), ("c", 2000)],
        [("a", 0), ("b", 0), ("c", 10_000)],
    ] {
        let weights = weights(&EXAMPLE, Some(&EXAMPLE), &demand);
        let traffic = traffic(&weights, &zones(&demand));
        for (served, capacity) in traffic.iter().zip([0.3, 0.5, 0.2]) {
            let load_factor = served / capacity;
            assert!((load_factor - 1.0).abs() < 0.002, "{demand:?}: {traffic:?}");
        }
    }
}

proptest! {
    /// From any start, each percent of a ramp moves at most a percent of the requests.
    #[test]
    fn each_percent_of_a_ramp_moves_a_percent_of_the_requests(
        demand in prop::collection::vec(0_u64..1000, 3),
        hosts in prop::sample::select(vec![2_u64, 10]),
        start in 0..3_usize,
        routing_enabled in prop::sample::select(vec![20.0, 100.0]),
        percent in 0_u32..=100,
    ) {
        let demand = largest_remainder(&demand, BASIS_POINTS);
        prop_assume!(demand.is_some());
        let names = ["a", "b", "c"];
        let demand: Vec<_> = names.into_iter().zip(demand.unwrap()).collect();
        let upstream = counts(&names.map(|zone| (zone, hosts)));
        let fleet = counts(&[("a", 5), ("b", 2), ("c", 1)]);
        let written = names.map(Locality::zone_only).into_iter().zip([7.0, 2.0, 1.0]);
        let written: Vec<_> = written.collect();
        let rules = ZoneAware::default();
        let start = match start {
            0 => RampStart::Hosts,
            1 => RampStart::Weights(&written),
            _ => RampStart::HostCounts(&rules),
        };
        let config = config(|parts| {
            parts.min_cluster_size = Some(1);
            parts.routing_enabled = Some(routing_enabled);
        });
        let at = |percent| {
            let zones = zones(&demand);
            shares(&ramped_weights(&config, start, &upstream, Some(&fleet), &zones, percent))
        };
        let (before, now) = (at(0), at(percent));
        for (before, now) in before.iter().flatten().zip(now.iter().flatten()) {
            let most = f64::from(percent) / 100.0 + 1.01e-4;
            prop_assert!((now - before).abs() <= most, "{before} to {now} at {percent} %");
        }
        let whole = locality_weights(&config, &upstream, Some(&fleet), &zones(&demand));
        prop_assert_eq!(at(100), shares(&whole));
    }

    /// For any demand and capacity, no zone gets more than its share except for rounding (every
    /// basis point is rounded down in several places).
    #[test]
    fn load_is_conserved(
        demand in prop::collection::vec(0_u64..1000, 2..7),
        hosts in prop::collection::vec(1_u64..50, 7),
    ) {
        let shares = largest_remainder(&demand, BASIS_POINTS);
        prop_assume!(shares.is_some());
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let demand: Vec<_> = names.into_iter().zip(shares.unwrap()).collect();
        let hosts: Vec<_> = demand.iter().zip(hosts).map(|((zone, _), n)| (*zone, n + 2)).collect();
        let total: u64 = hosts.iter().map(|(_, n)| n).sum();
        let weights = weights(&hosts, Some(&hosts), &demand);
        let traffic = traffic(&weights, &zones(&demand));
        prop_assert!((traffic.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        for (served, (_, n)) in traffic.iter().zip(&hosts) {
            let capacity = as_share(n * 10_000) / as_share(total * 10_000);
            prop_assert!((served - capacity).abs() < 12e-4, "{served} of {capacity}: {weights:?}");
        }
    }
}
