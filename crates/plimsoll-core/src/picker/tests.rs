//! Tests of picks: order of draws, state kept across snapshots, retries, drops.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::balancer::Balancer;
use crate::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, DropOverloadParts, LbEndpoint, LocalityParts,
};
use crate::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy, LocalitySampling};
use crate::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin, SlowStart,
};
use crate::model::health::{HealthSignal, HealthStatus};
use crate::model::locality::Locality;
use crate::model::zone_aware::{LocalityBasis, ZoneAware, ZoneAwareParts};
use crate::publish::{Publisher, channel};
use crate::rng::ScriptedRng;
use crate::time::Instant;

const NOW: Instant = Instant::ORIGIN;
const EXAMPLE: [(&str, u8); 3] = [("a", 3), ("b", 5), ("c", 2)];

/// A balancer in zone a, its publisher, and pickers for it.
struct Rig {
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
}

impl Rig {
    fn new(config: ClusterConfigParts) -> Self {
        let config = ClusterConfigParts {
            name: "orders".into(),
            ..config
        };
        let config = Arc::new(ClusterConfig::try_new(config).unwrap());
        let balancer = Balancer::new(config, Locality::zone_only("a"), NOW);
        let (publisher, reader) = channel(balancer.initial_snapshot(NOW));
        Self {
            balancer,
            publisher,
            reader,
        }
    }

    fn assign(&mut self, parts: AssignmentParts) -> &mut Self {
        self.balancer
            .handle_assignment(ClusterLoadAssignment::try_new(parts).unwrap(), NOW);
        self.publish()
    }

    fn fleet(&mut self, parts: AssignmentParts) -> &mut Self {
        self.balancer
            .handle_fleet_assignment(ClusterLoadAssignment::try_new(parts).unwrap(), NOW);
        self.publish()
    }

    fn fail(&mut self, address: SocketAddr) -> &mut Self {
        self.balancer
            .handle_health(address, HealthSignal::ActiveCheckFailed, NOW);
        self.publish()
    }

    fn publish(&mut self) -> &mut Self {
        if let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
        self
    }

    /// A picker whose cursors start at `draws[0]`.
    fn picker(&self, draws: &[u64]) -> Picker<ScriptedRng> {
        Picker::new(self.reader.clone(), ScriptedRng::new(draws))
    }
}

fn address(zone: usize, host: u8) -> SocketAddr {
    SocketAddr::from(([10, u8::try_from(zone).unwrap(), 0, host], 80))
}

fn parts(zones: &[(&str, u8)]) -> AssignmentParts {
    let entry = |(index, &(name, hosts)): (usize, &(&str, u8))| LocalityParts {
        locality: Locality::zone_only(name),
        lb_endpoints: (1..=hosts)
            .map(|host| LbEndpoint::new(address(index, host)))
            .collect(),
        ..Default::default()
    };
    let endpoints = zones.iter().enumerate().map(entry).collect();
    AssignmentParts {
        cluster_name: "orders".into(),
        endpoints,
        ..Default::default()
    }
}

fn lrs() -> ClusterConfigParts {
    let parts = ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        ..Default::default()
    };
    let zone_aware = ZoneAware::try_new(parts).unwrap();
    ClusterConfigParts {
        locality_policy: LocalityPolicy::ZoneAware(zone_aware),
        ..Default::default()
    }
}

fn demand(fractions: [u64; 3]) -> AssignmentParts {
    let mut parts = parts(&EXAMPLE);
    for (entry, fraction) in parts.endpoints.iter_mut().zip(fractions) {
        entry.observed_traffic_fraction = Some(fraction);
    }
    parts
}

fn pick(picker: &mut Picker<ScriptedRng>) -> (SocketAddr, bool) {
    match picker.pick(PickArgs::default()) {
        PickResult::Complete(pick) => (pick.host.address(), pick.local),
        other => panic!("expected a host, got {other:?}"),
    }
}

fn hosts(picker: &mut Picker<ScriptedRng>, count: usize) -> Vec<SocketAddr> {
    (0..count).map(|_| pick(picker).0).collect()
}

