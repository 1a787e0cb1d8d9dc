//! The eight test cases that the design of `LRS_REPORTED_RATE` lists, under their original names,
//! through the public API: balancer, snapshot, explanation, picker.
//!
//! Each runs for every way to deliver fractions. Where the design contradicts itself, decisions
//! 0023, 0024 and 0004 are tested (partial fractions, explicit zero, deadline, dead band, no
//! capacity).
#![expect(non_snake_case, reason = "names from the design")]

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::event::Event;
use plimsoll_core::explain::{Explanation, FractionStatus, StateName};
use plimsoll_core::host::Host;
use plimsoll_core::locality_picking::fractions::FractionOrigin;
use plimsoll_core::locality_picking::zone_aware::{Residual, ZoneState};
use plimsoll_core::model::assignment::AssignmentParts;
use plimsoll_core::model::cluster::{ClusterConfig, LocalitySampling};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::zone_aware::{
    CapacityBasis, FractionSource, LocalityBasis, ZoneAwareParts,
};
use plimsoll_core::time::Instant;

use crate::support::{
    Driver, Tally, assert_close, at, by_basis, by_zone, checked, config, fractions, parts,
    pick_sequence, sampling_error, zone, zone_aware,
};

/// Fleet and upstream cluster of the worked example.
const EXAMPLE: [(&str, usize); 3] = [("a", 3), ("b", 5), ("c", 2)];
/// Where demand actually arrives in the example.
const DEMAND: [(&str, u64); 3] = [("a", 5000), ("b", 3500), ("c", 1500)];
/// The default staleness threshold.
const THRESHOLD: Duration = Duration::from_secs(60);

/// Ways to deliver fractions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Delivery {
    EdsField,
    LocalityMetadata,
    LrsResponse,
}

const DELIVERIES: [Delivery; 3] = [
    Delivery::EdsField,
    Delivery::LocalityMetadata,
    Delivery::LrsResponse,
];

impl Delivery {
    fn config(self, change: impl FnOnce(&mut ZoneAwareParts)) -> Arc<ClusterConfig> {
        let policy = zone_aware(|zone| {
            zone.locality_basis = LocalityBasis::LrsReportedRate;
            zone.lrs_rate_config.fraction_source = match self {
                Self::LocalityMetadata => FractionSource::LocalityMetadata,
                Self::EdsField | Self::LrsResponse => FractionSource::EdsField,
            };
            change(zone);
        });
        config(|parts| {
            parts.locality_policy = policy;
            // So that draws can be compared with those of the classic bases.
            parts.locality_sampling = Some(LocalitySampling::Random);
        })
    }

    const fn origin(self) -> FractionOrigin {
        match self {
            Self::EdsField => FractionOrigin::EdsField,
            Self::LocalityMetadata => FractionOrigin::LocalityMetadata,
            Self::LrsResponse => FractionOrigin::LrsResponse,
        }
    }

    /// Delivers the fleet and its fractions in this way.
    fn deliver(
        self,
        driver: &mut Driver,
        fleet: &[(&str, usize)],
        known: &[(&str, u64)],
        now: Instant,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if self == Self::LrsResponse {
            // The fleet's assignment arrives once, the fractions repeatedly.
            if driver.explain().zones.is_empty() {
                events.extend(driver.originating(parts(fleet), now));
            }
            driver
                .balancer
                .handle_observed_traffic(fractions(known), now);
            events.extend(driver.drain());
            return events;
        }
        driver.originating(self.fleet_with(fleet, known), now)
    }

    /// Returns the fleet's assignment, with fractions if they are delivered with it.
    fn fleet_with(self, fleet: &[(&str, usize)], known: &[(&str, u64)]) -> AssignmentParts {
        let mut fleet = parts(fleet);
        for &(name, bp) in known {
            let entry = fleet
                .endpoints
                .iter_mut()
                .find(|entry| entry.locality == zone(name))
                .expect("a fraction of a zone the fleet has");
            match self {
                Self::EdsField => entry.observed_traffic_fraction = Some(bp),
                Self::LocalityMetadata => {
                    let bp = u32::try_from(bp).expect("basis points");
                    entry.metadata_traffic_fraction = Some(f64::from(bp));
                }
                Self::LrsResponse => {}
            }
        }
        fleet
    }

