//! The worked examples of the two designs, number by number: from `explain`, and from 100,000 real
//! picks of each zone's proxies.
//!
//! The rules themselves are tested next to the code and by the vectors; these tests cover the whole
//! way from assignment to host, as a reader of the documents would check it by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::explain::{Explanation, StateName};
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy, LocalitySampling};
use plimsoll_core::model::endpoint_policy::{EndpointPolicy, LeastRequest, LeastRequestParts};
use plimsoll_core::model::zone_aware::{ForceLocalZone, LocalityBasis, ZoneAware};

use crate::support::{
    Driver, Tally, assert_close, at, by_basis, by_zone, config, parts, pick_sequence,
    sampling_error, zone, zone_aware,
};

const PICKS: u64 = 100_000;

/// Zones with their numbers of hosts.
type Zones = &'static [(&'static str, usize)];

/// A worked example: proxies, upstream hosts and where demand arrives (basis points).
struct Example {
    fleet: Zones,
    upstream: Zones,
    demand: &'static [(&'static str, u64)],
}

/// Seed 000: equal shares of proxies and hosts in every zone, but zone a receives half of the
/// traffic.
const BGP_SKEW: Example = Example {
    fleet: &[("a", 3), ("b", 5), ("c", 2)],
    upstream: &[("a", 3), ("b", 5), ("c", 2)],
    demand: &[("a", 5000), ("b", 3500), ("c", 1500)],
};

/// Seed 002: originating 40/40/20 %, upstream 25/50/25 %, and demand proportional to proxies.
const RESIDUAL: Example = Example {
    fleet: &[("a", 4), ("b", 4), ("c", 2)],
    upstream: &[("a", 2), ("b", 4), ("c", 2)],
    demand: &[("a", 4000), ("b", 4000), ("c", 2000)],
};

impl Example {
    /// Creates a proxy in zone `own`. The fleet's assignment always carries fractions; only the
    /// basis decides whether they are used.
    fn driver(&self, config: &Arc<ClusterConfig>, own: &str) -> Driver {
        let mut fleet = parts(self.fleet);
        for (entry, &(name, bp)) in fleet.endpoints.iter_mut().zip(self.demand) {
            assert_eq!(entry.locality, zone(name));
            entry.observed_traffic_fraction = Some(bp);
        }
        let mut driver = Driver::new(Arc::clone(config), own);
        driver.originating(fleet, at(0));
        driver.assignment(parts(self.upstream), at(0));
        driver
    }

    fn explain(&self, config: &Arc<ClusterConfig>, own: &str) -> Explanation {
        self.driver(config, own).explain()
    }

    /// Measures the load factor of each zone by real picks of the proxies of every zone, weighted
    /// by demand, with the tolerance that the number of picks allows.
    fn measure(&self, config: &Arc<ClusterConfig>) -> BTreeMap<String, (f64, f64)> {
        let hosts: usize = self.upstream.iter().map(|&(_, hosts)| hosts).sum();
        let mut measured = BTreeMap::new();
        for &(name, there) in self.upstream {
            let capacity = crate::support::ratio(there as u64, hosts as u64);
            measured.insert(name.to_owned(), (0.0, 0.0, capacity));
        }
        for (seed, &(own, demand)) in (100..).zip(self.demand) {
            let tally = Tally::of(&mut self.driver(config, own).picker(seed), PICKS);
            assert_eq!(tally.failed, 0, "in {own}");
            for (name, (traffic, error, _)) in &mut measured {
                let (share, demand) = (
                    tally.share(&zone(name)),
                    crate::support::ratio(demand, 10_000),
                );
                *traffic += demand * share;
                *error += demand * sampling_error(share, PICKS);
            }
        }
        let factor = |(name, (traffic, error, capacity)): (String, (f64, f64, f64))| {
            (name, (traffic / capacity, error / capacity))
        };
        measured.into_iter().map(factor).collect()
    }

    /// Asserts load factors, explained and measured.
    fn assert_load(&self, config: &Arc<ClusterConfig>, expected: &[(&str, f64)]) {
        for &(own, _) in self.fleet {
            let explained = by_zone(&self.explain(config, own), |row| row.load_factor);
            for &(name, factor) in expected {
                let actual = explained[name].expect("a zone with capacity has a load factor");
                assert_close(
                    actual,
                    factor,
                    1e-9,
                    &format!("load factor of {name} explained in {own}"),
                );
            }
        }
        let measured = self.measure(config);
        for &(name, factor) in expected {
            let (actual, tolerance) = measured[name];
            assert_close(
                actual,
                factor,
                tolerance,
                &format!("measured load factor of {name}"),
            );
        }
    }
}

