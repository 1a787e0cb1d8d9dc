//! Measures how long an update takes from the first proxy that has it to the last.
//!
//! A slow proxy may skip an update; it has an update if it has that version or a later one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tracks the versions of one resource at all proxies.
#[derive(Debug)]
pub(crate) struct Spread(Mutex<State>);

#[derive(Debug)]
struct State {
    /// In order of first receipt.
    versions: Vec<Version>,
    /// Index in `versions` of each proxy's version.
    nodes: Vec<Option<usize>>,
    /// Index of the first update that is measured.
    counted_from: usize,
    begun: Instant,
}

#[derive(Debug)]
struct Version {
    name: String,
    first: Instant,
    /// Number of proxies with this version or a later one.
    have: usize,
    /// Time at which the last of them received it.
    last: Instant,
}

/// Results of the measured updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) updates: usize,
    /// Number of updates that have not reached all proxies.
    pub(crate) incomplete: usize,
    /// Maximum time from the first proxy to the last.
    pub(crate) slowest: Duration,
    /// Median time from the first proxy to the last.
    pub(crate) median: Duration,
    /// Time from `begin` to the first update.
    pub(crate) first_after: Option<Duration>,
}

impl Spread {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(State {
            versions: Vec::new(),
            nodes: vec![None; nodes],
            counted_from: 0,
            begun: Instant::now(),
        }))
    }

    /// Starts measuring; earlier updates are ignored.
    pub(crate) fn begin(&self) {
        let mut state = self.lock();
        state.counted_from = state.versions.len();
        state.begun = Instant::now();
    }

    /// Records that a proxy accepted a version; returns whether it was its first.
    pub(crate) fn received(&self, node: usize, version: &str, now: Instant) -> bool {
        self.lock().received(node, version, now)
    }

    pub(crate) fn outcome(&self) -> Outcome {
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
        // A version that returns after others is a new update.
        let known = newer
            .rposition(|known| known.name == version)
            .filter(|index| before.is_none_or(|before| before < *index));
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
