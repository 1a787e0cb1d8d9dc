//! Tests of the balancer: what each input changes, leaves alone and reports.

use crate::locality_picking::zone_aware::Reason;
use std::time::Duration;

use super::*;
use crate::explain::{Explanation, FractionStatus, StateName};
use crate::model::assignment::{AssignmentParts, DropOverloadParts, LbEndpoint, LocalityParts};
use crate::model::cluster::{ClusterConfigParts, HealthChecking, LocalityPolicy};
use crate::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, RingHash, RoundRobin, SlowStart,
};
use crate::model::health::HealthStatus;
use crate::model::zone_aware::{FractionSource, LocalityBasis, LrsRateConfigParts, ZoneAwareParts};
use crate::units::BasisPoints;

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

fn zone(name: &str) -> Locality {
    Locality::zone_only(name)
}

/// Zones with their numbers of hosts; addresses are 10.zone.0.host.
fn parts(zones: &[(&str, u8)]) -> AssignmentParts {
    let entry = |(index, &(name, hosts)): (usize, &(&str, u8))| LocalityParts {
        locality: zone(name),
        lb_endpoints: (1..=hosts)
            .map(|host| LbEndpoint::new(address(index, host)))
            .collect(),
        ..Default::default()
    };
    AssignmentParts {
        cluster_name: "orders".into(),
        endpoints: zones.iter().enumerate().map(entry).collect(),
        ..Default::default()
    }
}

fn address(zone: usize, host: u8) -> SocketAddr {
    SocketAddr::from(([10, u8::try_from(zone).unwrap(), 0, host], 80))
}

fn checked(parts: AssignmentParts) -> ClusterLoadAssignment {
    ClusterLoadAssignment::try_new(parts).unwrap()
}

fn with_fractions(zones: &[(&str, u8)], fractions: &[Option<u64>]) -> ClusterLoadAssignment {
    let mut parts = parts(zones);
    for (entry, &fraction) in parts.endpoints.iter_mut().zip(fractions) {
        entry.observed_traffic_fraction = fraction;
    }
    checked(parts)
}

fn config(change: impl FnOnce(&mut ClusterConfigParts)) -> Arc<ClusterConfig> {
    let mut parts = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    change(&mut parts);
    Arc::new(ClusterConfig::try_new(parts).unwrap())
}

fn lrs(change: impl FnOnce(&mut ZoneAwareParts)) -> Arc<ClusterConfig> {
    let mut parts = ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        ..Default::default()
    };
    change(&mut parts);
    let zone_aware = ZoneAware::try_new(parts).unwrap();
    config(|parts| parts.locality_policy = LocalityPolicy::ZoneAware(zone_aware))
}

const EXAMPLE: [(&str, u8); 3] = [("a", 3), ("b", 5), ("c", 2)];
const DEMAND: [Option<u64>; 3] = [Some(5000), Some(3500), Some(1500)];

/// A balancer in zone a with the worked example of seed 000, drained.
fn example(config: Arc<ClusterConfig>, fractions: &[Option<u64>]) -> Balancer {
    let mut balancer = Balancer::new(config, zone("a"), at(0));
    balancer.handle_fleet_assignment(with_fractions(&EXAMPLE, fractions), at(0));
    balancer.handle_assignment(checked(parts(&EXAMPLE)), at(0));
    drain(&mut balancer);
    balancer
}

fn drain(balancer: &mut Balancer) -> (Option<Arc<RoutingSnapshot>>, Vec<Event>) {
    let snapshot = balancer.poll_snapshot();
    assert!(balancer.poll_snapshot().is_none(), "the newest only");
    (
        snapshot,
        std::iter::from_fn(|| balancer.poll_event()).collect(),
    )
}

fn state(snapshot: &RoutingSnapshot) -> StateName {
    snapshot.explain().state
}

