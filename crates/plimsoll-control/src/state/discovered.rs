//! Services that were discovered, beside those of the files.
//!
//! Thousands of endpoints change all the time, so that one change must not cost the work of all
//! services: only the changed ones are encoded, planned and put into the views again. What all
//! services share (the fleet's ramp, the heartbeat, known zones) is recomputed if a setting
//! changed, not if only endpoints did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::view::View;

use super::refresh::{first_key, has_demand, withheld};
use super::{State, TrafficKey};
use crate::config::{ControlConfig, Service};
use crate::view::Withheld;

/// A service that was discovered, and the object that it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredService {
    pub service: Arc<Service>,
    /// Kind, namespace, name and version of the object, for the audit.
    pub origin: Arc<str>,
}

/// Discovered services that changed.
#[derive(Clone, Debug, Default)]
pub struct DiscoveredChanges {
    /// Whether these are all: others are gone.
    pub is_complete: bool,
    /// `None` for services that are gone.
    pub services: BTreeMap<Arc<str>, Option<DiscoveredService>>,
}

/// How much of the state a change affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    Nothing,
    Endpoints,
    Settings,
}

impl State {
    /// Adds, replaces and removes discovered services. Services of the files win over them.
    pub fn handle_discovered(&mut self, changes: &DiscoveredChanges, now: Instant) {
        let changed = self.effective_changes(changes);
        for (name, service) in &changed {
            match service {
                Some(service) => {
                    self.discovered.insert(Arc::clone(name), service.clone());
                }
                None => drop(self.discovered.remove(name)),
            }
        }
        let extent = self.apply_changed(changed.keys());
        match extent {
            Extent::Nothing => {}
            Extent::Endpoints => self
                .catalog
                .update_assignments(&self.config, changed.keys()),
            Extent::Settings if self.needs_rebuild(changed.keys()) => self.complete_config(now),
            Extent::Settings => {
                self.set_heartbeat(now);
                self.replicas_config();
                self.catalog.update_services(&self.config, changed.keys());
            }
        }
        if extent > Extent::Nothing {
            self.add_zones(changed.keys(), now);
            self.changed_services.extend(changed.into_keys());
            self.settings_changed |= extent == Extent::Settings;
        }
        self.process_due(now);
    }

    /// Returns the discovered services.
    pub const fn discovered(&self) -> &BTreeMap<Arc<str>, DiscoveredService> {
        &self.discovered
    }

    /// Returns a configuration with the discovered services.
    pub(super) fn with_discovered(&self, written: Arc<ControlConfig>) -> Arc<ControlConfig> {
        if self.discovered.is_empty() {
            return written;
        }
        let mut config = ControlConfig::clone(&written);
        for (name, discovered) in &self.discovered {
            insert(&mut config, name, discovered);
        }
        Arc::new(config)
    }

    fn effective_changes(
        &self,
        changes: &DiscoveredChanges,
    ) -> BTreeMap<Arc<str>, Option<DiscoveredService>> {
        let mut changed = changes.services.clone();
        if changes.is_complete {
            let known = self.discovered.keys().cloned();
            let gone = known.filter(|name| !changes.services.contains_key(name));
            changed.extend(gone.map(|name| (name, None)));
        }
        changed.retain(|name, service| self.discovered.get(name) != service.as_ref());
        changed
    }

