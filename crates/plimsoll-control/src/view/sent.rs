//! [`SentResources`]: the resources of one service that one class of nodes is sent, decoded again.
//!
//! Explanations use the decoded resources instead of the intended values, so that both agree: a
//! setting without a field in the message is not explained as if it had been delivered.

use std::time::Duration;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::wire::{decode_assignment, decode_cluster, encode_assignment};

use super::{Catalog, assignment, cluster};
use crate::config::Service;
use crate::delivery::{NodeClass, Steering, steering, uses_module};
use crate::fleet_plan::FleetPlan;
use crate::state::ViewKey;

#[derive(Clone, Debug)]
pub(crate) struct SentResources {
    pub(crate) steering: Steering,
    /// The cluster as receivers interpret it.
    pub(crate) config: ClusterConfig,
    pub(crate) upstream: ClusterLoadAssignment,
    pub(crate) fleet: ClusterLoadAssignment,
    /// Demand for this service from the LRS response.
    pub(crate) observed_traffic: Vec<(Locality, BasisPoints)>,
}

impl Catalog {
    /// Returns the resources of `service` for receivers with `key`, with nothing withheld.
    pub(crate) fn sent(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
    ) -> Result<SentResources, DecodeError> {
        let steering = steering(service, key.class, self.fleet_ramp);
        let upstream = match self.receiver_weights(service, key, plan) {
            Some(weights) => assignment::with_locality_weights(&service.assignment, weights),
            None => assignment::as_written(&service.assignment),
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
        Ok(SentResources {
            steering,
            config: as_interpreted_by(self.sent_config(service, key.class, steering)?, key.class),
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
        // A relay leaves policies alone that demand does not influence.
        let is_rewritten = self.config.relay.is_none()
            || service.config.uses_demand_feed_forward()
            || !matches!(steering, Steering::AsConfigured(_));
        if is_rewritten && uses_module(service, class, steering) {
            let body = cluster::encode_for_module(service, steering);
            return Ok(decode_cluster(&body)?.config);
        }
        let catalog = self.by_class.get(&class);
        if let Some(cluster) = catalog.and_then(|catalog| catalog.clusters.get(service.name())) {
            return Ok(decode_cluster(&cluster.body)?.config);
        }
        // A relay only rewrites clusters that demand steers, or whose feed-forward must ignore
        // demand for other services; their policy is encoded as without a relay.
        let influenced_by_others =
            class == NodeClass::Plimsoll && service.config.uses_demand_feed_forward();
        let is_rewritten = match steering {
            Steering::Demand(_) => true,
            Steering::FeedForward(_) => service.has_explicit_policy,
            Steering::AsConfigured(_) => influenced_by_others,
            Steering::HostCounts => false,
        };
        if !is_rewritten {
            return Ok(ClusterConfig::clone(&service.config));
        }
        let body = cluster::encode(service, class, steering);
        Ok(decode_cluster(&body)?.config)
    }
}

/// Returns the cluster as nodes of a class interpret it: gRPC clients follow locality weights
/// whatever the policy says, and do not support zone-aware routing.
fn as_interpreted_by(config: ClusterConfig, class: NodeClass) -> ClusterConfig {
    match class {
        NodeClass::Grpc => config.with_locality_weights(),
        NodeClass::Plimsoll | NodeClass::EnvoyModule | NodeClass::Envoy => config,
    }
}
