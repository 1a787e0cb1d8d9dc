//! Read-only questions about the state, which read several owners: services, measured plans, how
//! services are steered, and whether demand is complete.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::planner::capacity::CapacityLearner;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::{FleetView, Plan, PlanScope, Planner};
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::lrs::{LrsSettings, LrsTraffic};

use super::{State, Suspects, TrafficKey, ViewKey};
use crate::config::{ControlConfig, Mode, Service};
use crate::delivery::{NodeClass, NotSteeredReason, Steering, steering};
use crate::demand::{OwnPlan, Withheld};
use crate::evacuation::ZonesOut;
use crate::fleet::Fleets;
use crate::fleet_plan::{FleetPlan, SteeredBy, plan};
use crate::output::Output;
use crate::relay::Patch;
use crate::replicas::Replicas;
use crate::services::Services;
use crate::view::SentResources;

impl State {
    /// Returns the load reporting settings. Clients that support `send_all_clusters` report all
    /// clusters, others the listed ones. Reporting all has two advantages: grpc-js skips the first
    /// name of a list, and a new service needs no new response, which would restart the report
    /// timer of an Envoy. Clusters that Envoys add on their own (their management servers) are
    /// ignored in [`State::handle_report`].
    pub fn lrs_settings(&self) -> LrsSettings {
        let config = self.config();
        LrsSettings {
            interval: config.reporting.load_reporting_interval,
            send_all_clusters: true,
            clusters: config.services.keys().cloned().collect(),
            // For all clusters of a client alike: the response has one flag.
            report_endpoint_granularity: config.reporting.report_endpoint_granularity
                || config.services.values().any(|one| one.learning.is_some()),
        }
    }

    /// Returns the active configuration, with policies and endpoints of the relayed server.
    pub const fn config(&self) -> &Arc<ControlConfig> {
        self.services.in_force()
    }

    /// Returns a hash of the configuration, which replicas should have in common.
    pub const fn fingerprint(&self) -> u64 {
        self.services.agreed()
    }

    /// Returns the active configuration as it was applied.
    pub const fn file_config(&self) -> &Arc<ControlConfig> {
        self.services.files()
    }

    /// Returns the services of all sources.
    pub const fn services(&self) -> &Services {
        self.services.services()
    }

    /// Whether demand for every reported cluster counts: if a relay is configured without services.
    pub(crate) fn wants_all_reports(&self) -> bool {
        self.services.wants_all_reports()
    }

    /// Returns the zones that are taken out of use.
    pub(crate) const fn zones_out(&self) -> &ZonesOut {
        self.services.zones_out()
    }

    /// Returns the nodes of each fleet.
    pub const fn fleets(&self) -> &Fleets {
        self.fleets.fleets()
    }

    /// Returns nodes with recent signs of a wrong identity or load report.
    pub const fn suspects(&self) -> &Suspects {
        self.fleets.suspects()
    }

    /// Returns the known locality that a node in another one probably means.
    pub fn nearest_locality(&self, locality: &Locality) -> Option<Locality> {
        self.fleets.nearest_locality(locality)
    }

    /// Returns the planner, which measures demand.
    pub const fn planner(&self) -> &Planner {
        self.demand.planner()
    }

    /// Returns what is known of the capacity of a service's hosts; `None` if it is not learned.
    pub fn capacity_of(&self, service: &str) -> Option<&CapacityLearner> {
        self.demand.capacity_of(service)
    }

    /// Returns what this control plane knows about its replicas; `None` without a store.
    pub const fn replicas(&self) -> Option<&Replicas> {
        self.demand.replicas()
    }

    /// Returns why the newest demand of a fleet, or of one of its services, is not delivered;
    /// `None` if it may be. A service without load reports uses the demand of the whole fleet.
    pub fn withheld(
        &self,
        fleet: &Arc<str>,
        service: Option<&Arc<str>>,
        now: Instant,
    ) -> Option<Withheld> {
        let own = service.map(|name| scope(fleet, Some(name)));
        let own = own.filter(|own| self.planner().plan(own).is_some());
        let scope = own.unwrap_or_else(|| scope(fleet, None));
        let may_deliver = self.demand.gate().may_deliver(&scope, self.fleets(), now);
        may_deliver.err()
    }

    /// Returns what receivers with `key` are sent.
    pub fn output(&self, key: &ViewKey) -> Option<&Output> {
        self.outputs.get(key)
    }

    /// Returns the view with `key`; `None` if there is a relay.
    pub fn view(&self, key: &ViewKey) -> Option<&Arc<View>> {
        self.outputs.get(key)?.complete()
    }

    /// Returns the patch with `key`; `None` if there is no relay.
    pub fn patch(&self, key: &ViewKey) -> Option<&Arc<Patch>> {
        self.outputs.get(key)?.patch()
    }

