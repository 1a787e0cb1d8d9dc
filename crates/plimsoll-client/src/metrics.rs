//! Metrics of all clusters, collected on demand, with Envoy's names and the prefix
//! `plimsoll_cluster_`.
//!
//! Requests are counted in `stats` and in the core; nothing here runs per request. [`Stats`] and
//! `Families` need no metrics library; `prometheus`, `facade` and `meter` are bridges to libraries.

use std::sync::Arc;

use plimsoll_core::stats::{
    BalancerStats, Families, LoadAwareStats, Metric, MetricKind, OutlierStats, PickerStats, Sample,
    SharedCounter, Value,
};
use plimsoll_xds::orca::oob::OobStats;

use crate::cluster::Cluster;
use crate::cluster::manager::Clusters;
use crate::metrics::stats::{BOUNDS, ClusterGauges, ClusterStats};

#[cfg(feature = "metrics")]
pub(crate) mod facade;
#[cfg(feature = "opentelemetry")]
pub(crate) mod meter;
#[cfg(feature = "prometheus")]
pub(crate) mod prometheus;
mod snapshot;
pub(crate) mod stats;

pub use snapshot::{Stat, Stats};

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

static OTHERS: [Metric; 2] = [
    Metric::new(
        "upstream_rq_completed",
        MetricKind::Counter,
        &["cluster", "response_code_class"],
        "Responses, by class: `1xx` to `5xx`",
    ),
    Metric::new(
        "upstream_rq_time_milliseconds",
        MetricKind::Histogram,
        &["cluster"],
        "Time from sending an attempt to the end of its response",
    ),
];

/// Lists every metric of a cluster, for documentation. Metrics of the same name are exported as
/// their sum.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    let tables = [
        ClusterStats::METRICS,
        &OTHERS,
        ClusterGauges::METRICS,
        PickerStats::METRICS,
        BalancerStats::METRICS,
        LoadAwareStats::METRICS,
        OutlierStats::METRICS,
        OobStats::METRICS,
    ];
    tables.into_iter().flatten()
}

/// Returns the Prometheus name of one of [`metrics()`]; counters end in `_total`.
pub fn metric_name(metric: &Metric) -> String {
    let name = metric.exposed_name("plimsoll_cluster_");
    if metric.kind != MetricKind::Counter || name.ends_with("_total") {
        return name;
    }
    format!("{name}_total")
}

/// Reads the counters and gauges of all clusters.
pub(crate) fn stats(clusters: &Clusters) -> Stats {
    let of = |cluster: &Arc<Cluster>| {
        let name = Arc::clone(&cluster.name);
        let samples = samples(cluster).into_iter();
        samples.map(move |(metric, value)| Stat::new(&name, metric, value))
    };
    clusters.values().flat_map(of).collect()
}

pub(crate) fn families(clusters: &Clusters) -> Families {
    let mut families = Families::default();
    for cluster in clusters.values() {
        for (metric, value) in samples(cluster) {
            families.add(metric_name(metric), metric, &[&cluster.name], value);
        }
        let stats = &cluster.limits.stats;
        let [completed, time] = &OTHERS;
        let counts = stats.upstream_rq_completed.iter().map(SharedCounter::get);
        for (class, count) in CLASSES.iter().zip(counts) {
            let labels = [&*cluster.name, class];
            families.add(metric_name(completed), completed, &labels, count);
        }
        let (buckets, milliseconds) = stats.upstream_rq_time.read();
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let histogram = Value::Histogram(bounds.zip(buckets).collect(), milliseconds);
        families.add(metric_name(time), time, &[&cluster.name], histogram);
    }
    families
}

/// Counters and gauges of one cluster, without histograms.
fn samples(cluster: &Cluster) -> Vec<Sample> {
    let stats = &cluster.limits.stats;
    let mut samples: Vec<Sample> = stats.samples().collect();
    samples.extend(cluster.picker_samples());
    samples.extend(stats.balancer.load().iter());
    samples.extend(stats.outliers.load().0.iter());
    samples.extend(stats.oob.load().samples());
    samples.extend(gauges(cluster).samples());
    samples
}

fn gauges(cluster: &Cluster) -> ClusterGauges {
    let limits = &cluster.limits;
    let mut snapshots = cluster.snapshots.clone();
    let routing = snapshots.latest().routing();
    let (subsets, duplicates) = routing.subset_gauges().unwrap_or_default();
    ClusterGauges {
        upstream_rq_active: cluster.load.active(),
        upstream_rq_pending_active: limits.pending(),
        upstream_rq_retry_active: cluster.retries.in_flight(),
        upstream_cx_active: limits.connections(),
        membership_total: routing.hosts().count() as u64,
        ejections_active: limits.stats.outliers.load().1 as u64,
        lb_subsets_active: subsets,
        lb_subsets_single_host_per_subset_duplicate: duplicates,
    }
}

/// Converts a value for metrics libraries that take integers.
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of times are neither negative nor huge, and `as` saturates"
)]
const fn whole(value: &Value) -> u64 {
    match value {
        Value::Integer(value) => *value,
        Value::Float(value) | Value::Histogram(_, value) => *value as u64,
    }
}
