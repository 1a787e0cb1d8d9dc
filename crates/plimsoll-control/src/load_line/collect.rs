//! Reads demand and flows of every fleet and service from the state, in one pass.
//!
//! Runs in the writer between two messages, so it only copies; `compute` does the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::cost::Cost;
use plimsoll_core::planner::{FleetView, Plan, ScopeView};
use plimsoll_core::time::Instant;

use super::FailingZones;
use super::shares::{Key, Rows, ServiceShares, ShareCache, Shares};
use crate::config::{Mode, Service};
use crate::demand::{OwnPlan, Withheld};
use crate::fleet_plan::ServicePlan;
use crate::state::State;

/// What a load line is computed from.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    pub(super) key: Key,
    pub(super) delivered: Delivered,
    /// Measured demand of the service, and what is known against its zones.
    pub(super) measured: Option<Arc<Plan>>,
    /// What the service plans for the demand of all fleets.
    pub(super) own_plan: Option<Arc<OwnPlan>>,
    pub(super) service: Arc<Service>,
    pub(super) cost: Arc<Cost>,
    /// Share of the requests to a zone that failed, in the latest reports.
    pub(super) failed_shares: BTreeMap<Locality, f64>,
    pub(super) shares: ServiceShares,
    /// Requests per second that arrive, by zone of the proxies.
    pub(super) demand: BTreeMap<Locality, f64>,
    /// Proxies of the fleet by zone.
    pub(super) proxies: BTreeMap<Locality, u64>,
    pub(super) flows: Vec<(Locality, Locality, f64)>,
}

/// What proxies are told about one service: see the fields of [`LoadLine`](super::LoadLine).
#[derive(Clone, Debug)]
pub(super) struct Delivered {
    pub(super) mode: Mode,
    pub(super) ramp: u32,
    pub(super) basis: &'static str,
    pub(super) on_fallback: bool,
    pub(super) warming_up: bool,
    pub(super) withheld: FailingZones,
    pub(super) undelivered: Option<Withheld>,
}

/// Collects the inputs of every pair of fleet and service.
pub(super) fn collect(state: &State, cache: &ShareCache, now: Instant) -> Vec<Collected> {
    let mut all = Vec::new();
    for (fleet, _) in state.fleets().iter() {
        let view = state.planner().fleet(fleet, now);
        let scopes: BTreeMap<&Arc<str>, ScopeView<'_>> = view
            .iter()
            .flat_map(FleetView::scopes)
            .filter_map(|scope| Some((scope.upstream_cluster()?, scope)))
            .collect();
        let mut flows = view
            .as_ref()
            .map(FleetView::flows_by_cluster)
            .unwrap_or_default();
        // Without any request, host counts harm nobody.
        let is_idle = view
            .as_ref()
            .is_some_and(|view| view.nodes_with_demand() == 0);
        let plan = state.fleet_plan(fleet);
        let slots = plan.map_or(&[][..], |plan| &plan.counts.localities);
        let proxies: BTreeMap<Locality, u64> = slots
            .iter()
            .map(|slot| (slot.locality.clone(), slot.healthy))
            .collect();
        for service in state.shown_services() {
            let key = (Arc::clone(fleet), Arc::clone(service.name()));
            let scope = scopes.get(service.name());
            let own = flows.remove(service.name()).unwrap_or_default();
            let edges = own.into_iter().flat_map(|(from, sums)| {
                let edge = move |(to, rate): (&Locality, f64)| (from.clone(), to.clone(), rate);
                sums.into_iter().map(edge)
            });
            let measured = state.measured_plan(fleet, Some(service.name()));
            all.push(Collected {
                delivered: delivered(state, fleet, service, is_idle, now),
                measured: measured.cloned(),
                own_plan: state.own_plan(service.name()).cloned(),
                service: Arc::clone(service),
                cost: cost(state, service),
                failed_shares: scope.map(failed_shares).unwrap_or_default(),
                shares: cache.get(&key).unwrap_or_else(|| capacity_only(service)),
                demand: scope.map(demand).unwrap_or_default(),
                proxies: proxies.clone(),
                flows: edges.collect(),
                key,
            });
        }
    }
    all
}

