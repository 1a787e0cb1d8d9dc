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
use plimsoll_core::planner::fractions::largest_remainder_f64;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_core::units::BASIS_POINTS;
use plimsoll_xds::wire::{AssignmentOut, LocalityOut, encode_assignment};

use crate::config::{ControlConfig, Service};
use crate::delivery::NodeClass;
use crate::fleet_plan::FleetPlan;

/// Encodes an assignment with the locality weights of the configuration file.
pub(crate) fn as_written(service: &Service) -> Bytes {
    encode_assignment(&AssignmentOut {
        extras: Arc::clone(&service.endpoint_extras),
        ..out(service.sent_assignment(), |entry| {
            Placed::at(entry, written(entry))
        })
    })
}

/// Encodes an assignment with the locality weights `own` of one receiver at priority 0. Otherwise
/// the weights are those of the file or, if it has none, the numbers of healthy hosts: gRPC clients
/// drop localities without weight. See [`placed`] for their priorities.
pub(super) fn with_locality_weights(
    service: &Service,
    own: Option<&ReceiverWeights>,
    class: NodeClass,
) -> Bytes {
    let assignment = service.sent_assignment();
    encode_assignment(&AssignmentOut {
        extras: Arc::clone(&service.endpoint_extras),
        ..out(assignment, placed(assignment, own, class))
    })
}

/// Returns the weight of each locality, by the rule of [`with_locality_weights`]. Receivers other
/// than gRPC clients reduce the weight of a locality with many unhealthy hosts. The weights `own`
/// are planned for the healthy hosts, so the reduction is made up for in advance.
pub(crate) fn locality_weights(
    assignment: &ClusterLoadAssignment,
    own: Option<&ReceiverWeights>,
    class: NodeClass,
) -> impl Fn(&LocalityLbEndpoints) -> Option<u32> + use<> {
    let any_written = assignment
        .endpoints()
        .iter()
        .any(|entry| written(entry).is_some());
    let usable = |own: &&ReceiverWeights| own.weights.iter().any(|(_, weight)| weight.is_some());
    let own = own.filter(usable).map(|own| match class {
        NodeClass::Grpc => own.weights.clone(),
        _ => before_reduction(assignment, own),
    });
    move |entry| match &own {
        Some(own) if entry.priority == 0 => weight_of(own, &entry.locality),
        _ if any_written => written(entry),
        _ => healthy_hosts(entry),
    }
}

/// Priority and weight with which a locality is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) priority: u32,
    pub(crate) weight: Option<u32>,
}

impl Placed {
    const fn at(entry: &LocalityLbEndpoints, weight: Option<u32>) -> Self {
        let priority = entry.priority;
        Self { priority, weight }
    }
}

/// Returns the place of each locality.
///
/// A gRPC client drops localities without a weight: if all requests stay in its zone, and the zone
/// dies, it would have nowhere to go, where without measured demand it has all zones. So such
/// localities stand by as a priority of their own, which is used if the first one has no host left.
pub(crate) fn placed(
    assignment: &ClusterLoadAssignment,
    own: Option<&ReceiverWeights>,
    class: NodeClass,
) -> impl Fn(&LocalityLbEndpoints) -> Placed + use<> {
    let share = locality_weights(assignment, own, class);
    let without_demand = locality_weights(assignment, None, class);
    let standby = move |entry: &LocalityLbEndpoints| {
        let has_share = entry.priority > 0 || share(entry).is_some();
        let weight = without_demand(entry).filter(|_| !has_share && class == NodeClass::Grpc);
        (share(entry), weight)
    };
    let mut entries = assignment.endpoints().iter();
    let inserted = u32::from(entries.any(|entry| standby(entry).1.is_some()));
    move |entry| match standby(entry) {
        (_, Some(weight)) => Placed {
            priority: 1,
            weight: Some(weight),
        },
        (weight, None) if entry.priority > 0 => Placed {
            priority: entry.priority.saturating_add(inserted),
            weight,
        },
        (weight, None) => Placed::at(entry, weight),
    }
}

/// Builds a fleet's own assignment; callers replace its name.
pub(super) fn of_fleet(
    plan: &FleetPlan,
    class: NodeClass,
    config: &ControlConfig,
) -> AssignmentOut {
    let mut out = out(&plan.assignment, |entry| Placed::at(entry, None));
    match class {
        NodeClass::Plimsoll => set_fractions(&mut out, plan),
        // Demand is on the module's own stream; the assignment has the hosts to count without it.
        NodeClass::EnvoyModule => {}
        NodeClass::Envoy | NodeClass::Grpc => {
            // Without a local cluster, an Envoy sends to all zones, also to one that fails: only
            // demand expires. Host counts are what it should fall back to.
            let expires = !plan.zones.is_empty();
            out.endpoint_stale_after = config.fleets.endpoint_stale_after.filter(|_| expires);
            set_weights(&mut out, plan);
        }
    }
    out
}

