//! [`ServerStream`]: one load reporting stream, as a server sees it.
//!
//! It remembers who reports (gRPC says so once, Envoy every time) and which clusters were reported
//! (grpc-js and grpc-go leave idle ones out), and decides when a response is due. Reports go to the
//! planner by way of the control plane; sockets belong to the driver, which calls
//! [`ServerStream::handle_request`] and then drains [`ServerStream::poll_transmit`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::ClusterStats;

use super::message::{ClusterTraffic, LoadStatsRequest, LoadStatsResponse};
use crate::node::NodeInfo;

/// Envoy takes a zero interval for "at once, for ever".
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Clusters that one stream is remembered to report; a client must not fill our memory with names.
const MAX_REPORTED: usize = 4096;

/// What a server wants to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LrsSettings {
    /// Time between two reports; at least 100 ms.
    pub interval: Duration,
    /// Every cluster is wanted. Clients that cannot be told so get the names in `clusters`.
    pub send_all_clusters: bool,
    /// Names of the wanted clusters.
    pub clusters: Vec<Arc<str>>,
    /// Whether endpoints are reported one by one.
    pub report_endpoint_granularity: bool,
}

/// What a server tells plimsoll data planes about the demand of the whole fleet (decisions D9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LrsTraffic {
    /// Grows when the same fractions are to be sent again (the heartbeat of decisions D3).
    pub epoch: u64,
    /// Per upstream cluster.
    pub clusters: Vec<ClusterTraffic>,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Who reports.
    pub node: Arc<NodeInfo>,
    /// The node is not the one that reported on this stream before, or it is the first one.
    pub is_new_node: bool,
    /// What the message says, and zeros for clusters of earlier messages that it leaves out. May be
    /// empty: the first message of a stream usually is.
    pub cluster_stats: Vec<ClusterStats>,
}

/// The first message of a stream did not say who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNode;

/// One stream.
#[derive(Debug)]
pub struct ServerStream {
    settings: Arc<LrsSettings>,
    traffic: Arc<LrsTraffic>,
    node: Option<Arc<NodeInfo>>,
    /// Clusters that this node named on this stream.
    reported: BTreeSet<Arc<str>>,
    /// The settings in force at the client. `None` = it has not been answered yet.
    sent: Option<LoadStatsResponse>,
    /// The settings or the node moved: what is in force may not be what is wanted.
    settings_moved: bool,
    traffic_due: bool,
}

impl ServerStream {
    /// A stream on which nothing was said yet.
    pub fn new(settings: Arc<LrsSettings>) -> Self {
        Self {
            settings,
            traffic: Arc::default(),
            node: None,
            reported: BTreeSet::new(),
            sent: None,
            settings_moved: true,
            traffic_due: false,
        }
    }

    /// A message arrived. Only the first one has to say who sends; a later one that names somebody
    /// else moves the stream to that node.
    pub fn handle_request(&mut self, request: LoadStatsRequest) -> Result<Report, NoNode> {
        let is_new_node = request.node.is_some_and(|node| self.remember(node));
        let node = Arc::clone(self.node.as_ref().ok_or(NoNode)?);
        if is_new_node {
            self.reported.clear();
        }
        Ok(Report {
            node,
            is_new_node,
            cluster_stats: self.complete(request.cluster_stats),
        })
    }

    /// Adds zeros for clusters that were reported before and are left out now. A client that skips
    /// idle clusters (grpc-js, grpc-go) says zero by sending a report without them; taking that for
    /// silence would make its zone unknown instead of idle. Clients that send no message at all
    /// while idle (gRPC C-core) are not concerned.
    fn complete(&mut self, mut stats: Vec<ClusterStats>) -> Vec<ClusterStats> {
        let interval = self.settings.interval.max(SHORTEST_INTERVAL);
        let named: BTreeSet<Arc<str>> = stats
            .iter()
            .map(|stats| Arc::clone(&stats.cluster_name))
            .collect();
        let idle = self.reported.difference(&named).cloned();
        stats.extend(idle.map(|cluster_name| ClusterStats {
            cluster_name,
            upstream_locality_stats: Vec::new(),
            total_dropped_requests: 0,
            load_report_interval: interval,
        }));
        let room = MAX_REPORTED.saturating_sub(self.reported.len());
        self.reported.extend(named.into_iter().take(room));
        stats
    }

    /// What is wanted from now on. Sent only if it differs for this client, because every response
    /// restarts the report timer of an Envoy (live-envoy D).
    pub fn set_settings(&mut self, settings: Arc<LrsSettings>) {
        if !Arc::ptr_eq(&settings, &self.settings) {
            self.settings = settings;
            self.settings_moved = true;
        }
    }

    /// The demand of the fleet. Never sent to anybody but plimsoll data planes.
    pub fn set_traffic(&mut self, traffic: Arc<LrsTraffic>) {
        if traffic != self.traffic {
            self.traffic = traffic;
            self.traffic_due = true;
        }
    }

    /// The response that is due, if any.
    pub fn poll_transmit(&mut self) -> Option<LoadStatsResponse> {
        let node = self.node.as_ref()?;
        let is_plimsoll = node.is_plimsoll();
        let traffic_due = self.traffic_due && is_plimsoll;
        if !traffic_due && !std::mem::take(&mut self.settings_moved) {
            return None;
        }
        let wanted = render(&self.settings, node);
        if !traffic_due && self.sent.as_ref() == Some(&wanted) {
            return None;
        }
        let mut response = wanted.clone();
        self.sent = Some(wanted);
        if is_plimsoll {
            self.traffic_due = false;
            response.observed_traffic.clone_from(&self.traffic.clusters);
        }
        Some(response)
    }

    /// Who reports.
    pub const fn node(&self) -> Option<&Arc<NodeInfo>> {
        self.node.as_ref()
    }

    /// Whether that is somebody else than before. The same node may have learned something new.
    fn remember(&mut self, info: NodeInfo) -> bool {
        let known = self.node.as_deref();
        if known == Some(&info) {
            return false;
        }
        let is_new_node = known.is_none_or(|known| known.node != info.node);
        if info.is_plimsoll() && !known.is_some_and(NodeInfo::is_plimsoll) {
            // Who was here before has not been told.
            self.traffic_due |= !self.traffic.clusters.is_empty();
        }
        self.node = Some(Arc::new(info));
        self.settings_moved = true;
        is_new_node
    }
}

impl fmt::Display for NoNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node: missing in the first LoadStatsRequest of the stream")
    }
}

impl std::error::Error for NoNode {}

/// The settings in the words that this client understands, without traffic.
fn render(settings: &LrsSettings, node: &NodeInfo) -> LoadStatsResponse {
    let send_all_clusters = settings.send_all_clusters && node.supports_send_all_clusters();
    let clusters = match send_all_clusters {
        true => Vec::new(),
        false => settings.clusters.clone(),
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