#[test]
fn picks_queue_until_the_first_assignment() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    let mut picker = rig.picker(&[]);
    assert!(matches!(
        picker.pick(PickArgs::default()),
        PickResult::Queue
    ));
    rig.assign(AssignmentParts::default());
    let empty = picker.pick(PickArgs::default());
    assert!(
        matches!(empty, PickResult::Fail(PickError::NoHost)),
        "{empty:?}"
    );
    assert_eq!(picker.stats().upstream_cx_none_healthy.get(), 1);
    rig.assign(parts(&[("a", 1)]));
    assert_eq!(pick(&mut picker), (address(0, 1), true));
}

#[test]
fn draws_are_taken_in_envoys_order() {
    let mut rig = Rig::new(ClusterConfigParts {
        locality_sampling: Some(LocalitySampling::Random),
        ..lrs()
    });
    rig.fleet(demand([5000, 3500, 1500]))
        .assign(parts(&EXAMPLE));
    // Draws: seed | priority, kept | priority, not kept, residual of b | … of c
    let (b, c) = (149_999_999, 150_000_000);
    let mut picker = rig.picker(&[0, 7, 5999, 7, 6000, b, 7, 9999, c]);
    assert_eq!(pick(&mut picker), (address(0, 1), true));
    assert_eq!(pick(&mut picker), (address(1, 1), false));
    assert_eq!(pick(&mut picker), (address(2, 1), false));
    assert_eq!(picker.rng.used(), 9);
    let stats = picker.stats();
    assert_eq!(stats.lb_zone_routing_sampled.get(), 1);
    assert_eq!(stats.lb_zone_routing_cross_zone.get(), 2);
}

#[test]
fn cursors_start_at_the_seed_and_survive_membership_changes() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    rig.assign(parts(&[("a", 3)]));
    let mut picker = rig.picker(&[1]);
    assert_eq!(
        hosts(&mut picker, 4),
        [2, 3, 1, 2].map(|host| address(0, host))
    );
    rig.assign(parts(&[("a", 4)]));
    // The cursor stands at 5, and there are 4 hosts now: 5 mod 4 = 1.
    assert_eq!(hosts(&mut picker, 2), [address(0, 2), address(0, 3)]);
}

#[test]
fn a_fraction_update_does_not_restart_schedules() {
    let mut rig = Rig::new(lrs());
    let mut weighted = parts(&EXAMPLE);
    weighted.endpoints[0].lb_endpoints[0].load_balancing_weight = Some(2);
    rig.fleet(demand([1000, 6000, 3000])).assign(weighted);
    let mut steady = rig.picker(&[0]);
    let expected = hosts(&mut steady, 8);
    let mut updated = rig.picker(&[0]);
    let mut actual = hosts(&mut updated, 3);
    rig.fleet(demand([1001, 6000, 2999]));
    actual.extend(hosts(&mut updated, 5));
    assert_eq!(actual, expected);
    let heavy = expected
        .iter()
        .filter(|&&host| host == address(0, 1))
        .count();
    assert_eq!(heavy, 4, "weight 2 of 4");
}

#[test]
fn forks_have_their_own_stream_start_and_counters() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    rig.assign(parts(&[("a", 3)]));
    let mut picker = rig.picker(&[0, 2, 0, 0]);
    let mut fork = picker.fork();
    assert_eq!(pick(&mut picker).0, address(0, 1));
    assert_eq!(
        pick(&mut fork).0,
        address(0, 3),
        "its seed is the next draw: 2"
    );
    assert_eq!(pick(&mut picker).0, address(0, 2));
    assert!(!Arc::ptr_eq(picker.stats(), fork.stats()));
}

#[test]
fn drops_are_drawn_first_and_counted() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    let mut dropping = parts(&[("a", 1)]);
    let drop = |category: &str, numerator| DropOverloadParts {
        category: category.into(),
        numerator,
        denominator: 1_000_000,
    };
    dropping.drop_overloads = vec![drop("throttle", 10), drop("lb", 20)];
    rig.assign(dropping);
    let mut picker = rig.picker(&[0, 9, 10, 19, 1_000_010, 20, 0]);
    for expected in ["throttle", "lb"] {
        match picker.pick(PickArgs::default()) {
            PickResult::Drop { category } => assert_eq!(&**category, expected),
            other => panic!("expected a drop, got {other:?}"),
        }
    }
    assert_eq!(pick(&mut picker).0, address(0, 1));
    assert_eq!(picker.stats().drop_overload.get(), 2);
}

