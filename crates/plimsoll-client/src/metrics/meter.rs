//! Bridge to OpenTelemetry: one observable instrument per metric.
//!
//! Each instrument has a callback; the first callback of a collection reads the values for all
//! instruments. OpenTelemetry cannot observe aggregated histograms: their buckets, sum and count
//! become counters, as in Prometheus' text format.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use plimsoll_core::stats::{Metric, MetricKind, Series};
use plimsoll_core::time::Instant;
use plimsoll_xds::clock::Clock;

use super::{families, metric_name, metrics, whole};
use crate::cluster::manager::Clusters;

/// Cached values older than this are read again: a reader may skip some instruments.
const MAX_AGE: Duration = Duration::from_secs(1);

pub(crate) fn register(clusters: &Arc<ArcSwap<Clusters>>, meter: &Meter) {
    let collected = Arc::new(Collection {
        clusters: Arc::clone(clusters),
        latest: Mutex::new((Clock::system().now(), BTreeMap::new())),
    });
    let mut instruments: BTreeMap<String, &Metric> = BTreeMap::new();
    for metric in metrics() {
        let suffixes: &[&str] = match metric.kind {
            MetricKind::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        for suffix in suffixes {
            let name = format!("{}{suffix}", metric_name(metric));
            instruments.entry(name).or_insert(metric);
        }
    }
    for (name, metric) in instruments {
        let collected = Arc::clone(&collected);
        let key = name.clone();
        let observe = move |instrument: &dyn AsyncInstrument<u64>| {
            for series in collected.take(&key) {
                let labels: Vec<_> = series
                    .labels
                    .into_iter()
                    .map(|(name, of)| KeyValue::new(name, of))
                    .collect();
                instrument.observe(whole(&series.value), &labels);
            }
        };
        // The meter owns the callback; the returned instrument is not needed.
        if metric.kind == MetricKind::Gauge {
            let builder = meter.u64_observable_gauge(name);
            let _ = builder
                .with_description(metric.help)
                .with_callback(observe)
                .build();
        } else {
            let builder = meter.u64_observable_counter(name);
            let _ = builder
                .with_description(metric.help)
                .with_callback(observe)
                .build();
        }
    }
}

type Values = BTreeMap<String, Vec<Series>>;

struct Collection {
    clusters: Arc<ArcSwap<Clusters>>,
    latest: Mutex<(Instant, Values)>,
}

impl Collection {
    fn take(&self, name: &str) -> Vec<Series> {
        let now = Clock::system().now();
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (collected_at, values) = &mut *latest;
        if now.saturating_duration_since(*collected_at) < MAX_AGE
            && let Some(series) = values.remove(name)
        {
            return series;
        }
        *collected_at = now;
        values.clear();
        for (family, values_of) in families(&self.clusters.load()).iter() {
            for series in values_of.series() {
                let name = format!("{family}{}", series.suffix);
                values.entry(name).or_default().push(series);
            }
        }
        values.remove(name).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All instruments of one collection have values of the same moment.
    #[tokio::test(start_paused = true)]
    async fn values_are_read_once_for_all_instruments() {
        let orders = crate::Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let client = crate::Client::builder().cluster(orders).build();
        let orders = client.unwrap().find("orders").unwrap();
        let clusters = BTreeMap::from([(Arc::clone(&orders.name), orders)]);
        let collection = Collection {
            clusters: Arc::new(ArcSwap::from_pointee(clusters)),
            latest: Mutex::new((Clock::system().now(), BTreeMap::new())),
        };
        let has = |name: &str| collection.latest.lock().unwrap().1.contains_key(name);
        let [first, second] = ["upstream_rq_total", "upstream_cx_total"].map(|stat| {
            let metric = metrics().find(|metric| metric.name == stat).unwrap();
            metric_name(metric)
        });
        let series = collection.take(&first);
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].labels, [("cluster", "orders".into())]);
        assert!(!has(&first) && has(&second));
        assert_eq!(collection.take(&second).len(), 1);
        assert!(!has(&first), "the values are those of before");
        // The same instrument again is the next collection, and so is any after a while.
        assert_eq!(collection.take(&second).len(), 1);
        assert!(has(&first) && !has(&second));
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(collection.take(&first).len(), 1);
        assert!(has(&second) && !has(&first), "all values are read again");
        assert!(collection.take("other").is_empty());
    }
}
