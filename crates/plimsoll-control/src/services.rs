//! [`Services`]: the services of all sources, merged, without IO.
//!
//! A source is where services come from: the configuration files, or another system that a task
//! watches. Each names its services by cluster. Of two sources with the same name the one of higher
//! precedence is in force; the other one is a conflict until either drops the name, and takes over
//! if the first does. What a source said last stays until it says something else, so that one that
//! cannot be reached changes nothing, and what is complete for one source says nothing about
//! others.
//!
//! `configuration` is the owner in the state: it passes in the changes of each source, and drains
//! `Services::poll_changed` and [`Services::poll_conflict`].

mod configuration;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_core::evacuation::{Drained, without_drained};
use plimsoll_core::planner::capacity::LearnedCapacity;

use crate::config::{ControlConfig, Service};
use crate::sources::SourceId;

pub(crate) use configuration::{Change, Configuration};

/// A service as a source has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub service: Arc<Service>,
    /// Kind, namespace, name and version of the object that it comes from, for the audit; `None`
    /// for a service of the files, whose place [`ControlConfig::origins`] has.
    pub object: Option<Arc<str>>,
}

/// Services of one source that changed.
#[derive(Clone, Debug)]
pub struct ServiceChanges {
    pub source: SourceId,
    /// Whether these are all services of the source: others are gone.
    pub is_complete: bool,
    /// `None` for services that are gone.
    pub services: BTreeMap<Arc<str>, Option<Found>>,
}

impl ServiceChanges {
    /// All services of the files.
    pub(crate) fn of_files(config: &ControlConfig) -> Self {
        let found = |(name, service): (&Arc<str>, &Arc<Service>)| {
            let service = Arc::clone(service);
            let object = None;
            (Arc::clone(name), Some(Found { service, object }))
        };
        Self {
            services: config.services.iter().map(found).collect(),
            ..Self::none(SourceId::Files)
        }
    }

    /// The source has no services.
    pub const fn none(source: SourceId) -> Self {
        Self {
            source,
            is_complete: true,
            services: BTreeMap::new(),
        }
    }
}

/// Services in force that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedServices {
    pub(crate) names: BTreeSet<Arc<str>>,
    /// Whether more than the endpoints of these services changed.
    pub(crate) settings: bool,
}

impl ChangedServices {
    pub(crate) fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.settings |= other.settings;
    }
}

/// Two sources have a service of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "service {service} is in {} and in {}: that of {} is used",
    used.name(), ignored.name(), used.name()
)]
pub struct Conflict {
    pub service: Arc<str>,
    /// The source whose service is in force.
    pub used: SourceId,
    pub ignored: SourceId,
}

/// The services of all sources.
#[derive(Clone, Debug, Default)]
pub struct Services {
    by_source: BTreeMap<SourceId, BTreeMap<Arc<str>, Found>>,
    in_force: Arc<BTreeMap<Arc<str>, Arc<Service>>>,
    /// Capacity of hosts, of services in force that ask for it, as far as it was learned.
    learned: BTreeMap<Arc<str>, LearnedCapacity>,
    /// Objects that services in force come from.
    objects: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    ignored: BTreeSet<(SourceId, Arc<str>)>,
    /// What is left out of their endpoints.
    drained: Drained,
    changed: ChangedServices,
    conflicts: VecDeque<Conflict>,
}

impl Services {
    /// Adds, replaces and removes services of a source.
    pub fn handle_changes(&mut self, changes: ServiceChanges) {
        let source = changes.source;
        let mut services = changes.services;
        if changes.is_complete {
            let gone = self
                .names(source)
                .filter(|name| !services.contains_key(*name));
            let gone: Vec<_> = gone.map(|name| (Arc::clone(name), None)).collect();
            services.extend(gone);
        }
        for (name, found) in services {
            let own = self.by_source.entry(source).or_default();
            match found {
                Some(found) => drop(own.insert(Arc::clone(&name), found)),
                None => drop(own.remove(&name)),
            }
            self.merge(name);
        }
    }

