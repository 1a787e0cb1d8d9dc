//! Why traffic of a zone goes where it goes, and what would happen if.
//!
//! Both questions are answered by a real balancer that is given what the proxies are given; nothing
//! is computed here. Plimsoll data planes are given what they get to the letter, so that their own
//! `/explain` says the same; for others demand stands for the weights that say it. Served by the
//! admin API.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::fractions::{ZoneFraction, largest_remainder_of_shares};
use plimsoll_core::time::Instant;
use plimsoll_core::units::{BASIS_POINTS, FieldError};

use crate::config::{Delivery, Service};
use crate::delivery::{Class, Steering, fleet_ramp, steered_config, steering, takes_lrs};
use crate::fleet_plan::FleetPlan;
use crate::state::State;

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
}

/// Most hosts that a what-if may ask for, in all zones together.
const MAX_HOSTS: u32 = 100_000;

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
    let told = Told::new(service, plan, class(state, fleet, &locality), state);
    let assignment = upstream(service, question)?;
    let fractions = match question.demand.is_empty() {
        true => told.on_fleet.iter().map(fraction).collect(),
        false => asked_demand(plan, &question.demand)?,
    };
    let originating = originating(plan, fractions)?;
    let mut balancer = Balancer::new(Arc::new(told.config), locality, Instant::ORIGIN);
    balancer.handle_originating(originating, Instant::ORIGIN);
    if question.demand.is_empty() && !told.by_lrs.is_empty() {
        let fractions = told.by_lrs.iter();
        let fractions = fractions.map(|zone| (zone.locality.clone(), zone.fraction));
        balancer.handle_observed_traffic(fractions.collect(), Instant::ORIGIN);
    }
    balancer.handle_assignment(assignment, Instant::ORIGIN);
    let snapshot = balancer.poll_snapshot();
    let snapshot = snapshot.unwrap_or_else(|| balancer.initial_snapshot(Instant::ORIGIN));
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
    /// Demand on the fleet's assignment.
    on_fleet: &'a [ZoneFraction],
    /// Demand for this very service, which counts for more.
    by_lrs: &'a [ZoneFraction],
}

impl<'a> Told<'a> {
    fn new(service: &Service, plan: &'a FleetPlan, class: Class, state: &State) -> Self {
        let ramp = fleet_ramp(state.config().services.values().map(AsRef::as_ref));
        let steering = steering(service, class, ramp);
        let own = plan.services.get(service.name());
        let own = own.map_or(&plan.zones[..], |own| &own.zones);
        match (class, steering) {
            // Their weights are made of the service's own demand.
            (_, Steering::Demand(Delivery::LocalityWeights)) | (Class::Grpc, _) => Self {
                config: by_demand(service, steering),
                on_fleet: own,
                by_lrs: &[],
            },
            (Class::Plimsoll, _) => Self {
                config: steered_config(service, steering),
                on_fleet: &plan.zones,
                by_lrs: match takes_lrs(service, steering) {
                    true => own,
                    false => &[],
                },
            },
            (Class::Envoy, Steering::Demand(_)) => Self {
                config: by_demand(service, steering),
                on_fleet: &plan.zones,
                by_lrs: &[],
            },
            (Class::Envoy, _) => Self {
                config: by_demand(service, steering),
                on_fleet: own,
                by_lrs: &[],
            },
        }
    }
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

/// The endpoints there are, or as many per zone as were asked for.
fn upstream(service: &Service, question: &Question) -> Result<ClusterLoadAssignment, FieldError> {
    if question.hosts.is_empty() {
        return Ok(ClusterLoadAssignment::clone(&service.assignment));
    }
    let total: u64 = question.hosts.values().map(|&hosts| u64::from(hosts)).sum();
    if total > u64::from(MAX_HOSTS) {
        let reason = format!("{total} hosts are more than {MAX_HOSTS}");
        return Err(FieldError::new("hosts", reason));
    }
    let mut entries: Vec<LocalityParts> = Vec::new();
    for entry in service
        .assignment
        .endpoints()
        .iter()
        .filter(|entry| entry.priority == 0)
    {
        entries.push(parts(entry));
    }
    for (zone, &hosts) in &question.hosts {
        let field = format!("hosts.{zone}");
        let locality = found_or_new(&field, zone, entries.iter().map(|entry| &entry.locality))?;
        let index = entries.iter().position(|entry| entry.locality == locality);
        let index = index.unwrap_or_else(|| {
            entries.push(LocalityParts {
                locality,
                ..Default::default()
            });
            entries.len() - 1
        });
        resize(&mut entries[index], hosts);
    }
    number(&mut entries);
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: question.cluster.clone(),
        endpoints: entries,
        ..Default::default()
    })
}

fn parts(entry: &LocalityLbEndpoints) -> LocalityParts {
    LocalityParts {
        locality: entry.locality.clone(),
        lb_endpoints: entry.lb_endpoints.clone(),
        ..Default::default()
    }
}

