//! Reconnect backoff with random jitter, seeded by the system. The formula is in
//! `plimsoll_core::backoff`.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use plimsoll_core::backoff::{BackoffBounds, FIRST, LONGEST};
use plimsoll_core::rng::{Rng as _, Xoshiro256};

/// Delays that double until [`Backoff::reset`], with jitter so that a fleet that lost its server
/// does not reconnect all at once.
#[derive(Debug)]
pub struct Backoff {
    rng: Xoshiro256,
    bounds: BackoffBounds,
}

impl Backoff {
    /// Creates a backoff whose upper bound grows from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        // Each `RandomState` has random keys, which seed the jitter.
        let seed = RandomState::new().build_hasher().finish();
        Self {
            rng: Xoshiro256::from_seed(seed),
            bounds: BackoffBounds::new(first, longest),
        }
    }

    /// Returns the delay before the next attempt and doubles the bound.
    pub fn next_delay(&mut self) -> Duration {
        self.bounds.next_delay(self.rng.next_u64())
    }

    /// Resets the upper bound of the delay after a success.
    pub const fn reset(&mut self) {
        self.bounds.reset();
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(FIRST, LONGEST)
    }
}
