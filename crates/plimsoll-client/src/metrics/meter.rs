//! The bridge to OpenTelemetry: an observable instrument per metric, read when a reader collects.
//!
//! Instruments have a callback each, but the values are gathered together: the first callback of a
//! round gathers for all of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use plimsoll_core::time::Instant;
use plimsoll_xds::driver::Clock;

use super::families::{Families, Kind, Sample, collect, names};
use super::help;
use crate::cluster_manager::Clusters;

/// What a round has gathered is not shown later than this: a reader that skips instruments leaves
/// values behind.
const FRESH: Duration = Duration::from_secs(1);

/// Adds an instrument per metric to `meter`.
pub(crate) fn register(clusters: &Arc<ArcSwap<Clusters>>, meter: &Meter) {
    let gathered = Arc::new(Gathered {
        clusters: Arc::clone(clusters),
        round: Mutex::new((Clock::system().now(), Families::new())),
    });
    for (name, kind) in names() {
        let key = (name.clone(), kind);
        let gathered = Arc::clone(&gathered);
        let observe = move |instrument: &dyn AsyncInstrument<u64>| {
            for sample in gathered.take(&key) {
                instrument.observe(sample.value, &attributes(&sample));
            }
        };
        let about = help(&name);
        // The meter keeps the callback; what is returned here is only a name for it.
        match kind {
            Kind::Counter => {
                let builder = meter.u64_observable_counter(name).with_description(about);
                let _ = builder.with_callback(observe).build();
            }
            Kind::Gauge => {
                let builder = meter.u64_observable_gauge(name).with_description(about);
                let _ = builder.with_callback(observe).build();
            }
        }
    }
}

/// Values of one round, taken out by the callbacks one by one.
struct Gathered {
    clusters: Arc<ArcSwap<Clusters>>,
    round: Mutex<(Instant, Families)>,
}

impl Gathered {
    fn take(&self, key: &(String, Kind)) -> Vec<Sample> {
        let now = Clock::system().now();
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let (gathered, families) = &mut *round;
        if now.saturating_duration_since(*gathered) < FRESH
            && let Some(family) = families.remove(key)
        {
            return family;
        }
        *gathered = now;
        *families = collect(&self.clusters.load());
        families.remove(key).unwrap_or_default()
    }
}

fn attributes(sample: &Sample) -> Vec<KeyValue> {
    let more = sample.label.iter();
    let more = more.map(|(name, value)| KeyValue::new(*name, value.clone()));
    std::iter::once(KeyValue::new("cluster", Arc::clone(&sample.cluster)))
        .chain(more)
        .collect()
}
