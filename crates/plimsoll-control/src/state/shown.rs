//! What the state shows beside what it delivers: services, measured plans, and whether demand is
//! complete.

use std::sync::Arc;

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::{FleetView, Plan};
use plimsoll_core::time::Instant;

use super::{State, has_demand};
use crate::config::{Mode, Service};
use crate::delivery::{NodeClass, Steering, fleet_ramp, steering};
use crate::fleet_plan::{FleetPlan, plan};

impl State {
    /// Returns the services to show: those of the configuration; of a relay without services, the
    /// clusters of the relayed server.
    pub fn shown_services(&self) -> impl Iterator<Item = &Arc<Service>> {
        let observed = self.relayed.observed().filter(|_| self.wants_all_reports());
        self.config.services.values().chain(observed)
    }

    /// Returns a cluster of the relayed server as it is there.
    pub(crate) fn relayed_service(&self, name: &str) -> Option<&Arc<Service>> {
        self.relayed.observed_service(name)
    }

    /// Returns a service by name, among those that are shown.
    pub fn service(&self, name: &str) -> Option<&Arc<Service>> {
        let relayed = || {
            let observed = self.relayed.observed_service(name);
            observed.filter(|_| self.wants_all_reports())
        };
        self.config.services.get(name).or_else(relayed)
    }

    /// Returns the fractions by which the proxies of a fleet route requests to some service; empty
    /// if demand steers no service. A relay without services delivers demand to clusters that it
    /// does not know.
    pub fn delivered(&self, fleet: &str) -> &[ZoneFraction] {
        let plan = self.fleet_plans.get(fleet);
        let zones = plan.map_or(&[][..], |plan| &plan.zones);
        let mut services = self.config.services.values();
        if self.wants_all_reports() || services.any(|service| self.is_steered(fleet, service)) {
            zones
        } else {
            &[]
        }
    }

    /// Returns the fractions by which the proxies of a fleet route requests to `service`; empty if
    /// demand does not steer it, or is not known.
    pub fn delivered_for(&self, fleet: &str, service: &Service) -> &[ZoneFraction] {
        let plan = self.fleet_plans.get(fleet);
        let own = plan.and_then(|plan| plan.services.get(service.name()));
        match own {
            Some(own) if self.is_steered(fleet, service) => &own.zones,
            _ => &[],
        }
    }

    /// Returns what routing decisions of the proxies of a fleet are based on: `measured_demand`,
    /// `utilization` (reported by hosts), `observed_load` (by the proxies themselves), or
    /// `host_counts` in all other cases.
    pub fn basis(&self, fleet: &str, service: &Service) -> &'static str {
        let policy = service.config.locality_policy();
        if matches!(policy, LocalityPolicy::LoadAwareLocality(_)) {
            "utilization"
        } else if self.observes_load(fleet, service) {
            "observed_load"
        } else if self.delivered_for(fleet, service).is_empty()
            && !self.follows_relayed_policy(fleet, service)
        {
            "host_counts"
        } else {
            "measured_demand"
        }
    }

    /// Whether proxies of a fleet choose zones by the waiting times of their own requests; stock
    /// Envoys and gRPC clients cannot.
    fn observes_load(&self, fleet: &str, service: &Service) -> bool {
        let basis = service.config.zone_aware().map(ZoneAware::locality_basis);
        let can = |class| matches!(class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
        basis == Some(LocalityBasis::ObservedLoad)
            && !service.config.endpoint_policy().is_hash()
            && self.fleets.classes(fleet).any(can)
    }

    /// Whether proxies follow demand because the policy of the relayed server says so, which passes
    /// as it is unless a service is enforced.
    fn follows_relayed_policy(&self, fleet: &str, service: &Service) -> bool {
        let relayed = self.relayed.observed_service(service.name());
        let rules = relayed.and_then(|relayed| relayed.config.zone_aware());
        let can = |class| matches!(class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
        let plan = self.fleet_plans.get(fleet);
        service.mode != Mode::Enforce
            && rules.map(ZoneAware::locality_basis) == Some(LocalityBasis::LrsReportedRate)
            && plan.is_some_and(|plan| !plan.zones.is_empty())
            && self.fleets.classes(fleet).any(can)
    }

    /// Whether demand should steer a service, but is not known.
    pub fn is_on_fallback(&self, fleet: &str, service: &Service) -> bool {
        self.is_steered(fleet, service) && self.delivered_for(fleet, service).is_empty()
    }

    /// Whether demand steers a service at some proxy of a fleet.
    fn is_steered(&self, fleet: &str, service: &Service) -> bool {
        let ramp = fleet_ramp(self.config.services.values().map(AsRef::as_ref));
        let by_demand = |class: NodeClass| {
            let steering = steering(service, class, ramp);
            matches!(steering, Steering::Demand(_) | Steering::FeedForward(_))
        };
        self.fleets.classes(fleet).any(by_demand)
    }

    /// Whether the demand for a service is not complete yet: some proxies have not reported since
    /// they connected, or since the control plane started.
    pub fn is_warming_up(&self, fleet: &Arc<str>, cluster: &Arc<str>, now: Instant) -> bool {
        let view = self.planner.fleet(fleet, now);
        let mut scopes = view.iter().flat_map(FleetView::scopes);
        let own = scopes.find(|scope| scope.upstream_cluster() == Some(cluster));
        match own {
            Some(scope) => scope.is_warming_up(),
            None => self.is_holding(fleet, now),
        }
    }

    /// Whether the demand of a fleet is not known yet after a start: until then, proxies that come
    /// back keep what they have.
    pub fn is_holding(&self, fleet: &Arc<str>, now: Instant) -> bool {
        self.hold_until.is_some_and(|until| now < until) && !has_demand(&self.plans, fleet)
    }

    /// Returns the latest complete plan of the planner, whatever the mode of services.
    pub(crate) fn measured_plan(
        &self,
        fleet: &Arc<str>,
        upstream: Option<&Arc<str>>,
    ) -> Option<&Arc<Plan>> {
        plan(&self.plans, fleet, upstream)
    }

    /// Returns the plan of a fleet with `service` instead of the configured services.
    pub(crate) fn plan_for(
        &self,
        fleet: &Arc<str>,
        current: &FleetPlan,
        service: &Arc<Service>,
    ) -> FleetPlan {
        current.with_service(fleet, service, &self.plans)
    }
}
