//! [`Reports`]: the latest load report of each node of a fleet, and when it expires (decision
//! 0022).
//!
//! Demand is keyed by where the reporter *is* (`node.locality`), never by where its requests went
//! (kept for display only): that is the outcome of the plans themselves, and counting it closes a
//! feedback loop that settles in the wrong place. Every input yields [`Change`]s of rates per
//! (node, upstream cluster), from which `scope` updates its sums.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::config::{PLAUSIBLE_INTERVAL, PlannerConfig};
use super::event::{IgnoreReason, LeaveReason};
use super::view::NodeView;
use crate::model::load_report::{ClusterStats, Node};
use crate::model::locality::Locality;
use crate::time::Instant;

/// Highest request rate that a single process can plausibly report.
const MAX_PLAUSIBLE_RATE: f64 = 1e12;

/// Millionths of a request per second. An integer, so that sums kept for months stay exact, and a
/// zone whose proxies are all idle is exactly zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rate(u128);

impl Rate {
    const PER_UNIT: f64 = 1e6;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be between 0 and MAX_PLAUSIBLE_RATE"
    )]
    fn from_stats(stats: &ClusterStats) -> Result<Self, IgnoreReason> {
        if stats.load_report_interval < *PLAUSIBLE_INTERVAL.start() {
            return Err(IgnoreReason::ImplausibleInterval);
        }
        match stats.demand_per_second() {
            Some(rate) if (0.0..=MAX_PLAUSIBLE_RATE).contains(&rate) => {
                Ok(Self((rate * Self::PER_UNIT).round() as u128))
            }
            _ => Err(IgnoreReason::ImplausibleRate),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are precise enough for a rate"
    )]
    pub(super) fn per_second(self) -> f64 {
        self.0 as f64 / Self::PER_UNIT
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 += other.0;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        // Cannot underflow: each change subtracts what an earlier one added.
        self.0 = self.0.saturating_sub(other.0);
    }
}

/// A change of one reporter's contribution to the sum of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) locality: Locality,
    /// The sum that changes: of this upstream cluster, or with `None` of the whole fleet.
    pub(super) upstream_cluster: Option<Arc<str>>,
    pub(super) before: Option<Rate>,
    pub(super) after: Option<Rate>,
}

#[derive(Debug, Default)]
pub(super) struct Reported {
    pub(super) changes: Vec<Change>,
    pub(super) joined: bool,
    pub(super) moved_from: Option<Locality>,
    /// The interval at which to expect the node's next report.
    pub(super) interval: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Expired {
    pub(super) changes: Vec<Change>,
    pub(super) left: Option<(Locality, LeaveReason)>,
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    nodes: BTreeMap<Arc<str>, NodeReports>,
}

#[derive(Debug)]
struct NodeReports {
    locality: Locality,
    /// When the node's stream closed; cleared by the next report.
    disconnected_at: Option<Instant>,
    /// The latest reports were all zero. Such a node may stay silent while its stream is open,
    /// because gRPC clients report zeros once and then nothing until there is traffic again.
    idle: bool,
    /// The reporting interval the node was asked for last, if it differs from the default.
    requested_interval: Option<Duration>,
    clusters: BTreeMap<Arc<str>, Report>,
}

#[derive(Debug)]
struct Report {
    rate: Rate,
    /// Rate per upstream locality, for display only: demand is never derived from it.
    sent: Vec<(Locality, f64)>,
    /// The interval the report covered, or a newer one that the node was asked for since.
    covered: Duration,
    /// The interval of the next report: the longer of the last two. A proxy that reconnects first
    /// reports the few seconds since its retry, and only then returns to its regular interval.
    expected: Duration,
    at: Instant,
    /// When this report arrived, or when another interval restarted the reporter's timer.
    waiting_since: Instant,
}

impl Reports {
    /// Records one report. Changes nothing on error.
    pub(super) fn handle_report(
        &mut self,
        node: &Node,
        stats: &ClusterStats,
        config: &PlannerConfig,
        now: Instant,
    ) -> Result<Reported, IgnoreReason> {
        if node.id.is_empty() {
            return Err(IgnoreReason::NodeWithoutId);
        }
        if node.locality.is_unset() {
            return Err(IgnoreReason::NodeWithoutLocality);
        }
        let rate = Rate::from_stats(stats)?;
        let default = config.default_report_interval();
        let covered = match stats.load_report_interval {
            interval if PLAUSIBLE_INTERVAL.contains(&interval) => interval,
            _ => default,
        };
        let mut reported = Reported {
            joined: !self.nodes.contains_key(&node.id),
            ..Default::default()
        };
        let known = self
            .nodes
            .entry(Arc::clone(&node.id))
            .or_insert_with(|| NodeReports::new(node.locality.clone()));
        if known.locality != node.locality {
            reported.moved_from = Some(known.move_to(&node.locality, &mut reported.changes));
        }
        known.disconnected_at = None;
        let last = known.clusters.get(&stats.cluster_name);
        let requested_interval = known.requested_interval.unwrap_or(default);
        let expected = covered.max(last.map_or(requested_interval, |last| last.covered));
        reported.interval = expected;
        let report = Report {
            rate,
            sent: stats.sent_per_second(),
            covered,
            expected,
            at: now,
            waiting_since: now,
        };
        known.replace(&stats.cluster_name, Some(report), &mut reported.changes);
        known.idle = known.total() == Some(Rate::default());
        Ok(reported)
    }

