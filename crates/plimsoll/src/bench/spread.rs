//! [`Spread`]: how long updates take from the first proxy that has them to the last.
//!
//! A slow proxy may skip an update: it has one when it has that or a later one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Follows versions of one resource at all proxies.
#[derive(Debug)]
pub(super) struct Spread(Mutex<State>);

#[derive(Debug)]
struct State {
    /// In order of first sight.
    versions: Vec<Version>,
    /// What each proxy has, by its place in `versions`.
    nodes: Vec<Option<usize>>,
    /// Updates before this one do not count.
    counted_from: usize,
    begun: Instant,
}

#[derive(Debug)]
struct Version {
    name: String,
    first: Instant,
    /// Proxies that have this or a later one.
    have: usize,
    /// When the last of them got it.
    last: Instant,
}

/// What became of the updates that counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// How many there were.
    pub(super) updates: usize,
    /// How many of them have not reached everybody.
    pub(super) incomplete: usize,
    /// The longest way from the first proxy to the last.
    pub(super) slowest: Duration,
    /// The middle one.
    pub(super) median: Duration,
    /// From the beginning to the first update.
    pub(super) first_after: Option<Duration>,
}

impl Spread {
    pub(super) fn new(nodes: usize) -> Self {
        Self(Mutex::new(State {
            versions: Vec::new(),
            nodes: vec![None; nodes],
            counted_from: 0,
            begun: Instant::now(),
        }))
    }

    /// Updates count from now on.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        state.counted_from = state.versions.len();
        state.begun = Instant::now();
    }

    /// A proxy has accepted a version. Returns whether it was its first.
    pub(super) fn received(&self, node: usize, version: &str, now: Instant) -> bool {
        self.lock().received(node, version, now)
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.lock().outcome()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn received(&mut self, node: usize, version: &str, now: Instant) -> bool {
        let before = self.nodes[node];
        if before.is_some_and(|index| self.versions[index].name == version) {
            return false;
        }
        let mut newer = self.versions.iter();
        let known = newer.rposition(|known| known.name == version);
        // One that comes back after others is a new update.
        let known = known.filter(|index| before.is_none_or(|before| before < *index));
        let index = known.unwrap_or_else(|| {
            self.versions.push(Version {
                name: version.to_owned(),
                first: now,
                have: 0,
                last: now,
            });
            self.versions.len() - 1
        });
        let missed = before.map_or(0, |before| before + 1);
        for version in &mut self.versions[missed..=index] {
            version.have += 1;
            version.last = now;
        }
        self.nodes[node] = Some(index);
        before.is_none()
    }

    fn outcome(&self) -> Outcome {
        let counted = &self.versions[self.counted_from..];
        let complete = counted
            .iter()
            .filter(|version| version.have == self.nodes.len());
        let mut times: Vec<_> = complete
            .map(|version| version.last.duration_since(version.first))
            .collect();
        times.sort_unstable();
        Outcome {
            updates: counted.len(),
            incomplete: counted.len() - times.len(),
            slowest: times.last().copied().unwrap_or_default(),
            median: times.get(times.len() / 2).copied().unwrap_or_default(),
            first_after: counted
                .first()
                .map(|version| version.first.duration_since(self.begun)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_has_arrived_when_everybody_has_it_or_a_later_one() {
        let spread = Spread::new(2);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        for node in 0..2 {
            spread.received(node, "before", start);
        }
        spread.begin();
        spread.received(0, "a", at(100));
        spread.received(0, "a", at(120));
        spread.received(0, "b", at(200));
        assert_eq!(
            (spread.outcome().updates, spread.outcome().incomplete),
            (2, 2)
        );
        // Skips "a".
        spread.received(1, "b", at(250));
        let outcome = spread.outcome();
        assert_eq!((outcome.updates, outcome.incomplete), (2, 0));
        assert_eq!(outcome.slowest, Duration::from_millis(150));
        spread.received(0, "before", at(300));
        spread.received(1, "before", at(310));
        let outcome = spread.outcome();
        assert_eq!((outcome.updates, outcome.incomplete), (3, 0));
        assert_eq!(outcome.median, Duration::from_millis(50));
    }
}
