//! [`TokenBucket`]: the token bucket of the local rate limit filter, shared by all workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A token bucket without a lock. Unlike Envoy's, it is filled continuously, at the same rate.
#[derive(Debug)]
pub struct TokenBucket {
    origin: Instant,
    /// Time in which one token is added, in nanoseconds.
    per_token: u64,
    /// Time in which the empty bucket is filled, in nanoseconds.
    capacity: u64,
    /// Time since `origin` at which the bucket is full again, in nanoseconds.
    full_at: AtomicU64,
}

impl TokenBucket {
    /// Creates a full bucket, to which `tokens_per_fill` are added in `fill_interval`.
    pub fn new(max_tokens: u32, tokens_per_fill: u32, fill_interval: Duration) -> Self {
        let interval = u64::try_from(fill_interval.as_nanos()).unwrap_or(u64::MAX);
        let per_token = (interval / u64::from(tokens_per_fill.max(1))).max(1);
        Self {
            origin: Instant::now(),
            per_token,
            capacity: per_token.saturating_mul(u64::from(max_tokens)),
            full_at: AtomicU64::new(0),
        }
    }

    /// Takes a token; returns false if there is none.
    pub fn try_take(&self) -> bool {
        let now = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.try_take_at(now)
    }

    fn try_take_at(&self, now: u64) -> bool {
        let taken = |full_at: u64| {
            let next = full_at.max(now).saturating_add(self.per_token);
            (next - now <= self.capacity).then_some(next)
        };
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .is_ok()
    }
}

impl PartialEq for TokenBucket {
    /// Compares the settings, not the number of tokens.
    fn eq(&self, other: &Self) -> bool {
        (self.per_token, self.capacity) == (other.per_token, other.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_burst_and_then_its_rate() {
        let bucket = TokenBucket::new(3, 2, Duration::from_secs(1));
        let at = |millis: u64| bucket.try_take_at(millis * 1_000_000);
        assert_eq!([at(0), at(0), at(0), at(0)], [true, true, true, false]);
        assert_eq!([at(499), at(500), at(501)], [false, true, false]);
        // No more than `max_tokens` are saved.
        let later = [at(9000), at(9000), at(9000), at(9000)];
        assert_eq!(later, [true, true, true, false]);
    }

    #[test]
    fn tokens_are_taken_at_the_current_time() {
        let bucket = TokenBucket::new(1, 1, Duration::from_secs(3600));
        assert_eq!([bucket.try_take(), bucket.try_take()], [true, false]);
        let fast = TokenBucket::new(1, 1, Duration::from_nanos(1));
        assert_eq!([fast.try_take(), fast.try_take()], [true, true]);
    }

    #[test]
    fn buckets_are_equal_if_their_settings_are() {
        let bucket = |max, rate| TokenBucket::new(max, rate, Duration::from_secs(1));
        let used = bucket(3, 2);
        used.try_take();
        assert_eq!(used, bucket(3, 2));
        assert_ne!(used, bucket(4, 2));
        assert_ne!(used, bucket(3, 3));
    }
}
