//! Server side of one load reporting stream, without IO.
//!
//! The stream remembers the reporting node (gRPC sends it once, Envoy every time) and which of the
//! server's clusters were reported (grpc-js and grpc-go omit idle ones), and decides when a
//! response is due. Names that the server does not know are not remembered: clients can invent any.
//! The control plane passes reports to the planner. The driver calls
//! [`ServerStream::handle_request`] and then drains [`ServerStream::poll_transmit`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats};
use plimsoll_core::planner::Arrivals;
use plimsoll_core::time::Instant;

use super::message::{ClusterTraffic, LoadStatsRequest, LoadStatsResponse};
use crate::node::NodeInfo;

/// Lower bound of the interval: Envoy treats zero as a busy loop.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Reporting settings that a server requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LrsSettings {
    /// Time between two reports; at least 100 ms.
    pub interval: Duration,
    /// Requests every cluster. Clients that do not support this get the names in `clusters`.
    pub send_all_clusters: bool,
    /// Clusters whose reports the server uses. These are reported as idle if a client that reported
    /// one omits it; cheapest if sorted.
    pub clusters: Vec<Arc<str>>,
    pub report_endpoint_granularity: bool,
}

/// Demand of the whole fleet, sent to plimsoll data planes only (decision 0028).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LrsTraffic {
    /// Incremented to send the same fractions again (the heartbeat of decision 0024).
    pub epoch: u64,
    pub clusters: Vec<ClusterTraffic>,
}

/// Load report with the node that sent it, completed for idle clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub node: Arc<NodeInfo>,
    /// The node is the first on this stream or differs from the previous one.
    pub is_new_node: bool,
    /// Reported clusters, with the requests that arrived ([`Arrivals`]), and zeros for clusters
    /// of the settings that earlier messages had and that are omitted now, at most twice in an
    /// interval. Often empty in the first message of a stream.
    pub cluster_stats: Vec<ClusterStats>,
    /// What it says of single hosts.
    pub host_stats: Vec<ClusterHostStats>,
}

/// Error for a stream whose first message has no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingNode;

/// State machine of one server-side load reporting stream.
#[derive(Debug)]
pub struct ServerStream {
    settings: Arc<LrsSettings>,
    traffic: Arc<LrsTraffic>,
    node: Option<Arc<NodeInfo>>,
    /// Clusters of the settings, if those are not sorted.
    sorted: Option<Vec<Arc<str>>>,
    /// Clusters of the settings that were reported.
    reported: BTreeSet<Arc<str>>,
    arrivals: Arrivals,
    /// When omitted clusters were last added to a report.
    completed_at: Option<Instant>,
    /// Settings in force at the client; `None` before the first response.
    sent: Option<LoadStatsResponse>,
    /// Settings or node changed, so the client may need new settings.
    settings_changed: bool,
    traffic_due: bool,
}

impl ServerStream {
    /// Creates the state of a new stream.
    pub fn new(settings: Arc<LrsSettings>) -> Self {
        Self {
            sorted: sorted(&settings.clusters),
            settings,
            traffic: Arc::default(),
            node: None,
            reported: BTreeSet::new(),
            arrivals: Arrivals::default(),
            completed_at: None,
            sent: None,
            settings_changed: true,
            traffic_due: false,
        }
    }

    /// Handles a load report. Only the first must carry the node; a later one with another node
    /// moves the stream to that node.
    pub fn handle_request(
        &mut self,
        request: LoadStatsRequest,
        now: Instant,
    ) -> Result<Report, MissingNode> {
        let is_new_node = request.node.is_some_and(|node| self.update_node(node));
        let node = Arc::clone(self.node.as_ref().ok_or(MissingNode)?);
        if is_new_node {
            self.reported.clear();
            self.completed_at = None;
            self.arrivals = Arrivals::default();
        }
        let mut stats = request.cluster_stats;
        self.arrivals
            .complete(&mut stats, &request.refused_requests);
        Ok(Report {
            node,
            is_new_node,
            cluster_stats: self.complete(stats, now),
            host_stats: request.host_stats,
        })
    }

