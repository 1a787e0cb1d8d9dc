//! [`Client`]: load reporting as a data plane does it, over all its streams to one server.
//!
//! It knows when a report is due, which clusters are wanted and what could not be sent yet. The
//! counters themselves stay with their owner, which drains them when [`ClientEvent::Collect`] asks
//! for it: what is not asked for keeps adding up there, so an outage loses no count (Envoy latches
//! its counters at every failed retry and loses them). Which balancers that are is known by
//! [`ReportedClusters`](super::ReportedClusters). Sockets and pauses belong to the driver.
//!
//! Measured demand is as old as its observation. The clocks of two machines are never compared: an
//! `observation_time` that is repeated says that nothing was observed since, so what comes with it
//! is as old as its first arrival. So a heartbeat of the server makes nothing newer, and a clock
//! that is wrong by hours, or stepped back, ages nothing (docs/decisions/0018).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::SUPPORTS_SEND_ALL_CLUSTERS;
use super::merge::merge;
use super::message::{ClusterStatsMessage, ClusterTraffic, LoadReport, LoadStatsResponse};
use crate::node::NodeInfo;

/// A server that names no interval, or a very short one, must not make us report in a loop.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Whose load a server wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every cluster's.
    All,
    /// That of clusters with these names (not those of EDS).
    Named(Vec<Arc<str>>),
}

impl Wanted {
    /// Whether a cluster is among them.
    pub fn includes(&self, cluster: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| **name == *cluster),
        }
    }
}

/// What happened so far, under the names of Envoy's `load_reporter.` statistics. Envoy counts from
/// the server's side: `requests` are messages received, `responses` are reports sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReporterStats {
    /// Messages of the server.
    pub requests: u64,
    /// Messages to the server, the first of each stream included.
    pub responses: u64,
    /// Streams that could not be opened or did not end well.
    pub errors: u64,
    /// Attempts to open a stream after an earlier one.
    pub retries: u64,
}

/// What the owner of the counters has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// These clusters are wanted from now on: call [`ReportedClusters::select`].
    ///
    /// [`ReportedClusters::select`]: super::ReportedClusters::select
    Select(Wanted),
    /// Drain the counters of these clusters and call [`Client::handle_stats`].
    Collect {
        /// Whose.
        wanted: Wanted,
        /// Whether endpoints are wanted one by one.
        report_endpoint_granularity: bool,
    },
    /// The demand of the whole fleet, as the server measured it (decisions D9).
    ObservedTraffic(Vec<Observed>),
}

/// Demand for one upstream cluster, with its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What the server said.
    pub traffic: ClusterTraffic,
    /// When this observation first arrived.
    pub at: Instant,
}

/// The reporting side of a data plane.
#[derive(Debug)]
pub struct Client {
    node: NodeInfo,
    settings: Option<Settings>,
    connected: bool,
    /// The first message of this stream, the one with the node, is still to be sent.
    node_due: bool,
    report_due: bool,
    /// Drained, and not sent yet.
    unsent: Vec<ClusterStatsMessage>,
    deadline: Option<Instant>,
    /// Observation time of the newest demand by cluster, and when that first arrived.
    observations: BTreeMap<Arc<str>, (Duration, Instant)>,
    events: VecDeque<ClientEvent>,
    stats: ReporterStats,
    /// There was an attempt to open a stream, and none is open: the next one is a retry.
    lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    wanted: Wanted,
    interval: Duration,
    report_endpoint_granularity: bool,
}

