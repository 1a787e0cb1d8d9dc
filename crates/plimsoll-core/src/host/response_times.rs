//! Response times of one host as this proxy sees them: the signal of OBSERVED_LOAD.
//!
//! Recording a response costs two atomic additions, and nothing if no driver records them. Response
//! times are summed as logarithms: their mean is that of the typical request, and a single response
//! that took an hour (a stream whose headers come with its first message) changes the mean little.
//! Sum and count share a word, so that no reader sees one without the other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Units of a stored logarithm per doubling of the response time: 12 fraction bits.
const FRACTION: f64 = 4096.0;
/// Low bits of `answers`, which hold the sum; the 22 above count four million responses per window.
const SUM_BITS: u32 = 42;
const ONE: u64 = 1 << SUM_BITS;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    pub(crate) issued: u64,
    /// Requests without response headers at the end of the window; filled in by the balancer.
    pub(crate) waiting: u64,
    /// Successful responses whose headers arrived in the window.
    pub(crate) answered: u64,
    /// Sum over the `answered` responses of log2 of the nanoseconds until their headers.
    pub(crate) log_sum: f64,
}

impl Window {
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            issued: self.issued + other.issued,
            waiting: self.waiting + other.waiting,
            answered: self.answered + other.answered,
            log_sum: self.log_sum + other.log_sum,
        }
    }
}

/// Counters of a host at one time; a window is the difference of two. `answers` wraps at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseCounters {
    answers: u64,
    issued: u64,
}

impl ResponseCounters {
    /// Requests and responses since `earlier`; exact even if the sum carried into the count.
    #[expect(clippy::cast_precision_loss, reason = "at most 42 bits")]
    pub(crate) const fn since(self, earlier: Self) -> Window {
        let answers = self.answers.wrapping_sub(earlier.answers);
        Window {
            // The count of issued requests can go back, because unsent ones are withdrawn.
            issued: self.issued.saturating_sub(earlier.issued),
            waiting: 0,
            answered: answers >> SUM_BITS,
            log_sum: (answers & (ONE - 1)) as f64 / FRACTION,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ResponseTimes {
    /// High 22 bits: number of timed responses; low 42: sum of the logarithms of their durations.
    answers: AtomicU64,
    /// Requests whose response headers arrived and that have not ended: bodies, streams, tunnels.
    streaming: AtomicU32,
}

impl ResponseTimes {
    /// Records that response headers arrived; without `latency` the response is not timed.
    #[inline]
    pub(super) fn answer(&self, latency: Option<Duration>) {
        self.streaming.fetch_add(1, Ordering::Relaxed);
        if let Some(latency) = latency {
            self.answers
                .fetch_add(ONE | logarithm(latency), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn end_answered(&self) {
        self.streaming.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn streaming(&self) -> u64 {
        u64::from(self.streaming.load(Ordering::Relaxed))
    }

    /// Reads the counters; `issued` is the total since the host was first seen.
    pub(super) fn read(&self, issued: u64) -> ResponseCounters {
        let answers = self.answers.load(Ordering::Relaxed);
        ResponseCounters { answers, issued }
    }
}

/// Returns log2 of the nanoseconds, in units of 1/4096; 0 below a nanosecond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "0 to 64 times 4096"
)]
fn logarithm(latency: Duration) -> u64 {
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    ((nanos.max(1) as f64).log2() * FRACTION) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_difference_of_two_readings() {
        let times = ResponseTimes::default();
        let start = times.read(0);
        for nanos in [1 << 20, 1 << 22] {
            times.answer(Some(Duration::from_nanos(nanos)));
        }
        let first = times.read(7);
        let window = first.since(start);
        assert_eq!((window.issued, window.answered), (7, 2));
        assert_eq!(window.log_sum, 42.0);
        assert_eq!(times.streaming(), 2);
        times.end_answered();
        times.end_answered();
        let next = times.read(9).since(first);
        assert_eq!((next.issued, next.answered), (2, 0));
        assert_eq!((next.log_sum, times.streaming()), (0.0, 0));
        assert_eq!(times.read(9).since(start).answered, 2, "read by another");
    }

    #[test]
    fn errors_are_not_timed() {
        let times = ResponseTimes::default();
        times.answer(None);
        let window = times.read(1).since(ResponseCounters::default());
        assert_eq!((window.answered, times.streaming()), (0, 1));
    }

    #[test]
    fn one_outlier_moves_the_mean_by_little() {
        let times = ResponseTimes::default();
        for _ in 0..200 {
            times.answer(Some(Duration::from_millis(50)));
        }
        times.answer(Some(Duration::from_secs(3_600)));
        let window = times.read(201).since(ResponseCounters::default());
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let typical = (window.log_sum / window.answered as f64).exp2() / 1e6;
        assert!((50.0..55.0).contains(&typical), "{typical} ms");
    }

    #[test]
    fn counters_may_have_wrapped_around() {
        let times = ResponseTimes::default();
        for start in [0, ONE - 1, u64::MAX, u64::MAX - ONE / 2] {
            times.answers.store(start, Ordering::Relaxed);
            let before = times.read(0);
            for _ in 0..1_000 {
                times.answer(Some(Duration::from_nanos(1 << 30)));
            }
            let window = times.read(0).since(before);
            assert_eq!((window.answered, window.log_sum), (1_000, 30_000.0));
        }
    }
}
