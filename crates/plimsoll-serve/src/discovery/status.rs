//! [`SourceStatus`]: what the admin API, metrics and the dashboard show about a source of services.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::SourceClock;

/// Numbers of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Complete lists that took effect.
    pub lists: u64,
    /// Changes that a watch or a blocking query reported.
    pub events: u64,
    /// Messages that nothing changed: bookmarks, or waits that ended.
    pub confirmations: u64,
    /// Requests that failed, and watches that broke.
    pub failures: u64,
    /// Versions that the server no longer had, so that everything was read again.
    pub resets: u64,
}

/// State of one kind of objects in one namespace or datacenter, or in all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindStatus {
    pub objects: usize,
    pub counts: SourceCounts,
    pub is_synced: bool,
    /// Whether the server answers.
    pub is_connected: bool,
    /// Whether the server does not know the kind.
    pub is_missing: bool,
    /// Objects that the server no longer has and that stay for a while.
    pub held: usize,
    /// Why the latest request failed, and when requests began to fail.
    pub failing: Option<(Instant, String)>,
    /// When the server last sent something.
    pub last_event: Option<Instant>,
}

/// Status of all kinds.
#[derive(Debug, Default)]
pub struct SourceStatus {
    clock: SourceClock,
    kinds: Mutex<BTreeMap<(&'static str, String), KindStatus>>,
}

/// Summary of one kind over all places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindSummary {
    pub kind: &'static str,
    pub status: KindStatus,
    /// Time since the server last sent something; since the start if it never did.
    pub last_event_age: Duration,
}

impl SourceStatus {
    /// Creates a status without kinds.
    pub fn new(clock: SourceClock) -> Self {
        Self {
            clock,
            kinds: Mutex::default(),
        }
    }

    /// Changes the status of a kind in one place, such as a namespace.
    pub fn update(&self, kind: &'static str, place: &str, change: impl FnOnce(&mut KindStatus)) {
        let mut kinds = self.lock();
        change(kinds.entry((kind, place.to_owned())).or_default());
    }

    /// Every kind has been listed.
    pub fn set_synced(&self) {
        for status in self.lock().values_mut() {
            status.is_synced = true;
        }
    }

    /// Whether every kind has been listed.
    pub fn is_synced(&self) -> bool {
        let kinds = self.lock();
        !kinds.is_empty() && kinds.values().all(|status| status.is_synced)
    }

    /// Returns since when requests fail, and why; `None` while all kinds are watched.
    pub fn failing(&self) -> Option<(Duration, String)> {
        let now = self.clock.now();
        let kinds = self.lock();
        let failing = kinds.values().filter_map(|status| status.failing.as_ref());
        let (since, reason) = failing.min_by_key(|(since, _)| *since)?;
        Some((now.saturating_duration_since(*since), reason.clone()))
    }

    /// Returns the number of objects that the server no longer has and that stay for a while.
    pub fn held(&self) -> usize {
        self.lock().values().map(|status| status.held).sum()
    }

    /// Returns the sum over places, by kind.
    pub fn kinds(&self) -> Vec<KindSummary> {
        let kinds = self.lock();
        let mut summaries: BTreeMap<&'static str, KindSummary> = BTreeMap::new();
        for ((kind, _), status) in kinds.iter() {
            let summary = summaries.entry(kind).or_insert_with(|| KindSummary {
                kind,
                status: KindStatus {
                    is_synced: true,
                    is_connected: true,
                    ..KindStatus::default()
                },
                last_event_age: Duration::ZERO,
            });
            summary.status.add(status);
        }
        let now = self.clock.now();
        for summary in summaries.values_mut() {
            let last = summary.status.last_event.unwrap_or(Instant::ORIGIN);
            summary.last_event_age = now.saturating_duration_since(last);
        }
        summaries.into_values().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), KindStatus>> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KindStatus {
    fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        self.held += other.held;
        self.is_synced &= other.is_synced;
        self.is_connected &= other.is_connected;
        self.is_missing |= other.is_missing;
        self.last_event = self.last_event.max(other.last_event);
        if self.failing.is_none() {
            self.failing.clone_from(&other.failing);
        }
        let (sum, one) = (&mut self.counts, other.counts);
        sum.lists += one.lists;
        sum.events += one.events;
        sum.confirmations += one.confirmations;
        sum.failures += one.failures;
        sum.resets += one.resets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_summed_by_kind() {
        let status = SourceStatus::default();
        assert!(!status.is_synced(), "nothing was listed");
        for (namespace, objects) in [("a", 2), ("b", 3)] {
            status.update("Service", namespace, |one| {
                one.objects = objects;
                one.is_synced = true;
                one.counts.lists = 1;
            });
        }
        assert!(status.is_synced());
        let summary = &status.kinds()[0];
        assert_eq!(
            (summary.status.objects, summary.status.counts.lists),
            (5, 2)
        );
        assert_eq!(status.failing(), None);
        status.update("Service", "b", |one| {
            one.failing = Some((Instant::ORIGIN, "refused".to_owned()));
            one.last_event = Some(Instant::ORIGIN);
            one.is_synced = false;
        });
        let (_, reason) = status.failing().unwrap();
        assert_eq!(reason, "refused");
        assert!(status.kinds()[0].last_event_age > Duration::ZERO);
        assert!(!status.is_synced());
        status.set_synced();
        assert!(status.is_synced());
    }
}
