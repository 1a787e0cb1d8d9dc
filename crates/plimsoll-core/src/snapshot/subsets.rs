//! Subsets of a cluster in a snapshot, looked up by the match criteria of a request.
//!
//! Entries are sorted by a hash that criteria carry precomputed, so that a lookup compares numbers
//! and only equal hashes in full. Each subset of several hosts is a routing snapshot of its own.

use std::sync::Arc;

use super::RoutingSnapshot;
use crate::host::Host;
use crate::model::metadata::Metadata;
use crate::model::metadata::criteria::{Criterion, combined_hash};
use crate::model::subset::LbSubsetConfig;

#[derive(Debug)]
pub(crate) struct SubsetTable {
    pub(crate) config: Arc<LbSubsetConfig>,
    /// Subsets with hosts, sorted by hash.
    pub(crate) entries: Box<[SubsetEntry]>,
    pub(crate) default: Option<Arc<RoutingSnapshot>>,
    /// Number of picker-state slots: above every slot of an entry.
    pub(crate) slots: usize,
    pub(crate) default_slot: u32,
    /// Number of subsets, including empty ones that Envoy would keep.
    pub(crate) active: u32,
    pub(crate) limited: bool,
    pub(crate) single_host_duplicates: u64,
}

#[derive(Debug)]
pub(crate) struct SubsetEntry {
    pub(crate) hash: u64,
    /// Unique in the cluster and never reused.
    pub(crate) id: u64,
    /// Slot of the subset's picker state; reused after the subset is gone.
    pub(crate) slot: u32,
    pub(crate) criteria: Arc<[Criterion]>,
    pub(crate) hosts: SubsetHosts,
}

#[derive(Debug)]
pub(crate) enum SubsetHosts {
    /// Several hosts, balanced like a cluster.
    Many(Arc<RoutingSnapshot>),
    /// `single_host_per_subset`: this host, regardless of its health.
    Single { host: Arc<Host>, priority: usize },
}

impl SubsetTable {
    /// Finds the subset of exactly these criteria, which are sorted by key.
    pub(crate) fn find<'a>(
        &self,
        criteria: impl Iterator<Item = &'a Criterion> + Clone,
    ) -> Option<&SubsetEntry> {
        let hash = combined_hash(criteria.clone().map(|criterion| criterion.hash));
        let first = self.entries.partition_point(|entry| entry.hash < hash);
        self.entries[first..]
            .iter()
            .take_while(|entry| entry.hash == hash)
            .find(|entry| entry.criteria.iter().eq(criteria.clone()))
    }
}

impl SubsetEntry {
    pub(crate) fn metadata(&self) -> Metadata {
        self.criteria
            .iter()
            .map(|c| (Arc::clone(&c.key), c.value.clone()))
            .collect()
    }
}

/// A subset of a cluster, for admin pages and tests.
#[derive(Debug)]
#[non_exhaustive]
pub struct SubsetView<'a> {
    pub metadata: Metadata,
    /// Hosts of the subset by priority, locality and address.
    pub hosts: Vec<&'a Arc<Host>>,
    /// Routing of the subset; `None` for a subset of a single host, which needs none.
    pub routing: Option<&'a Arc<RoutingSnapshot>>,
}

impl RoutingSnapshot {
    /// Returns the subsets of the cluster, sorted by metadata; empty without `lb_subset_config`.
    pub fn subsets(&self) -> Vec<SubsetView<'_>> {
        let entries = self.subsets.iter().flat_map(|table| &table.entries);
        let mut subsets: Vec<SubsetView<'_>> = entries
            .map(|entry| match &entry.hosts {
                SubsetHosts::Many(routing) => SubsetView {
                    metadata: entry.metadata(),
                    hosts: routing.hosts().collect(),
                    routing: Some(routing),
                },
                SubsetHosts::Single { host, .. } => SubsetView {
                    metadata: entry.metadata(),
                    hosts: vec![host],
                    routing: None,
                },
            })
            .collect();
        subsets.sort_by(|a, b| a.metadata.cmp(&b.metadata));
        subsets
    }

    /// Returns the routing of the default subset, if any request can fall back to it.
    pub fn default_subset(&self) -> Option<&Arc<RoutingSnapshot>> {
        self.subsets.as_ref()?.default.as_ref()
    }

    /// Returns Envoy's gauges `lb_subsets_active` and
    /// `lb_subsets_single_host_per_subset_duplicate`; `None` if the cluster has no subsets.
    pub fn subset_gauges(&self) -> Option<(u64, u64)> {
        let table = self.subsets.as_ref()?;
        Some((u64::from(table.active), table.single_host_duplicates))
    }
}
