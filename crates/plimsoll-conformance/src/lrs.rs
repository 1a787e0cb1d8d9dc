//! Suite `lrs`: load reporting of a data plane, step by step.
//!
//! All decisions are made by production code: `plimsoll_xds::lrs::Client` decides when to report,
//! `ReportedClusters` which clusters, and balancers of the core count requests. This module only
//! translates; `clusters` turns traffic into requests to hosts. Where Plimsoll deviates from Envoy
//! on purpose, the case has the values of both (docs/decisions/0019).

mod clusters;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::lrs::message::{ClusterLoadStats, LoadStatsResponse, MetricStats};
use plimsoll_xds::lrs::{Client, ClientEvent};
use plimsoll_xds::node::NodeInfo;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::clusters::{ClusterStep, Clusters, DropStep, TrafficStep};
use super::compare::{Outcome, table};
use super::{Case, CaseError, CaseResult};

/// Prefix of ORCA metric names in load reports; cases omit it.
const NAMED_METRICS: &str = "named_metrics.";

pub(super) fn run(case: &Case) -> CaseResult {
    if case.kind != "lrs" {
        return Err(CaseError::unknown_kind(case));
    }
    let inputs: Inputs = case.inputs()?;
    let mut world = World::new(Clusters::new(&inputs.steps));
    for step in inputs.steps {
        world.step(step)?;
    }
    Ok(world.outcome(&case.expected))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Cluster(ClusterStep),
    RemoveCluster {
        name: Arc<str>,
    },
    Traffic(TrafficStep),
    Drop(DropStep),
    TimeUs {
        t: u64,
    },
    Connect {
        #[serde(default = "yes")]
        ok: bool,
    },
    Close {
        ok: bool,
    },
    Retry {},
    Response {
        #[serde(default)]
        clusters: Vec<Arc<str>>,
        interval_us: u64,
        #[serde(default)]
        send_all_clusters: bool,
    },
    Timer {},
}

const fn yes() -> bool {
    true
}

struct World {
    client: Client,
    clusters: Clusters,
    /// Time of the case, used only for the length of report intervals.
    now: Instant,
    /// Time of the LRS client. Cases fire its timer without waiting.
    client_now: Instant,
    armed: Option<Duration>,
    deadline: Option<Instant>,
    last_request: Vec<ClusterLoadStats>,
}

impl World {
    fn new(clusters: Clusters) -> Self {
        let node = NodeInfo {
            node: Node {
                id: "node".into(),
                cluster: "fleet".into(),
                locality: Locality::default(),
            },
            user_agent_name: String::new(),
            user_agent_version: String::new(),
            client_features: Vec::new(),
        };
        Self {
            client: Client::new(node),
            clusters,
            now: Instant::ORIGIN,
            client_now: Instant::ORIGIN,
            armed: None,
            deadline: None,
            last_request: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), CaseError> {
        match step {
            Step::Cluster(cluster) => self.clusters.add(cluster, self.now)?,
            Step::RemoveCluster { name } => self.clusters.remove(&name)?,
            Step::Traffic(traffic) => self.clusters.send(&traffic, self.now)?,
            Step::Drop(drop) => self.clusters.drop_requests(&drop)?,
            Step::TimeUs { t } => {
                self.now = Instant::ORIGIN.saturating_add(Duration::from_micros(t));
            }
            Step::Connect { ok: true } | Step::Retry {} => {
                self.client.handle_connected(self.client_now);
            }
            Step::Connect { ok: false } => self.client.handle_disconnected(false),
            Step::Close { ok } => self.client.handle_disconnected(ok),
            Step::Response {
                clusters,
                interval_us,
                send_all_clusters,
            } => {
                let response = LoadStatsResponse {
                    clusters,
                    send_all_clusters,
                    load_reporting_interval: Duration::from_micros(interval_us),
                    ..Default::default()
                };
                self.client.handle_response(response, self.client_now);
            }
            Step::Timer {} => {
                let due = self.client.poll_timeout();
                self.client_now = due.ok_or_else(|| CaseError::inputs("no timer is armed"))?;
                self.client.handle_timeout(self.client_now);
            }
        }
        self.pump();
        Ok(())
    }

    /// Handles the events of the LRS client as the cluster manager of a data plane does.
    fn pump(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Select(clusters) => self.clusters.select(clusters, self.now),
                ClientEvent::Collect { clusters, .. } => {
                    let stats = self.clusters.drain(&clusters, self.now);
                    self.client.handle_stats(stats);
                }
                ClientEvent::ObservedTraffic(_) => {}
            }
        }
        while let Some(report) = self.client.poll_transmit() {
            self.last_request = report.cluster_stats;
        }
        let deadline = self.client.poll_timeout();
        if deadline != self.deadline {
            self.armed = deadline.map(|at| at.saturating_duration_since(self.client_now));
            self.deadline = deadline;
        }
    }

    fn outcome(&self, expected: &Map<String, Value>) -> Outcome {
        let stats = self.client.stats();
        let mut requests: Vec<Value> = self.last_request.iter().map(request).collect();
        if let Some(expected) = expected.get("last_request") {
            sort_like(expected, &mut requests, "cluster_name");
        }
        let outcome = json!({
            "requests_sent": stats.responses,
            "armed_interval_us": self.armed.map(micros),
            "stats": {
                "requests": stats.requests,
                "responses": stats.responses,
                "errors": stats.errors,
                "retries": stats.retries,
            },
            "last_request": requests,
        });
        Outcome::from(outcome).partial(&["last_request", "stats"])
    }
}

fn request(stats: &ClusterLoadStats) -> Value {
    let localities = stats.localities.iter().map(|load| {
        let counts = &load.stats;
        let metrics = load.load_metric_stats.iter();
        let metric = |(name, stats): (&Arc<str>, &MetricStats)| {
            let pair = json!([
                stats.num_requests_finished_with_metric,
                stats.total_metric_value
            ]);
            let name = name.strip_prefix(NAMED_METRICS).unwrap_or(name);
            (name.to_owned(), pair)
        };
        json!({
            "locality": counts.locality.zone(),
            "priority": counts.priority,
            "success": counts.total_successful_requests,
            "error": counts.total_error_requests,
            "in_progress": counts.total_requests_in_progress,
            "issued": counts.total_issued_requests,
            "metrics": table(metrics.map(metric)),
        })
    });
    json!({
        "cluster_name": *stats.cluster_name,
        "cluster_service_name": *stats.cluster_service_name,
        "localities": localities.collect::<Vec<_>>(),
        "total_dropped": stats.total_dropped_requests,
        "dropped_requests": stats.dropped_requests.iter().collect::<Vec<_>>(),
        "interval_us": micros(stats.load_report_interval),
    })
}

/// Sorts an unordered list into the order of `expected`, and the `localities` of its objects too.
fn sort_like(expected: &Value, found: &mut [Value], key: &str) {
    let expected = expected.as_array().map_or(&[][..], Vec::as_slice);
    let index = |found: &Value| expected.iter().position(|each| each[key] == found[key]);
    found.sort_by_key(|found| index(found).unwrap_or(expected.len()));
    for (expected, found) in expected.iter().zip(found) {
        if let Some(localities) = found["localities"].as_array_mut() {
            sort_like(&expected["localities"], localities, "locality");
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
