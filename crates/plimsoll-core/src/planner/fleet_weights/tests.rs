//! Tests of fleet weights. Envoy's reading of them is computed by the engine's classic weight
//! basis, which the conformance vectors compare with Envoy.

use super::*;
use crate::counts::HostSetCounts;
use crate::locality_picking::demand::Demand;
use crate::locality_picking::zone_aware::{regenerate, seen_from};
use crate::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};
use crate::model::health::HealthStatus;
use crate::model::zone_aware::{LocalityBasis, ZoneAware, ZoneAwareParts};
use crate::units::BasisPoints;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

fn address(zone: usize, host: usize) -> SocketAddr {
    let [high, low] = u16::try_from(host).unwrap().to_be_bytes();
    SocketAddr::from(([10, u8::try_from(zone).unwrap(), high, low], 8080))
}

/// Returns hosts per zone, named a, b, c and so on; `unhealthy` of the first zone's are unhealthy.
fn parts(hosts: &[usize], unhealthy: usize) -> AssignmentParts {
    let entry = |(zone, &count): (usize, &usize)| {
        let mut endpoints: Vec<_> = (0..count)
            .map(|host| LbEndpoint::new(address(zone, host)))
            .collect();
        if zone == 0 {
            for endpoint in endpoints.iter_mut().take(unhealthy) {
                endpoint.health_status = HealthStatus::Unhealthy;
            }
        }
        LocalityParts {
            locality: Locality::zone_only(NAMES[zone]),
            lb_endpoints: endpoints,
            ..Default::default()
        }
    };
    AssignmentParts {
        cluster_name: "fleet".into(),
        endpoints: hosts.iter().enumerate().map(entry).collect(),
        ..Default::default()
    }
}

fn zones(fractions: &[u64]) -> Vec<ZoneFraction> {
    let zone = |(&name, &bp): (&&str, &u64)| ZoneFraction {
        locality: Locality::zone_only(name),
        fraction: BasisPoints::new(bp, name).unwrap(),
        rate_per_second: 1.0,
        reporters: 1,
        estimated: false,
    };
    NAMES.iter().zip(fractions).map(zone).collect()
}

fn weights(parts: &AssignmentParts, fractions: &[u64]) -> FleetWeights {
    let assignment = ClusterLoadAssignment::try_new(parts.clone()).unwrap();
    fleet_weights(&zones(fractions), &FleetHosts::of_assignment(&assignment))
}

/// Returns the assignment a control plane would send: weights set, phantoms added.
fn sent(mut parts: AssignmentParts, weights: &FleetWeights) -> ClusterLoadAssignment {
    let by_address: BTreeMap<_, _> = weights
        .endpoints
        .iter()
        .map(|endpoint| (endpoint.address, endpoint.weight))
        .collect();
    for endpoint in parts.endpoints.iter_mut().flat_map(|e| &mut e.lb_endpoints) {
        endpoint.load_balancing_weight = by_address.get(&endpoint.address).copied();
    }
    for (index, phantom) in weights.phantom.iter().enumerate() {
        let mut endpoint = LbEndpoint::new(address(200, index));
        endpoint.load_balancing_weight = Some(phantom.weight);
        parts.endpoints.push(LocalityParts {
            locality: phantom.locality.clone(),
            lb_endpoints: vec![endpoint],
            ..Default::default()
        });
    }
    ClusterLoadAssignment::try_new(parts).unwrap()
}

/// Returns basis points per zone as an Envoy computes them from the assignment it was sent.
fn read_by_envoy(parts: &AssignmentParts, weights: &FleetWeights, zones: usize) -> Vec<u64> {
    let assignment = sent(parts.clone(), weights);
    let demand = Demand::from_host_weights(&HostSetCounts::of_assignment(&assignment, 0, None));
    let names = NAMES.iter().take(zones);
    names
        .map(|name| demand.basis_points(&Locality::zone_only(name)))
        .collect()
}

fn numbers(weights: &FleetWeights) -> Vec<u32> {
    weights
        .endpoints
        .iter()
        .map(|endpoint| endpoint.weight)
        .collect()
}

