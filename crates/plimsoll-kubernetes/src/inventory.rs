//! [`Inventory`]: the objects of a cluster, joined to Services; a state machine without IO.
//!
//! It takes changes of Services, EndpointSlices and policies in any order, and returns the Services
//! that they affect. One change of one slice costs the merge of one Service, not of all.
//!
//! A Service that is scaled to zero keeps a slice without endpoints. A Service without any slice
//! was just created, or its slices were deleted and are about to be recreated: its last endpoints
//! stay for [`RECREATION_GRACE`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;

use crate::merge::{AddressFamily, PortEndpoints, merge};
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
}

/// A port of a Service: a cluster of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePort {
    pub endpoints: PortEndpoints,
    pub settings: Result<Settings, SettingError>,
}

/// How Services are read.
#[derive(Clone, Debug, Default)]
pub struct InventoryOptions {
    pub address_family: AddressFamily,
    /// Zone of endpoints without one.
    pub fallback_zone: Option<Arc<str>>,
}

/// Objects of a cluster.
#[derive(Debug, Default)]
pub struct Inventory {
    options: InventoryOptions,
    services: BTreeMap<ObjectKey, Arc<Service>>,
    /// Slices by Service and name.
    slices: BTreeMap<ObjectKey, SlicesOfService>,
    /// Service of each slice, because the label of a slice can change.
    owners: BTreeMap<ObjectKey, ObjectKey>,
    policies: BTreeMap<ObjectKey, Arc<ZoneRoutingPolicy>>,
    changed: BTreeSet<ObjectKey>,
}

#[derive(Debug, Default)]
struct SlicesOfService {
    by_name: BTreeMap<Arc<str>, Arc<EndpointSlice>>,
    /// Deleted slices of a Service that has no others, and until when they count.
    retained: Option<(Vec<Arc<EndpointSlice>>, Instant)>,
}

impl Inventory {
    /// Creates an inventory without objects.
    pub fn new(options: InventoryOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Processes a change of a Service.
    pub fn handle_service(&mut self, change: Change<Service>) {
        match change {
            Change::Applied(service) => {
                self.changed.insert(service.key.clone());
                self.services.insert(service.key.clone(), service);
            }
            Change::Deleted(key) => {
                self.services.remove(&key);
                self.changed.insert(key);
            }
        }
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
                self.changed.insert(owner);
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

    /// Drops endpoints whose slices were deleted and not recreated in time.
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
        self.changed.extend(expired);
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let retained = self.slices.values().filter_map(|one| one.retained.as_ref());
        retained.map(|(_, until)| *until).min()
    }

    /// Whether [`Self::poll_changed`] has something to return.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns a Service that changed; `None` in place of the Service if it is gone or ignored.
    pub fn poll_changed(&mut self) -> Option<(ObjectKey, Option<DiscoveredService>)> {
        let key = self.changed.pop_first()?;
        let discovered = self.discovered(&key);
        Some((key, discovered))
    }

    /// Returns all policies, also those whose targets do not exist.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<ZoneRoutingPolicy>> {
        self.policies.values()
    }

    fn discovered(&self, key: &ObjectKey) -> Option<DiscoveredService> {
        let service = self.services.get(key)?;
        let error = match is_ignored(service) {
            Ok(true) => return None,
            Ok(false) => None,
            Err(error) => Some(error),
        };
        let none = SlicesOfService::default();
        let slices = self.slices.get(key).unwrap_or(&none);
        let retained = slices.retained.iter().flat_map(|(slices, _)| slices);
        let all = slices.by_name.values().chain(retained).map(AsRef::as_ref);
        let options = &self.options;
        let zone = options.fallback_zone.as_ref();
        let merged = merge(service, all, options.address_family, zone);
        let policies = || {
            let all = self.policies.values();
            all.filter(|policy| policy.key.namespace == key.namespace)
        };
        let ports = merged.into_iter().map(|endpoints| ServicePort {
            settings: collect(service, &endpoints.name, policies()),
            endpoints,
        });
        Some(DiscoveredService {
            service: Arc::clone(service),
            ports: ports.collect(),
            error,
        })
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
        self.changed.insert(owner);
    }

    fn mark_targets(&mut self, policy: &ZoneRoutingPolicy) {
        for target in policy.target_refs.iter().filter(|one| one.is_service()) {
            self.changed.insert(ObjectKey {
                namespace: Arc::clone(&policy.key.namespace),
                name: target.name.as_str().into(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
