//! Encodes assignments: of services, with or without locality weights, and of fleets of proxies.
//!
//! The only module that adds measured demand to an assignment. Fields that only Plimsoll data
//! planes understand are only sent to these, and no weight is ever 0 (decision 0028).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::assignment::{
    ClusterLoadAssignment, DEFAULT_OVERPROVISIONING_FACTOR, DropOverloadParts, LbEndpoint,
    LocalityLbEndpoints,
};
use plimsoll_core::model::health::{HealthClass, HealthFlags};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_xds::wire::{AssignmentOut, LocalityOut, encode_assignment};

use crate::config::ControlConfig;
use crate::delivery::NodeClass;
use crate::fleet_plan::FleetPlan;

/// Encodes an assignment with the locality weights of the configuration file.
pub(super) fn as_written(assignment: &ClusterLoadAssignment) -> Bytes {
    encode_assignment(&out(assignment, written))
}

/// Encodes an assignment with the locality weights `own` of one receiver at priority 0. Otherwise
/// the weights are those of the file or, if it has none, the numbers of healthy hosts: gRPC clients
/// drop localities without weight.
pub(super) fn with_locality_weights(
    assignment: &ClusterLoadAssignment,
    own: Option<&ReceiverWeights>,
) -> Bytes {
    encode_assignment(&out(assignment, locality_weights(assignment, own)))
}

/// Returns the weight of each locality, by the rule of [`with_locality_weights`].
pub(crate) fn locality_weights<'a>(
    assignment: &ClusterLoadAssignment,
    own: Option<&'a ReceiverWeights>,
) -> impl Fn(&LocalityLbEndpoints) -> Option<u32> + use<'a> {
    let any_written = assignment
        .endpoints()
        .iter()
        .any(|entry| written(entry).is_some());
    let usable = |own: &&ReceiverWeights| own.weights.iter().any(|(_, weight)| weight.is_some());
    let own = own.filter(usable);
    move |entry| match own {
        Some(own) if entry.priority == 0 => weight_of(own, &entry.locality),
        _ if any_written => written(entry),
        _ => healthy_hosts(entry),
    }
}

/// Builds a fleet's own assignment; callers replace its name.
pub(super) fn of_fleet(
    plan: &FleetPlan,
    class: NodeClass,
    config: &ControlConfig,
) -> AssignmentOut {
    let mut out = out(&plan.assignment, |_| None);
    match class {
        NodeClass::Plimsoll => set_fractions(&mut out, plan),
        // Demand is on the module's own stream; the assignment has the hosts to count without it.
        NodeClass::EnvoyModule => {}
        NodeClass::Envoy | NodeClass::Grpc => {
            out.endpoint_stale_after = config.endpoint_stale_after;
            set_weights(&mut out, plan);
        }
    }
    out
}

fn out(
    assignment: &ClusterLoadAssignment,
    weight: impl Fn(&LocalityLbEndpoints) -> Option<u32>,
) -> AssignmentOut {
    let localities = assignment.endpoints().iter().map(|entry| LocalityOut {
        locality: entry.locality.clone(),
        priority: entry.priority,
        load_balancing_weight: weight(entry),
        endpoints: entry.lb_endpoints.clone(),
        ..Default::default()
    });
    let factor = assignment.overprovisioning_factor();
    let drops = assignment.drop_overloads().iter();
    AssignmentOut {
        cluster_name: Arc::clone(assignment.cluster_name()),
        localities: localities.collect(),
        drop_overloads: drops
            .map(|drop| DropOverloadParts {
                category: drop.category.to_string(),
                numerator: drop.per_million,
                denominator: 1_000_000,
            })
            .collect(),
        overprovisioning_factor: Some(factor)
            .filter(|&factor| factor != DEFAULT_OVERPROVISIONING_FACTOR),
        weighted_priority_health: assignment.weighted_priority_health(),
        endpoint_stale_after: None,
    }
}

fn written(entry: &LocalityLbEndpoints) -> Option<u32> {
    Some(entry.load_balancing_weight).filter(|&weight| weight > 0)
}

fn weight_of(own: &ReceiverWeights, locality: &Locality) -> Option<u32> {
    let found = own.weights.iter().find(|(zone, _)| zone == locality);
    found.and_then(|(_, weight)| *weight)
}

fn healthy_hosts(entry: &LocalityLbEndpoints) -> Option<u32> {
    let healthy = entry
        .lb_endpoints
        .iter()
        .filter(|endpoint| {
            HealthFlags::from_eds(endpoint.health_status).class() == HealthClass::Healthy
        })
        .count();
    // At least 1: gRPC clients would drop a locality without healthy hosts.
    Some(u32::try_from(healthy).unwrap_or(u32::MAX).max(1))
}

/// Sets the fraction of each zone, as field and as metadata, also for zones without proxies.
fn set_fractions(out: &mut AssignmentOut, plan: &FleetPlan) {
    for zone in &plan.zones {
        let fraction = u32::try_from(zone.fraction.get()).ok();
        let position = out
            .localities
            .iter()
            .position(|entry| entry.locality == zone.locality);
        let index = position.unwrap_or_else(|| {
            out.localities.push(LocalityOut {
                locality: zone.locality.clone(),
                ..Default::default()
            });
            out.localities.len() - 1
        });
        out.localities[index].observed_traffic_fraction = fraction;
        out.localities[index].metadata_traffic_fraction = fraction;
    }
}