impl Client {
    /// A client that was never connected. What it can do is added to the features of `node`.
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
        }
    }

    /// What happened so far.
    pub const fn stats(&self) -> ReporterStats {
        self.stats
    }

    /// A stream is open. Settings of an earlier one stay in force, and what happened meanwhile is
    /// reported at once: a server that was restarted knows nothing until then.
    pub fn handle_connected(&mut self, now: Instant) {
        self.count_retry();
        self.connected = true;
        self.node_due = true;
        if self.settings.is_some() {
            self.collect(now);
        }
    }

    /// The stream is over, or could not be opened; `clean` if the server ended it without error.
    /// Reports wait for the next one.
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

    /// A response arrived. One that repeats the settings is data only and leaves the timer alone
    /// (decisions D9).
    pub fn handle_response(&mut self, response: LoadStatsResponse, now: Instant) {
        self.stats.requests += 1;
        let wanted = match response.send_all_clusters {
            true => Wanted::All,
            false => Wanted::Named(response.clusters),
        };
        let settings = Settings {
            wanted,
            interval: response.load_reporting_interval.max(SHORTEST_INTERVAL),
            report_endpoint_granularity: response.report_endpoint_granularity,
        };
        if self.settings.as_ref() != Some(&settings) {
            self.deadline = Some(now.saturating_add(settings.interval));
            self.select(&settings.wanted);
            self.settings = Some(settings);
        }
        if !response.observed_traffic.is_empty() {
            // Only the newest counts, however slow the owner is.
            self.events
                .retain(|event| !matches!(event, ClientEvent::ObservedTraffic(_)));
            let traffic = self.observe(response.observed_traffic, now);
            self.events.push_back(ClientEvent::ObservedTraffic(traffic));
        }
    }

    /// Tells how old each part is. Clusters that are not listed any more are forgotten: names come
    /// from the network.
    fn observe(&mut self, traffic: Vec<ClusterTraffic>, now: Instant) -> Vec<Observed> {
        let before = std::mem::take(&mut self.observations);
        let observed = traffic.into_iter().map(|traffic| {
            let name = &traffic.cluster_name;
            let known = before.get(name).copied();
            let first = known.filter(|(time, _)| Some(*time) == traffic.observation_time);
            let at = first.map_or(now, |(_, at)| at);
            if let Some(time) = traffic.observation_time {
                self.observations.insert(Arc::clone(name), (time, at));
            }
            Observed { traffic, at }
        });
        observed.collect()
    }

    /// What the owner drained. Clusters without any traffic belong in it too.
    pub fn handle_stats(&mut self, stats: Vec<ClusterStatsMessage>) {
        merge(&mut self.unsent, stats);
        self.report_due = true;
    }

    /// A report from [`Self::poll_transmit`] never left: it is added to the next one.
    pub fn handle_unsent(&mut self, report: LoadReport) {
        let later = std::mem::replace(&mut self.unsent, report.cluster_stats);
        merge(&mut self.unsent, later);
        self.report_due = !self.unsent.is_empty();
    }

    /// The moment asked for by [`Self::poll_timeout`] has come (early or late is harmless).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.collect(now);
        }
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// What the owner has to do next.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Whether [`Self::poll_transmit`] has something.
    pub const fn has_transmit(&self) -> bool {
        self.connected && (self.node_due || self.report_due)
    }

    /// The message that is due. The driver asks only when the stream has room for it, so that
    /// reports add up here and not in a queue.
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

    /// Says which clusters are wanted, if that is news. Only the newest counts, however slow the
    /// owner is: it knows what it had selected before.
    fn select(&mut self, wanted: &Wanted) {
        let before = self.settings.as_ref().map(|settings| &settings.wanted);
        if before != Some(wanted) {
            self.events
                .retain(|event| !matches!(event, ClientEvent::Select(_)));
            self.events.push_back(ClientEvent::Select(wanted.clone()));
        }
    }

    /// Asks for the counters and sets the next time to do so. Missed times are not made up for.
    fn collect(&mut self, now: Instant) {
        let Some(settings) = &self.settings else {
            return;
        };
        self.deadline = Some(now.saturating_add(settings.interval));
        let collect = ClientEvent::Collect {
            wanted: settings.wanted.clone(),
            report_endpoint_granularity: settings.report_endpoint_granularity,
        };
        // Asked already and not answered: the counters will be drained once.
        self.events
            .retain(|event| !matches!(event, ClientEvent::Collect { .. }));
        self.events.push_back(collect);
    }
}

#[cfg(test)]
mod tests;
