//! Waiting by polling, with a deadline that only failing tests reach.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Time after which a waiting test fails; generous, because a passing test does not depend on it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `check` until it returns a value.
///
/// # Panics
/// After a minute, with what it waited for.
#[track_caller]
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Waits until `check` holds.
///
/// # Panics
/// After a minute, with what it waited for.
#[track_caller]
pub fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    wait_for(what, || check().then_some(()));
}

/// Waits until what `look` returns is as it should be, and returns it.
///
/// # Panics
/// After a minute, with what it waited for and what it saw last.
#[track_caller]
pub fn wait_to_see<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    mut is: impl FnMut(&T) -> bool,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let seen = look();
        if is(&seen) {
            return seen;
        }
        fail_after(deadline, what, &seen);
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Panics after a deadline, with what was expected and what was seen.
#[track_caller]
pub(crate) fn fail_after(deadline: Instant, what: &str, seen: &impl Debug) {
    assert!(
        Instant::now() < deadline,
        "timed out waiting until {what}; last seen: {seen:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_that_is_as_it_should_be_is_returned() {
        let mut looks = 0;
        let look = || {
            looks += 1;
            looks
        };
        assert_eq!(wait_to_see("it is three", look, |seen| *seen == 3), 3);
    }

    #[test]
    #[should_panic(expected = "timed out waiting until it rains; last seen: [\"sun\"]")]
    fn a_failure_says_what_was_seen_last() {
        fail_after(Instant::now(), "it rains", &["sun"]);
    }
}