#[test]
fn picks_are_queued_before_the_first_assignment() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    let initial = balancer.initial_snapshot(at(0));
    assert!(!initial.is_ready() && initial.generation() == 0);
    assert!(balancer.poll_snapshot().is_none());
    balancer.handle_assignment(checked(AssignmentParts::default()), at(1));
    let (snapshot, events) = drain(&mut balancer);
    assert!(
        snapshot.unwrap().is_ready(),
        "an empty assignment makes the cluster ready"
    );
    assert_eq!(
        events[0],
        Event::PanicChanged {
            priority: 0,
            panic: true
        }
    );
    assert!(
        matches!(events[1], Event::ZoneRoutingChanged { .. }),
        "{events:?}"
    );
}

#[test]
fn an_assignment_that_changes_nothing_builds_nothing() {
    let mut balancer = example(config(|_| ()), &[]);
    let built = balancer.stats().snapshots_built.get();
    balancer.handle_assignment(checked(parts(&EXAMPLE)), at(1));
    assert_eq!(drain(&mut balancer), (None, vec![]));
    assert_eq!(balancer.stats().snapshots_built.get(), built);
}

impl PartialEq for RoutingSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.generation == other.generation
    }
}

#[test]
fn hosts_that_stay_keep_their_identity_and_requests() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 2), ("b", 1)])), at(0));
    let before = balancer.poll_snapshot().unwrap();
    let kept = before.hosts().next().unwrap();
    let request = kept.begin_request();
    drain(&mut balancer);

    balancer.handle_assignment(checked(parts(&[("a", 1), ("b", 2)])), at(1));
    let (after, events) = drain(&mut balancer);
    let after = after.unwrap();
    assert!(Arc::ptr_eq(kept, after.hosts().next().unwrap()));
    assert_eq!(kept.active_requests(), 1);
    request.finish(crate::host::RequestOutcome::Success);
    let changed = Event::MembershipChanged {
        added: 1,
        removed: 1,
        total: 3,
    };
    assert_eq!(events, [changed]);
    assert!(after.generation() > before.generation());
}

#[test]
fn a_host_that_moves_to_another_priority_stays_the_same_host() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 2)])), at(0));
    let before = balancer.poll_snapshot().unwrap();
    drain(&mut balancer);
    let mut moved = parts(&[("a", 2)]);
    let second = moved.endpoints[0].lb_endpoints.split_off(1);
    moved.endpoints.push(LocalityParts {
        locality: zone("a"),
        priority: 1,
        lb_endpoints: second,
        ..Default::default()
    });
    balancer.handle_assignment(checked(moved), at(1));
    let (after, events) = drain(&mut balancer);
    let after = after.unwrap();
    assert!(
        before
            .hosts()
            .zip(after.hosts())
            .all(|(one, other)| Arc::ptr_eq(one, other))
    );
    assert_eq!(after.counts(1).unwrap().flat.all, 1);
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, Event::MembershipChanged { .. }))
    );
    // A priority that is missing from the assignment becomes empty, as in Envoy.
    balancer.handle_assignment(checked(parts(&[("a", 2)])), at(2));
    let last = balancer.poll_snapshot().unwrap();
    assert_eq!(last.counts(1).unwrap().flat.all, 0);
    assert_eq!(last.loads().healthy_load(), [100, 0]);
}

#[test]
fn a_new_name_or_locality_makes_a_new_host() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 1)])), at(0));
    let before = balancer.poll_snapshot().unwrap();
    let mut renamed = parts(&[("a", 1)]);
    renamed.endpoints[0].lb_endpoints[0].hostname = "one".into();
    balancer.handle_assignment(checked(renamed), at(1));
    let renamed = balancer.poll_snapshot().unwrap();
    assert!(!Arc::ptr_eq(
        before.hosts().next().unwrap(),
        renamed.hosts().next().unwrap()
    ));
    balancer.handle_assignment(checked(parts(&[("z", 1)])), at(2));
    let moved = balancer.poll_snapshot().unwrap();
    assert_eq!(moved.hosts().next().unwrap().locality(), &zone("z"));
}

