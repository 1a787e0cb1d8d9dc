//! Deadlines of the planner, and a monotonic clock for them.
//!
//! [`Timers`] holds one deadline per key, ordered by time, so that thousands of reporters cost a
//! logarithm each. [`SteadyClock`] turns the driver's `now` into time that never steps back.
//! `planner` decides what happens when a deadline passes.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Instant;

#[derive(Debug)]
pub(super) struct Timers<K> {
    by_key: BTreeMap<K, Instant>,
    by_time: BTreeSet<(Instant, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets the deadline of `key`; `None` cancels it.
    pub(super) fn set(&mut self, key: &K, deadline: Option<Instant>) {
        let before = match deadline {
            Some(at) => self.by_key.insert(key.clone(), at),
            None => self.by_key.remove(key),
        };
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = deadline {
            self.by_time.insert((at, key.clone()));
        }
    }

    /// Removes and returns every key that is due at `now`, earliest first.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.by_time.first()
            && *at <= now
            && let Some((_, key)) = self.by_time.pop_first()
        {
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.by_key.len(), self.by_time.len());
        self.by_time.len()
    }
}

/// Sum of the forward steps of the driver's clock. Clamping to the latest time seen would stop
/// expiry and heartbeats, perhaps for hours, until a clock that stepped back has caught up.
#[derive(Debug)]
pub(super) struct SteadyClock {
    seen: Instant,
    steady: Instant,
}

impl SteadyClock {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            seen: now,
            steady: now,
        }
    }

    pub(super) fn advance(&mut self, now: Instant) -> Instant {
        self.steady = self.peek(now);
        self.seen = now;
        self.steady
    }

    /// Returns the steady time for the driver's `now` without advancing.
    pub(super) fn peek(&self, now: Instant) -> Instant {
        let step = now.saturating_duration_since(self.seen);
        self.steady.saturating_add(step)
    }

    /// Converts a past steady time to the driver's clock, if that clock has not stepped since.
    pub(super) fn to_driver_past(&self, past: Instant) -> Instant {
        let behind = self.steady.saturating_duration_since(past);
        let behind = u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(self.seen.as_nanos().saturating_sub(behind))
    }

    pub(super) fn to_driver(&self, deadline: Instant) -> Instant {
        let ahead = deadline.saturating_duration_since(self.steady);
        self.seen.saturating_add(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(secs: u64) -> Instant {
        Instant::from_secs(secs)
    }

    #[test]
    fn a_key_has_one_deadline() {
        let mut timers = Timers::default();
        timers.set(&"a", Some(at(5)));
        timers.set(&"b", Some(at(3)));
        timers.set(&"a", Some(at(2)));
        assert_eq!((timers.next(), timers.len()), (Some(at(2)), 2));
        timers.set(&"a", Some(at(9)));
        assert_eq!(timers.next(), Some(at(3)));
        timers.set(&"b", None);
        assert_eq!((timers.next(), timers.len()), (Some(at(9)), 1));
        timers.set(&"b", None);
        assert_eq!(timers.len(), 1);
    }

    #[test]
    fn due_keys_are_returned_once_in_order_of_time() {
        let mut timers = Timers::default();
        for (key, secs) in [("late", 9), ("b", 4), ("a", 4), ("first", 1)] {
            timers.set(&key, Some(at(secs)));
        }
        assert_eq!(timers.take_due(at(4)), ["first", "a", "b"]);
        assert!(timers.take_due(at(4)).is_empty());
        assert_eq!((timers.next(), timers.len()), (Some(at(9)), 1));
    }

    #[test]
    fn the_steady_clock_ignores_backward_steps() {
        let mut clock = SteadyClock::new(at(100));
        assert_eq!(clock.advance(at(110)), at(110));
        assert_eq!(clock.to_driver(at(115)), at(115));
        assert_eq!(
            clock.advance(at(50)),
            at(110),
            "no time passes on a backward step"
        );
        assert_eq!(clock.peek(at(53)), at(113));
        assert_eq!(
            clock.advance(at(53)),
            at(113),
            "and it continues from there"
        );
        assert_eq!(clock.to_driver(at(115)), at(55));
        assert_eq!(
            clock.to_driver(at(1)),
            at(53),
            "an overdue deadline is due now"
        );
    }
}
