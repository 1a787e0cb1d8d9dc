//! Load reporting client of a data plane, across reconnects, without IO.
//!
//! The client knows when a report is due, which clusters to report and what has not been sent yet.
//! The counters stay with their owner, which drains them on [`ClientEvent::Collect`]. Until then
//! they keep accumulating, so an outage loses no count (Envoy latches its counters at every failed
//! retry and loses them). [`ReportedClusters`](super::ReportedClusters) knows the balancers.
//! Sockets and backoff belong to the driver.
//!
//! Measured demand is as old as its observation by the server. The clocks of two machines are never
//! compared: a repeated `observation_time` means that nothing was observed since, so that demand is
//! as old as its first arrival. A heartbeat of the server does not make demand newer, and a server
//! clock that is wrong by hours, or set back, does not make it older (docs/decisions/0018).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::SUPPORTS_SEND_ALL_CLUSTERS;
use super::merge::merge;
use super::message::{ClusterLoadStats, ClusterTraffic, LoadReport, LoadStatsResponse};
use crate::node::NodeInfo;

/// Lower bound of the interval, so that a server that requests a tiny one causes no busy loop.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Clusters whose load a server requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSelection {
    All,
    /// Clusters with these names (not EDS service names).
    Named(Vec<Arc<str>>),
}

impl ClusterSelection {
    /// Returns whether a cluster is selected.
    pub fn includes(&self, cluster: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| **name == *cluster),
        }
    }
}

/// Counters with the names of Envoy's `load_reporter.` statistics. Envoy counts from the server's
/// side: `requests` are messages received, `responses` are reports sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReporterStats {
    pub requests: u64,
    /// Messages sent to the server, including the first of each stream.
    pub responses: u64,
    pub errors: u64,
    /// Attempts to open a stream after an earlier one.
    pub retries: u64,
}

/// Instruction to the owner of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server requests these clusters from now on: call [`ReportedClusters::select`].
    ///
    /// [`ReportedClusters::select`]: super::ReportedClusters::select
    Select(ClusterSelection),
    /// Drain the counters of these clusters and call [`Client::handle_stats`].
    Collect {
        clusters: ClusterSelection,
        report_endpoint_granularity: bool,
    },
    /// Demand of the whole fleet, measured by the server (decision 0028).
    ObservedTraffic(Vec<ObservedTraffic>),
}

/// Demand for one upstream cluster, and when it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTraffic {
    pub traffic: ClusterTraffic,
    /// When this observation first arrived.
    pub at: Instant,
}

/// Load reporting client of a data plane.
#[derive(Debug)]
pub struct Client {
    node: NodeInfo,
    settings: Option<Settings>,
    connected: bool,
    node_due: bool,
    report_due: bool,
    unsent: Vec<ClusterLoadStats>,
    deadline: Option<Instant>,
    /// Observation time of the newest demand by cluster, and when it first arrived.
    observations: BTreeMap<Arc<str>, (Duration, Instant)>,
    events: VecDeque<ClientEvent>,
    stats: ReporterStats,
    /// An earlier stream or attempt has ended: the next attempt is a retry.
    lost: bool,
    /// Number of `Collect` events that the owner has and has not answered.
    collecting: u32,
    /// The owner has asked for a last report.
    ending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    clusters: ClusterSelection,
    interval: Duration,
    report_endpoint_granularity: bool,
}

impl Client {
    /// Creates a disconnected client, which adds its LRS capabilities to the features of `node`.
    pub fn new(mut node: NodeInfo) -> Self {
        let features = &mut node.client_features;
        if !features
            .iter()
            .any(|name| name == SUPPORTS_SEND_ALL_CLUSTERS)
        {
            features.push(SUPPORTS_SEND_ALL_CLUSTERS.to_owned());
        }
        Self {
            node,
            settings: None,
            connected: false,
            node_due: false,
            report_due: false,
            unsent: Vec::new(),
            deadline: None,
            observations: BTreeMap::new(),
            events: VecDeque::new(),
            stats: ReporterStats::default(),
            lost: false,
            collecting: 0,
            ending: false,
        }
    }

    /// Returns the counters of the client.
    pub const fn stats(&self) -> ReporterStats {
        self.stats
    }

    /// Handles a new stream. Settings of the previous stream stay in force, and load accumulated in
    /// between is reported at once: a restarted server has no load data until then.
    pub fn handle_connected(&mut self, now: Instant) {
        self.count_retry();
        self.connected = true;
        self.node_due = true;
        if self.settings.is_some() {
            self.collect(now);
        }
    }

    /// Handles the end of a stream, or a failed attempt; `clean` if the server ended it without
    /// error. Unsent reports are kept for the next stream.
    pub const fn handle_disconnected(&mut self, clean: bool) {
        if !self.connected {
            self.count_retry();
        }
        self.stats.errors += !clean as u64;
        self.lost = true;
        self.connected = false;
        self.node_due = false;
        self.report_due = !self.unsent.is_empty();
        self.deadline = None;
    }

