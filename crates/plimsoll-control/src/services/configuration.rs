//! [`Configuration`]: the configuration in force, a state machine without IO. The owner of services
//! in the state.
//!
//! It takes edits of the files, services of other sources and resources of a relayed server, and
//! yields what changed. Thousands of endpoints change all the time, so that one change must not
//! cost the work of all services: [`Change`] has the names of those that changed, whatever source
//! they come from, and whether more than their endpoints did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::evacuation::{Order, Suspect, ZoneName};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::capacity::LearnedCapacity;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;

use super::{ChangedServices, ServiceChanges, Services};
use crate::config::{Agreement, ControlConfig, Service};
use crate::delivery::refuse_without_effect;
use crate::evacuation::{Commanded, ZoneCommand, ZonesOut};
use crate::events::{ControlEvent, EventQueue};
use crate::fleet::FleetSettings;
use crate::relay::{RelayedClusters, RelayedResource};
use crate::replicas::OrderInput;

/// Zones without endpoints that are remembered: in some clusters every tenant writes slices with
/// zones of his own. Zones in `fleets.zones` stay in any case.
const MAX_FORMER_ZONES: usize = 64;

/// What changed in the configuration in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) services: ChangedServices,
    /// Whether everything may have changed, not only these services.
    pub(crate) is_all: bool,
    /// Whether the files were edited.
    pub(crate) is_edit: bool,
    /// Whether there are zones that no service had before.
    pub(crate) has_new_zones: bool,
    /// Whether another server is relayed, or none any more.
    pub(crate) is_other_relay: bool,
}

/// The configuration in force and where it comes from.
#[derive(Debug)]
pub(crate) struct Configuration {
    files: Arc<ControlConfig>,
    agreement: Agreement,
    /// `files` with the services of all sources, and with policies and endpoints learned from the
    /// relayed server.
    in_force: Arc<ControlConfig>,
    services: Services,
    relayed: RelayedClusters,
    /// Zones of services, and when each was first seen as an order. A zone whose endpoints are all
    /// removed still has proxies, whose demand counts: up to [`MAX_FORMER_ZONES`] of these stay.
    zones: BTreeMap<Locality, u64>,
    /// Zones that are taken out of use.
    out: ZonesOut,
    change: Option<Change>,
    events: EventQueue,
}

impl Configuration {
    pub(crate) fn new(config: Arc<ControlConfig>) -> Self {
        let mut new = Self {
            agreement: Agreement::new(&config),
            in_force: Arc::clone(&config),
            files: config,
            services: Services::default(),
            relayed: RelayedClusters::default(),
            zones: BTreeMap::new(),
            out: ZonesOut::default(),
            change: None,
            events: EventQueue::default(),
        };
        new.read_files();
        new.add_zones(None);
        new
    }

    /// Puts edited files into force, as far as other sources and a relay allow.
    pub(crate) fn handle_config(&mut self, config: Arc<ControlConfig>, now: Instant) {
        self.events.push(ControlEvent::ConfigApplied {
            services: config.services.len(),
        });
        let is_other_relay = config.relay != self.files.relay;
        if is_other_relay {
            // Another server has different resources: forget those of the previous one.
            self.relayed.clear();
        }
        self.agreement.update(&config);
        let before = std::mem::replace(&mut self.files, config);
        let is_all = !self.files.has_same_settings(&before);
        let services = self.read_files();
        let change = Change {
            is_edit: true,
            is_other_relay,
            ..self.change_of(services, is_all)
        };
        self.changed(change);
        let settings = &self.files.operation.evacuation;
        self.out.handle_config(settings, false, now);
        self.move_zones(now);
    }

    /// Adds, replaces and removes services of a source.
    pub(crate) fn handle_services(&mut self, changes: ServiceChanges) {
        self.services.handle_changes(changes);
        if let Some(services) = self.services.poll_changed() {
            let after = self.services.put_into(&self.in_force);
            let before = std::mem::replace(&mut self.in_force, after);
            if services.settings {
                self.tell_without_effect_of(&services.names, &before);
            }
            let change = self.change_of(services, false);
            self.changed(change);
        }
        self.note_conflicts();
    }

    /// Takes the capacity that was learned of the hosts of a service.
    pub(crate) fn handle_learned(&mut self, name: Arc<str>, learned: LearnedCapacity) {
        self.services.handle_learned(name, learned);
        if let Some(services) = self.services.poll_changed() {
            self.in_force = self.services.put_into(&self.in_force);
            let change = self.change_of(services, false);
            self.changed(change);
        }
    }

