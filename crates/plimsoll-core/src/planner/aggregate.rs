//! [`Reports`]: what each node of one fleet said last, and when it stops counting (decisions D1).
//!
//! Demand is keyed by where the reporter *is* (`node.locality`), never by where its requests went:
//! that is the outcome of the plans themselves, and counting it closes a feedback loop that settles
//! in the wrong place. Here live rates per (node, upstream cluster) and their deadlines; every
//! input yields [`Change`]s, from which `grain` keeps its sums. Where requests went is kept for
//! people to look at. Smoothing lives in `smoothing`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::config::{PLAUSIBLE_INTERVAL, PlannerConfig};
use super::event::{IgnoreReason, LeaveReason};
use super::view::NodeView;
use crate::model::load_report::{ClusterStats, Node};
use crate::model::locality::Locality;
use crate::time::Instant;

/// More requests per second than this are not from one process.
const MAX_PLAUSIBLE_RATE: f64 = 1e12;

/// Requests per second in millionths. Integers, so that sums kept by adding and taking away for
/// months are exact, and a zone whose proxies are all idle is exactly zero.
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

    #[expect(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
    pub(super) fn per_second(self) -> f64 {
        self.0 as f64 / Self::PER_UNIT
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 += other.0;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        // Never below what was added: each change takes away what an earlier one had brought.
        self.0 = self.0.saturating_sub(other.0);
    }
}

/// One reporter's part in the sum of one zone changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Where.
    pub(super) locality: Locality,
    /// In the sum of this upstream cluster; `None` = in the sum of the fleet over all of them.
    pub(super) upstream_cluster: Option<Arc<str>>,
    /// What it was; `None` = the reporter was not part of the sum.
    pub(super) before: Option<Rate>,
    /// What it is; `None` = the reporter is not part of the sum any more.
    pub(super) after: Option<Rate>,
}

/// What a usable report led to.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Changes of sums.
    pub(super) changes: Vec<Change>,
    /// The node was not known.
    pub(super) joined: bool,
    /// The node had reported from there before.
    pub(super) moved_from: Option<Locality>,
    /// When to expect its next report.
    pub(super) interval: Duration,
}

/// What a due deadline led to.
#[derive(Debug, Default)]
pub(super) struct Expired {
    /// Changes of sums.
    pub(super) changes: Vec<Change>,
    /// The node is gone altogether.
    pub(super) left: Option<(Locality, LeaveReason)>,
}

/// What the nodes of one fleet said last.
#[derive(Debug, Default)]
pub(super) struct Reports {
    nodes: BTreeMap<Arc<str>, NodeReports>,
}

#[derive(Debug)]
struct NodeReports {
    locality: Locality,
    /// Its stream closed then, and no report has come since.
    closed_at: Option<Instant>,
    /// All it said last was zero: it may be silent for as long as its stream is open, because gRPC
    /// reports zeros once and then nothing until there is traffic again.
    idle: bool,
    /// The interval it was asked for last, where that was another than the default.
    asked: Option<Duration>,
    clusters: BTreeMap<Arc<str>, Report>,
}

/// The last report of one node about one upstream cluster.
#[derive(Debug)]
struct Report {
    rate: Rate,
    /// Where its requests went, for people to look at. No demand is made of it.
    sent: Vec<(Locality, f64)>,
    /// The interval the report covered, or the one that was asked for since.
    covered: Duration,
    /// When to expect the next: the longer of the last two intervals. A proxy that reconnects first
    /// reports the few seconds since its retry, and only then falls into its usual step.
    expected: Duration,
    at: Instant,
    /// From when on the next is waited for: when this one came, or when another interval was asked
    /// for, which starts the reporter's timer anew.
    awaited_since: Instant,
}