    /// Adds zeros for clusters that were reported before and are omitted now. A client that skips
    /// idle clusters (grpc-js, grpc-go) reports zero by omission; treating that as missing data
    /// would make its zone unknown instead of idle. Clients that send no message at all while idle
    /// (gRPC C-core) are not affected. A client that reports more often than it should adds them
    /// twice in an interval at most, so that tiny reports do not cost as much as full ones.
    fn complete(&mut self, mut stats: Vec<ClusterStats>, now: Instant) -> Vec<ClusterStats> {
        let interval = self.settings.interval.max(SHORTEST_INTERVAL);
        let named: BTreeSet<Arc<str>> = stats
            .iter()
            .map(|stats| Arc::clone(&stats.cluster_name))
            .collect();
        let is_due = |last| now.saturating_duration_since(last) >= interval / 2;
        if self.completed_at.is_none_or(is_due) && !self.reported.is_empty() {
            self.completed_at = Some(now);
            let idle = self.reported.difference(&named).cloned();
            stats.extend(idle.map(|cluster_name| ClusterStats {
                cluster_name,
                upstream_locality_stats: Vec::new(),
                total_dropped_requests: 0,
                load_report_interval: interval,
            }));
        }
        let new: Vec<_> = named
            .difference(&self.reported)
            .filter_map(|name| self.known(name).cloned())
            .collect();
        self.reported.extend(new);
        stats
    }

    /// Returns the name as the settings have it, which all streams share.
    fn known(&self, name: &Arc<str>) -> Option<&Arc<str>> {
        let clusters = self.sorted.as_ref().unwrap_or(&self.settings.clusters);
        let index = clusters.binary_search(name).ok()?;
        clusters.get(index)
    }

    /// Replaces the settings. A response is sent only if it differs for this client, because every
    /// response restarts Envoy's report timer.
    pub fn set_settings(&mut self, settings: Arc<LrsSettings>) {
        if !Arc::ptr_eq(&settings, &self.settings) {
            self.sorted = sorted(&settings.clusters);
            self.settings = settings;
            self.settings_changed = true;
            let reported = std::mem::take(&mut self.reported);
            let kept = reported.iter().filter_map(|name| self.known(name).cloned());
            self.reported = kept.collect();
        }
    }

    /// Replaces the demand of the fleet, which is sent to plimsoll data planes only.
    pub fn set_traffic(&mut self, traffic: Arc<LrsTraffic>) {
        if traffic != self.traffic {
            self.traffic = traffic;
            self.traffic_due = true;
        }
    }

    /// Returns the response that is due, if any.
    pub fn poll_transmit(&mut self) -> Option<LoadStatsResponse> {
        let node = self.node.as_ref()?;
        let is_plimsoll = node.is_plimsoll();
        let traffic_due = self.traffic_due && is_plimsoll;
        if !traffic_due && !std::mem::take(&mut self.settings_changed) {
            return None;
        }
        let settings = response_for(&self.settings, node);
        if !traffic_due && self.sent.as_ref() == Some(&settings) {
            return None;
        }
        let mut response = settings.clone();
        self.sent = Some(settings);
        if is_plimsoll {
            self.traffic_due = false;
            response.observed_traffic.clone_from(&self.traffic.clusters);
        }
        Some(response)
    }

    /// Whether the client is to report load per endpoint.
    pub fn asks_for_endpoints(&self) -> bool {
        self.settings.report_endpoint_granularity
    }

    /// Returns the node that reports, once known.
    pub const fn node(&self) -> Option<&Arc<NodeInfo>> {
        self.node.as_ref()
    }

    /// Stores the node; returns whether it is another node, not the same with other features.
    fn update_node(&mut self, info: NodeInfo) -> bool {
        let known = self.node.as_deref();
        if known == Some(&info) {
            return false;
        }
        let is_new_node = known.is_none_or(|known| known.node != info.node);
        if info.is_plimsoll() && !known.is_some_and(NodeInfo::is_plimsoll) {
            // The node before was no plimsoll data plane, so it did not get the traffic data.
            self.traffic_due |= !self.traffic.clusters.is_empty();
        }
        self.node = Some(Arc::new(info));
        self.settings_changed = true;
        is_new_node
    }
}

impl fmt::Display for MissingNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node: missing in the first LoadStatsRequest of the stream")
    }
}

impl std::error::Error for MissingNode {}

/// Returns the names sorted, unless they are.
fn sorted(names: &[Arc<str>]) -> Option<Vec<Arc<str>>> {
    let sort = || {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    (!names.is_sorted()).then(sort)
}

/// Creates the settings message for this client, without traffic data.
fn response_for(settings: &LrsSettings, node: &NodeInfo) -> LoadStatsResponse {
    let send_all_clusters = settings.send_all_clusters && node.supports_send_all_clusters();
    let clusters = if send_all_clusters {
        Vec::new()
    } else {
        settings.clusters.clone()
    };
    LoadStatsResponse {
        clusters,
        send_all_clusters,
        load_reporting_interval: settings.interval.max(SHORTEST_INTERVAL),
        report_endpoint_granularity: settings.report_endpoint_granularity,
        observed_traffic: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
