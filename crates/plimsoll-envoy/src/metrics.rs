//! Counters of the engine and gauges of zones as metrics of Envoy, with the name of the cluster as
//! a label.
//!
//! A labelled increment takes Envoy 400 ns, so workers add up and write only after a tick of the
//! timer thread, once per second at most, with the next request. Envoy's functions for labelled
//! metrics change a table of their configuration: one thread writes at a time, the others try again
//! with their next request. What belongs to the whole cluster (statistics of its balancer, gauges)
//! is read by the timer thread at every tick, and written by the first worker that writes after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use plimsoll_core::explain::{Explanation, LocalityExplanation};
use plimsoll_core::stats::{
    BalancerStats, LoadAwareStats, Metric, MetricKind as Kind, PickerStats,
};
use plimsoll_xds::orca::oob::OobStats;

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
    /// With the label `cluster`.
    ClusterGauge,
    /// With the labels `cluster` and `zone`.
    Gauge,
}

/// Envoy's metrics of one configuration.
pub trait Metrics: Send + Sync {
    /// Adds to a counter with the label `cluster`.
    fn add(&self, id: MetricId, cluster: &str, value: u64);
    /// Sets a gauge with the label `cluster`.
    fn set_total(&self, id: MetricId, cluster: &str, value: u64);
    /// Sets a gauge with the labels `cluster` and `zone`.
    fn set(&self, id: MetricId, cluster: &str, zone: &str, value: u64);
}

/// Statistics of a whole cluster, in the order of their names in Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStats(Vec<u64>);

impl ClusterStats {
    const METRICS: [&'static [Metric]; 3] = [
        BalancerStats::METRICS,
        LoadAwareStats::METRICS,
        OobStats::METRICS,
    ];

    /// Copies all counters in the order of their metrics.
    pub fn new(balancer: &BalancerStats, load_aware: &LoadAwareStats, oob: &OobStats) -> Self {
        let samples = balancer.samples().chain(load_aware.samples());
        let samples = samples.chain(oob.samples());
        Self(samples.map(|(_, value)| value).collect())
    }

    /// Returns a statistic by its name in Envoy.
    pub fn get(&self, name: &str) -> Option<u64> {
        let metrics = Self::METRICS.into_iter().flatten();
        let mut samples = metrics.zip(&self.0);
        let found = samples.find(|(metric, _)| metric.stat_name() == name);
        found.map(|(_, value)| *value)
    }
}

/// What workers write for the whole cluster, as of one tick: its statistics, and the values of
/// [`GAUGES`] by zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TickValues {
    pub tick: u64,
    pub zones: Vec<(String, [Option<u64>; GAUGES.len()])>,
    pub stats: Option<ClusterStats>,
}

impl TickValues {
    /// Takes the values of zones from an explanation.
    pub fn new(explanation: &Explanation, stats: ClusterStats, tick: u64) -> Self {
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
            stats: Some(stats),
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
    /// In the order of [`PickerStats::METRICS`].
    counters: Vec<Option<MetricId>>,
    /// In the order of [`ClusterStats::METRICS`].
    stats: Vec<(Kind, Option<MetricId>)>,
    gauges: [Option<MetricId>; GAUGES.len()],
    metrics: Box<dyn Metrics>,
    /// What was written last for the whole cluster. One thread writes at a time.
    written: Mutex<WrittenTick>,
}

#[derive(Debug, Default)]
struct WrittenTick {
    tick: u64,
    zones: BTreeSet<String>,
    stats: Counted,
}

/// Values of counters that Envoy knows.
#[derive(Debug, Default)]
struct Counted(Vec<u64>);

impl Counted {
    /// Adds what was counted since the last call; the first call also adds zeros, so that the
    /// counters exist before they count.
    fn write(
        &mut self,
        metrics: &dyn Metrics,
        cluster: &str,
        values: impl Iterator<Item = (Option<MetricId>, u64)>,
    ) {
        let is_first = self.0.is_empty();
        for (at, (id, value)) in values.enumerate() {
            if is_first {
                self.0.push(0);
            }
            let more = value.saturating_sub(self.0[at]);
            if let Some(id) = id
                && (is_first || more > 0)
            {
                metrics.add(id, cluster, more);
                self.0[at] = value;
            }
        }
    }
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
        // Two groups have a counter of the same name, which is their sum.
        let mut defined = BTreeMap::new();
        let mut define_one = |metric: &Metric| {
            let kind = match metric.kind {
                Kind::Gauge => MetricKind::ClusterGauge,
                _ => MetricKind::Counter,
            };
            let name = format!("plimsoll.{}", metric.stat_name());
            let id = defined.entry(name);
            *id.or_insert_with_key(|name| define(kind, name))
        };
        let counters = PickerStats::METRICS.iter().map(&mut define_one).collect();
        let stats = ClusterStats::METRICS
            .into_iter()
            .flatten()
            .map(|metric| (metric.kind, define_one(metric)));
        Self {
            counters,
            stats: stats.collect(),
            gauges: GAUGES.map(|name| define(MetricKind::Gauge, &format!("plimsoll.{name}"))),
            metrics,
            written: Mutex::default(),
        }
    }

    /// Writes what the timer thread has read at a tick, once.
    fn write_tick(&self, written: &mut WrittenTick, values: &TickValues, cluster: &str) {
        if written.tick == values.tick {
            return;
        }
        written.tick = values.tick;
        self.set_gauges(written, values, cluster);
        let Some(ClusterStats(totals)) = &values.stats else {
            return;
        };
        let totals = || self.stats.iter().zip(totals);
        let counters = totals()
            .filter(|((kind, _), _)| *kind != Kind::Gauge)
            .map(|((_, id), value)| (*id, *value));
        written.stats.write(&*self.metrics, cluster, counters);
        for ((kind, id), value) in totals() {
            if let (Kind::Gauge, Some(id)) = (kind, id) {
                self.metrics.set_total(*id, cluster, *value);
            }
        }
    }

    /// Sets the gauges of all zones; zones that are gone have no load and no share.
    fn set_gauges(&self, written: &mut WrittenTick, values: &TickValues, cluster: &str) {
        let mut gone = std::mem::take(&mut written.zones);
        for (zone, values) in &values.zones {
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
    counted: Counted,
}

impl Written {
    /// Whether a tick has passed since the last [`Self::write`].
    #[inline]
    pub fn is_due(&self, tick: u64) -> bool {
        self.tick != tick
    }

    /// Writes what was counted since the last call, and the values of the last tick, unless another
    /// thread is writing.
    pub fn write(
        &mut self,
        metrics: &PickMetrics,
        stats: &PickerStats,
        values: &TickValues,
        cluster: &str,
        tick: u64,
    ) {
        let mut written = match metrics.written.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.tick = tick;
        let counters = metrics
            .counters
            .iter()
            .copied()
            .zip(stats.samples().map(|(_, value)| value));
        self.counted.write(&*metrics.metrics, cluster, counters);
        metrics.write_tick(&mut written, values, cluster);
    }
}

#[cfg(test)]
pub(crate) mod tests;