#[test]
fn weights_and_eds_health_take_effect_in_place() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 2)])), at(0));
    let before = balancer.poll_snapshot().unwrap();
    let mut changed = parts(&[("a", 2)]);
    changed.endpoints[0].lb_endpoints[0].load_balancing_weight = Some(7);
    changed.endpoints[0].lb_endpoints[1].health_status = HealthStatus::Draining;
    balancer.handle_assignment(checked(changed), at(1));
    let after = balancer.poll_snapshot().unwrap();
    assert_eq!(
        before.hosts().next().unwrap().weight(),
        7,
        "one host, one weight"
    );
    let counts = after.counts(0).unwrap();
    assert_eq!((counts.flat.healthy, counts.flat.excluded), (1, 1));
    assert_eq!(counts.localities[0].healthy_weight, 7);
    assert!(!after.loads().panic()[0], "a draining host does not count");
}

#[test]
fn health_signals_move_hosts_between_lists_and_cause_panic() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 4)])), at(0));
    drain(&mut balancer);
    for host in 1..=3 {
        balancer.handle_health(address(0, host), HealthSignal::OutlierEjected, at(1));
    }
    let (snapshot, events) = drain(&mut balancer);
    assert_eq!(snapshot.unwrap().counts(0).unwrap().flat.healthy, 1);
    assert_eq!(
        events,
        [Event::PanicChanged {
            priority: 0,
            panic: true
        }]
    );
    balancer.handle_health(address(0, 1), HealthSignal::OutlierEjected, at(2));
    assert_eq!(drain(&mut balancer), (None, vec![]), "repeated signal");
    balancer.handle_health(address(9, 9), HealthSignal::OutlierEjected, at(2));
    assert_eq!(drain(&mut balancer), (None, vec![]), "unknown host");
    for host in 1..=3 {
        balancer.handle_health(address(0, host), HealthSignal::OutlierReturned, at(3));
    }
    assert_eq!(
        drain(&mut balancer).1,
        [Event::PanicChanged {
            priority: 0,
            panic: false
        }]
    );
}

#[test]
fn every_health_flag_is_readable_even_if_no_list_changes() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    let mut parts = parts(&[("a", 1), ("b", 1)]);
    parts.endpoints[1].priority = 1;
    parts.endpoints[1].lb_endpoints[0].health_status = HealthStatus::Unhealthy;
    balancer.handle_assignment(checked(parts), at(0));
    drain(&mut balancer);
    balancer.handle_health(address(1, 1), HealthSignal::OutlierEjected, at(1));
    assert_eq!(
        drain(&mut balancer),
        (None, vec![]),
        "it was unhealthy already"
    );
    let hosts = balancer.hosts().map(|(host, priority, health)| {
        let names: Vec<&str> = health.envoy_flags().collect();
        (host.address(), priority, names.join("/"))
    });
    let both = "failed_outlier_check/failed_eds_health".to_owned();
    assert_eq!(
        hosts.collect::<Vec<_>>(),
        [(address(0, 1), 0, String::new()), (address(1, 1), 1, both)]
    );
}

#[test]
fn with_active_checks_new_hosts_wait_for_their_first_pass() {
    let checking = |ignore| HealthChecking {
        active: true,
        ignore_new_hosts_until_first_hc: ignore,
    };
    for (ignore, excluded) in [(false, 0), (true, 2)] {
        let config = config(|parts| parts.health_checking = checking(ignore));
        let mut balancer = Balancer::new(config, zone("a"), at(0));
        balancer.handle_assignment(checked(parts(&[("a", 2)])), at(0));
        let counts = balancer.poll_snapshot().unwrap().counts(0).unwrap().flat;
        assert_eq!((counts.healthy, counts.excluded), (0, excluded));
        balancer.handle_health(address(0, 1), HealthSignal::ActiveCheckPassed, at(1));
        let counts = balancer.poll_snapshot().unwrap().counts(0).unwrap().flat;
        assert_eq!(counts.healthy, 1);
    }
}

#[test]
fn zone_routing_needs_a_fleet_and_emits_events() {
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&EXAMPLE)), at(0));
    let (snapshot, _) = drain(&mut balancer);
    assert_eq!(
        snapshot.unwrap().explain().reason_code,
        Some(Reason::NoLocalCluster)
    );
    assert_eq!(balancer.stats().lb_recalculate_zone_structures.get(), 0);
    balancer.handle_fleet_assignment(checked(parts(&EXAMPLE)), at(1));
    let (snapshot, events) = drain(&mut balancer);
    assert_eq!(state(&snapshot.unwrap()), StateName::LocalityDirect);
    let changed = Event::ZoneRoutingChanged {
        cluster: "orders".into(),
        priority: 0,
        state: StateName::LocalityDirect,
        reason: None,
    };
    assert_eq!(events, [changed]);
    assert_eq!(balancer.stats().lb_recalculate_zone_structures.get(), 1);
}

