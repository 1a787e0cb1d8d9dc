//! [`FleetPlan`]: demand and weights for the proxies of one fleet, before encoding.
//!
//! Combines the measured demand with the ramp and mode of each service, using the arithmetic of
//! `plimsoll_core::planner`. `delivery` selects the part that each node gets; `view` encodes it.

mod relayed;
mod start;
mod steered_by;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::planner::fleet_weights::{FleetHosts, FleetWeights, weights_or_host_counts};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::ramp::ramp_fractions;
use plimsoll_core::planner::steered::steered_rules;
use plimsoll_core::planner::weights::{ReceiverWeights, planned_weights, ramped_weights};
use plimsoll_core::planner::zone_plan::ZonePlan;
use plimsoll_core::planner::{Caution, Plan, PlanScope, Spill};
use plimsoll_core::time::Instant;

use crate::config::{ControlConfig, Mode, Service};
use crate::delivery::{self, NodeClass};
use crate::demand::PlanTable;
use crate::fleet::Fleets;
use crate::load_line::FailingZones;
use crate::relay::RelayedClusters;
use start::Start;
pub use steered_by::SteeredBy;

/// Demand and weights to deliver to the proxies of one fleet.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// Endpoints that represent the nodes of the fleet, without weights.
    pub assignment: ClusterLoadAssignment,
    pub counts: HostSetCounts,
    /// Demand by zone; if empty, proxies use host counts. Empty as well if no service would use it.
    /// Services with a ramp do not.
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
    /// Demand by zone with the ramp applied; if empty, proxies use host counts. Proxies that get
    /// demand as feed-forward apply the ramp themselves.
    pub zones: Vec<ZoneFraction>,
    /// The demand that steers the service, before its ramp.
    pub measured: Option<SteeredBy>,
    /// Whether proxies get demand in a form of the service's own ([`Service::has_own_plan`]).
    pub has_own_plan: bool,
    /// Locality weights for each class of nodes, most of which share them.
    weights: BTreeMap<NodeClass, Arc<[ReceiverWeights]>>,
    /// Zones whose requests fail or are not seen any more, and that would get more of them by
    /// demand than by host counts. While there are any, `zones` is empty.
    pub failing: BTreeSet<Locality>,
    /// Those of `failing` to which only the requests of some zones fail, with these zones.
    only_from: BTreeMap<Locality, Vec<Locality>>,
    /// Those of `failing` that are not known to fail: no proxy reports a request to them any more.
    pub unseen: BTreeSet<Locality>,
    /// The ramp of `zones` in percent: that of the service, or a lower one while a zone is tried
    /// that was unseen.
    pub ramp: u32,
    /// Like [`FleetPlan::epoch`], for the demand of this service.
    pub epoch: u64,
    /// Time of the latest load report that is included in `zones`.
    pub observed_at: Option<Instant>,
}

impl FleetPlan {
    /// `clusters` are those of the relayed server, for a relay without services.
    pub(crate) fn new(
        fleet: &Arc<str>,
        fleets: &Fleets,
        config: &ControlConfig,
        plans: &PlanTable,
        clusters: &RelayedClusters,
    ) -> Self {
        let (assignment, counts) = (fleets.representatives(fleet), fleets.counts(fleet));
        let measured = plan(plans, fleet, None);
        let zones = match measured.filter(|_| delivery::delivers_to_fleets(config)) {
            Some(measured) if config.services.is_empty() => {
                relayed::zones(measured, plans, clusters, &counts)
            }
            Some(measured) => measured.zones.clone(),
            None => Vec::new(),
        };
        let mut built = Self::of_fleet(fleet, assignment, counts, zones, plans);
        let services = config.services.values();
        built.services = services
            .filter(|service| service.is_visible_to(fleet))
            .map(|service| built.service(fleet, service, plans))
            .collect();
        built
    }

    /// Plans services again whose endpoints or settings changed, with the fleet's plan as it is.
    pub(crate) fn update_services(
        &mut self,
        fleet: &Arc<str>,
        config: &ControlConfig,
        plans: &PlanTable,
        changed: &BTreeSet<Arc<str>>,
    ) {
        for name in changed {
            let service = config.services.get(name);
            match service.filter(|service| service.is_visible_to(fleet)) {
                Some(service) => {
                    let (name, plan) = self.service(fleet, service, plans);
                    self.services.insert(name, plan);
                }
                None => drop(self.services.remove(name)),
            }
        }
    }