    /// Creates a proxy in zone `own` of the worked example, with these fractions received at second
    /// 0.
    fn example(self, own: &str, known: &[(&str, u64)]) -> Driver {
        let mut driver = Driver::new(self.config(|_| ()), own);
        driver.assignment(parts(&EXAMPLE), at(0));
        self.deliver(&mut driver, &EXAMPLE, known, at(0));
        driver
    }
}

fn local_bp(explanation: &Explanation) -> Vec<u64> {
    by_zone(explanation, |row| row.local_bp)
        .into_values()
        .collect()
}

fn upstream_bp(explanation: &Explanation) -> Vec<u64> {
    by_zone(explanation, |row| row.upstream_bp)
        .into_values()
        .collect()
}

fn residual(driver: &mut Driver) -> Residual {
    let snapshot = driver.snapshot();
    let policy = snapshot.source_policy(0).expect("there is a priority 0");
    let ZoneState::LocalityResidual(residual) = &policy.zone.state else {
        unreachable!("{:?} is not LocalityResidual", policy.zone.state)
    };
    residual.clone()
}

fn hosts(driver: &mut Driver) -> Vec<Arc<Host>> {
    driver.snapshot().hosts().map(Arc::clone).collect()
}

/// Asserts that routing equals that by host counts, in every number and every pick.
fn assert_same_as_host_counts(driver: &mut Driver, own: &str, fleet: &[(&str, usize)]) {
    let mut classic = Driver::new(by_basis(LocalityBasis::HealthyHostsNum), own);
    classic.assignment(parts(&EXAMPLE), at(0));
    classic.originating(parts(fleet), at(0));
    let expected = classic.snapshot();
    let actual = driver.snapshot();
    assert_eq!(actual.source_policy(0), expected.source_policy(0), "{own}");
    let numbers = |explanation: &Explanation| {
        let bp = by_zone(explanation, |row| {
            (row.local_bp, row.upstream_bp, row.residual_bp)
        });
        (explanation.state, explanation.local_percent_to_route_bp, bp)
    };
    assert_eq!(
        numbers(&actual.explain()),
        numbers(&expected.explain()),
        "{own}"
    );
    let picks = |driver: &Driver| pick_sequence(&mut driver.picker(7), 500);
    assert_eq!(picks(driver), picks(&classic), "{own}");
}

#[test]
fn LrsReportedRate_FallsBackToHostCountWhenNoFractions() {
    // Fleets distributed unlike the hosts, so that zones spill by host counts alone: one by far,
    // one by a single point, which the dead band of measured demand would hide.
    let by_far = [("a", 5), ("b", 3), ("c", 2)];
    let by_a_point = [("a", 31), ("b", 49), ("c", 20)];
    for (delivery, (fleet, kept)) in DELIVERIES
        .into_iter()
        .flat_map(|delivery| [(delivery, (by_far, 6000)), (delivery, (by_a_point, 9677))])
    {
        for own in ["a", "b", "c"] {
            let mut driver = Driver::new(delivery.config(|_| ()), own);
            driver.assignment(parts(&EXAMPLE), at(0));
            let events = driver.originating(parts(&fleet), at(0));
            assert_same_as_host_counts(&mut driver, own, &fleet);
            let expected = if own == "a" { kept } else { 10_000 };
            let actual = driver.explain().local_percent_to_route_bp;
            assert_eq!(actual, Some(expected), "{delivery:?} in {own}");
            let stale = |event: &Event| matches!(event, Event::FractionsStale { .. });
            assert!(
                !events.iter().any(stale),
                "{delivery:?}: no warning without fractions"
            );
            assert_eq!(
                driver.balancer.poll_timeout(),
                None,
                "{delivery:?}: nothing can expire"
            );
            assert_eq!(driver.timeout(at(3600)), [], "{delivery:?}");
            assert_eq!(driver.explain().fractions.status, FractionStatus::Absent);
            assert_eq!(driver.balancer.stats().lrs_fractions_received.get(), 0);
        }
    }
    // A fraction in a place that is not configured is ignored.
    let pairs = [
        (Delivery::EdsField, Delivery::LocalityMetadata),
        (Delivery::LocalityMetadata, Delivery::EdsField),
    ];
    for (configured, sent) in pairs {
        let mut driver = Driver::new(configured.config(|_| ()), "a");
        driver.assignment(parts(&EXAMPLE), at(0));
        driver.originating(sent.fleet_with(&EXAMPLE, &DEMAND), at(0));
        assert_same_as_host_counts(&mut driver, "a", &EXAMPLE);
        assert_eq!(
            driver.explain().fractions.status,
            FractionStatus::Absent,
            "{configured:?}"
        );
    }
}