/// Returns variants of other settings, which must not change the example.
fn variants(policy: &LocalityPolicy) -> Vec<Arc<ClusterConfig>> {
    let least_request = LeastRequest::try_new(LeastRequestParts::default()).expect("defaults");
    let endpoint_policies = [
        EndpointPolicy::default(),
        EndpointPolicy::Random,
        EndpointPolicy::LeastRequest(least_request),
    ];
    let mut variants: Vec<_> = endpoint_policies
        .into_iter()
        .map(|endpoint_policy| {
            config(|parts| {
                parts.locality_policy = policy.clone();
                parts.endpoint_policy = endpoint_policy;
            })
        })
        .collect();
    variants.push(config(|parts| {
        parts.locality_policy = policy.clone();
        parts.locality_sampling = Some(LocalitySampling::LowDiscrepancy);
    }));
    variants
}

#[test]
fn seed_000_before_zone_a_is_overloaded() {
    let config = by_basis(LocalityBasis::HealthyHostsNum);
    for own in ["a", "b", "c"] {
        let explanation = BGP_SKEW.explain(&config, own);
        assert_eq!(explanation.state, StateName::LocalityDirect, "in {own}");
        let bp: Vec<_> = by_zone(&explanation, |row| (row.local_bp, row.upstream_bp))
            .into_values()
            .collect();
        assert_eq!(bp, [(3000, 3000), (5000, 5000), (2000, 2000)], "in {own}");
    }
    let load = [("a", 50.0 / 30.0), ("b", 35.0 / 50.0), ("c", 15.0 / 20.0)];
    BGP_SKEW.assert_load(&config, &load);
    let printed = load.map(|(_, factor)| format!("{factor:.2}"));
    assert_eq!(
        printed,
        ["1.67", "0.70", "0.75"],
        "as printed in the design"
    );
}

#[test]
fn seed_000_after_every_zone_has_its_fair_load() {
    let config = by_basis(LocalityBasis::LrsReportedRate);
    let explanation = BGP_SKEW.explain(&config, "a");
    assert_eq!(explanation.state, StateName::LocalityResidual);
    assert_eq!(
        explanation.local_percent_to_route_bp,
        Some(6000),
        "3000 · 10000 / 5000"
    );
    let rows: Vec<_> = by_zone(&explanation, |row| {
        (row.local_bp, row.upstream_bp, row.residual_bp)
    })
    .into_values()
    .collect();
    assert_eq!(
        rows,
        [(5000, 3000, 0), (3500, 5000, 1500), (1500, 2000, 500)]
    );
    let shares = by_zone(&explanation, |row| row.expected_share);
    for (name, share) in [("a", 0.6), ("b", 0.4 * 0.75), ("c", 0.4 * 0.25)] {
        assert_close(shares[name], share, 1e-12, name);
    }
    // The proxies of the other zones, as explained from zone a.
    let kept: Vec<_> = explanation
        .zones
        .iter()
        .map(|zone| (zone.state, zone.kept_local))
        .collect();
    let (direct, residual) = (StateName::LocalityDirect, StateName::LocalityResidual);
    assert_eq!(kept, [(residual, 0.6), (direct, 1.0), (direct, 1.0)]);
    BGP_SKEW.assert_load(&config, &[("a", 1.0), ("b", 1.0), ("c", 1.0)]);
}

#[test]
fn seed_000_after_by_real_picks_60_percent_stay_and_75_to_25_spill() {
    let policy = zone_aware(|zone| zone.locality_basis = LocalityBasis::LrsReportedRate);
    for config in variants(&policy) {
        let name = config.endpoint_policy().name();
        let mut driver = BGP_SKEW.driver(&config, "a");
        let tally = Tally::of(&mut driver.picker(1), PICKS);
        let (a, b, c) = (zone("a"), zone("b"), zone("c"));
        assert_close(tally.share(&a), 0.6, sampling_error(0.6, PICKS), name);
        let spilled = tally.localities[&b] + tally.localities[&c];
        let to_b = crate::support::ratio(tally.localities[&b], spilled);
        assert_close(to_b, 0.75, sampling_error(0.75, spilled), name);
        // The hosts of a zone share its requests evenly.
        for host in driver.snapshot().hosts() {
            let share = match host.locality().zone() {
                "a" => 0.6 / 3.0,
                "b" => 0.3 / 5.0,
                _ => 0.1 / 2.0,
            };
            let actual = crate::support::ratio(tally.hosts[&host.address()], PICKS);
            let what = format!("{name} {}", host.address());
            assert_close(actual, share, sampling_error(share, PICKS), &what);
        }
    }
}

