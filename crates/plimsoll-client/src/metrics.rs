//! [`ClusterMetrics`]: counters and gauges of all clusters, collected when somebody asks.
//!
//! Names are Envoy's with the prefix `plimsoll_cluster_`; docs/reference/metrics.md is made of
//! [`METRICS`].
//! What happens is counted in `stats` and in the core; nothing here is on the way of a request.
//! `facade` and `meter` are the bridges to other metrics libraries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use plimsoll_core::stats::{BalancerStats, LoadAwareStats, OutlierStats, PickerStats};
use plimsoll_xds::orca::oob::OobStats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::cluster::Cluster;
use crate::cluster_manager::Clusters;
use crate::stats::BOUNDS;

#[cfg(feature = "metrics")]
pub(crate) mod facade;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod families;
#[cfg(feature = "opentelemetry")]
pub(crate) mod meter;

const PREFIX: &str = "plimsoll_cluster_";

/// A metric, for documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Without prefix and without the ending that OpenMetrics gives counters.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const fn metric(name: &'static str, kind: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        kind,
        labels: &["cluster"],
        help,
    }
}

/// The client's own metrics. Those of the core and of out-of-band reporting come on top.
#[rustfmt::skip]
pub const METRICS: [Metric; 30] = [
    metric("upstream_rq_total", "counter",
        "Requests put onto a connection, every try counted"),
    Metric {
        labels: &["cluster", "response_code_class"],
        ..metric("upstream_rq_completed", "counter",
            "Responses, by class: `1xx` to `5xx`")
    },
    metric("upstream_rq_timeout", "counter",
        "Calls that took longer than `timeout`"),
    metric("upstream_rq_per_try_timeout", "counter",
        "Tries that took longer than `per_try_timeout`"),
    metric("upstream_rq_retry", "counter",
        "Tries after the first one"),
    metric("upstream_rq_retry_success", "counter",
        "Calls that had a response after a retry"),
    metric("upstream_rq_retry_overflow", "counter",
        "Retries that `max_retries` or `retry_budget` forbade"),
    metric("upstream_rq_retry_limit_exceeded", "counter",
        "Retries that `num_retries` forbade"),
    metric("upstream_rq_pending_total", "counter",
        "Requests that had to wait for a connection"),
    metric("upstream_rq_pending_overflow", "counter",
        "Requests refused by `max_requests` or `max_pending_requests`"),
    metric("upstream_cx_total", "counter",
        "Connections dialled"),
    metric("upstream_cx_connect_fail", "counter",
        "Connections that failed, TLS included"),
    metric("upstream_cx_connect_timeout", "counter",
        "Of those, the ones that took longer than `connect_timeout`"),
    metric("upstream_cx_overflow", "counter",
        "Connections that were wanted beyond `max_connections`"),
    metric("health_check_attempt", "counter",
        "Active health checks"),
    metric("health_check_success", "counter",
        "Checks with the expected answer"),
    metric("health_check_failure", "counter",
        "Checks with another answer or none"),
    metric("assignment_timeout_received", "counter",
        "Assignments with `endpoint_stale_after`"),
    metric("assignment_stale", "counter",
        "Assignments that were not sent again within `endpoint_stale_after`"),
    metric("orca_report_errors", "counter",
        "Load reports in response headers or trailers that cannot be read"),
    metric("upstream_rq_time_milliseconds", "histogram",
        "From sending a try to the end of its response"),
    metric("upstream_rq_active", "gauge",
        "Requests in flight, those that wait for a connection too"),
    metric("upstream_rq_pending_active", "gauge",
        "Requests that wait for a connection"),
    metric("upstream_rq_retry_active", "gauge",
        "Retries that count against the budget"),
    metric("upstream_cx_active", "gauge",
        "Connections open or being dialled"),
    metric("membership_total", "gauge",
        "Hosts"),
    metric("outlier_detection_ejections_active", "gauge",
        "Hosts that outlier detection took out"),
    metric("lb_orca_oob_active_sessions", "gauge",
        "Hosts that are asked for out-of-band reports"),
    metric("lb_subsets_active", "gauge",
        "Subsets that have hosts"),
    metric("lb_subsets_single_host_per_subset_duplicate", "gauge",
        "Hosts left out because another one is the only host of their subset"),
];

/// What a metric says, whichever bridge asks for it, by its full name.
fn help(name: &str) -> &'static str {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    let own = METRICS.iter();
    let own = own.map(|metric| ("", metric.name, metric.help));
    let mut all = own.chain(counters_of_others());
    let found = all.find(|(prefix, metric, _)| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| base(rest) == base(metric))
    });
    found.map_or("", |(_, _, help)| help)
}

