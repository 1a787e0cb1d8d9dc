//! [`Reports`]: the latest load report of each node of a fleet, and when it expires (decision
//! 0022).
//!
//! Demand is keyed by where the reporter *is* (`node.locality`), never by where its requests went
//! (kept for display only): that is the outcome of the plans themselves, and counting it closes a
//! feedback loop that settles in the wrong place. Every input yields [`Change`]s of rates per
//! (node, upstream cluster), from which `scope` updates its sums. A node counts with at most a
//! multiple of the median of its fleet, so that one misreporting node cannot move demand (decision
//! 0032).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::config::{PLAUSIBLE_INTERVAL, PlannerConfig};
use super::event::{IgnoreReason, LeaveReason};
use super::node_reports::{NodeReports, Report};
use super::outcomes::{FleetOutcomes, outcomes};
use super::ranks::Ranks;
pub(super) use super::rate::Rate;
use super::smoothing::follow;
use super::view::{DominantNode, FlowsBySource, NodeView};
use crate::model::load_report::{ClusterStats, Node};
use crate::model::locality::Locality;
use crate::time::Instant;

/// A report counts for at most this many of the intervals that the node was asked for.
const MAX_INTERVALS: u32 = 3;
/// Share of the demand of a zone with three or more reporting nodes above which one dominates it.
const DOMINANT_SHARE: f64 = 0.5;
/// The same if two nodes have demand, and no other reports: one of two always has half.
const DOMINANT_SHARE_OF_TWO: f64 = 0.9;

/// Request rates by upstream cluster and source; destinations are sorted.
pub(super) type FlowsByCluster<'a> = BTreeMap<&'a Arc<str>, FlowsBySource<'a>>;

/// Numbers of nodes that report from a zone.
#[derive(Default)]
struct ReportingNodes {
    all: usize,
    with_demand: usize,
}

impl ReportingNodes {
    /// Share of the zone's demand above which one node dominates it; `None` if none can. A node
    /// beside an idle one always has all demand.
    const fn dominant_share(&self) -> Option<f64> {
        match (self.all, self.with_demand) {
            (2, 2) => Some(DOMINANT_SHARE_OF_TWO),
            (0..=2, _) => None,
            _ => Some(DOMINANT_SHARE),
        }
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

/// How an input changed the sums.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) changes: Vec<Change>,
    /// Nodes that began to count with less than they report.
    pub(super) capped: Vec<Capped>,
}

#[derive(Debug, Default)]
pub(super) struct Reported {
    pub(super) effects: Effects,
    pub(super) joined: bool,
    pub(super) moved_from: Option<Locality>,
    /// The longer of the interval that the report covers and that of the next one: until it has
    /// passed since the first report of a fleet, others may be missing.
    pub(super) interval: Duration,
    /// Clusters whose statistics were unusable.
    pub(super) ignored: Vec<(Arc<str>, IgnoreReason)>,
}

#[derive(Debug, Default)]
pub(super) struct Expired {
    pub(super) effects: Effects,
    pub(super) left: Option<(Locality, LeaveReason)>,
}

/// A node that counts with less than it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Capped {
    pub(super) node: Arc<str>,
    pub(super) locality: Locality,
    pub(super) reported: Rate,
    pub(super) counted: Rate,
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    nodes: BTreeMap<Arc<str>, NodeReports>,
    ranks: Ranks,
    /// The most that a node may add to the sum of the fleet; `None` with too few nodes.
    cap: Option<Rate>,
    /// What became of requests, in the reports of `nodes`.
    pub(super) outcomes: FleetOutcomes,
}