/// Returns the prices of a service: those of the file for clusters of a relayed server.
fn cost(state: &State, service: &Service) -> Arc<Cost> {
    let config = state.config();
    let written = config.services.get(service.name());
    Arc::clone(written.map_or(&config.operation.cost, |service| &service.goal.cost))
}

/// Returns the demand for a service by zone, in requests per second; `None` without demand.
pub(crate) fn measured_demand(
    state: &State,
    fleet: &str,
    cluster: &Arc<str>,
    now: Instant,
) -> Option<Vec<(Locality, f64)>> {
    let view = state.planner().fleet(fleet, now)?;
    let scope = view
        .scopes()
        .find(|scope| scope.upstream_cluster() == Some(cluster))?;
    let demand: Vec<_> = demand(&scope).into_iter().collect();
    let total: f64 = demand.iter().map(|(_, rate)| rate).sum();
    (total > 0.0).then_some(demand)
}

/// Smoothed demand of zones that report, and the estimates of zones that do not.
fn demand(scope: &ScopeView<'_>) -> BTreeMap<Locality, f64> {
    let plan = scope.plan().map_or(&[][..], |plan| &plan.zones);
    let estimated = plan.iter().filter(|zone| zone.estimated);
    let mut demand: BTreeMap<Locality, f64> = estimated
        .map(|zone| (zone.locality.clone(), zone.rate_per_second))
        .collect();
    for zone in scope.demand() {
        demand.insert(zone.locality.clone(), zone.smoothed_per_second);
    }
    demand
}

fn delivered(
    state: &State,
    fleet: &Arc<str>,
    service: &Service,
    is_idle: bool,
    now: Instant,
) -> Delivered {
    let warming_up = state.is_warming_up(fleet, service.name(), now);
    let withheld = withheld(state, fleet, service);
    let on_fallback = state.is_on_fallback(fleet, service);
    // Host counts are right while proxies warm up or a zone fails.
    let is_right = warming_up || is_idle || !withheld.is_empty();
    let undelivered = state.withheld(fleet, Some(service.name()), now);
    Delivered {
        mode: service.mode,
        ramp: service.ramp,
        basis: state.basis(fleet, service),
        on_fallback: on_fallback && !is_right,
        warming_up,
        undelivered: undelivered.filter(|_| on_fallback && withheld.is_empty()),
        withheld,
    }
}

fn withheld(state: &State, fleet: &str, service: &Service) -> FailingZones {
    let plan = state.fleet_plan(fleet);
    let own = plan.and_then(|plan| plan.services.get(service.name()));
    let enforced = own.filter(|_| service.mode == Mode::Enforce);
    enforced.map(ServicePlan::withheld).unwrap_or_default()
}

fn failed_shares(scope: &ScopeView<'_>) -> BTreeMap<Locality, f64> {
    let shares = scope.failed_shares().into_iter();
    shares.map(|(zone, share)| (zone.clone(), share)).collect()
}

/// Capacity by healthy hosts, before shares are computed.
#[expect(clippy::cast_precision_loss, reason = "host counts")]
fn capacity_only(service: &Service) -> ServiceShares {
    let counts = HostSetCounts::of_assignment(&service.assignment, 0, None);
    let total: u64 = counts.localities.iter().map(|slot| slot.healthy).sum();
    let share = |healthy: u64| healthy as f64 / total.max(1) as f64;
    let capacity = counts.localities.iter();
    let shares = Arc::new(Shares {
        capacity: capacity
            .map(|slot| (slot.locality.clone(), share(slot.healthy)))
            .collect(),
        rows: Rows::NotComputed,
        above_line: BTreeMap::new(),
    });
    ServiceShares {
        now: Arc::clone(&shares),
        enforce: shares,
    }
}