/// A name without the endings that formats give and take.
fn base(name: &str) -> &str {
    let endings = ["_total", "_bucket", "_sum", "_count"];
    let found = endings.iter().find_map(|ending| name.strip_suffix(ending));
    found.unwrap_or(name)
}

/// Counters of the core and of out-of-band reporting: prefix, name and what they count.
pub fn counters_of_others() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let of = |prefix: &'static str, list: &'static [(&'static str, &'static str)]| {
        list.iter().map(move |&(name, help)| (prefix, name, help))
    };
    let oob = OobStats::DESCRIPTIONS.iter();
    let oob = oob.filter(|(name, _)| *name != "active_sessions");
    of("", PickerStats::DESCRIPTIONS)
        .chain(of("", BalancerStats::DESCRIPTIONS))
        .chain(of("load_aware_locality_", LoadAwareStats::DESCRIPTIONS))
        .chain(of("outlier_detection_", OutlierStats::DESCRIPTIONS))
        .chain(oob.map(|&(name, help)| ("lb_orca_oob_", name, help)))
}

/// Statistics that are gauges, in the order of [`gauges_of`].
const GAUGES: [&str; 9] = [
    "upstream_rq_active",
    "upstream_rq_pending_active",
    "upstream_rq_retry_active",
    "upstream_cx_active",
    "membership_total",
    "outlier_detection.ejections_active",
    "lb_orca_oob.active_sessions",
    "lb_subsets_active",
    "lb_subsets_single_host_per_subset_duplicate",
];

/// A statistic's name in Prometheus: its dots become underscores, as Envoy has it.
fn metric_name(stat: &str) -> String {
    stat.replace('.', "_")
}

/// Collects the metrics of all clusters.
#[derive(Debug)]
struct ClusterMetrics(Arc<ArcSwap<Clusters>>);

/// Values of one metric by cluster.
type Family = Vec<(Arc<str>, u64)>;

/// Adds the metrics of `clusters` to `registry`.
pub(crate) fn register(clusters: &Arc<ArcSwap<Clusters>>, registry: &mut Registry) {
    let collector = ClusterMetrics(Arc::clone(clusters));
    registry.register_collector(Box::new(collector));
}

/// Counters and gauges of all clusters: cluster, name as in Envoy's `/stats`, value.
pub(crate) fn values(clusters: &Clusters) -> Vec<(Arc<str>, String, u64)> {
    let of = |cluster: &Arc<Cluster>| {
        let all = counters_of(cluster).into_iter().chain(gauges_of(cluster));
        let name = Arc::clone(&cluster.name);
        all.map(move |(metric, value)| (Arc::clone(&name), metric, value))
            .collect::<Vec<_>>()
    };
    clusters.values().flat_map(of).collect()
}

