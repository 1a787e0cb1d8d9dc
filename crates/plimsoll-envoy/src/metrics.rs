//! Counters of the engine as metrics of Envoy, with the name of the cluster as a label.
//!
//! A labelled increment takes Envoy 400 ns, so workers add up and write only after a tick of the
//! timer thread, once per second at most, with the next request. Envoy's functions for labelled
//! metrics change a table of their configuration: one thread writes at a time, the others try again
//! with their next request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use plimsoll_core::stats::PickerStats;

/// Number that Envoy gave to a metric.
pub type MetricId = usize;

/// Envoy's metrics of one configuration.
pub trait Metrics: Send + Sync {
    /// Adds to a counter with the label `cluster`.
    fn add(&self, id: MetricId, cluster: &str, value: u64);
}

/// Counters that were defined when the configuration was read, in the order of
/// [`PickerStats::iter`].
pub struct PickMetrics {
    ids: Vec<Option<MetricId>>,
    metrics: Box<dyn Metrics>,
    writing: Mutex<()>,
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
    /// Defines the counters: `define` returns the number of a counter, `None` if Envoy refuses it.
    pub fn new(
        metrics: Box<dyn Metrics>,
        mut define: impl FnMut(&str) -> Option<MetricId>,
    ) -> Self {
        let stats = PickerStats::default();
        let ids = stats
            .iter()
            .map(|(name, _)| define(&format!("plimsoll.{name}")))
            .collect();
        Self {
            ids,
            metrics,
            writing: Mutex::new(()),
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

    /// Writes what was counted since the last call, unless another thread is writing.
    pub fn write(&mut self, metrics: &PickMetrics, stats: &PickerStats, cluster: &str, tick: u64) {
        let _writing = match metrics.writing.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.tick = tick;
        self.values.resize(metrics.ids.len(), 0);
        for ((id, (_, value)), written) in
            metrics.ids.iter().zip(stats.iter()).zip(&mut self.values)
        {
            let more = value.saturating_sub(*written);
            if let Some(id) = id
                && more > 0
            {
                metrics.metrics.add(*id, cluster, more);
                *written = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Default)]
    struct Recorded(Arc<Mutex<Vec<(MetricId, String, u64)>>>);

    impl Metrics for Recorded {
        fn add(&self, id: MetricId, cluster: &str, value: u64) {
            self.0.lock().unwrap().push((id, cluster.to_owned(), value));
        }
    }

    #[test]
    fn only_differences_are_written_and_refused_counters_are_left_out() {
        let recorded = Recorded::default();
        let lines = Arc::clone(&recorded.0);
        let mut names = Vec::new();
        let metrics = PickMetrics::new(Box::new(recorded), |name| {
            names.push(name.to_owned());
            (!name.ends_with("lb_healthy_panic")).then_some(names.len())
        });
        let sampled = names
            .iter()
            .position(|name| name == "plimsoll.lb_zone_routing_sampled");
        let id = sampled.unwrap() + 1;
        let stats = PickerStats::default();
        let mut written = Written::default();
        stats.lb_healthy_panic.increment();
        stats.lb_zone_routing_sampled.increment();
        stats.lb_zone_routing_sampled.increment();
        assert!(written.is_due(1) && !written.is_due(0));
        written.write(&metrics, &stats, "orders", 1);
        assert!(!written.is_due(1));
        written.write(&metrics, &stats, "orders", 2);
        stats.lb_zone_routing_sampled.increment();
        written.write(&metrics, &stats, "orders", 3);
        let expected = [(id, "orders".to_owned(), 2), (id, "orders".to_owned(), 1)];
        assert_eq!(*lines.lock().unwrap(), expected);
    }

    #[test]
    fn a_thread_that_finds_another_one_writing_tries_again() {
        let metrics = PickMetrics::new(Box::new(Recorded::default()), |_| Some(1));
        let guard = metrics.writing.lock().unwrap();
        let mut written = Written::default();
        written.write(&metrics, &PickerStats::default(), "orders", 1);
        assert!(written.is_due(1));
        drop(guard);
        written.write(&metrics, &PickerStats::default(), "orders", 1);
        assert!(!written.is_due(1));
    }
}
