//! [`Families`]: every value of every cluster under its whole name, for the bridges to other
//! metrics libraries.
//!
//! Names and labels are those of the OpenMetrics text that `prometheus-client` writes of the same
//! registry, so that dashboards do not care which way a number took. Neither `metrics` nor
//! OpenTelemetry takes a histogram that somebody else has counted: its buckets, sum and count are
//! counters here, as in the text.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "opentelemetry")]
use plimsoll_core::stats::{BalancerStats, LoadAwareStats, OutlierStats, PickerStats};
#[cfg(feature = "opentelemetry")]
use plimsoll_xds::orca::oob::OobStats;

use super::{PREFIX, class_of, counters_of, gauges_of, metric_name};
use crate::cluster::Cluster;
use crate::cluster_manager::Clusters;
use crate::stats::BOUNDS;
#[cfg(feature = "opentelemetry")]
use crate::stats::ClusterStats;

const COMPLETED: &str = "upstream_rq_completed";
const TIME: &str = "upstream_rq_time_milliseconds";

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) cluster: Arc<str>,
    /// A label beside the cluster.
    pub(crate) label: Option<(&'static str, String)>,
    pub(crate) value: u64,
}

/// Values by name and kind.
pub(crate) type Families = BTreeMap<(String, Kind), Vec<Sample>>;

/// What all clusters show now.
pub(crate) fn collect(clusters: &Clusters) -> Families {
    let mut families = Families::new();
    for cluster in clusters.values() {
        for (name, value) in counters_of(cluster) {
            let key = (total(&metric_name(&name)), Kind::Counter);
            add(&mut families, key, cluster, value);
        }
        for (name, value) in gauges_of(cluster) {
            let key = (format!("{PREFIX}{}", metric_name(&name)), Kind::Gauge);
            add(&mut families, key, cluster, value);
        }
        add_classes(&mut families, cluster);
        add_times(&mut families, cluster);
    }
    families
}

/// Names of everything that [`collect`] may ever find.
#[cfg(feature = "opentelemetry")]
pub(crate) fn names() -> Vec<(String, Kind)> {
    let prefixed = |prefix: &'static str, names: Vec<(&'static str, u64)>| {
        names
            .into_iter()
            .map(move |(name, _)| format!("{prefix}{name}"))
    };
    let own = ClusterStats::default();
    let own = own
        .iter()
        .filter(|(name, _)| class_of(name).is_none())
        .collect();
    let oob = OobStats::default();
    let oob = oob
        .iter()
        .filter(|(name, _)| *name != "active_sessions")
        .collect();
    let load_aware = LoadAwareStats::default().iter().collect();
    let outliers = OutlierStats::default().iter().collect();
    let mut names: Vec<String> = prefixed("", own)
        .chain(prefixed("", PickerStats::default().iter().collect()))
        .chain(prefixed("", BalancerStats::default().iter().collect()))
        .chain(prefixed("load_aware_locality_", load_aware))
        .chain(prefixed("outlier_detection_", outliers))
        .chain(prefixed("lb_orca_oob_", oob))
        .chain([COMPLETED.to_owned()])
        .map(|name| total(&name))
        .chain(["bucket", "sum", "count"].map(|part| format!("{PREFIX}{TIME}_{part}")))
        .collect();
    names.sort_unstable();
    names.dedup();
    let counters = names.into_iter().map(|name| (name, Kind::Counter));
    let gauges = super::GAUGES.map(metric_name);
    let gauges = gauges.map(|name| (format!("{PREFIX}{name}"), Kind::Gauge));
    counters.chain(gauges).collect()
}

/// Counters end in `_total`, once.
fn total(name: &str) -> String {
    let name = name.strip_suffix("_total").unwrap_or(name);
    format!("{PREFIX}{name}_total")
}

/// A name that two counters of a cluster share is their sum.
fn add(families: &mut Families, key: (String, Kind), cluster: &Cluster, value: u64) {
    let family = families.entry(key).or_default();
    match family.last_mut() {
        Some(last) if last.cluster == cluster.name => last.value += value,
        _ => family.push(Sample {
            cluster: Arc::clone(&cluster.name),
            label: None,
            value,
        }),
    }
}

fn add_classes(families: &mut Families, cluster: &Cluster) {
    let family = families
        .entry((total(COMPLETED), Kind::Counter))
        .or_default();
    let counted = cluster.limits.stats.iter();
    family.extend(counted.filter_map(|(name, value)| {
        Some(Sample {
            cluster: Arc::clone(&cluster.name),
            label: Some(("response_code_class", class_of(name)?.to_owned())),
            value,
        })
    }));
}

fn add_times(families: &mut Families, cluster: &Cluster) {
    let (counts, nanos) = cluster.limits.stats.upstream_rq_time.read();
    let part = |part: &str| (format!("{PREFIX}{TIME}_{part}"), Kind::Counter);
    add(families, part("sum"), cluster, nanos / 1_000_000);
    add(families, part("count"), cluster, counts.iter().sum());
    let bounds = BOUNDS.iter().map(|bound| format!("{bound:?}"));
    let bounds = bounds.chain(["+Inf".to_owned()]);
    let buckets = families.entry(part("bucket")).or_default();
    let mut below = 0;
    buckets.extend(bounds.zip(counts).map(|(bound, count)| {
        below += count;
        Sample {
            cluster: Arc::clone(&cluster.name),
            label: Some(("le", bound)),
            value: below,
        }
    }));
}
