//! [`Observer`]: reads clusters and assignments that pass through a relay without services.
//!
//! The resources stay as they are. What is read is shown beside the measured demand; what cannot be
//! read is not shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::cluster::HealthChecking;
use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::wire::{decode_assignment, decode_cluster};

use super::RelayedResource;

/// Most clusters of one receiver that are read.
const MAX_CLUSTERS: usize = 500;

#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Encoded clusters, by name.
    clusters: BTreeMap<Arc<str>, Bytes>,
    /// Names of the clusters, by name of their assignment.
    clusters_by_assignment: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Encoded assignments, by name.
    assignments: BTreeMap<Arc<str>, Bytes>,
}

impl Observer {
    /// Returns the clusters that have changed since the last call.
    pub(super) fn clusters<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Resource>,
    ) -> Vec<RelayedResource> {
        let mut learned = Vec::new();
        for resource in all.take(MAX_CLUSTERS) {
            if self.clusters.get(&resource.name) == Some(&resource.body) {
                continue;
            }
            self.clusters
                .insert(Arc::clone(&resource.name), resource.body.clone());
            let Ok(read) = decode_cluster(&resource.body) else {
                continue;
            };
            let assignment = read
                .eds_service_name
                .map_or_else(|| Arc::clone(&resource.name), Arc::from);
            for users in self.clusters_by_assignment.values_mut() {
                users.remove(&resource.name);
            }
            // It may have been read for another cluster.
            self.assignments.remove(&assignment);
            let users = self.clusters_by_assignment.entry(assignment).or_default();
            users.insert(Arc::clone(&resource.name));
            let config = read.config.with_health_checking(HealthChecking::default());
            learned.push(RelayedResource::Cluster {
                cluster: Arc::clone(&resource.name),
                version: Arc::clone(&resource.version),
                config: Arc::new(config),
                shares_endpoints: false,
                body: resource.body.clone(),
            });
        }
        learned
    }

    /// Returns the assignments of known clusters that have changed since the last call.
    pub(super) fn assignments<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Resource>,
    ) -> Vec<RelayedResource> {
        let mut learned = Vec::new();
        for resource in all {
            let Some(users) = self.clusters_by_assignment.get(&resource.name) else {
                continue;
            };
            if self.assignments.get(&resource.name) == Some(&resource.body) {
                continue;
            }
            self.assignments
                .insert(Arc::clone(&resource.name), resource.body.clone());
            if let Ok(assignment) = decode_assignment(&resource.body) {
                let assignment = Arc::new(assignment);
                let of_cluster = |cluster: &Arc<str>| RelayedResource::Assignment {
                    cluster: Arc::clone(cluster),
                    name: Arc::clone(&resource.name),
                    version: Arc::clone(&resource.version),
                    assignment: Arc::clone(&assignment),
                };
                learned.extend(users.iter().map(of_cluster));
            }
        }
        learned
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::wire::{AssignmentOut, encode_assignment};

    use super::*;

    fn cluster(name: &str, version: &str) -> Resource {
        let mut body = b"\x0a\x06orders\x10\x03".to_vec();
        body[2..8].copy_from_slice(name.as_bytes());
        Resource {
            version: version.into(),
            ..Resource::new(name, body.into())
        }
    }

    fn assignment(name: &str, epoch: u64) -> Resource {
        let body = encode_assignment(&AssignmentOut {
            cluster_name: name.into(),
            ..AssignmentOut::default()
        });
        Resource::new(name, body).with_epoch(epoch)
    }

    /// Name and version of a resource.
    fn name(resource: &RelayedResource) -> (&str, &str) {
        match resource {
            RelayedResource::Cluster {
                cluster, version, ..
            } => (cluster, version),
            RelayedResource::Assignment { name, version, .. } => (name, version),
        }
    }

    fn learned(resources: &[RelayedResource]) -> Vec<(&str, &str)> {
        resources.iter().map(name).collect()
    }

    #[test]
    fn only_changed_resources_are_learned() {
        let mut observer = Observer::default();
        let (orders, carts_) = (cluster("orders", "1"), cluster("carts_", "2"));
        let unreadable = Resource::new("broken", Bytes::from_static(b"\x0a\x06orders\x1a\xff"));
        let found = observer.clusters([&orders, &unreadable].into_iter());
        assert_eq!(learned(&found), [("orders", "1")]);
        let found = observer.clusters([&orders, &carts_, &unreadable].into_iter());
        assert_eq!(learned(&found), [("carts_", "2")]);
        let endpoints = ["orders", "carts_", "unknown"].map(|name| assignment(name, 0));
        let version = &*endpoints[0].version;
        let found = observer.assignments(endpoints.iter().filter(|one| &*one.name != "carts_"));
        assert_eq!(learned(&found), [("orders", version)]);
        let found = observer.assignments(endpoints.iter());
        assert_eq!(learned(&found), [("carts_", &*endpoints[1].version)]);
        let again = assignment("orders", 1);
        assert_eq!(observer.assignments([&again].into_iter()), []);
        // Another cluster of the same endpoints: name, EDS, service_name.
        let body = b"\x0a\x06search\x10\x03\x1a\x08\x12\x06orders";
        let shares = Resource::new("search", Bytes::from_static(body));
        assert_eq!(observer.clusters([&shares].into_iter()).len(), 1);
        let found = observer.assignments([&again].into_iter());
        let of = |resource: &RelayedResource| match resource {
            RelayedResource::Assignment { cluster, .. } => cluster.to_string(),
            RelayedResource::Cluster { .. } => panic!("{resource:?}"),
        };
        let users: Vec<_> = found.iter().map(of).collect();
        assert_eq!(users, ["orders", "search"]);
    }
}
