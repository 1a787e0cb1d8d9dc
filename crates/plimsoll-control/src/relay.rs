//! Relay: passes on the resources of another management server, rewriting those that demand steers.
//!
//! Every discovery stream gets its own stream to the other server, so that resources that depend on
//! the node are correct. The state publishes an [`Overlay`]: its changes for one class of nodes;
//! [`RelayedResource`] is what the state learns from the other server. `merge` combines overlay and
//! resources to views, without IO; `improve` rewrites single resources;
//! `observe` reads those of a relay without services; `session` runs the streams;
//! `connector` dials with TLS; `status` is for the admin API. `state` computes the weights;
//! plimsoll-xds rewrites the messages.

mod clusters;
mod connector;
mod improve;
mod merge;
mod observe;
mod session;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_xds::ads::view::Resource;

use crate::config::Service;
use crate::delivery::NodeClass;

pub(crate) use clusters::RelayedClusters;
pub(crate) use connector::{RelayConnector, dialer};
pub(crate) use merge::ResourceSubscriptions;
pub(crate) use session::{Session, StreamStatus};
pub use status::{RelayStatus, RelayUpstreams};

/// Modifications of the relayed server's resources for one class of nodes.
#[derive(Clone, Debug)]
pub struct Overlay {
    pub(crate) generation: u64,
    pub(crate) class: NodeClass,
    pub(crate) fleet_ramp: u32,
    /// Withhold resources that depend on demand: receivers keep the ones they have.
    pub(crate) held: bool,
    /// Report clusters and assignments to the state although nothing steers them.
    pub(crate) observes: bool,
    pub(crate) services: BTreeMap<Arc<str>, Improvement>,
    /// Resources of this control plane by type and name; not requested from the relayed server.
    pub(crate) own: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Resource>>,
    /// The fleet's assignment under the name of the fleet, only sent if the relayed server has no
    /// assignment of that name, for example for a cluster with the name of the fleet.
    pub(crate) fleet: Option<Resource>,
}

#[derive(Clone, Debug)]
pub(crate) struct Improvement {
    pub(crate) service: Arc<Service>,
    pub(crate) weights: Option<ReceiverWeights>,
}

/// A cluster or assignment that may be rewritten, as received from the relayed server.
#[derive(Clone, Debug, PartialEq)]
pub enum RelayedResource {
    Cluster {
        cluster: Arc<str>,
        version: Arc<str>,
        config: Arc<ClusterConfig>,
    },
    Assignment {
        /// Name of the cluster, which may differ from that of the assignment.
        cluster: Arc<str>,
        /// Name of the assignment.
        name: Arc<str>,
        version: Arc<str>,
        assignment: Arc<ClusterLoadAssignment>,
    },
}

impl Default for Overlay {
    /// An overlay that passes on every resource unchanged.
    fn default() -> Self {
        Self {
            generation: 0,
            class: NodeClass::Envoy,
            fleet_ramp: 100,
            held: false,
            observes: false,
            services: BTreeMap::new(),
            own: BTreeMap::new(),
            fleet: None,
        }
    }
}

impl Overlay {
    pub(crate) fn add_own(&mut self, type_url: &str, resource: Resource) {
        let own = self.own.entry(type_url.into()).or_default();
        own.insert(Arc::clone(&resource.name), resource);
    }

    fn is_own(&self, type_url: &str, name: &str) -> bool {
        let own = self.own.get(type_url);
        own.is_some_and(|own| own.contains_key(name))
    }
}

#[cfg(test)]
mod tests;
