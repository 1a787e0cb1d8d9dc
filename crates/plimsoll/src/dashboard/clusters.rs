//! Clusters of the dashboard document: zones, flows, demand and capacity per service and fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_admin::api::rounded;
use plimsoll_admin::state::{ClusterState, Flow, ZoneState};
use plimsoll_control::admin::{millis, mode_name, planned_cost, total_load, zone_load};
use plimsoll_control::config::Service;
use plimsoll_control::delivery::NodeClass;
use plimsoll_control::fleet_plan::FleetPlan;
use plimsoll_control::load_line::{LoadLine, Traffic, Unknown};
use plimsoll_control::state::State;
use plimsoll_control::verdict::not_planned;
use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::explain::{ChangeExplanation, LocalityExplanation, ZoneExplanation};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::cost::Cost;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::{FleetView, ScopeView};
use plimsoll_core::time::Instant;

use super::Observations;
use super::explanation_cache::{ClusterExplanation, ExplanationCache};
use super::zone_loss::Losses;

/// Maximum number of entries (fleets times services); the first entries by name are kept.
pub(super) const MAX: usize = 500;

/// Returns one entry per fleet and service; without fleets, one per configured service.
pub(super) fn clusters(
    state: &State,
    observed: &Observations,
    cache: &mut ExplanationCache,
    now: Instant,
) -> Vec<ClusterState> {
    let (wall_clock, lines) = (observed.wall_clock, &observed.lines);
    cache.begin(state);
    let services = || state.shown_services();
    let limit = state.config().operation.evacuation.max_utilization;
    let losses = Losses::new(&observed.losses, limit);
    let cost = &state.config().operation.cost;
    let fleets: Vec<&Arc<str>> = state.fleets().iter().map(|(name, _)| name).collect();
    if fleets.is_empty() {
        return services()
            .take(MAX)
            .map(|service| ClusterBuilder::new(service, None).finish(service))
            .collect();
    }
    let pairs = fleets
        .into_iter()
        .flat_map(|fleet| services().map(move |service| (fleet, service)));
    let cluster = |(fleet, service): (&Arc<str>, &Arc<Service>)| {
        let explained = cache.of(state, fleet, service);
        let age = state.delivered_age(fleet, Some(service.name()), now);
        let mut cluster = ClusterBuilder::new(service, explained.as_deref())
            .with_fleet(state.fleet_plan(fleet))
            .with_plan(state.delivered_for(fleet, service))
            .with_measured(state, fleet, service, now)
            .with_line(lines.get(fleet, service.name()))
            .finish(service);
        cluster.fleet = fleet.to_string();
        cluster.basis = state.basis(fleet, service).to_owned();
        cluster.warming_up = state.is_warming_up(fleet, service.name(), now);
        cluster.confirmed_unix_ms = age.map(|age| wall_clock.ago(now, age));
        cluster.staleness_threshold_ms = staleness_threshold(state, fleet, service);
        if let Some(line) = lines.get(fleet, service.name()) {
            let known = |traffic: &Result<Traffic, Unknown>| {
                let reason = traffic
                    .as_ref()
                    .err()
                    .map(|unknown| unknown.text().to_owned());
                (
                    traffic
                        .as_ref()
                        .ok()
                        .map(|traffic| total_load(traffic, line)),
                    reason,
                )
            };
            (cluster.now, cluster.now_unknown) = known(&line.now);
            (cluster.enforce, cluster.enforce_unknown) = known(&line.enforce);
            cluster.planned = planned_cost(line);
            cluster.target_utilization = line.target_utilization;
            add_prices(&mut cluster, &line.cost, cost);
        }
        losses.add_to(&mut cluster);
        cluster
    };
    pairs.take(MAX).map(cluster).collect()
}

/// Load above which a zone gets a reason. Below, reports of different moments explain it.
const NOTICED: f64 = 1.06;

#[derive(Default)]
struct ClusterBuilder {
    zones: BTreeMap<Locality, ZoneState>,
    flows: BTreeMap<(Locality, Locality), f64>,
    flows_measured: bool,
    notes: Vec<String>,
}

