//! [`Clock`]: the time of the core, read from the monotonic clock of the system.
//!
//! Machines never read it; drivers pass it in. One process has one origin, so that instants of
//! different drivers can be compared.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use plimsoll_core::time::Instant;

static ORIGIN: OnceLock<tokio::time::Instant> = OnceLock::new();

/// The clock of this process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// The one clock.
    pub fn system() -> Self {
        Self {
            origin: *ORIGIN.get_or_init(tokio::time::Instant::now),
        }
    }

    /// What time it is.
    pub fn now(self) -> Instant {
        let passed = tokio::time::Instant::now().saturating_duration_since(self.origin);
        Instant::ORIGIN.saturating_add(passed)
    }

    /// Unix time at the origin of instants, for messages that carry times. Wrong by as much as the
    /// system's clock is, or was set since.
    pub fn unix_origin(self) -> Duration {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let passed = Duration::from_nanos(self.now().as_nanos());
        since_epoch.unwrap_or_default().saturating_sub(passed)
    }

    /// Waits for `deadline`, for ever if there is none.
    pub async fn sleep_until(self, deadline: Option<Instant>) {
        match deadline {
            None => std::future::pending().await,
            Some(deadline) => {
                let offset = Duration::from_nanos(deadline.as_nanos());
                match self.origin.checked_add(offset) {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            }
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