#[test]
fn LrsReportedRate_UsesFractionsForLocalPercentage() {
    for delivery in DELIVERIES {
        for own in ["a", "b", "c"] {
            let explanation = delivery.example(own, &DEMAND).explain();
            assert_eq!(
                local_bp(&explanation),
                [5000, 3500, 1500],
                "{delivery:?} in {own}"
            );
            assert_eq!(
                upstream_bp(&explanation),
                [3000, 5000, 2000],
                "{delivery:?} in {own}"
            );
            assert_eq!(explanation.fractions.status, FractionStatus::Fresh);
            assert_eq!(explanation.fractions.origin, Some(delivery.origin()));
            assert_eq!(explanation.fractions.age_ms, Some(0));
            assert_eq!(explanation.fractions.staleness_threshold_ms, Some(60_000));
        }
    }
    // Fractions for this cluster take precedence over those for the whole fleet while they are
    // fresh.
    let mut driver = Delivery::EdsField.example("a", &DEMAND);
    let own_view = fractions(&[("a", 2000), ("b", 2000), ("c", 6000)]);
    driver.balancer.handle_observed_traffic(own_view, at(10));
    driver.drain();
    assert_eq!(local_bp(&driver.explain()), [2000, 2000, 6000]);
    assert_eq!(
        driver.explain().fractions.origin,
        Some(FractionOrigin::LrsResponse)
    );
    driver.timeout(at(60));
    assert_eq!(
        local_bp(&driver.explain()),
        [2000, 2000, 6000],
        "only the fleet's fractions are stale"
    );
}

#[test]
fn LrsReportedRate_SkewedTrafficCausesResidualRouting() {
    for delivery in DELIVERIES {
        let mut driver = delivery.example("a", &[]);
        assert_eq!(
            driver.explain().state,
            StateName::LocalityDirect,
            "{delivery:?}"
        );
        let events = delivery.deliver(&mut driver, &EXAMPLE, &DEMAND, at(1));
        let explanation = driver.explain();
        assert_eq!(
            explanation.state,
            StateName::LocalityResidual,
            "{delivery:?}"
        );
        assert_eq!(explanation.local_percent_to_route_bp, Some(6000));
        assert_eq!(residual(&mut driver).local_percent_to_route, 6000);
        assert!(
            explanation.preconditions.iter().all(|test| test.passed),
            "{delivery:?}"
        );
        let changed = Event::ZoneRoutingChanged {
            cluster: "orders".into(),
            priority: 0,
            state: StateName::LocalityResidual,
            reason: None,
        };
        assert_eq!(events, [changed], "{delivery:?}");
        // Zones with more capacity than demand keep everything.
        for own in ["b", "c"] {
            let explanation = delivery.example(own, &DEMAND).explain();
            assert_eq!(
                explanation.state,
                StateName::LocalityDirect,
                "{delivery:?} in {own}"
            );
            assert_eq!(explanation.local_percent_to_route_bp, Some(10_000));
        }
        let mut picker = driver.picker(11);
        let share = Tally::of(&mut picker, 20_000).share(&zone("a"));
        assert_close(share, 0.6, sampling_error(0.6, 20_000), "kept local");
        let stats = picker.stats();
        let (kept, spilled) = (
            &stats.lb_zone_routing_sampled,
            &stats.lb_zone_routing_cross_zone,
        );
        assert_eq!(kept.get() + spilled.get(), 20_000, "{delivery:?}");
        assert_eq!(stats.lb_zone_routing_all_directly.get(), 0, "{delivery:?}");
    }
}

