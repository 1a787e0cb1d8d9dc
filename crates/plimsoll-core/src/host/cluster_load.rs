//! Load shared by all hosts of a cluster: requests in flight, drops, metric names.
//!
//! [`DropCounts`] has the drops demanded by an assignment, by category, and is published with the
//! snapshot that has the `drop_overloads`. `balancer::load_stats` drains both types.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::load_metrics::LoadMetrics;
use crate::model::assignment::DropOverload;

/// Requests of a whole cluster: those in flight, which bounded load and circuit breakers use, and
/// those dropped.
#[derive(Debug, Default)]
pub struct ClusterLoad {
    pub(super) active: AtomicU64,
    dropped: AtomicU64,
    pub(crate) metrics: LoadMetrics,
}

impl ClusterLoad {
    /// Returns the number of requests in flight.
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Counts a request dropped for a reason without category: a circuit breaker (gRFC A32) or
    /// maintenance. Picks count the drops that the assignment demands.
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
    pub(crate) fn new(drop_overloads: &[DropOverload]) -> Self {
        Self(
            drop_overloads
                .iter()
                .map(|drop| (Arc::clone(&drop.category), AtomicU64::new(0)))
                .collect(),
        )
    }

    pub(crate) fn increment(&self, index: usize) {
        if let Some((_, count)) = self.0.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn take(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.0
            .iter()
            .map(|(category, count)| (category, count.swap(0, Ordering::Relaxed)))
    }
}
