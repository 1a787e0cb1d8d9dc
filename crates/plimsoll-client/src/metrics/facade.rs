//! Bridge to the `metrics` facade: copies values to the recorder that the program has installed.
//!
//! Nothing is recorded per request; the program calls [`record`] when it wants new values.

use ::metrics::{Key, Label, Level, Metadata, with_recorder};
use plimsoll_core::stats::MetricKind;

use super::{families, whole};
use crate::cluster::manager::Clusters;

/// Target and level of all metrics, for recorders that filter by them.
const METADATA: Metadata<'static> =
    Metadata::new("plimsoll_client", Level::INFO, Some("plimsoll_client"));

/// Sets the metrics of all clusters to their current values. The facade does not accept aggregated
/// histograms: their buckets, sum and count become counters, as in Prometheus' text format.
pub(crate) fn record(clusters: &Clusters) {
    with_recorder(|recorder| {
        for (name, family) in families(clusters).iter() {
            for series in family.series() {
                let labels: Vec<Label> = series
                    .labels
                    .into_iter()
                    .map(|(name, of)| Label::new(name, of))
                    .collect();
                let key = Key::from_parts(format!("{name}{}", series.suffix), labels);
                let value = whole(&series.value);
                if family.metric.kind == MetricKind::Gauge {
                    #[expect(
                        clippy::cast_precision_loss,
                        reason = "the facade has no other gauge"
                    )]
                    recorder.register_gauge(&key, &METADATA).set(value as f64);
                } else {
                    recorder.register_counter(&key, &METADATA).absolute(value);
                }
            }
        }
    });
}