#[test]
fn retries_are_not_dropped() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    let mut dropping = parts(&[("a", 2)]);
    dropping.drop_overloads = vec![DropOverloadParts {
        category: "all".into(),
        numerator: 100,
        denominator: 100,
    }];
    rig.assign(dropping);
    let mut picker = rig.picker(&[0; 8]);
    let tried: Vec<_> = picker.snapshot().hosts().take(1).cloned().collect();
    let again = PickArgs {
        hash: None,
        avoid: &tried,
        ..Default::default()
    };
    let host = picker.pick(again).host().map(|host| host.address());
    assert_eq!(host, Some(address(0, 2)));
    assert!(matches!(
        picker.pick(PickArgs::default()),
        PickResult::Drop { .. }
    ));
}

#[test]
fn panic_uses_all_hosts_or_fails() {
    let fail = ZoneAwareParts {
        fail_traffic_on_panic: true,
        ..Default::default()
    };
    for (parts_of, fails) in [(ZoneAwareParts::default(), false), (fail, true)] {
        let zone_aware = ZoneAware::try_new(parts_of).unwrap();
        let mut rig = Rig::new(ClusterConfigParts {
            locality_policy: LocalityPolicy::ZoneAware(zone_aware),
            ..Default::default()
        });
        rig.assign(parts(&[("a", 3)]))
            .fail(address(0, 1))
            .fail(address(0, 2));
        let mut picker = rig.picker(&[0]);
        match picker.pick(PickArgs::default()) {
            PickResult::Complete(pick) => {
                assert!(!fails);
                assert_eq!(pick.source, HostSource::AllHosts);
            }
            PickResult::Fail(error) => assert!(fails && error == PickError::Panic),
            other => panic!("{other:?}"),
        }
        assert_eq!(picker.stats().lb_healthy_panic.get(), 1);
    }
}

#[test]
fn degraded_hosts_serve_when_healthy_capacity_is_short() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    let mut mixed = parts(&[("a", 3)]);
    for endpoint in &mut mixed.endpoints[0].lb_endpoints[1..] {
        endpoint.health_status = HealthStatus::Degraded;
    }
    rig.assign(mixed);
    // Healthy load 46 %, degraded load 54 %: draw 45 is healthy, 46 is degraded.
    let mut picker = rig.picker(&[0, 45, 46]);
    assert_eq!(hosts(&mut picker, 2), [address(0, 1), address(0, 2)]);
}

#[test]
fn only_the_classic_bases_choose_slots_without_degraded_hosts() {
    for (basis, served) in [
        (LocalityBasis::HealthyHostsNum, false),
        (LocalityBasis::LrsReportedRate, true),
    ] {
        let zone_aware = ZoneAware::try_new(ZoneAwareParts {
            locality_basis: basis,
            min_cluster_size: Some(1),
            ..Default::default()
        });
        let mut rig = Rig::new(ClusterConfigParts {
            locality_policy: LocalityPolicy::ZoneAware(zone_aware.unwrap()),
            ..Default::default()
        });
        // Healthy hosts in both zones, degraded ones only in zone b.
        let mut mixed = parts(&[("a", 1), ("b", 4)]);
        for endpoint in &mut mixed.endpoints[1].lb_endpoints[1..] {
            endpoint.health_status = HealthStatus::Degraded;
        }
        rig.fleet(parts(&[("a", 1), ("b", 1)])).assign(mixed);
        // Half healthy, half degraded by draw; everything stays local.
        let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(3));
        let mut lost = 0;
        let mut degraded = 0;
        for _ in 0..200 {
            match picker.pick(PickArgs::default()) {
                PickResult::Complete(pick) => {
                    degraded += u32::from(pick.source == HostSource::DegradedHosts);
                }
                PickResult::Fail(PickError::NoHost) => lost += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((lost == 0, degraded > 0), (served, served), "{basis:?}");
    }
}

#[test]
fn tried_hosts_are_avoided_while_there_are_others() {
    for policy in policies() {
        let hash = policy.is_hash();
        let locality_policy = if hash {
            LocalityPolicy::Flat
        } else {
            LocalityPolicy::default()
        };
        let mut rig = Rig::new(ClusterConfigParts {
            endpoint_policy: policy.clone(),
            locality_policy,
            ..Default::default()
        });
        rig.fleet(parts(&EXAMPLE)).assign(parts(&EXAMPLE));
        let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(1));
        for hash in 0..50 {
            let mut tried: Vec<Arc<Host>> = Vec::new();
            for _ in 0..10 {
                let args = PickArgs {
                    hash: Some(hash * 7_919),
                    avoid: &tried,
                    ..Default::default()
                };
                let host = Arc::clone(picker.pick(args).host().unwrap());
                let again = tried.iter().any(|tried| Arc::ptr_eq(tried, &host));
                assert!(!again, "{} picked a tried host", policy.name());
                tried.push(host);
            }
            let args = PickArgs {
                hash: Some(hash),
                avoid: &tried,
                ..Default::default()
            };
            assert!(
                picker.pick(args).host().is_some(),
                "a second attempt is better than none"
            );
        }
    }
}

