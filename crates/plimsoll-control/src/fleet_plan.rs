//! [`FleetPlan`]: demand and weights for the proxies of one fleet, before encoding.
//!
//! Combines the measured demand with the ramp and mode of each service, using the arithmetic of
//! `plimsoll_core::planner`. `delivery` selects the part that each node gets; `view` encodes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::planner::fleet_weights::{FleetHosts, FleetWeights, fleet_weights};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::ramp::{host_count_fractions, ramp_fractions};
use plimsoll_core::planner::weights::{ReceiverWeights, locality_weights};
use plimsoll_core::planner::{Plan, PlanScope};
use plimsoll_core::time::Instant;

use crate::config::{ControlConfig, Mode, Service};
use crate::delivery;
use crate::fleet::Fleets;

/// The planner's latest plan that may be delivered, for each fleet and each of its services.
pub(crate) type Plans = BTreeMap<PlanScope, Arc<Plan>>;

/// Demand and weights to deliver to the proxies of one fleet.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// Endpoints that represent the nodes of the fleet, without weights.
    pub assignment: ClusterLoadAssignment,
    pub counts: HostSetCounts,
    /// Demand by zone with the ramp applied; if empty, proxies use host counts.
    pub zones: Vec<ZoneFraction>,
    /// `zones` as endpoint weights. Without demand they represent the number of nodes per zone.
    pub fleet_weights: FleetWeights,
    pub services: BTreeMap<Arc<str>, ServicePlan>,
    /// Increases with every update, also if it only confirms the fractions (decision 0024).
    pub epoch: u64,
}

/// Demand and weights of one service, to deliver to the proxies of one fleet.
#[derive(Clone, Debug)]
pub struct ServicePlan {
    /// Demand by zone with the ramp applied; if empty, proxies use host counts.
    pub zones: Vec<ZoneFraction>,
    pub weights: Vec<ReceiverWeights>,
    /// Like [`FleetPlan::epoch`], for the demand of this service.
    pub epoch: u64,
    /// Time of the latest load report that is included in `zones`.
    pub observed_at: Option<Instant>,
}

impl FleetPlan {
    pub(crate) fn new(
        fleet: &Arc<str>,
        fleets: &Fleets,
        config: &ControlConfig,
        plans: &Plans,
    ) -> Self {
        let ramp = delivery::fleet_ramp(config.services.values().map(AsRef::as_ref));
        let mut built = Self::of_fleet(
            fleet,
            fleets.representatives(fleet),
            fleets.counts(fleet),
            ramp,
            plans,
        );
        let services = config.services.values();
        built.services = services
            .map(|service| built.service(fleet, service, plans))
            .collect();
        built
    }

    /// Plans services again whose endpoints or settings changed, with the fleet's plan as it is.
    pub(crate) fn update_services(
        &mut self,
        fleet: &Arc<str>,
        config: &ControlConfig,
        plans: &Plans,
        changed: &BTreeSet<Arc<str>>,
    ) {
        for name in changed {
            match config.services.get(name) {
                Some(service) => {
                    let (name, plan) = self.service(fleet, service, plans);
                    self.services.insert(name, plan);
                }
                None => drop(self.services.remove(name)),
            }
        }
    }

    /// Returns the plan of the same fleet with `service` as the only service.
    pub(crate) fn with_service(&self, fleet: &Arc<str>, service: &Service, plans: &Plans) -> Self {
        let ramp = delivery::fleet_ramp([service]);
        let (assignment, counts) = (self.assignment.clone(), self.counts.clone());
        let mut built = Self::of_fleet(fleet, assignment, counts, ramp, plans);
        built.services = BTreeMap::from([built.service(fleet, service, plans)]);
        built
    }

    /// Returns the plan of a fleet without services.
    fn of_fleet(
        fleet: &Arc<str>,
        assignment: ClusterLoadAssignment,
        counts: HostSetCounts,
        ramp: u32,
        plans: &Plans,
    ) -> Self {
        let measured = plan(plans, fleet, None);
        let zones = measured.map_or(&[][..], |plan| &plan.zones);
        let zones = ramp_fractions(zones, &counts, ramp);
        let hosts = FleetHosts::of_assignment(&assignment);
        let fleet_weights = if zones.is_empty() {
            fleet_weights(&host_count_fractions(&counts), &hosts)
        } else {
            fleet_weights(&zones, &hosts)
        };
        Self {
            services: BTreeMap::new(),
            assignment,
            counts,
            zones,
            fleet_weights,
            epoch: measured.map_or(0, |plan| plan.generation),
        }
    }

    fn service(
        &self,
        fleet: &Arc<str>,
        service: &Service,
        plans: &Plans,
    ) -> (Arc<str>, ServicePlan) {
        let measured = plan(plans, fleet, None);
        let plan = ServicePlan::new(fleet, service, &self.counts, measured, plans);
        (Arc::clone(service.name()), plan)
    }

    /// Whether the fleet has nodes in a zone that counts.
    pub(crate) fn has_zone(&self, locality: &Locality) -> bool {
        let zones = &self.counts.localities;
        zones.iter().any(|zone| zone.locality == *locality)
    }
}

impl ServicePlan {
    fn new(
        fleet: &Arc<str>,
        service: &Service,
        fleet_counts: &HostSetCounts,
        fleet_plan: Option<&Arc<Plan>>,
        plans: &Plans,
    ) -> Self {
        let own = plan(plans, fleet, Some(service.name())).filter(|plan| plan.has_data());
        let measured = match service.mode {
            Mode::Enforce if delivery::explicit_basis(service).is_none() => own.or(fleet_plan),
            Mode::Enforce | Mode::Shadow | Mode::Off => None,
        };
        let demand = measured.map_or(&[][..], |plan| &plan.zones);
        let zones = ramp_fractions(demand, fleet_counts, service.ramp);
        let upstream = HostSetCounts::of_assignment(&service.assignment, 0, None);
        let weights = locality_weights(&rules(service), &upstream, Some(fleet_counts), &zones);
        Self {
            zones,
            weights,
            epoch: measured.map_or(0, |plan| plan.generation),
            observed_at: measured.map(|plan| plan.observed_at),
        }
    }

    /// Returns the weights for proxies in `receiver`; `None` if the fleet has no proxy there.
    pub fn weights_at(&self, receiver: &Locality) -> Option<&ReceiverWeights> {
        self.weights
            .iter()
            .find(|weights| weights.receiver == *receiver)
    }
}

/// Returns the planner's plan for a fleet, or for one of its services.
pub(crate) fn plan<'a>(
    plans: &'a Plans,
    fleet: &Arc<str>,
    upstream: Option<&Arc<str>>,
) -> Option<&'a Arc<Plan>> {
    plans.get(&PlanScope {
        fleet: Arc::clone(fleet),
        upstream_cluster: upstream.cloned(),
    })
}

/// Returns the zone-aware rules of the cluster for locality weights, based on measured demand.
pub(crate) fn rules(service: &Service) -> ZoneAware {
    delivery::steered_rules(service)
        .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
        .without_dead_band()
}

#[cfg(test)]
mod tests;
