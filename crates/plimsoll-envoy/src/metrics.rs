//! Counters of the engine and gauges of zones as metrics of Envoy, with the name of the cluster as
//! a label.
//!
//! A labelled increment takes Envoy 400 ns, so workers add up and write only after a tick of the
//! timer thread, once per second at most, with the next request. Envoy's functions for labelled
//! metrics change a table of their configuration: one thread writes at a time, the others try again
//! with their next request. The timer thread computes the values of gauges, and the first worker
//! that writes after a tick sets them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use plimsoll_core::explain::{Explanation, LocalityExplanation};
use plimsoll_core::stats::PickerStats;

/// Number that Envoy gave to a metric.
pub type MetricId = usize;

/// Gauges of a zone, without the prefix `plimsoll.`: its load relative to a fair one, the share of
/// the fleet's demand that the decision uses, the share of this Envoy's requests that it gets, and
/// the utilization that its hosts report.
pub const GAUGES: [&str; 4] = [
    "zone_load_permille",
    "zone_demand_bp",
    "zone_share_bp",
    "zone_utilization_permille",
];

/// How Envoy is asked to define a metric, which decides its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// With the label `cluster`.
    Counter,
    /// With the labels `cluster` and `zone`.
    Gauge,
}

/// Envoy's metrics of one configuration.
pub trait Metrics: Send + Sync {
    /// Adds to a counter with the label `cluster`.
    fn add(&self, id: MetricId, cluster: &str, value: u64);
    /// Sets a gauge with the labels `cluster` and `zone`.
    fn set(&self, id: MetricId, cluster: &str, zone: &str, value: u64);
}

/// Values of [`GAUGES`] by zone, as of one tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneGauges {
    pub tick: u64,
    pub zones: Vec<(String, [Option<u64>; GAUGES.len()])>,
}

impl ZoneGauges {
    /// Takes the values from an explanation.
    pub fn new(explanation: &Explanation, tick: u64) -> Self {
        let zone = |row: &LocalityExplanation| {
            let values = [
                row.load_factor.map(|load| scaled(load, 1000.0)),
                Some(row.local_bp),
                Some(scaled(row.expected_share, 10_000.0)),
                row.utilization.map(|value| scaled(value, 1000.0)),
            ];
            (row.locality().to_string(), values)
        };
        Self {
            tick,
            zones: explanation.localities.iter().map(zone).collect(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares and loads are small and not negative; the cast saturates"
)]
fn scaled(value: f64, scale: f64) -> u64 {
    (value * scale).round() as u64
}

/// Metrics that were defined when the configuration was read.
pub struct PickMetrics {
    /// In the order of [`PickerStats::iter`].
    counters: Vec<Option<MetricId>>,
    gauges: [Option<MetricId>; GAUGES.len()],
    metrics: Box<dyn Metrics>,
    /// What was set last. One thread writes at a time.
    written: Mutex<WrittenGauges>,
}

#[derive(Debug, Default)]
struct WrittenGauges {
    tick: u64,
    zones: BTreeSet<String>,
}

impl std::fmt::Debug for PickMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PickMetrics").finish_non_exhaustive()
    }
}

/// Ticks of the timer thread, which let workers write their counts.
#[derive(Debug, Default)]
pub struct Tick(AtomicU64);

impl Tick {
    /// Lets every worker write once more.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of ticks, which workers compare with that of their last write.
    #[inline]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl PickMetrics {
    /// Defines the metrics: `define` returns the number of a metric, `None` if Envoy refuses it.
    pub fn new(
        metrics: Box<dyn Metrics>,
        mut define: impl FnMut(MetricKind, &str) -> Option<MetricId>,
    ) -> Self {
        let stats = PickerStats::default();
        let counters = stats
            .iter()
            .map(|(name, _)| define(MetricKind::Counter, &format!("plimsoll.{name}")))
            .collect();
        let gauges = GAUGES.map(|name| define(MetricKind::Gauge, &format!("plimsoll.{name}")));
        Self {
            counters,
            gauges,
            metrics,
            written: Mutex::default(),
        }
    }

    /// Sets the gauges of all zones; zones that are gone have no load and no share.
    fn set_gauges(&self, written: &mut WrittenGauges, gauges: &ZoneGauges, cluster: &str) {
        if written.tick == gauges.tick {
            return;
        }
        written.tick = gauges.tick;
        let mut gone = std::mem::take(&mut written.zones);
        for (zone, values) in &gauges.zones {
            gone.remove(zone);
            written.zones.insert(zone.clone());
            self.set_zone(cluster, zone, *values);
        }
        for zone in gone {
            self.set_zone(cluster, &zone, [Some(0); GAUGES.len()]);
        }
    }

    fn set_zone(&self, cluster: &str, zone: &str, values: [Option<u64>; GAUGES.len()]) {
        for (id, value) in self.gauges.iter().zip(values) {
            if let (Some(id), Some(value)) = (id, value) {
                self.metrics.set(*id, cluster, zone, value);
            }
        }
    }
}

/// What one thread has written so far.
#[derive(Debug, Default)]
pub struct Written {
    tick: u64,
    values: Vec<u64>,
}