#[test]
fn the_next_priority_is_used_when_all_hosts_were_tried() {
    for policy in policies() {
        let hash = policy.is_hash();
        let locality_policy = if hash {
            LocalityPolicy::Flat
        } else {
            LocalityPolicy::default()
        };
        let mut rig = Rig::new(ClusterConfigParts {
            endpoint_policy: policy.clone(),
            locality_policy,
            ..Default::default()
        });
        let mut three = parts(&[("a", 2), ("b", 3), ("c", 4), ("d", 1)]);
        // Zones a and b are the first priority, c the second, d the third.
        three.endpoints[2].priority = 1;
        three.endpoints[3].priority = 2;
        rig.fleet(parts(&EXAMPLE)).assign(three);
        let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(1));
        let all: Vec<_> = picker.snapshot().hosts().cloned().collect();
        let peers = |tried: &[Arc<Host>], picker: &mut Picker| {
            let hosts = picker.snapshot().hosts_of_tried_priorities(tried);
            hosts.map(|hosts| hosts.len())
        };
        assert_eq!(peers(&all[..1], &mut picker), Some(5));
        assert_eq!(peers(&all[4..6], &mut picker), Some(9));
        assert_eq!(peers(&all, &mut picker), None);
        // Hashes from all over the ring.
        let spread = u64::MAX / 401;
        let mut pick = |hash: u64, avoided: usize| {
            let args = PickArgs {
                hash: Some(hash * spread),
                avoid: &all[..avoided],
                ..Default::default()
            };
            match picker.pick(args) {
                PickResult::Complete(pick) => (pick.priority, pick.host.address()),
                other => panic!("a second try beats none: {other:?}"),
            }
        };
        for (avoided, expected) in [(4, 0), (5, 1), (8, 1), (9, 2), (10, 0)] {
            for hash in 0..50 {
                let (priority, _) = pick(hash, avoided);
                assert_eq!(priority, expected, "{}: {avoided} avoided", policy.name());
            }
        }
        let mut seen = std::collections::BTreeMap::new();
        for hash in 0..400 {
            *seen.entry(pick(hash, 5).1).or_insert(0) += 1;
        }
        // All hosts of the second priority share what the first one cannot take.
        assert_eq!(seen.len(), 4, "{}: {seen:?}", policy.name());
        assert!(seen.values().all(|count| *count > 40), "{seen:?}");
    }
}

