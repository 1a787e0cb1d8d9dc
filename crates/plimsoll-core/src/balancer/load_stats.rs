//! Load reports (LRS): the requests of each locality since the last report (envoy-semantics §7).
//!
//! Hosts count totals; this module remembers how much of them was reported. Removed hosts are kept
//! until no request can be counted on them any more, and then their remaining counts move to the
//! sums of the [`Ledger`]: Envoy forgets the counts of removed hosts, Plimsoll does not. When a
//! load report is due, and for which clusters, is decided in `plimsoll-xds` (`lrs::client`).

use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Balancer;
use super::members::Members;
use crate::host::{ClusterLoad, DropCounts, Host, RequestCounts};
use crate::model::load_report::{
    ClusterLoadStats, LocalityLoadStats, MetricStats, UpstreamEndpointStats, UpstreamLocalityStats,
};
use crate::model::locality::Locality;
use crate::time::Instant;

impl Balancer {
    /// Starts the first report interval, because a management server began to request reports for
    /// this cluster. As in Envoy, earlier requests and drops belong to no report: an average over
    /// hours in which nobody asked would say nothing about current demand. Backend metrics are kept
    /// (§7), and requests in flight are reported as in progress and when they end.
    pub fn start_load_report(&mut self, now: Instant) {
        self.load_reported_at = now;
        self.members.ledger.sweep();
        self.members.drain_drops();
        self.members.cluster_load().take_drops();
        let tallies = self.members.drain_tallies();
        let ledger = &mut self.members.ledger;
        ledger.carried = tallies
            .into_iter()
            .map(|(key, tally)| (key, tally.without_counts()))
            .filter(|(_, tally)| !tally.sum.is_empty())
            .collect();
    }

    /// Returns the counts since the last call, since [`Self::start_load_report`], or since the
    /// balancer was created. A caller that cannot send them must keep them. The sum of all reports
    /// is exact, even if hosts are removed or settings change. Counts per endpoint are included
    /// only if `report_endpoint_granularity` is set.
    pub fn drain_load_stats(
        &mut self,
        report_endpoint_granularity: bool,
        now: Instant,
    ) -> ClusterLoadStats {
        let since = mem::replace(&mut self.load_reported_at, now);
        self.members.ledger.by_endpoint = report_endpoint_granularity;
        self.members.ledger.sweep();
        let drops = self.members.drain_drops();
        let ordered: u64 = drops.values().sum();
        ClusterLoadStats {
            cluster_name: Arc::clone(self.config.name()),
            cluster_service_name: Arc::default(),
            localities: self.members.drain_localities(),
            total_dropped_requests: ordered + self.members.cluster_load().take_drops(),
            dropped_requests: drops,
            load_report_interval: now.saturating_duration_since(since),
        }
    }

    /// Returns the load shared by all hosts of the cluster: requests in flight and recorded drops.
    pub const fn cluster_load(&self) -> &Arc<ClusterLoad> {
        self.members.cluster_load()
    }
}

type Key = (u32, Locality);

/// Counts that no current host holds and that have not been reported yet.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    retired: Vec<Retired>,
    /// Counts of removed hosts, and counts of hosts from before they moved to another priority.
    carried: BTreeMap<Key, LocalityTally>,
    retired_drops: Vec<Arc<DropCounts>>,
    carried_drops: BTreeMap<Arc<str>, u64>,
    /// Whether the last load report had counts per endpoint; the next one is expected to as well.
    by_endpoint: bool,
}

#[derive(Debug)]
struct Retired {
    host: Arc<Host>,
    priority: u32,
    reported: RequestCounts,
}

#[derive(Clone, Debug, Default)]
struct LocalityTally {
    sum: Tally,
    endpoints: BTreeMap<SocketAddr, Tally>,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    counts: RequestCounts,
    in_progress: u64,
    metrics: BTreeMap<Arc<str>, MetricStats>,
}

impl Ledger {
    pub(super) fn retire(&mut self, host: Arc<Host>, priority: u32, reported: RequestCounts) {
        self.retired.push(Retired {
            host,
            priority,
            reported,
        });
    }

    /// Moves the unreported counts of a host to the ledger before it changes priority.
    pub(super) fn carry(&mut self, host: &Host, priority: u32, reported: &mut RequestCounts) {
        let names = host.cluster_load().metrics.names();
        let mut tally = Tally::of(host, reported, &names);
        tally.in_progress = 0;
        add(&mut self.carried, host, priority, tally, self.by_endpoint);
    }

    /// Keeps replaced drop counters: workers with an old snapshot still count there.
    pub(super) fn retire_drops(&mut self, drops: Arc<DropCounts>) {
        self.retired_drops.push(drops);
    }

