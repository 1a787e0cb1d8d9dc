//! [`Inventory`]: the objects of a cluster, joined to Services; a state machine without IO.
//!
//! It takes changes of Services, EndpointSlices and policies in any order, and returns the Services
//! that they affect. One change of one slice costs the merge of one Service, not of all.
//!
//! A Service that is scaled to zero keeps a slice without endpoints. A Service without any slice
//! was just created, or its slices were deleted and are about to be recreated: its last endpoints
//! stay for [`RECREATION_GRACE`]. For as long, slices with the former name of a port still count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;

use crate::budget::{Budgets, NamespaceLimits, OverLimit};
use crate::merge::{AddressFamily, FormerNames, PortEndpoints, merge, usage};
use crate::objects::{EndpointSlice, ObjectKey, Service, ZoneRoutingPolicy};
use crate::reflector::Change;
use crate::settings::{SettingError, Settings, collect, is_ignored};

/// How long the endpoints of a Service whose slices were all deleted stay. The endpoint slice
/// controller recreates them within a second.
pub const RECREATION_GRACE: Duration = Duration::from_secs(10);

/// A Service with the endpoints of its ports.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredService {
    pub service: Arc<Service>,
    pub ports: Vec<ServicePort>,
    /// Why the Service's `plimsoll.dev/ignore` cannot be used.
    pub error: Option<SettingError>,
    /// The limit that the Service exceeds. It has no ports then: those that were accepted last are
    /// in force.
    pub over_limit: Option<OverLimit>,
}

/// A port of a Service: a cluster of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePort {
    pub endpoints: PortEndpoints,
    pub settings: Settings,
}

/// How Services are read.
#[derive(Clone, Debug, Default)]
pub struct InventoryOptions {
    pub address_family: AddressFamily,
    /// Zone of endpoints without one.
    pub fallback_zone: Option<Arc<str>>,
    pub limits: NamespaceLimits,
}

/// Objects of a cluster.
#[derive(Debug)]
pub struct Inventory {
    options: InventoryOptions,
    services: BTreeMap<ObjectKey, Arc<Service>>,
    /// Slices by Service and name.
    slices: BTreeMap<ObjectKey, SlicesOfService>,
    /// Service of each slice, because the label of a slice can change.
    owners: BTreeMap<ObjectKey, ObjectKey>,
    policies: BTreeMap<ObjectKey, Arc<ZoneRoutingPolicy>>,
    budgets: Budgets,
    /// Former names of ports, and until when they count.
    renamed: BTreeMap<ObjectKey, (FormerNames, Instant)>,
    /// Services that changed, with the time of their creation: after a start, the oldest are within
    /// the limits of their namespace.
    changed: BTreeSet<(Arc<str>, ObjectKey)>,
}

#[derive(Debug, Default)]
struct SlicesOfService {
    by_name: BTreeMap<Arc<str>, Arc<EndpointSlice>>,
    /// Deleted slices of a Service that has no others, and until when they count.
    retained: Option<(Vec<Arc<EndpointSlice>>, Instant)>,
}

impl Default for Inventory {
    fn default() -> Self {
        Self::new(InventoryOptions::default())
    }
}

impl Inventory {
    /// Creates an inventory without objects.
    pub fn new(options: InventoryOptions) -> Self {
        Self {
            budgets: Budgets::new(options.limits),
            options,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            owners: BTreeMap::new(),
            policies: BTreeMap::new(),
            renamed: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Processes a change of a Service.
    pub fn handle_service(&mut self, change: Change<Service>, now: Instant) {
        let key = match change {
            Change::Applied(service) => {
                let key = service.key.clone();
                let before = self.services.insert(key.clone(), Arc::clone(&service));
                if let Some(before) = before {
                    self.note_renamed(&before, &service, now);
                }
                key
            }
            Change::Deleted(key) => {
                self.services.remove(&key);
                self.renamed.remove(&key);
                key
            }
        };
        self.mark(key);
    }

    /// Processes a change of an EndpointSlice.
    pub fn handle_slice(&mut self, change: Change<EndpointSlice>, now: Instant) {
        match change {
            Change::Applied(slice) => {
                let owner = slice.service.as_ref().map(|service| ObjectKey {
                    namespace: Arc::clone(&slice.key.namespace),
                    name: Arc::clone(service),
                });
                if self.owners.get(&slice.key) != owner.as_ref() {
                    self.remove_slice(&slice.key, now);
                }
                let Some(owner) = owner else {
                    return;
                };
                self.owners.insert(slice.key.clone(), owner.clone());
                let slices = self.slices.entry(owner.clone()).or_default();
                slices.retained = None;
                slices.by_name.insert(Arc::clone(&slice.key.name), slice);
                self.mark(owner);
            }
            Change::Deleted(key) => self.remove_slice(&key, now),
        }
    }

    /// Processes a change of a policy.
    pub fn handle_policy(&mut self, change: Change<ZoneRoutingPolicy>) {
        let before = match change {
            Change::Applied(policy) => {
                self.mark_targets(&policy);
                self.policies.insert(policy.key.clone(), policy)
            }
            Change::Deleted(key) => self.policies.remove(&key),
        };
        if let Some(before) = before {
            self.mark_targets(&before);
        }
    }

    /// Drops endpoints whose slices were deleted, or kept the former name of a port, for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut expired = Vec::new();
        self.slices.retain(|key, slices| {
            let is_due = slices.retained.as_ref().is_some_and(|(_, at)| *at <= now);
            if is_due {
                slices.retained = None;
                expired.push(key.clone());
            }
            !(is_due && slices.by_name.is_empty())
        });
        self.renamed.retain(|key, (_, until)| {
            let is_due = *until <= now;
            expired.extend(is_due.then(|| key.clone()));
            !is_due
        });
        expired.into_iter().for_each(|key| self.mark(key));
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let retained = self.slices.values().filter_map(|one| one.retained.as_ref());
        let renamed = self.renamed.values().map(|(_, until)| *until);
        retained.map(|(_, until)| *until).chain(renamed).min()
    }

    /// Whether [`Self::poll_changed`] has something to return.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns a Service that changed; `None` in place of the Service if it is gone or ignored.
    pub fn poll_changed(&mut self) -> Option<(ObjectKey, Option<DiscoveredService>)> {
        let (_, key) = self.changed.pop_first()?;
        let namespace = Arc::clone(&key.namespace);
        let before = self.budgets.used(&namespace);
        let discovered = self.discovered(&key);
        if discovered.is_none() {
            self.budgets.release(&key);
        }
        let after = self.budgets.used(&namespace);
        if before
            .iter()
            .zip(after)
            .any(|(before, after)| after < *before)
        {
            let refused: Vec<_> = self.budgets.refused(&namespace).cloned().collect();
            for name in refused {
                let namespace = Arc::clone(&namespace);
                self.mark(ObjectKey { namespace, name });
            }
        }
        Some((key, discovered))
    }

    /// Returns all policies, also those whose targets do not exist.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<ZoneRoutingPolicy>> {
        self.policies.values()
    }