    /// Replaces the changed services in the configuration.
    fn apply_changed<'a>(&mut self, changed: impl Iterator<Item = &'a Arc<str>>) -> Extent {
        let mut extent = Extent::Nothing;
        let mut config = ControlConfig::clone(&self.config);
        for name in changed.filter(|name| !self.file_config.services.contains_key(*name)) {
            let before = self.config.services.get(name);
            let after = self.discovered.get(name);
            extent = extent.max(compare(before, after.map(|after| &after.service)));
            match after {
                Some(discovered) => insert(&mut config, name, discovered),
                None => {
                    config.services.remove(name);
                    config.origins.remove(name);
                }
            }
        }
        if extent > Extent::Nothing {
            self.config = Arc::new(config);
        }
        extent
    }

    /// Whether changed settings affect more than their own services: the ramp of the fleets'
    /// assignments, or a name that hides a fleet's assignment.
    fn needs_rebuild<'a>(&self, mut changed: impl Iterator<Item = &'a Arc<str>>) -> bool {
        let hides_fleet = |name: &Arc<str>| {
            self.config.local_cluster_names.contains(name) || self.fleet_plans.contains_key(name)
        };
        self.catalog.has_other_ramp(&self.config) || changed.any(hides_fleet)
    }

    /// Adds the zones of changed services to those that count.
    fn add_zones<'a>(&mut self, changed: impl Iterator<Item = &'a Arc<str>>, now: Instant) {
        let services = changed.filter_map(|name| self.config.services.get(name));
        let entries = services.flat_map(|service| service.assignment.endpoints());
        let zones = entries.map(|entry| &entry.locality);
        let is_new = |zone: &&Locality| !zone.is_unset() && !self.service_zones.contains(*zone);
        let added: BTreeSet<Locality> = zones.filter(is_new).cloned().collect();
        if added.is_empty() {
            return;
        }
        self.service_zones.extend(added);
        self.set_limits();
        for (fleet, _) in self.fleets.iter() {
            self.membership_due.insert(Arc::clone(fleet), now);
        }
    }

    /// Puts changed services into the plans and views of all fleets, apart from `refreshed`, which
    /// were rebuilt.
    pub(super) fn refresh_services(&mut self, refreshed: &BTreeSet<Arc<str>>) {
        let changed = std::mem::take(&mut self.changed_services);
        let settings_changed = std::mem::take(&mut self.settings_changed);
        if changed.is_empty() {
            return;
        }
        let holding = self.hold_until.is_some() || self.awaits_store();
        for (fleet, plan) in &mut self.fleet_plans {
            if refreshed.contains(fleet) {
                continue;
            }
            plan.update_services(fleet, &self.config, &self.plans, &changed);
            let is_held = holding && !has_demand(&self.plans, fleet);
            let mut shared: BTreeMap<_, Arc<View>> = BTreeMap::new();
            for (key, view) in self.views.range_mut(first_key(fleet)..) {
                if key.fleet != *fleet {
                    break;
                }
                let withheld = withheld(key, is_held);
                let by_zone =
                    self.catalog.depends_on_zone(key.class) && plan.has_zone(&key.locality);
                let zone = by_zone.then_some(&key.locality);
                let next = shared
                    .entry((key.class, zone, withheld == Withheld::Demand))
                    .or_insert_with(|| {
                        self.generation += 1;
                        let catalog = &self.catalog;
                        let next = catalog.updated_view(
                            view,
                            key,
                            plan,
                            withheld,
                            &changed,
                            self.generation,
                        );
                        next.map_or_else(|| Arc::clone(view), Arc::new)
                    });
                if !Arc::ptr_eq(next, view) {
                    *view = Arc::clone(next);
                    self.changed_views.insert(key.clone());
                }
            }
            if settings_changed {
                self.changed_traffic.extend(TrafficKey::all(fleet));
            }
        }
    }
}

fn insert(config: &mut ControlConfig, name: &Arc<str>, discovered: &DiscoveredService) {
    // What a file says about a service of the same name is in force.
    if config.services.contains_key(name) && !config.origins.is_discovered(name) {
        return;
    }
    let service = Arc::clone(&discovered.service);
    config.services.insert(Arc::clone(name), service);
    config
        .origins
        .add_discovered(name, Arc::clone(&discovered.origin));
}

fn compare(before: Option<&Arc<Service>>, after: Option<&Arc<Service>>) -> Extent {
    let (Some(before), Some(after)) = (before, after) else {
        return if before.is_none() && after.is_none() {
            Extent::Nothing
        } else {
            Extent::Settings
        };
    };
    if before == after {
        Extent::Nothing
    } else if before.has_same_settings(after) {
        Extent::Endpoints
    } else {
        Extent::Settings
    }
}
