//! [`SourceStatus`]: what the admin API, metrics and the dashboard show about the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::time::Instant;

use crate::reflector::ReflectorCounts;
use crate::source::Clock;

/// State of one kind of objects in one namespace, or in all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindStatus {
    pub objects: usize,
    pub counts: ReflectorCounts,
    pub is_synced: bool,
    /// Whether a watch is open, or a list is being read.
    pub is_connected: bool,
    pub is_missing: bool,
    /// Objects that a list lacked and that stay for a while.
    pub held: usize,
    /// Why the latest request failed, and when requests began to fail.
    pub failing: Option<(Instant, String)>,
    /// When an event, bookmark or page last arrived.
    pub last_event: Option<Instant>,
}

/// Status of all kinds.
#[derive(Debug, Default)]
pub struct SourceStatus {
    clock: Clock,
    kinds: Mutex<BTreeMap<(&'static str, String), KindStatus>>,
}

/// Summary of one kind over all namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindSummary {
    pub kind: &'static str,
    pub status: KindStatus,
    /// Time since an event, bookmark or page last arrived; since the start if none did.
    pub last_event_age: Duration,
}

impl SourceStatus {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            kinds: Mutex::default(),
        }
    }

    pub(crate) fn update(
        &self,
        kind: &'static str,
        namespace: &str,
        change: impl FnOnce(&mut KindStatus),
    ) {
        let mut kinds = self.lock();
        change(kinds.entry((kind, namespace.to_owned())).or_default());
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

    /// Returns the number of objects that lists lacked and that stay for a while.
    pub fn held(&self) -> usize {
        self.lock().values().map(|status| status.held).sum()
    }

    /// Returns the sum over namespaces, by kind.
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
        sum.watches += one.watches;
        sum.failures += one.failures;
        sum.gone += one.gone;
        sum.events += one.events;
        sum.bookmarks += one.bookmarks;
        sum.invalid += one.invalid;
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
    }
}
