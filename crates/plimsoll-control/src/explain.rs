//! Explains where traffic of a zone goes, and answers what-if questions.
//!
//! Both questions are answered by a real balancer with the resources that proxies were sent,
//! decoded from the encoded messages, so that a Plimsoll data plane's own `/explain` gives the same
//! answer. For other nodes, weights that represent demand are replaced by that demand; a test
//! compares the resulting traffic shares. `changes` finds settings that are sent differently than
//! configured, `settings` does so beside load balancing; the core's `ProxyInput` runs the balancer.
//! The admin API serves the result.

mod beside;
mod changes;
mod objective;
mod settings;
mod supposed;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::explain::{
    AboveLineCode, ChangeExplanation, Explanation, KnownLocalities, ProxyInput,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::zone_plan::ZonePlan;
use plimsoll_core::time::Instant;
use plimsoll_core::units::{BasisPoints, FieldError};
use plimsoll_xds::error::DecodeError;

pub use beside::ExplainError;
use changes::changes;
use supposed::Supposed;

use crate::config::{Delivery, Service};
use crate::delivery::{NodeClass, Steering};
use crate::fleet::MAX_ENDPOINTS;
use crate::fleet_plan::{FleetPlan, ServicePlan, rules};
use crate::load_line::enforced::Enforced;
use crate::load_line::{Unknown, measured_demand};
use crate::state::{State, ViewKey};
use crate::view::{self, SentResources};

/// A question about the routing to one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    pub cluster: String,
    /// Name of the fleet; defaults to the first fleet by name.
    pub fleet: Option<String>,
    /// Locality of the proxy; defaults to the first zone of the fleet.
    pub locality: Option<Locality>,
    /// Hypothetical number of upstream hosts per zone, all healthy. A zone is given by name or, if
    /// that is ambiguous, as `region/zone/sub_zone`.
    pub hosts: BTreeMap<String, u32>,
    /// Hypothetical demand per zone, in requests per second for a service with an objective, else
    /// in any unit; zones that are not listed have none.
    pub demand: BTreeMap<String, f64>,
    /// Whether to explain all zones instead of a single proxy. If every zone has its own locality
    /// weights, they are then replaced by the demand that they represent.
    pub every_zone: bool,
    pub routing: Routing,
}

/// What an explanation is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// The resources that proxies are sent.
    #[default]
    Now,
    /// The resources that they would be sent with `mode: ENFORCE` and `ramp: 100`.
    Enforce,
}

/// Explains the routing of a proxy; ages are relative to `now`.
pub fn explain(
    state: &State,
    question: &Question,
    now: Instant,
) -> Result<Explanation, FieldError> {
    Prepared::new(state, question, now)?.explain()
}