    /// Updates the policy or endpoints of a cluster of the relayed server.
    pub(crate) fn handle_relayed(&mut self, relayed: RelayedResource) {
        // Without services, resources are only shown.
        if self.relayed.update(relayed) && !self.wants_all_reports() {
            let services = self.read_files();
            let change = self.change_of(services, true);
            self.changed(change);
        }
    }

    /// Sets the Unix time of `Instant::ORIGIN`, and takes the zones of the files out of use.
    pub(crate) fn start_zones(&mut self, since_epoch: Duration, now: Instant) {
        self.out.set_unix_origin(since_epoch);
        let settings = &self.files.operation.evacuation;
        self.out.handle_config(settings, true, now);
        self.move_zones(now);
    }

    /// Takes a zone out of use, or returns it.
    pub(crate) fn handle_command(&mut self, command: ZoneCommand, now: Instant) -> Commanded {
        let done = self.out.handle_command(command, now);
        self.move_zones(now);
        done
    }

    /// Takes over the orders that are kept, in the store or in a file.
    pub(crate) fn handle_orders(&mut self, input: OrderInput, now: Instant) {
        match input {
            OrderInput::All(orders) => self.out.handle_kept(orders),
            OrderInput::Put(order) => self.out.handle_stored(order.zone.clone(), Some(order)),
            OrderInput::Deleted(zone) => self.out.handle_stored(zone, None),
        }
        self.move_zones(now);
    }