    /// Returns the demand of a fleet by service, for nodes that get demand with LRS responses.
    pub fn traffic(&self, key: &TrafficKey) -> Arc<LrsTraffic> {
        self.outputs.traffic(key)
    }

    /// Returns what is delivered to a fleet; `None` if no node of the fleet has been seen.
    pub fn fleet_plan(&self, fleet: &str) -> Option<&FleetPlan> {
        self.outputs.fleet_plan(fleet)
    }

    /// Whether the plan and the outputs of a fleet are up to date.
    pub(crate) fn is_current(&self, fleet: &str) -> bool {
        self.outputs.is_current(fleet)
    }

    pub(crate) fn sent(
        &self,
        service: &Service,
        key: &ViewKey,
        plan: &FleetPlan,
    ) -> Result<SentResources, DecodeError> {
        self.outputs
            .sent(service, key, plan, self.services.relayed())
    }

    /// Returns the time since the demand that is delivered to a fleet was confirmed: for one
    /// service, or for the fleet as a whole. `None` if host counts are delivered.
    pub fn delivered_age(
        &self,
        fleet: &Arc<str>,
        service: Option<&Arc<str>>,
        now: Instant,
    ) -> Option<Duration> {
        let plan = self.fleet_plan(fleet)?;
        let own = service.map(|name| plan.services.get(name));
        let (zones, epoch) = match own {
            Some(own) => own.map(|own| (&own.zones[..], own.epoch))?,
            None => (self.delivered(fleet), plan.epoch),
        };
        let measured = own.and_then(|own| own?.measured.as_ref());
        let at = if let Some(SteeredBy::Own(plan)) = measured {
            plan.planned_at()
        } else {
            // A service without load reports uses the demand of the whole fleet.
            let scopes = [service, None].map(|upstream| scope(fleet, upstream));
            let plans = self.demand.plans();
            let mut delivered = scopes.iter().filter_map(|scope| plans.delivered(scope));
            delivered
                .find(|delivered| delivered.plan.generation == epoch)?
                .at
        };
        (!zones.is_empty()).then(|| now.saturating_duration_since(at))
    }

    /// Returns the services to show: those of the configuration; of a relay without services, the
    /// clusters of the relayed server.
    pub fn shown_services(&self) -> impl Iterator<Item = &Arc<Service>> {
        let observed = self
            .services
            .relayed()
            .observed()
            .filter(|_| self.wants_all_reports());
        self.config().services.values().chain(observed)
    }

    /// Returns the services that ask for measured demand although it cannot steer them, with the
    /// field that asks and the reason: those of a file are refused, but the policies of a relayed
    /// server are learned later.
    pub fn without_effect(&self) -> BTreeMap<Arc<str>, FieldError> {
        self.services.without_effect()
    }

    /// Returns a cluster of the relayed server as it is there.
    pub(crate) fn relayed_service(&self, name: &str) -> Option<&Arc<Service>> {
        self.services.relayed().observed_service(name)
    }

    /// Returns a cluster as the relayed server sent it.
    pub(crate) fn relayed_body(&self, name: &str) -> Option<&Bytes> {
        self.services.relayed().body(name)
    }

    /// Returns a service by name, among those that are shown.
    pub fn service(&self, name: &str) -> Option<&Arc<Service>> {
        let relayed = || {
            let observed = self.services.relayed().observed_service(name);
            observed.filter(|_| self.wants_all_reports())
        };
        self.config().services.get(name).or_else(relayed)
    }

    /// Returns the fractions by which the proxies of a fleet route requests to some service; empty
    /// if demand steers no service. A relay without services delivers demand to clusters that it
    /// does not know.
    pub fn delivered(&self, fleet: &str) -> &[ZoneFraction] {
        let plan = self.outputs.fleet_plan(fleet);
        let zones = plan.map_or(&[][..], |plan| &plan.zones);
        let mut services = self.config().services.values();
        if self.wants_all_reports() || services.any(|service| self.is_steered(fleet, service)) {
            zones
        } else {
            &[]
        }
    }

    /// Returns the fractions by which the proxies of a fleet route requests to `service`; empty if
    /// demand does not steer it, or is not known.
    pub fn delivered_for(&self, fleet: &str, service: &Service) -> &[ZoneFraction] {
        let plan = self.outputs.fleet_plan(fleet);
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
        // Clusters that a relay passes on do not name the module.
        let is_passed = self.config().relay.is_some() && !service.has_explicit_policy;
        let can = |class| {
            let is_engine =
                class == NodeClass::Plimsoll || class == NodeClass::EnvoyModule && !is_passed;
            let steering = self.steering(service, class, None);
            is_engine && matches!(steering, Steering::AsConfigured(_))
        };
        basis == Some(LocalityBasis::ObservedLoad)
            && !service.config.endpoint_policy().is_hash()
            && self.fleets().classes(fleet).any(can)
    }

