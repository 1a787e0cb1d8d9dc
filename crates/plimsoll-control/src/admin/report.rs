//! Pages of the admin API, made from the state. Field names are stable, and each is documented in
//! docs/admin-api.md (a test of the house checks that).
//!
//! The overview and fleets live here, clusters, nodes and what-ifs in files of their own. Units are
//! part of the names; rates and shares are rounded for people.

mod clusters;
mod nodes;
mod what_if;

use std::time::Duration;

use plimsoll_core::counts::{HostSetCounts, LocalityCounts};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::GrainView;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;
use serde_json::{Value, json};

use super::reloads::Counts;
use crate::config::{Delivery, Mode};
use crate::counters::cause;
use crate::delivery::{Class, Steering, WhyNot};
use crate::relay::RelayStatus;
use crate::run::Bound;
use crate::state::State;

pub(super) use clusters::clusters;
pub(super) use nodes::nodes;
pub(super) use what_if::what_if;

/// Which part of a long list to show.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) fleet: Option<String>,
    /// Of the entries themselves: a node or a cluster.
    pub(super) name: Option<String>,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// The whole at a glance.
pub(super) fn status(
    state: &State,
    reloads: &Counts,
    (streams, upstreams): (usize, &RelayStatus),
    bound: Bound,
) -> Value {
    let fleets = state.fleets();
    let nodes: usize = fleets.iter().map(|(_, members)| members.len()).sum();
    let config = state.config();
    let relay = config.relay.as_ref().map(|relay| {
        json!({
            "address": relay.address,
            "api_type": if relay.delta { "DELTA_GRPC" } else { "GRPC" },
            "upstream": upstreams,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "relay": relay,
        "listen": bound.xds,
        "admin": bound.admin,
        "fleets": fleets.iter().count(),
        "nodes": nodes,
        "clusters": config.services.len(),
        "discovery_streams": streams,
        "load_reporting_interval_ms": millis(config.load_reporting_interval),
        "configuration": {
            "reloads_succeeded": reloads.succeeded,
            "reloads_failed": reloads.failed,
            "in_force": reloads.error.is_none(),
            "error": reloads.error,
            "read_unix_seconds": reloads.last_success_unix_seconds,
            "restart_needed": reloads.restart_needed,
        },
    })
}

/// Fleets, their zones and the demand that arrives there.
pub(super) fn fleets(state: &State, wanted: Option<&str>, now: Instant) -> Value {
    let fleets = state.fleets().iter();
    let fleets = fleets.filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name.as_ref()));
    let fleets = fleets.map(|(name, members)| {
        let delivered = state.fleet_plan(name).map_or(&[][..], |plan| &plan.zones);
        let view = state.planner().fleet(name, now);
        let demand = view
            .iter()
            .flat_map(plimsoll_core::planner::FleetView::grains)
            .map(|grain| demand(&grain));
        json!({
            "fleet": name,
            "nodes": members.len(),
            "zones": zones(&state.fleets().counts(name)),
            "basis": basis(delivered),
            "delivered": fractions(delivered),
            "delivered_age_ms": state.delivered_age(name, None, now).map(millis),
            "demand": demand.collect::<Vec<_>>(),
        })
    });
    json!({ "fleets": fleets.collect::<Vec<_>>() })
}

fn zones(nodes: &HostSetCounts) -> Vec<Value> {
    let zone =
        |slot: &LocalityCounts| json!({ "locality": place(&slot.locality), "nodes": slot.all });
    nodes.localities.iter().map(zone).collect()
}

fn demand(grain: &GrainView<'_>) -> Value {
    let zones = grain.demand().map(|zone| {
        json!({
            "locality": place(zone.locality),
            "reporters": zone.reporters,
            "requests_per_second": rounded(zone.raw_per_second),
            "smoothed_requests_per_second": rounded(zone.smoothed_per_second),
        })
    });
    let plan = grain.plan();
    json!({
        "cluster": grain.upstream_cluster(),
        "warming_up": grain.is_warming_up(),
        "zones": zones.collect::<Vec<_>>(),
        "measured": plan.map(|plan| fractions(&plan.zones)),
        "measured_age_ms": grain.plan_age().map(millis),
        "generation": plan.map(|plan| plan.generation),
        "cause": plan.map(|plan| cause(plan.cause)),
    })
}

/// How a service reaches a kind of receivers, in one word, and why it is not by demand.
pub fn delivery(steering: Steering) -> (&'static str, Option<&'static str>) {
    match steering {
        Steering::AsConfigured(why) => ("as_configured", Some(why_not(why))),
        Steering::HostCounts => ("host_counts", Some("mode_shadow")),
        Steering::Demand(delivery) => (delivery_name(delivery), None),
        Steering::FeedForward(_) => ("feed_forward", Some("load_aware_locality")),
    }
}

const fn delivery_name(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Auto => "auto",
        Delivery::EdsField => "eds_field",
        Delivery::LocalityMetadata => "locality_metadata",
        Delivery::LrsResponse => "lrs_response",
        Delivery::FleetWeights => "fleet_weights",
        Delivery::LocalityWeights => "locality_weights",
    }
}

const fn why_not(why: WhyNot) -> &'static str {
    match why {
        WhyNot::ModeOff => "mode_off",
        WhyNot::BasisWritten => "locality_basis_written",
        WhyNot::Hashing => "hashing",
        WhyNot::LoadAwareLocality => "load_aware_locality",
        WhyNot::Subsets => "subsets",
    }
}

/// The name of a kind of receivers.
pub(super) const fn class_name(class: Class) -> &'static str {
    match class {
        Class::Plimsoll => "plimsoll",
        Class::Grpc => "grpc",
        Class::Envoy => "envoy",
    }
}

/// The name of a mode, as files spell it.
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "ENFORCE",
        Mode::Shadow => "SHADOW",
        Mode::Off => "OFF",
    }
}

/// What receivers go by.
const fn basis(delivered: &[ZoneFraction]) -> &'static str {
    match delivered.is_empty() {
        true => "host_counts",
        false => "measured_demand",
    }
}

fn fractions(zones: &[ZoneFraction]) -> Vec<Value> {
    let zone = |zone: &ZoneFraction| {
        json!({
            "locality": place(&zone.locality),
            "fraction_bp": zone.fraction.get(),
            "requests_per_second": rounded(zone.rate_per_second),
            "reporters": zone.reporters,
            "estimated": zone.estimated,
        })
    };
    zones.iter().map(zone).collect()
}

fn place(locality: &Locality) -> Value {
    json!({
        "region": locality.region(),
        "zone": locality.zone(),
        "sub_zone": locality.sub_zone(),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Three decimals are more than any rate or share here is worth.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