#[test]
fn LrsReportedRate_StaleFractionsFallBack() {
    for delivery in DELIVERIES {
        let mut driver = delivery.example("a", &DEMAND);
        assert_eq!(driver.balancer.poll_timeout(), Some(at(60)), "{delivery:?}");
        let before = Instant::from_nanos(at(60).as_nanos() - 1);
        assert_eq!(
            driver.timeout(before),
            [],
            "{delivery:?}: not stale a nanosecond before the deadline"
        );
        assert_eq!(driver.explain().state, StateName::LocalityResidual);
        assert_eq!(driver.balancer.poll_timeout(), Some(at(60)));

        let events = driver.timeout(at(60));
        let (origin, age, threshold) = (delivery.origin(), THRESHOLD, THRESHOLD);
        assert_eq!(
            events[0],
            Event::FractionsStale {
                origin,
                age,
                threshold
            },
            "{delivery:?}"
        );
        let direct = |event: &Event| {
            matches!(
                event,
                Event::ZoneRoutingChanged {
                    state: StateName::LocalityDirect,
                    ..
                }
            )
        };
        assert!(
            events.len() == 2 && direct(&events[1]),
            "{delivery:?}: {events:?}"
        );
        assert_same_as_host_counts(&mut driver, "a", &EXAMPLE);
        let explained = driver.explain().fractions;
        assert_eq!(
            (explained.status, explained.age_ms),
            (FractionStatus::Stale, Some(60_000))
        );
        assert_eq!(
            driver.balancer.poll_timeout(),
            None,
            "{delivery:?}: nothing left to expire"
        );
        assert_eq!(driver.timeout(at(600)), [], "{delivery:?}: reported once");
        assert_eq!(driver.balancer.stats().lrs_fractions_stale.get(), 1);

        // Recovery is immediate, and starts a new deadline.
        let events = delivery.deliver(&mut driver, &EXAMPLE, &DEMAND, at(700));
        assert_eq!(
            events[0],
            Event::FractionsRecovered { origin },
            "{delivery:?}"
        );
        assert_eq!(driver.explain().local_percent_to_route_bp, Some(6000));
        assert_eq!(driver.explain().fractions.status, FractionStatus::Fresh);
        assert_eq!(
            driver.balancer.poll_timeout(),
            Some(at(760)),
            "{delivery:?}"
        );
        let late = driver.timeout(at(775));
        let age = Duration::from_secs(75);
        assert_eq!(
            late[0],
            Event::FractionsStale {
                origin,
                age,
                threshold
            },
            "the actual age"
        );
    }
}

/// The threshold at the ends of its range, and repeated fractions, which confirm the previous ones.
#[test]
fn LrsReportedRate_StaleFractionsFallBack_at_the_configured_threshold() {
    for delivery in DELIVERIES {
        for seconds in [5, 600] {
            let threshold = Duration::from_secs(seconds);
            let config =
                delivery.config(|zone| zone.lrs_rate_config.staleness_threshold = Some(threshold));
            let mut driver = Driver::new(config, "a");
            driver.assignment(parts(&EXAMPLE), at(0));
            for repeat in 0..3 {
                let now = at(repeat * seconds / 2);
                delivery.deliver(&mut driver, &EXAMPLE, &DEMAND, now);
                let deadline = now.saturating_add(threshold);
                assert_eq!(
                    driver.balancer.poll_timeout(),
                    Some(deadline),
                    "{delivery:?}"
                );
                assert_eq!(driver.timeout(now), [], "{delivery:?}");
            }
            let deadline = driver.balancer.poll_timeout().expect("a deadline");
            let events = driver.timeout(deadline);
            let origin = delivery.origin();
            let expected = Event::FractionsStale {
                origin,
                age: threshold,
                threshold,
            };
            assert_eq!(events[0], expected, "{delivery:?}");
            assert_eq!(
                driver.explain().state,
                StateName::LocalityDirect,
                "{delivery:?}"
            );
        }
    }
}

