//! Relay: passes on the resources of another management server, rewriting those that demand steers.
//!
//! Every discovery stream gets its own stream to the other server, so that resources that depend on
//! the node are correct. The state publishes an [`Patch`]: its changes for one class of nodes;
//! [`RelayedResource`] is what the state learns from the other server. `merge` combines patch and
//! resources to views, without IO; `improve` rewrites single resources; `observe` reads those of a
//! relay without services; `users` finds clusters with the same assignment; `session` runs the
//! streams; `status` is for the admin API. `state` computes the weights; plimsoll-xds rewrites the
//! messages.

mod clusters;
pub(crate) mod improve;
mod merge;
mod observe;
mod session;
mod status;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_xds::ads::client::ClientEvent;
use plimsoll_xds::ads::server::WILDCARD;
use plimsoll_xds::ads::view::{Resource, View};

use crate::config::Service;
use crate::delivery::NodeClass;

pub(crate) use clusters::RelayedClusters;
pub(crate) use merge::ResourceSubscriptions;
use merge::{Merge, MergeEvent};
pub(crate) use session::{Session, StreamStatus};
pub use status::{RelayStatus, RelayUpstreams};

/// Modifications of the relayed server's resources for one class of nodes.
#[derive(Clone, Debug)]
pub struct Patch {
    pub(crate) generation: u64,
    pub(crate) class: NodeClass,
    /// Withhold resources that depend on demand: receivers keep the ones they have.
    pub(crate) held: bool,
    /// Report clusters and assignments to the state although nothing steers them.
    pub(crate) observes: bool,
    pub(crate) services: BTreeMap<Arc<str>, Rewrite>,
    /// Resources of this control plane by type and name; not requested from the relayed server.
    pub(crate) own: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Resource>>,
    /// The fleet's assignment under the name of the fleet, only sent if the relayed server has no
    /// assignment of that name, for example for a cluster with the name of the fleet.
    pub(crate) fleet: Option<Resource>,
}

/// How a cluster and its assignment are rewritten.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rewrite {
    pub(crate) service: Arc<Service>,
    pub(crate) weights: Option<ReceiverWeights>,
    /// Whether requests to a zone of the service fail.
    pub(crate) zone_fails: bool,
}

/// A cluster or assignment that may be rewritten, as received from the relayed server.
#[derive(Clone, Debug, PartialEq)]
pub enum RelayedResource {
    Cluster {
        cluster: Arc<str>,
        version: Arc<str>,
        config: Arc<ClusterConfig>,
        /// Whether another cluster has the same assignment.
        shares_endpoints: bool,
        /// The cluster as the relayed server sent it.
        body: Bytes,
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

#[cfg(test)]
impl RelayedResource {
    /// The cluster of `service` as another server sends it.
    pub(crate) fn cluster_of(service: &Service, version: &str) -> Self {
        use plimsoll_xds::wire::{ClusterOut, LocalityDelivery, encode_cluster};
        let out = ClusterOut {
            settings: Some(service.settings.written()),
            ..ClusterOut::new(&service.config, LocalityDelivery::AsConfigured)
        };
        Self::Cluster {
            cluster: Arc::clone(service.name()),
            version: version.into(),
            config: Arc::clone(&service.config),
            shares_endpoints: false,
            body: encode_cluster(&out),
        }
    }
}

impl Default for Patch {
    /// A patch that passes on every resource unchanged.
    fn default() -> Self {
        Self {
            generation: 0,
            class: NodeClass::Envoy,
            held: false,
            observes: false,
            services: BTreeMap::new(),
            own: BTreeMap::new(),
            fleet: None,
        }
    }
}

impl Patch {
    pub(crate) fn add_own(&mut self, type_url: &str, resource: Resource) {
        let own = self.own.entry(type_url.into()).or_default();
        own.insert(Arc::clone(&resource.name), resource);
    }

    /// Whether receivers get the same from both, which may differ in their generations.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
        let Self {
            generation: _,
            class,
            held,
            observes,
            services,
            own,
            fleet,
        } = self;
        (class, held, observes) == (&other.class, &other.held, &other.observes)
            && (services, own, fleet) == (&other.services, &other.own, &other.fleet)
    }

    fn is_own(&self, type_url: &str, name: &str) -> bool {
        let own = self.own.get(type_url);
        own.is_some_and(|own| own.contains_key(name))
    }
}

/// Returns what a receiver gets of these resources of the relayed server, each with its type, and
/// what the state learns from them.
pub(crate) fn passed_on(
    patch: &Arc<Patch>,
    theirs: &[(&'static str, Resource)],
) -> (Option<Arc<View>>, Vec<RelayedResource>) {
    let mut merge = Merge::new(Arc::clone(patch));
    let mut subscriptions = ResourceSubscriptions::new();
    for (type_url, _) in theirs {
        subscriptions.insert(Arc::from(*type_url), [WILDCARD.into()].into());
    }
    merge.subscribe(&subscriptions);
    for (type_url, resource) in theirs {
        merge.handle_upstream(ClientEvent::Updated {
            type_url: Arc::from(*type_url),
            resource: resource.clone(),
        });
    }
    let view = merge.poll_view();
    let mut learned = Vec::new();
    while let Some(event) = merge.poll_event() {
        if let MergeEvent::Learned(resource) = event {
            learned.push(resource);
        }
    }
    (view, learned)
}

#[cfg(test)]
mod tests;
