//! Relay: the resources of another management server, passed on byte for byte, except for what we
//! are asked to improve.
//!
//! Every discovery stream gets a stream of its own to the other server, so that resources which
//! depend on the node stay right. Here are the words of both halves: [`Overlay`] is what the state
//! wants to be done for one kind of receiver, [`Relayed`] what the state is told in return. `merge`
//! makes views of the two without IO, `improve` rewrites single resources, `session` awaits, and
//! `status` is for people. Which weights there are is decided in `state`, bytes are plimsoll-xds'.

mod improve;
mod known;
mod merge;
mod session;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_xds::ads::view::Resource;

use crate::config::Service;
use crate::delivery::Class;

pub(crate) use known::Known;
pub(crate) use merge::Wanted;
pub(crate) use session::Session;
pub use status::{RelayStatus, Upstreams};

/// What is done to the resources of another server for one kind of receiver.
#[derive(Clone, Debug)]
pub struct Overlay {
    pub(crate) generation: u64,
    pub(crate) class: Class,
    /// Ramp of what travels on the fleet's assignment.
    pub(crate) fleet_ramp: u32,
    /// Receivers keep what they have of whatever depends on demand.
    pub(crate) held: bool,
    /// Clusters to improve, by name.
    pub(crate) services: BTreeMap<Arc<str>, Improvement>,
    /// Resources of ours by type and name; the other server is not asked for them.
    pub(crate) own: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Resource>>,
    /// The fleet's assignment under the fleet's own name, for when the other server has none: it
    /// may know a service of that name.
    pub(crate) fleet: Option<Resource>,
}

/// A cluster to improve.
#[derive(Clone, Debug)]
pub(crate) struct Improvement {
    /// How far to go.
    pub(crate) service: Arc<Service>,
    /// Locality weights for these receivers.
    pub(crate) weights: Option<ReceiverWeights>,
}

/// What was seen of a cluster that is to be improved.
#[derive(Clone, Debug, PartialEq)]
pub enum Relayed {
    /// Its policy.
    Cluster {
        /// Name of the cluster.
        cluster: Arc<str>,
        /// The policy, as the other server has it.
        config: Arc<ClusterConfig>,
    },
    /// Its endpoints.
    Assignment {
        /// Name of the cluster, which need not be that of the assignment.
        cluster: Arc<str>,
        /// The endpoints, as the other server has them.
        assignment: Arc<ClusterLoadAssignment>,
    },
}

impl Default for Overlay {
    /// Everything passes.
    fn default() -> Self {
        Self {
            generation: 0,
            class: Class::Envoy,
            fleet_ramp: 100,
            held: false,
            services: BTreeMap::new(),
            own: BTreeMap::new(),
            fleet: None,
        }
    }
}

impl Overlay {
    /// Adds a resource of ours.
    pub(crate) fn put(&mut self, type_url: &str, resource: Resource) {
        let own = self.own.entry(type_url.into()).or_default();
        own.insert(Arc::clone(&resource.name), resource);
    }

    /// Whether a resource is ours.
    fn is_own(&self, type_url: &str, name: &str) -> bool {
        let own = self.own.get(type_url);
        own.is_some_and(|own| own.contains_key(name))
    }
}

#[cfg(test)]
mod tests;
