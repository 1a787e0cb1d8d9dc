//! `Outputs`: what receivers are sent, without IO. The owner of encoded resources.
//!
//! The state passes in what changed; `refresh` builds plans of fleets and outputs again, only those
//! that a change affects, from read-only `Inputs`. `delivery` decides how nodes get demand,
//! `fleet_plan` has the numbers, `view` encodes resources.
//!
//! Outputs are shared by all receivers that see the same resources: one per fleet, class of nodes
//! and zone. After a restart, receivers that already have weights keep them until the demand of
//! their fleet is known again, or until a timeout shows that nobody reports: until then their
//! output withholds every resource that depends on demand.

mod form;
mod keys;
mod refresh;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_xds::error::DecodeError;
use plimsoll_xds::lrs::LrsTraffic;

use crate::config::{ControlConfig, Service};
use crate::demand::{Gate, PlanTable};
use crate::fleet::Fleets;
use crate::fleet_plan::FleetPlan;
use crate::relay::RelayedClusters;
use crate::services::{Change, ChangedServices};
use crate::view::{Catalog, SentResources};

pub use form::Output;
pub use keys::{TrafficKey, ViewKey};

/// What outputs are built from, of the other owners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) config: &'a Arc<ControlConfig>,
    pub(crate) relayed: &'a RelayedClusters,
    pub(crate) fleets: &'a Fleets,
    pub(crate) plans: &'a PlanTable,
    pub(crate) gate: Gate<'a>,
}

/// What receivers are sent, by key.
#[derive(Debug)]
pub(crate) struct Outputs {
    catalog: Catalog,
    fleet_plans: BTreeMap<Arc<str>, FleetPlan>,
    outputs: BTreeMap<ViewKey, Output>,
    changed: BTreeSet<ViewKey>,
    changed_traffic: BTreeSet<TrafficKey>,
    /// Fleets whose plans and outputs are out of date.
    stale_fleets: BTreeSet<Arc<str>>,
    /// Services that changed since the outputs were refreshed.
    stale_services: ChangedServices,
    generation: u64,
    /// Unix time that corresponds to `Instant::ORIGIN`.
    unix_origin: Duration,
}

impl Outputs {
    pub(crate) fn new(config: &Arc<ControlConfig>) -> Self {
        Self {
            catalog: Catalog::new(config),
            fleet_plans: BTreeMap::new(),
            outputs: BTreeMap::new(),
            changed: BTreeSet::new(),
            changed_traffic: BTreeSet::new(),
            stale_fleets: BTreeSet::new(),
            stale_services: ChangedServices::default(),
            generation: 0,
            unix_origin: Duration::ZERO,
        }
    }

    /// Sets the Unix time of `Instant::ORIGIN`, for timestamps in LRS responses.
    pub(crate) const fn set_unix_origin(&mut self, since_epoch: Duration) {
        self.unix_origin = since_epoch;
    }

    /// Encodes what changed in the configuration. Returns whether that is everything.
    pub(crate) fn handle_change(
        &mut self,
        change: &Change,
        config: &Arc<ControlConfig>,
        fleets: &Fleets,
    ) -> bool {
        if change.is_other_relay {
            // Receivers connect again.
            self.outputs.clear();
            self.changed.clear();
        }
        let names = change.services.names.iter();
        let is_all = change.is_all || self.affects_fleets(&change.services, config);
        if is_all {
            self.catalog = Catalog::new(config);
            let keys = self.outputs.keys().map(|key| Arc::clone(&key.fleet));
            let known = fleets.iter().map(|(name, _)| Arc::clone(name));
            self.stale_fleets.extend(keys.chain(known));
        } else if change.services.settings {
            self.catalog.update_services(config, names);
        } else {
            self.catalog.update_assignments(config, names);
        }
        self.stale_services.extend(change.services.clone());
        is_all
    }

    /// Plans a fleet and builds its outputs again.
    pub(crate) fn handle_fleet(&mut self, fleet: Arc<str>) {
        self.stale_fleets.insert(fleet);
    }

    /// Builds a service again at all fleets.
    pub(crate) fn handle_service(&mut self, service: Arc<str>) {
        self.stale_services.extend(ChangedServices {
            names: [service].into(),
            settings: true,
        });
    }

    /// The start is over: receivers that came back get what was withheld from them.
    pub(crate) fn handle_started(&mut self) {
        let returning = self.outputs.keys().filter(|key| key.returning);
        self.stale_fleets
            .extend(returning.map(|key| Arc::clone(&key.fleet)));
    }

    /// Drops an output that has no receivers left.
    pub(crate) fn handle_unused(&mut self, key: &ViewKey) {
        self.outputs.remove(key);
        self.changed.remove(key);
    }

    /// Returns the next output that changed. Call `refresh` before.
    pub(crate) fn poll_output(&mut self) -> Option<(ViewKey, Output)> {
        while let Some(key) = self.changed.pop_first() {
            if let Some(output) = self.outputs.get(&key) {
                let output = output.clone();
                return Some((key, output));
            }
        }
        None
    }

    /// Returns receivers whose demand has changed, with the demand for their LRS responses. Call
    /// `refresh` before.
    pub(crate) fn poll_traffic(&mut self) -> Option<(TrafficKey, Arc<LrsTraffic>)> {
        let key = self.changed_traffic.pop_first()?;
        let traffic = self.traffic(&key);
        Some((key, traffic))
    }

    /// Returns what receivers with `key` are sent.
    pub(crate) fn get(&self, key: &ViewKey) -> Option<&Output> {
        self.outputs.get(key)
    }

    /// Returns the demand of a fleet by service, for nodes that get demand with LRS responses.
    pub(crate) fn traffic(&self, key: &TrafficKey) -> Arc<LrsTraffic> {
        let plan = self.fleet_plans.get(&key.fleet);
        let origin = self.unix_origin;
        let traffic = plan.map(|plan| self.catalog.traffic(plan, key.class, origin));
        Arc::new(traffic.unwrap_or_default())
    }

    /// Returns what is delivered to a fleet; `None` if no node of the fleet has been seen.
    pub(crate) fn fleet_plan(&self, fleet: &str) -> Option<&FleetPlan> {
        self.fleet_plans.get(fleet)
    }

    /// Returns the resources of a service that receivers with `key` are sent, decoded.
    pub(crate) fn sent(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
        relayed: &RelayedClusters,
    ) -> Result<SentResources, DecodeError> {
        self.catalog
            .sent(service, key, plan, relayed.body(service.name()))
    }

    /// Whether the plan and the outputs of a fleet are up to date.
    pub(crate) fn is_current(&self, fleet: &str) -> bool {
        !self.stale_fleets.contains(fleet) && self.stale_services.names.is_empty()
    }

    #[cfg(test)]
    pub(crate) const fn stale_fleets(&self) -> &BTreeSet<Arc<str>> {
        &self.stale_fleets
    }

    #[cfg(test)]
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    #[cfg(test)]
    pub(crate) fn has_plans(&self) -> bool {
        !self.fleet_plans.is_empty()
    }

    /// Whether a change of settings affects more than its own services: demand on the fleets'
    /// assignments, or a name that hides a fleet's assignment.
    fn affects_fleets(&self, changed: &ChangedServices, config: &ControlConfig) -> bool {
        let hides_fleet = |name: &Arc<str>| {
            config.fleets.local_cluster_names.contains(name) || self.fleet_plans.contains_key(name)
        };
        changed.settings
            && (self.catalog.has_other_demand_of_fleets(config)
                || changed.names.iter().any(hides_fleet))
    }
}

#[cfg(test)]
mod tests;
