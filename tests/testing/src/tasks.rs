//! Waiting in tasks of tokio, by polling. The deadline is one of the wall clock, also where a test
//! has paused the time of tokio.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use super::wait::{TIMEOUT, fail_after};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `check` until it returns a value.
///
/// # Panics
/// After a minute, with what it waited for.
pub async fn wait_for<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until `check` holds.
///
/// # Panics
/// After a minute, with what it waited for.
pub async fn wait_until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    wait_for(what, async || check().await.then_some(())).await;
}

/// Waits until what `look` returns is as it should be, and returns it.
///
/// # Panics
/// After a minute, with what it waited for and what it saw last.
pub async fn wait_to_see<T: Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> T,
    mut is: impl FnMut(&T) -> bool,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let seen = look().await;
        if is(&seen) {
            return seen;
        }
        fail_after(deadline, what, &seen);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
