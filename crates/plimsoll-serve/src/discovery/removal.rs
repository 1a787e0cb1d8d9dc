//! [`RemovalGuard`]: an answer that lost much of what was known is not followed at once.
//!
//! Deletions that a watch reports are explicit and always followed. A complete list after an outage
//! is not: if the store behind the API was restored from an old backup or starts empty, programs
//! run on and serve while the API knows nothing of them. What such a list lacks is kept for a
//! while; it goes when that time is over, when it is reported deleted, and it stays when it is
//! listed again.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::time::Instant;

/// When objects that a list lacks are removed at once, and when after a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalGuard {
    /// Largest part of the objects that a list may remove at once.
    pub max_removed_percent: u32,
    /// How long the others stay.
    pub delay: Duration,
}

impl Default for RemovalGuard {
    fn default() -> Self {
        Self {
            max_removed_percent: 50,
            delay: Duration::from_secs(300),
        }
    }
}

/// Objects that the last list lacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<K> {
    pub keys: BTreeSet<K>,
    pub until: Instant,
}

impl RemovalGuard {
    /// Whether removals of a list that has `lost` fewer than the `known` objects wait.
    pub const fn holds(self, lost: usize, known: usize) -> bool {
        lost as u64 * 100 > known as u64 * self.max_removed_percent as u64
    }

    /// Returns until when they wait.
    pub fn deadline(self, now: Instant) -> Instant {
        now.saturating_add(self.delay)
    }
}
