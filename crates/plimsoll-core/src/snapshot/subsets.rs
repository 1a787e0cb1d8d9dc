//! [`SubsetTable`]: the subsets of a cluster as workers see them, found by what a request asks for.
//!
//! Sorted by a hash that criteria bring along, so that a pick compares numbers; what has the same
//! hash is compared in full. Each subset of many hosts is a routing snapshot of its own.

use std::sync::Arc;

use super::RoutingSnapshot;
use crate::host::Host;
use crate::model::metadata::Metadata;
use crate::model::metadata::criteria::{Criterion, combined_hash};
use crate::model::subset::LbSubsetConfig;

/// The subsets of a cluster.
#[derive(Debug)]
pub(crate) struct SubsetTable {
    pub(crate) config: Arc<LbSubsetConfig>,
    /// Subsets with hosts, sorted by hash.
    pub(crate) entries: Box<[SubsetEntry]>,
    /// The default subset, where some request can fall back to it.
    pub(crate) default: Option<Arc<RoutingSnapshot>>,
    /// Slots of workers' state: above every slot of an entry.
    pub(crate) slots: usize,
    pub(crate) default_slot: u32,
    /// How many subsets there are, those without hosts included that Envoy would keep.
    pub(crate) active: u32,
    /// Some subsets could not be made because there were too many.
    pub(crate) limited: bool,
    pub(crate) single_host_duplicates: u64,
}

/// One subset.
#[derive(Debug)]
pub(crate) struct SubsetEntry {
    pub(crate) hash: u64,
    /// Never given to another subset of the cluster.
    pub(crate) id: u64,
    /// Where workers keep its state; given to another subset when this one is gone.
    pub(crate) slot: u32,
    pub(crate) criteria: Arc<[Criterion]>,
    pub(crate) hosts: SubsetHosts,
}

/// The hosts of a subset.
#[derive(Debug)]
pub(crate) enum SubsetHosts {
    /// Balanced like a cluster.
    Many(Arc<RoutingSnapshot>),
    /// `single_host_per_subset`: this one, whatever its health.
    Single { host: Arc<Host>, priority: usize },
}

impl SubsetTable {
    /// The subset of exactly these criteria, which are sorted by key.
    pub(crate) fn find<'a>(
        &self,
        criteria: impl Iterator<Item = &'a Criterion> + Clone,
    ) -> Option<&SubsetEntry> {
        let hash = combined_hash(criteria.clone().map(|criterion| criterion.hash));
        let first = self.entries.partition_point(|entry| entry.hash < hash);
        let same = self.entries[first..].iter();
        same.take_while(|entry| entry.hash == hash)
            .find(|entry| entry.criteria.iter().eq(criteria.clone()))
    }
}

impl SubsetEntry {
    /// What its hosts have in common.
    pub(crate) fn metadata(&self) -> Metadata {
        let pairs = self.criteria.iter();
        pairs
            .map(|c| (Arc::clone(&c.key), c.value.clone()))
            .collect()
    }
}

/// A subset of a cluster, for pages and tests.
#[derive(Debug)]
pub struct SubsetView<'a> {
    /// What its hosts have in common.
    pub metadata: Metadata,
    /// Its hosts by priority, locality and address; of a subset of a single host, that one.
    pub hosts: Vec<&'a Arc<Host>>,
    /// Its routing; `None` for a subset of a single host, which needs none.
    pub routing: Option<&'a Arc<RoutingSnapshot>>,
}

impl RoutingSnapshot {
    /// The subsets of the cluster, sorted by metadata; none where it has no `lb_subset_config`.
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

    /// The routing of the default subset, where some request can fall back to it.
    pub fn default_subset(&self) -> Option<&Arc<RoutingSnapshot>> {
        self.subsets.as_ref()?.default.as_ref()
    }

    /// Envoy's gauges of subsets: `lb_subsets_active` and
    /// `lb_subsets_single_host_per_subset_duplicate`; `None` where the cluster has no subsets.
    pub fn subset_gauges(&self) -> Option<(u64, u64)> {
        let table = self.subsets.as_ref()?;
        Some((u64::from(table.active), table.single_host_duplicates))
    }
}