    /// Handles a response. A response with unchanged settings only carries traffic data and does
    /// not restart the report timer (decision 0028).
    pub fn handle_response(&mut self, response: LoadStatsResponse, now: Instant) {
        self.stats.requests += 1;
        let clusters = if response.send_all_clusters {
            ClusterSelection::All
        } else {
            ClusterSelection::Named(response.clusters)
        };
        let settings = Settings {
            clusters,
            interval: response.load_reporting_interval.max(SHORTEST_INTERVAL),
            report_endpoint_granularity: response.report_endpoint_granularity,
        };
        if self.settings.as_ref() != Some(&settings) {
            self.deadline = Some(now.saturating_add(settings.interval));
            self.select(&settings.clusters);
            self.settings = Some(settings);
        }
        if !response.observed_traffic.is_empty() {
            // Only the newest demand counts, however slowly the owner polls.
            self.events
                .retain(|event| !matches!(event, ClientEvent::ObservedTraffic(_)));
            let traffic = self.observe(response.observed_traffic, now);
            self.events.push_back(ClientEvent::ObservedTraffic(traffic));
        }
    }

    /// Determines the age of each observation. Clusters that are no longer listed are forgotten,
    /// because names from the network must not accumulate.
    fn observe(&mut self, traffic: Vec<ClusterTraffic>, now: Instant) -> Vec<ObservedTraffic> {
        let before = std::mem::take(&mut self.observations);
        let observed = traffic.into_iter().map(|traffic| {
            let name = &traffic.cluster_name;
            let known = before.get(name).copied();
            let first = known.filter(|(time, _)| Some(*time) == traffic.observation_time);
            let at = first.map_or(now, |(_, at)| at);
            if let Some(time) = traffic.observation_time {
                self.observations.insert(Arc::clone(name), (time, at));
            }
            ObservedTraffic { traffic, at }
        });
        observed.collect()
    }

    /// Adds drained counters to the next report. Include clusters without traffic.
    pub fn handle_stats(&mut self, stats: Vec<ClusterLoadStats>) {
        self.collecting = self.collecting.saturating_sub(1);
        merge(&mut self.unsent, stats);
        self.report_due = true;
    }

    /// Takes back a report from [`Self::poll_transmit`] that was not sent, and merges it into the
    /// next.
    pub fn handle_unsent(&mut self, report: LoadReport) {
        let later = std::mem::replace(&mut self.unsent, report.cluster_stats);
        merge(&mut self.unsent, later);
        self.report_due = !self.unsent.is_empty();
    }

    /// Requests counters if a report is due. Calling it early or late is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.collect(now);
        }
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the next instruction to the owner.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        let event = self.events.pop_front();
        if matches!(event, Some(ClientEvent::Collect { .. })) {
            self.collecting += 1;
        }
        event
    }

    /// Asks for a last report, now: the owner is about to end. Without a stream there is none.
    pub fn handle_end(&mut self, now: Instant) {
        self.ending = true;
        if self.connected {
            self.collect(now);
        }
    }

    /// Returns whether the last report, if [`Self::handle_end`] asked for one, has been sent or
    /// cannot be.
    pub fn has_ended(&self) -> bool {
        let collects = |event: &ClientEvent| matches!(event, ClientEvent::Collect { .. });
        let collecting = self.collecting > 0 || self.events.iter().any(collects);
        self.ending && !(self.connected && (collecting || self.has_transmit()))
    }

    /// Returns whether [`Self::poll_transmit`] has a message.
    pub const fn has_transmit(&self) -> bool {
        self.connected && (self.node_due || self.report_due)
    }

    /// Returns the message that is due. Call it only when the stream has capacity, so that reports
    /// are merged here instead of queued.
    pub fn poll_transmit(&mut self) -> Option<LoadReport> {
        if !self.has_transmit() {
            return None;
        }
        self.stats.responses += 1;
        let node = std::mem::take(&mut self.node_due).then(|| self.node.clone());
        self.report_due = false;
        let cluster_stats = std::mem::take(&mut self.unsent);
        Some(LoadReport {
            node,
            cluster_stats,
        })
    }

    const fn count_retry(&mut self) {
        self.stats.retries += self.lost as u64;
        self.lost = false;
    }

    /// Emits the requested clusters if they changed. Only the newest selection counts, however
    /// slowly the owner polls: the owner knows its previous selection.
    fn select(&mut self, clusters: &ClusterSelection) {
        let before = self.settings.as_ref().map(|settings| &settings.clusters);
        if before != Some(clusters) {
            self.events
                .retain(|event| !matches!(event, ClientEvent::Select(_)));
            self.events.push_back(ClientEvent::Select(clusters.clone()));
        }
    }

    /// Requests the counters and schedules the next report. Missed intervals are not made up for.
    fn collect(&mut self, now: Instant) {
        let Some(settings) = &self.settings else {
            return;
        };
        self.deadline = Some(now.saturating_add(settings.interval));
        let collect = ClientEvent::Collect {
            clusters: settings.clusters.clone(),
            report_endpoint_granularity: settings.report_endpoint_granularity,
        };
        // An unprocessed `Collect` event is replaced: the counters are drained once.
        self.events
            .retain(|event| !matches!(event, ClientEvent::Collect { .. }));
        self.events.push_back(collect);
    }
}

#[cfg(test)]
mod tests;
