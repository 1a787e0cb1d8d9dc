//! [`NodeReports`]: the latest reports of one node, what they add to the sums, and when they expire
//! (decisions 0022, 0032).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::aggregate::Change;
use super::config::PlannerConfig;
use super::outcomes::Outcome;
use super::rate::Rate;
use super::view::NodeView;
use crate::model::locality::Locality;
use crate::time::Instant;

#[derive(Debug)]
pub(super) struct NodeReports {
    pub(super) locality: Locality,
    /// When the node's stream closed; cleared by the next report.
    pub(super) disconnected_at: Option<Instant>,
    /// The latest reports were all zero. Such a node may stay silent while its stream is open.
    idle: bool,
    /// The reporting interval the node was asked for last, if it differs from the default.
    requested_interval: Option<Duration>,
    /// Boxed: a map has room for eleven entries, and most nodes report a few clusters.
    clusters: BTreeMap<Arc<str>, Box<Report>>,
    /// Sum of the rates in `clusters`.
    total: Rate,
    /// What the node adds to the sum of its fleet; `None` before its first report is counted.
    counted: Option<Rate>,
    /// Whether the node counts with less than it reports.
    pub(super) is_capped: bool,
    /// Whether a change of one report leaves what the others count with: neither was the node
    /// capped nor did it move.
    is_settled: bool,
}

#[derive(Debug)]
pub(super) struct Report {
    pub(super) rate: Rate,
    /// Rate per upstream locality, smoothed, for display only: demand is never derived from it.
    pub(super) sent: Vec<(Locality, f64)>,
    /// What became of the requests to each upstream locality.
    pub(super) outcomes: Vec<(Locality, Outcome)>,
    /// The interval the report covered, or a newer one that the node was asked for since.
    pub(super) covered: Duration,
    /// The interval of the next report: the longer of the last two. A proxy that reconnects first
    /// reports the few seconds since its retry, and only then returns to its regular interval.
    pub(super) expected: Duration,
    pub(super) at: Instant,
    /// When this report arrived, or when another interval restarted the reporter's timer.
    pub(super) waiting_since: Instant,
    /// What the report adds to the sum of its cluster; `None` before it is counted.
    pub(super) counted: Option<Rate>,
}

impl NodeReports {
    pub(super) fn new(locality: Locality) -> Self {
        Self {
            locality,
            disconnected_at: None,
            idle: false,
            requested_interval: None,
            clusters: BTreeMap::new(),
            total: Rate::ZERO,
            counted: None,
            is_capped: false,
            is_settled: false,
        }
    }

    /// Returns the sum of the rates that the node reports.
    pub(super) const fn total(&self) -> Rate {
        self.total
    }

