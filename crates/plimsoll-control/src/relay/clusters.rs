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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::driver::parse;

    const LEAST_REQUEST: &str = "services: [{cluster: {name: orders, lb_policy: LEAST_REQUEST}, \
                                 endpoints: [{locality: {zone: a}, lb_endpoints: \
                                 ['127.0.0.1:1']}]}]";

    /// The cluster and the assignment of `orders` in a file.
    fn relayed(text: &str) -> [RelayedResource; 2] {
        let config = parse(text);
        let orders = &config.services["orders"];
        let cluster = RelayedResource::Cluster {
            cluster: "orders".into(),
            version: "1".into(),
            config: Arc::clone(&orders.config),
        };
        let assignment = RelayedResource::Assignment {
            cluster: "orders".into(),
            name: "orders".into(),
            version: "1".into(),
            assignment: Arc::clone(&orders.assignment),
        };
        [cluster, assignment]
    }

    #[test]
    fn clusters_are_observed_once_they_have_a_policy_and_endpoints() {
        let mut clusters = RelayedClusters::default();
        let [cluster, assignment] = relayed(LEAST_REQUEST);
        assert!(clusters.update(assignment.clone()));
        assert!(clusters.observed_service("orders").is_none());
        assert!(clusters.update(cluster.clone()));
        for same in [cluster, assignment] {
            assert!(!clusters.update(same));
        }
        let service = Arc::clone(clusters.observed_service("orders").unwrap());
        assert_eq!(service.config.endpoint_policy().name(), "least_request");
        assert_eq!(service.assignment.endpoints().len(), 1);
        let observed: Vec<_> = clusters.observed().cloned().collect();
        assert_eq!(observed, [service]);
        let [cluster, assignment] = relayed("services: [{cluster: {name: orders}}]");
        assert!(clusters.update(cluster) && clusters.update(assignment));
        let service = clusters.observed_service("orders").unwrap();
        assert_eq!(service.config.endpoint_policy().name(), "round_robin");
        assert!(service.assignment.endpoints().is_empty());
        clusters.clear();
        assert_eq!(clusters.observed().count(), 0);
    }

    #[test]
    fn policies_of_the_file_are_kept_and_endpoints_added() {
        let named = parse(
            "relay: {address: 'h:1'}\nservices: [{cluster: {name: orders}}, \
             {cluster: {name: carts}}]",
        );
        let explicit = parse(
            "relay: {address: 'h:1'}\n\
             services: [{cluster: {name: orders, lb_policy: RANDOM}}]",
        );
        let [cluster, assignment] = relayed(LEAST_REQUEST);
        let completed = |learned: &[&RelayedResource], written: &Arc<ControlConfig>| {
            let mut clusters = RelayedClusters::default();
            for resource in learned {
                clusters.update((*resource).clone());
            }
            let config = clusters.complete(written);
            let orders = &config.services["orders"];
            let endpoints = orders.assignment.endpoints().len();
            (orders.config.endpoint_policy().name(), endpoints)
        };
        assert_eq!(completed(&[], &named), ("round_robin", 0));
        assert_eq!(completed(&[&cluster], &named), ("least_request", 0));
        assert_eq!(completed(&[&assignment], &named), ("round_robin", 1));
        let both = [&cluster, &assignment];
        assert_eq!(completed(&both, &named), ("least_request", 1));
        assert_eq!(completed(&both, &explicit), ("random", 1));
    }
}
