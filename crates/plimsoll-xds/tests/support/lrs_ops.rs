//! Interpreter of load reporting conversations, as the server sees them: bytes in.
//!
//! Each pair of bytes is a message of the client, new settings or new traffic. After each: nobody
//! is answered before it said who it is; an Envoy hears only what it has not heard, because every
//! response restarts its timer; only plimsoll data planes hear of traffic; what was said last is
//! what is wanted now; and a cluster that a node reported once is in all of its later reports. Used
//! by the tests of this crate and by the fuzz target `lrs_ops`.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::lrs::message::{ClusterTraffic, LoadStatsRequest, LoadStatsResponse};
use plimsoll_xds::lrs::{LrsSettings, LrsTraffic, SUPPORTS_SEND_ALL_CLUSTERS, ServerStream};
use plimsoll_xds::node::{NodeInfo, PLIMSOLL_FEATURE};

/// What happened, so that tests can see that all of it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
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
    /// The node has reported its cluster.
    reported: bool,
    last: Option<LoadStatsResponse>,
    seen: Seen,
}

/// Runs the conversation that `bytes` describe, and panics when something does not hold.
pub(crate) fn run(bytes: &[u8]) -> Seen {
    let settings = Arc::new(settings(0));
    let mut world = World {
        server: ServerStream::new(Arc::clone(&settings)),
        settings,
        traffic: Arc::default(),
        node: None,
        reported: false,
        last: None,
        seen: Seen::default(),
    };
    for pair in bytes.chunks_exact(2) {
        world.step(pair[0], pair[1]);
        world.drain();
    }
    world.seen
}

impl World {
    fn step(&mut self, op: u8, argument: u8) {
        match op % 4 {
            0 | 1 => self.report(argument),
            2 => {
                self.settings = Arc::new(settings(argument));
                self.server.set_settings(Arc::clone(&self.settings));
            }
            _ => {
                self.traffic = Arc::new(traffic(argument));
                self.server.set_traffic(Arc::clone(&self.traffic));
            }
        }
    }

    /// A message; whose, is in the lower bits.
    fn report(&mut self, argument: u8) {
        let node = (argument & 1 == 1).then(|| node(argument));
        let stats = vec![stats(); usize::from(argument >> 6)];
        let is_new =
            node.is_some() && self.node.as_ref().map(|n| &n.node) != node.as_ref().map(|n| &n.node);
        let request = LoadStatsRequest {
            node: node.clone(),
            cluster_stats: stats.clone(),
        };
        let report = self.server.handle_request(request);
        self.node = node.or_else(|| self.node.take());
        let Some(known) = &self.node else {
            assert!(report.is_err(), "whose report is it");
            self.seen.nameless += 1;
            return;
        };
        let report = report.expect("it has said who it is");
        assert_eq!((&*report.node, report.is_new_node), (known, is_new));
        self.reported &= !is_new;
        let mut expected = stats;
        if expected.is_empty() && self.reported {
            expected.push(ClusterStats {
                load_report_interval: self.settings.interval.max(Duration::from_millis(100)),
                ..self::stats()
            });
        }
        self.reported |= !expected.is_empty();
        assert_eq!(report.cluster_stats, expected);
        self.seen.reports += 1;
    }

    fn drain(&mut self) {
        if let Some(response) = self.server.poll_transmit() {
            self.hear(response);
            assert_eq!(self.server.poll_transmit(), None, "one response says all");
        }
        let Some(node) = &self.node else {
            assert_eq!(self.last, None);
            return;
        };
        let last = self.last.as_ref().expect("who said its name is answered");
        let mut wanted = wanted(&self.settings, node);
        if node.is_plimsoll() {
            wanted.observed_traffic.clone_from(&self.traffic.clusters);
        } else {
            // What a node heard before it turned out to be another one is of no use to it.
            wanted.observed_traffic.clone_from(&last.observed_traffic);
        }
        assert_eq!(*last, wanted, "what was said last is what is wanted");
    }

    fn hear(&mut self, response: LoadStatsResponse) {
        let node = self.node.as_ref().expect("nobody is there to hear it");
        if !node.is_plimsoll() {
            assert!(
                response.observed_traffic.is_empty(),
                "stock receivers never hear of it"
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
                "no news restart the timer"
            );
        }
        match response.observed_traffic.is_empty() {
            true => self.seen.settings += 1,
            false => self.seen.traffic += 1,
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

/// The settings in the words that a node understands.
fn wanted(settings: &LrsSettings, node: &NodeInfo) -> LoadStatsResponse {
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
    let features = [(2, SUPPORTS_SEND_ALL_CLUSTERS), (4, PLIMSOLL_FEATURE)];
    let features = features.into_iter().filter(|(bit, _)| bits & bit != 0);
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