#[test]
fn the_worked_example() {
    let parts = parts(&[3, 5, 2], 0);
    let weights = weights(&parts, &[5000, 3500, 1500]);
    assert_eq!(
        numbers(&weights),
        [1667, 1667, 1666, 700, 700, 700, 700, 700, 750, 750]
    );
    assert_eq!(weights.phantom, []);
    assert_eq!(read_by_envoy(&parts, &weights, 3), [5000, 3500, 1500]);
}

#[test]
fn a_stock_envoy_routes_as_the_worked_example_says() {
    let parts = parts(&[3, 5, 2], 0);
    let fleet = sent(parts.clone(), &weights(&parts, &[5000, 3500, 1500]));
    let own = Locality::zone_only("a");
    let fleet = HostSetCounts::of_assignment(&fleet, 0, Some(&own));
    let upstream = ClusterLoadAssignment::try_new(parts).unwrap();
    let upstream = seen_from(&own, &HostSetCounts::of_assignment(&upstream, 0, None));
    let stock = ZoneAware::try_new(ZoneAwareParts {
        locality_basis: LocalityBasis::HealthyHostsWeight,
        ..Default::default()
    });
    let demand = Demand::from_host_weights(&fleet);
    let routing = regenerate(&stock.unwrap(), &upstream, &fleet, &demand);
    assert_eq!(routing.expected_shares().unwrap(), [0.6, 0.3, 0.1]);
}

#[test]
fn one_basis_point_reaches_every_host() {
    // Five hosts in the zone of one basis point: the factor is 5.
    let parts = parts(&[3, 5, 2], 0);
    let weights = weights(&parts, &[5999, 1, 4000]);
    assert_eq!(
        numbers(&weights),
        [9999, 9998, 9998, 1, 1, 1, 1, 1, 10_000, 10_000]
    );
    assert_eq!(read_by_envoy(&parts, &weights, 3), [5999, 1, 4000]);
}

#[test]
fn a_zone_without_demand_reads_zero_and_costs_the_largest_one_basis_point() {
    let parts = parts(&[3, 5, 2], 0);
    let weights = weights(&parts, &[4000, 6000, 0]);
    // Factor 3: 12000 for a; 18000 for b, less 2 for the hosts of c.
    assert_eq!(
        numbers(&weights),
        [4000, 4000, 4000, 3600, 3600, 3600, 3599, 3599, 1, 1]
    );
    assert_eq!(read_by_envoy(&parts, &weights, 3), [4000, 5999, 0]);
}

#[test]
fn hosts_in_zones_without_a_fraction_have_no_demand() {
    // A plan lists all zones with demand; a zone missing from it has none.
    let parts = parts(&[3, 5, 2], 0);
    let weights = weights(&parts, &[4000, 6000]);
    assert_eq!(read_by_envoy(&parts, &weights, 3), [4000, 5999, 0]);
}

#[test]
fn among_equal_zones_the_first_pays() {
    let parts = parts(&[1, 1, 1], 0);
    let weights = weights(&parts, &[5000, 5000, 0]);
    assert_eq!(read_by_envoy(&parts, &weights, 3), [4999, 5000, 0]);
}

#[test]
fn a_zone_with_demand_but_without_hosts_needs_a_phantom() {
    let parts = parts(&[3, 5, 0], 0);
    let weights = weights(&parts, &[5000, 3500, 1500]);
    let phantom = PhantomEndpoint {
        locality: Locality::zone_only("c"),
        weight: 1500,
    };
    assert_eq!(weights.phantom, [phantom]);
    assert_eq!(read_by_envoy(&parts, &weights, 3), [5000, 3500, 1500]);
    let without = FleetWeights {
        phantom: Vec::new(),
        ..weights
    };
    assert_eq!(
        read_by_envoy(&parts, &without, 3),
        [5882, 4117, 0],
        "without the phantom"
    );
}

#[test]
fn a_zone_without_demand_or_hosts_needs_no_phantom() {
    let weights = weights(&parts(&[3, 5, 0], 0), &[5000, 5000, 0]);
    assert_eq!(weights.phantom, []);
    assert_eq!(weights.endpoints.len(), 8);
}