#[test]
fn LrsReportedRate_PartialFractionsUseMixedSources() {
    for delivery in DELIVERIES {
        // Known shares stay; unknown zones share the rest by their hosts (5 and 2 of 7).
        let mut driver = delivery.example("a", &[("a", 5000)]);
        let explanation = driver.explain();
        assert_eq!(local_bp(&explanation), [5000, 3571, 1428], "{delivery:?}");
        assert_eq!(
            explanation.local_percent_to_route_bp,
            Some(6000),
            "not 30 %: fractions and host counts do not mix"
        );
        assert_eq!(explanation.fractions.status, FractionStatus::Partial);
        assert!(
            driver.balancer.stats().lrs_fractions_partial.get() > 0,
            "{delivery:?}"
        );
        // An explicit zero is known: zone a issues nothing, b and c share everything.
        let explanation = delivery.example("a", &[("a", 0)]).explain();
        assert_eq!(local_bp(&explanation), [0, 7142, 2857], "{delivery:?}");
        assert_eq!(explanation.state, StateName::LocalityDirect);
        // Fractions above 100 % in total leave nothing for unknown zones.
        let explanation = delivery.example("a", &[("a", 9000), ("b", 6000)]).explain();
        assert_eq!(local_bp(&explanation), [6000, 4000, 0], "{delivery:?}");
        // All fractions known and zero count as no data.
        let zeros = [("a", 0), ("b", 0), ("c", 0)];
        let mut driver = delivery.example("a", &zeros);
        assert_same_as_host_counts(&mut driver, "a", &EXAMPLE);
        assert_eq!(
            driver.explain().fractions.status,
            FractionStatus::AllZero,
            "{delivery:?}"
        );
        assert!(
            driver.balancer.stats().lrs_fractions_all_zero.get() > 0,
            "{delivery:?}"
        );
    }
}

/// Fractions do not depend on host lists: a zone whose proxies are all unhealthy keeps its demand,
/// and an unknown zone without healthy proxies is not estimated.
#[test]
fn LrsReportedRate_PartialFractionsUseMixedSources_without_healthy_fleet_hosts() {
    let sick = |mut fleet: AssignmentParts| {
        let endpoints = fleet
            .endpoints
            .iter_mut()
            .filter(|entry| entry.locality == zone("c"));
        for endpoint in endpoints.flat_map(|entry| &mut entry.lb_endpoints) {
            endpoint.health_status = HealthStatus::Unhealthy;
        }
        fleet
    };
    for delivery in [Delivery::EdsField, Delivery::LocalityMetadata] {
        let mut driver = delivery.example("a", &[]);
        driver.originating(sick(delivery.fleet_with(&EXAMPLE, &DEMAND)), at(1));
        assert_eq!(
            local_bp(&driver.explain()),
            [5000, 3500, 1500],
            "{delivery:?}"
        );
        driver.originating(sick(delivery.fleet_with(&EXAMPLE, &[("a", 5000)])), at(2));
        assert_eq!(
            local_bp(&driver.explain()),
            [5000, 5000, 0],
            "{delivery:?}: b gets the rest"
        );
    }
}