/// Keeps the first ones and invents what is missing.
fn resize(entry: &mut LocalityParts, hosts: u32) {
    let wanted = usize::try_from(hosts).unwrap_or(usize::MAX);
    let invented = LbEndpoint::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    entry.lb_endpoints.resize(wanted, invented);
}

/// Addresses do not matter here but must differ.
fn number(entries: &mut [LocalityParts]) {
    let endpoints = entries.iter_mut().flat_map(|entry| &mut entry.lb_endpoints);
    for (index, endpoint) in (0_u32..).zip(endpoints) {
        let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(240, 0, 0, 0)) | index);
        endpoint.address = SocketAddr::from((ip, 1));
    }
}

fn fraction(zone: &ZoneFraction) -> (Locality, u64) {
    (zone.locality.clone(), zone.fraction.get())
}

/// The fleet with the demand that is delivered to it, or the one that was asked for.
fn originating(
    plan: &FleetPlan,
    fractions: Vec<(Locality, u64)>,
) -> Result<ClusterLoadAssignment, FieldError> {
    let mut entries: BTreeMap<Locality, LocalityParts> = plan
        .assignment
        .endpoints()
        .iter()
        .map(|entry| (entry.locality.clone(), parts(entry)))
        .collect();
    for (locality, fraction) in fractions {
        let entry = entries
            .entry(locality.clone())
            .or_insert_with(|| LocalityParts {
                locality,
                ..Default::default()
            });
        entry.observed_traffic_fraction = Some(fraction);
        // By both roads, as it is sent.
        entry.metadata_traffic_fraction = u32::try_from(fraction).ok().map(f64::from);
    }
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: "fleet".to_owned(),
        endpoints: entries.into_values().collect(),
        ..Default::default()
    })
}

fn asked_demand(
    plan: &FleetPlan,
    demand: &BTreeMap<String, f64>,
) -> Result<Vec<(Locality, u64)>, FieldError> {
    if let Some((zone, rate)) = demand
        .iter()
        .find(|(_, rate)| !rate.is_finite() || **rate < 0.0)
    {
        let reason = format!("{rate} is not a rate");
        return Err(FieldError::new(format!("demand.{zone}"), reason));
    }
    let rates: Vec<f64> = demand.values().copied().collect();
    let shares = largest_remainder_of_shares(&rates, BASIS_POINTS)
        .ok_or_else(|| FieldError::new("demand", "is zero everywhere"))?;
    let known = plan.assignment.endpoints();
    // Zones that are left out have no demand, which is not the same as being unknown.
    let mut fractions: BTreeMap<Locality, u64> = known
        .iter()
        .map(|entry| (entry.locality.clone(), 0))
        .collect();
    let mut asked = BTreeSet::new();
    for (zone, share) in demand.keys().zip(shares) {
        let field = format!("demand.{zone}");
        let locality = found_or_new(&field, zone, known.iter().map(|entry| &entry.locality))?;
        if !asked.insert(locality.clone()) {
            return Err(FieldError::new(field, "is the same zone as another entry"));
        }
        fractions.insert(locality, share);
    }
    Ok(fractions.into_iter().collect())
}

/// The locality that goes by `name`: the whole of it, or the zone where only one has it.
fn find<'a>(
    field: &str,
    name: &str,
    known: impl Iterator<Item = &'a Locality> + Clone,
) -> Result<Option<Locality>, FieldError> {
    if let Some(exact) = known.clone().find(|locality| locality.to_string() == name) {
        return Ok(Some(exact.clone()));
    }
    let mut matching = known.filter(|locality| locality.zone() == name);
    match (matching.next(), matching.next()) {
        (Some(one), Some(other)) => Err(FieldError::new(
            field,
            format!("is not clear: {one} or {other}?"),
        )),
        (one, _) => Ok(one.cloned()),
    }
}

/// The same, or a new locality: `zone`, `region/zone` or `region/zone/sub_zone`. A new zone without
/// region is in that of the others, if they have one in common.
fn found_or_new<'a>(
    field: &str,
    name: &str,
    known: impl Iterator<Item = &'a Locality> + Clone,
) -> Result<Locality, FieldError> {
    if let Some(found) = find(field, name, known.clone())? {
        return Ok(found);
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(FieldError::new(field, "has an empty part"));
    }
    match *parts.as_slice() {
        [zone] => {
            let mut regions = known.map(Locality::region);
            let region = regions.next().unwrap_or_default();
            let common = regions.all(|other| other == region);
            Ok(Locality::new(if common { region } else { "" }, zone, ""))
        }
        [region, zone] => Ok(Locality::new(region, zone, "")),
        [region, zone, sub_zone] => Ok(Locality::new(region, zone, sub_zone)),
        _ => Err(FieldError::new(field, "is not region/zone/sub_zone")),
    }
}

fn unknown<'a>(field: &str, asked: &str, known: impl Iterator<Item = &'a Arc<str>>) -> FieldError {
    let known: Vec<&str> = known.map(AsRef::as_ref).collect();
    let known = match known.is_empty() {
        true => "none is known yet".to_owned(),
        false => format!("known are {}", known.join(", ")),
    };
    FieldError::new(field, format!("{asked:?} is not known; {known}"))
}