impl Written {
    /// Whether a tick has passed since the last [`Self::write`].
    #[inline]
    pub fn is_due(&self, tick: u64) -> bool {
        self.tick != tick
    }

    /// Writes what was counted since the last call, and the gauges of the last tick, unless another
    /// thread is writing.
    pub fn write(
        &mut self,
        metrics: &PickMetrics,
        stats: &PickerStats,
        gauges: &ZoneGauges,
        cluster: &str,
        tick: u64,
    ) {
        let mut written = match metrics.written.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.tick = tick;
        self.values.resize(metrics.counters.len(), 0);
        let counters = metrics.counters.iter().zip(stats.iter());
        for ((id, (_, value)), written) in counters.zip(&mut self.values) {
            let more = value.saturating_sub(*written);
            if let Some(id) = id
                && more > 0
            {
                metrics.metrics.add(*id, cluster, more);
                *written = value;
            }
        }
        metrics.set_gauges(&mut written, gauges, cluster);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;

    /// Calls of a test: number of the metric, labels, value.
    pub(crate) type Lines = Arc<Mutex<Vec<(MetricId, String, u64)>>>;

    #[derive(Default)]
    pub(crate) struct Recorded(pub(crate) Lines);

    impl Metrics for Recorded {
        fn add(&self, id: MetricId, cluster: &str, value: u64) {
            self.0.lock().unwrap().push((id, cluster.to_owned(), value));
        }

        fn set(&self, id: MetricId, cluster: &str, zone: &str, value: u64) {
            let labels = format!("{cluster}/{zone}");
            self.0.lock().unwrap().push((id, labels, value));
        }
    }

    #[test]
    fn only_differences_are_written_and_refused_counters_are_left_out() {
        let recorded = Recorded::default();
        let lines = Arc::clone(&recorded.0);
        let mut names = Vec::new();
        let metrics = PickMetrics::new(Box::new(recorded), |_, name| {
            names.push(name.to_owned());
            (!name.ends_with("lb_healthy_panic")).then_some(names.len())
        });
        let sampled = names
            .iter()
            .position(|name| name == "plimsoll.lb_zone_routing_sampled");
        let id = sampled.unwrap() + 1;
        let stats = PickerStats::default();
        let mut written = Written::default();
        let mut write = |stats: &PickerStats, tick| {
            written.write(&metrics, stats, &ZoneGauges::default(), "orders", tick);
            written.is_due(tick)
        };
        stats.lb_healthy_panic.increment();
        stats.lb_zone_routing_sampled.increment();
        stats.lb_zone_routing_sampled.increment();
        assert!(!write(&stats, 1));
        assert!(!write(&stats, 2));
        stats.lb_zone_routing_sampled.increment();
        assert!(!write(&stats, 3));
        let expected = [(id, "orders".to_owned(), 2), (id, "orders".to_owned(), 1)];
        assert_eq!(*lines.lock().unwrap(), expected);
    }

    #[test]
    fn gauges_are_set_once_per_tick_and_zones_that_are_gone_end_at_zero() {
        let recorded = Recorded::default();
        let lines = Arc::clone(&recorded.0);
        let mut next = 0;
        let metrics = PickMetrics::new(Box::new(recorded), |kind, _| {
            next += usize::from(kind == MetricKind::Gauge);
            (kind == MetricKind::Gauge).then_some(next)
        });
        let zone = |zone: &str, share| (zone.to_owned(), [Some(1500), None, Some(share), None]);
        let mut gauges = ZoneGauges {
            tick: 7,
            zones: vec![zone("a", 6000), zone("b", 4000)],
        };
        // Two workers write after the same tick.
        for _ in 0..2 {
            let mut written = Written::default();
            written.write(&metrics, &PickerStats::default(), &gauges, "orders", 7);
        }
        let line = |id: MetricId, labels: &str, value| (id, labels.to_owned(), value);
        let expected = [
            line(1, "orders/a", 1500),
            line(3, "orders/a", 6000),
            line(1, "orders/b", 1500),
            line(3, "orders/b", 4000),
        ];
        assert_eq!(std::mem::take(&mut *lines.lock().unwrap()), expected);
        gauges.tick = 8;
        gauges.zones.pop();
        let mut written = Written::default();
        written.write(&metrics, &PickerStats::default(), &gauges, "orders", 8);
        let gone: Vec<_> = lines.lock().unwrap().drain(2..).collect();
        let zeros = [1, 2, 3, 4].map(|id| line(id, "orders/b", 0));
        assert_eq!(gone, zeros);
    }

    #[test]
    fn a_thread_that_finds_another_one_writing_tries_again() {
        let metrics = PickMetrics::new(Box::new(Recorded::default()), |_, _| Some(1));
        let guard = metrics.written.lock().unwrap();
        let mut written = Written::default();
        let gauges = ZoneGauges::default();
        written.write(&metrics, &PickerStats::default(), &gauges, "orders", 1);
        assert!(written.is_due(1));
        drop(guard);
        written.write(&metrics, &PickerStats::default(), &gauges, "orders", 1);
        assert!(!written.is_due(1));
    }
}
