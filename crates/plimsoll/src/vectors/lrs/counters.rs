//! [`Counters`]: what a data plane counts for its load reports, kept by the rules of Envoy.
//!
//! A cluster is tracked from the start of the first period that wants it and finds it; its counts
//! before are dropped, its custom metrics are not. It keeps its start through changes of settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::load_report::UpstreamLocalityStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::lrs::Wanted;
use plimsoll_xds::lrs::message::{ClusterStatsMessage, MetricStats, UpstreamLocalityStatsMessage};
use serde::Deserialize;

use super::CaseError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterStep {
    name: Arc<str>,
    #[serde(default)]
    eds_service_name: Arc<str>,
    #[serde(default)]
    hosts: Vec<HostStep>,
    drop_category: Option<Arc<str>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostStep {
    locality: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficStep {
    cluster: String,
    host: usize,
    #[serde(default)]
    issued: u64,
    #[serde(default)]
    success: u64,
    #[serde(default)]
    error: u64,
    active: Option<u64>,
    #[serde(default)]
    metrics: BTreeMap<Arc<str>, f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropStep {
    cluster: String,
    #[serde(default)]
    dropped: u64,
    #[serde(default)]
    drop_overload: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    clusters: BTreeMap<Arc<str>, Cluster>,
    /// Since when.
    tracked: BTreeMap<Arc<str>, Instant>,
}

#[derive(Debug)]
struct Cluster {
    service_name: Arc<str>,
    hosts: Vec<UpstreamLocalityStatsMessage>,
    drop_category: Option<Arc<str>>,
    dropped: u64,
    drop_overload: u64,
}

impl Counters {
    pub(super) fn add_cluster(&mut self, step: ClusterStep) {
        let host = |host: HostStep| UpstreamLocalityStatsMessage {
            stats: UpstreamLocalityStats {
                locality: Locality::zone_only(&host.locality),
                ..Default::default()
            },
            ..Default::default()
        };
        let cluster = Cluster {
            service_name: step.eds_service_name,
            hosts: step.hosts.into_iter().map(host).collect(),
            drop_category: step.drop_category,
            dropped: 0,
            drop_overload: 0,
        };
        self.clusters.insert(step.name, cluster);
    }

    pub(super) fn count(&mut self, step: &TrafficStep) -> Result<(), CaseError> {
        let cluster = self.cluster(&step.cluster)?;
        let host = cluster.hosts.get_mut(step.host);
        let host = host.ok_or_else(|| CaseError::inputs("no such host"))?;
        host.stats.total_issued_requests += step.issued;
        host.stats.total_successful_requests += step.success;
        host.stats.total_error_requests += step.error;
        if let Some(active) = step.active {
            host.stats.total_requests_in_progress = active;
        }
        for (name, value) in &step.metrics {
            let metric = host.load_metric_stats.entry(Arc::clone(name)).or_default();
            metric.num_requests_finished_with_metric += 1;
            metric.total_metric_value += value;
        }
        Ok(())
    }

    pub(super) fn drop_requests(&mut self, step: &DropStep) -> Result<(), CaseError> {
        let cluster = self.cluster(&step.cluster)?;
        cluster.dropped += step.dropped;
        cluster.drop_overload += step.drop_overload;
        Ok(())
    }

    /// From now on these are tracked, as far as they exist.
    pub(super) fn start_period(&mut self, wanted: &Wanted, now: Instant) {
        let names: Vec<Arc<str>> = match wanted {
            Wanted::All => self.clusters.keys().cloned().collect(),
            Wanted::Named(names) => names.clone(),
        };
        self.tracked.retain(|name, _| names.contains(name));
        for name in names {
            if self.tracked.contains_key(&name) {
                continue;
            }
            if let Some(cluster) = self.clusters.get_mut(&name) {
                cluster.clear();
            }
            self.tracked.insert(name, now);
        }
    }

    /// What was counted since the last time, of every tracked cluster that exists.
    pub(super) fn drain(&mut self, now: Instant) -> Vec<ClusterStatsMessage> {
        let mut all = Vec::new();
        for (name, since) in &mut self.tracked {
            let Some(cluster) = self.clusters.get_mut(name) else {
                continue;
            };
            let mut stats = cluster.drain();
            stats.cluster_name = Arc::clone(name);
            stats.load_report_interval = now.saturating_duration_since(*since);
            *since = now;
            all.push(stats);
        }
        all
    }

    fn cluster(&mut self, name: &str) -> Result<&mut Cluster, CaseError> {
        let cluster = self.clusters.get_mut(name);
        cluster.ok_or_else(|| CaseError::inputs(format!("no cluster {name:?}")))
    }
}

impl Cluster {
    /// Counts go, custom metrics and what is in flight stay.
    fn clear(&mut self) {
        self.dropped = 0;
        self.drop_overload = 0;
        for host in &mut self.hosts {
            clear(&mut host.stats);
        }
    }

    fn drain(&mut self) -> ClusterStatsMessage {
        let mut localities: Vec<UpstreamLocalityStatsMessage> = Vec::new();
        for host in &mut self.hosts {
            let locality = &host.stats.locality;
            let mut known = localities.iter_mut();
            match known.find(|known| known.stats.locality == *locality) {
                Some(known) => add(known, host),
                None => localities.push(host.clone()),
            }
            host.load_metric_stats.clear();
        }
        localities.retain(has_something);
        let overload = self
            .drop_category
            .clone()
            .filter(|_| self.drop_overload > 0);
        let stats = ClusterStatsMessage {
            cluster_service_name: Arc::clone(&self.service_name),
            upstream_locality_stats: localities,
            total_dropped_requests: self.dropped,
            dropped_requests: overload
                .map(|category| (category, self.drop_overload))
                .into_iter()
                .collect(),
            ..Default::default()
        };
        self.clear();
        stats
    }
}

const fn clear(stats: &mut UpstreamLocalityStats) {
    stats.total_issued_requests = 0;
    stats.total_successful_requests = 0;
    stats.total_error_requests = 0;
}

fn add(sum: &mut UpstreamLocalityStatsMessage, host: &UpstreamLocalityStatsMessage) {
    let (to, from) = (&mut sum.stats, &host.stats);
    to.total_issued_requests += from.total_issued_requests;
    to.total_successful_requests += from.total_successful_requests;
    to.total_error_requests += from.total_error_requests;
    to.total_requests_in_progress += from.total_requests_in_progress;
    for (name, metric) in &host.load_metric_stats {
        let to = sum.load_metric_stats.entry(Arc::clone(name)).or_default();
        to.num_requests_finished_with_metric += metric.num_requests_finished_with_metric;
        to.total_metric_value += metric.total_metric_value;
    }
}

fn has_something(message: &UpstreamLocalityStatsMessage) -> bool {
    let stats = &message.stats;
    let counts = [
        stats.total_issued_requests,
        stats.total_successful_requests,
        stats.total_error_requests,
        stats.total_requests_in_progress,
    ];
    let metric = |metric: &MetricStats| {
        metric.num_requests_finished_with_metric > 0 || metric.total_metric_value != 0.0
    };
    counts.iter().any(|count| *count > 0) || message.load_metric_stats.values().any(metric)
}