    /// Moves zones on that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.out.poll_timeout().is_some_and(|due| due <= now) {
            self.move_zones(now);
        }
    }

    /// Returns when a zone moves next.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.out.poll_timeout()
    }

    /// Returns an order to keep; `None` as the order if it is to be deleted.
    pub(crate) fn poll_record(&mut self) -> Option<(ZoneName, Option<Order>)> {
        self.out.poll_record()
    }

    pub(crate) fn handle_suspects(&mut self, suspects: Vec<Suspect>, would: Option<Arc<str>>) {
        self.out.handle_suspects(suspects, would);
    }

    pub(crate) const fn zones_out(&self) -> &ZonesOut {
        &self.out
    }

    fn move_zones(&mut self, now: Instant) {
        let Some(drained) = self.out.handle_time(now) else {
            return;
        };
        self.services.handle_drained(drained);
        if let Some(services) = self.services.poll_changed() {
            self.in_force = self.services.put_into(&self.in_force);
            let change = self.change_of(services, false);
            self.changed(change);
        }
    }

    /// Returns what changed since the last call.
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    pub(crate) fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop().or_else(|| self.out.poll_event())
    }

    /// Returns the configuration in force.
    pub(crate) const fn in_force(&self) -> &Arc<ControlConfig> {
        &self.in_force
    }

    /// Returns the configuration of the files.
    pub(crate) const fn files(&self) -> &Arc<ControlConfig> {
        &self.files
    }

    /// Returns a hash of the configuration, which replicas should have in common.
    pub(crate) const fn agreed(&self) -> u64 {
        self.agreement.hash()
    }

    pub(crate) const fn services(&self) -> &Services {
        &self.services
    }

    pub(crate) const fn relayed(&self) -> &RelayedClusters {
        &self.relayed
    }

    /// Whether demand for every reported cluster counts: if a relay is configured without services.
    pub(crate) fn wants_all_reports(&self) -> bool {
        self.in_force.wants_all_reports()
    }

    /// Returns the limits and zones of fleets. With a relay, the zones of clusters are learned one
    /// by one, so only those of the file limit demand. Zones of identities are known, but limit
    /// nothing on their own: most rules name none.
    pub(crate) fn fleet_settings(&self) -> FleetSettings {
        let config = &self.in_force;
        let mut counted = config.fleets.zones.clone();
        if config.relay.is_none() {
            counted.extend(self.zones.keys().cloned());
        }
        if !counted.is_empty() {
            counted.extend(config.rules.zones());
        }
        FleetSettings {
            limits: config.operation.limits.fleets,
            leave_after: config.fleets.leave_after,
            counted: Some(counted).filter(|counted| !counted.is_empty()),
            known: self
                .zones
                .keys()
                .chain(&config.fleets.zones)
                .cloned()
                .collect(),
        }
    }

    /// Returns the services that ask for measured demand although it cannot steer them, with the
    /// field that asks and the reason: those of a file are refused, but the policies of a relayed
    /// server are learned later.
    pub(crate) fn without_effect(&self) -> BTreeMap<Arc<str>, FieldError> {
        let services = self.in_force.services.iter();
        let error = |(name, service): (&Arc<str>, &Arc<Service>)| {
            let error = refuse_without_effect(service).err()?;
            Some((Arc::clone(name), error))
        };
        services.filter_map(error).collect()
    }

    /// Puts the services of the files into force, as the relayed server completes them. Returns
    /// which services changed.
    fn read_files(&mut self) -> ChangedServices {
        let is_relay = self.files.relay.is_some();
        let without_effect = is_relay.then(|| self.without_effect());
        let written = self.relayed.complete(&self.files);
        self.services
            .handle_changes(ServiceChanges::of_files(&written));
        self.in_force = self.services.put_into(&written);
        if let Some(before) = without_effect {
            for (cluster, error) in self.without_effect() {
                if !before.contains_key(&cluster) {
                    self.events
                        .push(ControlEvent::WithoutEffect { cluster, error });
                }
            }
        }
        self.note_conflicts();
        self.services.poll_changed().unwrap_or_default()
    }

    /// Tells of those of the changed services that ask for measured demand without effect, and did
    /// not `before`: Kubernetes does not refuse them.
    fn tell_without_effect_of(&mut self, changed: &BTreeSet<Arc<str>>, before: &ControlConfig) {
        for cluster in changed {
            let error_in = |config: &ControlConfig| {
                let service = config.services.get(cluster)?;
                refuse_without_effect(service).err()
            };
            let error = error_in(&self.in_force);
            if let Some(error) = error.filter(|error| error_in(before).as_ref() != Some(error)) {
                let cluster = Arc::clone(cluster);
                self.events
                    .push(ControlEvent::WithoutEffect { cluster, error });
            }
        }
    }

    fn note_conflicts(&mut self) {
        while let Some(conflict) = self.services.poll_conflict() {
            self.events.push(ControlEvent::ServiceConflict(conflict));
        }
    }

    /// Returns a change of services. The changes to the resources of a relayed server are built as
    /// a whole.
    fn change_of(&mut self, services: ChangedServices, is_all: bool) -> Change {
        let is_all = is_all || self.in_force.relay.is_some() && !services.names.is_empty();
        Change {
            has_new_zones: self.add_zones(Some(&services.names).filter(|_| !is_all)),
            services,
            is_all,
            is_edit: false,
            is_other_relay: false,
        }
    }

    fn changed(&mut self, change: Change) {
        match &mut self.change {
            Some(earlier) => earlier.extend(change),
            None => self.change = Some(change),
        }
    }

    /// Adds the zones of services, by default of all, to those that count. Returns whether there
    /// are new ones.
    fn add_zones(&mut self, names: Option<&BTreeSet<Arc<str>>>) -> bool {
        let services = &self.in_force.services;
        let named = names
            .into_iter()
            .flatten()
            .filter_map(|name| services.get(name));
        let all = services.values().filter(|_| names.is_none());
        let entries = named
            .chain(all)
            .flat_map(|service| service.assignment.endpoints());
        let mut next = self.zones.values().max().map_or(0, |last| last + 1);
        let mut has_new = false;
        for entry in entries {
            if !entry.locality.is_unset() && !self.zones.contains_key(&entry.locality) {
                self.zones.insert(entry.locality.clone(), next);
                next += 1;
                has_new = true;
            }
        }
        if has_new && self.zones.len() > MAX_FORMER_ZONES {
            self.forget_former_zones();
        }
        has_new
    }

    /// Forgets those of the zones without endpoints that were first seen last, beyond the number
    /// that is remembered: slices that invent zones push out their own.
    fn forget_former_zones(&mut self) {
        let services = self.in_force.services.values();
        let entries = services.flat_map(|service| service.assignment.endpoints());
        let in_use: BTreeSet<&Locality> = entries.map(|entry| &entry.locality).collect();
        let former = self.zones.iter().filter(|(zone, _)| !in_use.contains(zone));
        let mut former: Vec<(u64, Locality)> =
            former.map(|(zone, seen)| (*seen, zone.clone())).collect();
        former.sort_unstable();
        for (_, zone) in former.into_iter().skip(MAX_FORMER_ZONES) {
            self.zones.remove(&zone);
        }
    }
}

impl Change {
    fn extend(&mut self, later: Self) {
        self.services.extend(later.services);
        self.is_all |= later.is_all;
        self.is_edit |= later.is_edit;
        self.has_new_zones |= later.has_new_zones;
        self.is_other_relay |= later.is_other_relay;
    }
}

#[cfg(test)]
mod tests;
