//! [`DiscoveryGate`]: what streams have to know about discovered services: their names, and that
//! they have not been listed yet.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_kubernetes::SourceStatus;

use crate::config::ControlConfig;
use crate::identity::Rules;
use crate::state::DiscoveredChanges;

/// Names of discovered services, and whether discovery streams wait for them.
#[derive(Debug)]
pub(crate) struct DiscoveryGate {
    is_awaited: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Rules with the services of the files.
    file_rules: Arc<Rules>,
    names: BTreeSet<Arc<str>>,
    /// Status of the mirror of a Kubernetes cluster.
    status: Option<Arc<SourceStatus>>,
}

impl DiscoveryGate {
    /// With services of Kubernetes, discovery streams are refused until these are listed.
    pub(super) fn new(config: &ControlConfig) -> Self {
        Self {
            is_awaited: AtomicBool::new(config.kubernetes.is_some()),
            known: Mutex::new(Known {
                file_rules: Arc::clone(&config.rules),
                names: BTreeSet::new(),
                status: None,
            }),
        }
    }

    /// Whether discovered services have not been listed since the start.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire)
    }

    pub(super) fn open(&self) {
        self.is_awaited.store(false, Ordering::Release);
    }

    pub(crate) fn status(&self) -> Option<Arc<SourceStatus>> {
        self.lock().status.clone()
    }

    pub(crate) fn set_status(&self, status: Option<Arc<SourceStatus>>) {
        self.lock().status = status;
    }

    /// Returns the rules of edited files, with the names of discovered services.
    pub(super) fn set_file_rules(&self, rules: &Arc<Rules>) -> Arc<Rules> {
        let mut known = self.lock();
        known.file_rules = Arc::clone(rules);
        known.rules()
    }

    /// Returns the rules if the names of discovered services changed.
    pub(super) fn apply(&self, changes: &DiscoveredChanges) -> Option<Arc<Rules>> {
        let mut known = self.lock();
        let before = known.names.len();
        let mut has_changed = false;
        if changes.is_complete {
            let is_listed = |name: &Arc<str>| changes.services.contains_key(name);
            known.names.retain(is_listed);
            has_changed = known.names.len() != before;
        }
        for (name, service) in &changes.services {
            has_changed |= match service {
                Some(_) => known.names.insert(Arc::clone(name)),
                None => known.names.remove(name),
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
        if self.names.is_empty() {
            return Arc::clone(&self.file_rules);
        }
        let mut rules = Rules::clone(&self.file_rules);
        rules.services.extend(self.names.iter().cloned());
        Arc::new(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::driver::parse;

    fn changes(is_complete: bool, names: &[&str]) -> DiscoveredChanges {
        let config = parse("services: [{cluster: {name: x}}]");
        let discovered = crate::state::DiscoveredService {
            service: Arc::clone(&config.services["x"]),
            origin: "Service n/x".into(),
        };
        let named = |name: &&str| (Arc::from(*name), Some(discovered.clone()));
        DiscoveredChanges {
            is_complete,
            services: names.iter().map(named).collect(),
        }
    }

    fn names(rules: &Rules) -> Vec<&str> {
        rules.services.iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn rules_know_the_services_of_files_and_of_kubernetes() {
        let config = parse("{kubernetes: {}, services: [{cluster: {name: file}}]}");
        let gate = DiscoveryGate::new(&config);
        assert!(gate.is_awaited());
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
        assert!(gate.is_awaited());
        gate.open();
        assert!(!gate.is_awaited());
        assert!(!DiscoveryGate::new(&edited).is_awaited());
    }

    #[test]
    fn the_status_of_the_mirror_is_the_one_that_was_set_last() {
        let gate = DiscoveryGate::new(&parse("{kubernetes: {}, services: []}"));
        assert!(gate.status().is_none());
        let status = Arc::new(SourceStatus::default());
        gate.set_status(Some(Arc::clone(&status)));
        assert!(Arc::ptr_eq(&gate.status().unwrap(), &status));
        gate.set_status(None);
        assert!(gate.status().is_none());
    }
}
