//! [`ClusterStats`] and [`ClusterGauges`]: request and connection statistics of a cluster, with
//! Envoy's names.
//!
//! Updated by many tasks; the core counts picks. Doc comments are the help texts of the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use plimsoll_core::counters;
use plimsoll_core::stats::{Sample, SharedCounter};
use plimsoll_xds::orca::oob::OobStats;

/// Upper bucket bounds of [`Histogram`] in milliseconds, without the last, unbounded bucket.
pub(crate) const BOUNDS: [f64; 16] = [
    0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4,
];

/// Histogram of durations in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let millis = time.as_secs_f64() * 1e3;
        let bucket = BOUNDS
            .iter()
            .position(|bound| millis <= *bound)
            .unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the count of each bucket, and the sum in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "a sum of times")]
    pub(crate) fn read(&self) -> ([u64; BOUNDS.len() + 1], f64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let nanos = load(&self.nanos) as f64;
        (self.buckets.each_ref().map(load), nanos / 1e6)
    }
}

counters! {
    /// Counters of one cluster.
    pub(crate) struct ClusterStats("", ["cluster"]): SharedCounter {
        /// Requests sent on a connection; every attempt counts
        upstream_rq_total,
        /// Requests that exceeded `timeout`
        upstream_rq_timeout,
        /// Attempts that exceeded `per_try_timeout`
        upstream_rq_per_try_timeout,
        /// Retries, i.e. attempts after the first
        upstream_rq_retry,
        /// Requests that got a response after a retry
        upstream_rq_retry_success,
        /// Retries prevented by `max_retries` or `retry_budget`
        upstream_rq_retry_overflow,
        /// Retries prevented by `num_retries`
        upstream_rq_retry_limit_exceeded,
        /// Requests that waited for a connection
        upstream_rq_pending_total,
        /// Requests rejected by `max_requests` or `max_pending_requests`
        upstream_rq_pending_overflow,
        /// Connections dialed, including failed ones
        upstream_cx_total,
        /// Connections that failed to open, including TLS handshakes
        upstream_cx_connect_fail,
        /// Connections that exceeded `connect_timeout`
        upstream_cx_connect_timeout,
        /// Connections prevented by `max_connections`
        upstream_cx_overflow,
        /// Active health checks sent
        health_check_attempt = "health_check.attempt",
        /// Health checks that passed
        health_check_success = "health_check.success",
        /// Health checks that failed or were not answered
        health_check_failure = "health_check.failure",
        /// Assignments received with `endpoint_stale_after`
        assignment_timeout_received,
        /// Assignments that expired after `endpoint_stale_after`
        assignment_stale,
        /// Load reports in response headers or trailers that cannot be parsed
        orca_report_errors,
        ;
        /// Responses by status class, `1xx` to `5xx`.
        upstream_rq_completed: [SharedCounter; 5],
        /// Time from sending an attempt to the end of its response.
        upstream_rq_time: Histogram,
        /// Counters of outlier detection, and the number of ejected hosts.
        outliers: ArcSwap<(Vec<Sample>, usize)>,
        /// Counters of the core's balancer.
        balancer: ArcSwap<Vec<Sample>>,
        /// Counters of out-of-band reporting.
        oob: Arc<ArcSwap<OobStats>>,
    }
}

counters! {
    /// Gauges of one cluster.
    pub(crate) struct ClusterGauges("", ["cluster"]): u64 {
        /// Requests in flight, including those waiting for a connection
        upstream_rq_active: gauge,
        /// Requests waiting for a connection
        upstream_rq_pending_active: gauge,
        /// Retries that count against the budget
        upstream_rq_retry_active: gauge,
        /// Connections open or being dialed
        upstream_cx_active: gauge,
        /// Hosts in the cluster
        membership_total: gauge,
        /// Hosts ejected by outlier detection
        ejections_active = "outlier_detection.ejections_active": gauge,
        /// Subsets with at least one host
        lb_subsets_active: gauge,
        /// Hosts ignored because another host already is their single-host subset
        lb_subsets_single_host_per_subset_duplicate: gauge,
    }
}

impl ClusterStats {
    pub(crate) fn count_status(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5);
        self.upstream_rq_completed[class - 1].increment();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_bucket() {
        let times = Histogram::default();
        for millis in [0, 1, 2, 100_000] {
            times.observe(Duration::from_millis(millis));
        }
        let (buckets, milliseconds) = times.read();
        assert_eq!(
            (buckets[0], buckets[1], buckets[2], buckets[16]),
            (1, 1, 1, 1)
        );
        assert_eq!(milliseconds, 100_003.0);
    }

    #[test]
    fn responses_are_counted_by_status_class() {
        let stats = ClusterStats::default();
        for status in [101, 200, 204, 302, 404, 503, 599] {
            stats.count_status(status);
        }
        let counted = stats
            .upstream_rq_completed
            .each_ref()
            .map(SharedCounter::get);
        assert_eq!(counted, [1, 2, 1, 1, 2]);
    }
}
