//! Clusters whose load is reported, and since when it is counted.
//!
//! The counters are those of balancers (`plimsoll_core::balancer`). For the cluster manager of a
//! data plane, this module decides which counters are drained; [`Client`](super::Client) decides
//! when, by emitting events.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::time::Instant;

use super::ClusterSelection;

/// Maximum number of removed clusters that wait for their last report. The oldest are dropped, so
/// that a server that keeps replacing clusters while no report is requested cannot exhaust memory.
const MAX_RETIRED: usize = 64;

/// EDS service names by cluster name, where they differ.
pub type EdsNames = BTreeMap<Arc<str>, Arc<str>>;

/// Clusters whose load is reported.
///
/// A cluster that exists when it is first requested is counted from then on, as in Envoy. A cluster
/// created later is counted from its creation and included in the next report; Envoy omits it from
/// that report and discards its counters. Counters of a removed cluster are still reported; Envoy
/// discards them (docs/decisions/0019).
#[derive(Debug, Default)]
pub struct ReportedClusters {
    selected: Option<ClusterSelection>,
    retired: Vec<Balancer>,
}

impl ReportedClusters {
    /// Selects the requested clusters. Newly requested ones among `balancers` begin to count.
    pub fn select<'b>(
        &mut self,
        clusters: ClusterSelection,
        balancers: impl IntoIterator<Item = &'b mut Balancer>,
        now: Instant,
    ) {
        let before = self.selected.as_ref();
        let was_selected = |name: &str| before.is_some_and(|before| before.includes(name));
        let start = |balancer: &mut Balancer| {
            let name = Arc::clone(balancer.config().name());
            if clusters.includes(&name) && !was_selected(&name) {
                balancer.start_load_report(now);
            }
        };
        balancers.into_iter().for_each(start);
        self.retired.iter_mut().for_each(start);
        self.selected = Some(clusters);
    }

    /// Retires a removed cluster. The next report has its counters, if it selects the cluster.
    pub fn retire(&mut self, balancer: Balancer) {
        if self.retired.len() == MAX_RETIRED {
            self.retired.remove(0);
        }
        self.retired.push(balancer);
    }

    /// Drains the counters of every selected cluster since the last report.
    pub fn drain<'b>(
        &mut self,
        clusters: &ClusterSelection,
        balancers: impl IntoIterator<Item = &'b mut Balancer>,
        by_endpoint: bool,
        now: Instant,
    ) -> Vec<ClusterLoadStats> {
        let read = |balancer: &mut Balancer| {
            let is_selected = clusters.includes(balancer.config().name());
            is_selected.then(|| balancer.drain_load_stats(by_endpoint, now))
        };
        let mut stats: Vec<_> = balancers.into_iter().filter_map(read).collect();
        stats.extend(self.retired.iter_mut().filter_map(read));
        // Requests still in progress end in a later drain, so their balancer is kept.
        self.retired
            .retain(|balancer| balancer.cluster_load().active() > 0);
        stats
    }
}

/// Adds EDS service names to drained counters.
pub fn with_eds_names(
    mut stats: Vec<ClusterLoadStats>,
    eds_names: &EdsNames,
) -> Vec<ClusterLoadStats> {
    for load in &mut stats {
        if let Some(name) = eds_names.get(&load.cluster_name) {
            load.cluster_service_name = Arc::clone(name);
        }
    }
    stats
}

#[cfg(test)]
mod tests;
