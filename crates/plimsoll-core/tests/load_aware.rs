//! load_aware_locality and client-side weights through the public API: reports in by the hosts,
//! ticks by the balancer's own timers, picks out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::{FractionStatus, StateName};
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
struct Rig {
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
    config: Arc<ClusterConfig>,
    now: Instant,
}

impl Rig {
    fn new(config: ClusterConfigParts, hosts: [u8; 3]) -> Self {
        let config = ClusterConfigParts {
            name: "orders".into(),
            ..config
        };
        let config = Arc::new(ClusterConfig::try_new(config).expect("valid"));
        let now = Instant::from_secs(1000);
        let balancer = Balancer::new(Arc::clone(&config), Locality::zone_only("a"), now);
        let (publisher, reader) = channel(balancer.initial_snapshot(now));
        let mut rig = Self {
            balancer,
            publisher,
            reader,
            config,
            now,
        };
        rig.balancer.handle_assignment(assignment(hosts), now);
        rig.publish();
        rig
    }

    fn publish(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
    }

    fn snapshot(&mut self) -> Arc<RoutingSnapshot> {
        Arc::clone(self.reader.latest())
    }

    /// Every host of a zone reports that utilization.
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

    /// Lets so many seconds pass, firing every timer on time.
    fn pass(&mut self, seconds: u64) {
        let end = self.now.saturating_add(Duration::from_secs(seconds));
        while let Some(deadline) = self.balancer.poll_timeout().filter(|&at| at <= end) {
            self.now = deadline.max(self.now);
            self.balancer.handle_timeout(self.now);
            self.publish();
        }
        self.now = end;
    }

    /// Shares of 20,000 picks per zone.
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
    let mut rig = Rig::new(load_aware(|_| ()), [10, 10, 10]);
    near(rig.shares(), [0.97, 0.015, 0.015], 0.01);
    for (zone, utilization) in [("a", 0.7), ("b", 0.3), ("c", 0.4)] {
        rig.report(zone, utilization);
    }
    rig.pass(1);
    near(rig.shares(), [0.1875, 0.4375, 0.375], 0.015);
    let explanation = rig.snapshot().explain();
    assert_eq!(explanation.reason_code, Some(Reason::LoadAwareLocality));
    let utilization = explanation.localities[0].utilization.unwrap();
    assert!((utilization - 0.7).abs() < 1e-9, "{utilization}");
    assert!((explanation.localities[1].expected_share - 0.4375).abs() < 1e-9);
    let factor = explanation.localities[0].load_factor.unwrap();
    assert!((factor - 1.5).abs() < 1e-9, "{factor}");
    let stats = rig.balancer.load_aware_stats();
    assert_eq!(
        (stats.recompute_total.get(), stats.spill_active_total.get()),
        (2, 1)
    );
}

#[test]
fn low_discrepancy_sampling_takes_the_same_shares_evenly() {
    let mut config = load_aware(|_| ());
    config.locality_sampling = Some(LocalitySampling::LowDiscrepancy);
    let mut rig = Rig::new(config, [10, 10, 10]);
    for (zone, utilization) in [("a", 0.7), ("b", 0.3), ("c", 0.4)] {
        rig.report(zone, utilization);
    }
    rig.pass(1);
    near(rig.shares(), [0.1875, 0.4375, 0.375], 0.001);
}

#[test]
fn membership_between_ticks_keeps_the_weights_by_locality() {
    let mut rig = Rig::new(
        load_aware(|parts| parts.remote_probe_fraction = Some(0.0)),
        [2, 2, 2],
    );
    for (zone, utilization) in [("a", 0.9), ("b", 0.1), ("c", 0.9)] {
        rig.report(zone, utilization);
    }
    rig.pass(1);
    near(rig.shares(), [0.09, 0.82, 0.09], 0.02);
    // Zone a goes away: what was its share goes to the next locality until the next tick.
    rig.balancer
        .handle_assignment(assignment([0, 2, 2]), rig.now);
    rig.publish();
    near(rig.shares(), [0.0, 0.9, 0.1], 0.02);
    rig.pass(1);
    assert_eq!(rig.snapshot().explain().state, StateName::NoLocalityRouting);
}

