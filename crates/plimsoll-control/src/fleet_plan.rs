//! [`FleetPlan`]: what the proxies of one fleet are to be told, before it is put on the wire.
//!
//! Here the ramp and the mode of each service meet the measured demand; the arithmetic is that of
//! `plimsoll_core::planner`. Which of it a node gets is chosen in `delivery`, encoding lives in
//! `view`.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::planner::fleet_weights::{FleetHosts, FleetWeights, fleet_weights};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::ramp::{by_hosts, ramped};
use plimsoll_core::planner::weights::{ReceiverWeights, locality_weights};
use plimsoll_core::planner::{Grain, Plan};
use plimsoll_core::time::Instant;

use crate::config::{ControlConfig, Mode, Service};
use crate::delivery;
use crate::fleet::Fleets;

/// The plans in force, by grain: the newest that was worth delivering.
pub(crate) type Plans = BTreeMap<Grain, Arc<Plan>>;

/// What one fleet is told.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// Endpoints that stand for the fleet's proxies, without weights.
    pub assignment: ClusterLoadAssignment,
    /// The fleet's proxies, counted.
    pub counts: HostSetCounts,
    /// Demand by zone as it is delivered, the ramp applied; empty = go by host counts.
    pub zones: Vec<ZoneFraction>,
    /// The same as endpoint weights. Without demand they say how many proxies each zone has.
    pub fleet_weights: FleetWeights,
    /// Demand for each service as it is delivered; services without are not listed.
    pub services: BTreeMap<Arc<str>, ServicePlan>,
    /// Grows whenever receivers must hear again, also of what did not change (decisions D3).
    pub epoch: u64,
}

/// What one fleet is told about one service.
#[derive(Clone, Debug)]
pub struct ServicePlan {
    /// Demand by zone, the ramp applied; empty = go by host counts.
    pub zones: Vec<ZoneFraction>,
    /// Locality weights per receiving zone.
    pub weights: Vec<ReceiverWeights>,
    /// As for the fleet.
    pub epoch: u64,
    /// When the newest report of that demand arrived.
    pub observed_at: Option<Instant>,
}

impl FleetPlan {
    /// The plan of `fleet`.
    pub(crate) fn new(
        fleet: &Arc<str>,
        fleets: &Fleets,
        config: &ControlConfig,
        plans: &Plans,
    ) -> Self {
        let assignment = fleets.representatives(fleet);
        let counts = fleets.counts(fleet);
        let ramp = delivery::fleet_ramp(config.services.values().map(AsRef::as_ref));
        let whole = plan(plans, fleet, None);
        let zones = whole.map_or(&[][..], |plan| &plan.zones);
        let zones = ramped(zones, &counts, ramp);
        let hosts = FleetHosts::of_assignment(&assignment);
        let fleet_weights = match zones.is_empty() {
            true => fleet_weights(&by_hosts(&counts), &hosts),
            false => fleet_weights(&zones, &hosts),
        };
        let services = config.services.values().map(|service| {
            let plan = ServicePlan::new(fleet, service, (&counts, whole), plans);
            (Arc::clone(service.name()), plan)
        });
        Self {
            services: services.collect(),
            assignment,
            counts,
            zones,
            fleet_weights,
            epoch: whole.map_or(0, |plan| plan.generation),
        }
    }
}

impl ServicePlan {
    fn new(
        fleet: &Arc<str>,
        service: &Service,
        (fleet_counts, whole): (&HostSetCounts, Option<&Arc<Plan>>),
        plans: &Plans,
    ) -> Self {
        let own = plan(plans, fleet, Some(service.name())).filter(|plan| plan.has_data());
        let measured = match service.mode {
            Mode::Enforce if delivery::written_basis(service).is_none() => own.or(whole),
            Mode::Enforce | Mode::Shadow | Mode::Off => None,
        };
        let zones = measured.map_or(&[][..], |plan| &plan.zones);
        let zones = ramped(zones, fleet_counts, service.ramp);
        let upstream = HostSetCounts::of_assignment(&service.assignment, 0, None);
        let weights = locality_weights(&rules(service), &upstream, Some(fleet_counts), &zones);
        Self {
            zones,
            weights,
            epoch: measured.map_or(0, |plan| plan.generation),
            observed_at: measured.map(|plan| plan.observed_at),
        }
    }

    /// The weights that proxies at `receiver` get; `None` where the fleet is not known to be.
    pub fn weights_at(&self, receiver: &Locality) -> Option<&ReceiverWeights> {
        self.weights
            .iter()
            .find(|weights| weights.receiver == *receiver)
    }
}

/// The plan of a grain.
pub(crate) fn plan<'a>(
    plans: &'a Plans,
    fleet: &Arc<str>,
    upstream: Option<&Arc<str>>,
) -> Option<&'a Arc<Plan>> {
    plans.get(&Grain {
        fleet: Arc::clone(fleet),
        upstream_cluster: upstream.cloned(),
    })
}

/// The rules by which locality weights of a service are computed: those of its cluster, by measured
/// demand.
pub(crate) fn rules(service: &Service) -> ZoneAware {
    delivery::steered_rules(service)
        .on_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
        .without_dead_band()
}

#[cfg(test)]
mod tests;