    /// Leaves out the endpoints that are drained, and puts back those that are not any more.
    pub(crate) fn handle_drained(&mut self, drained: Drained) {
        self.drained = drained;
        let names: BTreeSet<Arc<str>> = self.whole().map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.merge(name);
        }
    }

    /// Returns every service of the source with the highest precedence, with all its endpoints.
    pub fn whole(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Service>)> {
        self.in_force.keys().filter_map(|name| {
            let mut found = SourceId::ALL
                .into_iter()
                .filter_map(|source| self.by_source.get(&source)?.get(name));
            Some((name, &found.next()?.service))
        })
    }

    /// Takes the capacity that was learned of the hosts of a service.
    pub(crate) fn handle_learned(&mut self, name: Arc<str>, learned: LearnedCapacity) {
        self.learned.insert(Arc::clone(&name), learned);
        self.merge(name);
    }

    /// Returns the service as it is in force, with the capacity of its hosts. What was learned of a
    /// service that does not ask for it any more is forgotten.
    fn with_learned(&mut self, name: &Arc<str>, service: &Arc<Service>) -> Arc<Service> {
        if service.learning.is_none() {
            self.learned.remove(name);
        }
        match self.learned.get(name) {
            Some(learned) => service.with_learned(learned),
            None => Arc::clone(service),
        }
    }

    /// Returns which services in force changed since the last call; `None` if none did.
    pub(crate) fn poll_changed(&mut self) -> Option<ChangedServices> {
        let changed = std::mem::take(&mut self.changed);
        (!changed.names.is_empty()).then_some(changed)
    }

    /// Returns the next conflict that began.
    pub fn poll_conflict(&mut self) -> Option<Conflict> {
        self.conflicts.pop_front()
    }

    /// Returns the services in force by name.
    pub const fn in_force(&self) -> &Arc<BTreeMap<Arc<str>, Arc<Service>>> {
        &self.in_force
    }

    /// Returns the names of all services of a source, also of those that are not in force.
    pub fn names(&self, source: SourceId) -> impl Iterator<Item = &Arc<str>> {
        let own = self.by_source.get(&source);
        own.into_iter().flat_map(BTreeMap::keys)
    }

    /// Returns the services of sources that those of another source hide.
    pub const fn ignored(&self) -> &BTreeSet<(SourceId, Arc<str>)> {
        &self.ignored
    }

    /// Returns a configuration with the services in force.
    pub(crate) fn put_into(&self, config: &ControlConfig) -> Arc<ControlConfig> {
        Arc::new(ControlConfig {
            services: Arc::clone(&self.in_force),
            origins: config.origins.with_objects(Arc::clone(&self.objects)),
            ..config.clone()
        })
    }

    /// Puts the service of the source with the highest precedence into force.
    fn merge(&mut self, name: Arc<str>) {
        let by_source = &self.by_source;
        let found = |source| Some((source, by_source.get(&source)?.get(&name)?));
        let mut having = SourceId::ALL.into_iter().filter_map(found);
        let first = having.next();
        let others: Vec<SourceId> = having.map(|(source, _)| source).collect();
        let service = first.map(|(_, found)| in_use(&found.service, &self.drained));
        let object = first.and_then(|(_, found)| found.object.as_ref());
        replace(&mut self.objects, &name, object, |one, other| one == other);
        let used = first.map_or(SourceId::Files, |(source, _)| source);
        let after = match &service {
            Some(service) => Some(self.with_learned(&name, service)),
            None => {
                self.learned.remove(&name);
                None
            }
        };
        let extent = compare(self.in_force.get(&name), after.as_ref());
        // Also the same service of another reading of a file: one copy is enough.
        replace(&mut self.in_force, &name, after.as_ref(), Arc::ptr_eq);
        self.note_conflicts(&name, used, &others);
        if extent > Extent::Nothing {
            self.changed.settings |= extent == Extent::Settings;
            self.changed.names.insert(name);
        }
    }

    fn note_conflicts(&mut self, name: &Arc<str>, used: SourceId, others: &[SourceId]) {
        for ignored in SourceId::ALL {
            let key = (ignored, Arc::clone(name));
            if !others.contains(&ignored) {
                self.ignored.remove(&key);
            } else if self.ignored.insert(key) {
                let service = Arc::clone(name);
                self.conflicts.push_back(Conflict {
                    service,
                    used,
                    ignored,
                });
            }
        }
    }
}

/// Returns a service without the endpoints that are drained.
fn in_use(service: &Arc<Service>, drained: &Drained) -> Arc<Service> {
    match without_drained(&service.assignment, drained) {
        Some(left) => Arc::new(service.with_endpoints(left)),
        None => Arc::clone(service),
    }
}

/// Replaces or removes an entry, and copies a shared map only if it has another value.
fn replace<V: Clone>(
    map: &mut Arc<BTreeMap<Arc<str>, V>>,
    name: &Arc<str>,
    value: Option<&V>,
    is_same: impl Fn(&V, &V) -> bool,
) {
    match (map.get(name), value) {
        (None, None) => {}
        (Some(before), Some(after)) if is_same(before, after) => {}
        (_, Some(after)) => {
            Arc::make_mut(map).insert(Arc::clone(name), after.clone());
        }
        (Some(_), None) => drop(Arc::make_mut(map).remove(name)),
    }
}

/// How much of what is built from a service a change affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    Nothing,
    Endpoints,
    Settings,
}

fn compare(before: Option<&Arc<Service>>, after: Option<&Arc<Service>>) -> Extent {
    match (before, after) {
        (None, None) => Extent::Nothing,
        (Some(before), Some(after)) if Arc::ptr_eq(before, after) || before == after => {
            Extent::Nothing
        }
        (Some(before), Some(after)) if before.has_same_settings(after) => Extent::Endpoints,
        _ => Extent::Settings,
    }
}

#[cfg(test)]
mod tests;
