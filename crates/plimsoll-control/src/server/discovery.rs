//! [`DiscoveryGate`]: what streams have to know about the sources of services beside the files: the
//! names of their services, and which sources have not been listed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_serve::discovery::SourceStatus;

use crate::config::ControlConfig;
use crate::identity::Rules;
use crate::services::ServiceChanges;
use crate::sources::SourceId;

/// Names of discovered services, and whether discovery streams wait for them.
#[derive(Debug)]
pub(crate) struct DiscoveryGate {
    is_awaited: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Sources that have not been listed since the start.
    awaited: BTreeSet<SourceId>,
    /// Rules with the services of the files.
    file_rules: Arc<Rules>,
    names: BTreeMap<SourceId, BTreeSet<Arc<str>>>,
    /// Status of the sources that run.
    statuses: BTreeMap<SourceId, Arc<SourceStatus>>,
}

impl DiscoveryGate {
    /// Discovery streams are refused until all sources that the configuration has are listed.
    pub(super) fn new(config: &ControlConfig) -> Self {
        let awaited = SourceId::discovered(config);
        Self {
            is_awaited: AtomicBool::new(!awaited.is_empty()),
            known: Mutex::new(Known {
                awaited,
                file_rules: Arc::clone(&config.rules),
                names: BTreeMap::new(),
                statuses: BTreeMap::new(),
            }),
        }
    }

    /// Returns the first source that has not been listed since the start.
    pub(crate) fn awaited(&self) -> Option<SourceId> {
        // Every stream asks, and hardly one has to wait.
        if !self.is_awaited.load(Ordering::Acquire) {
            return None;
        }
        self.lock().awaited.first().copied()
    }

    /// The services of a source are in the views.
    pub(super) fn listed(&self, source: SourceId) {
        let mut known = self.lock();
        known.awaited.remove(&source);
        let is_awaited = !known.awaited.is_empty();
        self.is_awaited.store(is_awaited, Ordering::Release);
    }

    pub(crate) fn statuses(&self) -> BTreeMap<SourceId, Arc<SourceStatus>> {
        self.lock().statuses.clone()
    }

    /// Shows a source that has been started; `None` when it stops.
    pub(crate) fn set_status(&self, source: SourceId, status: Option<Arc<SourceStatus>>) {
        let statuses = &mut self.lock().statuses;
        match status {
            Some(status) => drop(statuses.insert(source, status)),
            None => drop(statuses.remove(&source)),
        }
    }

    /// Returns the rules of edited files, with the names of discovered services.
    pub(super) fn set_file_rules(&self, rules: &Arc<Rules>) -> Arc<Rules> {
        let mut known = self.lock();
        known.file_rules = Arc::clone(rules);
        known.rules()
    }

    /// Returns the rules if the names of the services of a source changed.
    pub(super) fn apply(&self, changes: &ServiceChanges) -> Option<Arc<Rules>> {
        let mut known = self.lock();
        let names = known.names.entry(changes.source).or_default();
        let mut has_changed = false;
        if changes.is_complete {
            let before = names.len();
            names.retain(|name| changes.services.contains_key(name));
            has_changed = names.len() != before;
        }
        for (name, service) in &changes.services {
            has_changed |= match service {
                Some(_) => names.insert(Arc::clone(name)),
                None => names.remove(name),
            };
        }
        has_changed.then(|| known.rules())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn rules(&self) -> Arc<Rules> {
        let mut names = self.names.values().flatten().peekable();
        if names.peek().is_none() {
            return Arc::clone(&self.file_rules);
        }
        let mut rules = Rules::clone(&self.file_rules);
        rules.services.extend(names.cloned());
        Arc::new(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::driver::parse;

    fn changes(is_complete: bool, names: &[&str]) -> ServiceChanges {
        let config = parse("services: [{cluster: {name: x}}]");
        let found = crate::services::Found {
            service: Arc::clone(&config.services["x"]),
            object: Some("Service n/x".into()),
        };
        let named = |name: &&str| (Arc::from(*name), Some(found.clone()));
        ServiceChanges {
            is_complete,
            services: names.iter().map(named).collect(),
            ..ServiceChanges::none(SourceId::Kubernetes)
        }
    }

    fn names(rules: &Rules) -> Vec<&str> {
        rules.services.iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn rules_know_the_services_of_files_and_of_kubernetes() {
        let config = parse("{kubernetes: {}, services: [{cluster: {name: file}}]}");
        let gate = DiscoveryGate::new(&config);
        assert_eq!(gate.awaited(), Some(SourceId::Kubernetes));
        let rules = gate.apply(&changes(true, &["a", "b"])).unwrap();
        assert_eq!(names(&rules), ["a", "b", "file"]);
        assert!(gate.apply(&changes(false, &["b"])).is_none(), "known");
        let edited = parse("services: [{cluster: {name: other}}]");
        let rules = gate.set_file_rules(&edited.rules);
        assert_eq!(names(&rules), ["a", "b", "other"]);
        let rules = gate.apply(&changes(true, &["b"])).unwrap();
        assert_eq!(names(&rules), ["b", "other"]);
        let mut removed = changes(false, &["b"]);
        removed.services.insert("b".into(), None);
        let rules = gate.apply(&removed).unwrap();
        assert_eq!(names(&rules), ["other"]);
        assert!(gate.apply(&removed).is_none(), "removed before");
        assert_eq!(gate.awaited(), Some(SourceId::Kubernetes));
        gate.listed(SourceId::Kubernetes);
        assert_eq!(gate.awaited(), None);
        assert_eq!(DiscoveryGate::new(&edited).awaited(), None);
    }

    #[test]
    fn the_status_of_a_source_is_the_one_that_was_set_last() {
        let gate = DiscoveryGate::new(&parse("{kubernetes: {}, services: []}"));
        let id = SourceId::Kubernetes;
        assert!(gate.statuses().is_empty());
        for _ in 0..2 {
            let status = Arc::new(SourceStatus::default());
            gate.set_status(id, Some(Arc::clone(&status)));
            assert!(Arc::ptr_eq(&gate.statuses()[&id], &status));
        }
        gate.set_status(id, None);
        assert!(gate.statuses().is_empty());
    }
}