/// Sets endpoint weights whose sums per zone represent the fractions. Not needed without demand if
/// every node is listed: counting endpoints then gives the same result.
fn set_weights(out: &mut AssignmentOut, plan: &FleetPlan) {
    let listed: u64 = out
        .localities
        .iter()
        .map(|entry| entry.endpoints.len() as u64)
        .sum();
    if plan.zones.is_empty() && listed == plan.counts.flat.all {
        return;
    }
    let weights = &plan.fleet_weights;
    let by_address: BTreeMap<SocketAddr, u32> = weights
        .endpoints
        .iter()
        .map(|weight| (weight.address, weight.weight.max(1)))
        .collect();
    for endpoint in out
        .localities
        .iter_mut()
        .flat_map(|entry| &mut entry.endpoints)
    {
        endpoint.load_balancing_weight = by_address.get(&endpoint.address).copied();
    }
    for (index, phantom) in (1_u16..).zip(&weights.phantom) {
        let address = SocketAddr::from((Ipv4Addr::new(240, 0, 0, 0), index));
        out.localities.push(LocalityOut {
            locality: phantom.locality.clone(),
            endpoints: vec![LbEndpoint {
                load_balancing_weight: Some(phantom.weight.max(1)),
                ..LbEndpoint::new(address)
            }],
            ..Default::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::assignment::{AssignmentParts, LocalityParts};
    use plimsoll_core::model::health::HealthStatus;
    use plimsoll_xds::wire::decode_assignment;

    use super::*;

    /// A locality with a weight (0 if it is not written) and endpoints of these health states.
    fn locality(zone: &str, priority: u32, weight: u32, health: &[HealthStatus]) -> LocalityParts {
        let endpoint = |(port, &health_status): (u16, &HealthStatus)| LbEndpoint {
            health_status,
            ..LbEndpoint::new(SocketAddr::from(([10, 0, 0, 1], port)))
        };
        let first = u16::from(zone.as_bytes()[0]) * 10;
        LocalityParts {
            locality: Locality::zone_only(zone),
            priority,
            load_balancing_weight: Some(weight).filter(|&weight| weight > 0),
            lb_endpoints: (first..).zip(health).map(endpoint).collect(),
            ..Default::default()
        }
    }

    /// Zones a, b and c at priority 0, and d at priority 1; c has no healthy host.
    fn assignment(weights: [u32; 4]) -> ClusterLoadAssignment {
        use HealthStatus::{Healthy, Unhealthy};
        let health: [&[HealthStatus]; 4] = [
            &[Healthy, Healthy],
            &[Healthy, Unhealthy],
            &[Unhealthy],
            &[Healthy; 3],
        ];
        let zones = [("a", 0), ("b", 0), ("c", 0), ("d", 1)].into_iter();
        let parts = zones.zip(weights).zip(health);
        let endpoints = parts
            .map(|(((zone, priority), weight), health)| locality(zone, priority, weight, health));
        ClusterLoadAssignment::try_new(AssignmentParts {
            cluster_name: "orders".to_owned(),
            endpoints: endpoints.collect(),
            overprovisioning_factor: Some(150),
            weighted_priority_health: true,
            drop_overloads: vec![DropOverloadParts {
                category: "test".to_owned(),
                numerator: 10,
                denominator: 100,
            }],
            ..Default::default()
        })
        .unwrap()
    }

    fn receiver(weights: [Option<u32>; 3]) -> ReceiverWeights {
        let zones = ["a", "b", "c"].map(Locality::zone_only).into_iter();
        ReceiverWeights {
            receiver: Locality::zone_only("a"),
            weights: zones.zip(weights).collect(),
            off: None,
        }
    }

    #[test]
    fn weights_are_those_of_the_receiver_the_file_or_healthy_hosts() {
        const UNWRITTEN: [u32; 4] = [0; 4];
        const WRITTEN: [u32; 4] = [5, 0, 0, 7];
        let measured = Some([Some(9000), None, Some(1000)]);
        for (written, own, expected) in [
            (WRITTEN, None, [Some(5), None, None, Some(7)]),
            (WRITTEN, measured, [Some(9000), None, Some(1000), Some(7)]),
            (WRITTEN, Some([None; 3]), [Some(5), None, None, Some(7)]),
            (UNWRITTEN, None, [Some(2), Some(1), Some(1), Some(3)]),
            (UNWRITTEN, measured, [Some(9000), None, Some(1000), Some(3)]),
        ] {
            let assignment = assignment(written);
            let own = own.map(receiver);
            let weight = locality_weights(&assignment, own.as_ref());
            let weights: Vec<_> = assignment.endpoints().iter().map(weight).collect();
            assert_eq!(weights, expected, "{written:?} {own:?}");
            let sent = with_locality_weights(&assignment, own.as_ref());
            let sent = decode_assignment(&sent).unwrap();
            let entries = sent.endpoints().iter();
            let weights: Vec<_> = entries.map(|entry| entry.load_balancing_weight).collect();
            assert_eq!(weights, expected.map(Option::unwrap_or_default));
        }
    }

    #[test]
    fn assignments_are_sent_as_written() {
        for weights in [[0; 4], [5, 0, 0, 7]] {
            let assignment = assignment(weights);
            let sent = decode_assignment(&as_written(&assignment)).unwrap();
            assert_eq!(sent, assignment);
        }
    }
}
