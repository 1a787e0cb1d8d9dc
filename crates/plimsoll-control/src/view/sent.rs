//! [`SentResources`]: the resources of one service that one class of nodes is sent, decoded again.
//!
//! Explanations use the decoded resources instead of the intended values, so that both agree: a
//! setting without a field in the message is not explained as if it had been delivered.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{ClusterConfig, HealthChecking};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::wire::{
    AssignmentEdits, decode_assignment, decode_cluster, decode_upstream_cluster, encode_assignment,
    rewrite_assignment,
};
use prost::Message as _;

use super::{Catalog, assignment, cluster, receiver_weights};
use crate::config::{Delivery, Service};
use crate::delivery::{self, NodeClass, NotSteeredReason, Steering, uses_module};
use crate::fleet_plan::FleetPlan;
use crate::relay::improve;
use crate::settings;
use crate::state::ViewKey;

#[derive(Clone, Debug)]
pub(crate) struct SentResources {
    pub(crate) steering: Steering,
    /// The cluster as receivers interpret it.
    pub(crate) config: ClusterConfig,
    /// The settings beside load balancing; `None` with a relay, which passes them through.
    pub(crate) settings: Option<ClusterMessage>,
    /// Why receivers of this class refuse the cluster.
    pub(crate) refused: Option<DecodeError>,
    pub(crate) upstream: ClusterLoadAssignment,
    pub(crate) fleet: ClusterLoadAssignment,
    /// Demand for this service from the LRS response.
    pub(crate) observed_traffic: Vec<(Locality, BasisPoints)>,
}

impl Catalog {
    /// Returns the resources of `service` for receivers with `key`, with nothing withheld.
    /// `relayed` is the cluster of the relayed server.
    pub(crate) fn sent(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
        relayed: Option<&Bytes>,
    ) -> Result<SentResources, DecodeError> {
        let (steering, config) = match relayed {
            Some(body) => self.relayed(service, key.class, plan, body)?,
            None => {
                let steering = self.steering(service, key.class, plan);
                let own = plan.services.get(service.name());
                let delivered = own.map_or(Cow::Borrowed(service), |own| own.delivered(service));
                let config = match delivered {
                    Cow::Borrowed(same) => self.sent_config(same, key.class, steering)?,
                    Cow::Owned(tried) => encoded_config(&tried, key.class, steering)?,
                };
                (steering, config)
            }
        };
        // A relay passes the other server's assignment on, unless weights carry demand.
        let passes = relayed.is_some() && steering != Steering::Demand(Delivery::LocalityWeights);
        let weights = receiver_weights(service, key, plan, steering);
        let upstream = match weights.filter(|_| !passes) {
            // A relay keeps the endpoints of the other server decoded only.
            Some(weights) if relayed.is_some() => {
                let edits = AssignmentEdits {
                    localities: improve::edits(&service.assignment, weights, key.class),
                    ..AssignmentEdits::default()
                };
                rewrite_assignment(&assignment::as_written(service), &edits)?
            }
            Some(weights) => assignment::with_locality_weights(service, weights, key.class),
            None => assignment::as_written(service),
        };
        let fleet = assignment::of_fleet(plan, key.class, &self.config);
        let traffic = match key.class {
            class @ (NodeClass::Plimsoll | NodeClass::EnvoyModule) => {
                self.traffic(plan, class, Duration::ZERO).clusters
            }
            NodeClass::Grpc | NodeClass::Envoy => Vec::new(),
        };
        let own = traffic
            .into_iter()
            .find(|traffic| traffic.cluster_name == *service.name());
        let catalog = self.by_class.get(&key.class);
        let cluster = catalog.and_then(|catalog| catalog.clusters.get(service.name()));
        let body = cluster.map(|cluster| &cluster.body);
        Ok(SentResources {
            steering,
            settings: body.map(settings_in).transpose()?,
            refused: match (key.class, body) {
                (NodeClass::Plimsoll, Some(body)) => decode_upstream_cluster(body).err(),
                _ => None,
            },
            config: as_interpreted_by(&config, key.class),
            upstream: decode_assignment(&upstream)?,
            fleet: decode_assignment(&encode_assignment(&fleet))?,
            observed_traffic: own.map_or_else(Vec::new, |own| own.fractions),
        })
    }

