//! Why traffic of a zone goes where it goes, and what would happen if.
//!
//! Both questions are answered by a real balancer that is given what the proxies are given; nothing
//! is computed here. Plimsoll data planes are given what they get to the letter, so that their own
//! `/explain` says the same; for others demand stands for the weights that say it. Served by the
//! admin API. What a proxy is given becomes a balancer in `given`.

mod given;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::explain::Explanation;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;

pub use given::Given;
use given::find;

use crate::config::{Delivery, Service};
use crate::delivery::{Class, Steering, fleet_ramp, steered_config, steering, takes_lrs};
use crate::fleet_plan::FleetPlan;
use crate::state::State;
use crate::view::assignment::weighted;

/// The question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The upstream cluster.
    pub cluster: String,
    /// The fleet; may be left out where there is only one.
    pub fleet: Option<String>,
    /// Where the proxy is; may be left out for the first zone of the fleet.
    pub locality: Option<Locality>,
    /// Upstream hosts per zone instead of those there are, all healthy. A zone goes by its name or,
    /// where that is not clear, by `region/zone/sub_zone`.
    pub hosts: BTreeMap<String, u32>,
    /// Demand per zone (any unit) instead of the measured one; zones that are left out have none.
    pub demand: BTreeMap<String, f64>,
    /// What all zones do is asked for, not what this proxy says of itself. It matters where every
    /// zone is given weights of its own: demand then stands for them, which shares follow from.
    pub every_zone: bool,
}

/// What a proxy of the fleet does, and why; ages as of `now`.
pub fn explain(
    state: &State,
    question: &Question,
    now: Instant,
) -> Result<Explanation, FieldError> {
    let service = state
        .config()
        .services
        .get(question.cluster.as_str())
        .ok_or_else(|| unknown("cluster", &question.cluster, state.config().services.keys()))?;
    let (fleet, plan) = fleet_plan(state, question)?;
    let locality = match &question.locality {
        Some(locality) => zone_of_fleet(plan, locality)?,
        None => first_zone(plan),
    };
    let class = class(state, fleet, &locality);
    let told = match own_weights(service, plan, question, (class, &locality), state)? {
        Some(told) => told,
        None => Told::new(service, plan, class, state),
    };
    let pairs = |zones: &[ZoneFraction]| {
        let pair = |zone: &ZoneFraction| (zone.locality.clone(), zone.fraction);
        zones.iter().map(pair).collect()
    };
    let given = Given {
        config: told.config,
        locality,
        upstream: &told.upstream,
        fleet: &plan.assignment,
        fractions: pairs(told.on_fleet),
        observed_traffic: pairs(told.by_lrs),
    };
    let snapshot = given.snapshot(&question.hosts, &question.demand)?;
    let age = state.delivered_age(fleet, Some(service.name()), now);
    let age = age.or_else(|| state.delivered_age(fleet, None, now));
    let asked_at = Instant::ORIGIN.saturating_add(age.unwrap_or_default());
    let mut explanation = snapshot.explain_at(asked_at);
    if service.config.load_aware_locality().is_some() {
        explanation.notes.push(UTILIZATION_UNKNOWN.to_owned());
    }
    Ok(explanation)
}

/// What a data plane knows and the control plane does not.
const UTILIZATION_UNKNOWN: &str = "hosts report their utilization to the proxies, not to the \
                                   control plane: ask a proxy (/explain) what it goes by";

/// What proxies of one class are told about one service.
struct Told<'a> {
    config: ClusterConfig,
    upstream: Cow<'a, ClusterLoadAssignment>,
    /// Demand on the fleet's assignment.
    on_fleet: &'a [ZoneFraction],
    /// Demand for this very service, which counts for more.
    by_lrs: &'a [ZoneFraction],
}

impl<'a> Told<'a> {
    fn new(service: &'a Service, plan: &'a FleetPlan, class: Class, state: &State) -> Self {
        let steering = steering_of(service, class, state);
        let upstream = Cow::Borrowed(&*service.assignment);
        let own = plan.services.get(service.name());
        let own = own.map_or(&plan.zones[..], |own| &own.zones);
        match (class, steering) {
            // Their weights are made of the service's own demand.
            (_, Steering::Demand(Delivery::LocalityWeights)) | (Class::Grpc, _) => Self {
                config: by_demand(service, steering),
                upstream,
                on_fleet: own,
                by_lrs: &[],
            },
            (Class::Plimsoll, _) => Self {
                config: steered_config(service, steering),
                upstream,
                on_fleet: &plan.zones,
                by_lrs: match takes_lrs(service, steering) {
                    true => own,
                    false => &[],
                },
            },
            (Class::Envoy, Steering::Demand(_)) => Self {
                config: by_demand(service, steering),
                upstream,
                on_fleet: &plan.zones,
                by_lrs: &[],
            },
            (Class::Envoy, _) => Self {
                config: by_demand(service, steering),
                upstream,
                on_fleet: own,
                by_lrs: &[],
            },
        }
    }
}