    /// Whether proxies follow demand because the policy of the relayed server says so, which passes
    /// as it is unless a service is enforced.
    fn follows_relayed_policy(&self, fleet: &str, service: &Service) -> bool {
        let relayed = self.services.relayed().observed_service(service.name());
        let rules = relayed.and_then(|relayed| relayed.config.zone_aware());
        // The module is named by clusters that are rewritten only.
        let can = |class| class == NodeClass::Plimsoll;
        let plan = self.outputs.fleet_plan(fleet);
        service.mode != Mode::Enforce
            && rules.map(ZoneAware::locality_basis) == Some(LocalityBasis::LrsReportedRate)
            && plan.is_some_and(|plan| !plan.zones.is_empty())
            && self.fleets().classes(fleet).any(can)
    }

    /// Whether demand should steer a service, but is not known.
    pub fn is_on_fallback(&self, fleet: &str, service: &Service) -> bool {
        self.is_steered(fleet, service) && self.delivered_for(fleet, service).is_empty()
    }

    /// Returns how a service is steered at nodes of a class, as the resources say that they are
    /// sent: in a fleet, or, without one, as long as no zone fails.
    pub fn steering(&self, service: &Service, class: NodeClass, fleet: Option<&str>) -> Steering {
        let plan = fleet.and_then(|fleet| self.outputs.fleet_plan(fleet));
        let own = plan.and_then(|plan| plan.services.get(service.name()));
        let zone_fails = own.is_some_and(|own| !own.failing.is_empty());
        let delivered = own.map_or(Cow::Borrowed(service), |own| own.delivered(service));
        match steering(&delivered, class) {
            // Locality weights and load report responses carry host counts then.
            Steering::Demand(_) if zone_fails => Steering::ZoneFails,
            Steering::FeedForward(_) if zone_fails => {
                Steering::AsConfigured(NotSteeredReason::ZoneFails)
            }
            Steering::HostCounts if self.passes_policy(service) => {
                Steering::AsConfigured(NotSteeredReason::ModeShadow)
            }
            steering => steering,
        }
    }

    /// Whether SHADOW changes nothing in the policy of a service: a relay passes that of the other
    /// server on, and only zone-aware rules have a basis.
    fn passes_policy(&self, service: &Service) -> bool {
        let is_relayed = self.config().relay.is_some() && !service.has_explicit_policy;
        let policy = service.config.locality_policy();
        is_relayed || !matches!(policy, LocalityPolicy::ZoneAware(_))
    }

    /// Whether demand steers a service at some proxy of a fleet, as long as no zone fails.
    fn is_steered(&self, fleet: &str, service: &Service) -> bool {
        let by_demand = |class: NodeClass| {
            let steering = self.steering(service, class, None);
            matches!(steering, Steering::Demand(_) | Steering::FeedForward(_))
        };
        self.fleets().classes(fleet).any(by_demand)
    }

    /// Whether the demand for a service is not complete yet: some proxies have not reported since
    /// they connected, or since the control plane started.
    pub fn is_warming_up(&self, fleet: &Arc<str>, cluster: &Arc<str>, now: Instant) -> bool {
        let view = self.planner().fleet(fleet, now);
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
        self.demand.gate().is_starting(fleet, now)
    }

    /// Iterates over the scopes whose plans in force other replicas may not have.
    pub(crate) fn not_agreed(&self) -> impl Iterator<Item = &PlanScope> {
        self.demand.agreed().not_agreed()
    }

    /// Returns the latest complete plan of the planner, whatever the mode of services.
    pub fn measured_plan(
        &self,
        fleet: &Arc<str>,
        upstream: Option<&Arc<str>>,
    ) -> Option<&Arc<Plan>> {
        plan(self.demand.plans(), fleet, upstream)
    }

    /// Returns the plan that a service has of its own, whatever its mode.
    pub(crate) fn own_plan(&self, service: &str) -> Option<&Arc<OwnPlan>> {
        self.demand.plans().own(service)
    }

    /// Returns the plan of a fleet with `service` instead of the configured services.
    pub(crate) fn plan_for(
        &self,
        fleet: &Arc<str>,
        current: &FleetPlan,
        service: &Arc<Service>,
    ) -> FleetPlan {
        current.with_service(fleet, service, self.demand.plans())
    }
}

fn scope(fleet: &Arc<str>, upstream: Option<&Arc<str>>) -> PlanScope {
    PlanScope {
        fleet: Arc::clone(fleet),
        upstream_cluster: upstream.cloned(),
    }
}
