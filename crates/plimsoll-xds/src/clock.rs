//! System clock that yields the core's instants.
//!
//! State machines never read it; drivers pass the time in. All clocks of a process share one
//! origin, so that their instants can be compared.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use plimsoll_core::time::Instant;

static ORIGIN: OnceLock<tokio::time::Instant> = OnceLock::new();

/// Monotonic clock of this process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// Returns the clock of this process.
    pub fn system() -> Self {
        Self {
            origin: *ORIGIN.get_or_init(tokio::time::Instant::now),
        }
    }

    /// Returns the current instant.
    pub fn now(self) -> Instant {
        let passed = tokio::time::Instant::now().saturating_duration_since(self.origin);
        Instant::ORIGIN.saturating_add(passed)
    }

    /// Returns the Unix time at the origin of instants, for timestamps in messages. It is as
    /// inaccurate as the system clock, and does not follow later adjustments.
    pub fn unix_origin(self) -> Duration {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let passed = Duration::from_nanos(self.now().as_nanos());
        since_epoch.unwrap_or_default().saturating_sub(passed)
    }

    /// Sleeps until `deadline`; never resolves if it is `None`.
    pub async fn sleep_until(self, deadline: Option<Instant>) {
        let offset = deadline.map(|deadline| Duration::from_nanos(deadline.as_nanos()));
        let moment = offset.and_then(|offset| self.origin.checked_add(offset));
        match moment {
            Some(moment) => tokio::time::sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_past_deadline_is_due_at_once_and_none_never_comes() {
        let clock = Clock::system();
        clock.sleep_until(Some(Instant::ORIGIN)).await;
        tokio::select! {
            biased;
            () = clock.sleep_until(None) => panic!("no deadline came"),
            () = clock.sleep_until(Some(clock.now())) => {}
        }
    }

    #[test]
    fn all_clocks_agree() {
        let (one, two) = (Clock::system(), Clock::system());
        let before = one.now();
        assert!(two.now() >= before);
    }
}