#[test]
fn LrsReportedRate_FractionsUpdateOnEds() {
    for delivery in DELIVERIES {
        let mut driver = delivery.example("a", &DEMAND);
        assert_eq!(
            driver.explain().local_percent_to_route_bp,
            Some(6000),
            "{delivery:?}"
        );
        let (hosts_before, before) = (hosts(&mut driver), driver.snapshot().generation());

        let shifted = [("a", 4000), ("b", 4000), ("c", 2000)];
        delivery.deliver(&mut driver, &EXAMPLE, &shifted, at(20));
        let explanation = driver.explain();
        assert_eq!(local_bp(&explanation), [4000, 4000, 2000], "{delivery:?}");
        assert_eq!(
            explanation.local_percent_to_route_bp,
            Some(7500),
            "{delivery:?}"
        );
        assert!(
            explanation.generation > before,
            "{delivery:?}: a new snapshot"
        );
        assert_eq!(
            driver.balancer.poll_timeout(),
            Some(at(80)),
            "{delivery:?}: timer restarted"
        );
        let same = hosts_before
            .iter()
            .zip(hosts(&mut driver))
            .all(|(a, b)| Arc::ptr_eq(a, &b));
        assert!(same, "{delivery:?}: a fraction-only update changes no host");

        // Repeating the same fractions refreshes their age and nothing else.
        delivery.deliver(&mut driver, &EXAMPLE, &shifted, at(40));
        assert_eq!(
            driver.balancer.poll_timeout(),
            Some(at(100)),
            "{delivery:?}"
        );
        assert_eq!(driver.explain().fractions.age_ms, Some(0), "{delivery:?}");
        assert_eq!(
            driver.balancer.stats().lrs_fractions_received.get(),
            3,
            "{delivery:?}"
        );

        // An update without fractions withdraws them: no data, and no warning.
        let events = delivery.deliver(&mut driver, &EXAMPLE, &[], at(50));
        assert_same_as_host_counts(&mut driver, "a", &EXAMPLE);
        assert_eq!(
            driver.explain().fractions.status,
            FractionStatus::Absent,
            "{delivery:?}"
        );
        assert_eq!(driver.balancer.poll_timeout(), None, "{delivery:?}");
        let stale = |event: &Event| matches!(event, Event::FractionsStale { .. });
        assert!(!events.iter().any(stale), "{delivery:?}: {events:?}");
    }
}

#[test]
fn LrsReportedRate_UpstreamUsesHostCountsRegardless() {
    for delivery in DELIVERIES {
        let mut driver = delivery.example("a", &DEMAND);
        // Weights of hosts and localities do not affect the capacity side.
        let mut weighted = parts(&EXAMPLE);
        for (index, entry) in (1..).zip(&mut weighted.endpoints) {
            entry.load_balancing_weight = Some(index * 10);
            entry.lb_endpoints[0].load_balancing_weight = Some(100 * index);
        }
        driver.assignment(weighted.clone(), at(1));
        assert_eq!(
            upstream_bp(&driver.explain()),
            [3000, 5000, 2000],
            "{delivery:?}"
        );
        // The number of healthy hosts does.
        let mut sick = weighted.clone();
        sick.endpoints[1].lb_endpoints[0].health_status = HealthStatus::Unhealthy;
        sick.endpoints[1].lb_endpoints[1].health_status = HealthStatus::Draining;
        driver.assignment(sick, at(2));
        assert_eq!(
            upstream_bp(&driver.explain()),
            [3750, 3750, 2500],
            "{delivery:?}"
        );
        assert_eq!(
            local_bp(&driver.explain()),
            [5000, 3500, 1500],
            "demand stays measured"
        );
        // Fractions in the assignment of the *upstream* cluster are ignored.
        let mut stray = weighted.clone();
        stray.endpoints[0].observed_traffic_fraction = Some(9999);
        stray.endpoints[0].metadata_traffic_fraction = Some(9999.0);
        driver.assignment(stray, at(3));
        assert_eq!(
            local_bp(&driver.explain()),
            [5000, 3500, 1500],
            "{delivery:?}"
        );
        // Weights count if configured (an extension), and only while demand is measured.
        let by_weight = delivery
            .config(|zone| zone.upstream_locality_basis = CapacityBasis::HealthyHostsWeight);
        driver.balancer.handle_config(by_weight, at(4));
        driver.assignment(weighted, at(4));
        // a: 100+2, b: 200+4, c: 300+1, of 607.
        assert_eq!(
            upstream_bp(&driver.explain()),
            [1680, 3360, 4958],
            "{delivery:?}"
        );
        driver.timeout(at(60));
        assert_eq!(
            upstream_bp(&driver.explain()),
            [3000, 5000, 2000],
            "{delivery:?}"
        );
    }
}