#[test]
fn failed_preconditions_increment_envoys_counters() {
    let mut balancer = example(config(|_| ()), &[]);
    balancer.handle_assignment(checked(parts(&[("a", 1), ("b", 1)])), at(1));
    assert_eq!(balancer.stats().lb_zone_cluster_too_small.get(), 1);
    balancer.handle_fleet_assignment(checked(parts(&[("b", 1), ("c", 1)])), at(2));
    assert_eq!(balancer.stats().lb_local_cluster_not_ok.get(), 1);
}

#[test]
fn a_fraction_only_update_shares_every_host_list() {
    let mut balancer = example(lrs(|_| ()), &DEMAND);
    balancer.handle_fleet_assignment(with_fractions(&EXAMPLE, &DEMAND), at(1));
    let one = balancer
        .poll_snapshot()
        .expect("the same fractions again are an update");
    let other = [Some(2000), Some(6000), Some(2000)];
    balancer.handle_fleet_assignment(with_fractions(&EXAMPLE, &other), at(2));
    let two = balancer.poll_snapshot().unwrap();
    assert!(Arc::ptr_eq(
        &one.priorities[0].table,
        &two.priorities[0].table
    ));
    assert_eq!(
        (state(&one), state(&two)),
        (StateName::LocalityResidual, StateName::LocalityDirect)
    );
}

fn stated(zones: &[(&str, u64)]) -> FractionMap {
    let fraction = |&(name, bp): &(&str, u64)| (zone(name), BasisPoints::new(bp, name).unwrap());
    zones.iter().map(fraction).collect()
}

#[test]
fn stated_fractions_never_expire() {
    let mut balancer = Balancer::new(lrs(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&EXAMPLE)), at(0));
    let demand = stated(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    balancer.handle_stated_demand(demand, at(0));
    let measured = example(lrs(|_| ()), &DEMAND);
    let shares = |explanation: Explanation| -> Vec<f64> {
        let rows = explanation.localities.iter();
        rows.map(|row| row.expected_share).collect()
    };
    let expected = shares(measured.initial_snapshot(at(0)).explain());
    for now in [0, 60, 1_000_000] {
        balancer.handle_timeout(at(now));
        assert_eq!(balancer.poll_timeout(), None);
        let explanation = balancer.initial_snapshot(at(now)).explain();
        assert_eq!(explanation.state, StateName::LocalityResidual);
        let fractions = &explanation.fractions;
        assert_eq!(fractions.status, FractionStatus::Fresh);
        assert_eq!(fractions.origin, Some(FractionOrigin::Stated));
        assert_eq!(
            (fractions.age_ms, fractions.staleness_threshold_ms),
            (None, None)
        );
        assert_eq!(shares(explanation), expected);
    }
    assert_eq!(
        balancer.stats().lrs_fractions_received.get(),
        0,
        "nothing was measured"
    );

    // The fractions of an assignment that a program states do not expire either.
    let mut balancer = Balancer::new(lrs(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&EXAMPLE)), at(0));
    let fleet = with_fractions(&EXAMPLE, &DEMAND);
    balancer.handle_cached_fleet_assignment(fleet, None, at(0));
    balancer.handle_timeout(at(1_000_000));
    let explanation = balancer.initial_snapshot(at(1_000_000)).explain();
    assert_eq!(explanation.fractions.status, FractionStatus::Fresh);
    assert_eq!(shares(explanation), expected);
}

