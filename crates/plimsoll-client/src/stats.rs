//! [`ClusterStats`]: what happened to requests and connections of a cluster, with Envoy's names.
//!
//! Counted where it happens, by many tasks; exported by `metrics`. Counters of choosing are the
//! core's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use plimsoll_xds::orca::oob::OobStats;

/// A counter that many may write.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one kind that have a prefix.
pub(crate) type Published = (&'static str, Vec<(&'static str, u64)>);

/// Upper bounds of [`Histogram`], in milliseconds; above the last one is one more bucket.
pub(crate) const BOUNDS: [f64; 16] = [
    0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4,
];

/// Times, counted by size.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    /// One more.
    pub(crate) fn observe(&self, time: Duration) {
        let millis = time.as_secs_f64() * 1e3;
        let bucket = BOUNDS.iter().position(|bound| millis <= *bound);
        let bucket = bucket.unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How many in each bucket, and the sum of all in nanoseconds.
    pub(crate) fn read(&self) -> ([u64; BOUNDS.len() + 1], u64) {
        let count = |index: usize| self.buckets[index].load(Ordering::Relaxed);
        (
            std::array::from_fn(count),
            self.nanos.load(Ordering::Relaxed),
        )
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),+ $(,)?) => {
        /// Counters of one cluster.
        #[derive(Debug, Default)]
        pub(crate) struct ClusterStats {
            /// Time from sending a try to the end of its response.
            pub(crate) upstream_rq_time: Histogram,
            /// What outlier detection counted, and hosts that are out.
            pub(crate) outliers: ArcSwap<(Vec<(&'static str, u64)>, usize)>,
            /// What the balancer counted, by prefix.
            pub(crate) published: ArcSwap<Vec<Published>>,
            /// Of out-of-band reports.
            pub(crate) oob: Arc<ArcSwap<OobStats>>,
            $($(#[$doc])* pub(crate) $field: Counter,)+
        }

        impl ClusterStats {
            /// Name and value of every counter, in a fixed order.
            pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field.get()),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Tries that were put onto a connection.
    upstream_rq_total,
    /// Responses by class.
    upstream_rq_1xx,
    upstream_rq_2xx,
    upstream_rq_3xx,
    upstream_rq_4xx,
    upstream_rq_5xx,
    /// Calls that took longer than they may.
    upstream_rq_timeout,
    /// Tries that took longer than they may.
    upstream_rq_per_try_timeout,
    /// Tries after the first one.
    upstream_rq_retry,
    /// Of those, the ones after which the call had a good response.
    upstream_rq_retry_success,
    /// Retries that the budget forbade.
    upstream_rq_retry_overflow,
    /// Retries that were wanted but not allowed, because there were enough.
    upstream_rq_retry_limit_exceeded,
    /// Requests refused because too many waited for a connection, or were in flight.
    upstream_rq_pending_overflow,
    /// Requests that had to wait for a connection.
    upstream_rq_pending_total,
    /// Connections dialled.
    upstream_cx_total,
    /// Connections that failed.
    upstream_cx_connect_fail,
    /// Of those, the ones that took too long.
    upstream_cx_connect_timeout,
    /// Connections that were wanted while there were too many.
    upstream_cx_overflow,
    /// Active health checks.
    health_check_attempt,
    /// Of those, the ones with the expected answer.
    health_check_success,
    /// And the others.
    health_check_failure,
    /// Assignments that say when they become stale.
    assignment_timeout_received,
    /// Assignments that became stale.
    assignment_stale,
    /// Load reports in response headers or trailers that cannot be read.
    orca_report_errors,
}

impl ClusterStats {
    /// Counters of outlier detection, and how many hosts are out.
    pub(crate) fn set_outliers(&self, stats: Vec<(&'static str, u64)>, active: usize) {
        self.outliers.store(Arc::new((stats, active)));
    }

    /// A response arrived.
    pub(crate) fn count_status(&self, status: u16) {
        match status / 100 {
            1 => &self.upstream_rq_1xx,
            2 => &self.upstream_rq_2xx,
            3 => &self.upstream_rq_3xx,
            4 => &self.upstream_rq_4xx,
            _ => &self.upstream_rq_5xx,
        }
        .increment();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_size() {
        let times = Histogram::default();
        for millis in [0, 1, 2, 100_000] {
            times.observe(Duration::from_millis(millis));
        }
        let (buckets, nanos) = times.read();
        assert_eq!(
            (buckets[0], buckets[1], buckets[2], buckets[16]),
            (1, 1, 1, 1)
        );
        assert_eq!(nanos, 100_003_000_000);
    }

    #[test]
    fn responses_are_counted_by_class() {
        let stats = ClusterStats::default();
        for status in [101, 200, 204, 302, 404, 503, 599] {
            stats.count_status(status);
        }
        let counted: Vec<u64> = stats
            .iter()
            .skip(1)
            .take(5)
            .map(|(_, count)| count)
            .collect();
        assert_eq!(counted, [1, 2, 1, 1, 2]);
    }
}