impl Collector for ClusterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let clusters = self.0.load_full();
        let mut counters: BTreeMap<String, Family> = BTreeMap::new();
        let mut gauges: BTreeMap<String, Family> = BTreeMap::new();
        for cluster in clusters.values() {
            for (name, value) in counters_of(cluster) {
                let family = counters.entry(metric_name(&name)).or_default();
                add(family, &cluster.name, value);
            }
            for (name, value) in gauges_of(cluster) {
                let family = gauges.entry(metric_name(&name)).or_default();
                add(family, &cluster.name, value);
            }
        }
        for (name, family) in counters {
            // The encoder adds this ending to every counter.
            let name = format!("{PREFIX}{}", name.strip_suffix("_total").unwrap_or(&name));
            let mut metric =
                encoder.encode_descriptor(&name, help(&name), None, MetricType::Counter)?;
            for (cluster, value) in family {
                let labels = [("cluster", &*cluster)];
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        for (name, family) in gauges {
            let name = format!("{PREFIX}{name}");
            let mut metric =
                encoder.encode_descriptor(&name, help(&name), None, MetricType::Gauge)?;
            for (cluster, value) in family {
                let labels = [("cluster", &*cluster)];
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        encode_classes(&mut encoder, &clusters)?;
        encode_times(&mut encoder, &clusters)
    }
}

/// A name that two counters of a cluster share is their sum.
fn add(family: &mut Family, cluster: &Arc<str>, value: u64) {
    match family.last_mut() {
        Some((last, sum)) if last == cluster => *sum += value,
        _ => family.push((Arc::clone(cluster), value)),
    }
}

fn counters_of(cluster: &Cluster) -> Vec<(String, u64)> {
    let stats = &cluster.limits.stats;
    let own = stats.iter().filter(|(name, _)| class_of(name).is_none());
    let own = own.map(|(name, value)| (stat_name(name), value));
    let mut counters: Vec<(String, u64)> = own.collect();
    counters.extend(cluster.picker_counters().into_iter().map(owned));
    let published = stats.published.load();
    for (prefix, values) in published.iter() {
        let values = values.iter();
        counters.extend(values.map(|(name, value)| (format!("{prefix}{name}"), *value)));
    }
    let outliers = stats.outliers.load();
    let outliers = outliers.0.iter();
    counters.extend(outliers.map(|(name, value)| (format!("outlier_detection.{name}"), *value)));
    let oob = stats.oob.load();
    let oob = oob.iter().filter(|(name, _)| *name != "active_sessions");
    counters.extend(oob.map(|(name, value)| (format!("lb_orca_oob.{name}"), value)));
    counters
}

fn gauges_of(cluster: &Cluster) -> [(String, u64); 9] {
    let limits = &cluster.limits;
    let mut snapshots = cluster.snapshots.clone();
    let (subsets, duplicates) = snapshots.latest().subset_gauges().unwrap_or_default();
    let values = [
        cluster.load.active(),
        limits.pending(),
        cluster.retries.in_flight(),
        limits.connections(),
        snapshots.latest().hosts().count() as u64,
        limits.stats.outliers.load().1 as u64,
        limits.stats.oob.load().active_sessions,
        subsets,
        duplicates,
    ];
    std::array::from_fn(|index| (GAUGES[index].to_owned(), values[index]))
}

/// Envoy has groups of counters behind a dot; our own field names cannot.
fn stat_name(field: &str) -> String {
    match field.strip_prefix("health_check_") {
        Some(name) => format!("health_check.{name}"),
        None => field.to_owned(),
    }
}

fn owned((name, value): (&'static str, u64)) -> (String, u64) {
    (name.to_owned(), value)
}

/// `2xx` of `upstream_rq_2xx`.
fn class_of(name: &str) -> Option<&str> {
    let class = name.strip_prefix("upstream_rq_")?;
    class.ends_with("xx").then_some(class)
}

fn encode_classes(encoder: &mut DescriptorEncoder<'_>, clusters: &Clusters) -> fmt::Result {
    let name = format!("{PREFIX}upstream_rq_completed");
    let mut metric = encoder.encode_descriptor(&name, help(&name), None, MetricType::Counter)?;
    for cluster in clusters.values() {
        for (name, value) in cluster.limits.stats.iter() {
            let Some(class) = class_of(name) else {
                continue;
            };
            let labels = [("cluster", &*cluster.name), ("response_code_class", class)];
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a sum of times")]
fn encode_times(encoder: &mut DescriptorEncoder<'_>, clusters: &Clusters) -> fmt::Result {
    let name = format!("{PREFIX}upstream_rq_time_milliseconds");
    let mut metric = encoder.encode_descriptor(&name, help(&name), None, MetricType::Histogram)?;
    for cluster in clusters.values() {
        let (counts, nanos) = cluster.limits.stats.upstream_rq_time.read();
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let labels = [("cluster", &*cluster.name)];
        let mut metric = metric.encode_family(&labels)?;
        let (sum, count) = (nanos as f64 / 1e6, counts.iter().sum());
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ClusterStats;

    #[test]
    fn every_counter_has_a_name_in_the_list() {
        for (name, _) in ClusterStats::default().iter() {
            let name = class_of(name).map_or(name, |_| "upstream_rq_completed");
            assert!(METRICS.iter().any(|metric| metric.name == name), "{name}");
        }
    }

    #[test]
    fn every_name_has_its_own_help() {
        let said = [
            (
                "plimsoll_cluster_upstream_rq",
                "Requests put onto a connection",
            ),
            (
                "plimsoll_cluster_upstream_rq_total",
                "Requests put onto a connection",
            ),
            (
                "plimsoll_cluster_upstream_rq_time_milliseconds_sum",
                "From sending a try",
            ),
            ("plimsoll_cluster_load_aware_locality_recompute", "Ticks."),
            (
                "plimsoll_cluster_outlier_detection_ejections_enforced",
                "Hosts taken out.",
            ),
            (
                "plimsoll_cluster_lb_orca_oob_report_errors",
                "Reports that a consumer",
            ),
            ("plimsoll_cluster_lb_healthy_panic", "Picks from all hosts"),
        ];
        for (name, start) in said {
            assert!(help(name).starts_with(start), "{name}: {}", help(name));
        }
        assert_eq!(help("plimsoll_cluster_no_such"), "");
    }
}