#[test]
fn stated_demand_applies_to_every_basis_until_the_fleet_is_known() {
    let demand = stated(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    let mut balancer = Balancer::new(config(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&EXAMPLE)), at(0));
    balancer.handle_stated_demand(demand.clone(), at(0));
    let explanation = balancer.initial_snapshot(at(0)).explain();
    assert_eq!(explanation.state, StateName::LocalityResidual);
    let local: Vec<u64> = explanation
        .localities
        .iter()
        .map(|row| row.local_bp)
        .collect();
    assert_eq!(local, [5000, 3500, 1500]);
    // Once its assignment is known, the hosts of the fleet are counted, as in Envoy.
    balancer.handle_fleet_assignment(checked(parts(&EXAMPLE)), at(1));
    let explanation = balancer.initial_snapshot(at(1)).explain();
    assert_eq!(explanation.state, StateName::LocalityDirect);

    let mut balancer = Balancer::new(lrs(|_| ()), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&EXAMPLE)), at(0));
    balancer.handle_stated_demand(demand, at(0));
    balancer.handle_stated_demand(FractionMap::new(), at(1));
    let explanation = balancer.initial_snapshot(at(1)).explain();
    assert_eq!(
        explanation.reason_code,
        Some(Reason::NoLocalCluster),
        "withdrawn"
    );
}

#[test]
fn fractions_expire_at_the_deadline_and_recover_at_once() {
    let mut balancer = example(lrs(|_| ()), &DEMAND);
    assert_eq!(balancer.poll_timeout(), Some(at(60)));
    balancer.handle_timeout(at(59));
    assert_eq!(drain(&mut balancer), (None, vec![]), "early is harmless");
    balancer.handle_timeout(at(60));
    let (snapshot, events) = drain(&mut balancer);
    let explanation = snapshot.unwrap().explain();
    assert_eq!(explanation.state, StateName::LocalityDirect);
    assert_eq!(explanation.fractions.status, FractionStatus::Stale);
    assert_eq!(explanation.fractions.age_ms, Some(60_000));
    let minute = Duration::from_secs(60);
    let origin = FractionOrigin::EdsField;
    assert_eq!(
        events[0],
        Event::FractionsStale {
            origin,
            age: minute,
            threshold: minute
        }
    );
    assert_eq!(balancer.stats().lrs_fractions_stale.get(), 1);
    assert_eq!(balancer.poll_timeout(), None);

    balancer.handle_fleet_assignment(with_fractions(&EXAMPLE, &DEMAND), at(70));
    let (snapshot, events) = drain(&mut balancer);
    assert_eq!(state(&snapshot.unwrap()), StateName::LocalityResidual);
    assert_eq!(events[0], Event::FractionsRecovered { origin });
    assert_eq!(balancer.poll_timeout(), Some(at(130)));
}

#[test]
fn other_bases_ignore_fractions() {
    let balancer = example(config(|_| ()), &DEMAND);
    assert_eq!(balancer.poll_timeout(), None);
    let explanation = balancer.initial_snapshot(at(0)).explain();
    assert_eq!(explanation.state, StateName::LocalityDirect);
    assert_eq!(explanation.fractions.status, FractionStatus::Unused);
}

#[test]
fn cluster_fractions_take_precedence_over_fleet_fractions() {
    let mut balancer = example(lrs(|_| ()), &DEMAND);
    let own = [("a", 2000), ("b", 6000), ("c", 2000)]
        .map(|(name, bp)| (zone(name), BasisPoints::new(bp, name).unwrap()));
    balancer.handle_observed_traffic(own.into_iter().collect(), at(10));
    let explanation = balancer.poll_snapshot().unwrap().explain();
    assert_eq!(explanation.state, StateName::LocalityDirect);
    assert_eq!(
        explanation.fractions.origin,
        Some(FractionOrigin::LrsResponse)
    );
    balancer.handle_observed_traffic(FractionMap::new(), at(11));
    assert_eq!(
        state(&balancer.poll_snapshot().unwrap()),
        StateName::LocalityResidual
    );
}