/// The same shares, with an error of a few requests instead of a few hundred.
#[test]
fn seed_000_after_low_discrepancy_is_exact_to_a_few_requests() {
    let policy = zone_aware(|zone| zone.locality_basis = LocalityBasis::LrsReportedRate);
    let config = config(|parts| {
        parts.locality_policy = policy;
        parts.locality_sampling = Some(LocalitySampling::LowDiscrepancy);
    });
    let tally = Tally::of(&mut BGP_SKEW.driver(&config, "a").picker(2), PICKS);
    for (name, share) in [("a", 0.6), ("b", 0.3), ("c", 0.1)] {
        // Any interval of the golden-ratio sequence is off by less than 3 + log(requests).
        assert_close(tally.share(&zone(name)), share, 12.0 / 100_000.0, name);
    }
}

#[test]
fn seed_002_keeps_five_eighths_and_spills_two_to_one() {
    let config = by_basis(LocalityBasis::HealthyHostsNum);
    let explanation = RESIDUAL.explain(&config, "a");
    assert_eq!(explanation.state, StateName::LocalityResidual);
    assert_eq!(explanation.local_percent_to_route_bp, Some(6250));
    let rows: Vec<_> = by_zone(&explanation, |row| {
        (row.local_bp, row.upstream_bp, row.residual_bp)
    })
    .into_values()
    .collect();
    assert_eq!(
        rows,
        [(4000, 2500, 0), (4000, 5000, 1000), (2000, 2500, 500)]
    );
    let shares = by_zone(&explanation, |row| row.expected_share);
    for (name, share) in [("a", 0.625), ("b", 0.25), ("c", 0.125)] {
        assert_close(shares[name], share, 1e-12, name);
    }
    let tally = Tally::of(&mut RESIDUAL.driver(&config, "a").picker(3), PICKS);
    for (name, share) in [("a", 0.625), ("b", 0.25), ("c", 0.125)] {
        assert_close(
            tally.share(&zone(name)),
            share,
            sampling_error(share, PICKS),
            name,
        );
    }
    RESIDUAL.assert_load(&config, &[("a", 1.0), ("b", 1.0), ("c", 1.0)]);
}

/// "40 % of the originating hosts and 20 % of the upstream: 50 % goes directly."
#[test]
fn seed_002_direct_percentage() {
    let example = Example {
        fleet: &[("a", 4), ("b", 6)],
        upstream: &[("a", 2), ("b", 8)],
        demand: &[("a", 4000), ("b", 6000)],
    };
    let explanation = example.explain(&by_basis(LocalityBasis::HealthyHostsNum), "a");
    assert_eq!(explanation.local_percent_to_route_bp, Some(5000));
}

/// Both configuration forms of seed 002 are equivalent, and so is an empty one.
#[test]
fn legacy_and_modern_settings_resolve_to_the_same() {
    // The legacy message has three fields; the modern one has three more.
    let legacy = zone_aware(|zone| {
        zone.routing_enabled = Some(100.0);
        zone.min_cluster_size = Some(6);
        zone.fail_traffic_on_panic = false;
    });
    let modern = zone_aware(|zone| {
        zone.routing_enabled = Some(100.0);
        zone.min_cluster_size = Some(6);
        zone.locality_basis = LocalityBasis::HealthyHostsNum;
    });
    assert_eq!(legacy, modern);
    // An explicit 6 is kept as such, but has the effect of the default.
    let resolved = |policy: &LocalityPolicy| match policy {
        LocalityPolicy::ZoneAware(zone) => (zone.routing_enabled(), zone.min_cluster_size()),
        other => panic!("{other:?}"),
    };
    let unset = LocalityPolicy::ZoneAware(ZoneAware::default());
    assert_eq!(resolved(&legacy), resolved(&unset));
    let picks = |policy: LocalityPolicy| {
        let config = config(|parts| parts.locality_policy = policy);
        let mut driver = RESIDUAL.driver(&config, "a");
        (
            pick_sequence(&mut driver.picker(5), 2_000),
            driver.explain(),
        )
    };
    let (sequence, explanation) = picks(legacy);
    assert!(sequence.iter().all(Option::is_some));
    assert_eq!((sequence, explanation), picks(modern.clone()));
    let unset = config(|_| ());
    let driver = RESIDUAL.driver(&unset, "a");
    assert_eq!(picks(modern).0, pick_sequence(&mut driver.picker(5), 2_000));
}

