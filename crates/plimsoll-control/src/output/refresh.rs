//! Rebuilds the outputs and plans of fleets that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;

use super::{Inputs, Output, Outputs, TrafficKey, ViewKey};
use crate::delivery::NodeClass;
use crate::fleet_plan::FleetPlan;

impl Outputs {
    /// Adds an output that nobody had. Class and zone in its key come from the network, so this
    /// must not cost the work of all outputs: it is built from the plan of its fleet as it is.
    pub(crate) fn add(&mut self, key: &ViewKey, inputs: &Inputs<'_>) {
        if self.outputs.contains_key(key) {
            return;
        }
        let is_current = self.is_current(&key.fleet);
        let holding = inputs.gate.withholds(&key.fleet);
        let plan = self.fleet_plans.get(&key.fleet).filter(|_| is_current);
        let Some(plan) = plan else {
            self.stale_fleets.insert(Arc::clone(&key.fleet));
            // `refresh` replaces the empty output before it is read.
            let empty = Output::empty(inputs.config.relay.is_some());
            self.outputs.insert(key.clone(), empty);
            return;
        };
        let by_zone = self.catalog.depends_on_zone(key.class, plan);
        let sharing = |key: &ViewKey| Sharing::new(key, plan, by_zone, key.returning && holding);
        let outputs = self.outputs.range(first_key(&key.fleet)..);
        let same = outputs
            .take_while(|(other, _)| other.fleet == key.fleet)
            .find(|(other, _)| other.class == key.class && sharing(other) == sharing(key))
            .map(|(_, output)| output.clone());
        let output = same.unwrap_or_else(|| {
            self.generation += 1;
            let held = key.returning && holding;
            self.catalog.output(key, plan, held, self.generation)
        });
        self.outputs.insert(key.clone(), output);
    }

    /// Brings plans and outputs up to date: those of fleets that changed as a whole, and in those
    /// of the others the services that changed. Returns fleets that are gone.
    pub(crate) fn refresh(&mut self, inputs: &Inputs<'_>) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        let stale_fleets = std::mem::take(&mut self.stale_fleets);
        for fleet in &stale_fleets {
            let (fleets, relayed) = (inputs.fleets, inputs.relayed);
            let plan = FleetPlan::new(fleet, fleets, inputs.config, inputs.plans, relayed);
            self.refresh_outputs(fleet, &plan, None, inputs);
            self.changed_traffic.extend(TrafficKey::all(fleet));
            if self.is_fleet_gone(fleet, inputs) {
                self.fleet_plans.remove(fleet);
                gone.push(Arc::clone(fleet));
            } else {
                self.fleet_plans.insert(Arc::clone(fleet), plan);
            }
        }
        let stale = std::mem::take(&mut self.stale_services);
        if stale.names.is_empty() {
            return gone;
        }
        let mut plans = std::mem::take(&mut self.fleet_plans);
        for (fleet, plan) in plans
            .iter_mut()
            .filter(|(fleet, _)| !stale_fleets.contains(*fleet))
        {
            plan.update_services(fleet, inputs.config, inputs.plans, &stale.names);
            self.refresh_outputs(fleet, plan, Some(&stale.names), inputs);
            if stale.settings {
                self.changed_traffic.extend(TrafficKey::all(fleet));
            }
        }
        self.fleet_plans = plans;
        gone
    }

    /// Builds the outputs of a fleet again, or, if only some services changed, these in them.
    fn refresh_outputs(
        &mut self,
        fleet: &Arc<str>,
        plan: &FleetPlan,
        changed: Option<&BTreeSet<Arc<str>>>,
        inputs: &Inputs<'_>,
    ) {
        let holding = inputs.gate.withholds(fleet);
        let catalog = &self.catalog;
        // Receivers in different zones often see the same resources, which are built once: the last
        // output that was replaced, and the one that takes its place.
        let mut shared: BTreeMap<Sharing, (Option<Output>, Output)> = BTreeMap::new();
        let mut by_zone: BTreeMap<NodeClass, bool> = BTreeMap::new();
        for (key, output) in self.outputs.range_mut(first_key(fleet)..) {
            if key.fleet != *fleet {
                break;
            }
            let held = key.returning && holding;
            let by_zone = *by_zone
                .entry(key.class)
                .or_insert_with(|| catalog.depends_on_zone(key.class, plan));
            let (before, next) = shared
                .entry(Sharing::new(key, plan, by_zone, held))
                .or_insert_with(|| {
                    self.generation += 1;
                    let generation = self.generation;
                    let Some(changed) = changed else {
                        return (None, catalog.output(key, plan, held, generation));
                    };
                    // The two are compared.
                    let next = catalog.updated_output(output, key, plan, held, changed, generation);
                    (Some(output.clone()), next.unwrap_or_else(|| output.clone()))
                });
            let is_compared = before.as_ref().is_some_and(|before| before.is_same(output));
            if !is_compared && next.has_same_content(output) {
                // Streams compare pointers: keep the one that they have.
                *next = output.clone();
            }
            if !next.is_same(output) {
                *before = Some(std::mem::replace(output, next.clone()));
                self.changed.insert(key.clone());
            }
        }
    }

    /// Whether a fleet has no nodes and no outputs left. Fleet names come from the network.
    fn is_fleet_gone(&self, fleet: &Arc<str>, inputs: &Inputs<'_>) -> bool {
        let mut outputs = self.outputs.range(first_key(fleet)..);
        inputs.fleets.members(fleet).next().is_none()
            && outputs.next().is_none_or(|(key, _)| key.fleet != *fleet)
    }
}

/// Receivers of a fleet for which this is the same see the same resources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sharing {
    class: NodeClass,
    /// `None` if the zone makes no difference.
    zone: Option<Locality>,
    held: bool,
}

impl Sharing {
    fn new(key: &ViewKey, plan: &FleetPlan, by_zone: bool, held: bool) -> Self {
        let zone = Some(&key.locality).filter(|zone| by_zone && plan.has_zone(zone));
        Self {
            class: key.class,
            zone: zone.cloned(),
            held,
        }
    }
}

fn first_key(fleet: &Arc<str>) -> ViewKey {
    ViewKey {
        fleet: Arc::clone(fleet),
        class: NodeClass::Plimsoll,
        locality: Locality::default(),
        returning: false,
    }
}
