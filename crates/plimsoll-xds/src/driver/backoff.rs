//! [`Backoff`]: how long to wait before the next attempt to reach a server.
//!
//! Exponential from one second to thirty, each pause a random part between a half and the whole, so
//! that a fleet that lost its server does not come back in one moment. Used by both client drivers.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use plimsoll_core::rng::{Rng, Xoshiro256};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Pauses that grow until something worked.
#[derive(Debug)]
pub struct Backoff<R = Xoshiro256> {
    rng: R,
    first: Duration,
    longest: Duration,
    bound: Duration,
}

impl Backoff {
    /// From one second to thirty, seeded by the system.
    pub fn new() -> Self {
        Self::between(FIRST, LONGEST)
    }

    /// Other bounds, seeded by the system.
    pub fn between(first: Duration, longest: Duration) -> Self {
        // Each RandomState has keys of its own.
        let seed = RandomState::new().build_hasher().finish();
        Self::with_rng(first, longest, Xoshiro256::from_seed(seed))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Rng> Backoff<R> {
    /// Other bounds, and chance as an argument.
    pub fn with_rng(first: Duration, longest: Duration, rng: R) -> Self {
        Self {
            rng,
            first,
            longest,
            bound: first,
        }
    }

    /// The pause before the next attempt; the one after it is longer.
    pub fn next_pause(&mut self) -> Duration {
        let half = self.bound / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        let part = self.rng.next_u64() % nanos.saturating_add(1).max(1);
        self.bound = self.bound.saturating_mul(2).min(self.longest);
        half + Duration::from_nanos(part)
    }

    /// It worked: the next pause is a short one again.
    pub fn reset(&mut self) {
        self.bound = self.first;
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rng::Script;

    use super::*;

    fn backoff(draws: &[u64]) -> Backoff<Script> {
        Backoff::with_rng(FIRST, LONGEST, Script::new(draws))
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = backoff(&[]);
        let pauses: Vec<_> = (0..7).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 15000, 15000]);
        backoff.reset();
        assert_eq!(backoff.next_pause().as_millis(), 500);
    }

    #[test]
    fn chance_adds_up_to_the_other_half() {
        let half = 500_000_000;
        assert_eq!(backoff(&[half]).next_pause(), FIRST);
        assert_eq!(backoff(&[half + 1]).next_pause(), FIRST / 2);
        assert_eq!(backoff(&[half / 2]).next_pause(), FIRST * 3 / 4);
    }

    #[test]
    fn a_zero_pause_is_possible() {
        let mut none = Backoff::with_rng(Duration::ZERO, Duration::ZERO, Script::new([7]));
        assert_eq!(none.next_pause(), Duration::ZERO);
    }
}