#[test]
fn traffic_of_an_avoided_zone_spreads_evenly() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    rig.fleet(parts(&EXAMPLE))
        .assign(parts(&[("a", 6), ("b", 6)]));
    let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(1));
    let zone_a: Vec<_> = picker.snapshot().hosts().take(6).cloned().collect();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..600 {
        let args = PickArgs {
            hash: None,
            avoid: &zone_a,
            ..Default::default()
        };
        let host = picker.pick(args).host().map(|host| host.address());
        *seen.entry(host.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    assert!(
        seen.values().all(|count| (60..=160).contains(count)),
        "{seen:?}"
    );
}

/// Every endpoint policy, including the variants with bounded load and full scan.
fn policies() -> Vec<EndpointPolicy> {
    let hashing = |factor| ConsistentHashing::try_new(false, factor).unwrap();
    let ring =
        |factor| RingHash::try_new(HashFunction::XxHash, None, None, hashing(factor)).unwrap();
    let scan = LeastRequestParts {
        selection_method: crate::model::endpoint_policy::SelectionMethod::FullScan,
        ..Default::default()
    };
    vec![
        EndpointPolicy::default(),
        EndpointPolicy::Random,
        EndpointPolicy::LeastRequest(LeastRequest::try_new(Default::default()).unwrap()),
        EndpointPolicy::LeastRequest(LeastRequest::try_new(scan).unwrap()),
        EndpointPolicy::RingHash(ring(None)),
        EndpointPolicy::RingHash(ring(Some(120))),
        EndpointPolicy::Maglev(Maglev::try_new(None, hashing(None)).unwrap()),
    ]
}

#[test]
fn least_request_follows_the_requests_in_flight() {
    let policy = LeastRequest::try_new(LeastRequestParts::default()).unwrap();
    let mut rig = Rig::new(ClusterConfigParts {
        endpoint_policy: EndpointPolicy::LeastRequest(policy),
        ..Default::default()
    });
    rig.assign(parts(&[("a", 2)]));
    let mut picker = rig.picker(&[0, 0, 0, 1, 0, 1, 0]);
    let first = Arc::clone(picker.pick(PickArgs::default()).host().unwrap());
    let request = first.begin_request();
    assert_eq!(first.address(), address(0, 1));
    // The same draws again: host 1 has a request in flight now, so host 2 wins.
    assert_eq!(pick(&mut picker).0, address(0, 2));
    drop(request);
}

#[test]
fn least_request_follows_requests_that_the_driver_counts() {
    let policy = LeastRequest::try_new(LeastRequestParts::default()).unwrap();
    for weight in [None, Some(3)] {
        let mut rig = Rig::new(ClusterConfigParts {
            endpoint_policy: EndpointPolicy::LeastRequest(policy.clone()),
            ..Default::default()
        });
        let mut assignment = parts(&[("a", 2)]);
        assignment.endpoints[0].lb_endpoints[1].load_balancing_weight = weight;
        rig.assign(assignment);
        let mut picker = Picker::new(rig.reader.clone(), Xoshiro256::from_seed(7));
        // Host 2 is busy, whatever its own counter says.
        let read = |host: &Host| {
            if host.address() == address(0, 2) {
                1_000
            } else {
                0
            }
        };
        let mut busy = 0;
        for _ in 0..400 {
            let picked = picker.pick_with_active_requests(PickArgs::default(), &read);
            let host = picked.host().unwrap();
            busy += u32::from(host.address() == address(0, 2));
        }
        // Two draws with replacement both hit it in a quarter of the picks; a schedule avoids it.
        let limit = if weight.is_some() { 10 } else { 130 };
        assert!(busy <= limit, "{busy} with weight {weight:?}");
    }
}

#[test]
fn weighted_least_request_is_scheduled_by_weight_and_load() {
    let policy = LeastRequest::try_new(LeastRequestParts::default()).unwrap();
    let mut rig = Rig::new(ClusterConfigParts {
        endpoint_policy: EndpointPolicy::LeastRequest(policy),
        ..Default::default()
    });
    let mut weighted = parts(&[("a", 2)]);
    weighted.endpoints[0].lb_endpoints[1].load_balancing_weight = Some(3);
    rig.assign(weighted);
    let mut picker = rig.picker(&[0]);
    let count = |picked: &[SocketAddr]| picked.iter().filter(|&&h| h == address(0, 2)).count();
    assert_eq!(count(&hosts(&mut picker, 40)), 30);
    let snapshot = Arc::clone(picker.snapshot());
    let busy = snapshot.hosts().nth(1).unwrap();
    let requests = [busy.begin_request(), busy.begin_request()];
    let picked = hosts(&mut picker, 40);
    assert!(
        (19..=22).contains(&count(&picked)),
        "3/(2+1) is as good as 1: {}",
        count(&picked)
    );
    drop(requests);
}

#[test]
fn hashing_is_sticky_and_bounded_load_moves_the_excess() {
    let hashing = ConsistentHashing::try_new(false, Some(100)).unwrap();
    let ring = RingHash::try_new(HashFunction::XxHash, None, None, hashing).unwrap();
    let mut rig = Rig::new(ClusterConfigParts {
        endpoint_policy: EndpointPolicy::RingHash(ring),
        locality_policy: LocalityPolicy::Flat,
        ..Default::default()
    });
    rig.assign(parts(&[("a", 2), ("b", 2)]));
    let mut picker = rig.picker(&[]);
    let args = PickArgs {
        hash: Some(42),
        avoid: &[],
        ..Default::default()
    };
    let first = Arc::clone(picker.pick(args).host().unwrap());
    assert!(Arc::ptr_eq(picker.pick(args).host().unwrap(), &first));
    let requests: Vec<_> = (0..8).map(|_| first.begin_request()).collect();
    assert!(
        !Arc::ptr_eq(picker.pick(args).host().unwrap(), &first),
        "8 of 9 is too much"
    );
    drop(requests);
    assert!(Arc::ptr_eq(picker.pick(args).host().unwrap(), &first));
    assert!(
        picker.rng.used() <= 1,
        "a request with a hash draws nothing (but the seed)"
    );
}

#[test]
fn locality_weights_choose_the_slot_if_there_are_any() {
    let mut rig = Rig::new(ClusterConfigParts {
        locality_policy: LocalityPolicy::LocalityWeighted,
        ..Default::default()
    });
    let mut weighted = parts(&[("a", 2), ("b", 2)]);
    weighted.endpoints[0].load_balancing_weight = Some(1);
    weighted.endpoints[1].load_balancing_weight = Some(3);
    rig.assign(weighted);
    let mut picker = rig.picker(&[0]);
    let picked = hosts(&mut picker, 40);
    let in_a = picked
        .iter()
        .filter(|host| host.ip() == address(0, 1).ip() || host.ip() == address(0, 2).ip());
    assert_eq!(in_a.count(), 10);
    rig.assign(parts(&[("a", 2), ("b", 2)]));
    match picker.pick(PickArgs::default()) {
        PickResult::Complete(pick) => assert_eq!(pick.source, HostSource::HealthyHosts),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_changed_policy_takes_effect_at_the_next_pick() {
    let mut rig = Rig::new(ClusterConfigParts::default());
    let mut weighted = parts(&[("a", 2)]);
    weighted.endpoints[0].lb_endpoints[1].load_balancing_weight = Some(3);
    rig.assign(weighted);
    let mut picker = rig.picker(&[0]);
    hosts(&mut picker, 3);
    for endpoint_policy in policies() {
        let locality_policy = if endpoint_policy.is_hash() {
            LocalityPolicy::Flat
        } else {
            Default::default()
        };
        let config = ClusterConfigParts {
            name: "orders".into(),
            endpoint_policy,
            locality_policy,
            ..Default::default()
        };
        rig.balancer
            .handle_config(Arc::new(ClusterConfig::try_new(config).unwrap()), NOW);
        rig.publish();
        hosts(&mut picker, 3);
    }
}

#[test]
fn weights_that_underflow_do_not_stop_a_schedule() {
    // Both policies are valid, and the weights under either underflow to 0.
    let slow = SlowStart::try_new(Duration::from_secs(60), Some(0.005), Some(0.0)).unwrap();
    let steep = LeastRequestParts {
        active_request_bias: Some(2000.0),
        ..Default::default()
    };
    for policy in [
        EndpointPolicy::RoundRobin(RoundRobin { slow_start: slow }),
        EndpointPolicy::LeastRequest(LeastRequest::try_new(steep).unwrap()),
    ] {
        let mut rig = Rig::new(ClusterConfigParts {
            endpoint_policy: policy,
            ..Default::default()
        });
        let mut weighted = parts(&[("a", 3)]);
        weighted.endpoints[0].lb_endpoints[0].load_balancing_weight = Some(2);
        rig.assign(weighted);
        let mut picker = rig.picker(&[0]);
        let busy = Arc::clone(picker.snapshot().hosts().next().unwrap()).begin_request();
        hosts(&mut picker, 20);
        drop(busy);
    }
}