    /// Returns the plan of the same fleet with `service` as the only service.
    pub(crate) fn with_service(
        &self,
        fleet: &Arc<str>,
        service: &Service,
        plans: &PlanTable,
    ) -> Self {
        let (assignment, counts) = (self.assignment.clone(), self.counts.clone());
        let measured = plan(plans, fleet, None);
        let zones = measured.map_or_else(Vec::new, |plan| plan.zones.clone());
        let mut built = Self::of_fleet(fleet, assignment, counts, zones, plans);
        built.services = BTreeMap::from([built.service(fleet, service, plans)]);
        built
    }

    /// Returns the plan of a fleet without services, with the demand that it is sent.
    fn of_fleet(
        fleet: &Arc<str>,
        assignment: ClusterLoadAssignment,
        counts: HostSetCounts,
        zones: Vec<ZoneFraction>,
        plans: &PlanTable,
    ) -> Self {
        let measured = plan(plans, fleet, None);
        let hosts = FleetHosts::of_assignment(&assignment);
        let fleet_weights = weights_or_host_counts(&zones, &counts, &hosts);
        Self {
            services: BTreeMap::new(),
            assignment,
            counts,
            fleet_weights,
            // Without demand there is nothing to confirm.
            epoch: measured
                .filter(|_| !zones.is_empty())
                .map_or(0, |plan| plan.generation),
            zones,
        }
    }

    fn service(
        &self,
        fleet: &Arc<str>,
        service: &Service,
        plans: &PlanTable,
    ) -> (Arc<str>, ServicePlan) {
        let measured = plan(plans, fleet, None);
        let plan = ServicePlan::new(fleet, service, self, measured, plans);
        (Arc::clone(service.name()), plan)
    }

    /// Whether the fleet has nodes in a zone that counts.
    pub(crate) fn has_zone(&self, locality: &Locality) -> bool {
        let zones = &self.counts.localities;
        zones.iter().any(|zone| zone.locality == *locality)
    }
}

impl ServicePlan {
    /// `of_fleet` has what is delivered on the fleet's own assignment.
    fn new(
        fleet: &Arc<str>,
        service: &Service,
        of_fleet: &FleetPlan,
        fleet_plan: Option<&Arc<Plan>>,
        plans: &PlanTable,
    ) -> Self {
        let own = plan(plans, fleet, Some(service.name())).filter(|plan| plan.has_data());
        let of_service = plans.own(service.name());
        let upstream = HostSetCounts::of_assignment(&service.assignment, 0, None);
        let caution = own
            .map(|own| {
                let zones = of_service.map_or(&own.zones[..], |plan| plan.zones());
                caution(own, zones, service, of_fleet, &upstream)
            })
            .unwrap_or_default();
        let failing = &caution.failing | &caution.unseen;
        let only_from = |zone: &Locality| {
            let from: Vec<_> = own?.fails_only_from(zone).into_iter().cloned().collect();
            (!from.is_empty()).then(|| (zone.clone(), from))
        };
        let only_from = caution.failing.iter().filter_map(only_from).collect();
        let measured = match service.mode {
            Mode::Enforce if delivery::explicit_basis(service).is_none() && failing.is_empty() => {
                let own_plan = of_service.cloned().map(SteeredBy::Own);
                own_plan.or_else(|| own.or(fleet_plan).cloned().map(SteeredBy::Fleet))
            }
            Mode::Enforce | Mode::Shadow | Mode::Off => None,
        };
        let demand = measured.as_ref().map_or(&[][..], SteeredBy::zones);
        let zone_plan = measured.as_ref().and_then(SteeredBy::zone_plan);
        let trial = caution.ramp.filter(|&ramp| ramp < service.ramp);
        let ramp = trial.unwrap_or(service.ramp);
        let start = |class| match ramp {
            100.. => Start::Hosts,
            // Unlike OFF, host counts cannot be worse than themselves.
            _ if trial.is_some() => Start::HostCounts(steered_rules(&service.config)),
            _ => Start::of(service, class),
        };
        let rules = rules(service);
        let counts = &of_fleet.counts;
        let from = |start: &Start| {
            let (start, counts) = (start.as_ramp_start(), Some(counts));
            match zone_plan {
                Some(plan) => planned_weights(&rules, start, &upstream, counts, plan, ramp),
                None => ramped_weights(&rules, start, &upstream, counts, demand, ramp),
            }
        };
        Self {
            zones: if delivery::uses_feed_forward(service) {
                demand.to_vec()
            } else {
                ramp_fractions(demand, counts, ramp)
            },
            weights: by_class(start, from),
            has_own_plan: service.has_own_plan || of_service.is_some(),
            failing,
            only_from,
            unseen: caution.unseen,
            ramp,
            epoch: measured.as_ref().map_or(0, |plan| plan.newest().generation),
            observed_at: measured.as_ref().map(SteeredBy::observed_at),
            measured,
        }
    }

