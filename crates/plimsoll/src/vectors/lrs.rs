//! The suite `lrs`: load reporting as a data plane does it, step by step.
//!
//! Everything that decides is production code: `plimsoll_xds::lrs::Client` when to report,
//! `ReportedClusters` which clusters and since when, balancers of the core what was counted. Here
//! cases are only translated: `clusters` turns traffic into requests on hosts. Where production
//! differs from Envoy on purpose the case carries both values (docs/decisions/0019).

mod clusters;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::lrs::message::{ClusterStatsMessage, LoadStatsResponse, MetricStats};
use plimsoll_xds::lrs::{Client, ClientEvent};
use plimsoll_xds::node::NodeInfo;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::clusters::{ClusterStep, Clusters, DropStep, TrafficStep};
use super::compare::Outcome;
use super::{Case, CaseError};

/// What a metric of a backend is called in a load report, before the name that a case has for it.
const NAMED_METRICS: &str = "named_metrics.";

pub(super) fn run(case: &Case) -> Result<Outcome, CaseError> {
    if case.kind != "lrs" {
        return Err(CaseError::unknown_kind(case, &["lrs"]));
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
    /// What the cases call time: it is only read for the length of intervals.
    now: Instant,
    /// The time of the client. Cases fire its timer without waiting for it.
    client_now: Instant,
    armed: Option<Duration>,
    deadline: Option<Instant>,
    last_request: Vec<ClusterStatsMessage>,
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

    /// Does what the client asks for, as the cluster manager of a data plane does.
    fn pump(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Select(wanted) => self.clusters.select(wanted, self.now),
                ClientEvent::Collect { wanted, .. } => {
                    let stats = self.clusters.drain(&wanted, self.now);
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

    /// Cases name only what they are about, so this has what they name.
    fn outcome(&self, expected: &Map<String, Value>) -> Outcome {
        let stats = self.client.stats();
        let counters = json!({
            "requests": stats.requests,
            "responses": stats.responses,
            "errors": stats.errors,
            "retries": stats.retries,
        });
        let requests = self.last_request.iter().map(request).collect();
        let wanted = |key: &str| expected.get(key).cloned().unwrap_or_default();
        Outcome::default()
            .exact("requests_sent", json!(stats.responses))
            .exact("armed_interval_us", json!(self.armed.map(micros)))
            .exact("stats", named(&wanted("stats"), &counters))
            .exact(
                "last_request",
                listed(&wanted("last_request"), requests, "cluster_name"),
            )
    }
}

fn request(stats: &ClusterStatsMessage) -> Value {
    let localities = stats.upstream_locality_stats.iter().map(|message| {
        let counts = &message.stats;
        let metrics = message.load_metric_stats.iter();
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
            "metrics": metrics.map(metric).collect::<Map<_, _>>(),
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

/// What `actual` says about the keys of `expected`. Drops and metrics that are not expected must
/// not be there.
fn named(expected: &Value, actual: &Value) -> Value {
    let (Value::Object(wanted), Value::Object(found)) = (expected, actual) else {
        return actual.clone();
    };
    let kept = found.iter().filter(|(key, value)| {
        let empty = value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        let must_not = ["dropped_requests", "metrics", "localities"].contains(&key.as_str());
        wanted.contains_key(*key) || (must_not && !empty)
    });
    let inner = |(key, value): (&String, &Value)| {
        let value = match (wanted.get(key), value) {
            (Some(wanted), Value::Array(found)) if key == "localities" => {
                listed(wanted, found.clone(), "locality")
            }
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    Value::Object(kept.map(inner).collect())
}

/// The same for a list of objects without order, in the order of `expected`.
fn listed(expected: &Value, mut actual: Vec<Value>, key: &str) -> Value {
    let Value::Array(wanted) = expected else {
        return actual.into();
    };
    let mut out = Vec::new();
    for wanted in wanted {
        if let Some(index) = actual.iter().position(|found| found[key] == wanted[key]) {
            out.push(named(wanted, &actual.remove(index)));
        }
    }
    out.extend(actual);
    out.into()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
