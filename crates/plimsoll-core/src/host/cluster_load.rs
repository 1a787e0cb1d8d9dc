//! [`ClusterLoad`]: what all hosts of a cluster share: requests in flight, drops, metric names.
//!
//! [`DropCounts`] are the drops that an assignment orders, by category; they travel with the
//! snapshot that has the orders. Both are drained by `balancer::load_stats`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::load_metrics::LoadMetrics;
use crate::model::assignment::DropOverload;

/// Requests of a whole cluster in flight: the mean that bounded load compares with, and what a
/// circuit breaker counts. And those that were dropped.
#[derive(Debug, Default)]
pub struct ClusterLoad {
    pub(super) active: AtomicU64,
    dropped: AtomicU64,
    pub(crate) metrics: LoadMetrics,
}

impl ClusterLoad {
    /// Requests in flight now.
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// A request was dropped for a reason that has no category: a circuit breaker (gRFC A32),
    /// maintenance. Drops that the assignment orders are counted by the pick.
    pub fn record_drop(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn take_drops(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

/// Drops by category, in the order of the assignment's `drop_overloads`.
#[derive(Debug, Default)]
pub(crate) struct DropCounts(Vec<(Arc<str>, AtomicU64)>);

impl DropCounts {
    pub(crate) fn new(orders: &[DropOverload]) -> Self {
        let counts = orders
            .iter()
            .map(|order| (Arc::clone(&order.category), AtomicU64::new(0)));
        Self(counts.collect())
    }

    /// A request was dropped by the order at `index`.
    pub(crate) fn increment(&self, index: usize) {
        if let Some((_, count)) = self.0.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes away what was counted.
    pub(crate) fn take(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let counts = self.0.iter();
        counts.map(|(category, count)| (category, count.swap(0, Ordering::Relaxed)))
    }
}