#[test]
fn the_source_of_fractions_can_be_switched() {
    let source = |fraction_source| {
        lrs(|parts| {
            parts.lrs_rate_config = LrsRateConfigParts {
                fraction_source,
                ..Default::default()
            };
        })
    };
    let mut fleet = parts(&EXAMPLE);
    for (entry, bp) in fleet.endpoints.iter_mut().zip([5000.0, 3500.0, 1500.0]) {
        entry.metadata_traffic_fraction = Some(bp);
    }
    let mut balancer = example(source(FractionSource::EdsField), &[]);
    balancer.handle_fleet_assignment(checked(fleet), at(1));
    assert_eq!(
        state(&balancer.poll_snapshot().unwrap()),
        StateName::LocalityDirect
    );
    balancer.handle_config(source(FractionSource::LocalityMetadata), at(2));
    assert_eq!(
        state(&balancer.poll_snapshot().unwrap()),
        StateName::LocalityResidual
    );
}

#[test]
fn partial_and_all_zero_fractions_are_counted() {
    let mut balancer = example(lrs(|_| ()), &[Some(5000), None, None]);
    let explanation = balancer.initial_snapshot(at(0)).explain();
    assert_eq!(explanation.local_percent_to_route_bp, Some(6000));
    assert_eq!(explanation.fractions.status, FractionStatus::Partial);
    assert_eq!(balancer.stats().lrs_fractions_partial.get(), 1);
    balancer.handle_fleet_assignment(
        with_fractions(&EXAMPLE, &[Some(0), Some(0), Some(0)]),
        at(1),
    );
    let explanation = balancer.poll_snapshot().unwrap().explain();
    assert_eq!(explanation.state, StateName::LocalityDirect);
    assert_eq!(explanation.fractions.status, FractionStatus::AllZero);
    assert_eq!(balancer.stats().lrs_fractions_all_zero.get(), 1);
}

#[test]
fn higher_priorities_are_zone_aware_only_if_configured() {
    let mut both = parts(&EXAMPLE);
    let mut second = parts(&EXAMPLE).endpoints;
    for entry in &mut second {
        entry.priority = 1;
        entry
            .lb_endpoints
            .iter_mut()
            .for_each(|endpoint| endpoint.address.set_port(81));
    }
    both.endpoints.extend(second);
    let mut balancer = example(lrs(|_| ()), &DEMAND);
    balancer.handle_assignment(checked(both), at(1));
    let snapshot = balancer.poll_snapshot().unwrap();
    let reason = |snapshot: &RoutingSnapshot| snapshot.explain().priorities[1].reason_code;
    assert_eq!(reason(&snapshot), Some(Reason::PriorityNotZero));
    balancer.handle_config(lrs(|parts| parts.all_priorities = true), at(2));
    let snapshot = balancer.poll_snapshot().unwrap();
    assert_eq!(
        snapshot.explain().priorities[1].state,
        StateName::LocalityResidual
    );
}

#[test]
fn drops_and_settings_are_published_without_touching_hosts() {
    let mut balancer = example(config(|_| ()), &[]);
    let before = balancer.initial_snapshot(at(0));
    let mut dropping = parts(&EXAMPLE);
    dropping.drop_overloads = vec![DropOverloadParts {
        category: "lb".into(),
        numerator: 5,
        denominator: 100,
    }];
    balancer.handle_assignment(checked(dropping), at(1));
    let after = balancer.poll_snapshot().unwrap();
    assert_eq!(after.drop_overloads[0].per_million, 50_000);
    assert!(Arc::ptr_eq(
        &before.priorities[0].table,
        &after.priorities[0].table
    ));
}

#[test]
fn hash_tables_follow_hosts_panic_and_settings() {
    let ring = RingHash::try_new(
        HashFunction::XxHash,
        Some(64),
        None,
        ConsistentHashing::default(),
    );
    let hashed = config(|parts| {
        parts.locality_policy = LocalityPolicy::Flat;
        parts.endpoint_policy = EndpointPolicy::RingHash(ring.unwrap());
    });
    let mut balancer = Balancer::new(hashed, zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 2), ("b", 2)])), at(0));
    let one = balancer.poll_snapshot().unwrap();
    assert_eq!(one.priorities[0].hash.as_ref().unwrap().hosts.len(), 4);
    balancer.handle_health(address(0, 1), HealthSignal::ActiveCheckFailed, at(1));
    let two = balancer.poll_snapshot().unwrap();
    assert_eq!(two.priorities[0].hash.as_ref().unwrap().hosts.len(), 3);
    for host in [(0, 2), (1, 1)] {
        balancer.handle_health(
            address(host.0, host.1),
            HealthSignal::ActiveCheckFailed,
            at(2),
        );
    }
    let panicking = balancer.poll_snapshot().unwrap();
    assert!(panicking.priorities[0].hash.as_ref().unwrap().panic);
    assert_eq!(
        panicking.priorities[0].hash.as_ref().unwrap().hosts.len(),
        4
    );
    balancer.handle_config(config(|_| ()), at(3));
    assert!(
        balancer.poll_snapshot().unwrap().priorities[0]
            .hash
            .is_none()
    );
}

