//! Load reports: what was sent where since the last one (envoy-semantics §7).
//!
//! Hosts count totals; here is remembered what of them was reported. Hosts that are gone are kept
//! until nobody can count on them any more, then what is left moves to the [`Ledger`]'s sums: Envoy
//! forgets the counts of removed hosts, we do not. When a report is due, and which clusters are
//! wanted, is known by `plimsoll-xds` (`lrs::client`).

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
    /// A server has asked for reports about this cluster, which it had not before: requests and
    /// drops so far belong to no report, and the first interval begins now, as in Envoy. An average
    /// over hours in which nobody asked would say nothing about the demand of now. Metrics of
    /// backends stay (§7); requests in flight are reported as such, and when they end.
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

    /// Everything that happened since the last call, since [`Self::start_load_report`], or since
    /// the balancer was made: to be sent, or to be kept by whoever cannot send it. The sum of all
    /// reports is exact, over removed hosts and changed settings too. Endpoints one by one only if
    /// the server asked for it.
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
            localities: self.members.drain_localities(),
            total_dropped_requests: ordered + self.members.cluster_load().take_drops(),
            dropped_requests: drops,
            load_report_interval: now.saturating_duration_since(since),
        }
    }

    /// What all hosts of the cluster share: requests in flight, and drops to be recorded.
    pub const fn cluster_load(&self) -> &Arc<ClusterLoad> {
        self.members.cluster_load()
    }
}

/// Where counts belong: priority and locality.
type Key = (u32, Locality);

/// What is reported neither by a listed host nor yet at all.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Hosts that are gone, but may still have requests.
    retired: Vec<Retired>,
    /// What hosts counted that are gone for good, or counted at another priority.
    carried: BTreeMap<Key, LocalityTally>,
    retired_drops: Vec<Arc<DropCounts>>,
    carried_drops: BTreeMap<Arc<str>, u64>,
    /// The last report had endpoints one by one: so will the next.
    by_endpoint: bool,
}

/// A host that is no longer listed, where it was, and what of it was reported.
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
    /// The host is no longer listed.
    pub(super) fn retire(&mut self, host: Arc<Host>, priority: u32, reported: RequestCounts) {
        self.retired.push(Retired {
            host,
            priority,
            reported,
        });
    }

    /// The host is about to be counted elsewhere: what it counted so far stays where it was.
    pub(super) fn carry(&mut self, host: &Host, priority: u32, reported: &mut RequestCounts) {
        let names = host.cluster_load().metrics.names();
        let mut tally = Tally::of(host, reported, &names);
        tally.in_progress = 0;
        add(&mut self.carried, (host, priority), tally, self.by_endpoint);
    }

    /// Other orders to drop are in force; whoever has the old snapshot still counts by the old.
    pub(super) fn retire_drops(&mut self, drops: Arc<DropCounts>) {
        self.retired_drops.push(drops);
    }

    /// Lets go of what nobody can count on any more. Called with every assignment, so that a
    /// cluster that is never reported keeps no hosts.
    pub(super) fn sweep(&mut self) {
        for gone in mem::take(&mut self.retired) {
            // Only the last owner gets the host itself, and sees all that others counted.
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
            add(
                &mut tallies,
                (&gone.host, gone.priority),
                tally,
                by_endpoint,
            );
        }
        for member in self.iter_mut() {
            let tally = Tally::of(&member.host, &mut member.reported, &names);
            add(
                &mut tallies,
                (&member.host, member.priority),
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
    (host, priority): (&Host, u32),
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
    /// What `host` counted that was not `reported`; then it is.
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

    /// Nothing to report (§7: any value other than zero is something).
    fn is_empty(&self) -> bool {
        self.counts == RequestCounts::default() && self.in_progress == 0 && self.metrics.is_empty()
    }
}

impl LocalityTally {
    /// Only the metrics of backends.
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