    /// Returns what the node adds to the sum of its fleet.
    pub(super) fn counted(&self) -> Rate {
        self.counted.unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    pub(super) fn report(&self, cluster: &str) -> Option<&Report> {
        self.clusters.get(cluster).map(AsRef::as_ref)
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = (&Arc<str>, &Report)> {
        let clusters = self.clusters.iter();
        clusters.map(|(cluster, report)| (cluster, report.as_ref()))
    }

    pub(super) fn requested_interval(&self) -> Option<Duration> {
        self.requested_interval
    }

    /// Inserts or replaces a report; [`Self::settle`] updates the sums.
    pub(super) fn insert(&mut self, cluster: &Arc<str>, mut report: Report) {
        self.total.add(report.rate);
        if let Some(before) = self.clusters.get_mut(cluster) {
            self.total.subtract(before.rate);
            report.counted = before.counted;
            **before = report;
        } else {
            self.clusters.insert(Arc::clone(cluster), Box::new(report));
        }
        self.idle = self.total == Rate::ZERO;
    }

    /// Removes the reports that have expired, records the changes of their clusters' sums, and
    /// returns them by cluster; if there are any, [`Self::settle`] updates the other sums.
    pub(super) fn remove_expired(
        &mut self,
        config: &PlannerConfig,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Vec<(Arc<str>, Box<Report>)> {
        let is_due = |report: &Report| self.report_deadline(report, config) <= now;
        let reports = self.clusters.iter();
        let due: Vec<_> = reports
            .filter(|(_, report)| is_due(report))
            .map(|(cluster, _)| Arc::clone(cluster))
            .collect();
        let mut removed = Vec::new();
        for cluster in due {
            if let Some(report) = self.clusters.remove(&cluster) {
                self.total.subtract(report.rate);
                changes.push(self.change(Some(Arc::clone(&cluster)), report.counted, None));
                removed.push((cluster, report));
            }
        }
        removed
    }

    /// Counts the node with at most `cap`, its clusters in proportion, and records how the sums
    /// change. The sums of the fleet and of the clusters in `touched` are always listed.
    pub(super) fn settle(
        &mut self,
        cap: Option<Rate>,
        touched: &BTreeSet<Arc<str>>,
        changes: &mut Vec<Change>,
    ) {
        let counted = cap.map_or(self.total, |cap| self.total.min(cap));
        self.is_capped = counted < self.total;
        let only_touched = self.is_settled && !self.is_capped;
        let after = (!self.clusters.is_empty()).then_some(counted);
        changes.push(self.change(None, self.counted, after));
        let mut clusters = std::mem::take(&mut self.clusters);
        for (cluster, report) in &mut clusters {
            if only_touched && !touched.contains(cluster) {
                continue;
            }
            let after = if self.is_capped {
                report.rate.scaled(counted, self.total)
            } else {
                report.rate
            };
            if report.counted != Some(after) || touched.contains(cluster) {
                let cluster = Some(Arc::clone(cluster));
                changes.push(self.change(cluster, report.counted, Some(after)));
                report.counted = Some(after);
            }
        }
        self.clusters = clusters;
        self.counted = after;
        self.is_settled = !self.is_capped;
    }

    /// Moves the node to another zone, where [`Self::settle`] counts it; returns the previous zone.
    pub(super) fn move_to(&mut self, to: &Locality, changes: &mut Vec<Change>) -> Locality {
        if let Some(counted) = self.counted.take() {
            changes.push(self.change(None, Some(counted), None));
        }
        let mut clusters = std::mem::take(&mut self.clusters);
        for (cluster, report) in &mut clusters {
            let counted = report.counted.take();
            changes.push(self.change(Some(Arc::clone(cluster)), counted, None));
        }
        self.clusters = clusters;
        self.is_settled = false;
        std::mem::replace(&mut self.locality, to.clone())
    }

    /// Counts the requested interval as the last one seen. A longer one must not make the node
    /// expire by the old one; a shorter one is accepted once reports follow it. Asking again for
    /// the same interval is a no-op; otherwise a silent node could be kept alive forever.
    pub(super) fn ask(&mut self, interval: Duration, now: Instant) -> bool {
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

    pub(super) fn deadline(&self, config: &PlannerConfig) -> Option<Instant> {
        let reports = self.clusters.values();
        reports
            .map(|report| self.report_deadline(report, config))
            .min()
    }

    /// When a report expires if the node sends no further one. Silence is not zero: a report holds
    /// until its node missed enough of its intervals, or one interval after the stream closed.
    fn report_deadline(&self, report: &Report, config: &PlannerConfig) -> Instant {
        let missed = config.missed_intervals();
        let mut tolerance = report.expected.saturating_mul(missed);
        if self.idle {
            tolerance = tolerance.max(config.idle_timeout());
        }
        let silent = report.waiting_since.saturating_add(tolerance);
        let closed = self
            .disconnected_at
            .map(|closed| closed.saturating_add(report.expected));
        closed.map_or(silent, |closed| closed.min(silent))
    }

    pub(super) fn view<'a>(&'a self, id: &'a Arc<str>, now: Instant) -> NodeView<'a> {
        let reports = || self.clusters.values();
        let last = reports().map(|report| report.at).max();
        let expected = reports().map(|report| report.expected).max();
        NodeView {
            id,
            locality: &self.locality,
            rate_per_second: self.total.per_second(),
            counted_per_second: self.counted().per_second(),
            upstream_clusters: self.clusters.len(),
            last_report_age: now.saturating_duration_since(last.unwrap_or(now)),
            report_interval: expected.unwrap_or_default(),
            idle: self.idle,
            disconnected: self.disconnected_at.is_some(),
        }
    }

    fn change(
        &self,
        upstream_cluster: Option<Arc<str>>,
        before: Option<Rate>,
        after: Option<Rate>,
    ) -> Change {
        Change {
            locality: self.locality.clone(),
            upstream_cluster,
            before,
            after,
        }
    }
}