fn slow(window: Duration) -> Arc<ClusterConfig> {
    let slow_start = SlowStart::try_new(window, None, None).unwrap();
    config(|parts| parts.endpoint_policy = EndpointPolicy::RoundRobin(RoundRobin { slow_start }))
}

#[test]
fn slow_start_ramps_by_tick_and_ends() {
    let mut balancer = Balancer::new(slow(Duration::from_secs(60)), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 1)])), at(0));
    let snapshot = balancer.poll_snapshot().unwrap();
    let host = Arc::clone(snapshot.hosts().next().unwrap());
    assert!(snapshot.slow_start);
    assert_eq!(host.scheduled_weight(), 0.1);
    balancer.handle_timeout(at(30));
    assert_eq!(host.scheduled_weight(), 0.5);
    assert!(
        balancer.poll_snapshot().is_none(),
        "a tick updates factors and publishes nothing"
    );
    let mut now = 30;
    while let Some(tick) = balancer.poll_timeout() {
        assert!(
            tick > at(now) && tick <= at(now + 1),
            "ticks of at most a second"
        );
        now += 1;
        balancer.handle_timeout(at(now));
    }
    assert_eq!(now, 61, "one window after the newest host, inclusive");
    assert_eq!(host.scheduled_weight(), 1.0);
    assert!(!balancer.poll_snapshot().unwrap().slow_start);
}

#[test]
fn slow_start_restarts_when_a_check_passes_and_can_be_disabled() {
    let mut balancer = Balancer::new(slow(Duration::from_secs(10)), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 2)])), at(0));
    balancer.handle_timeout(at(20));
    assert!(!balancer.poll_snapshot().unwrap().slow_start);
    balancer.handle_health(address(0, 1), HealthSignal::ActiveCheckFailed, at(30));
    balancer.handle_health(address(0, 1), HealthSignal::ActiveCheckPassed, at(31));
    let snapshot = balancer.poll_snapshot().unwrap();
    let weights: Vec<f64> = snapshot
        .hosts()
        .map(|host| host.scheduled_weight())
        .collect();
    assert_eq!(weights, [0.1, 1.0]);
    balancer.handle_config(config(|_| ()), at(32));
    assert!(!balancer.poll_snapshot().unwrap().slow_start);
    assert!(snapshot.hosts().all(|host| host.scheduled_weight() == 1.0));
    assert_eq!(balancer.poll_timeout(), None);
}

#[test]
fn a_clock_that_steps_back_is_harmless() {
    let mut balancer = example(lrs(|_| ()), &DEMAND);
    balancer.handle_fleet_assignment(with_fractions(&EXAMPLE, &DEMAND), at(100));
    balancer.handle_timeout(at(5));
    balancer.handle_assignment(checked(parts(&[("a", 3), ("b", 5)])), at(1));
    assert_eq!(
        state(&balancer.poll_snapshot().unwrap()),
        StateName::LocalityResidual
    );
    assert_eq!(balancer.poll_timeout(), Some(at(160)));
}

#[test]
fn unhealthy_hosts_are_not_in_slow_start() {
    let mut balancer = Balancer::new(slow(Duration::from_secs(60)), zone("a"), at(0));
    balancer.handle_assignment(checked(parts(&[("a", 1)])), at(0));
    let mut degraded = parts(&[("a", 1)]);
    degraded.endpoints[0].lb_endpoints[0].health_status = HealthStatus::Degraded;
    balancer.handle_assignment(checked(degraded), at(6));
    let snapshot = balancer.poll_snapshot().unwrap();
    assert_eq!(snapshot.hosts().next().unwrap().scheduled_weight(), 1.0);
}