impl Reports {
    /// Takes one report. On error nothing has happened.
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
        known.closed_at = None;
        let last = known.clusters.get(&stats.cluster_name);
        let asked = known.asked.unwrap_or(default);
        let expected = covered.max(last.map_or(asked, |last| last.covered));
        reported.interval = expected;
        let report = Report {
            rate,
            sent: stats.sent_per_second(),
            covered,
            expected,
            at: now,
            awaited_since: now,
        };
        known.replace(&stats.cluster_name, Some(report), &mut reported.changes);
        known.idle = known.total() == Some(Rate::default());
        Ok(reported)
    }

    /// The node's stream closed. Returns whether anything is known about the node.
    pub(super) fn handle_disconnect(&mut self, node_id: &str, now: Instant) -> bool {
        let Some(node) = self.nodes.get_mut(node_id) else {
            return false;
        };
        node.closed_at.get_or_insert(now);
        true
    }

    /// The node was asked for another interval. Returns whether that is news about a node that can
    /// have heard it: one that is known and whose stream is open.
    pub(super) fn handle_interval(
        &mut self,
        node_id: &str,
        interval: Duration,
        now: Instant,
    ) -> bool {
        let node = self.nodes.get_mut(node_id);
        node.is_some_and(|node| node.ask(interval, now))
    }

    /// Ids of all nodes.
    pub(super) fn node_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.keys()
    }

    /// All nodes as an administrator sees them.
    pub(super) fn views(&self, now: Instant) -> impl Iterator<Item = NodeView<'_>> {
        self.nodes.iter().map(move |(id, node)| node.view(id, now))
    }

    /// Who sent how much to whom as last reported, about one upstream cluster or about all.
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

    /// Takes out what is due at `now`.
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
            let reason = match node.closed_at {
                Some(_) => LeaveReason::Disconnected,
                None => LeaveReason::Silent,
            };
            expired.left = Some((node.locality.clone(), reason));
            self.nodes.remove(node_id);
        }
        expired
    }

    /// When something of that node leaves next, if nothing is heard of it.
    pub(super) fn deadline(&self, node_id: &str, missed: u32) -> Option<Instant> {
        let node = self.nodes.get(node_id)?;
        let deadlines = node.clusters.values();
        deadlines
            .filter_map(|report| node.deadline(report, missed))
            .min()
    }

    /// Nobody reports any more.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl NodeReports {
    fn new(locality: Locality) -> Self {
        Self {
            locality,
            closed_at: None,
            idle: false,
            asked: None,
            clusters: BTreeMap::new(),
        }
    }

    /// What was asked for counts as the last interval seen. A longer one must not make the node
    /// leave by the old one; a shorter one is believed when reports follow it. Being asked twice
    /// for the same is no news, or a silent node could be kept for ever.
    fn ask(&mut self, interval: Duration, now: Instant) -> bool {
        if self.closed_at.is_some() || self.asked == Some(interval) {
            return false;
        }
        self.asked = Some(interval);
        for report in self.clusters.values_mut() {
            report.covered = interval;
            report.expected = report.expected.max(interval);
            report.awaited_since = now;
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
            disconnected: self.closed_at.is_some(),
        }
    }

    /// What this node demands of all upstream clusters; `None` when it reports none.
    fn total(&self) -> Option<Rate> {
        let mut total = Rate::default();
        self.clusters
            .values()
            .for_each(|report| total.add(report.rate));
        (!self.clusters.is_empty()).then_some(total)
    }

    /// Puts, replaces or takes away one report, and says what that does to both sums.
    fn replace(&mut self, cluster: &Arc<str>, report: Option<Report>, changes: &mut Vec<Change>) {
        let total = self.total();
        let after = report.as_ref().map(|report| report.rate);
        let before = match report {
            Some(report) => self.clusters.insert(Arc::clone(cluster), report),
            None => self.clusters.remove(cluster),
        };
        let before = before.map(|report| report.rate);
        let change = |upstream_cluster, before, after| Change {
            locality: self.locality.clone(),
            upstream_cluster,
            before,
            after,
        };
        changes.push(change(None, total, self.total()));
        changes.push(change(Some(Arc::clone(cluster)), before, after));
    }

    /// When a report stops counting if nothing more is heard.
    ///
    /// Silence is not zero: what a node said last holds until it has missed enough of its own
    /// intervals. Once its stream is closed it has one interval to come back.
    fn deadline(&self, report: &Report, missed: u32) -> Option<Instant> {
        let patience = report.expected.saturating_mul(missed);
        let silent = (!self.idle).then(|| report.awaited_since.saturating_add(patience));
        let closed = self
            .closed_at
            .map(|closed| closed.saturating_add(report.expected));
        [silent, closed].into_iter().flatten().min()
    }

    /// Carries all of the node's demand to another zone; returns the one it was in.
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
