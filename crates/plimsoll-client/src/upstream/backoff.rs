//! [`ConnectBackoff`]: exponential backoff of a host after failed connection attempts.
//!
//! A host in backoff is not picked while another is available; if all are in backoff, one is used
//! anyway. The caller passes in the time and a random number.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use plimsoll_core::time::Instant;
use plimsoll_xds::backoff::{FIRST, LONGEST, at_least_half, bound};

#[derive(Debug, Default)]
pub(crate) struct ConnectBackoff {
    failures: AtomicU32,
    /// Instant at which the backoff ends, in nanoseconds; 0 means not in backoff.
    until: AtomicU64,
}

impl ConnectBackoff {
    /// Starts or extends the backoff; the random `draw` adds jitter.
    pub(crate) fn handle_failure(&self, draw: u64, now: Instant) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        let pause = at_least_half(bound(FIRST, LONGEST, failures), draw);
        let until = now.saturating_add(pause);
        self.until.store(until.as_nanos().max(1), Ordering::Relaxed);
    }

    pub(crate) fn handle_success(&self) {
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the host is in backoff. Reads the clock only if a connection failed before.
    #[inline]
    pub(crate) fn is_active(&self, now: impl FnOnce() -> Instant) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && now().as_nanos() < until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn backoff_ends_with_its_pause_or_with_a_successful_connection() {
        let backoff = ConnectBackoff::default();
        assert!(!backoff.is_active(|| panic!("the clock must not be read")));
        backoff.handle_failure(0, at(1000));
        assert!(backoff.is_active(|| at(1499)));
        assert!(!backoff.is_active(|| at(1500)));
        backoff.handle_failure(0, at(1600));
        assert!(backoff.is_active(|| at(2599)));
        backoff.handle_success();
        assert!(!backoff.is_active(|| at(1601)));
        backoff.handle_failure(0, at(3000));
        assert!(!backoff.is_active(|| at(3500)), "it starts over");
    }
}
