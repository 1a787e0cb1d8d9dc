//! A pick allocates nothing: every endpoint policy under every compatible locality policy, with
//! retries, hashes, bounded load, requests in flight, priorities and panic.
//!
//! A worker builds its tables on the first pick from a snapshot, and the schedule of a weighted
//! list on the first pick from that list; after that it must not allocate. Allocations are counted
//! per thread, so that tests may run in parallel.

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use plimsoll_core::host::{Host, RequestOutcome};
use plimsoll_core::model::assignment::AssignmentParts;
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
use plimsoll_core::model::cluster::{LocalityPolicy, LocalitySampling};
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin, SelectionMethod, SlowStart,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::metadata::{MatchCriteria, Metadata, MetadataValue};
use plimsoll_core::model::subset::{LbSubsetConfig, LbSubsetConfigParts, SubsetSelectorParts};
use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_core::picker::{PickArgs, Picker};
use plimsoll_core::publish;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::DriverSnapshot;

use crate::support::{Driver, at, parts, zone_aware};

const PICKS: u64 = 10_000;

/// A test case with its name.
type Named<T> = (&'static str, T);

fn least_request(selection_method: SelectionMethod) -> EndpointPolicy {
    let parts = LeastRequestParts {
        selection_method,
        active_request_bias: Some(1.5),
        ..Default::default()
    };
    EndpointPolicy::LeastRequest(LeastRequest::try_new(parts).expect("valid"))
}

fn slow_start() -> EndpointPolicy {
    let slow_start = SlowStart::try_new(Duration::from_secs(60), None, None).expect("valid");
    EndpointPolicy::RoundRobin(RoundRobin { slow_start })
}

fn endpoint_policies() -> Vec<Named<EndpointPolicy>> {
    vec![
        ("round_robin", EndpointPolicy::default()),
        ("slow_start", slow_start()),
        ("least_request", least_request(SelectionMethod::NChoices)),
        ("full_scan", least_request(SelectionMethod::FullScan)),
        ("random", EndpointPolicy::Random),
    ]
}

fn hash_policies() -> Vec<Named<EndpointPolicy>> {
    let plain = ConsistentHashing::default();
    let bounded = ConsistentHashing::try_new(false, Some(100)).expect("valid");
    let ring = |hashing| {
        let ring = RingHash::try_new(HashFunction::XxHash, Some(512), None, hashing);
        EndpointPolicy::RingHash(ring.expect("valid"))
    };
    let maglev =
        |hashing| EndpointPolicy::Maglev(Maglev::try_new(Some(1_009), hashing).expect("valid"));
    vec![
        ("ring_hash", ring(plain)),
        ("bounded ring_hash", ring(bounded)),
        ("maglev", maglev(plain)),
        ("bounded maglev", maglev(bounded)),
    ]
}

fn weighted_localities() -> Vec<Named<LocalityPolicy>> {
    vec![
        ("flat", LocalityPolicy::Flat),
        ("locality_weighted", LocalityPolicy::LocalityWeighted),
        ("wrr_locality", LocalityPolicy::WrrLocality),
    ]
}

fn zone_aware_localities() -> Vec<Named<LocalityPolicy>> {
    vec![
        (
            "by hosts",
            zone_aware(|zone| zone.locality_basis = LocalityBasis::HealthyHostsNum),
        ),
        (
            "by weight",
            zone_aware(|zone| zone.locality_basis = LocalityBasis::HealthyHostsWeight),
        ),
        (
            "by rate",
            zone_aware(|zone| zone.locality_basis = LocalityBasis::LrsReportedRate),
        ),
        (
            "sampled",
            zone_aware(|zone| zone.routing_enabled = Some(50.0)),
        ),
        (
            "forced",
            zone_aware(|zone| zone.force_locality_direct_routing = true),
        ),
    ]
}

/// Returns every valid combination, with random and low-discrepancy sampling.
fn configs() -> Vec<(String, Arc<ClusterConfig>)> {
    let mut configs = Vec::new();
    let mut add = |endpoint: &Named<EndpointPolicy>, locality: &Named<LocalityPolicy>| {
        for sampling in [LocalitySampling::Random, LocalitySampling::LowDiscrepancy] {
            let parts = ClusterConfigParts {
                name: "orders".into(),
                locality_policy: locality.1.clone(),
                endpoint_policy: endpoint.1.clone(),
                locality_sampling: Some(sampling),
                ..Default::default()
            };
            let name = format!("{}, {}, {sampling:?}", endpoint.0, locality.0);
            configs.push((
                name,
                Arc::new(ClusterConfig::try_new(parts).expect("allowed")),
            ));
        }
    };
    for endpoint in &endpoint_policies() {
        let localities = weighted_localities()
            .into_iter()
            .chain(zone_aware_localities());
        localities.for_each(|locality| add(endpoint, &locality));
    }
    for endpoint in &hash_policies() {
        weighted_localities()
            .iter()
            .for_each(|locality| add(endpoint, locality));
    }
    configs
}

/// Returns three zones at two priorities with all kinds of health; `host_weights` makes weights
/// differ.
fn upstream(host_weights: bool) -> AssignmentParts {
    let mut parts = parts(&[("a", 4), ("b", 9), ("c", 6), ("d", 3), ("e", 3)]);
    for (index, entry) in (1_u32..).zip(&mut parts.endpoints) {
        entry.load_balancing_weight = Some(index);
        entry.priority = u32::from(index > 3);
        for (host, endpoint) in (1_u32..).zip(&mut entry.lb_endpoints) {
            if host_weights {
                endpoint.load_balancing_weight = Some(host);
            }
            endpoint.health_status = match host {
                3 => HealthStatus::Unhealthy,
                4 => HealthStatus::Degraded,
                _ => HealthStatus::Healthy,
            };
        }
    }
    parts
}

fn fleet(demand: [u64; 3]) -> AssignmentParts {
    let mut fleet = parts(&[("a", 5), ("b", 3), ("c", 2)]);
    for (entry, bp) in fleet.endpoints.iter_mut().zip(demand) {
        entry.observed_traffic_fraction = Some(bp);
    }
    fleet
}

fn driver(config: &Arc<ClusterConfig>, host_weights: bool) -> Driver {
    let mut driver = Driver::new(Arc::clone(config), "a");
    driver.originating(fleet([6000, 3000, 1000]), at(0));
    driver.assignment(upstream(host_weights), at(0));
    driver
}

/// Makes one request like a proxy: pick, begin, and retry on another host if it fails.
fn request(picker: &mut Picker, avoid: &mut [Arc<Host>; 2], number: u64) {
    let hash = (number.is_multiple_of(3)).then(|| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let Some(first) = picker
        .pick(PickArgs {
            hash,
            avoid: &[],
            ..Default::default()
        })
        .host()
        .map(Arc::clone)
    else {
        return;
    };
    let active = first.begin_request();
    avoid[0] = Arc::clone(&first);
    let second = picker
        .pick(PickArgs {
            hash,
            avoid: &avoid[..1],
            ..Default::default()
        })
        .host()
        .map(Arc::clone);
    let retried = second.as_ref().map(Host::begin_request);
    if let Some(second) = second {
        avoid[1] = second;
        picker.pick(PickArgs {
            hash,
            avoid: &avoid[..],
            ..Default::default()
        });
    }
    active.finish(RequestOutcome::Error);
    if let Some(retried) = retried {
        retried.finish(RequestOutcome::Success);
    }
}

/// Counts the allocations of `PICKS` picks, three per request, after `warm_up` picks.
fn allocations(driver: &mut Driver, warm_up: u64) -> u64 {
    let mut picker = driver.picker(7);
    let first = driver
        .snapshot()
        .hosts()
        .next()
        .map(Arc::clone)
        .expect("there are hosts");
    // Requests that stay in flight, so that bounded load has an effect.
    let busy: Vec<_> = (0..20).map(|_| first.begin_request()).collect();
    let mut avoid = [Arc::clone(&first), first];
    for number in 0..warm_up {
        picker.pick(PickArgs {
            hash: Some(number),
            avoid: &[],
            ..Default::default()
        });
    }
    let info =
        measure(|| (0..PICKS / 3).for_each(|number| request(&mut picker, &mut avoid, number)));
    drop(busy);
    info.count_total
}

#[test]
fn allocations_are_counted() {
    let info = measure(|| drop(std::hint::black_box(vec![1_u8])));
    assert_eq!(info.count_total, 1);
}

/// Lists of equal weights need only a cursor: one pick is enough to warm up.
#[test]
fn after_the_first_pick_nothing_is_allocated() {
    for (name, config) in configs() {
        if config.endpoint_policy().slow_start().is_some() {
            continue; // schedules: the next test
        }
        assert_eq!(allocations(&mut driver(&config, false), 1), 0, "{name}");
    }
}

/// Weighted lists and slow start have a schedule per list, built on the first pick from the list.
#[test]
fn schedules_allocate_nothing_after_first_use() {
    for (name, config) in configs() {
        assert_eq!(allocations(&mut driver(&config, true), 3_000), 0, "{name}");
    }
}

/// Looking up driver data of a host does not allocate either, even across snapshots.
#[test]
fn looking_up_driver_data_allocates_nothing() {
    let policy = zone_aware(|zone| zone.locality_basis = LocalityBasis::LrsReportedRate);
    let config = crate::support::config(|parts| parts.locality_policy = policy);
    let mut driver = driver(&config, false);
    let mut newest = Arc::new(DriverSnapshot::new(driver.snapshot(), |host| {
        host.address()
    }));
    let (mut publisher, reader) = publish::channel(Arc::clone(&newest));
    let mut picker = Picker::new(reader, Xoshiro256::from_seed(7));
    picker.pick(PickArgs::default());
    for step in 1..50 {
        driver.originating(fleet([6000 - 10 * step, 3000, 1000 + 10 * step]), at(step));
        newest = Arc::new(newest.next(driver.snapshot(), |host, _| host.address()));
        publisher.publish(Arc::clone(&newest));
        let info = measure(|| {
            for _ in 0..100 {
                let (snapshot, picked) = picker.pick_with_snapshot(PickArgs::default());
                let host = picked.host().expect("there are hosts");
                assert_eq!(snapshot.attached(host), Some(&host.address()));
            }
        });
        assert_eq!(info.count_total, 0, "update {step}");
    }
}

/// A fraction-only update costs a worker nothing, not even on the first pick that sees it.
#[test]
fn a_fraction_update_allocates_nothing() {
    let policy = zone_aware(|zone| zone.locality_basis = LocalityBasis::LrsReportedRate);
    for (name, endpoint_policy) in endpoint_policies() {
        let config = crate::support::config(|parts| {
            parts.locality_policy = policy.clone();
            parts.endpoint_policy = endpoint_policy;
        });
        let mut driver = driver(&config, true);
        let mut picker = driver.picker(3);
        (0..3_000).for_each(|_| drop(picker.pick(PickArgs::default()).host().map(Arc::clone)));
        for step in 1..50 {
            driver.originating(fleet([6000 - 10 * step, 3000, 1000 + 10 * step]), at(step));
            let info = measure(|| {
                for _ in 0..100 {
                    picker.pick(PickArgs::default());
                }
            });
            assert_eq!(info.count_total, 0, "{name}, update {step}");
        }
    }
}

/// Panic and drops have their own code paths in a pick.
#[test]
fn panic_and_drops_allocate_nothing() {
    use plimsoll_core::model::assignment::DropOverloadParts;
    for (name, config) in configs() {
        let mut assignment = upstream(false);
        assignment.drop_overloads = vec![DropOverloadParts {
            category: "throttle".into(),
            numerator: 10,
            denominator: 100,
        }];
        for endpoint in assignment
            .endpoints
            .iter_mut()
            .flat_map(|entry| &mut entry.lb_endpoints)
        {
            endpoint.health_status = HealthStatus::Unhealthy;
        }
        let mut driver = Driver::new(config, "a");
        driver.originating(fleet([6000, 3000, 1000]), at(0));
        driver.assignment(assignment, at(0));
        assert!(
            driver.snapshot().loads().panic().iter().all(|&panic| panic),
            "{name}"
        );
        assert_eq!(allocations(&mut driver, 100), 0, "{name}");
    }
}

fn version(name: &str) -> Metadata {
    [("version", MetadataValue::from(name))]
        .into_iter()
        .collect()
}

/// Hosts of every zone alternate between two subsets. A pick finds its subset, stays in it, and
/// allocates nothing.
#[test]
fn picks_within_subsets_allocate_nothing_and_stay_there() {
    let locality = zone_aware(|zone| zone.locality_basis = LocalityBasis::LrsReportedRate);
    for (name, endpoint_policy) in endpoint_policies().into_iter().chain(hash_policies()) {
        let config = crate::support::config(|parts| {
            parts.locality_policy = if endpoint_policy.is_hash() {
                LocalityPolicy::Flat
            } else {
                locality.clone()
            };
            parts.endpoint_policy = endpoint_policy;
            let subsets = LbSubsetConfig::try_new(LbSubsetConfigParts {
                subset_selectors: vec![SubsetSelectorParts {
                    keys: vec!["version".to_owned()],
                    ..Default::default()
                }],
                ..Default::default()
            });
            parts.lb_subset_config = Some(subsets.expect("valid"));
        });
        let mut assignment = parts(&[("a", 6), ("b", 6), ("c", 6)]);
        let endpoints = assignment
            .endpoints
            .iter_mut()
            .flat_map(|entry| &mut entry.lb_endpoints);
        let mut canaries = Vec::new();
        for (index, endpoint) in endpoints.enumerate() {
            let is_canary = index.is_multiple_of(2);
            endpoint.metadata = version(if is_canary { "canary" } else { "stable" });
            if is_canary {
                canaries.push(endpoint.address);
            }
        }
        let mut driver = Driver::new(config, "a");
        driver.originating(fleet([6000, 3000, 1000]), at(0));
        driver.assignment(assignment, at(0));
        let mut picker = driver.picker(7);
        let criteria = MatchCriteria::new(version("canary"));
        let mut pick = |number: u64| {
            let args = PickArgs {
                hash: Some(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                metadata_match: Some(&criteria),
                ..Default::default()
            };
            let picked = picker.pick(args);
            let host = picked.host().expect("the subset has hosts");
            assert!(canaries.contains(&host.address()), "{name}: {host:?}");
        };
        (0..3_000).for_each(&mut pick);
        let info = measure(|| (0..PICKS).for_each(&mut pick));
        assert_eq!(info.count_total, 0, "{name}");
    }
}
