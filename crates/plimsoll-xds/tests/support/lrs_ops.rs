//! Interpreter of byte strings as a load reporting exchange, from the server's side.
//!
//! Each pair of bytes is a message of the client, new settings or new traffic. After each: no
//! client is answered before it sent its node; an Envoy gets settings only if they changed, because
//! every response restarts its timer; only plimsoll data planes get traffic; the last settings sent
//! are the current ones; and a cluster that a node has reported is in all of its later reports
//! while the settings have it. Used by the tests of this crate and by the fuzz target `lrs_ops`.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::lrs::message::{ClusterTraffic, LoadStatsRequest, LoadStatsResponse};
use plimsoll_xds::lrs::{LrsSettings, LrsTraffic, SUPPORTS_SEND_ALL_CLUSTERS, ServerStream};
use plimsoll_xds::node::{NodeInfo, PLIMSOLL_FEATURE};

/// Cases that were reached, so that tests can check coverage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) reports: usize,
    pub(crate) nameless: usize,
    pub(crate) settings: usize,
    pub(crate) traffic: usize,
}

struct World {
    server: ServerStream,
    settings: Arc<LrsSettings>,
    traffic: Arc<LrsTraffic>,
    node: Option<NodeInfo>,
    /// The node has reported its cluster, which the settings have had since.
    reported: bool,
    now: Instant,
    last: Option<LoadStatsResponse>,
    coverage: Coverage,
}

/// Runs the exchange described by `bytes`; panics if an invariant is violated.
pub(crate) fn run(bytes: &[u8]) -> Coverage {
    let settings = Arc::new(settings(0));
    let mut world = World {
        server: ServerStream::new(Arc::clone(&settings)),
        settings,
        traffic: Arc::default(),
        node: None,
        reported: false,
        now: Instant::ORIGIN,
        last: None,
        coverage: Coverage::default(),
    };
    for pair in bytes.chunks_exact(2) {
        world.step(pair[0], pair[1]);
        world.drain();
    }
    world.coverage
}

impl World {
    fn step(&mut self, op: u8, argument: u8) {
        match op % 4 {
            0 | 1 => self.report(argument),
            2 => {
                self.settings = Arc::new(settings(argument));
                self.server.set_settings(Arc::clone(&self.settings));
                self.reported &= !self.settings.clusters.is_empty();
            }
            _ => {
                self.traffic = Arc::new(traffic(argument));
                self.server.set_traffic(Arc::clone(&self.traffic));
            }
        }
    }

    /// Sends a report; the lower bits select the node.
    fn report(&mut self, argument: u8) {
        let node = (argument & 1 == 1).then(|| node(argument));
        let stats = vec![stats(); usize::from(argument >> 6)];
        let is_new =
            node.is_some() && self.node.as_ref().map(|n| &n.node) != node.as_ref().map(|n| &n.node);
        let request = LoadStatsRequest {
            node: node.clone(),
            cluster_stats: stats.clone(),
            ..Default::default()
        };
        // Longer than any interval.
        self.now = self.now.saturating_add(Duration::from_secs(1));
        let report = self.server.handle_request(request, self.now);
        self.node = node.or_else(|| self.node.take());
        let Some(known) = &self.node else {
            assert!(report.is_err(), "a report needs a node");
            self.coverage.nameless += 1;
            return;
        };
        let report = report.expect("it has said who it is");
        assert_eq!((&*report.node, report.is_new_node), (known, is_new));
        self.reported &= !is_new;
        let is_reported = !stats.is_empty() && !self.settings.clusters.is_empty();
        let mut expected = stats;
        if expected.is_empty() && self.reported {
            expected.push(ClusterStats {
                load_report_interval: self.settings.interval.max(Duration::from_millis(100)),
                ..self::stats()
            });
        }
        self.reported |= is_reported;
        assert_eq!(report.cluster_stats, expected);
        self.coverage.reports += 1;
    }