#[test]
fn new_settings_do_not_refresh_old_fractions() {
    let metadata = || {
        lrs(|parts| {
            parts.lrs_rate_config.fraction_source = FractionSource::LocalityMetadata;
        })
    };
    let mut fleet = parts(&EXAMPLE);
    for entry in &mut fleet.endpoints {
        entry.observed_traffic_fraction = Some(3000);
        entry.metadata_traffic_fraction = Some(3000.0);
    }
    let status = |balancer: &mut Balancer| balancer.poll_snapshot().unwrap().explain().fractions;
    // `fraction_source` changes an hour after the fractions arrived.
    let mut balancer = example(lrs(|_| ()), &[]);
    balancer.handle_fleet_assignment(checked(fleet.clone()), at(0));
    balancer.handle_timeout(at(60));
    balancer.handle_config(metadata(), at(3600));
    assert_eq!(status(&mut balancer).status, FractionStatus::Stale);
    // `locality_basis` changes after an hour: fractions are stale at once, not at a later timeout.
    let mut balancer = example(config(|_| ()), &[]);
    balancer.handle_fleet_assignment(checked(fleet), at(0));
    balancer.handle_config(lrs(|_| ()), at(3600));
    assert_eq!(status(&mut balancer).status, FractionStatus::Stale);
    assert_eq!(balancer.stats().lrs_fractions_stale.get(), 1);
    assert_eq!(balancer.poll_timeout(), None);
}

#[test]
fn a_cluster_added_later_gets_fractions_with_their_age() {
    let fleet = || with_fractions(&EXAMPLE, &DEMAND);
    let later = |received: u64| {
        let mut balancer = Balancer::new(lrs(|_| ()), zone("a"), at(3600));
        balancer.handle_assignment(checked(parts(&EXAMPLE)), at(3600));
        balancer.handle_cached_fleet_assignment(fleet(), Some(at(received)), at(3600));
        balancer
    };
    let mut old = later(0);
    let explained = old.poll_snapshot().unwrap().explain().fractions;
    assert_eq!(explained.status, FractionStatus::Stale);
    assert_eq!(
        (explained.age_ms, old.poll_timeout()),
        (Some(3_600_000), None)
    );
    let told: Vec<Event> = std::iter::from_fn(|| old.poll_event()).collect();
    let stale = |event: &Event| matches!(event, Event::FractionsStale { .. });
    assert_eq!(
        told.iter().filter(|event| stale(event)).count(),
        1,
        "{told:?}"
    );
    let mut young = later(3590);
    let explained = young.poll_snapshot().unwrap().explain().fractions;
    assert_eq!(explained.status, FractionStatus::Fresh);
    assert_eq!(young.poll_timeout(), Some(at(3650)));
}

#[test]
fn repeating_an_old_observation_does_not_refresh_it() {
    let observed: FractionMap = with_fractions(&EXAMPLE, &DEMAND)
        .fractions(FractionSource::EdsField)
        .as_ref()
        .clone();
    let mut balancer = example(lrs(|_| ()), &[]);
    balancer.handle_observed_traffic_at(observed.clone(), at(0), at(40));
    assert_eq!(balancer.poll_timeout(), Some(at(60)), "not 40 s later");
    balancer.handle_timeout(at(60));
    while balancer.poll_event().is_some() {}
    balancer.handle_observed_traffic_at(observed.clone(), at(0), at(70));
    let status = |balancer: &mut Balancer| balancer.poll_snapshot().unwrap().explain().fractions;
    assert_eq!(status(&mut balancer).status, FractionStatus::Stale);
    assert_eq!(balancer.poll_event(), None, "already reported");
    balancer.handle_observed_traffic_at(observed, at(65), at(80));
    assert_eq!(status(&mut balancer).status, FractionStatus::Fresh);
    let told: Vec<Event> = std::iter::from_fn(|| balancer.poll_event()).collect();
    let recovered = |event: &Event| matches!(event, Event::FractionsRecovered { .. });
    assert!(told.iter().any(recovered), "{told:?}");
}