#[test]
fn only_healthy_hosts_carry_weight() {
    let some = parts(&[3, 5, 2], 1);
    let mut rest = weights(&some, &[5000, 3500, 1500]);
    assert_eq!(read_by_envoy(&some, &rest, 3), [5000, 3500, 1500]);
    rest.endpoints.truncate(2);
    assert_eq!(numbers(&rest), [2500, 2500]);
    // All hosts of zone a are unhealthy: a phantom endpoint carries the zone's weight.
    let all = parts(&[3, 5, 2], 3);
    let weights = weights(&all, &[5000, 3500, 1500]);
    assert_eq!((weights.endpoints.len(), weights.phantom.len()), (7, 1));
    assert_eq!(read_by_envoy(&all, &weights, 3), [5000, 3500, 1500]);
}

#[test]
fn other_priorities_and_degraded_hosts_do_not_count() {
    let mut parts = parts(&[2, 2], 0);
    parts.endpoints[0].lb_endpoints[0].health_status = HealthStatus::Degraded;
    let mut second = parts.endpoints[1].clone();
    second.priority = 1;
    second.lb_endpoints = vec![LbEndpoint::new(address(9, 9))];
    parts.endpoints.push(second);
    let weights = weights(&parts, &[5000, 5000]);
    assert_eq!(numbers(&weights), [5000, 2500, 2500]);
}

#[test]
fn the_paying_zone_keeps_at_least_one_per_host() {
    // Factor 2 would leave a, which pays for the idle host of c, 9999 for its 10000 hosts.
    let parts = parts(&[10_000, 1, 1], 0);
    let weights = weights(&parts, &[5000, 5000, 0]);
    assert_eq!(read_by_envoy(&parts, &weights, 3), [4999, 5000, 0]);
}

#[test]
fn a_fleet_too_large_for_exact_weights_stays_valid() {
    // Half a million idle proxies: their weights of 1 alone exceed a basis point of 32 bits.
    let address = |host: u32| SocketAddr::from((host.to_be_bytes(), 80));
    let hosts = FleetHosts {
        zones: vec![
            (Locality::zone_only("a"), vec![address(1)]),
            (
                Locality::zone_only("b"),
                (2..500_002).map(address).collect(),
            ),
        ],
    };
    let weights = fleet_weights(&zones(&[10_000, 0]), &hosts);
    assert_eq!(weights.endpoints.len(), 500_001);
    assert!(
        weights
            .endpoints
            .iter()
            .all(|endpoint| endpoint.weight >= 1)
    );
    assert!(weights.endpoints[0].weight > 4_000_000_000);
}

proptest! {
    #[test]
    fn envoy_reads_the_measured_fractions(
        demand in prop::collection::vec(0_u64..300, 1..=7),
        hosts in prop::collection::vec(0_usize..40, 7),
        unhealthy in 0_usize..5,
    ) {
        let fractions = largest_remainder(&demand, BASIS_POINTS);
        prop_assume!(fractions.is_some());
        let fractions = fractions.unwrap();
        let parts = parts(&hosts[..fractions.len()], unhealthy);
        let weights = weights(&parts, &fractions);
        prop_assert!(weights.endpoints.iter().all(|endpoint| endpoint.weight >= 1));
        prop_assert!(weights.phantom.iter().all(|phantom| phantom.weight >= 1));
        let read = read_by_envoy(&parts, &weights, fractions.len());
        let idle = weights.endpoints.iter().any(|endpoint| {
            let index = NAMES.iter().position(|name| endpoint.locality.zone() == *name);
            fractions[index.unwrap()] == 0
        });
        let lost = fractions.iter().sum::<u64>() - read.iter().sum::<u64>();
        prop_assert_eq!(lost, u64::from(idle));
        let largest = *fractions.iter().max().unwrap();
        let giver = fractions.iter().position(|&fraction| fraction == largest);
        for (index, (&read, &fraction)) in read.iter().zip(&fractions).enumerate() {
            let expected = fraction - u64::from(idle && Some(index) == giver);
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn weights_within_a_zone_differ_by_at_most_one(
        hosts in prop::collection::vec(1_usize..40, 3),
        first in 0_u64..=10_000,
    ) {
        let parts = parts(&hosts, 0);
        let weights = weights(&parts, &[first, 10_000 - first, 0]);
        for zone in &NAMES[..3] {
            let numbers = || {
                let here = weights.endpoints.iter().filter(|e| e.locality.zone() == *zone);
                here.map(|endpoint| endpoint.weight)
            };
            prop_assert!(numbers().max().unwrap() - numbers().min().unwrap() <= 1);
        }
    }
}
