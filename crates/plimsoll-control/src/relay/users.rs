//! [`AssignmentUsers`]: which clusters of the relayed server have which assignment.
//!
//! Clusters outside the file count, too: weights for one cluster would be theirs as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::pb::upstream::EdsClusterConfigMessage;
use plimsoll_xds::schema::field::raw_fields;
use prost::Message as _;

/// Number of `type` in a cluster, and the field with the value `EDS`.
const TYPE: u32 = 2;
const TYPE_IS_EDS: &[u8] = &[0x10, 3];
/// Number of `eds_cluster_config` in a cluster.
const EDS_CLUSTER_CONFIG: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct AssignmentUsers {
    /// Each cluster with its encoded form, and the name of its assignment if it uses EDS.
    clusters: BTreeMap<Arc<str>, (Bytes, Option<Arc<str>>)>,
    /// Clusters by the name of their assignment.
    users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl AssignmentUsers {
    /// Replaces all clusters; reads those that changed.
    pub(super) fn handle_clusters(&mut self, clusters: &BTreeMap<Arc<str>, Resource>) {
        let before = std::mem::take(&mut self.clusters);
        let mut has_changed = before.len() != clusters.len();
        for (name, cluster) in clusters {
            let known = before.get(name).filter(|(body, _)| *body == cluster.body);
            has_changed |= known.is_none();
            let read = || (cluster.body.clone(), assignment_of(cluster));
            let entry = known.cloned().unwrap_or_else(read);
            self.clusters.insert(Arc::clone(name), entry);
        }
        if !has_changed {
            return;
        }
        self.users.clear();
        for (name, (_, assignment)) in &self.clusters {
            if let Some(assignment) = assignment {
                let users = self.users.entry(Arc::clone(assignment)).or_default();
                users.insert(Arc::clone(name));
            }
        }
    }

    /// Returns the clusters that have an assignment; `None` if there are none.
    pub(super) fn of(&self, assignment: &str) -> Option<&BTreeSet<Arc<str>>> {
        self.users.get(assignment)
    }

    /// Whether another cluster has the same assignment.
    pub(super) fn shares_endpoints(&self, cluster: &str) -> bool {
        let entry = self.clusters.get(cluster);
        let assignment = entry.and_then(|(_, assignment)| assignment.as_ref());
        let users = assignment.and_then(|assignment| self.users.get(assignment));
        users.is_some_and(|users| users.len() > 1)
    }
}

/// Returns the name of the assignment of a cluster; `None` if it does not use EDS. Most clusters
/// are not in the file, so this reads no more than it needs.
fn assignment_of(cluster: &Resource) -> Option<Arc<str>> {
    let mut is_eds = false;
    let mut assignment = Arc::clone(&cluster.name);
    for field in raw_fields(&cluster.body).map_while(Result::ok) {
        match field.number {
            TYPE => is_eds = field.raw == TYPE_IS_EDS,
            EDS_CLUSTER_CONFIG => {
                let config = EdsClusterConfigMessage::decode(field.value).ok()?;
                if !config.service_name.is_empty() {
                    assignment = config.service_name.into();
                }
            }
            _ => {}
        }
    }
    is_eds.then_some(assignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str, rest: &'static [u8]) -> (Arc<str>, Resource) {
        let body = Bytes::from_static(rest);
        (name.into(), Resource::new(name, body))
    }

    #[test]
    fn clusters_with_one_assignment_share_it_until_one_is_gone() {
        const OWN: &[u8] = &[0x10, 3];
        // `eds_cluster_config.service_name` is `s`.
        const NAMED: &[u8] = &[0x10, 3, 0x1a, 3, 0x12, 1, b's'];
        const STATIC: &[u8] = &[0x1a, 3, 0x12, 1, b's'];
        const BROKEN: &[u8] = &[0x10, 3, 0x1a, 9];
        let mut all = BTreeMap::from([
            cluster("a", NAMED),
            cluster("b", OWN),
            cluster("c", STATIC),
            cluster("d", BROKEN),
        ]);
        let mut users = AssignmentUsers::default();
        let shared = |users: &AssignmentUsers| {
            ["a", "b", "c", "d", "s"].map(|name| users.shares_endpoints(name))
        };
        users.handle_clusters(&all);
        assert_eq!(shared(&users), [false; 5]);
        assert_eq!(users.of("s"), Some(&BTreeSet::from(["a".into()])));
        assert_eq!(users.of("b"), Some(&BTreeSet::from(["b".into()])));
        assert_eq!(users.of("c"), None);
        all.extend([cluster("s", OWN)]);
        users.handle_clusters(&all);
        assert_eq!(shared(&users), [true, false, false, false, true]);
        all.extend([cluster("a", OWN)]);
        users.handle_clusters(&all);
        assert_eq!(shared(&users), [false; 5]);
        all.remove("s");
        users.handle_clusters(&all);
        assert_eq!(users.of("s"), None);
    }
}
