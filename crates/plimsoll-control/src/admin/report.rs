//! Responses of the admin API, built from the state. Field names are stable, and a test checks that
//! docs/admin-api.md documents each. `/status` and `/fleets` are in this file; the others
//! have files of their own. Field names have units; rates and shares are rounded.

mod audit;
mod clusters;
mod load;
mod nodes;
mod replicas;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_admin::api::rounded;
use plimsoll_core::counts::{HostSetCounts, LocalityCounts};
use plimsoll_core::planner::ScopeView;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;
use plimsoll_serve::ReloadCounts;

use super::responses::{
    Configuration, Demand, Fleet, FleetZone, Fleets, Fraction, Relay, Status, ZoneDemand,
};
use crate::config::{Delivery, Mode};
use crate::delivery::{NodeClass, NotSteeredReason, Steering};
use crate::events::reasons::Reason as _;
use crate::relay::RelayStatus;
use crate::run::Bound;
use crate::state::State;
use crate::verdict::Verdict;

pub(super) use audit::{AuditQuery, audit};
pub(super) use clusters::clusters;
pub(super) use load::{load, load_line, zone_losses};
pub use load::{planned_cost, total_load, zone_load};
pub(super) use nodes::{node_page, nodes};
pub(super) use replicas::replicas;

#[derive(Clone, Debug, Default)]
pub(super) struct ListQuery {
    pub(super) fleet: Option<String>,
    /// Name of a node or cluster.
    pub(super) name: Option<String>,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// Response of `/api/v1/status`: version, addresses, and numbers of fleets, nodes and streams.
pub(super) fn status(
    state: &State,
    reloads: ReloadCounts,
    streams: usize,
    upstreams: RelayStatus,
    bound: Bound,
    insecure: bool,
    verdict: Verdict,
) -> Status {
    let fleets = state.fleets();
    let nodes: usize = fleets.iter().map(|(_, members)| members.len()).sum();
    let config = state.config();
    let relay = config.relay.as_ref().map(|relay| Relay {
        address: relay.address.clone(),
        api_type: if relay.delta { "DELTA_GRPC" } else { "GRPC" },
        upstream: upstreams,
    });
    Status {
        version: env!("CARGO_PKG_VERSION"),
        relay,
        listen: bound.xds,
        insecure,
        admin: bound.admin,
        read_only: bound.read_only,
        verdict: verdict.into(),
        fleets: fleets.iter().count(),
        nodes,
        clusters: config.services.len(),
        discovery_streams: streams,
        load_reporting_interval_ms: millis(config.reporting.load_reporting_interval),
        configuration: Configuration {
            reloads_succeeded: reloads.succeeded,
            reloads_failed: reloads.failed,
            in_force: reloads.error.is_none(),
            error: reloads.error,
            read_unix_seconds: reloads.last_success_unix_seconds,
            restart_needed: reloads.restart_needed,
        },
    }
}

/// Returns the only cluster in the response of `/api/v1/clusters`.
#[cfg(test)]
pub(crate) fn only_cluster(state: &State, now: Instant) -> serde_json::Value {
    let query = ListQuery {
        limit: 1,
        ..ListQuery::default()
    };
    let page = serde_json::to_value(clusters(state, &query, now)).unwrap();
    assert_eq!(page["total"], 1);
    page["clusters"][0].clone()
}

/// Response of `/api/v1/fleets`: each fleet with its zones and its demand.
pub(super) fn fleets(state: &State, fleet: Option<&str>, now: Instant) -> Fleets {
    let matching = state
        .fleets()
        .iter()
        .filter(|(name, _)| fleet.is_none_or(|fleet| fleet == name.as_ref()));
    let fleets = matching.map(|(name, members)| {
        let delivered = state.delivered(name);
        let view = state.planner().fleet(name, now);
        let demand = view
            .iter()
            .flat_map(plimsoll_core::planner::FleetView::scopes)
            .map(|scope| demand(&scope));
        Fleet {
            fleet: Arc::clone(name),
            nodes: members.len(),
            zones: zones(&state.fleets().counts(name)),
            basis: basis(delivered),
            warming_up: is_warming_up(state, name, now),
            withheld: state.withheld(name, None, now).map(|why| why.to_string()),
            delivered: fractions(delivered),
            delivered_age_ms: state.delivered_age(name, None, now).map(millis),
            demand: demand.collect(),
        }
    });
    Fleets {
        fleets: fleets.collect(),
    }
}

/// Whether the demand of a whole fleet is not complete yet.
fn is_warming_up(state: &State, fleet: &Arc<str>, now: Instant) -> bool {
    let view = state.planner().fleet(fleet, now);
    let whole = view.and_then(|view| view.scopes().next());
    match whole {
        Some(scope) => scope.is_warming_up(),
        None => state.is_holding(fleet, now),
    }
}

fn zones(nodes: &HostSetCounts) -> Vec<FleetZone> {
    let zone = |slot: &LocalityCounts| FleetZone {
        locality: slot.locality.clone(),
        nodes: slot.all,
    };
    nodes.localities.iter().map(zone).collect()
}

fn demand(scope: &ScopeView<'_>) -> Demand {
    let zones = scope.demand().map(|zone| ZoneDemand {
        locality: zone.locality.clone(),
        reporters: zone.reporters,
        requests_per_second: rounded(zone.raw_per_second),
        smoothed_requests_per_second: rounded(zone.smoothed_per_second),
    });
    let plan = scope.plan();
    Demand {
        cluster: scope.upstream_cluster().cloned(),
        warming_up: scope.is_warming_up(),
        zones: zones.collect(),
        measured: plan.map(|plan| fractions(&plan.zones)),
        measured_age_ms: scope.plan_age().map(millis),
        generation: plan.map(|plan| plan.generation),
        cause: plan.map(|plan| plan.cause.label()),
    }
}

/// Returns the name of how demand is delivered, and the reason if demand alone does not steer.
pub fn delivery(steering: Steering) -> (&'static str, Option<&'static str>) {
    match steering {
        Steering::AsConfigured(why) => ("as_configured", Some(not_steered_reason(why))),
        Steering::HostCounts => ("host_counts", Some("mode_shadow")),
        Steering::ZoneFails => ("host_counts", Some("zone_fails")),
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

const fn not_steered_reason(why: NotSteeredReason) -> &'static str {
    match why {
        NotSteeredReason::ModeOff => "mode_off",
        NotSteeredReason::ModeShadow => "mode_shadow",
        NotSteeredReason::ExplicitBasis => "locality_basis_written",
        NotSteeredReason::Hashing => "hashing",
        NotSteeredReason::LoadAwareLocality => "load_aware_locality",
        NotSteeredReason::Subsets => "subsets",
        NotSteeredReason::WithoutEds => "without_eds",
        NotSteeredReason::SharedEndpoints => "shared_endpoints",
        NotSteeredReason::ZoneFails => "zone_fails",
    }
}

/// Returns the name of a class of nodes.
pub const fn class_name(class: NodeClass) -> &'static str {
    match class {
        NodeClass::Plimsoll => "plimsoll",
        NodeClass::EnvoyModule => "envoy_module",
        NodeClass::Grpc => "grpc",
        NodeClass::Envoy => "envoy",
    }
}

/// Returns the name of a service's `mode` as in configuration files.
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "ENFORCE",
        Mode::Shadow => "SHADOW",
        Mode::Off => "OFF",
    }
}

const fn basis(delivered: &[ZoneFraction]) -> &'static str {
    if delivered.is_empty() {
        "host_counts"
    } else {
        "measured_demand"
    }
}

fn fractions(zones: &[ZoneFraction]) -> Vec<Fraction> {
    let zone = |zone: &ZoneFraction| Fraction {
        locality: zone.locality.clone(),
        fraction_bp: zone.fraction.get(),
        requests_per_second: rounded(zone.rate_per_second),
        reporters: zone.reporters,
        estimated: zone.estimated,
    };
    zones.iter().map(zone).collect()
}

/// Returns a duration in whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