    fn discovered(&mut self, key: &ObjectKey) -> Option<DiscoveredService> {
        let service = self.services.get(key)?;
        let error = match is_ignored(service) {
            Ok(true) => return None,
            Ok(false) => None,
            Err(error) => Some(error),
        };
        let found = |ports, over_limit| DiscoveredService {
            service: Arc::clone(service),
            ports,
            error,
            over_limit,
        };
        let ports = service.ports.iter().filter(|port| port.is_tcp).count();
        if let Err(over_limit) = self.budgets.check_ports(ports) {
            self.budgets.refuse(key);
            return Some(found(Vec::new(), Some(over_limit)));
        }
        let none = SlicesOfService::default();
        let slices = self.slices.get(key).unwrap_or(&none);
        let retained = slices.retained.iter().flat_map(|(slices, _)| slices);
        let all = slices.by_name.values().chain(retained).map(AsRef::as_ref);
        let unchanged = FormerNames::new();
        let former = self.renamed.get(key).map_or(&unchanged, |(names, _)| names);
        let (family, zone) = (self.options.address_family, &self.options.fallback_zone);
        let used = usage(service, all.clone(), family, former);
        if let Err(over_limit) = self.budgets.admit(key, used) {
            return Some(found(Vec::new(), Some(over_limit)));
        }
        let merged = merge(service, all, family, zone.as_ref(), former);
        let policies = || {
            let all = self.policies.values();
            all.filter(|policy| policy.key.namespace == key.namespace)
        };
        let ports = merged.into_iter().map(|endpoints| ServicePort {
            settings: collect(service, &endpoints.name, policies()),
            endpoints,
        });
        Some(found(ports.collect(), None))
    }

    fn mark(&mut self, key: ObjectKey) {
        let service = self.services.get(&key);
        let created = service.map(|service| Arc::clone(&service.created));
        self.changed.insert((created.unwrap_or_default(), key));
    }

    /// Remembers the former names of ports with the same number.
    fn note_renamed(&mut self, before: &Service, after: &Service, now: Instant) {
        let known = self.renamed.get(&after.key);
        let mut former = known.map(|(names, _)| names.clone()).unwrap_or_default();
        let mut has_changed = false;
        for port in after.ports.iter().filter(|port| port.is_tcp) {
            let mut same = before
                .ports
                .iter()
                .filter(|old| old.is_tcp && old.port == port.port);
            let Some(old) = same.next().filter(|old| old.name != port.name) else {
                continue;
            };
            let mut names = former.get(&old.name).cloned().unwrap_or_default();
            names.retain(|name| *name != port.name && *name != old.name);
            names.push(Arc::clone(&old.name));
            former.insert(Arc::clone(&port.name), names);
            has_changed = true;
        }
        if has_changed {
            let until = now.saturating_add(RECREATION_GRACE);
            self.renamed.insert(after.key.clone(), (former, until));
        }
    }

    fn remove_slice(&mut self, key: &ObjectKey, now: Instant) {
        let Some(owner) = self.owners.remove(key) else {
            return;
        };
        if let Some(slices) = self.slices.get_mut(&owner) {
            let removed = slices.by_name.remove(&key.name);
            if slices.by_name.is_empty() {
                let until = now.saturating_add(RECREATION_GRACE);
                let retained = slices.retained.get_or_insert((Vec::new(), until));
                retained.0.extend(removed);
            }
        }
        self.mark(owner);
    }

    fn mark_targets(&mut self, policy: &ZoneRoutingPolicy) {
        for target in policy.target_refs.iter().filter(|one| one.is_service()) {
            self.mark(ObjectKey {
                namespace: Arc::clone(&policy.key.namespace),
                name: target.name.as_str().into(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
