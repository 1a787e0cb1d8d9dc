//! load_aware_locality and client-side weights through the public API, with host reports as input,
//! the balancer's own timers, and picks as output.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::{FractionStatus, StateName};
use plimsoll_core::host::RequestOutcome;
use plimsoll_core::host_source::HostSource;
use plimsoll_core::locality_picking::zone_aware::Reason;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts,
};
use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, LocalityPolicy, LocalitySampling,
};
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, RingHash,
};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::load_aware_locality::{
    LoadAwareLocality, LoadAwareLocalityParts, SpillController,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::picker::{PickArgs, PickResult, Picker};
use plimsoll_core::publish::{Publisher, Reader, channel};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;

/// A cluster of zones a, b, c seen from a, with virtual time.
struct Setup {
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
    config: Arc<ClusterConfig>,
    now: Instant,
}

impl Setup {
    fn new(config: ClusterConfigParts, hosts: [u8; 3]) -> Self {
        let config = ClusterConfigParts {
            name: "orders".into(),
            ..config
        };
        let config = Arc::new(ClusterConfig::try_new(config).expect("valid"));
        let now = Instant::from_secs(1000);
        let balancer = Balancer::new(Arc::clone(&config), Locality::zone_only("a"), now);
        let (publisher, reader) = channel(balancer.initial_snapshot(now));
        let mut setup = Self {
            balancer,
            publisher,
            reader,
            config,
            now,
        };
        setup.balancer.handle_assignment(assignment(hosts), now);
        setup.publish();
        setup
    }

    fn publish(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
    }

    fn snapshot(&mut self) -> Arc<RoutingSnapshot> {
        Arc::clone(self.reader.latest())
    }

    /// Reports the utilization for every host of a zone.
    fn report(&mut self, zone: &str, utilization: f64) {
        let report = OrcaLoadReport {
            application_utilization: utilization,
            ..Default::default()
        };
        for host in self
            .snapshot()
            .hosts()
            .filter(|host| host.locality().zone() == zone)
        {
            host.observe_orca(&report, &self.config, self.now);
        }
    }

    /// Advances time, firing every timer when it is due.
    fn pass(&mut self, seconds: u64) {
        let end = self.now.saturating_add(Duration::from_secs(seconds));
        while let Some(deadline) = self.balancer.poll_timeout().filter(|&at| at <= end) {
            self.now = deadline.max(self.now);
            self.balancer.handle_timeout(self.now);
            self.publish();
        }
        self.now = end;
    }

    /// Returns the shares of 20,000 picks per zone.
    fn shares(&self) -> [f64; 3] {
        let mut picker = Picker::new(self.reader.clone(), Xoshiro256::from_seed(3));
        let mut counts = [0.0; 3];
        for _ in 0..20_000 {
            let host = picker.pick(PickArgs::default()).host().expect("valid");
            let zone = ["a", "b", "c"]
                .iter()
                .position(|zone| *zone == host.locality().zone());
            counts[zone.expect("valid")] += 1.0 / 20_000.0;
        }
        counts
    }
}

fn address(zone: u8, host: u8) -> SocketAddr {
    SocketAddr::from(([10, zone, 0, host], 80))
}

fn assignment(hosts: [u8; 3]) -> ClusterLoadAssignment {
    let entry = |(zone, (name, hosts)): (u8, (&str, u8))| LocalityParts {
        locality: Locality::zone_only(name),
        lb_endpoints: (1..=hosts)
            .map(|host| LbEndpoint::new(address(zone, host)))
            .collect(),
        ..Default::default()
    };
    let zones = (0..).zip(["a", "b", "c"].into_iter().zip(hosts));
    let endpoints = zones
        .map(entry)
        .filter(|entry| !entry.lb_endpoints.is_empty())
        .collect();
    let parts = AssignmentParts {
        cluster_name: "orders".into(),
        endpoints,
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(parts).expect("valid")
}

fn load_aware(change: impl FnOnce(&mut LoadAwareLocalityParts)) -> ClusterConfigParts {
    let mut parts = LoadAwareLocalityParts::default();
    change(&mut parts);
    let settings = LoadAwareLocality::try_new(parts).expect("valid");
    ClusterConfigParts {
        locality_policy: LocalityPolicy::LoadAwareLocality(settings),
        ..Default::default()
    }
}

fn near(actual: [f64; 3], expected: [f64; 3], tolerance: f64) {
    let off = actual
        .iter()
        .zip(expected)
        .any(|(a, e)| (a - e).abs() > tolerance);
    assert!(!off, "{actual:?}, expected {expected:?}");
}

#[test]
fn worked_example_of_seed_001() {
    let mut setup = Setup::new(load_aware(|_| ()), [10, 10, 10]);
    near(setup.shares(), [0.97, 0.015, 0.015], 0.01);
    for (zone, utilization) in [("a", 0.7), ("b", 0.3), ("c", 0.4)] {
        setup.report(zone, utilization);
    }
    setup.pass(1);
    near(setup.shares(), [0.1875, 0.4375, 0.375], 0.015);
    let explanation = setup.snapshot().explain();
    assert_eq!(explanation.reason_code, Some(Reason::LoadAwareLocality));
    let utilization = explanation.localities[0].utilization.unwrap();
    assert!((utilization - 0.7).abs() < 1e-9, "{utilization}");
    assert!((explanation.localities[1].expected_share - 0.4375).abs() < 1e-9);
    let factor = explanation.localities[0].load_factor.unwrap();
    assert!((factor - 1.5).abs() < 1e-9, "{factor}");
    let stats = setup.balancer.load_aware_stats();
    assert_eq!(
        (stats.recompute_total.get(), stats.spill_active_total.get()),
        (2, 1)
    );
}

#[test]
fn low_discrepancy_sampling_takes_the_same_shares_evenly() {
    let mut config = load_aware(|_| ());
    config.locality_sampling = Some(LocalitySampling::LowDiscrepancy);
    let mut setup = Setup::new(config, [10, 10, 10]);
    for (zone, utilization) in [("a", 0.7), ("b", 0.3), ("c", 0.4)] {
        setup.report(zone, utilization);
    }
    setup.pass(1);
    near(setup.shares(), [0.1875, 0.4375, 0.375], 0.001);
}

#[test]
fn membership_between_ticks_keeps_the_weights_by_locality() {
    let mut setup = Setup::new(
        load_aware(|parts| parts.remote_probe_fraction = Some(0.0)),
        [2, 2, 2],
    );
    for (zone, utilization) in [("a", 0.9), ("b", 0.1), ("c", 0.9)] {
        setup.report(zone, utilization);
    }
    setup.pass(1);
    near(setup.shares(), [0.09, 0.82, 0.09], 0.02);
    // Zone a is removed: its share goes to the next locality until the next tick.
    setup
        .balancer
        .handle_assignment(assignment([0, 2, 2]), setup.now);
    setup.publish();
    near(setup.shares(), [0.0, 0.9, 0.1], 0.02);
    setup.pass(1);
    assert_eq!(
        setup.snapshot().explain().state,
        StateName::LoadAwareLocality
    );
}

#[test]
fn a_locality_with_expired_reports_counts_by_its_hosts() {
    let expiring = load_aware(|parts| {
        parts.weight_expiration_period = Some(Duration::from_secs(10));
        parts.remote_probe_fraction = Some(0.0);
    });
    let mut setup = Setup::new(expiring, [2, 2, 2]);
    for (zone, utilization) in [("a", 0.9), ("b", 0.5), ("c", 0.5)] {
        setup.report(zone, utilization);
    }
    setup.pass(11);
    assert!(setup.balancer.load_aware_stats().stale_locality_total.get() >= 3);
    near(setup.shares(), [0.333, 0.333, 0.333], 0.02);
}

#[test]
fn panic_uses_all_hosts_of_the_chosen_locality() {
    let mut setup = Setup::new(load_aware(|_| ()), [2, 2, 2]);
    for zone in 0..3 {
        setup
            .balancer
            .handle_health(address(zone, 1), HealthSignal::OutlierEjected, setup.now);
        setup
            .balancer
            .handle_health(address(zone, 2), HealthSignal::OutlierEjected, setup.now);
    }
    setup.publish();
    let mut picker = Picker::new(setup.reader.clone(), Xoshiro256::from_seed(3));
    match picker.pick(PickArgs::default()) {
        PickResult::Complete(pick) => {
            assert!(
                matches!(pick.source, HostSource::LocalityAllHosts(_)),
                "{:?}",
                pick.source
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(picker.stats().lb_healthy_panic.get(), 1);
}

#[test]
fn a_hash_policy_hashes_within_the_chosen_locality() {
    let ring = RingHash::try_new(
        HashFunction::XxHash,
        None,
        None,
        ConsistentHashing::default(),
    );
    let mut config = load_aware(|parts| parts.remote_probe_fraction = Some(0.0));
    config.endpoint_policy = EndpointPolicy::RingHash(ring.unwrap());
    let mut setup = Setup::new(config, [4, 4, 4]);
    for zone in ["a", "b", "c"] {
        setup.report(zone, 0.2);
    }
    setup.pass(1);
    let mut picker = Picker::new(setup.reader.clone(), Xoshiro256::from_seed(3));
    for hash in 0..200_u64 {
        let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let args = PickArgs {
            hash: Some(hash),
            avoid: &[],
            ..Default::default()
        };
        let host = Arc::clone(picker.pick(args).host().unwrap());
        assert_eq!(host.locality().zone(), "a", "everything stays local");
        assert!(
            Arc::ptr_eq(picker.pick(args).host().unwrap(), &host),
            "and sticky"
        );
        let tried = [host];
        let args = PickArgs {
            hash: Some(hash),
            avoid: &tried,
            ..Default::default()
        };
        assert!(!Arc::ptr_eq(picker.pick(args).host().unwrap(), &tried[0]));
    }
}

#[test]
fn changing_the_policy_starts_and_stops_the_timer() {
    let mut setup = Setup::new(load_aware(|_| ()), [2, 2, 2]);
    assert!(setup.balancer.poll_timeout().is_some());
    let plain = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    setup
        .balancer
        .handle_config(Arc::new(ClusterConfig::try_new(plain).unwrap()), setup.now);
    setup.publish();
    assert_eq!(setup.balancer.poll_timeout(), None);
    near(setup.shares(), [0.333, 0.333, 0.333], 0.02);
}

#[test]
fn convergent_spills_from_a_hot_zone_gradually_and_returns() {
    let mut setup = Setup::new(
        load_aware(|p| p.spill_controller = SpillController::Convergent),
        [4, 4, 4],
    );
    for _ in 0..30 {
        for (zone, utilization) in [("a", 0.9), ("b", 0.5), ("c", 0.4)] {
            setup.report(zone, utilization);
        }
        setup.pass(1);
    }
    let spilled = setup.shares();
    assert!(spilled[0] < 0.6 && spilled[0] >= 0.03, "{spilled:?}");
    assert!(
        spilled[2] > spilled[1],
        "more goes where more capacity is spare: {spilled:?}"
    );
    for _ in 0..60 {
        for (zone, utilization) in [("a", 0.3), ("b", 0.5), ("c", 0.5)] {
            setup.report(zone, utilization);
        }
        setup.pass(1);
    }
    assert!(setup.shares()[0] > 0.9, "{:?}", setup.shares());
}

#[test]
fn measured_demand_feeds_the_controller_forward() {
    let mut setup = Setup::new(
        load_aware(|p| p.spill_controller = SpillController::Convergent),
        [3, 5, 2],
    );
    let fractions = [("a", 5000), ("b", 3500), ("c", 1500)];
    let mut fleet = AssignmentParts {
        cluster_name: "fleet".into(),
        ..Default::default()
    };
    for (index, (zone, fraction)) in (100..).zip(fractions) {
        fleet.endpoints.push(LocalityParts {
            locality: Locality::zone_only(zone),
            lb_endpoints: vec![LbEndpoint::new(address(index, 1))],
            observed_traffic_fraction: Some(fraction),
            ..Default::default()
        });
    }
    let fleet = ClusterLoadAssignment::try_new(fleet).unwrap();
    let mut alone = Setup::new(
        load_aware(|p| {
            p.spill_controller = SpillController::Convergent;
            p.demand_feed_forward = Some(false);
        }),
        [3, 5, 2],
    );
    for setup in [&mut setup, &mut alone] {
        for _ in 0..10 {
            setup
                .balancer
                .handle_fleet_assignment(fleet.clone(), setup.now);
            setup.publish();
            setup.pass(1);
        }
    }
    near(setup.shares(), [0.6, 0.3, 0.1], 0.05);
    let explained = setup.snapshot().explain_at(setup.now).fractions;
    assert_eq!(explained.status, FractionStatus::FeedForward);
    assert_eq!(explained.staleness_threshold_ms, Some(60_000));
    // Disabled, the same fractions change nothing.
    near(alone.shares(), [0.97, 0.02, 0.01], 0.01);
    let explained = alone.snapshot().explain_at(alone.now).fractions;
    assert_eq!(explained.status, FractionStatus::Unused);
    // After a minute without fractions, only host reports are left.
    setup.pass(61);
    let explained = setup.snapshot().explain_at(setup.now).fractions;
    assert_eq!(explained.status, FractionStatus::Stale);
}

#[test]
fn client_side_weights_follow_reports_under_any_locality_policy() {
    let settings = ClientSideWeightedRoundRobinParts {
        blackout_period: Some(Duration::ZERO),
        ..Default::default()
    };
    let settings = ClientSideWeightedRoundRobin::try_new(settings).unwrap();
    let policy = EndpointPolicy::ClientSideWeightedRoundRobin(settings);
    for config in [load_aware(|_| ()), ClusterConfigParts::default()] {
        let config = ClusterConfigParts {
            endpoint_policy: policy.clone(),
            ..config
        };
        let mut setup = Setup::new(config, [2, 0, 0]);
        let snapshot = setup.snapshot();
        for (host, utilization) in snapshot.hosts().zip([0.25, 0.75]) {
            let report = OrcaLoadReport {
                application_utilization: utilization,
                rps_fractional: 300.0,
                ..Default::default()
            };
            assert!(host.observe_orca(&report, &setup.config, setup.now));
        }
        setup.pass(2);
        let weights: Vec<u32> = setup.snapshot().hosts().map(|host| host.weight()).collect();
        assert_eq!(weights, [1200, 400]);
        let mut picker = Picker::new(setup.reader.clone(), Xoshiro256::from_seed(1));
        let light = (0..400)
            .filter(|_| picker.pick(PickArgs::default()).host().unwrap().weight() == 400)
            .count();
        assert_eq!(light, 100, "three to one");
    }
}

#[test]
fn weights_are_shown_by_locality_and_source() {
    let mut setup = Setup::new(load_aware(|_| ()), [2, 1, 1]);
    setup.report("a", 0.75);
    setup.pass(1);
    let weights = |snapshot: &RoutingSnapshot, source| {
        let weights = snapshot.load_aware_weights(0, source).unwrap();
        let by_zone: Vec<_> = weights
            .weights
            .iter()
            .map(|(locality, weight)| (locality.zone().to_owned(), *weight))
            .collect();
        (by_zone, weights.all_local)
    };
    let expected = [("a", 0.5), ("b", 1.0), ("c", 1.0)].map(|(zone, w)| (zone.to_owned(), w));
    let snapshot = setup.snapshot();
    for source in [HostSource::HealthyHosts, HostSource::AllHosts] {
        assert_eq!(weights(&snapshot, source), (expected.to_vec(), false));
    }
    let nobody = weights(&snapshot, HostSource::DegradedHosts).0;
    assert!(nobody.iter().all(|&(_, weight)| weight == 0.0));
    assert_eq!(snapshot.load_aware_weights(1, HostSource::AllHosts), None);
    let mut flat = Setup::new(ClusterConfigParts::default(), [2, 1, 1]);
    assert_eq!(
        flat.snapshot().load_aware_weights(0, HostSource::AllHosts),
        None
    );
}

/// Envoy's workers count a pick only if the weights in force cover its priority.
#[test]
fn picks_at_a_priority_without_weights_are_not_counted() {
    let mut setup = Setup::new(load_aware(|_| ()), [1, 1, 0]);
    let entry = LocalityParts {
        locality: Locality::zone_only("a"),
        priority: 1,
        lb_endpoints: vec![LbEndpoint::new(address(0, 1))],
        ..Default::default()
    };
    let parts = AssignmentParts {
        endpoints: vec![entry],
        ..Default::default()
    };
    let moved = ClusterLoadAssignment::try_new(parts).unwrap();
    setup.balancer.handle_assignment(moved, setup.now);
    setup.publish();
    let counted = |setup: &Setup| {
        let mut picker = Picker::new(setup.reader.clone(), Xoshiro256::from_seed(5));
        for _ in 0..10 {
            let PickResult::Complete(pick) = picker.pick(PickArgs::default()) else {
                panic!("no host")
            };
            assert_eq!((pick.priority, pick.local), (1, true));
        }
        let stats = picker.stats();
        [
            &stats.lb_zone_routing_all_directly,
            &stats.lb_zone_routing_sampled,
            &stats.lb_zone_routing_cross_zone,
        ]
        .map(plimsoll_core::stats::Counter::get)
    };
    assert_eq!(counted(&setup), [0, 0, 0]);
    setup.pass(1);
    assert_eq!(counted(&setup), [0, 10, 0]);
}

#[test]
fn a_report_sets_the_weight_of_the_host() {
    let child = ClientSideWeightedRoundRobin::default();
    let config = ClusterConfigParts {
        endpoint_policy: EndpointPolicy::ClientSideWeightedRoundRobin(child),
        ..load_aware(|_| ())
    };
    let mut setup = Setup::new(config, [1, 1, 1]);
    let host = setup.snapshot().hosts().next().unwrap().clone();
    assert_eq!((host.orca_weight(), host.utilization()), (None, None));
    let report = OrcaLoadReport {
        application_utilization: 0.5,
        rps_fractional: 100.0,
        ..Default::default()
    };
    assert!(host.observe_orca(&report, &setup.config, setup.now));
    assert_eq!(host.orca_weight(), Some(200));
    assert_eq!(host.utilization(), Some((0.5, setup.now)));
    assert_eq!(host.weight(), 1, "used only after the blackout");
}

/// Zone b has no load because its hosts answer errors at once, as the proxy's own requests show.
#[test]
fn a_zone_that_answers_errors_at_once_gets_no_more_requests() {
    for controller in [SpillController::Convergent, SpillController::Headroom] {
        let config = load_aware(|parts| parts.spill_controller = controller);
        let mut setup = Setup::new(config, [4, 4, 4]);
        let mut share = 0.0;
        for second in 0..150 {
            let fails = second >= 30;
            setup.report("a", 0.9);
            setup.report("b", if fails { 0.01 } else { 0.6 });
            setup.report("c", 0.6);
            let mut picker = Picker::new(setup.reader.clone(), Xoshiro256::from_seed(second));
            for _ in 0..60 {
                let host = picker
                    .pick(PickArgs::default())
                    .host()
                    .expect("valid")
                    .clone();
                let outcome = if fails && host.locality().zone() == "b" {
                    RequestOutcome::Error
                } else {
                    RequestOutcome::Success
                };
                host.begin_request().finish(outcome);
            }
            setup.pass(1);
            if second >= 60 {
                share = f64::max(share, setup.shares()[1]);
            }
        }
        // A third of the hosts; with headroom, c has more of it than the average of a and c.
        assert!((0.25..0.36).contains(&share), "{controller:?}: {share}");
        let reason = setup.snapshot().explain_at(setup.now).reason;
        let is_silent = controller == SpillController::Convergent;
        assert_eq!(
            reason.contains("b by host counts, to which requests fail"),
            is_silent
        );
        assert_eq!(
            setup.balancer.load_aware_stats().stale_locality_total.get(),
            0
        );
    }
}