    /// Releases hosts and drop counters that nothing else uses, in case no load report is ever due.
    pub(super) fn sweep(&mut self) {
        for gone in mem::take(&mut self.retired) {
            // `try_unwrap` succeeds only for the last owner, after all others have counted.
            match Arc::try_unwrap(gone.host) {
                Ok(host) => {
                    let mut reported = gone.reported;
                    self.carry(&host, gone.priority, &mut reported);
                }
                Err(host) => self.retired.push(Retired { host, ..gone }),
            }
        }
        for drops in mem::take(&mut self.retired_drops) {
            match Arc::try_unwrap(drops) {
                Ok(drops) => add_drops(&mut self.carried_drops, &drops),
                Err(drops) => self.retired_drops.push(drops),
            }
        }
    }
}

impl Members {
    fn drain_localities(&mut self) -> Vec<LocalityLoadStats> {
        let by_endpoint = self.ledger.by_endpoint;
        let report = |((priority, locality), tally): (Key, LocalityTally)| {
            (!tally.sum.is_empty()).then(|| tally.into_stats(locality, priority, by_endpoint))
        };
        let tallies = self.drain_tallies();
        tallies.into_iter().filter_map(report).collect()
    }

    fn drain_tallies(&mut self) -> BTreeMap<Key, LocalityTally> {
        let by_endpoint = self.ledger.by_endpoint;
        let names = self.cluster_load().metrics.names();
        let mut tallies = mem::take(&mut self.ledger.carried);
        for gone in &mut self.ledger.retired {
            let tally = Tally::of(&gone.host, &mut gone.reported, &names);
            add(&mut tallies, &gone.host, gone.priority, tally, by_endpoint);
        }
        for member in self.iter_mut() {
            let tally = Tally::of(&member.host, &mut member.reported, &names);
            add(
                &mut tallies,
                &member.host,
                member.priority,
                tally,
                by_endpoint,
            );
        }
        tallies
    }

    fn drain_drops(&mut self) -> BTreeMap<Arc<str>, u64> {
        let mut drops = mem::take(&mut self.ledger.carried_drops);
        for retired in &self.ledger.retired_drops {
            add_drops(&mut drops, retired);
        }
        add_drops(&mut drops, &self.drop_counts);
        drops
    }
}

fn add(
    tallies: &mut BTreeMap<Key, LocalityTally>,
    host: &Host,
    priority: u32,
    tally: Tally,
    by_endpoint: bool,
) {
    if tally.is_empty() {
        return;
    }
    let key = (priority, host.locality().clone());
    let locality = tallies.entry(key).or_default();
    if by_endpoint {
        let endpoint = locality.endpoints.entry(host.address()).or_default();
        endpoint.add(&tally);
    }
    locality.sum.add(&tally);
}

fn add_drops(drops: &mut BTreeMap<Arc<str>, u64>, counts: &DropCounts) {
    for (category, count) in counts.take().filter(|&(_, count)| count > 0) {
        *drops.entry(Arc::clone(category)).or_default() += count;
    }
}

impl Tally {
    /// Takes the counts of `host` that were not reported yet, and marks them as reported.
    fn of(host: &Host, reported: &mut RequestCounts, names: &[Arc<str>]) -> Self {
        let totals = host.request_counts();
        let counts = totals.report(reported);
        let metrics = host.take_metrics(names);
        Self {
            counts,
            in_progress: totals.in_progress(),
            metrics: metrics
                .map(|(name, stats)| (Arc::clone(name), stats))
                .collect(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.counts = self.counts.plus(other.counts);
        self.in_progress += other.in_progress;
        for (name, stats) in &other.metrics {
            self.metrics
                .entry(Arc::clone(name))
                .or_default()
                .add(*stats);
        }
    }

    /// Whether there is nothing to report (§7: any non-zero value is something).
    fn is_empty(&self) -> bool {
        self.counts == RequestCounts::default() && self.in_progress == 0 && self.metrics.is_empty()
    }
}

impl LocalityTally {
    fn without_counts(mut self) -> Self {
        for tally in self.endpoints.values_mut().chain([&mut self.sum]) {
            tally.counts = RequestCounts::default();
            tally.in_progress = 0;
        }
        self
    }

    fn into_stats(self, locality: Locality, priority: u32, by_endpoint: bool) -> LocalityLoadStats {
        let endpoints = self.endpoints.into_iter().filter(|_| by_endpoint);
        LocalityLoadStats {
            stats: UpstreamLocalityStats {
                locality,
                priority,
                total_issued_requests: self.sum.counts.issued,
                total_successful_requests: self.sum.counts.succeeded,
                total_error_requests: self.sum.counts.failed,
                total_requests_in_progress: self.sum.in_progress,
                total_unissued_requests: None,
            },
            load_metric_stats: self.sum.metrics,
            endpoints: endpoints
                .map(|(address, tally)| UpstreamEndpointStats {
                    address,
                    total_successful_requests: tally.counts.succeeded,
                    total_requests_in_progress: tally.in_progress,
                    total_error_requests: tally.counts.failed,
                    total_issued_requests: tally.counts.issued,
                    load_metric_stats: tally.metrics,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
