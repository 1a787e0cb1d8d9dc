//! Bridge to `prometheus-client`: a collector that reads the values when it is scraped.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use plimsoll_core::stats::{Family, MetricKind, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::families;
use crate::cluster::manager::Clusters;

#[derive(Debug)]
struct ClusterMetrics(Arc<ArcSwap<Clusters>>);

/// Registers a collector of all metrics, of later clusters too.
pub(crate) fn register(clusters: &Arc<ArcSwap<Clusters>>, registry: &mut Registry) {
    let collector = ClusterMetrics(Arc::clone(clusters));
    registry.register_collector(Box::new(collector));
}

impl Collector for ClusterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, family) in families(&self.0.load()).iter() {
            encode(&mut encoder, name, family)?;
        }
        Ok(())
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, name: &str, family: &Family) -> fmt::Result {
    let (name, kind) = match family.metric.kind {
        // The encoder appends `_total` to every counter.
        MetricKind::Counter => (
            name.strip_suffix("_total").unwrap_or(name),
            MetricType::Counter,
        ),
        MetricKind::Histogram => (name, MetricType::Histogram),
        MetricKind::Gauge | MetricKind::Info => (name, MetricType::Gauge),
    };
    let mut descriptor = encoder.encode_descriptor(name, family.metric.help, None, kind)?;
    for (labels, value) in family.samples() {
        let mut metric = descriptor.encode_family(&labels)?;
        match value {
            Value::Integer(value) if family.metric.kind == MetricKind::Counter => {
                metric.encode_counter::<NoLabelSet, _, u64>(value, None)?;
            }
            Value::Integer(value) => {
                metric.encode_gauge(&i64::try_from(*value).unwrap_or(i64::MAX))?;
            }
            Value::Float(value) => metric.encode_gauge(value)?,
            Value::Histogram(buckets, sum) => {
                let count = buckets.iter().map(|(_, count)| count).sum();
                metric.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
            }
        }
    }
    Ok(())
}
