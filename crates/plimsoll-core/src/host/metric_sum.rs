//! Sum of one metric, added to by many threads and drained by one.
//!
//! `load_metrics` maps names to sums. Compiled a second time by tests/interleavings.rs.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Number of requests that had the metric, and the sum of its values.
#[derive(Debug)]
pub(crate) struct MetricSum {
    count: AtomicU64,
    /// Bits of an f64.
    total: AtomicU64,
}

impl MetricSum {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }

    /// Adds the value of one request. Any value is accepted, as in Envoy.
    #[inline]
    pub(crate) fn add(&self, value: f64) {
        let mut before = self.total.load(Ordering::Relaxed);
        loop {
            let after = (f64::from_bits(before) + value).to_bits();
            let swapped = self.total.compare_exchange_weak(
                before,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        // Count after value: a reader that takes the count also takes, or took, the value.
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Takes count and sum, leaving 0; a value may be taken one LRS report before its count. Sums
    /// are taken, not latched, so that a NaN spoils only one report.
    pub(crate) fn take(&self) -> (u64, f64) {
        let count = self.count.swap(0, Ordering::Acquire);
        (count, f64::from_bits(self.total.swap(0, Ordering::Relaxed)))
    }
}