fn out(
    assignment: &ClusterLoadAssignment,
    place: impl Fn(&LocalityLbEndpoints) -> Placed,
) -> AssignmentOut {
    let localities = assignment.endpoints().iter().map(|entry| {
        let Placed { priority, weight } = place(entry);
        LocalityOut {
            locality: entry.locality.clone(),
            priority,
            load_balancing_weight: weight,
            endpoints: entry.lb_endpoints.clone(),
            ..Default::default()
        }
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
        extras: Arc::default(),
        // Modules get the same bytes as other nodes.
        draining_in_metadata: true,
    }
}

fn written(entry: &LocalityLbEndpoints) -> Option<u32> {
    Some(entry.load_balancing_weight).filter(|&weight| weight > 0)
}

fn weight_of(own: &[(Locality, Option<u32>)], locality: &Locality) -> Option<u32> {
    let found = own.iter().find(|(zone, _)| zone == locality);
    found.and_then(|(_, weight)| *weight)
}

/// Returns weights that are `own` after receivers have reduced them by the availability of zones.
fn before_reduction(
    assignment: &ClusterLoadAssignment,
    own: &ReceiverWeights,
) -> Vec<(Locality, Option<u32>)> {
    let first = assignment.endpoints().iter();
    let reduced: BTreeMap<&Locality, f64> = first
        .filter(|entry| entry.priority == 0)
        .map(|entry| (&entry.locality, availability(assignment, entry)))
        .filter(|(_, availability)| *availability > 0.0 && *availability < 1.0)
        .collect();
    if reduced.is_empty() {
        return own.weights.clone();
    }
    let raised = own.weights.iter().map(|(zone, weight)| {
        f64::from(weight.unwrap_or(0)) / reduced.get(zone).copied().unwrap_or(1.0)
    });
    let raised: Vec<f64> = raised.collect();
    let weights = largest_remainder_f64(&raised, BASIS_POINTS).unwrap_or_default();
    let zones = own.weights.iter().map(|(zone, _)| zone.clone());
    zones
        .zip(weights)
        .map(|(zone, weight)| {
            (
                zone,
                u32::try_from(weight).ok().filter(|&weight| weight > 0),
            )
        })
        .collect()
}

/// Returns the part of a locality's weight that its receivers use, 0.0 to 1.0: all of it while the
/// overprovisioning factor makes up for unhealthy hosts.
#[expect(clippy::cast_precision_loss, reason = "host counts")]
pub(crate) fn availability(assignment: &ClusterLoadAssignment, entry: &LocalityLbEndpoints) -> f64 {
    let hosts = entry.lb_endpoints.iter();
    let health = hosts.map(|host| HealthFlags::from_eds(host.health_status));
    let considered: Vec<HealthFlags> = health.filter(|health| !health.excluded()).collect();
    let is_healthy = |health: &&HealthFlags| health.class() == HealthClass::Healthy;
    let healthy = considered.iter().filter(is_healthy).count();
    let factor = f64::from(assignment.overprovisioning_factor()) / 100.0;
    if considered.is_empty() {
        return 0.0;
    }
    (factor * healthy as f64 / considered.len() as f64).min(1.0)
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
    use plimsoll_xds::wire::{decode_assignment, decode_endpoints};

    use super::*;
    use crate::state::tests::driver::parse;

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

    fn service(assignment: &ClusterLoadAssignment) -> Service {
        let config = parse("services: [{cluster: {name: orders}}]");
        Service {
            assignment: Arc::new(assignment.clone()),
            ..Service::clone(&config.services["orders"])
        }
    }

    #[test]
    fn settings_of_endpoints_are_sent_with_and_without_weights() {
        let config = parse(
            "services: [{cluster: {name: orders}, endpoints: [{lb_endpoints: [{endpoint: \
             {address: {socket_address: {address: 10.0.0.1, port_value: 80}}, hostname: h, \
             health_check_config: {port_value: 8080, hostname: c, disable_active_health_check: \
             true}, additional_addresses: [{address: {socket_address: {address: '::1', \
             port_value: 80}}}]}}, '10.0.0.2:80']}]}]",
        );
        let service = &config.services["orders"];
        assert_eq!(service.endpoint_extras.len(), 1);
        for sent in [
            as_written(service),
            with_locality_weights(service, None, NodeClass::Grpc),
        ] {
            let sent = decode_endpoints(&sent).unwrap();
            assert_eq!(sent.extras, service.endpoint_extras);
            let extras = &sent.extras[&"10.0.0.1:80".parse().unwrap()];
            assert_eq!(extras.health_check_port, Some(8080));
            assert_eq!(extras.health_check_hostname, "c");
            assert!(extras.disable_active_health_check);
            assert_eq!(extras.additional_addresses.len(), 1);
        }
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
            let class = NodeClass::Envoy;
            let weight = locality_weights(&assignment, own.as_ref(), class);
            let weights: Vec<_> = assignment.endpoints().iter().map(weight).collect();
            assert_eq!(weights, expected, "{written:?} {own:?}");
            let sent = with_locality_weights(&service(&assignment), own.as_ref(), class);
            let sent = decode_assignment(&sent).unwrap();
            let entries = sent.endpoints().iter();
            let weights: Vec<_> = entries.map(|entry| entry.load_balancing_weight).collect();
            assert_eq!(weights, expected.map(Option::unwrap_or_default));
        }
    }

    #[test]
    fn localities_without_a_share_stand_by_for_grpc_clients() {
        const UNWRITTEN: [u32; 4] = [0; 4];
        const SHARES: [Option<u32>; 3] = [Some(10000), None, None];
        for (class, written, own, expected) in [
            // Shares of a, healthy hosts of b and c; d follows them.
            (
                NodeClass::Grpc,
                UNWRITTEN,
                SHARES,
                [(0, 10000), (1, 1), (1, 1), (2, 3)],
            ),
            // Without demand, b and c would not be used.
            (
                NodeClass::Grpc,
                [5, 0, 0, 7],
                SHARES,
                [(0, 10000), (0, 0), (0, 0), (1, 7)],
            ),
            (
                NodeClass::Grpc,
                [5, 6, 0, 7],
                SHARES,
                [(0, 10000), (0, 0), (1, 6), (2, 7)],
            ),
            (
                NodeClass::Grpc,
                UNWRITTEN,
                [Some(5000), Some(4000), Some(1000)],
                [(0, 5000), (0, 4000), (0, 1000), (1, 3)],
            ),
            // An Envoy uses all hosts of a priority if no locality with a weight has any.
            (
                NodeClass::Envoy,
                UNWRITTEN,
                SHARES,
                [(0, 10000), (0, 0), (0, 0), (1, 3)],
            ),
        ] {
            let assignment = assignment(written);
            let own = receiver(own);
            let sent = with_locality_weights(&service(&assignment), Some(&own), class);
            let sent = decode_assignment(&sent).unwrap();
            let entries = sent.endpoints().iter();
            let places = entries.map(|entry| (entry.priority, entry.load_balancing_weight));
            assert_eq!(
                places.collect::<Vec<_>>(),
                expected,
                "{class:?} {written:?}"
            );
        }
    }

    /// The module inside Envoy reads the status there.
    #[test]
    fn draining_endpoints_say_so_in_their_metadata() {
        let config = parse(
            "services: [{cluster: {name: orders}, endpoints: [{lb_endpoints: ['10.0.0.1:80', \
             {endpoint: {address: {socket_address: {address: 10.0.0.2, port_value: 80}}}, \
             health_status: DRAINING}]}]}]",
        );
        let service = &config.services["orders"];
        for sent in [
            as_written(service),
            with_locality_weights(service, None, NodeClass::Grpc),
        ] {
            let find = |text: &str| {
                let found = sent
                    .windows(text.len())
                    .filter(|part| *part == text.as_bytes());
                found.count()
            };
            assert_eq!((find("health_status"), find("DRAINING")), (1, 1));
            let sent = decode_assignment(&sent).unwrap();
            let hosts = |all: &ClusterLoadAssignment| all.endpoints()[0].lb_endpoints.clone();
            assert_eq!(hosts(&sent), hosts(&service.assignment));
        }
    }

    #[test]
    fn assignments_are_sent_as_written() {
        for weights in [[0; 4], [5, 0, 0, 7]] {
            let assignment = assignment(weights);
            let sent = decode_assignment(&as_written(&service(&assignment))).unwrap();
            assert_eq!(sent, assignment);
        }
    }
}
