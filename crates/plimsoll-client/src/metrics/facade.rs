//! The bridge to the `metrics` facade: values go to whatever recorder the program has installed.
//!
//! Nothing is recorded while requests run: [`record`] copies what was counted, whenever the program
//! calls it.

use ::metrics::{Key, Label, Level, Metadata, with_recorder};

use super::families::{Kind, Sample, collect};
use crate::cluster_manager::Clusters;

/// Recorders may filter by target and level.
const METADATA: Metadata<'static> =
    Metadata::new("plimsoll_client", Level::INFO, Some("plimsoll_client"));

/// Sets the metrics of all clusters to what they are now.
pub(crate) fn record(clusters: &Clusters) {
    with_recorder(|recorder| {
        for ((name, kind), family) in collect(clusters) {
            for sample in family {
                let value = sample.value;
                let key = Key::from_parts(name.clone(), labels(sample));
                match kind {
                    Kind::Counter => recorder.register_counter(&key, &METADATA).absolute(value),
                    #[expect(clippy::cast_precision_loss, reason = "the facade has no other gauge")]
                    Kind::Gauge => recorder.register_gauge(&key, &METADATA).set(value as f64),
                }
            }
        }
    });
}

fn labels(sample: Sample) -> Vec<Label> {
    let more = sample.label.into_iter();
    let more = more.map(|(name, value)| Label::new(name, value));
    std::iter::once(Label::new("cluster", sample.cluster))
        .chain(more)
        .collect()
}
