//! [`ConnectBackoff`]: how long a host that could not be reached is left alone.
//!
//! A host in back-off is not picked while there is another; when there is none it is tried all the
//! same. Pure but for its atomics: time and chance are arguments.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Failures in a row, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct ConnectBackoff {
    failures: AtomicU32,
    /// Nanoseconds; 0 is not in back-off.
    until: AtomicU64,
    failed_at: AtomicU64,
}

impl ConnectBackoff {
    /// A connection failed; `draw` spreads those who failed together.
    pub(crate) fn handle_failure(&self, draw: u64, now: Instant) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        let until = now.saturating_add(pause(failures, draw));
        self.until.store(until.as_nanos().max(1), Ordering::Relaxed);
        self.failed_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// A connection succeeded.
    pub(crate) fn handle_success(&self) {
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the host is to be left alone. The clock is read only if that is possible.
    #[inline]
    pub(crate) fn is_active(&self, now: impl FnOnce() -> Instant) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && now().as_nanos() < until
    }

    /// Whether a connection failed after `moment`, and none succeeded since.
    pub(crate) fn failed_since(&self, moment: Instant) -> bool {
        self.until.load(Ordering::Relaxed) != 0
            && self.failed_at.load(Ordering::Relaxed) > moment.as_nanos()
    }
}

/// After `failures` earlier ones: doubling, of which a random part between a half and the whole.
fn pause(failures: u32, draw: u64) -> Duration {
    let factor = 1_u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX);
    let bound = FIRST.saturating_mul(factor).min(LONGEST);
    let half = u64::try_from((bound / 2).as_nanos()).unwrap_or(u64::MAX);
    bound / 2 + Duration::from_nanos(draw % half.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<_> = (0..7)
            .map(|failures| pause(failures, 0).as_millis())
            .collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        assert!(pause(u32::MAX, u64::MAX) <= LONGEST);
    }

    #[test]
    fn a_host_is_left_alone_until_its_pause_is_over_or_it_answers() {
        let backoff = ConnectBackoff::default();
        assert!(!backoff.is_active(|| panic!("no reason to read the clock")));
        backoff.handle_failure(0, at(1000));
        assert!(backoff.is_active(|| at(1499)));
        assert!(!backoff.is_active(|| at(1500)));
        assert!(backoff.failed_since(at(999)) && !backoff.failed_since(at(1000)));
        backoff.handle_failure(0, at(1600));
        assert!(backoff.is_active(|| at(2599)));
        backoff.handle_success();
        assert!(!backoff.is_active(|| at(1601)));
        backoff.handle_failure(0, at(3000));
        assert!(!backoff.is_active(|| at(3500)), "it starts over");
    }
}
