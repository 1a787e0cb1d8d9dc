//! Rebuilds the views, overlays and plans of fleets that changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::view::View;

use super::{State, TrafficKey, ViewKey};
use crate::delivery::NodeClass;
use crate::fleet_plan::{FleetPlan, Plans, plan};
use crate::view::Withheld;

impl State {
    /// Adds a view that nobody had. Class and zone in its key come from the network, so this must
    /// not cost the work of all views: it is built from the plan of its fleet as it is.
    pub(super) fn add_view(&mut self, key: &ViewKey) {
        let is_current = self.is_current(&key.fleet);
        let holding = self.withholds(&key.fleet);
        let plan = self.fleet_plans.get(&key.fleet).filter(|_| is_current);
        let Some(plan) = plan else {
            self.dirty.insert(Arc::clone(&key.fleet));
            match self.config.relay {
                // `refresh` replaces the empty overlay or view before it is read.
                Some(_) => drop(self.overlays.insert(key.clone(), Arc::default())),
                None => drop(self.views.insert(key.clone(), Arc::default())),
            }
            return;
        };
        let withheld_by = |key: &ViewKey| withheld(key, holding);
        if self.config.relay.is_some() {
            self.generation += 1;
            let catalog = &self.catalog;
            let overlay = catalog.overlay(key, plan, withheld_by(key), self.generation);
            self.overlays.insert(key.clone(), Arc::new(overlay));
            return;
        }
        let depends_on_zone = self.catalog.depends_on_zone(key.class);
        let is_same_zone = |other: &ViewKey| {
            let [own, other] =
                [key, other].map(|key| Some(&key.locality).filter(|zone| plan.has_zone(zone)));
            !depends_on_zone || own == other
        };
        let views = self.views.range(first_key(&key.fleet)..);
        let same = views
            .take_while(|(other, _)| other.fleet == key.fleet)
            .find(|(other, _)| {
                other.class == key.class
                    && withheld_by(other) == withheld_by(key)
                    && is_same_zone(other)
            })
            .map(|(_, view)| Arc::clone(view));
        let view = same.unwrap_or_else(|| {
            self.generation += 1;
            let catalog = &self.catalog;
            Arc::new(catalog.view(key, plan, withheld_by(key), self.generation))
        });
        self.views.insert(key.clone(), view);
    }

    /// Whether the plan and the views of a fleet are up to date.
    pub(crate) fn is_current(&self, fleet: &str) -> bool {
        !self.dirty.contains(fleet) && self.changed_services.is_empty()
    }

    /// Whether the demand of a fleet is withheld from receivers that had it before the start.
    fn withholds(&self, fleet: &Arc<str>) -> bool {
        (self.hold_until.is_some() || self.awaits_store()) && !has_demand(&self.plans, fleet)
    }

    pub(super) fn refresh(&mut self) {
        let mut refreshed = BTreeSet::new();
        while let Some(fleet) = self.dirty.pop_first() {
            refreshed.insert(Arc::clone(&fleet));
            let plan = FleetPlan::new(&fleet, &self.fleets, &self.config, &self.plans);
            let holding = self.withholds(&fleet);
            // Receivers in different zones often see the same resources, which are built once.
            let mut shared: BTreeMap<_, Arc<View>> = BTreeMap::new();
            for (key, view) in self.views.range_mut(first_key(&fleet)..) {
                if key.fleet != fleet {
                    break;
                }
                let withheld = withheld(key, holding);
                let by_zone =
                    self.catalog.depends_on_zone(key.class) && plan.has_zone(&key.locality);
                let zone = by_zone.then_some(&key.locality);
                let next = shared
                    .entry((key.class, zone, withheld == Withheld::Demand))
                    .or_insert_with(|| {
                        self.generation += 1;
                        Arc::new(self.catalog.view(key, &plan, withheld, self.generation))
                    });
                if next.has_same_content(view) {
                    // Streams compare pointers: keep the one that they have.
                    *next = Arc::clone(view);
                } else {
                    *view = Arc::clone(next);
                    self.changed_views.insert(key.clone());
                }
            }
            for (key, overlay) in self.overlays.range_mut(first_key(&fleet)..) {
                if key.fleet != fleet {
                    break;
                }
                self.generation += 1;
                let withheld = withheld(key, holding);
                let next = self.catalog.overlay(key, &plan, withheld, self.generation);
                *overlay = Arc::new(next);
                self.changed_overlays.insert(key.clone());
            }
            self.changed_traffic.extend(TrafficKey::all(&fleet));
            if self.is_fleet_gone(&fleet) {
                self.plans.retain(|scope, _| scope.fleet != fleet);
                self.plan_times.retain(|scope, _| scope.fleet != fleet);
                self.fleet_plans.remove(&fleet);
            } else {
                self.fleet_plans.insert(fleet, plan);
            }
        }
        self.refresh_services(&refreshed);
    }

    /// Whether a fleet has no nodes and no views left. Fleet names come from the network.
    fn is_fleet_gone(&self, fleet: &Arc<str>) -> bool {
        let first = first_key(fleet);
        let view = self.views.range(&first..).next().map(|(key, _)| key);
        let overlay = self.overlays.range(&first..).next().map(|(key, _)| key);
        self.fleets.members(fleet).next().is_none()
            && [view, overlay]
                .into_iter()
                .flatten()
                .all(|key| key.fleet != *fleet)
    }
}

pub(super) fn has_demand(plans: &Plans, fleet: &Arc<str>) -> bool {
    plan(plans, fleet, None).is_some_and(|plan| plan.has_data())
}

/// Returns whether to withhold demand from receivers with `key`.
pub(super) fn withheld(key: &ViewKey, holding: bool) -> Withheld {
    if key.returning && holding {
        Withheld::Demand
    } else {
        Withheld::Nothing
    }
}

pub(super) fn first_key(fleet: &Arc<str>) -> ViewKey {
    ViewKey {
        fleet: Arc::clone(fleet),
        class: NodeClass::Plimsoll,
        locality: Locality::default(),
        returning: false,
    }
}
