//! Exponential backoff with jitter, for reconnecting to servers and hosts.
//!
//! The upper bound of the delay doubles with every consecutive failure; jitter spreads clients that
//! failed together. The caller passes in random numbers. Request retries use Envoy's formula, in
//! `plimsoll-client`.

use std::time::Duration;

/// Default bound of the first delay.
pub const FIRST: Duration = Duration::from_secs(1);
/// Default maximum bound of a delay.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Delay bounds that double until [`BackoffBounds::reset`].
#[derive(Clone, Copy, Debug)]
pub struct BackoffBounds {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl BackoffBounds {
    /// Creates a backoff that grows from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// Returns the bound of the next delay and doubles it.
    pub fn next_bound(&mut self) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        bound(self.first, self.longest, failures)
    }

    /// Draws the next delay, at least half of its bound, and doubles the bound.
    pub fn next_delay(&mut self, draw: u64) -> Duration {
        at_least_half(self.next_bound(), draw)
    }

    /// Draws the first delay again, for a repetition without a failure.
    pub fn first_delay(&self, draw: u64) -> Duration {
        at_least_half(self.first, draw)
    }

    /// Resets the bound to its first value after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Default for BackoffBounds {
    fn default() -> Self {
        Self::new(FIRST, LONGEST)
    }
}

/// Returns the upper bound of the delay after `failures` earlier failures.
pub fn bound(first: Duration, longest: Duration, failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

/// Draws a delay between half of `bound` and `bound`.
pub fn at_least_half(bound: Duration, draw: u64) -> Duration {
    let half = bound / 2;
    let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
    half + Duration::from_nanos(draw % nanos.saturating_add(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_double_up_to_the_longest() {
        let mut backoff = BackoffBounds::default();
        let bounds: Vec<_> = (0..7).map(|_| backoff.next_bound().as_secs()).collect();
        assert_eq!(bounds, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.next_bound(), FIRST);
        assert_eq!(bound(FIRST, LONGEST, u32::MAX), LONGEST);
    }

    #[test]
    fn chance_adds_up_to_the_other_half() {
        let half = 500_000_000;
        assert_eq!(at_least_half(FIRST, half), FIRST);
        assert_eq!(at_least_half(FIRST, half + 1), FIRST / 2);
        assert_eq!(at_least_half(FIRST, half / 2), FIRST * 3 / 4);
        assert_eq!(at_least_half(Duration::ZERO, 7), Duration::ZERO);
        assert!(at_least_half(LONGEST, u64::MAX) <= LONGEST);
    }
    #[test]
    fn delays_double_up_to_the_longest_and_start_over() {
        let first = Duration::from_millis(250);
        let mut backoff = BackoffBounds::new(first, Duration::from_secs(15));
        let delays: Vec<u128> = (0..8).map(|_| backoff.next_delay(0).as_millis()).collect();
        assert_eq!(delays, [125, 250, 500, 1000, 2000, 4000, 7500, 7500]);
        backoff.reset();
        assert_eq!(backoff.next_delay(u64::MAX).as_millis() / 125, 1);
        assert_eq!(backoff.first_delay(0), first / 2);
    }
}