    fn sent_config(
        &self,
        service: &Service,
        class: NodeClass,
        steering: Steering,
    ) -> Result<ClusterConfig, DecodeError> {
        let catalog = self.by_class.get(&class);
        let is_regular = steering == delivery::steering(service, class);
        if let Some(cluster) = catalog.and_then(|catalog| catalog.clusters.get(service.name()))
            && is_regular
            && !uses_module(service, class, steering)
        {
            return Ok(decode_cluster(&cluster.body)?.config);
        }
        encoded_config(service, class, steering)
    }

    /// Returns what a relay makes of `body`, the cluster of the relayed server.
    fn relayed(
        &self,
        service: &Service,
        class: NodeClass,
        plan: &FleetPlan,
        body: &Bytes,
    ) -> Result<(Steering, ClusterConfig), DecodeError> {
        let own = plan.services.get(service.name());
        let zone_fails = own.is_some_and(|own| !own.failing.is_empty());
        let delivered = own.map_or(Cow::Borrowed(service), |own| own.delivered(service));
        let service = Arc::new(delivered.into_owned());
        let shares = service.no_weights == Some(NotSteeredReason::SharedEndpoints);
        let improved = improve::cluster(&service, class, zone_fails, shares, body)?;
        let steering = improved.steering;
        if improved.is_rewritten && uses_module(&improved.service, class, steering) {
            return Ok((steering, module_config(&improved.service, steering)?));
        }
        Ok((steering, decode_cluster(&improved.body)?.config))
    }
}

/// Returns the cluster and the assignment that nodes of `class` are sent for a service that demand
/// does not steer: the start of its ramp.
pub(crate) fn before_ramp(
    service: &Service,
    class: NodeClass,
) -> Result<(ClusterConfig, ClusterLoadAssignment), DecodeError> {
    let steering = Steering::AsConfigured(NotSteeredReason::ModeOff);
    let config = decode_cluster(&cluster::encode(service, class, steering))?.config;
    let assignment = match class {
        NodeClass::Grpc => assignment::with_locality_weights(service, None, class),
        _ => assignment::as_written(service),
    };
    Ok((
        as_interpreted_by(&config, class),
        decode_assignment(&assignment)?,
    ))
}

/// Encodes the cluster of a service for nodes of a class, and decodes it.
fn encoded_config(
    service: &Service,
    class: NodeClass,
    steering: Steering,
) -> Result<ClusterConfig, DecodeError> {
    if uses_module(service, class, steering) {
        return module_config(service, steering);
    }
    let body = cluster::encode(service, class, steering);
    Ok(decode_cluster(&body)?.config)
}

/// Returns the settings that the module inside an Envoy gets.
fn module_config(service: &Service, steering: Steering) -> Result<ClusterConfig, DecodeError> {
    let body = cluster::encode_for_module(service, steering);
    Ok(decode_cluster(&body)?.config)
}

fn settings_in(body: &Bytes) -> Result<ClusterMessage, DecodeError> {
    Ok(settings::of_cluster(ClusterMessage::decode(body.clone())?))
}

/// Returns the cluster as nodes of a class interpret it: gRPC clients follow locality weights
/// whatever the policy says, and do not support zone-aware routing. Results of health checks are
/// only known to nodes: explanations use the health in the assignment.
fn as_interpreted_by(config: &ClusterConfig, class: NodeClass) -> ClusterConfig {
    let config = config.with_health_checking(HealthChecking::default());
    match class {
        NodeClass::Grpc => config.with_locality_weights(),
        NodeClass::Plimsoll | NodeClass::EnvoyModule | NodeClass::Envoy => config,
    }
}
