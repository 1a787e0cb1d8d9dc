//! Exponential backoff of requests to the API server, with jitter.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
/// After an outage of minutes, the API server is used again within this time.
const LONGEST: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the delay before the next attempt, and doubles its bound.
    pub(super) fn next(&mut self, draw: u64) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        jitter(FIRST.saturating_mul(factor).min(LONGEST), draw)
    }

    /// Returns the delay of a request that is repeated without a failure.
    pub(super) fn shortest(self, draw: u64) -> Duration {
        jitter(FIRST, draw)
    }

    pub(super) const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Draws a delay between half of `bound` and `bound`.
fn jitter(bound: Duration, draw: u64) -> Duration {
    let half = bound / 2;
    let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
    half + Duration::from_nanos(draw % nanos.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_over() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..8).map(|_| backoff.next(0).as_millis()).collect();
        assert_eq!(delays, [125, 250, 500, 1000, 2000, 4000, 7500, 7500]);
        backoff.reset();
        assert_eq!(backoff.next(u64::MAX).as_millis() / 125, 1);
        assert_eq!(backoff.shortest(0), FIRST / 2);
    }
}