/// Everything that an explanation needs, copied from the state: the balancer can run elsewhere
/// while the writer goes on.
#[derive(Clone, Debug)]
pub struct Prepared {
    question: Question,
    input: ProxyInput<'static>,
    /// Zone of the proxy.
    locality: Locality,
    /// The same before the ramp of the service, and its percentage, while that is under way.
    ramp: Option<(ProxyInput<'static>, u32)>,
    changes: Vec<ChangeExplanation>,
    /// What the zones serve, if the service has an objective that steers it.
    zone_plan: Option<ZonePlan>,
    /// Measured demand for the service, from which loads are computed; `None` if it is not known,
    /// or if the explanation must be that of the proxy itself.
    demand: Option<Vec<(Locality, f64)>>,
    uses_measured_demand: bool,
    /// Time since the demand was confirmed.
    age: Duration,
    /// Proxies of the fleet, and how many of them its assignment has, if that is a sample.
    sample: Option<(usize, usize)>,
    /// Notes about load that only proxies know, and about demand that says nothing.
    notes: Vec<String>,
    /// Stock Envoys and gRPC clients keep demand, except Envoys that are told to discard it.
    expires: Expires,
}

/// When a node stops using demand that is not confirmed.
#[derive(Clone, Copy, Debug)]
enum Expires {
    /// As its policy says.
    ByPolicy,
    After(Option<Duration>),
}

impl Prepared {
    /// Collects the input of an explanation. It takes time in proportion to the service's endpoints
    /// and the fleet, whatever the question.
    pub fn new(state: &State, question: &Question, now: Instant) -> Result<Self, FieldError> {
        question.check(state.config().operation.limits.what_if_zones)?;
        let service = state.service(&question.cluster).ok_or_else(|| {
            let known = state.shown_services().map(|service| service.name());
            unknown("cluster", &question.cluster, known)
        })?;
        let (fleet, plan) = fleet_plan(state, question)?;
        let age = state
            .delivered_age(fleet, Some(service.name()), now)
            .or_else(|| state.delivered_age(fleet, None, now));
        let demand = measured_demand(state, fleet, service.name(), now);
        let mut prepared = match question.routing {
            Routing::Now => {
                let sent = |service: &_, key: &_, plan: &_| state.sent(service, key, plan);
                Self::of(state, question, fleet, service, plan, sent)?
            }
            Routing::Enforce => {
                let Enforced {
                    service,
                    plan,
                    catalog,
                } = Enforced::new(state, fleet, service, plan);
                let relayed = state.relayed_body(service.name());
                let sent =
                    |service: &_, key: &_, plan: &_| catalog.sent(service, key, plan, relayed);
                Self::of(state, question, fleet, &service, &plan, sent)?
            }
        };
        prepared.age = age.unwrap_or_default();
        let unknown_load = if service.config.load_aware_locality().is_some() {
            Some(UTILIZATION_UNKNOWN)
        } else {
            prepared.observes_load().then_some(WAITING_TIMES_UNKNOWN)
        };
        let distorted = match question.routing {
            Routing::Now => None,
            Routing::Enforce => distorted(state, fleet, service),
        };
        let notes = unknown_load.into_iter().chain(distorted);
        prepared.notes = notes.map(ToOwned::to_owned).collect();
        let learner = state.capacity_of(service.name());
        prepared.notes.extend(learner.map(objective::learned));
        if question.routing == Routing::Now && state.is_on_fallback(fleet, service) {
            let withheld = state.withheld(fleet, Some(service.name()), now);
            let note = withheld.map(|why| format!("demand is not delivered yet: {why}"));
            prepared.notes.extend(note);
        }
        prepared.demand = demand.filter(|_| prepared.uses_measured_demand);
        Ok(prepared)
    }

    fn of(
        state: &State,
        question: &Question,
        fleet: &Arc<str>,
        service: &Service,
        plan: &FleetPlan,
        sent: impl FnOnce(&Service, &ViewKey, &FleetPlan) -> Result<SentResources, DecodeError>,
    ) -> Result<Self, FieldError> {
        let locality = match &question.locality {
            Some(locality) => zone_of_fleet(plan, locality)?,
            None => first_zone(plan),
        };
        let key = ViewKey {
            fleet: Arc::clone(fleet),
            class: zone_class(state, fleet, &locality),
            locality,
            returning: false,
        };
        let sent = sent(service, &key, plan)
            .map_err(|error| FieldError::new(error.path(), error.reason()))?;
        let own = plan.services.get(service.name());
        let delivered = own.map_or(Cow::Borrowed(service), |own| own.delivered(service));
        let mut changes = changes(&delivered, &sent, key.class);
        changes.extend(settings::changes(service, &sent, key.class));
        let has_demand = !plan.zones.is_empty() || !question.demand.is_empty();
        let key_class = key.class;
        // A Plimsoll data plane explains itself by what it was sent; so does the module inside an
        // Envoy.
        let engine = matches!(key.class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
        let explains_itself = engine && !question.every_zone;
        let stand_in = stand_in(question, key.class, sent.steering);
        let ramp = (stand_in == StandIn::LocalityWeights && service.ramp < 100)
            .then(|| before_ramp(service, &key, plan))
            .transpose()
            .map_err(|error| FieldError::new(error.path(), error.reason()))?
            .map(|start| (start, service.ramp));
        let zone = key.locality.clone();
        let input = match stand_in {
            // Without demand, fleet weights represent the number of proxies in each zone.
            StandIn::FleetWeights if !has_demand => as_sent(sent, key.locality),
            StandIn::None => as_sent(sent, key.locality),
            StandIn::FleetWeights => by_fleet_weights(sent, key.locality, plan),
            StandIn::LocalityWeights => by_locality_weights(service, key.locality, plan),
        };
        Ok(Self {
            question: question.clone(),
            input: input.into_owned(),
            locality: zone,
            ramp,
            changes,
            zone_plan: own.and_then(ServicePlan::zone_plan).cloned(),
            demand: None,
            uses_measured_demand: question.demand.is_empty() && !explains_itself,
            age: Duration::ZERO,
            notes: Vec::new(),
            sample: sample(state, fleet, plan),
            expires: match key_class {
                NodeClass::Plimsoll | NodeClass::EnvoyModule => Expires::ByPolicy,
                NodeClass::Envoy => Expires::After(state.config().fleets.endpoint_stale_after),
                NodeClass::Grpc => Expires::After(None),
            },
        })
    }

    /// Whether proxies choose zones by load that they observe, which the balancer here cannot know.
    pub(crate) fn observes_load(&self) -> bool {
        let config = &self.input.config;
        let basis = config.zone_aware().map(ZoneAware::locality_basis);
        let by_load = basis == Some(LocalityBasis::ObservedLoad);
        config.load_aware_locality().is_some() || (by_load && !config.endpoint_policy().is_hash())
    }

    /// Whether proxies that choose by observed load would choose the same with these resources.
    pub(crate) fn observes_the_same(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|prepared| &prepared.input);
        let same_demand =
            own.fractions == others.fractions && own.observed_traffic == others.observed_traffic;
        self.observes_load()
            && own.config == others.config
            && (same_demand || !own.config.uses_demand_feed_forward())
    }

