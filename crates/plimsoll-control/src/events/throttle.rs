//! [`Throttle`]: limits how often a log line is written that a peer can cause at will.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::time::Instant;

/// Lines of one kind within [`WINDOW`]; the rest is counted.
const BURST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Windows of all kinds of lines.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<BTreeMap<&'static str, Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    written: u32,
    suppressed: u64,
}

impl Throttle {
    /// Returns whether to write a line of this kind now: the number of lines that were suppressed
    /// before it, or `None` to suppress it.
    pub(crate) fn admit(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(kind).or_insert(Window {
            since: now,
            written: 0,
            suppressed: 0,
        });
        if now.saturating_duration_since(window.since) >= WINDOW {
            window.since = now;
            window.written = 0;
        }
        if window.written >= BURST {
            window.suppressed += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_in_ten_seconds_are_written_and_the_others_counted() {
        let throttle = Throttle::default();
        let at = Instant::from_secs;
        for _ in 0..10 {
            assert_eq!(throttle.admit("nodes", at(0)), Some(0));
        }
        assert_eq!(throttle.admit("nodes", at(1)), None);
        assert_eq!(throttle.admit("nodes", at(9)), None);
        assert_eq!(throttle.admit("fleets", at(9)), Some(0), "another kind");
        assert_eq!(throttle.admit("nodes", at(10)), Some(2));
        assert_eq!(throttle.admit("nodes", at(11)), Some(0), "said once");
    }
}
