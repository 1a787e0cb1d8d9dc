//! Why traffic of a zone goes where it goes, and what would happen if.
//!
//! Both questions are answered by a real balancer that is given what the proxies were sent, read
//! back from the bytes; nothing is computed here. So a plimsoll data plane's own `/explain` says
//! the same. For others demand stands for the weights that say it, where it does; a test holds the
//! shares of both against each other. What was sent otherwise than it is written is found in
//! `changes`; what a proxy is given becomes a balancer in `given`. Served by the admin API.

mod changes;
mod given;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis, ZoneAware};
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;
use plimsoll_core::units::{BasisPoints, FieldError};

use changes::changes;
pub use given::Given;
use given::find;

use crate::config::{Delivery, Service};
use crate::delivery::{Class, Steering};
use crate::fleet_plan::{FleetPlan, rules};
use crate::state::{State, ViewKey};
use crate::view::Sent;

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
    let key = ViewKey {
        fleet: Arc::clone(fleet),
        class: class(state, fleet, &locality),
        locality,
        returning: false,
    };
    let sent = state.sent(service, &key, plan);
    let sent = sent.map_err(|error| FieldError::new(error.path(), error.reason()))?;
    let changes = changes(service, &sent, key.class);
    let has_demand = !plan.zones.is_empty() || !question.demand.is_empty();
    let given = match stand_in(question, key.class, sent.steering) {
        // Without demand weights of the fleet count proxies, as they say themselves.
        StandIn::FleetWeights if !has_demand => as_sent(sent, key.locality),
        StandIn::None => as_sent(sent, key.locality),
        StandIn::FleetWeights => by_fleet_weights(sent, key.locality, plan),
        StandIn::LocalityWeights => by_locality_weights(service, key.locality, plan),
    };
    let snapshot = given.snapshot(&question.hosts, &question.demand)?;
    let age = state.delivered_age(fleet, Some(service.name()), now);
    let age = age.or_else(|| state.delivered_age(fleet, None, now));
    let asked_at = Instant::ORIGIN.saturating_add(age.unwrap_or_default());
    let mut explanation = snapshot.explain_at(asked_at);
    explanation.changes = changes;
    if service.config.load_aware_locality().is_some() {
        explanation.notes.push(UTILIZATION_UNKNOWN.to_owned());
    }
    Ok(explanation)
}

/// What a data plane knows and the control plane does not.
const UTILIZATION_UNKNOWN: &str = "hosts report their utilization to the proxies, not to the \
                                   control plane: ask a proxy (/explain) what it goes by";

/// For which weights demand stands, so that people see why they are what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandIn {
    /// For none: what was sent is explained.
    None,
    /// For the weights of the fleet.
    FleetWeights,
    /// For the weights of localities, which every zone has of its own.
    LocalityWeights,
}

fn stand_in(question: &Question, class: Class, steering: Steering) -> StandIn {
    let hypothetical = !question.hosts.is_empty() || !question.demand.is_empty();
    let one_zone = !question.every_zone && !hypothetical;
    match (class, steering) {
        (_, Steering::Demand(Delivery::FleetWeights)) => StandIn::FleetWeights,
        // One of our own proxies says of itself that it follows weights.
        (Class::Plimsoll, Steering::Demand(Delivery::LocalityWeights)) if one_zone => StandIn::None,
        (_, Steering::Demand(Delivery::LocalityWeights)) => StandIn::LocalityWeights,
        (Class::Grpc, Steering::HostCounts) if !one_zone => StandIn::LocalityWeights,
        _ => StandIn::None,
    }
}

/// What the receiver itself has.
fn as_sent(sent: Sent, locality: Locality) -> Given<'static> {
    let source = sent.config.zone_aware().map(ZoneAware::fraction_source);
    let fractions = sent.fleet.fractions(source.unwrap_or_default());
    let fractions = fractions.iter();
    Given {
        locality,
        fractions: fractions
            .map(|(zone, share)| (zone.clone(), *share))
            .collect(),
        observed_traffic: sent.observed_traffic,
        config: sent.config,
        upstream: Cow::Owned(sent.upstream),
        fleet: Cow::Owned(sent.fleet),
    }
}

/// A stock Envoy goes by one basis on both sides: weights of the fleet, which say the demand, and
/// weights of hosts. They have no dead band.
fn by_fleet_weights(sent: Sent, locality: Locality, plan: &FleetPlan) -> Given<'_> {
    let rules = sent.config.zone_aware().cloned().unwrap_or_default();
    let rules = rules
        .on_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
        .with_upstream_locality_basis(CapacityBasis::HealthyHostsWeight)
        .without_dead_band();
    Given {
        config: sent.config.with_zone_aware(rules),
        locality,
        upstream: Cow::Owned(sent.upstream),
        fleet: Cow::Borrowed(&plan.assignment),
        fractions: pairs(&plan.zones),
        observed_traffic: Vec::new(),
    }
}

/// Weights of localities are made of the service's own demand, by its own rules.
fn by_locality_weights<'a>(
    service: &'a Service,
    locality: Locality,
    plan: &'a FleetPlan,
) -> Given<'a> {
    let own = plan.services.get(service.name());
    Given {
        config: service.config.with_zone_aware(rules(service)),
        locality,
        upstream: Cow::Borrowed(&*service.assignment),
        fleet: Cow::Borrowed(&plan.assignment),
        fractions: pairs(own.map_or(&plan.zones[..], |own| &own.zones)),
        observed_traffic: Vec::new(),
    }
}

fn pairs(zones: &[ZoneFraction]) -> Vec<(Locality, BasisPoints)> {
    let pair = |zone: &ZoneFraction| (zone.locality.clone(), zone.fraction);
    zones.iter().map(pair).collect()
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

#[cfg(test)]
mod tests;