/// Returns the age at which proxies discard demand: stock Envoys and gRPC clients keep it, unless
/// the configuration tells Envoys to discard their fleet.
fn staleness_threshold(state: &State, fleet: &str, service: &Service) -> Option<u64> {
    let rules = service.config.zone_aware();
    let has = |class| state.fleets().classes(fleet).any(|one| one == class);
    if has(NodeClass::Plimsoll) || has(NodeClass::EnvoyModule) {
        return rules.map(|rules| millis(rules.staleness_threshold()));
    }
    let stale_after = state.config().fleets.endpoint_stale_after;
    stale_after.filter(|_| has(NodeClass::Envoy)).map(millis)
}

/// Adds the prices of a service that the host does not have.
fn add_prices(cluster: &mut ClusterState, own: &Cost, general: &Cost) {
    let bytes = own.bytes_per_request();
    cluster.bytes_per_request = Some(bytes).filter(|bytes| *bytes != general.bytes_per_request());
    let is_general = own.usd_per_gigabyte() == general.usd_per_gigabyte();
    if is_general && own.is_uniform() {
        return;
    }
    let locality = |index: &usize| &cluster.zones[*index].locality;
    let price = |Flow(from, to, _): &Flow| own.between(locality(from), locality(to));
    cluster.flow_usd_per_gigabyte = cluster.flows.iter().map(price).collect();
}

impl ClusterBuilder {
    fn new(service: &Service, explained: Option<&ClusterExplanation>) -> Self {
        let mut builder = Self::default();
        let Some(explained) = explained else {
            let counts = HostSetCounts::of_assignment(&service.assignment, 0, None);
            for slot in &counts.localities {
                let zone = builder.zone(&slot.locality);
                zone.hosts = slot.all;
                zone.healthy_hosts = slot.healthy;
            }
            return builder;
        };
        let explanation = &explained.explanation;
        builder.notes.clone_from(&explanation.notes);
        // Show only settings that replace one in the file, not defaults that were filled in.
        let changes = explanation.changes.iter();
        let replaced = changes.filter(|change| change.written.is_some());
        builder
            .notes
            .extend(replaced.map(ChangeExplanation::sentence));
        let localities: Vec<Locality> = explanation
            .localities
            .iter()
            .map(LocalityExplanation::locality)
            .collect();
        for (entry, locality) in explanation.localities.iter().zip(&localities) {
            builder.upstream(locality, entry);
        }
        for zone in &explanation.zones {
            let reason = explained.reasons.get(&zone.locality);
            builder.proxies(zone, reason);
        }
        builder
    }

    fn zone(&mut self, locality: &Locality) -> &mut ZoneState {
        let entry = self.zones.entry(locality.clone());
        entry.or_insert_with(|| ZoneState {
            locality: locality.clone(),
            ..ZoneState::default()
        })
    }

    fn upstream(&mut self, locality: &Locality, entry: &LocalityExplanation) {
        let zone = self.zone(locality);
        zone.hosts = entry.hosts;
        zone.healthy_hosts = entry.healthy;
        zone.proxies = Some(0);
        zone.capacity_share = Some(rounded(entry.capacity_share));
        zone.utilization = entry.utilization.map(rounded);
        zone.above_line = entry.above_line.as_ref().map(|above| above.text.clone());
    }

    fn proxies(&mut self, explanation: &ZoneExplanation, reason: Option<&String>) {
        let zone = self.zone(&explanation.locality);
        zone.kept_local_planned = Some(rounded(explanation.kept_local));
        zone.state = Some(explanation.state.as_str().to_owned());
        zone.reason = reason.cloned();
    }

    /// Sets the number of proxies; the explanation was made with a sample of the fleet.
    fn with_fleet(mut self, plan: Option<&FleetPlan>) -> Self {
        for slot in plan.map_or(&[][..], |plan| &plan.counts.localities) {
            self.zone(&slot.locality).proxies = Some(slot.all);
        }
        self
    }

    fn with_plan(mut self, delivered: &[ZoneFraction]) -> Self {
        for fraction in delivered {
            let zone = self.zone(&fraction.locality);
            zone.delivered_bp = Some(fraction.fraction.get());
        }
        self
    }