    /// Runs the balancer, which takes time in proportion to zones of proxies times zones of hosts.
    pub fn explain(self) -> Result<Explanation, FieldError> {
        let Question { hosts, demand, .. } = &self.question;
        let now = Instant::ORIGIN.saturating_add(self.age);
        let supposed = self.supposed()?;
        let none = BTreeMap::new();
        let run = |mut input: ProxyInput<'_>| -> Result<Explanation, FieldError> {
            if let Some(supposed) = &supposed {
                supposed.put_into(&mut input);
                let snapshot = input.snapshot(hosts, &none)?;
                return Ok(snapshot.explain_with_demand(&supposed.demand, now));
            }
            let snapshot = input.snapshot(hosts, demand)?;
            Ok(match &self.demand {
                Some(demand) => snapshot.explain_with_demand(demand, now),
                None => snapshot.explain_at(now),
            })
        };
        let end = run(self.input)?;
        let mut explanation = match self.ramp {
            Some((start, percent)) => end.ramped(&run(start)?, percent),
            None => end,
        };
        if let Expires::After(stale_after) = self.expires {
            let millis = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            explanation.fractions.staleness_threshold_ms = stale_after.map(millis);
        }
        explanation.changes = self.changes;
        let plan = supposed.as_ref().map(|supposed| &supposed.plan);
        if let Some(plan) = plan.or(self.zone_plan.as_ref()) {
            let one = Some(&self.locality).filter(|_| !self.question.every_zone);
            objective::explain(&mut explanation, plan, one);
            if self.question.is_hypothetical() && supposed.is_none() {
                objective::explain_hypothetical(&mut explanation);
            }
        }
        if let Some((all, sampled)) = self.sample {
            explain_sample(&mut explanation, all, sampled);
        }
        explanation.notes.extend(self.notes);
        Ok(explanation)
    }
}

impl Prepared {
    /// Plans again for hosts or demand that somebody supposes. `None` if nobody does, or if the
    /// plan is not one that a balancer computes from demand.
    fn supposed(&self) -> Result<Option<Supposed>, FieldError> {
        let plan = self.zone_plan.as_ref();
        let plan = plan.filter(|plan| self.question.is_hypothetical() && !plan.goal().needs_rows());
        plan.map(|plan| Supposed::new(plan, &self.input, &self.question))
            .transpose()
    }
}

impl Question {
    fn is_hypothetical(&self) -> bool {
        !self.hosts.is_empty() || !self.demand.is_empty()
    }

    /// Checks the number of hypothetical zones: an explanation has a row for each zone of proxies
    /// with a column for each zone of hosts.
    fn check(&self, most: usize) -> Result<(), FieldError> {
        for (field, zones) in [("hosts", self.hosts.len()), ("demand", self.demand.len())] {
            if zones > most {
                let reason = format!("{zones} zones exceed the limit of {most}");
                return Err(FieldError::new(field, reason));
            }
        }
        Ok(())
    }
}