    /// Records that the node's stream closed. Returns whether the node is known.
    pub(super) fn handle_disconnect(&mut self, node_id: &str, now: Instant) -> bool {
        let Some(node) = self.nodes.get_mut(node_id) else {
            return false;
        };
        node.disconnected_at.get_or_insert(now);
        true
    }

    /// Returns whether this changed anything: no if the node is unknown, gone or was asked before.
    pub(super) fn handle_report_interval(
        &mut self,
        node_id: &str,
        interval: Duration,
        now: Instant,
    ) -> bool {
        let node = self.nodes.get_mut(node_id);
        node.is_some_and(|node| node.ask(interval, now))
    }

    pub(super) fn node_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.keys()
    }

    pub(super) fn views(&self, now: Instant) -> impl Iterator<Item = NodeView<'_>> {
        self.nodes.iter().map(move |(id, node)| node.view(id, now))
    }

    /// Request rates by (source, destination) as last reported, for one upstream cluster or all.
    pub(super) fn flows(
        &self,
        cluster: Option<&Arc<str>>,
    ) -> BTreeMap<(&Locality, &Locality), f64> {
        let mut flows = BTreeMap::new();
        for node in self.nodes.values() {
            let reports = node.clusters.iter();
            let wanted = reports.filter(|(name, _)| cluster.is_none_or(|cluster| cluster == *name));
            for (to, rate) in wanted.flat_map(|(_, report)| &report.sent) {
                *flows.entry((&node.locality, to)).or_default() += rate;
            }
        }
        flows
    }

    pub(super) fn expire(&mut self, node_id: &str, missed: u32, now: Instant) -> Expired {
        let mut expired = Expired::default();
        let Some(node) = self.nodes.get_mut(node_id) else {
            return expired;
        };
        let due: Vec<_> = node
            .clusters
            .iter()
            .filter(|(_, report)| {
                let deadline = node.deadline(report, missed);
                deadline.is_some_and(|deadline| deadline <= now)
            })
            .map(|(cluster, _)| Arc::clone(cluster))
            .collect();
        for cluster in due {
            node.replace(&cluster, None, &mut expired.changes);
        }
        if node.clusters.is_empty() {
            let reason = match node.disconnected_at {
                Some(_) => LeaveReason::Disconnected,
                None => LeaveReason::Silent,
            };
            expired.left = Some((node.locality.clone(), reason));
            self.nodes.remove(node_id);
        }
        expired
    }

    pub(super) fn deadline(&self, node_id: &str, missed: u32) -> Option<Instant> {
        let node = self.nodes.get(node_id)?;
        let deadlines = node.clusters.values();
        deadlines
            .filter_map(|report| node.deadline(report, missed))
            .min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl NodeReports {
    fn new(locality: Locality) -> Self {
        Self {
            locality,
            disconnected_at: None,
            idle: false,
            requested_interval: None,
            clusters: BTreeMap::new(),
        }
    }

    /// Counts the requested interval as the last one seen. A longer one must not make the node
    /// expire by the old one; a shorter one is believed once reports follow it. Asking again for
    /// the same interval is a no-op; otherwise a silent node could be kept alive forever.
    fn ask(&mut self, interval: Duration, now: Instant) -> bool {
        if self.disconnected_at.is_some() || self.requested_interval == Some(interval) {
            return false;
        }
        self.requested_interval = Some(interval);
        for report in self.clusters.values_mut() {
            report.covered = interval;
            report.expected = report.expected.max(interval);
            report.waiting_since = now;
        }
        true
    }

    fn view<'a>(&'a self, id: &'a Arc<str>, now: Instant) -> NodeView<'a> {
        let reports = || self.clusters.values();
        let last = reports().map(|report| report.at).max();
        let expected = reports().map(|report| report.expected).max();
        NodeView {
            id,
            locality: &self.locality,
            rate_per_second: self.total().unwrap_or_default().per_second(),
            upstream_clusters: self.clusters.len(),
            last_report_age: now.saturating_duration_since(last.unwrap_or(now)),
            report_interval: expected.unwrap_or_default(),
            idle: self.idle,
            disconnected: self.disconnected_at.is_some(),
        }
    }

    /// Returns the node's rate to all upstream clusters; `None` if it has no reports.
    fn total(&self) -> Option<Rate> {
        let mut total = Rate::default();
        self.clusters
            .values()
            .for_each(|report| total.add(report.rate));
        (!self.clusters.is_empty()).then_some(total)
    }

    /// Inserts, replaces or removes one report; records how the sums of cluster and fleet change.
    fn replace(&mut self, cluster: &Arc<str>, report: Option<Report>, changes: &mut Vec<Change>) {
        let total = self.total();
        let after = report.as_ref().map(|report| report.rate);
        let before = match report {
            Some(report) => self.clusters.insert(Arc::clone(cluster), report),
            None => self.clusters.remove(cluster),
        }
        .map(|report| report.rate);
        let change = |upstream_cluster, before, after| Change {
            locality: self.locality.clone(),
            upstream_cluster,
            before,
            after,
        };
        changes.push(change(None, total, self.total()));
        changes.push(change(Some(Arc::clone(cluster)), before, after));
    }

    /// When a report expires if the node sends no further one. Silence is not zero: a report holds
    /// until its node missed enough of its intervals, or one interval after the stream closed.
    fn deadline(&self, report: &Report, missed: u32) -> Option<Instant> {
        let tolerance = report.expected.saturating_mul(missed);
        let silent = (!self.idle).then(|| report.waiting_since.saturating_add(tolerance));
        let closed = self
            .disconnected_at
            .map(|closed| closed.saturating_add(report.expected));
        [silent, closed].into_iter().flatten().min()
    }

    /// Moves all of the node's demand to another zone; returns the previous zone.
    fn move_to(&mut self, to: &Locality, changes: &mut Vec<Change>) -> Locality {
        let from = std::mem::replace(&mut self.locality, to.clone());
        let totals = [(None, self.total())];
        let clusters = self.clusters.iter();
        let parts =
            clusters.map(|(cluster, report)| (Some(Arc::clone(cluster)), Some(report.rate)));
        for (upstream_cluster, rate) in totals.into_iter().chain(parts) {
            changes.push(Change {
                locality: from.clone(),
                upstream_cluster: upstream_cluster.clone(),
                before: rate,
                after: None,
            });
            changes.push(Change {
                locality: to.clone(),
                upstream_cluster,
                before: None,
                after: rate,
            });
        }
        from
    }
}

#[cfg(test)]
mod tests;
