//! [`CapacityLearner`]: load reports of all nodes in, windows of hosts for [`CapacityEstimator`]
//! out.
//!
//! Nodes report at moments of their own, so a window has the rates of the newest report of each
//! node, not the reports that happen to arrive in it. Not every report names hosts: those of gRPC
//! clients, and those that come from another replica of the control plane, only have the requests
//! to each locality. These are added to the hosts of the locality in proportion to what the other
//! reports say of them, since all nodes divide requests by the same weights.
//!
//! Reports that stop are no requests that stop: hosts would seem weak. Nothing is learned while
//! nodes that are still there are silent ([`Frozen::SilentNodes`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{CapacityEstimator, Frozen, HostSample, LearnedCapacity};
use crate::model::assignment::ClusterLoadAssignment;
use crate::model::health::{HealthClass, HealthFlags};
use crate::model::load_report::{ClusterHostStats, ClusterStats, MetricStats};
use crate::model::locality::Locality;
use crate::time::Instant;

/// Names in load reports, in the order in which they are tried: a backend that does not know its
/// `application_utilization` reports 0.
pub const UTILIZATION: [&str; 2] = ["application_utilization", "cpu_utilization"];

/// Windows are not shorter: a host needs requests in each.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// A node is silent once its newest report is older than two and a half intervals and this.
const GRACE: Duration = Duration::from_secs(1);
/// Requests of silent nodes that are too many, as a part of all: one in this many.
const SILENT_PARTS: f64 = 20.0;
/// A node that is silent for so long, and did not leave, is not waited for any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Reports with hosts must have one in this many of the requests to a locality, so that the others
/// can be divided as they are.
const SEEN_PARTS: f64 = 20.0;

/// Fleet and id of a node.
pub type NodeName = (Arc<str>, Arc<str>);

/// Learns the capacity of the hosts of one service from load reports.
#[derive(Clone, Debug)]
pub struct CapacityLearner {
    /// Metric that is the utilization; `None` for those of [`UTILIZATION`].
    metric: Option<Arc<str>>,
    window: Duration,
    since: Instant,
    hosts: BTreeMap<SocketAddr, Locality>,
    nodes: BTreeMap<NodeName, NodeLoads>,
    estimator: CapacityEstimator,
}

/// The newest report of a node.
#[derive(Clone, Debug)]
struct NodeLoads {
    at: Instant,
    interval: Duration,
    zones: BTreeMap<Locality, Load>,
    hosts: Vec<(SocketAddr, Load)>,
}

/// Requests to a host or to the hosts of a locality, per second, and what answers said of its
/// utilization.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    succeeded: f64,
    failed: f64,
    utilization: MetricStats,
}

impl CapacityLearner {
    /// Creates a learner for nodes that report every `interval`. `metric` is the utilization of a
    /// host, by default one of [`UTILIZATION`].
    pub fn new(metric: Option<Arc<str>>, interval: Duration, now: Instant) -> Self {
        Self {
            metric,
            window: interval.max(SHORTEST_WINDOW),
            since: now,
            hosts: BTreeMap::new(),
            nodes: BTreeMap::new(),
            estimator: CapacityEstimator::default(),
        }
    }

    /// Sets metric and reporting interval, if they are others than before.
    pub fn handle_settings(&mut self, metric: Option<Arc<str>>, interval: Duration) {
        if metric != self.metric {
            // Another utilization is another capacity.
            self.metric = metric;
            self.nodes.clear();
            self.estimator = CapacityEstimator::default();
            self.estimator
                .handle_hosts(&self.hosts.keys().copied().collect());
        }
        self.window = interval.max(SHORTEST_WINDOW);
    }

    /// Sets the hosts of the service. One that is new, or that was not healthy, starts over.
    pub fn handle_hosts(&mut self, assignment: &ClusterLoadAssignment) {
        self.hosts.clear();
        for entry in assignment.endpoints() {
            let hosts = entry.lb_endpoints.iter();
            let usable = hosts.filter(|host| {
                HealthFlags::from_eds(host.health_status).class() == HealthClass::Healthy
            });
            let hosts = usable.map(|host| (host.address, entry.locality.clone()));
            self.hosts.extend(hosts);
        }
        self.estimator
            .handle_hosts(&self.hosts.keys().copied().collect());
    }

    /// Handles the requests by locality of a node's report. What it says of hosts follows.
    pub fn handle_report(&mut self, node: NodeName, stats: &ClusterStats, now: Instant) {
        let seconds = stats.load_report_interval.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let mut zones: BTreeMap<Locality, Load> = BTreeMap::new();
        for one in &stats.upstream_locality_stats {
            let (succeeded, failed) = (one.total_successful_requests, one.total_error_requests);
            let zone = zones.entry(one.locality.clone()).or_default();
            zone.add(Load::new(succeeded, failed, seconds));
        }
        let loads = NodeLoads {
            at: now,
            interval: stats.load_report_interval,
            zones,
            hosts: Vec::new(),
        };
        self.nodes.insert(node, loads);
    }

