//! [`MetricSum`]: one metric summed over requests by many threads, taken away by one.
//!
//! Which metric that is lives in `load_metrics`. Compiled a second time by tests/interleavings.rs.

use crate::sync::atomic::{AtomicU64, Ordering};

/// How many requests had the metric, and the sum of its values.
#[derive(Debug)]
pub(crate) struct MetricSum {
    count: AtomicU64,
    /// Bits of an f64.
    total: AtomicU64,
}

impl MetricSum {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }

    /// One more request had it. The value is not judged, as in Envoy.
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
        // After the value: whoever takes the count has the value too, or took it before.
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Takes away what there is: nothing is counted twice and nothing is lost. A value may be taken
    /// one time earlier than its count. Taken, not latched, so that a NaN spoils one report only.
    pub(crate) fn take(&self) -> (u64, f64) {
        let count = self.count.swap(0, Ordering::Acquire);
        (count, f64::from_bits(self.total.swap(0, Ordering::Relaxed)))
    }
}
