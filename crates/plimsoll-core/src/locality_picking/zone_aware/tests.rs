//! Tests of zone-aware routing beyond the vectors: measured bases, bands, shares.

use super::*;
use crate::counts::ClassCounts;
use crate::locality_picking::demand::FractionMap;
use crate::model::zone_aware::ZoneAwareParts;
use crate::rng::{ScriptedRng, Xoshiro256};
use crate::units::BasisPoints;

pub(super) fn counts(zones: &[(&str, u64)], own: &str) -> HostSetCounts {
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
    let counts = HostSetCounts {
        localities: zones.iter().map(slot).collect(),
        flat,
        weights: flat,
        has_local_locality: false,
    };
    seen_from(&Locality::zone_only(own), &counts)
}

fn fractions(zones: &[(&str, u64)]) -> FractionMap {
    let fraction = |&(zone, bp): &(&str, u64)| {
        (
            Locality::zone_only(zone),
            BasisPoints::new(bp, zone).unwrap(),
        )
    };
    zones.iter().map(fraction).collect()
}

fn config(change: impl FnOnce(&mut ZoneAwareParts)) -> ZoneAware {
    let mut parts = ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        min_cluster_size: Some(1),
        ..Default::default()
    };
    change(&mut parts);
    ZoneAware::try_new(parts).unwrap()
}

const EXAMPLE: [(&str, u64); 3] = [("a", 3), ("b", 5), ("c", 2)];

fn route(config: &ZoneAware, own: &str, measured: &[(&str, u64)]) -> ZoneRouting {
    let (upstream, fleet) = (counts(&EXAMPLE, own), counts(&EXAMPLE, own));
    let demand = Demand::from_fractions(&fractions(measured), &fleet)
        .unwrap_or_else(|| Demand::from_host_counts(&fleet));
    regenerate(config, &upstream, &fleet, &demand)
}

fn residual(routing: &ZoneRouting) -> &Residual {
    match &routing.state {
        ZoneState::LocalityResidual(residual) => residual,
        other => panic!("expected the residual state, got {other:?}"),
    }
}

#[test]
fn the_dead_band_keeps_traffic_direct_and_can_be_disabled() {
    let noisy = [("a", 3050), ("b", 4950), ("c", 2000)];
    assert_eq!(
        route(&config(|_| ()), "a", &noisy).state,
        ZoneState::LocalityDirect
    );
    let sharp = config(|parts| parts.dead_band_bp = Some(0));
    assert_eq!(
        residual(&route(&sharp, "a", &noisy)).local_percent_to_route,
        9836
    );
    let above = [("a", 3091), ("b", 4909), ("c", 2000)];
    assert!(matches!(
        route(&config(|_| ()), "a", &above).state,
        ZoneState::LocalityResidual(_)
    ));
}

#[test]
fn spilled_requests_are_not_concentrated_by_rounding() {
    // In basis points, capacities of 66.67 are 66: only b would have any spare capacity, and would
    // get all that a spills.
    let names: Vec<String> = (0..150).map(|zone| format!("z{zone:03}")).collect();
    let demand_of = |zone: usize| match zone {
        0 => 167,
        1 => 65,
        _ => 66,
    };
    let zones = |of: &dyn Fn(usize) -> u64| -> Vec<(&str, u64)> {
        let zone = |(index, name)| (String::as_str(name), of(index));
        names.iter().enumerate().map(zone).collect()
    };
    let (upstream, measured) = (zones(&|_| 2), zones(&demand_of));
    let fleet = counts(&upstream, "z000");
    let demand = Demand::from_fractions(&fractions(&measured), &fleet).unwrap();
    let routing = regenerate(&config(|_| ()), &fleet, &fleet, &demand);
    let shares = routing.expected_shares().unwrap();
    let received = shares[1] * 167.0;
    assert!(received < 2.0, "{received} of 100 basis points to one zone");
    assert_eq!(routing.percentages[0].upstream, 66);
}

#[test]
fn the_dead_band_does_not_apply_to_the_classic_bases() {
    let classic = config(|parts| parts.locality_basis = LocalityBasis::HealthyHostsNum);
    let fleet = counts(&[("a", 305), ("b", 495), ("c", 200)], "a");
    let routing = regenerate(
        &classic,
        &counts(&EXAMPLE, "a"),
        &fleet,
        &Demand::from_host_counts(&fleet),
    );
    assert_eq!(residual(&routing).local_percent_to_route, 9836);
    assert_eq!(residual(&routing).no_capacity, None);
}