    /// Adds the measured share of every zone.
    fn with_measured(
        mut self,
        state: &State,
        fleet: &str,
        service: &Service,
        now: Instant,
    ) -> Self {
        let view = state.planner().fleet(fleet, now);
        let mut scopes = view.iter().flat_map(FleetView::scopes);
        let scope = scopes.find(|scope| scope.upstream_cluster() == Some(service.name()));
        let plan = scope.as_ref().and_then(ScopeView::plan);
        for fraction in plan.map_or(&[][..], |plan| &plan.zones) {
            let zone = self.zone(&fraction.locality);
            zone.measured_bp = Some(fraction.fraction.get());
            zone.demand_estimated = fraction.estimated;
            zone.demand_requests_per_second = Some(0.0);
        }
        for demand in scope.iter().flat_map(ScopeView::demand) {
            self.zone(demand.locality).demand_requests_per_second = Some(0.0);
        }
        self
    }

    /// Adds demand, flows and loads: as reported or, without load reports, as routed now.
    fn with_line(mut self, line: Option<&LoadLine>) -> Self {
        let Some(line) = line else {
            return self;
        };
        let shown = line.seen.as_ref().or(line.now.as_ref().ok());
        self.flows_measured = line.seen.is_some();
        let is_withheld = !line.withheld.is_empty() || line.zones.iter().any(|zone| zone.fails);
        for (index, of) in line.zones.iter().enumerate() {
            let zone = self.zone(&of.locality);
            if zone.demand_requests_per_second.is_some() {
                zone.demand_requests_per_second = Some(rounded(of.demand));
            }
            let at = |traffic: &Result<Traffic, Unknown>| {
                let traffic = traffic.as_ref().ok()?.zones.get(index)?;
                Some(zone_load(*traffic))
            };
            (zone.now, zone.enforce) = (at(&line.now), at(&line.enforce));
            let planned = of.planned.as_ref().and_then(|planned| planned.utilization);
            zone.planned_utilization = planned.map(rounded);
            (zone.failed_share, zone.fails) = (of.failed_share.map(rounded), of.fails);
            let Some(traffic) = shown else {
                continue;
            };
            // While a zone fails or is unseen, that is the reason; the explanation only knows
            // settings.
            if zone.above_line.is_none() || is_withheld {
                zone.above_line = of.above_line.as_deref().map(str::to_owned);
            }
            let own = &traffic.zones[index];
            zone.served_requests_per_second = Some(rounded(own.served));
            zone.kept_local = own.kept_local.map(rounded).filter(|_| line.seen.is_some());
            let has_capacity = zone.capacity_share.is_some();
            let share = of.capacity_share * traffic.requests;
            zone.line_requests_per_second = has_capacity.then(|| rounded(share));
            zone.load = own.load.map(rounded);
        }
        let flows = shown.map_or(&[][..], |traffic| &traffic.flows);
        for &(from, to, rate) in flows {
            let [from, to] = [from, to].map(|index| line.zones[index].locality.clone());
            self.flows.insert((from, to), rate);
        }
        self
    }

    fn finish(mut self, service: &Service) -> ClusterState {
        for zone in self.zones.values_mut() {
            // The reason is that of the plan; what is measured decides whether one is needed.
            zone.above_line = match zone.load {
                Some(load) if load > NOTICED => Some(
                    zone.above_line
                        .take()
                        .unwrap_or_else(|| not_planned(service.mode, service.ramp)),
                ),
                // Without requests no zone is above its line.
                _ => None,
            };
        }
        let index: BTreeMap<&Locality, usize> = self.zones.keys().zip(0..).collect();
        let flow = |((from, to), rate): (&(Locality, Locality), &f64)| {
            Some(Flow(*index.get(from)?, *index.get(to)?, rounded(*rate)))
        };
        let locality_policy = service.config.locality_policy().name();
        let endpoint_policy = service.config.endpoint_policy().name();
        ClusterState {
            cluster: service.name().to_string(),
            mode: Some(mode_name(service.mode).to_owned()),
            ramp_percent: Some(service.ramp),
            policy: format!("{locality_policy}, {endpoint_policy}"),
            basis: "host_counts".to_owned(),
            flows: self.flows.iter().filter_map(flow).collect(),
            flows_measured: self.flows_measured,
            zones: self.zones.into_values().collect(),
            notes: self.notes,
            ..ClusterState::default()
        }
    }
}