#[test]
fn LrsReportedRate_SpilloverDistribution() {
    for delivery in DELIVERIES {
        let mut driver = delivery.example("a", &DEMAND);
        let split = residual(&mut driver);
        assert_eq!(
            split.capacity,
            [0, 150_000_000, 200_000_000],
            "{delivery:?}: local locality first, cumulative"
        );
        let spare: Vec<u64> = driver
            .explain()
            .localities
            .iter()
            .map(|l| l.residual_bp)
            .collect();
        assert_eq!(spare, [0, 1500, 500], "{delivery:?}");
        let picks = 40_000;
        let tally = Tally::of(&mut driver.picker(3), picks);
        for (name, share) in [("a", 0.6), ("b", 0.3), ("c", 0.1)] {
            let actual = tally.share(&zone(name));
            assert_close(actual, share, sampling_error(share, picks), name);
        }
        assert_eq!(tally.failed, 0, "{delivery:?}");
        // A zone that is short of capacity itself takes nothing from others.
        let two_short = [("a", 4000), ("b", 5500), ("c", 500)];
        delivery.deliver(&mut driver, &EXAMPLE, &two_short, at(1));
        let capacity = residual(&mut driver).capacity;
        assert_eq!(capacity, [0, 0, 150_000_000], "{delivery:?}");
        let tally = Tally::of(&mut driver.picker(4), 4_000);
        assert!(
            !tally.localities.contains_key(&zone("b")),
            "{delivery:?}: {tally:?}"
        );
    }
}

/// A zone without upstream hosts while the others are exactly full: requests spill by capacity, not
/// to a locality chosen uniformly (decision 0004).
#[test]
fn LrsReportedRate_SpilloverDistribution_without_spare_capacity() {
    let fleet = [("a", 2), ("b", 2), ("c", 2)];
    let upstream = [("a", 1), ("b", 6), ("c", 2)];
    let mut assignment = parts(&upstream);
    assignment.endpoints[0].lb_endpoints[0].health_status = HealthStatus::Unhealthy;
    for delivery in DELIVERIES {
        let mut driver = Driver::new(delivery.config(|_| ()), "a");
        driver
            .balancer
            .handle_assignment(checked(assignment.clone()), at(0));
        driver.drain();
        let full = [("a", 0), ("b", 7500), ("c", 2500)];
        delivery.deliver(&mut driver, &fleet, &full, at(0));
        let split = residual(&mut driver);
        assert_eq!(
            (split.local_percent_to_route, split.capacity.last()),
            (0, Some(&0))
        );
        assert_eq!(
            split.no_capacity,
            Some(vec![0, 750_000_000, 1_000_000_000]),
            "{delivery:?}"
        );
        let mut picker = driver.picker(5);
        let tally = Tally::of(&mut picker, 20_000);
        let share = tally.share(&zone("b"));
        assert_close(share, 0.75, sampling_error(0.75, 20_000), "share of b");
        assert_eq!(
            tally.failed, 0,
            "{delivery:?}: never to a locality without healthy hosts"
        );
        assert_eq!(
            picker.stats().lb_zone_no_capacity_left.get(),
            20_000,
            "{delivery:?}"
        );
    }
}

/// The dead band keeps Direct while demand exceeds capacity by at most the band, a share of that
/// capacity (decision 0004).
#[test]
fn LrsReportedRate_dead_band_at_its_edge() {
    for (band, demand, state) in [
        (None, 3090, StateName::LocalityDirect),
        (None, 3091, StateName::LocalityResidual),
        (Some(0), 3000, StateName::LocalityDirect),
        (Some(0), 3001, StateName::LocalityResidual),
        (Some(6667), 5000, StateName::LocalityDirect),
    ] {
        for delivery in DELIVERIES {
            let config = delivery.config(|zone| zone.dead_band_bp = band);
            let mut driver = Driver::new(config, "a");
            driver.assignment(parts(&EXAMPLE), at(0));
            let known = [("a", demand), ("b", 8000 - demand), ("c", 2000)];
            delivery.deliver(&mut driver, &EXAMPLE, &known, at(0));
            assert_eq!(
                driver.explain().state,
                state,
                "{band:?} {demand} {delivery:?}"
            );
        }
    }
}