/// Returns why nothing can be said about ENFORCE, if failures distort the measured demand.
fn distorted(state: &State, fleet: &Arc<str>, service: &Service) -> Option<&'static str> {
    let measured = state.measured_plan(fleet, Some(service.name()))?;
    let hosts = HostSetCounts::of_assignment(&service.assignment, 0, None);
    let has_hosts = |zone: &Locality| {
        let mut slots = hosts.localities.iter();
        slots.any(|slot| slot.locality == *zone && slot.healthy > 0)
    };
    Unknown::distorted(measured, has_hosts).map(Unknown::text)
}

/// Returns the number of proxies and of endpoints of a fleet, if it has more of the former.
fn sample(state: &State, fleet: &Arc<str>, plan: &FleetPlan) -> Option<(usize, usize)> {
    let all = state.fleets().counted_nodes(fleet);
    let zones = plan.assignment.endpoints().iter();
    let sampled: usize = zones.map(|zone| zone.lb_endpoints.len()).sum();
    (all > MAX_ENDPOINTS && sampled < all).then_some((all, sampled))
}

/// Names the sample where routing assumes demand by host counts: a zone's part of the sample is
/// rounded down, but at least one.
fn explain_sample(explanation: &mut Explanation, all: usize, sampled: usize) {
    for row in &mut explanation.localities {
        if let Some(above) = &mut row.above_line
            && above.code == AboveLineCode::AssumedDemand
            && row.observed_traffic_fraction_bp.is_none()
        {
            let text = format!("; host counts are those of {sampled} proxies that stand for {all}");
            above.text.push_str(&text);
        }
    }
}

/// Note for `load_aware_locality`, which depends on utilization that only proxies know.
const UTILIZATION_UNKNOWN: &str = "hosts report their utilization to the proxies, not to the \
                                   control plane: see /explain of a proxy for its current values";

/// Note for `OBSERVED_LOAD`, which depends on what a proxy measures itself.
const WAITING_TIMES_UNKNOWN: &str = "proxies estimate load from the waiting times of their own \
                                     requests, and the shares here are those before the first \
                                     estimate: see /explain of a proxy for its current values";

/// Kind of weights that are replaced by the demand they represent before explaining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandIn {
    /// No weights are replaced: the resources are explained as they were sent.
    None,
    FleetWeights,
    /// Locality weights on the service's assignment, different for each zone.
    LocalityWeights,
}

fn stand_in(question: &Question, class: NodeClass, steering: Steering) -> StandIn {
    let one_zone = !question.every_zone && !question.is_hypothetical();
    match (class, steering) {
        (_, Steering::Demand(Delivery::FleetWeights)) => StandIn::FleetWeights,
        // A Plimsoll data plane's own explanation says that it follows locality weights.
        (NodeClass::Plimsoll, Steering::Demand(Delivery::LocalityWeights)) if one_zone => {
            StandIn::None
        }
        (_, Steering::Demand(Delivery::LocalityWeights)) => StandIn::LocalityWeights,
        _ => StandIn::None,
    }
}

fn as_sent(sent: SentResources, locality: Locality) -> ProxyInput<'static> {
    let source = sent.config.zone_aware().map(ZoneAware::fraction_source);
    let fractions = sent.fleet.fractions(source.unwrap_or_default());
    ProxyInput {
        locality,
        fractions: fractions
            .iter()
            .map(|(zone, share)| (zone.clone(), *share))
            .collect(),
        observed_traffic: sent.observed_traffic,
        config: sent.config,
        upstream: Cow::Owned(sent.upstream),
        fleet: Cow::Owned(sent.fleet),
    }
}

