//! Strategies for assignments, fleets, demand and settings, valid by construction.
//!
//! Small on purpose: a few zones and hosts reach every branch, and a failure stays readable.

use std::sync::Arc;

use plimsoll_core::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};
use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::endpoint_policy::{
    EndpointPolicy, LeastRequest, LeastRequestParts, SelectionMethod,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::zone_aware::{
    CapacityBasis, ForceLocalZone, LocalityBasis, ZoneAware, ZoneAwareParts,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::{address, zone};

/// Names of zones; most tests are in the first.
pub(crate) const ZONES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Healthy or unhealthy only: every request has a host while there is a healthy one.
pub(crate) fn healthy_or_not() -> impl Strategy<Value = HealthStatus> {
    use HealthStatus::{Draining, Healthy, Timeout, Unhealthy, Unknown};
    prop_oneof![
        5 => select(vec![Unknown, Healthy]),
        2 => select(vec![Unhealthy, Timeout, Draining]),
    ]
}

/// Every health status of EDS.
pub(crate) fn any_health() -> impl Strategy<Value = HealthStatus> {
    prop_oneof![3 => healthy_or_not(), 1 => Just(HealthStatus::Degraded)]
}

/// An assignment of up to `zones` zones at up to `priorities` priorities; localities and hosts may
/// have weights, and a locality may be empty.
pub(crate) fn assignment(
    zones: usize,
    priorities: u32,
    health: impl Strategy<Value = HealthStatus> + 'static,
) -> impl Strategy<Value = AssignmentParts> {
    let host = (health, proptest::option::of(1_u32..=5));
    let hosts = proptest::collection::vec(host, 0..6);
    let entry = (
        0..zones,
        0..priorities,
        proptest::option::of(1_u32..=9),
        hosts,
    );
    proptest::collection::vec(entry, 0..2 * zones).prop_map(|entries| {
        let mut parts = AssignmentParts {
            cluster_name: "orders".into(),
            ..Default::default()
        };
        let mut seen = std::collections::BTreeSet::new();
        for (index, (place, priority, weight, hosts)) in entries.into_iter().enumerate() {
            if !seen.insert((place, priority)) {
                continue;
            }
            let endpoint = |(host, (health_status, weight))| LbEndpoint {
                health_status,
                load_balancing_weight: weight,
                ..LbEndpoint::new(address(index, host))
            };
            parts.endpoints.push(LocalityParts {
                locality: zone(ZONES[place]),
                priority,
                load_balancing_weight: weight,
                lb_endpoints: hosts.into_iter().enumerate().map(endpoint).collect(),
                ..Default::default()
            });
        }
        parts
    })
}

/// A fleet in up to `zones` zones, some of them with a fraction, in both places.
pub(crate) fn fleet(zones: usize) -> impl Strategy<Value = AssignmentParts> {
    let fraction = proptest::option::of(0_u32..=10_000);
    let zone_of_fleet = (
        any::<bool>(),
        proptest::collection::vec(any_health(), 0..5),
        fraction,
    );
    proptest::collection::vec(zone_of_fleet, zones).prop_map(|zones| {
        let entry = |(index, (there, hosts, fraction)): (usize, (bool, Vec<_>, Option<u32>))| {
            let endpoint = |(host, health_status)| LbEndpoint {
                health_status,
                ..LbEndpoint::new(address(100 + index, host))
            };
            there.then(|| LocalityParts {
                locality: zone(ZONES[index]),
                lb_endpoints: hosts.into_iter().enumerate().map(endpoint).collect(),
                observed_traffic_fraction: fraction.map(u64::from),
                metadata_traffic_fraction: fraction.map(|bp| f64::from(10_000 - bp)),
                ..Default::default()
            })
        };
        AssignmentParts {
            cluster_name: "fleet".into(),
            endpoints: zones.into_iter().enumerate().filter_map(entry).collect(),
            ..Default::default()
        }
    })
}

/// Demand of `zones` zones in basis points that sum to exactly 10000.
pub(crate) fn demand(zones: usize) -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(0_u64..=10_000, zones - 1).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts.push(10_000);
        let mut before = 0;
        cuts.into_iter()
            .map(|cut| cut - std::mem::replace(&mut before, cut))
            .collect()
    })
}

/// Zone-aware settings with every option.
pub(crate) fn zone_aware() -> impl Strategy<Value = ZoneAware> {
    let bases = vec![
        LocalityBasis::HealthyHostsNum,
        LocalityBasis::HealthyHostsWeight,
        LocalityBasis::LrsReportedRate,
    ];
    let capacity = vec![
        CapacityBasis::HealthyHostsNum,
        CapacityBasis::HealthyHostsWeight,
    ];
    let force = proptest::option::weighted(0.2, proptest::option::of(0_u32..4));
    (
        select(bases),
        select(capacity),
        proptest::option::of(select(vec![0.0, 30.0, 100.0])),
        0_u64..8,
        proptest::option::of(select(vec![0_u64, 500])),
        force,
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(basis, capacity, enabled, size, band, force, (fail, all))| {
                let parts = ZoneAwareParts {
                    locality_basis: basis,
                    upstream_locality_basis: capacity,
                    routing_enabled: enabled,
                    min_cluster_size: Some(size),
                    dead_band_bp: band,
                    force_local_zone: force.map(|min_size| ForceLocalZone { min_size }),
                    fail_traffic_on_panic: fail,
                    all_priorities: all,
                    ..Default::default()
                };
                ZoneAware::try_new(parts).expect("valid by construction")
            },
        )
}

/// Locality policies for endpoint policies without hashing.
pub(crate) fn locality_policy() -> impl Strategy<Value = LocalityPolicy> {
    prop_oneof![
        1 => Just(LocalityPolicy::Flat),
        1 => Just(LocalityPolicy::LocalityWeighted),
        1 => Just(LocalityPolicy::WrrLocality),
        4 => zone_aware().prop_map(LocalityPolicy::ZoneAware),
    ]
}

/// Endpoint policies without hashing.
pub(crate) fn endpoint_policy() -> impl Strategy<Value = EndpointPolicy> {
    let least_request = |selection_method| {
        let parts = LeastRequestParts {
            selection_method,
            ..Default::default()
        };
        EndpointPolicy::LeastRequest(LeastRequest::try_new(parts).expect("valid"))
    };
    select(vec![
        EndpointPolicy::default(),
        EndpointPolicy::Random,
        least_request(SelectionMethod::NChoices),
        least_request(SelectionMethod::FullScan),
    ])
}

/// Settings of a cluster without hashing.
pub(crate) fn cluster_config() -> impl Strategy<Value = Arc<ClusterConfig>> {
    let sampling = vec![LocalitySampling::Random, LocalitySampling::LowDiscrepancy];
    let threshold = proptest::option::of(0_u32..=100);
    (
        locality_policy(),
        endpoint_policy(),
        select(sampling),
        threshold,
    )
        .prop_map(
            |(locality_policy, endpoint_policy, locality_sampling, threshold)| {
                let parts = ClusterConfigParts {
                    name: "orders".into(),
                    healthy_panic_threshold: threshold.map(f64::from),
                    locality_policy,
                    endpoint_policy,
                    locality_sampling: Some(locality_sampling),
                    ..Default::default()
                };
                Arc::new(ClusterConfig::try_new(parts).expect("valid by construction"))
            },
        )
}