impl Reports {
    /// Records one load report, about any number of clusters. An error concerns the node as a whole
    /// and changes nothing.
    pub(super) fn handle_report(
        &mut self,
        node: &Node,
        stats: &[ClusterStats],
        config: &PlannerConfig,
        now: Instant,
    ) -> Result<Reported, IgnoreReason> {
        if node.id.is_empty() {
            return Err(IgnoreReason::NodeWithoutId);
        }
        if node.locality.is_unset() {
            return Err(IgnoreReason::NodeWithoutLocality);
        }
        let mut reported = Reported::default();
        let (rates, ignored) = rates(stats);
        reported.ignored = ignored;
        if rates.is_empty() {
            return Ok(reported);
        }
        reported.joined = !self.nodes.contains_key(&node.id);
        let known = self
            .nodes
            .entry(Arc::clone(&node.id))
            .or_insert_with(|| NodeReports::new(node.locality.clone()));
        let total = known.total();
        if known.locality != node.locality {
            for (cluster, report) in known.reports() {
                let outcomes = &mut self.outcomes;
                outcomes.replace(cluster, &known.locality, &report.outcomes, &[]);
                outcomes.replace(cluster, &node.locality, &[], &report.outcomes);
            }
            reported.moved_from =
                Some(known.move_to(&node.locality, &mut reported.effects.changes));
        }
        known.disconnected_at = None;
        let mut touched = BTreeSet::new();
        for (stats, rate) in rates {
            let report = new_report(known, stats, rate, self.cap, config, now);
            let before = known.report(&stats.cluster_name);
            let before = before.map_or(&[][..], |before| &before.outcomes);
            self.outcomes.replace(
                &stats.cluster_name,
                &node.locality,
                before,
                &report.outcomes,
            );
            let covered = stats.load_report_interval.min(*PLAUSIBLE_INTERVAL.end());
            reported.interval = reported.interval.max(report.expected).max(covered);
            known.insert(&stats.cluster_name, report);
            touched.insert(Arc::clone(&stats.cluster_name));
        }
        self.recount(&node.id, total, &touched, config, &mut reported.effects);
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

    /// Returns the number of nodes that report demand above zero.
    pub(super) fn nodes_with_demand(&self) -> usize {
        self.ranks.len()
    }

    /// Returns the nodes that carry most of the demand of a zone with other nodes.
    pub(super) fn dominant_nodes(&self) -> Vec<DominantNode<'_>> {
        let mut zones: BTreeMap<&Locality, (ReportingNodes, Rate, DominantNode<'_>)> =
            BTreeMap::new();
        for (id, node) in &self.nodes {
            let share = node.counted();
            let this = DominantNode {
                id,
                locality: &node.locality,
                counted_per_second: share.per_second(),
                zone_per_second: 0.0,
            };
            let (nodes, sum, largest) = zones
                .entry(&node.locality)
                .or_insert_with(|| (ReportingNodes::default(), Rate::ZERO, this.clone()));
            nodes.all += 1;
            nodes.with_demand += usize::from(share != Rate::ZERO);
            sum.add(share);
            if this.counted_per_second > largest.counted_per_second {
                *largest = this;
            }
        }
        let dominant = zones.into_values().filter_map(|(nodes, sum, node)| {
            let zone_per_second = sum.per_second();
            let node = DominantNode {
                zone_per_second,
                ..node
            };
            (node.share() > nodes.dominant_share()?).then_some(node)
        });
        dominant.collect()
    }

    /// Request rates by (source, destination), smoothed over a few reports, for one upstream
    /// cluster or all.
    pub(super) fn flows(
        &self,
        cluster: Option<&Arc<str>>,
    ) -> BTreeMap<(&Locality, &Locality), f64> {
        let mut flows = BTreeMap::new();
        for (node, report) in self.reports(cluster) {
            for (to, rate) in &report.sent {
                *flows.entry((&node.locality, to)).or_default() += rate;
            }
        }
        flows
    }

    /// The latest reports of all nodes about one upstream cluster or all.
    fn reports(&self, cluster: Option<&Arc<str>>) -> impl Iterator<Item = (&NodeReports, &Report)> {
        self.nodes.values().flat_map(move |node| {
            let one = cluster.map(|cluster| node.report(cluster).into_iter());
            let all = cluster
                .is_none()
                .then(|| node.reports().map(|(_, report)| report));
            let reports = one.into_iter().flatten().chain(all.into_iter().flatten());
            reports.map(move |report| (node, report))
        })
    }

    /// Request rates of every upstream cluster, by source, with sorted destinations.
    pub(super) fn flows_by_cluster(&self) -> FlowsByCluster<'_> {
        let mut clusters = FlowsByCluster::new();
        for node in self.nodes.values() {
            for (cluster, report) in node.reports() {
                let sources = clusters.entry(cluster).or_default();
                let sums = sources.entry(&node.locality).or_default();
                add_sorted(sums, &report.sent);
            }
        }
        clusters
    }

    pub(super) fn expire(
        &mut self,
        node_id: &Arc<str>,
        config: &PlannerConfig,
        now: Instant,
    ) -> Expired {
        let mut expired = Expired::default();
        let Some(node) = self.nodes.get_mut(node_id) else {
            return expired;
        };
        let total = node.total();
        let mut removed = Vec::new();
        let reports = node.remove_expired(config, now, &mut removed);
        if reports.is_empty() {
            return expired;
        }
        for (cluster, report) in &reports {
            let outcomes = &mut self.outcomes;
            outcomes.replace(cluster, &node.locality, &report.outcomes, &[]);
        }
        if node.is_empty() {
            let reason = match node.disconnected_at {
                Some(_) => LeaveReason::Disconnected,
                None => LeaveReason::Silent,
            };
            expired.left = Some((node.locality.clone(), reason));
        }
        let touched = BTreeSet::new();
        self.recount(node_id, total, &touched, config, &mut expired.effects);
        expired.effects.changes.extend(removed);
        if expired.left.is_some() {
            self.nodes.remove(node_id);
        }
        expired
    }

