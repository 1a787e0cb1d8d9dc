//! [`Sent`]: what one kind of receivers is sent about one service, read back from the bytes.
//!
//! Explanations are made of this and not of what was meant, so that the two cannot differ: what has
//! no place in a message is not explained as if it had arrived.

use std::time::Duration;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::wire::{decode_assignment, decode_cluster, encode_assignment};

use super::{Catalog, assignment, cluster};
use crate::config::Service;
use crate::delivery::{Class, Steering, steering};
use crate::fleet_plan::FleetPlan;
use crate::state::ViewKey;

/// What receivers make of the bytes that they are sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) steering: Steering,
    /// The cluster as they understand it.
    pub(crate) config: ClusterConfig,
    pub(crate) upstream: ClusterLoadAssignment,
    pub(crate) fleet: ClusterLoadAssignment,
    /// Demand for this very service, by the answer to load reports.
    pub(crate) observed_traffic: Vec<(Locality, BasisPoints)>,
}

impl Catalog {
    /// What receivers of `key` are sent about `service`, nothing held back.
    pub(crate) fn sent(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
    ) -> Result<Sent, DecodeError> {
        let steering = steering(service, key.class, self.fleet_ramp);
        let upstream = match self.weighted(service, key, plan) {
            Some(weights) => assignment::with_locality_weights(&service.assignment, weights),
            None => assignment::as_written(&service.assignment),
        };
        let fleet = assignment::of_fleet(plan, key.class, &self.config);
        let traffic = match key.class {
            Class::Plimsoll => self.traffic(plan, Duration::ZERO).clusters,
            Class::Grpc | Class::Envoy => Vec::new(),
        };
        let mut own = traffic.into_iter();
        let own = own.find(|traffic| traffic.cluster_name == *service.name());
        Ok(Sent {
            steering,
            config: understood(self.config_sent(service, key.class, steering)?, key.class),
            upstream: decode_assignment(&upstream)?,
            fleet: decode_assignment(&encode_assignment(&fleet))?,
            observed_traffic: own.map_or_else(Vec::new, |own| own.fractions),
        })
    }

    fn config_sent(
        &self,
        service: &Service,
        class: Class,
        steering: Steering,
    ) -> Result<ClusterConfig, DecodeError> {
        let catalog = self.by_class.get(&class);
        if let Some(cluster) = catalog.and_then(|catalog| catalog.clusters.get(service.name())) {
            return Ok(decode_cluster(&cluster.body)?.config);
        }
        // A relay passes clusters on untouched, but for those that it steers or must not have
        // steered by the demand of others; it then writes the policy as a catalog does.
        let others_lead = class == Class::Plimsoll && service.config.uses_demand_feed_forward();
        let is_rewritten = match steering {
            Steering::Demand(_) => true,
            Steering::FeedForward(_) => service.is_policy_written,
            Steering::AsConfigured(_) => others_lead,
            Steering::HostCounts => false,
        };
        if !is_rewritten {
            return Ok(ClusterConfig::clone(&service.config));
        }
        let body = cluster::encode(service, class, steering);
        Ok(decode_cluster(&body)?.config)
    }
}

/// The cluster as receivers of a class read it, where that is not how we read it: gRPC clients
/// follow locality weights whatever the policy says, and know no zone-aware routing.
fn understood(config: ClusterConfig, class: Class) -> ClusterConfig {
    match class {
        Class::Grpc => config.with_locality_weights(),
        Class::Plimsoll | Class::Envoy => config,
    }
}