    /// Returns the weights for nodes of `class`, by zone.
    pub fn weights(&self, class: NodeClass) -> &[ReceiverWeights] {
        self.weights.get(&class).map_or(&[], |weights| weights)
    }

    /// Returns the zones that keep demand from steering, apart from the mode of the service.
    pub fn withheld(&self) -> FailingZones {
        FailingZones {
            failing: &self.failing - &self.unseen,
            only_from: self.only_from.clone(),
            unseen: self.unseen.clone(),
        }
    }

    /// Returns the service as it is delivered: with a lower ramp than written while a zone is
    /// tried, or with a plan of its own. Nodes then get its own demand, not that of the fleet.
    pub(crate) fn delivered<'a>(&self, service: &'a Service) -> Cow<'a, Service> {
        if self.is_as_written(service) {
            return Cow::Borrowed(service);
        }
        Cow::Owned(Service {
            ramp: self.ramp,
            is_trial: self.ramp != service.ramp,
            has_own_plan: self.has_own_plan,
            ..Service::clone(service)
        })
    }

    /// Whether the service is delivered with its own settings.
    pub(crate) const fn is_as_written(&self, service: &Service) -> bool {
        self.ramp == service.ramp && self.has_own_plan == service.has_own_plan
    }

    /// Returns the weights for nodes of `class` in `receiver`; `None` if the fleet has none there.
    pub fn weights_at(&self, receiver: &Locality, class: NodeClass) -> Option<&ReceiverWeights> {
        let mut weights = self.weights(class).iter();
        weights.find(|weights| weights.receiver == *receiver)
    }

    /// Returns what the zones serve, if the service has an objective that steers it.
    pub(crate) fn zone_plan(&self) -> Option<&ZonePlan> {
        self.measured.as_ref().and_then(SteeredBy::zone_plan)
    }

    /// Returns the demand by zone, before the ramp; empty if host counts take its place.
    pub(crate) fn demand(&self) -> &[ZoneFraction] {
        self.measured.as_ref().map_or(&[], SteeredBy::zones)
    }
}

/// Computes weights for each class of nodes, once for those whose ramp starts from the same.
fn by_class(
    start: impl Fn(NodeClass) -> Start,
    from: impl Fn(&Start) -> Vec<ReceiverWeights>,
) -> BTreeMap<NodeClass, Arc<[ReceiverWeights]>> {
    let mut known: Vec<(Start, Arc<[ReceiverWeights]>)> = Vec::new();
    let of = |class| {
        let start = start(class);
        let same = known.iter().find(|(other, _)| *other == start);
        let weights = same.map(|(_, weights)| Arc::clone(weights));
        let weights = weights.unwrap_or_else(|| {
            let weights: Arc<[ReceiverWeights]> = from(&start).into();
            known.push((start, Arc::clone(&weights)));
            weights
        });
        (class, weights)
    };
    NodeClass::ALL.map(of).into_iter().collect()
}

/// Returns what keeps `own`, the plan of the service, from steering it, by every set of fractions
/// that proxies may follow: `zones`, and those of the fleet, which have the demand of other
/// services, too.
fn caution(
    own: &Plan,
    zones: &[ZoneFraction],
    service: &Service,
    of_fleet: &FleetPlan,
    upstream: &HostSetCounts,
) -> Caution {
    let fleet = &of_fleet.counts;
    let own_zones = ramp_fractions(zones, fleet, service.ramp);
    let shared = Some(&*of_fleet.zones).filter(|_| delivery::uses_fleet_assignment(service));
    let in_force: Vec<_> = [Some(&*own_zones), shared].into_iter().flatten().collect();
    let spill = Spill {
        rules: &rules(service),
        upstream,
        fleet,
        has_health_checks: service.has_health_checks(),
        has_locality_weights: !delivery::ignores_locality_weights(service),
    };
    own.caution(spill, &in_force)
}

/// Returns the planner's plan for a fleet, or for one of its services.
pub(crate) fn plan<'a>(
    plans: &'a PlanTable,
    fleet: &Arc<str>,
    upstream: Option<&Arc<str>>,
) -> Option<&'a Arc<Plan>> {
    let scope = PlanScope {
        fleet: Arc::clone(fleet),
        upstream_cluster: upstream.cloned(),
    };
    plans.delivered(&scope).map(|delivered| &delivered.plan)
}

/// Returns the zone-aware rules of the cluster for locality weights, based on measured demand.
pub(crate) fn rules(service: &Service) -> ZoneAware {
    let rules = steered_rules(&service.config)
        .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
        .without_dead_band();
    delivery::with_capacity_of(service, rules)
}

#[cfg(test)]
pub(crate) mod tests;