    /// Whether the sums of outcomes are those of the latest reports.
    #[cfg(test)]
    pub(super) fn outcomes_are_sums(&self) -> bool {
        let mut sums = FleetOutcomes::default();
        for node in self.nodes.values() {
            for (cluster, report) in node.reports() {
                sums.replace(cluster, &node.locality, &[], &report.outcomes);
            }
        }
        sums == self.outcomes
    }

    pub(super) fn deadline(&self, node_id: &str, config: &PlannerConfig) -> Option<Instant> {
        self.nodes.get(node_id)?.deadline(config)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Updates the cap after the total of a node changed, and what every node counts with.
    ///
    /// The median is rounded up to five bits: every report moves it a little, and the nodes above
    /// the cap are only counted again if that matters.
    fn recount(
        &mut self,
        id: &Arc<str>,
        total_before: Rate,
        touched: &BTreeSet<Arc<str>>,
        config: &PlannerConfig,
        effects: &mut Effects,
    ) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        self.ranks.replace(id, total_before, node.total());
        let median = self.ranks.median().map(Rate::rounded_up);
        let cap = median.map(|median| median.times(config.max_times_median()));
        let before = std::mem::replace(&mut self.cap, cap);
        settle(node, id, cap, touched, effects);
        if before == cap {
            return;
        }
        // Only nodes above the lower of both caps count differently.
        let lower = [before, cap].into_iter().flatten().min();
        let affected = self.ranks.above(lower.unwrap_or_default());
        let nothing = BTreeSet::new();
        for other in affected.filter(|other| *other != id) {
            if let Some(node) = self.nodes.get_mut(other) {
                settle(node, other, cap, &nothing, effects);
            }
        }
    }
}

fn settle(
    node: &mut NodeReports,
    id: &Arc<str>,
    cap: Option<Rate>,
    touched: &BTreeSet<Arc<str>>,
    effects: &mut Effects,
) {
    let was_capped = node.is_capped;
    node.settle(cap, touched, &mut effects.changes);
    if node.is_capped && !was_capped {
        effects.capped.push(Capped {
            node: Arc::clone(id),
            locality: node.locality.clone(),
            reported: node.total(),
            counted: node.counted(),
        });
    }
}

/// Adds rates to sums; both are sorted by locality.
fn add_sorted<'a>(sums: &mut Vec<(&'a Locality, f64)>, rates: &'a [(Locality, f64)]) {
    let mut at = 0;
    for (to, rate) in rates {
        while sums.get(at).is_some_and(|(known, _)| *known < to) {
            at += 1;
        }
        match sums.get_mut(at) {
            Some((known, sum)) if *known == to => *sum += rate,
            _ => sums.insert(at, (to, *rate)),
        }
    }
}

type Rates<'a> = Vec<(&'a ClusterStats, Rate)>;

/// Divides the statistics of a report into usable ones, with their rates, and others.
fn rates(stats: &[ClusterStats]) -> (Rates<'_>, Vec<(Arc<str>, IgnoreReason)>) {
    let mut usable = Vec::with_capacity(stats.len());
    let mut ignored = Vec::new();
    for stats in stats {
        match Rate::from_stats(stats) {
            Ok(rate) => usable.push((stats, rate)),
            Err(reason) => ignored.push((Arc::clone(&stats.cluster_name), reason)),
        }
    }
    (usable, ignored)
}

fn new_report(
    node: &NodeReports,
    stats: &ClusterStats,
    rate: Rate,
    cap: Option<Rate>,
    config: &PlannerConfig,
    now: Instant,
) -> Report {
    let default = config.default_report_interval();
    let requested = node.requested_interval().unwrap_or(default);
    let covered = match stats.load_report_interval {
        interval if PLAUSIBLE_INTERVAL.contains(&interval) => {
            interval.min(requested.saturating_mul(MAX_INTERVALS))
        }
        _ => default,
    };
    let last = node.report(&stats.cluster_name);
    let latest = stats.sent_per_second();
    let sent = match last {
        Some(last) => follow(&last.sent, latest, covered, config.tau()),
        None => latest,
    };
    Report {
        rate,
        sent,
        outcomes: outcomes(stats, cap),
        covered,
        expected: covered.max(last.map_or(requested, |last| last.covered)),
        at: now,
        waiting_since: now,
        counted: None,
    }
}

#[cfg(test)]
mod tests;
