//! [`RelayedClusters`]: policies and endpoints learned from the relayed server.
//!
//! The state works with a single configuration; this module adds the policies and endpoints of the
//! relayed server to services that the file only names. If that server sends different resources to
//! different proxies, the latest one is used for plans and explanations.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;

use super::RelayedResource;
use crate::config::{ControlConfig, Service};

#[derive(Clone, Debug, Default)]
pub(crate) struct RelayedClusters {
    configs: BTreeMap<Arc<str>, Arc<ClusterConfig>>,
    assignments: BTreeMap<Arc<str>, Arc<ClusterLoadAssignment>>,
    /// Clusters with an assignment as services that are not steered, for display.
    observed: BTreeMap<Arc<str>, Arc<Service>>,
}

impl RelayedClusters {
    /// Stores a resource of the relayed server; returns whether it has changed.
    pub(crate) fn update(&mut self, relayed: RelayedResource) -> bool {
        let (cluster, is_changed) = match relayed {
            RelayedResource::Cluster {
                cluster, config, ..
            } => {
                let before = self
                    .configs
                    .insert(Arc::clone(&cluster), Arc::clone(&config));
                (cluster, before.is_none_or(|before| before != config))
            }
            RelayedResource::Assignment {
                cluster,
                assignment,
                ..
            } => {
                let name = Arc::clone(&cluster);
                let before = self.assignments.insert(name, Arc::clone(&assignment));
                (cluster, before.is_none_or(|before| before != assignment))
            }
        };
        if is_changed {
            self.observe(cluster);
        }
        is_changed
    }

    /// Returns the clusters with endpoints as services that nothing steers.
    pub(crate) fn observed(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.observed.values()
    }

    pub(crate) fn observed_service(&self, cluster: &str) -> Option<&Arc<Service>> {
        self.observed.get(cluster)
    }

    fn observe(&mut self, cluster: Arc<str>) {
        let assignment = self.assignments.get(&cluster);
        if let (Some(config), Some(assignment)) = (self.configs.get(&cluster), assignment) {
            let service = Service::observed(Arc::clone(config), Arc::clone(assignment));
            self.observed.insert(cluster, Arc::new(service));
        }
    }

    /// Discards all resources, when another server is relayed.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns `written` completed with the policies and endpoints of the relayed server.
    pub(crate) fn complete(&self, written: &Arc<ControlConfig>) -> Arc<ControlConfig> {
        if self.configs.is_empty() && self.assignments.is_empty() {
            return Arc::clone(written);
        }
        let mut config = ControlConfig::clone(written);
        for (name, service) in &mut config.services {
            let mut complete = Service::clone(service);
            if let Some(assignment) = self.assignments.get(name) {
                complete.assignment = Arc::clone(assignment);
            }
            if let Some(policy) = self.configs.get(name)
                && !service.has_explicit_policy
            {
                complete.config = Arc::clone(policy);
            }
            *service = Arc::new(complete);
        }
        Arc::new(config)
    }
}
