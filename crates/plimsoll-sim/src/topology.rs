//! Assignments of the upstream cluster and of the fleet, as a management server would send them.
//!
//! Addresses of hosts and proxies encode their number, so that a picked host is found without a
//! search. `world` builds assignments at the start and when health or (for the oracle) demand
//! changes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::planner::fleet_weights::{FleetHosts, weights_or_host_counts};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_core::units::FieldError;

use crate::faults::{Faults, ZoneFaults};
use crate::num;
use crate::policy::CLUSTER;
use crate::scenario::{Scenario, Zone};

/// The `node.cluster` of the proxies.
pub(crate) const FLEET: &str = "edge";

/// Upstream hosts are in 10.0.0.0/8, proxies in 172.0.0.0/8, endpoints that only carry the weight
/// of a zone without proxies in 192.0.0.0/8.
const HOSTS: u32 = 10 << 24;
const PROXIES: u32 = 172 << 24;
const PHANTOMS: u32 = 192 << 24;
/// Sum of the weights by which a fleet learns the true demand: fine enough, and far below 32 bits.
const TOTAL_WEIGHT: f64 = 1e8;
/// Weight of the smallest host if weights represent capacities.
const UNIT_WEIGHT: f64 = 100.0;

pub(crate) fn host_number(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => (address.ip().to_bits() & 0x00ff_ffff) as usize,
        SocketAddr::V6(_) => usize::MAX,
    }
}

fn address(base: u32, number: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(base | number), 80))
}

/// Builds the assignment of the upstream cluster. With `true_capacity`, weights are the capacities
/// (the oracle), otherwise those of the scenario.
pub(crate) fn upstream(
    scenario: &Scenario,
    faults: &Faults,
    true_capacity: bool,
) -> Result<ClusterLoadAssignment, FieldError> {
    let smallest = smallest_capacity(scenario);
    let mut number = 0;
    let mut endpoints = Vec::new();
    for (zone, faults) in scenario.zones.iter().zip(&faults.zones) {
        let checked = scenario.host.health_checks;
        let mut lb_endpoints = Vec::new();
        for group in &zone.hosts {
            let weight = if true_capacity {
                let relative = group.capacity * faults.capacity_factor / smallest;
                u32::try_from(num::round(relative * UNIT_WEIGHT)).ok()
            } else {
                group.weight
            };
            for _ in 0..group.count {
                let mut endpoint = LbEndpoint::new(address(HOSTS, number));
                number += 1;
                endpoint.load_balancing_weight = weight.map(|weight| weight.max(1));
                let first = num::index(lb_endpoints.len());
                endpoint.health_status = health(faults, first, checked);
                lb_endpoints.push(endpoint);
            }
        }
        endpoints.push(locality(zone, lb_endpoints));
    }
    assignment(CLUSTER, endpoints)
}

/// Builds the assignment of the fleet. With `true_demand`, weights are the requests per second of
/// each zone (the oracle).
pub(crate) fn fleet(
    scenario: &Scenario,
    faults: &Faults,
    true_demand: Option<&[f64]>,
) -> Result<ClusterLoadAssignment, FieldError> {
    let total: f64 = true_demand.map_or(0.0, |rates| rates.iter().sum());
    let mut number = 0;
    let mut endpoints = Vec::new();
    for (index, zone) in scenario.zones.iter().enumerate() {
        let weight = true_demand.map(|rates| {
            let share = num::ratio(rates[index], total);
            let each = share * TOTAL_WEIGHT / f64::from(zone.proxies);
            u32::try_from(num::round(each)).unwrap_or(u32::MAX).max(1)
        });
        let lost = faults.zones[index].proxies_lost;
        let lb_endpoints = (0..zone.proxies).map(|_| {
            let mut endpoint = LbEndpoint::new(address(PROXIES, number));
            number += 1;
            endpoint.load_balancing_weight = weight;
            if lost {
                endpoint.health_status = HealthStatus::Unhealthy;
            }
            endpoint
        });
        endpoints.push(locality(zone, lb_endpoints.collect()));
    }
    assignment(FLEET, endpoints)
}

/// Returns the assignment of the fleet with the weights that tell stock Envoys the demand of
/// `zones`; without zones, host counts.
pub(crate) fn weighted_fleet(
    fleet: &ClusterLoadAssignment,
    zones: &[ZoneFraction],
) -> Result<ClusterLoadAssignment, FieldError> {
    let counts = HostSetCounts::of_assignment(fleet, 0, None);
    let weights = weights_or_host_counts(zones, &counts, &FleetHosts::of_assignment(fleet));
    let endpoints = weights.endpoints.iter();
    let by_address: BTreeMap<SocketAddr, u32> =
        endpoints.map(|one| (one.address, one.weight)).collect();
    let mut endpoints = Vec::new();
    for (number, entry) in (0..).zip(fleet.endpoints()) {
        let mut lb_endpoints = entry.lb_endpoints.to_vec();
        for endpoint in &mut lb_endpoints {
            endpoint.load_balancing_weight = by_address.get(&endpoint.address).copied();
        }
        let mut phantoms = weights.phantom.iter();
        if let Some(phantom) = phantoms.find(|phantom| phantom.locality == entry.locality) {
            let mut endpoint = LbEndpoint::new(address(PHANTOMS, number));
            endpoint.load_balancing_weight = Some(phantom.weight);
            lb_endpoints.push(endpoint);
        }
        endpoints.push(LocalityParts {
            locality: entry.locality.clone(),
            lb_endpoints,
            ..Default::default()
        });
    }
    assignment(FLEET, endpoints)
}

