//! [`Progress`]: what the tasks of one datacenter report, as status and log lines. Thousands of
//! queries that fail together are one log line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::log_line;
use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::{SourceClock, SourceCounts, SourceStatus};

use crate::log_lines;

/// What a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Catalog,
    /// The instances of a service.
    Health,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Health => "health",
        }
    }
}

/// Queries with the time since which they fail, and the reason.
type Failing = BTreeMap<(Kind, Arc<str>), (Instant, String)>;

/// Reports of one datacenter.
#[derive(Debug)]
pub(super) struct Progress {
    status: Arc<SourceStatus>,
    datacenter: String,
    clock: SourceClock,
    /// The query of the catalog has an empty name.
    failing: Mutex<Failing>,
    /// Numbers of instances and of those that are kept, by service.
    instances: Mutex<BTreeMap<Arc<str>, (usize, usize)>>,
}

impl Progress {
    pub(super) fn new(status: Arc<SourceStatus>, datacenter: String, clock: SourceClock) -> Self {
        // From the start on, readiness waits for the datacenter.
        for kind in [Kind::Catalog, Kind::Health] {
            status.update(kind.name(), &datacenter, |_| {});
        }
        Self {
            status,
            datacenter,
            clock,
            failing: Mutex::default(),
            instances: Mutex::default(),
        }
    }

    pub(super) fn datacenter(&self) -> &str {
        &self.datacenter
    }

    /// A query was answered.
    pub(super) fn answered(&self, kind: Kind, query: &Arc<str>, counts: SourceCounts) {
        let mut failing = lock(&self.failing);
        let was_failing = failing.remove(&(kind, Arc::clone(query))).is_some();
        if was_failing && failing.is_empty() {
            let datacenter = &self.datacenter;
            log_line!(log_lines::AGENT_BACK, datacenter);
        }
        let first = oldest(&failing, kind);
        drop(failing);
        let now = self.clock.now();
        self.status.update(kind.name(), &self.datacenter, |status| {
            status.is_connected = first.is_none();
            status.failing = first;
            status.last_event = Some(now);
            status.counts.lists += counts.lists;
            status.counts.events += counts.events;
            status.counts.confirmations += counts.confirmations;
            status.counts.resets += counts.resets;
        });
    }

    /// A query failed for this reason. The first one of many is logged.
    pub(super) fn failed(&self, kind: Kind, query: &Arc<str>, reason: String) {
        let mut failing = lock(&self.failing);
        if failing.is_empty() {
            let datacenter = &self.datacenter;
            log_line!(log_lines::AGENT_LOST, datacenter, reason);
        }
        let now = self.clock.now();
        let entry = failing.entry((kind, Arc::clone(query)));
        entry.or_insert((now, String::new())).1 = reason;
        let first = oldest(&failing, kind);
        drop(failing);
        self.status.update(kind.name(), &self.datacenter, |status| {
            status.is_connected = false;
            status.failing = first;
            status.counts.failures += 1;
        });
    }

    /// The catalog has this many services.
    pub(super) fn listed(&self, services: usize) {
        self.status
            .update(Kind::Catalog.name(), &self.datacenter, |status| {
                status.objects = services;
            });
    }

    /// A service has this many instances, of which some are kept.
    pub(super) fn instances(&self, service: &Arc<str>, known: usize, held: usize) {
        lock(&self.instances).insert(Arc::clone(service), (known, held));
        self.count_instances();
    }

    /// A service is gone.
    pub(super) fn removed(&self, service: &Arc<str>) {
        lock(&self.instances).remove(service);
        let mut failing = lock(&self.failing);
        failing.remove(&(Kind::Health, Arc::clone(service)));
        let first = oldest(&failing, Kind::Health);
        drop(failing);
        let kind = Kind::Health.name();
        self.status.update(kind, &self.datacenter, |status| {
            status.is_connected = first.is_none();
            status.failing = first;
        });
        self.count_instances();
    }

    fn count_instances(&self) {
        let instances = lock(&self.instances);
        let sum = |of: fn(&(usize, usize)) -> usize| instances.values().map(of).sum();
        let (known, held) = (sum(|one| one.0), sum(|one| one.1));
        let kind = Kind::Health.name();
        self.status.update(kind, &self.datacenter, |status| {
            status.objects = known;
            status.held = held;
        });
    }
}

fn oldest(failing: &Failing, kind: Kind) -> Option<(Instant, String)> {
    let of_kind = failing.iter().filter(|((one, _), _)| *one == kind);
    let first = of_kind.min_by_key(|(_, (since, _))| *since);
    first.map(|(_, failing)| failing.clone())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Every critical section leaves the data consistent, so poisoning can be ignored.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