    fn drain(&mut self) {
        if let Some(response) = self.server.poll_transmit() {
            self.check_response(response);
            assert_eq!(self.server.poll_transmit(), None, "one response says all");
        }
        let Some(node) = &self.node else {
            assert_eq!(self.last, None);
            return;
        };
        let last = self.last.as_ref().expect("who said its name is answered");
        let mut expected = expected_settings(&self.settings, node);
        if node.is_plimsoll() {
            expected.observed_traffic.clone_from(&self.traffic.clusters);
        } else {
            // A response to the previous node does not count for the new one.
            expected.observed_traffic.clone_from(&last.observed_traffic);
        }
        assert_eq!(
            *last, expected,
            "the last response has the current settings"
        );
    }

    fn check_response(&mut self, response: LoadStatsResponse) {
        let node = self.node.as_ref().expect("a response needs a node");
        if !node.is_plimsoll() {
            assert!(
                response.observed_traffic.is_empty(),
                "stock clients never get traffic"
            );
            let same = |last: &LoadStatsResponse| {
                let settings = LoadStatsResponse {
                    observed_traffic: Vec::new(),
                    ..last.clone()
                };
                settings == response
            };
            assert!(
                !self.last.as_ref().is_some_and(same),
                "a response without change would restart the timer"
            );
        }
        if response.observed_traffic.is_empty() {
            self.coverage.settings += 1;
        } else {
            self.coverage.traffic += 1;
        }
        self.last = Some(response);
    }
}

fn stats() -> ClusterStats {
    ClusterStats {
        cluster_name: "c0".into(),
        upstream_locality_stats: Vec::new(),
        total_dropped_requests: 0,
        load_report_interval: Duration::from_secs(1),
    }
}

/// Settings as this client supports them.
fn expected_settings(settings: &LrsSettings, node: &NodeInfo) -> LoadStatsResponse {
    let knows_all = node
        .client_features
        .iter()
        .any(|feature| feature == SUPPORTS_SEND_ALL_CLUSTERS);
    let all = settings.send_all_clusters && knows_all;
    LoadStatsResponse {
        clusters: if all {
            Vec::new()
        } else {
            settings.clusters.clone()
        },
        send_all_clusters: all,
        load_reporting_interval: settings.interval.max(Duration::from_millis(100)),
        report_endpoint_granularity: settings.report_endpoint_granularity,
        observed_traffic: Vec::new(),
    }
}

fn settings(bits: u8) -> LrsSettings {
    LrsSettings {
        interval: Duration::from_millis(u64::from(bits & 7) * 50),
        send_all_clusters: bits & 8 != 0,
        clusters: (0..bits >> 6)
            .map(|index| format!("c{index}").into())
            .collect(),
        report_endpoint_granularity: bits & 16 != 0,
    }
}

fn traffic(bits: u8) -> LrsTraffic {
    let clusters = (0..bits % 3).map(|index| ClusterTraffic {
        cluster_name: format!("c{index}").into(),
        fractions: vec![(
            Locality::zone_only("a"),
            BasisPoints::new(u64::from(bits), "test").expect("at most 255"),
        )],
        observation_time: (bits & 8 != 0).then(|| Duration::from_secs(u64::from(bits))),
    });
    LrsTraffic {
        epoch: u64::from(bits >> 4),
        clusters: clusters.collect(),
    }
}

fn node(bits: u8) -> NodeInfo {
    let features = [(2, SUPPORTS_SEND_ALL_CLUSTERS), (4, PLIMSOLL_FEATURE)]
        .into_iter()
        .filter(|(bit, _)| bits & bit != 0);
    NodeInfo {
        node: Node {
            id: format!("n{}", bits >> 3 & 1).into(),
            cluster: "fleet".into(),
            locality: Locality::default(),
        },
        user_agent_name: String::new(),
        user_agent_version: String::new(),
        client_features: features.map(|(_, name)| name.to_owned()).collect(),
    }
}