#[test]
fn reports_expire_and_the_locality_counts_by_its_hosts() {
    let expiring = load_aware(|parts| {
        parts.weight_expiration_period = Some(Duration::from_secs(10));
        parts.remote_probe_fraction = Some(0.0);
    });
    let mut rig = Rig::new(expiring, [2, 2, 2]);
    for (zone, utilization) in [("a", 0.9), ("b", 0.5), ("c", 0.5)] {
        rig.report(zone, utilization);
    }
    rig.pass(11);
    assert!(rig.balancer.load_aware_stats().stale_locality_total.get() >= 3);
    near(rig.shares(), [0.333, 0.333, 0.333], 0.02);
}

#[test]
fn panic_uses_all_hosts_of_the_chosen_locality() {
    let mut rig = Rig::new(load_aware(|_| ()), [2, 2, 2]);
    for zone in 0..3 {
        rig.balancer
            .handle_health(address(zone, 1), HealthSignal::OutlierEjected, rig.now);
        rig.balancer
            .handle_health(address(zone, 2), HealthSignal::OutlierEjected, rig.now);
    }
    rig.publish();
    let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(3));
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
    let mut rig = Rig::new(config, [4, 4, 4]);
    for zone in ["a", "b", "c"] {
        rig.report(zone, 0.2);
    }
    rig.pass(1);
    let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(3));
    for hash in 0..200_u64 {
        let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let args = PickArgs {
            hash: Some(hash),
            avoid: &[],
            ..Default::default()
        };
        let host = Arc::clone(picker.pick(args).host().unwrap());
        assert_eq!(host.locality().zone(), "a", "everything is local");
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
fn switching_policies_at_run_time_starts_and_stops_the_timer() {
    let mut rig = Rig::new(load_aware(|_| ()), [2, 2, 2]);
    assert!(rig.balancer.poll_timeout().is_some());
    let plain = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    rig.balancer
        .handle_config(Arc::new(ClusterConfig::try_new(plain).unwrap()), rig.now);
    rig.publish();
    assert_eq!(rig.balancer.poll_timeout(), None);
    near(rig.shares(), [0.333, 0.333, 0.333], 0.02);
}

#[test]
fn the_convergent_controller_leaves_a_hot_zone_gently_and_returns() {
    let mut rig = Rig::new(
        load_aware(|p| p.spill_controller = SpillController::Convergent),
        [4, 4, 4],
    );
    for _ in 0..30 {
        for (zone, utilization) in [("a", 0.9), ("b", 0.5), ("c", 0.4)] {
            rig.report(zone, utilization);
        }
        rig.pass(1);
    }
    let spilled = rig.shares();
    assert!(spilled[0] < 0.6 && spilled[0] >= 0.03, "{spilled:?}");
    assert!(
        spilled[2] > spilled[1],
        "more to where more room is: {spilled:?}"
    );
    for _ in 0..60 {
        for (zone, utilization) in [("a", 0.3), ("b", 0.5), ("c", 0.5)] {
            rig.report(zone, utilization);
        }
        rig.pass(1);
    }
    assert!(rig.shares()[0] > 0.9, "{:?}", rig.shares());
}

#[test]
fn measured_demand_feeds_the_controller_forward() {
    let mut rig = Rig::new(
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
    let mut alone = Rig::new(
        load_aware(|p| {
            p.spill_controller = SpillController::Convergent;
            p.demand_feed_forward = Some(false);
        }),
        [3, 5, 2],
    );
    for rig in [&mut rig, &mut alone] {
        for _ in 0..10 {
            rig.balancer.handle_originating(fleet.clone(), rig.now);
            rig.publish();
            rig.pass(1);
        }
    }
    near(rig.shares(), [0.6, 0.3, 0.1], 0.05);
    let explained = rig.snapshot().explain_at(rig.now).fractions;
    assert_eq!(explained.status, FractionStatus::FeedForward);
    assert_eq!(explained.staleness_threshold_ms, Some(60_000));
    // Switched off, the same fractions change nothing: all that is known stays local.
    near(alone.shares(), [0.97, 0.02, 0.01], 0.01);
    let explained = alone.snapshot().explain_at(alone.now).fractions;
    assert_eq!(explained.status, FractionStatus::Unused);
    // Without a word for a minute, reports of hosts are all there is.
    rig.pass(61);
    let explained = rig.snapshot().explain_at(rig.now).fractions;
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
        let mut rig = Rig::new(config, [2, 0, 0]);
        let snapshot = rig.snapshot();
        for (host, utilization) in snapshot.hosts().zip([0.25, 0.75]) {
            let report = OrcaLoadReport {
                application_utilization: utilization,
                rps_fractional: 300.0,
                ..Default::default()
            };
            assert!(host.observe_orca(&report, &rig.config, rig.now));
        }
        rig.pass(2);
        let weights: Vec<u32> = rig.snapshot().hosts().map(|host| host.weight()).collect();
        assert_eq!(weights, [1200, 400]);
        let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(1));
        let light = (0..400)
            .filter(|_| picker.pick(PickArgs::default()).host().unwrap().weight() == 400)
            .count();
        assert_eq!(light, 100, "three to one");
    }
}

