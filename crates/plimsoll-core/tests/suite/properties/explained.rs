//! Shares in `explain` match those of real picks.

use plimsoll_core::explain::{Explanation, StateName};
use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::LocalityBasis;
use proptest::prelude::*;
use proptest::sample::select;

use super::cases;
use super::generate::{self, ZONES};
use crate::support::{Driver, Tally, at, config, parts, ratio, sampling_error};

const PICKS: u64 = 4_000;

/// Checks that derived numbers are consistent.
fn check_consistency(explanation: &Explanation) -> Result<(), TestCaseError> {
    let first = explanation
        .priorities
        .first()
        .map(|p0| (p0.state, p0.reason_code));
    if let Some(first) = first {
        prop_assert_eq!(first, (explanation.state, explanation.reason_code));
    }
    let kept = explanation.local_percent_to_route_bp;
    match explanation.state {
        StateName::NoLocalityRouting
        | StateName::LoadAwareLocality
        | StateName::LocalityWeighted => {
            prop_assert!(explanation.reason_code.is_some() && kept.is_none());
        }
        StateName::LocalityDirect => prop_assert_eq!(kept, Some(10_000)),
        StateName::LocalityResidual => prop_assert!(kept.is_some_and(|kept| kept < 10_000)),
        state => prop_assert!(false, "no check for {state:?}"),
    }
    prop_assert!(explanation.localities.iter().filter(|row| row.own).count() <= 1);
    for row in &explanation.localities {
        prop_assert!(
            row.local_bp <= 10_000 && row.upstream_bp <= 10_000 && row.residual_bp <= 10_000
        );
        let expected = (row.capacity_share > 0.0).then(|| row.traffic_share / row.capacity_share);
        prop_assert_eq!(row.load_factor, expected);
        prop_assert!(row.healthy + row.degraded <= row.hosts && row.excluded <= row.hosts);
    }
    if explanation.locality_basis != Some(LocalityBasis::LrsReportedRate) {
        prop_assert_eq!(explanation.fractions.staleness_threshold_ms, None);
    }
    Ok(())
}

/// Checks that every locality gets its explained share; requests to an empty locality fail.
fn check_picks(driver: &mut Driver, seed: u64) -> Result<(), TestCaseError> {
    let explanation = driver.explain();
    check_consistency(&explanation)?;
    let tally = Tally::of(&mut driver.picker(seed), PICKS);
    let mut lost = 1.0;
    for row in &explanation.localities {
        let locality = Locality::new(&row.region, &row.zone, &row.sub_zone);
        let (actual, expected) = (tally.share(&locality), row.expected_share);
        if row.healthy == 0 && actual == 0.0 {
            continue; // requests to an empty locality fail
        }
        lost -= expected;
        let error = (actual - expected).abs();
        prop_assert!(
            error <= sampling_error(expected, PICKS),
            "{locality}: {actual} is not {expected}"
        );
    }
    let failed = ratio(tally.failed, PICKS);
    let tolerance = sampling_error(lost.clamp(0.0, 1.0), PICKS) + 1e-9;
    prop_assert!(
        (failed - lost).abs() <= tolerance,
        "{failed} failed, {lost} expected to"
    );
    Ok(())
}

proptest! {
    #![proptest_config(cases(48))]

    /// One priority without degraded hosts, any policy except hashing: every locality gets its
    /// explained share, and requests to an empty locality fail.
    #[test]
    fn shares_are_those_of_real_picks(
        config in generate::cluster_config(),
        own in select(&ZONES[..4]),
        upstream in generate::assignment(4, 1, generate::healthy_or_not()),
        fleet in generate::fleet(4),
        seed in any::<u64>(),
    ) {
        let mut driver = Driver::new(config, own);
        driver.assignment(upstream, at(0));
        driver.originating(fleet, at(0));
        check_picks(&mut driver, seed)?;
    }

    /// The same where zone-aware routing is never off: a fleet in every zone.
    #[test]
    fn shares_of_zone_routing_are_those_of_real_picks(
        zone_aware in generate::zone_aware(),
        upstream in generate::assignment(4, 1, generate::healthy_or_not()),
        hosts in proptest::collection::vec((1_usize..6, proptest::option::of(0_u64..5000)), 4),
        seed in any::<u64>(),
    ) {
        let config = config(|parts| {
            parts.locality_policy = LocalityPolicy::ZoneAware(zone_aware);
            parts.runtime.zone_routing_min_cluster_size = Some(1);
        });
        let zones: Vec<_> = ZONES.into_iter().zip(hosts.iter().map(|&(n, _)| n)).collect();
        let mut fleet = parts(&zones);
        for (entry, &(_, fraction)) in fleet.endpoints.iter_mut().zip(&hosts) {
            entry.observed_traffic_fraction = fraction;
        }
        let mut driver = Driver::new(config, "a");
        driver.assignment(upstream, at(0));
        driver.originating(fleet, at(0));
        check_picks(&mut driver, seed)?;
    }

    /// Any valid input has an explanation with consistent numbers.
    #[test]
    fn every_snapshot_can_be_explained(
        config in generate::cluster_config(),
        upstream in proptest::option::of(generate::assignment(5, 3, generate::any_health())),
        fleet in proptest::option::of(generate::fleet(5)),
    ) {
        let mut driver = Driver::new(config, "a");
        check_consistency(&driver.explain())?;
        if let Some(fleet) = fleet {
            driver.originating(fleet, at(0));
            check_consistency(&driver.explain())?;
        }
        if let Some(upstream) = upstream {
            driver.assignment(upstream, at(1));
            check_consistency(&driver.explain())?;
        }
        driver.timeout(at(61));
        check_consistency(&driver.explain())?;
    }
}