/// Input of the balancer of a stock Envoy, which computes demand and capacity from weights: of the
/// fleet, replaced by the demand they represent, and of upstream hosts. Envoy has no dead band.
fn by_fleet_weights(sent: SentResources, locality: Locality, plan: &FleetPlan) -> ProxyInput<'_> {
    let rules = sent
        .config
        .zone_aware()
        .cloned()
        .unwrap_or_default()
        .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
        .with_upstream_locality_basis(CapacityBasis::HealthyHostsWeight)
        .without_dead_band();
    ProxyInput {
        config: sent.config.with_zone_aware(rules),
        locality,
        upstream: Cow::Owned(sent.upstream),
        fleet: Cow::Borrowed(&plan.assignment),
        fractions: pairs(&plan.zones),
        observed_traffic: Vec::new(),
    }
}

/// Input of the balancer that locality weights are computed from: the service's demand and rules.
fn by_locality_weights<'a>(
    service: &'a Service,
    locality: Locality,
    plan: &'a FleetPlan,
) -> ProxyInput<'a> {
    let own = plan.services.get(service.name());
    ProxyInput {
        config: service.config.with_zone_aware(rules(service)),
        locality,
        upstream: Cow::Borrowed(&*service.assignment),
        fleet: Cow::Borrowed(&plan.assignment),
        fractions: pairs(own.map_or(&plan.zones[..], ServicePlan::demand)),
        observed_traffic: Vec::new(),
    }
}

/// Input of the balancer of a proxy that demand does not steer.
fn before_ramp(
    service: &Service,
    key: &ViewKey,
    plan: &FleetPlan,
) -> Result<ProxyInput<'static>, DecodeError> {
    let (config, upstream) = view::before_ramp(service, key.class)?;
    Ok(ProxyInput {
        config,
        locality: key.locality.clone(),
        upstream: Cow::Owned(upstream),
        fleet: Cow::Owned(plan.assignment.clone()),
        fractions: Vec::new(),
        observed_traffic: Vec::new(),
    })
}

fn pairs(zones: &[ZoneFraction]) -> Vec<(Locality, BasisPoints)> {
    let pair = |zone: &ZoneFraction| (zone.locality.clone(), zone.fraction);
    zones.iter().map(pair).collect()
}

/// Returns the class of the proxies in a zone; with several classes, the least capable one.
fn zone_class(state: &State, fleet: &str, locality: &Locality) -> NodeClass {
    state
        .fleets()
        .members(fleet)
        .filter(|member| member.info.node.locality == *locality)
        .map(|member| NodeClass::of(&member.info))
        .max()
        .unwrap_or(NodeClass::Envoy)
}

fn fleet_plan<'a>(
    state: &'a State,
    question: &Question,
) -> Result<(&'a Arc<str>, &'a FleetPlan), FieldError> {
    let names = || state.fleets().iter().map(|(name, _)| name);
    let requested = question.fleet.as_deref();
    let name = match requested {
        Some(requested) => names().find(|name| name.as_ref() == requested),
        None => names().next(),
    };
    name.and_then(|name| Some((name, state.fleet_plan(name)?)))
        .ok_or_else(|| match requested {
            Some(requested) => unknown("fleet", requested, names()),
            None => FieldError::new("fleet", "none is known yet: no proxy has connected"),
        })
}

fn first_zone(plan: &FleetPlan) -> Locality {
    let zone = plan.assignment.endpoints().first();
    zone.map(|zone| zone.locality.clone()).unwrap_or_default()
}

/// Finds `requested` among the zones of the fleet; there is no explanation for other zones.
fn zone_of_fleet(plan: &FleetPlan, requested: &Locality) -> Result<Locality, FieldError> {
    let known = || plan.assignment.endpoints().iter().map(|e| &e.locality);
    if known().any(|locality| locality == requested) {
        return Ok(requested.clone());
    }
    let name = requested.to_string();
    let found = KnownLocalities::new(known()).find("zone", &name)?;
    found.ok_or_else(|| {
        let known: Vec<_> = known().map(|zone| zone.to_string().into()).collect();
        unknown("zone", &name, known.iter())
    })
}

fn unknown<'a>(
    field: &str,
    requested: &str,
    known: impl Iterator<Item = &'a Arc<str>>,
) -> FieldError {
    let known: Vec<&str> = known.map(AsRef::as_ref).collect();
    let known = if known.is_empty() {
        "none is known yet".to_owned()
    } else {
        format!("known are {}", known.join(", "))
    };
    FieldError::new(field, format!("{requested:?} is not known; {known}"))
}

#[cfg(test)]
pub(crate) mod tests;