#[test]
fn weights_are_shown_by_locality_and_source() {
    let mut rig = Rig::new(load_aware(|_| ()), [2, 1, 1]);
    rig.report("a", 0.75);
    rig.pass(1);
    let weights = |snapshot: &RoutingSnapshot, source| {
        let weights = snapshot.load_aware_weights(0, source).unwrap();
        let by_zone = weights.weights.iter();
        let by_zone: Vec<_> = by_zone
            .map(|(locality, weight)| (locality.zone().to_owned(), *weight))
            .collect();
        (by_zone, weights.all_local)
    };
    let expected = [("a", 0.5), ("b", 1.0), ("c", 1.0)].map(|(zone, w)| (zone.to_owned(), w));
    let snapshot = rig.snapshot();
    for source in [HostSource::HealthyHosts, HostSource::AllHosts] {
        assert_eq!(weights(&snapshot, source), (expected.to_vec(), false));
    }
    let nobody = weights(&snapshot, HostSource::DegradedHosts).0;
    assert!(nobody.iter().all(|&(_, weight)| weight == 0.0));
    assert_eq!(snapshot.load_aware_weights(1, HostSource::AllHosts), None);
    let mut flat = Rig::new(ClusterConfigParts::default(), [2, 1, 1]);
    assert_eq!(
        flat.snapshot().load_aware_weights(0, HostSource::AllHosts),
        None
    );
}

/// Envoy's workers count a pick only when the weights in force cover its priority.
#[test]
fn a_priority_that_no_tick_has_seen_is_not_counted() {
    let mut rig = Rig::new(load_aware(|_| ()), [1, 1, 0]);
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
    rig.balancer.handle_assignment(moved, rig.now);
    rig.publish();
    let counted = |rig: &Rig| {
        let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(5));
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
    assert_eq!(counted(&rig), [0, 0, 0]);
    rig.pass(1);
    assert_eq!(counted(&rig), [0, 10, 0]);
}

#[test]
fn a_report_leaves_its_weight_on_the_host() {
    let child = ClientSideWeightedRoundRobin::default();
    let config = ClusterConfigParts {
        endpoint_policy: EndpointPolicy::ClientSideWeightedRoundRobin(child),
        ..load_aware(|_| ())
    };
    let mut rig = Rig::new(config, [1, 1, 1]);
    let host = rig.snapshot().hosts().next().unwrap().clone();
    assert_eq!((host.orca_weight(), host.utilization()), (None, None));
    let report = OrcaLoadReport {
        application_utilization: 0.5,
        rps_fractional: 100.0,
        ..Default::default()
    };
    assert!(host.observe_orca(&report, &rig.config, rig.now));
    assert_eq!(host.orca_weight(), Some(200));
    assert_eq!(host.utilization(), Some((0.5, rig.now)));
    assert_eq!(host.weight(), 1, "in force only after the blackout");
}