    /// Handles what the report of a node says of hosts, after [`Self::handle_report`].
    pub fn handle_host_stats(&mut self, node: &NodeName, stats: &ClusterHostStats) {
        let seconds = stats.load_report_interval.as_secs_f64();
        let Some(loads) = self.nodes.get_mut(node).filter(|_| seconds > 0.0) else {
            return;
        };
        let metric = self.metric.as_deref();
        for (locality, metrics) in &stats.localities {
            if let Some(zone) = loads.zones.get_mut(locality) {
                zone.utilization.add(utilization(metric, metrics));
            }
        }
        let told = stats.endpoints.iter();
        loads.hosts = told
            .filter(|host| self.hosts.contains_key(&host.address))
            .map(|host| {
                let (succeeded, failed) =
                    (host.total_successful_requests, host.total_error_requests);
                let told = utilization(metric, &host.load_metric_stats);
                // More answers with the metric than answers are a lie.
                let is_sound =
                    told.num_requests_finished_with_metric <= succeeded.saturating_add(failed);
                let load = Load {
                    utilization: if is_sound {
                        told
                    } else {
                        MetricStats::default()
                    },
                    ..Load::new(succeeded, failed, seconds)
                };
                (host.address, load)
            })
            .collect();
    }

    /// Forgets a node that left its fleet.
    pub fn handle_left(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }

    /// Ends the window if it is time.
    pub fn handle_timeout(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < self.window {
            return;
        }
        self.since = now;
        let age = |loads: &NodeLoads| now.saturating_duration_since(loads.at);
        self.nodes.retain(|_, loads| age(loads) < FORGOTTEN_AFTER);
        let rate = |loads: &NodeLoads| loads.zones.values().map(Load::rate).sum::<f64>();
        let is_silent = |loads: &&NodeLoads| age(loads) > loads.interval * 5 / 2 + GRACE;
        let all: f64 = self.nodes.values().map(rate).sum();
        let silent: f64 = self.nodes.values().filter(is_silent).map(rate).sum();
        if silent * SILENT_PARTS > all {
            self.estimator.freeze(Frozen::SilentNodes);
            return;
        }
        let loads = self.nodes.values().filter(|loads| !is_silent(loads));
        let samples = samples(&self.hosts, loads, elapsed);
        // A window that teaches nothing changes nothing.
        let _ = self.estimator.handle_window(elapsed, &samples);
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Instant {
        self.since.saturating_add(self.window)
    }

    /// Returns weights to deliver, if they differ enough from those that are.
    pub fn poll_learned(&mut self, now: Instant) -> Option<LearnedCapacity> {
        self.estimator.poll_learned(now)
    }

    /// Returns what is known of each host.
    pub const fn estimator(&self) -> &CapacityEstimator {
        &self.estimator
    }
}

/// Returns what each host answered in a window, by all nodes.
fn samples<'a>(
    hosts: &BTreeMap<SocketAddr, Locality>,
    loads: impl Iterator<Item = &'a NodeLoads>,
    elapsed: Duration,
) -> BTreeMap<SocketAddr, HostSample> {
    let mut zones: BTreeMap<&Locality, Load> = BTreeMap::new();
    let mut told: BTreeMap<SocketAddr, Load> = BTreeMap::new();
    for loads in loads {
        for (locality, load) in &loads.zones {
            zones.entry(locality).or_default().add(*load);
        }
        for (host, load) in &loads.hosts {
            told.entry(*host).or_default().add(*load);
        }
    }
    let mut seen: BTreeMap<&Locality, (f64, f64)> = BTreeMap::new();
    for (host, locality) in hosts {
        let (rate, count) = seen.entry(locality).or_default();
        *rate += told.get(host).map_or(0.0, Load::rate);
        *count += 1.0;
    }
    let sample = |(host, locality): (&SocketAddr, &Locality)| {
        let zone = zones.get(locality).copied().unwrap_or_default();
        let (rate, count) = seen.get(locality).copied()?;
        let load = if rate * SEEN_PARTS >= zone.rate() && rate > 0.0 {
            // More than the sum of the locality is a report that contradicts itself.
            let parts = (zone.rate() / rate).max(1.0);
            told.get(host)?.times(parts)
        } else {
            // Nobody tells hosts apart: they are alike.
            zone.times(1.0 / count)
        };
        Some((*host, load.sample(elapsed)))
    };
    hosts.iter().filter_map(sample).collect()
}

impl Load {
    fn new(succeeded: u64, failed: u64, seconds: f64) -> Self {
        Self {
            succeeded: per_second(succeeded, seconds),
            failed: per_second(failed, seconds),
            utilization: MetricStats::default(),
        }
    }

    const fn rate(&self) -> f64 {
        self.succeeded + self.failed
    }

    fn add(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.utilization.add(other.utilization);
    }

    fn times(self, factor: f64) -> Self {
        Self {
            succeeded: self.succeeded * factor,
            failed: self.failed * factor,
            ..self
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of requests; a float saturates when it is cast to an integer"
    )]
    fn sample(self, elapsed: Duration) -> HostSample {
        let count = |rate: f64| (rate * elapsed.as_secs_f64()).round() as u64;
        let reports = self.utilization.num_requests_finished_with_metric;
        HostSample {
            succeeded: count(self.succeeded),
            failed: count(self.failed),
            // Without reports 0, which teaches nothing.
            utilization: self.utilization.total_metric_value / reports.max(1) as f64,
        }
    }
}

/// Returns the utilization in a report: of `metric`, or the first of [`UTILIZATION`] above 0.
fn utilization(metric: Option<&str>, metrics: &BTreeMap<Arc<str>, MetricStats>) -> MetricStats {
    let of = |name: &str| {
        let stats = metrics.get(name).copied();
        stats.filter(|stats| stats.total_metric_value > 0.0 && stats.total_metric_value.is_finite())
    };
    let found = match metric {
        Some(name) => of(name),
        None => UTILIZATION.into_iter().find_map(of),
    };
    found.unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests")]
fn per_second(requests: u64, seconds: f64) -> f64 {
    requests as f64 / seconds
}

#[cfg(test)]
mod tests;