#[test]
fn capacity_may_be_counted_by_weight() {
    let by_weight =
        config(|parts| parts.upstream_locality_basis = CapacityBasis::HealthyHostsWeight);
    let fleet = counts(&EXAMPLE, "a");
    let mut upstream = counts(&EXAMPLE, "a");
    upstream.localities[0].healthy_weight = 300;
    let measured = fractions(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    let demand = Demand::from_fractions(&measured, &fleet).unwrap();
    let routing = regenerate(&by_weight, &upstream, &fleet, &demand);
    assert_eq!(
        routing.percentages[0],
        Percentages {
            local: 5000,
            upstream: 9771
        }
    );
    assert_eq!(routing.state, ZoneState::LocalityDirect);
    // Without fractions, demand and capacity are both taken from host counts.
    let fallback = regenerate(
        &by_weight,
        &upstream,
        &fleet,
        &Demand::from_host_counts(&fleet),
    );
    assert_eq!(
        fallback.percentages[0],
        Percentages {
            local: 3000,
            upstream: 3000
        }
    );
}

#[test]
fn without_spare_capacity_measured_bases_spill_by_hosts() {
    // Rounding leaves no spare basis point anywhere; d has no healthy host at all.
    let residual = Residual {
        local_percent_to_route: 9000,
        capacity: vec![0, 0, 0],
        no_capacity: Some(vec![3000, 10_000, 10_000]),
    };
    let stats = PickerStats::default();
    let pick = |draws: [u64; 2]| {
        residual.pick(
            &mut LocalitySampler::Random,
            &mut ScriptedRng::new(draws),
            &stats,
        )
    };
    assert_eq!(
        [pick([9999, 2999]), pick([9999, 3000]), pick([9999, 9999])],
        [0, 1, 1]
    );
    assert_eq!(stats.lb_zone_no_capacity_left.get(), 3);
    assert_eq!(stats.lb_zone_routing_cross_zone.get(), 3);
}

#[test]
fn expected_shares_match_what_picks_do_for_both_samplers() {
    let routing = route(
        &config(|_| ()),
        "a",
        &[("a", 5000), ("b", 3500), ("c", 1500)],
    );
    let shares = routing.expected_shares().unwrap();
    assert_eq!(shares, [0.6, 0.3, 0.1]);
    let mut rng = Xoshiro256::from_seed(11);
    let samplers = [
        (LocalitySampler::Random, 0.01),
        (LocalitySampler::LowDiscrepancy { position: 9 }, 2e-4),
    ];
    for (mut sampler, tolerance) in samplers {
        let stats = PickerStats::default();
        let mut picked = [0_u32; 3];
        for _ in 0..100_000 {
            picked[routing.pick(&mut sampler, &mut rng, &stats).unwrap()] += 1;
        }
        for (share, &count) in shares.iter().zip(&picked) {
            let actual = f64::from(count) / 100_000.0;
            assert!(
                (actual - share).abs() < tolerance,
                "{sampler:?}: {actual} for {share}"
            );
        }
        assert_eq!(stats.lb_zone_routing_sampled.get(), u64::from(picked[0]));
    }
}

#[test]
fn even_sampling_removes_most_of_the_variance() {
    let routing = route(
        &config(|_| ()),
        "a",
        &[("a", 5000), ("b", 3500), ("c", 1500)],
    );
    let mut rng = Xoshiro256::from_seed(5);
    let mut squared_error = |mut sampler: LocalitySampler| -> f64 {
        let stats = PickerStats::default();
        let error = |window: &mut dyn FnMut() -> usize| {
            let local = (0..100).filter(|_| window() == 0).count();
            (f64::from(u32::try_from(local).unwrap()) - 60.0).powi(2)
        };
        let mut pick = || routing.pick(&mut sampler, &mut rng, &stats).unwrap();
        (0..1_000).map(|_| error(&mut pick)).sum::<f64>() / 1_000.0
    };
    let independent = squared_error(LocalitySampler::Random);
    let even = squared_error(LocalitySampler::LowDiscrepancy { position: 1 });
    assert!(
        independent > 15.0,
        "a binomial of 100 has variance 24: {independent}"
    );
    assert!(even < 2.0, "{even}");
}

#[test]
fn a_locality_without_upstream_slot_spills_everything() {
    let fleet = counts(&[("a", 5), ("b", 5)], "a");
    let upstream = counts(&[("b", 4), ("c", 4)], "a");
    let demand = Demand::from_fractions(&fractions(&[("a", 9000), ("b", 1000)]), &fleet).unwrap();
    let routing = regenerate(&config(|_| ()), &upstream, &fleet, &demand);
    let residual = residual(&routing);
    assert_eq!(residual.local_percent_to_route, 0);
    assert_eq!(residual.capacity, [400_000_000, 900_000_000]);
}

#[test]
fn preconditions_carry_their_numbers() {
    let strict = config(|parts| parts.min_cluster_size = Some(11));
    let routing = route(&strict, "a", &[]);
    assert_eq!(
        routing.state,
        ZoneState::NoLocalityRouting(Reason::UpstreamTooSmall)
    );
    let failed: Vec<_> = routing
        .preconditions
        .iter()
        .filter(|test| !test.passed)
        .collect();
    let [failed] = failed[..] else {
        panic!("one test fails: {failed:?}")
    };
    assert_eq!((failed.actual, failed.required), (10, 11));
    assert!(routing.percentages.is_empty() && routing.expected_shares().is_none());
}

#[test]
fn reasons_name_counters_that_exist() {
    let stats = crate::stats::BalancerStats::default();
    let counted = [
        Reason::LocalClusterHasNoHostInOwnLocality,
        Reason::UpstreamTooSmall,
    ];
    for reason in counted {
        let name = reason.counter().unwrap();
        assert!(stats.iter().any(|(counter, _)| counter == name), "{name}");
    }
    for reason in [
        Reason::UpstreamFewerThan2Localities,
        Reason::LocalFewerThan2Localities,
        Reason::PriorityNotZero,
    ] {
        assert_eq!(reason.counter(), None);
    }
}