fn steering_of(service: &Service, class: Class, state: &State) -> Steering {
    let ramp = fleet_ramp(state.config().services.values().map(AsRef::as_ref));
    steering(service, class, ramp)
}

/// What one of our own proxies is told where weights of its zone say the demand; `None` elsewhere,
/// and for questions that are not about that zone as it is.
fn own_weights<'a>(
    service: &'a Service,
    plan: &'a FleetPlan,
    question: &Question,
    (class, locality): (Class, &Locality),
    state: &State,
) -> Result<Option<Told<'a>>, FieldError> {
    let hypothetical = !question.hosts.is_empty() || !question.demand.is_empty();
    let by_weights = Steering::Demand(Delivery::LocalityWeights);
    if question.every_zone
        || hypothetical
        || class != Class::Plimsoll
        || steering_of(service, class, state) != by_weights
    {
        return Ok(None);
    }
    let measured = plan.services.get(service.name());
    let own = measured.and_then(|measured| measured.weights_at(locality));
    Ok(Some(Told {
        config: service.config.with_locality_weights(),
        upstream: match measured {
            Some(_) => Cow::Owned(weighted(&service.assignment, own)?),
            None => Cow::Borrowed(&*service.assignment),
        },
        on_fleet: &plan.zones,
        by_lrs: &[],
    }))
}

/// The cluster as a data plane that understands measured demand would have it: the weights that
/// others get say the same, and have no dead band.
fn by_demand(service: &Service, steering: Steering) -> ClusterConfig {
    let steering = match steering {
        Steering::Demand(_) => Steering::Demand(Delivery::EdsField),
        other => other,
    };
    let config = steered_config(service, steering);
    match config.locality_policy() {
        LocalityPolicy::ZoneAware(rules) => {
            config.with_zone_aware(rules.clone().without_dead_band())
        }
        _ => config,
    }
}

/// What the proxies of a zone are; where some are not ours, all are spoken to as to strangers.
fn class(state: &State, fleet: &str, locality: &Locality) -> Class {
    let members = state.fleets().members(fleet);
    let there = members.filter(|member| member.info.node.locality == *locality);
    let classes = there.map(|member| Class::of(&member.info));
    classes.max().unwrap_or(Class::Envoy)
}

fn fleet_plan<'a>(
    state: &'a State,
    question: &Question,
) -> Result<(&'a Arc<str>, &'a FleetPlan), FieldError> {
    let names = || state.fleets().iter().map(|(name, _)| name);
    let asked = question.fleet.as_deref();
    let name = match asked {
        Some(asked) => names().find(|name| name.as_ref() == asked),
        None => names().next(),
    };
    name.and_then(|name| Some((name, state.fleet_plan(name)?)))
        .ok_or_else(|| unknown("fleet", asked.unwrap_or_default(), names()))
}

fn first_zone(plan: &FleetPlan) -> Locality {
    let zone = plan.assignment.endpoints().first();
    zone.map(|zone| zone.locality.clone()).unwrap_or_default()
}

/// A zone without region is one of the fleet's: a proxy that nobody has seen is not explained.
fn zone_of_fleet(plan: &FleetPlan, asked: &Locality) -> Result<Locality, FieldError> {
    let known = || plan.assignment.endpoints().iter().map(|e| &e.locality);
    if known().any(|locality| locality == asked) {
        return Ok(asked.clone());
    }
    let name = asked.to_string();
    find("zone", &name, known())?.ok_or_else(|| {
        let known: Vec<_> = known().map(|zone| zone.to_string().into()).collect();
        unknown("zone", &name, known.iter())
    })
}

fn unknown<'a>(field: &str, asked: &str, known: impl Iterator<Item = &'a Arc<str>>) -> FieldError {
    let known: Vec<&str> = known.map(AsRef::as_ref).collect();
    let known = match known.is_empty() {
        true => "none is known yet".to_owned(),
        false => format!("known are {}", known.join(", ")),
    };
    FieldError::new(field, format!("{asked:?} is not known; {known}"))
}
