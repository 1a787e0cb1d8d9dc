//! [`RelayedClusters`]: policies and endpoints learned from the relayed server.
//!
//! The state works with a single configuration; this module adds the policies and endpoints of the
//! relayed server to services that the file only names. If that server sends different resources to
//! different proxies, the latest one is used for plans and explanations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::wire::{ClusterIn, decode_cluster};

use super::{RelayedResource, improve};
use crate::config::{ControlConfig, Service};

#[derive(Clone, Debug, Default)]
pub(crate) struct RelayedClusters {
    configs: BTreeMap<Arc<str>, Arc<ClusterConfig>>,
    /// Clusters of the relayed server, decoded.
    theirs: BTreeMap<Arc<str>, ClusterIn>,
    /// Clusters whose assignment is also that of another cluster.
    shared: BTreeSet<Arc<str>>,
    /// Clusters as the relayed server sent them.
    bodies: BTreeMap<Arc<str>, Bytes>,
    assignments: BTreeMap<Arc<str>, Arc<ClusterLoadAssignment>>,
    /// Clusters with an assignment as services that are not steered, for display.
    observed: BTreeMap<Arc<str>, Arc<Service>>,
}

impl RelayedClusters {
    /// Stores a resource of the relayed server; returns whether it has changed.
    pub(crate) fn update(&mut self, relayed: RelayedResource) -> bool {
        let (cluster, is_changed) = match relayed {
            RelayedResource::Cluster {
                cluster,
                config,
                shares_endpoints,
                body,
                ..
            } => {
                // It has been decoded before.
                let is_same = match decode_cluster(&body) {
                    Ok(read) => {
                        let before = self.theirs.insert(Arc::clone(&cluster), read);
                        before.as_ref() == self.theirs.get(&cluster)
                    }
                    Err(_) => self.theirs.remove(&cluster).is_none(),
                };
                self.bodies.insert(Arc::clone(&cluster), body);
                let before = self
                    .configs
                    .insert(Arc::clone(&cluster), Arc::clone(&config));
                let is_changed = before.is_none_or(|before| before != config);
                let is_sharing_changed = if shares_endpoints {
                    self.shared.insert(Arc::clone(&cluster))
                } else {
                    self.shared.remove(&cluster)
                };
                (cluster, is_changed || !is_same || is_sharing_changed)
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

    /// Whether a cluster has hosts in the zone that would get requests even if they are dead: those
    /// that fail their health checks get none. Any zone may have some before clusters are known.
    pub(crate) fn may_have_unchecked_hosts_in(&self, zone: &Locality) -> bool {
        let is_any_known = |service: &Arc<Service>| !service.assignment.endpoints().is_empty();
        if !self.observed.values().any(is_any_known) {
            return true;
        }
        let unchecked = self.observed.values().filter(|it| !it.has_health_checks());
        let mut entries = unchecked.flat_map(|service| service.assignment.endpoints());
        entries.any(|entry| entry.locality == *zone && !entry.lb_endpoints.is_empty())
    }

    /// Whether the relayed server's cluster has health checks.
    fn has_health_checks(&self, cluster: &str) -> bool {
        let theirs = self.theirs.get(cluster);
        theirs.is_some_and(|theirs| theirs.config.health_checking().active)
    }

    fn observe(&mut self, cluster: Arc<str>) {
        let assignment = self.assignments.get(&cluster);
        if let (Some(config), Some(assignment)) = (self.configs.get(&cluster), assignment) {
            let has_health_checks = self.has_health_checks(&cluster);
            let (config, assignment) = (Arc::clone(config), Arc::clone(assignment));
            let service = Service::observed(config, assignment, has_health_checks);
            self.observed.insert(cluster, Arc::new(service));
        }
    }

    /// Returns a cluster as the relayed server sent it.
    pub(crate) fn body(&self, cluster: &str) -> Option<&Bytes> {
        self.bodies.get(cluster)
    }

    /// Discards all resources, when another server is relayed.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns `written` completed with the policies and endpoints of the relayed server.
    pub(crate) fn complete(&self, written: &Arc<ControlConfig>) -> Arc<ControlConfig> {
        if self.theirs.is_empty() && self.assignments.is_empty() {
            return Arc::clone(written);
        }
        let mut config = ControlConfig::clone(written);
        for (name, service) in Arc::make_mut(&mut config.services) {
            if let Some(theirs) = self.theirs.get(name) {
                let no_weights = improve::no_weights(theirs.is_eds, self.shared.contains(name));
                *service = improve::completed(service, &theirs.config, no_weights);
            }
            if self.has_health_checks(name) {
                Arc::make_mut(service).has_relayed_health_checks = true;
            }
            if let Some(assignment) = self.assignments.get(name) {
                *service = Arc::new(Service {
                    assignment: Arc::clone(assignment),
                    ..Service::clone(service)
                });
            }
        }
        Arc::new(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::NotSteeredReason;
    use crate::state::tests::driver::parse;

    const LEAST_REQUEST: &str = "services: [{cluster: {name: orders, lb_policy: LEAST_REQUEST}, \
                                 endpoints: [{locality: {zone: a}, lb_endpoints: \
                                 ['127.0.0.1:1']}]}]";

    /// The cluster and the assignment of `orders` in a file.
    fn relayed(text: &str) -> [RelayedResource; 2] {
        let config = parse(text);
        let orders = &config.services["orders"];
        let cluster = RelayedResource::cluster_of(orders, "1");
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

    #[test]
    fn endpoints_that_cannot_be_weighted_are_known_from_the_cluster() {
        let named = parse("relay: {address: 'h:1'}\nservices: [{cluster: {name: orders}}]");
        let mut clusters = RelayedClusters::default();
        let no_weights = |clusters: &RelayedClusters| {
            let config = clusters.complete(&named);
            config.services["orders"].no_weights
        };
        assert_eq!(no_weights(&clusters), None, "not known");
        let [mut cluster, _] = relayed(LEAST_REQUEST);
        assert!(clusters.update(cluster.clone()));
        assert_eq!(no_weights(&clusters), None);
        for shared in [true, false] {
            if let RelayedResource::Cluster {
                shares_endpoints, ..
            } = &mut cluster
            {
                *shares_endpoints = shared;
            }
            assert!(clusters.update(cluster.clone()));
            let expected = shared.then_some(NotSteeredReason::SharedEndpoints);
            assert_eq!(no_weights(&clusters), expected);
        }
        if let RelayedResource::Cluster { body, .. } = &mut cluster {
            *body = Bytes::from_static(b"\x0a\x06orders");
        }
        assert!(clusters.update(cluster));
        let expected = Some(NotSteeredReason::WithoutEds);
        assert_eq!(no_weights(&clusters), expected);
    }
}
