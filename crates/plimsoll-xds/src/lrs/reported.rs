//! [`ReportedClusters`]: whose load a server has asked for, and since when it is counted.
//!
//! The counters are those of balancers (`plimsoll_core::balancer`); which of them are read when a
//! report is due is decided here, for the cluster manager of a data plane. When a report is due is
//! known by [`Client`](super::Client), whose events lead here.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::time::Instant;

use super::Wanted;
use super::message::ClusterStatsMessage;

/// Removed clusters that wait for their last report at most. The oldest give way: a server that
/// replaces its clusters all the time while nobody takes reports must not fill the memory.
const MAX_RETIRED: usize = 64;

/// Names of clusters in EDS, where they differ from the cluster's.
pub type EdsNames = BTreeMap<Arc<str>, Arc<str>>;

/// Whose load is reported.
///
/// A cluster that existed when it was first asked for is counted from then on, as in Envoy. One
/// that is made later is counted from its beginning and is in the next report; Envoy leaves it out
/// of that one and forgets what it counted. What a removed cluster counted is reported; Envoy
/// forgets it (docs/decisions/0019).
#[derive(Debug, Default)]
pub struct ReportedClusters {
    selected: Option<Wanted>,
    retired: Vec<Balancer>,
}

impl ReportedClusters {
    /// A server asks for these clusters from now on. Those of `balancers` that it had not asked for
    /// before begin to count.
    pub fn select<'b>(
        &mut self,
        wanted: Wanted,
        balancers: impl IntoIterator<Item = &'b mut Balancer>,
        now: Instant,
    ) {
        let before = self.selected.as_ref();
        let was_selected = |name: &str| before.is_some_and(|before| before.includes(name));
        let start = |balancer: &mut Balancer| {
            let name = Arc::clone(balancer.config().name());
            if wanted.includes(&name) && !was_selected(&name) {
                balancer.start_load_report(now);
            }
        };
        balancers.into_iter().for_each(start);
        self.retired.iter_mut().for_each(start);
        self.selected = Some(wanted);
    }

    /// A cluster was removed. What it counted is in the next report that asks for it.
    pub fn retire(&mut self, balancer: Balancer) {
        if self.retired.len() == MAX_RETIRED {
            self.retired.remove(0);
        }
        self.retired.push(balancer);
    }

    /// What was counted since the last report, of every wanted cluster.
    pub fn drain<'b>(
        &mut self,
        wanted: &Wanted,
        balancers: impl IntoIterator<Item = &'b mut Balancer>,
        by_endpoint: bool,
        now: Instant,
    ) -> Vec<ClusterLoadStats> {
        let read = |balancer: &mut Balancer| {
            let is_wanted = wanted.includes(balancer.config().name());
            is_wanted.then(|| balancer.drain_load_stats(by_endpoint, now))
        };
        let mut stats: Vec<_> = balancers.into_iter().filter_map(read).collect();
        stats.extend(self.retired.iter_mut().filter_map(read));
        // What ends after this drain ends in another one, while there is something to end.
        self.retired
            .retain(|balancer| balancer.cluster_load().active() > 0);
        stats
    }
}

/// What was drained, as it is sent.
pub fn messages(stats: Vec<ClusterLoadStats>, eds_names: &EdsNames) -> Vec<ClusterStatsMessage> {
    let message = |load| {
        let mut message = ClusterStatsMessage::from(load);
        if let Some(name) = eds_names.get(&message.cluster_name) {
            message.cluster_service_name = Arc::clone(name);
        }
        message
    };
    stats.into_iter().map(message).collect()
}

#[cfg(test)]
mod tests;