/// Returns the assignment of the upstream cluster with the locality weights of one zone's proxies.
pub(crate) fn weighted_upstream(
    upstream: &ClusterLoadAssignment,
    weights: &ReceiverWeights,
) -> Result<ClusterLoadAssignment, FieldError> {
    let weighted = |entry: &LocalityLbEndpoints| {
        let mut known = weights.weights.iter();
        LocalityParts {
            locality: entry.locality.clone(),
            load_balancing_weight: known
                .find(|(locality, _)| *locality == entry.locality)
                .and_then(|(_, weight)| *weight),
            lb_endpoints: entry.lb_endpoints.to_vec(),
            ..Default::default()
        }
    };
    assignment(CLUSTER, upstream.endpoints().iter().map(weighted).collect())
}

/// Returns the health of the host at `position` in its zone.
fn health(faults: &ZoneFaults, position: u32, checked: bool) -> HealthStatus {
    let failure = faults.failure(position).filter(|_| checked);
    let detected = failure.is_some_and(|failure| failure.fails_health_checks());
    if faults.hosts_lost || position < faults.unhealthy || detected {
        HealthStatus::Unhealthy
    } else {
        HealthStatus::Healthy
    }
}

fn smallest_capacity(scenario: &Scenario) -> f64 {
    let groups = scenario.zones.iter().flat_map(|zone| &zone.hosts);
    groups
        .map(|group| group.capacity)
        .fold(f64::INFINITY, f64::min)
}

fn locality(zone: &Zone, lb_endpoints: Vec<LbEndpoint>) -> LocalityParts {
    LocalityParts {
        locality: zone.locality.clone(),
        lb_endpoints,
        ..Default::default()
    }
}

fn assignment(
    name: &str,
    endpoints: Vec<LocalityParts>,
) -> Result<ClusterLoadAssignment, FieldError> {
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: name.into(),
        endpoints,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::three_zones;

    fn scenario(events: &str) -> Scenario {
        let mut parts = three_zones();
        let given: crate::scenario::ScenarioParts = toml::from_str(events).unwrap();
        parts.event = given.event;
        parts.zone[1].hosts[0].capacity = 60.0;
        parts.zone[2].proxies = Some(5);
        Scenario::try_new(parts).unwrap()
    }

    /// Returns the number of healthy hosts and their common weight, per zone.
    fn healthy(assignment: &ClusterLoadAssignment) -> Vec<(usize, u32)> {
        let zones = assignment.endpoints().iter();
        zones
            .map(|zone| {
                let usable = zone
                    .lb_endpoints
                    .iter()
                    .filter(|endpoint| endpoint.health_status != HealthStatus::Unhealthy);
                (usable.count(), zone.lb_endpoints[0].weight())
            })
            .collect()
    }

    #[test]
    fn addresses_encode_the_number() {
        let scenario = scenario("");
        let upstream = upstream(&scenario, &Faults::at(&scenario, 0), false).unwrap();
        let addresses = upstream
            .endpoints()
            .iter()
            .flat_map(|zone| &zone.lb_endpoints);
        let numbers: Vec<usize> = addresses.map(|e| host_number(e.address)).collect();
        assert_eq!(numbers, (0..12).collect::<Vec<_>>());
        assert_eq!(host_number("[::1]:80".parse().unwrap()), usize::MAX);
    }

    #[test]
    fn oracle_weights_are_capacity_and_demand() {
        let scenario = scenario("");
        let faults = Faults::at(&scenario, 0);
        let weighted = upstream(&scenario, &faults, true).unwrap();
        assert_eq!(healthy(&weighted), [(4, 100), (4, 200), (4, 100)]);
        let weighted = fleet(&scenario, &faults, Some(&[60.0, 20.0, 20.0])).unwrap();
        assert_eq!(
            healthy(&weighted),
            [(1, 60_000_000), (1, 20_000_000), (5, 4_000_000)]
        );
        let unweighted = fleet(&scenario, &faults, None).unwrap();
        assert_eq!(healthy(&unweighted), [(1, 1), (1, 1), (5, 1)]);
    }

    #[test]
    fn failed_hosts_are_unhealthy() {
        let scenario = scenario(
            "[[event]]\nat = \"0s\"\nlose_zone = { zone = \"c\" }\n\
             [[event]]\nat = \"0s\"\nunhealthy = { zone = \"a\", hosts = 3 }\n",
        );
        let faults = Faults::at(&scenario, 0);
        let hosts = upstream(&scenario, &faults, false).unwrap();
        assert_eq!(healthy(&hosts), [(1, 1), (4, 1), (0, 1)]);
        assert_eq!(healthy(&fleet(&scenario, &faults, None).unwrap())[2].0, 0);
    }
}
