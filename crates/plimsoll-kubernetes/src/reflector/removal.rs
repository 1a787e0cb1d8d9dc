//! [`RemovalGuard`]: a list that lost much of what was known is not believed at once.
//!
//! Deletions that a watch reports are explicit and always followed. A list after an outage is not:
//! if etcd was restored from an old backup or starts empty, Pods run on and serve while the API
//! knows nothing of them. Objects that such a list lacks are kept for a while; they go when that
//! time is over, when the watch reports them deleted, and they stay when they are listed again.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::time::Instant;

use crate::objects::ObjectKey;

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
#[derive(Debug)]
pub(super) struct Held {
    pub(super) keys: BTreeSet<ObjectKey>,
    pub(super) until: Instant,
}

impl RemovalGuard {
    /// Whether removals of a list that has `lost` fewer than the `known` objects wait.
    pub(super) fn holds(self, lost: usize, known: usize) -> bool {
        lost as u64 * 100 > known as u64 * u64::from(self.max_removed_percent)
    }

    pub(super) fn deadline(self, now: Instant) -> Instant {
        now.saturating_add(self.delay)
    }
}
