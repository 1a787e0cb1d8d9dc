//! [`ResponseTimes`]: how long one host takes to answer, as this proxy's requests see it; the
//! sensor of OBSERVED_LOAD.
//!
//! A request that is answered costs two atomic additions, and nothing where nobody observes. Times
//! are summed as logarithms: their mean is that of the typical request, and a single response that
//! took an hour (a stream whose headers come with its first message) moves it by little. Sum and
//! count share a word, so that no reader sees one without the other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Fraction bits of a logarithm.
const FRACTION: f64 = 4096.0;
/// Low bits of the word: the sum. 22 bits above it count four million answers per window.
const SUM_BITS: u32 = 42;
const ONE: u64 = 1 << SUM_BITS;

/// What happened between two ticks of the balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// Requests issued.
    pub(crate) issued: u64,
    /// Requests in flight that have no response headers yet, at the end of it; filled in by the
    /// balancer, which knows which hosts count.
    pub(crate) waiting: u64,
    /// Successful responses whose headers arrived.
    pub(crate) answered: u64,
    /// Sum over them of log2 of the nanoseconds until the headers.
    pub(crate) log_sum: f64,
}

impl Window {
    /// Both together.
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

/// Counters of a host at some moment. They only grow, modulo 2^64; what happened is a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    answers: u64,
    issued: u64,
}

impl Reading {
    /// What happened since an `earlier` one. The sum may have carried into the count before; the
    /// difference is exact all the same.
    #[expect(clippy::cast_precision_loss, reason = "at most 42 bits")]
    pub(crate) const fn since(self, earlier: Self) -> Window {
        let answers = self.answers.wrapping_sub(earlier.answers);
        Window {
            // Fewer than before: requests that counted as sent were withdrawn.
            issued: self.issued.saturating_sub(earlier.issued),
            waiting: 0,
            answered: answers >> SUM_BITS,
            log_sum: (answers & (ONE - 1)) as f64 / FRACTION,
        }
    }
}

/// Response times of one host.
#[derive(Debug, Default)]
pub(super) struct ResponseTimes {
    /// Answers, and the sum of their logarithms.
    answers: AtomicU64,
    /// Requests that have their headers and have not ended: bodies, streams, tunnels.
    streaming: AtomicU32,
}

impl ResponseTimes {
    /// Response headers arrived; `None` is one that is not timed.
    #[inline]
    pub(super) fn answer(&self, latency: Option<Duration>) {
        self.streaming.fetch_add(1, Ordering::Relaxed);
        if let Some(latency) = latency {
            self.answers
                .fetch_add(ONE | logarithm(latency), Ordering::Relaxed);
        }
    }

    /// A request that was answered has ended.
    #[inline]
    pub(super) fn end_answered(&self) {
        self.streaming.fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests that have their headers and have not ended.
    pub(super) fn streaming(&self) -> u64 {
        u64::from(self.streaming.load(Ordering::Relaxed))
    }

    /// The counters now; `issued` since the host was first seen.
    pub(super) fn read(&self, issued: u64) -> Reading {
        let answers = self.answers.load(Ordering::Relaxed);
        Reading { answers, issued }
    }
}

/// log2 of the nanoseconds, in units of 1/4096; below a nanosecond it is 0.
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
    fn a_window_has_what_happened_since_a_reading() {
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
    fn errors_end_the_waiting_without_being_timed() {
        let times = ResponseTimes::default();
        times.answer(None);
        let window = times.read(1).since(Reading::default());
        assert_eq!((window.answered, times.streaming()), (0, 1));
    }

    #[test]
    fn an_hour_among_many_moves_the_typical_time_by_little() {
        let times = ResponseTimes::default();
        for _ in 0..200 {
            times.answer(Some(Duration::from_millis(50)));
        }
        times.answer(Some(Duration::from_secs(3_600)));
        let window = times.read(201).since(Reading::default());
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
