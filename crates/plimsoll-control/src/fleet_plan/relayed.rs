//! Demand that a relay without services delivers to a fleet: all clusters of the relayed server
//! follow it or none, because a relay that names no service changes no cluster.
//!
//! So the cluster that is worst off decides: while its plan would keep demand from steering it,
//! nobody gets demand, and while a zone is tried that was unseen, everybody gets a part of it.

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::ramp::ramp_fractions;
use plimsoll_core::planner::{Caution, Plan, Spill};

use super::{plan, rules};
use crate::config::Service;
use crate::demand::PlanTable;
use crate::relay::RelayedClusters;

/// Steps of the ramp while a zone is tried, in percent.
const TRIAL_RAMPS: [u32; 6] = [50, 20, 10, 5, 2, 1];

/// Returns the demand to deliver to the fleet of `measured`; empty if host counts take its place.
pub(super) fn zones(
    measured: &Plan,
    plans: &PlanTable,
    clusters: &RelayedClusters,
    fleet: &HostSetCounts,
) -> Vec<ZoneFraction> {
    let is_unseen = |zone: &Locality| clusters.may_have_unchecked_hosts_in(zone);
    let is_withheld = !measured.failing.is_empty() || measured.unseen.iter().any(is_unseen);
    if !measured.has_data() || is_withheld {
        return Vec::new();
    }
    let followers: Vec<Follower<'_>> = clusters
        .observed()
        .filter(|service| follows_demand(service))
        .flat_map(|service| Follower::of(service, measured, plans))
        .collect();
    let cautions: Vec<Caution> = followers
        .iter()
        .map(|follower| follower.caution(&measured.zones, fleet))
        .collect();
    if cautions.iter().any(Caution::withholds) {
        return Vec::new();
    }
    let tries: Vec<_> = followers
        .iter()
        .zip(&cautions)
        .filter(|(_, caution)| caution.ramp.is_some())
        .map(|(follower, _)| follower)
        .collect();
    if tries.is_empty() {
        return measured.zones.clone();
    }
    let ramped = |ramp| ramp_fractions(&measured.zones, fleet, ramp);
    let is_small = |zones: &Vec<ZoneFraction>| {
        let mut cautions = tries.iter().map(|follower| follower.caution(zones, fleet));
        cautions.all(|caution| caution.ramp.is_none())
    };
    let mut steps = TRIAL_RAMPS.into_iter().map(ramped);
    steps.find(is_small).unwrap_or_default()
}

/// Whether proxies route to the cluster by the demand, or the weights, of the fleet's assignment.
fn follows_demand(service: &Service) -> bool {
    let basis = service.config.zone_aware().map(ZoneAware::locality_basis);
    service.config.uses_demand_feed_forward()
        || matches!(
            basis,
            Some(LocalityBasis::LrsReportedRate | LocalityBasis::HealthyHostsWeight)
        )
}

/// A cluster that follows the fleet's demand, and a plan that says what its requests meet.
struct Follower<'a> {
    service: &'a Service,
    plan: &'a Plan,
    upstream: HostSetCounts,
}

impl<'a> Follower<'a> {
    /// Judges a cluster by its own plan and by the sum of all: with few requests to each cluster,
    /// only the sum is more than chance.
    fn of(
        service: &'a Service,
        measured: &'a Plan,
        plans: &'a PlanTable,
    ) -> impl Iterator<Item = Self> {
        let own = plan(plans, &measured.scope.fleet, Some(service.name()));
        let own = own.map(AsRef::as_ref).filter(|own| own.has_data());
        let judges = [Some(measured), own].into_iter().flatten();
        judges.map(move |plan| Self {
            service,
            plan,
            upstream: HostSetCounts::of_assignment(&service.assignment, 0, None),
        })
    }

    /// Returns what keeps the cluster from following the demand of `zones`.
    fn caution(&self, zones: &[ZoneFraction], fleet: &HostSetCounts) -> Caution {
        let spill = Spill {
            rules: &rules(self.service),
            upstream: &self.upstream,
            fleet,
            has_health_checks: self.service.has_health_checks(),
            // A ramp of the fleet's demand reaches every cluster that follows it.
            has_locality_weights: true,
        };
        self.plan.caution(spill, &[zones])
    }
}