/// The deprecated field means `force_local_zone { min_size: 1 }`, the default of that message.
#[test]
fn the_deprecated_field_and_its_successor_force_the_local_zone() {
    let deprecated = zone_aware(|zone| zone.force_locality_direct_routing = true);
    let successor = zone_aware(|zone| zone.force_local_zone = Some(ForceLocalZone::default()));
    assert_eq!(deprecated, successor);
    let config = config(|parts| parts.locality_policy = deprecated);
    let mut driver = RESIDUAL.driver(&config, "a");
    assert_eq!(driver.explain().state, StateName::LocalityDirect);
    let tally = Tally::of(&mut driver.picker(6), 1_000);
    assert_eq!(tally.localities, [(zone("a"), 1_000)].into());
}

/// The fleet and the upstream cluster may be in different zones: a and b, and b, c and d.
#[test]
fn seed_002_zone_count_mismatch() {
    let example = Example {
        fleet: &[("a", 2), ("b", 2)],
        upstream: &[("b", 4), ("c", 2), ("d", 2)],
        demand: &[("a", 5000), ("b", 5000)],
    };
    let config = by_basis(LocalityBasis::HealthyHostsNum);
    // Zone b has half of both: all stays. Zone a has no host: all goes where capacity is spare.
    let explanation = example.explain(&config, "b");
    assert_eq!(explanation.state, StateName::LocalityDirect);
    let explanation = example.explain(&config, "a");
    assert_eq!(explanation.local_percent_to_route_bp, Some(0));
    let shares = by_zone(&explanation, |row| row.expected_share);
    for (name, share) in [("b", 0.0), ("c", 0.5), ("d", 0.5)] {
        assert_close(shares[name], share, 1e-12, name);
    }
    example.assert_load(&config, &[("b", 1.0), ("c", 1.0), ("d", 1.0)]);
}

/// One example for each reason why zone-aware routing is off (seed 002, "Preconditions").
#[test]
fn seed_002_preconditions() {
    use plimsoll_core::locality_picking::zone_aware::Reason;
    let three: Zones = &[("a", 2), ("b", 4), ("c", 2)];
    let reasons: [(Zones, Zones, Reason); 4] = [
        (&[("a", 9)], three, Reason::UpstreamFewerThan2Localities),
        (three, &[("a", 9)], Reason::LocalFewerThan2Localities),
        (
            three,
            &[("b", 4), ("c", 4)],
            Reason::LocalClusterHasNoHostInOwnLocality,
        ),
        (&[("a", 2), ("b", 3)], three, Reason::UpstreamTooSmall),
    ];
    for (upstream, fleet, reason) in reasons {
        let mut driver = Driver::new(config(|_| ()), "a");
        driver.originating(parts(fleet), at(0));
        driver.assignment(parts(upstream), at(0));
        let explanation = driver.explain();
        assert_eq!(explanation.reason_code, Some(reason));
        assert_eq!(
            explanation.state,
            StateName::NoLocalityRouting,
            "{reason:?}"
        );
        let failed = explanation.preconditions.iter().find(|test| !test.passed);
        assert_eq!(failed.map(|test| test.name), Some(reason));
        assert!(
            failed.is_some_and(|test| test.actual < test.required),
            "{reason:?}"
        );
        // Without localities every host has the same share.
        let hosts: usize = upstream.iter().map(|&(_, hosts)| hosts).sum();
        let picks = pick_sequence(&mut driver.picker(8), hosts);
        let distinct: std::collections::BTreeSet<_> = picks.into_iter().collect();
        assert_eq!(
            distinct.len(),
            hosts,
            "{reason:?}: one round visits every host"
        );
    }
}
