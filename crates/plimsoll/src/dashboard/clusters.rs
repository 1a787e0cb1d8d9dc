//! Clusters of the dashboard document: zones, flows, demand and capacity per service and fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_admin::state::{ClusterState, Flow, ZoneState};
use plimsoll_admin::what_if::rounded;
use plimsoll_control::admin::mode_name;
use plimsoll_control::config::{Mode, Service};
use plimsoll_control::fleet_plan::{FleetPlan, ServicePlan};
use plimsoll_control::state::State;
use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::explain::{ChangeExplanation, LocalityExplanation, ZoneExplanation};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{FleetView, ScopeView};
use plimsoll_core::time::Instant;

use super::explanation_cache::{ClusterExplanation, ExplanationCache};
use super::{WallClock, millis};

/// Maximum number of entries (fleets times services); the first entries by name are kept.
pub(super) const MAX: usize = 500;

/// Returns one entry per fleet and service; without fleets, one per configured service.
pub(super) fn clusters(
    state: &State,
    wall_clock: WallClock,
    cache: &mut ExplanationCache,
    now: Instant,
) -> Vec<ClusterState> {
    cache.begin(state);
    let services = || state.config().services.values();
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
        let view = state.planner().fleet(fleet, now);
        let mut scopes = view.iter().flat_map(FleetView::scopes);
        let scope = scopes.find(|scope| scope.upstream_cluster() == Some(service.name()));
        let fleet_plan = state.fleet_plan(fleet);
        let plan = fleet_plan.and_then(|plan| plan.services.get(service.name()));
        let age = state.delivered_age(fleet, Some(service.name()), now);
        let mut cluster = ClusterBuilder::new(service, explained.as_deref())
            .with_fleet(fleet_plan)
            .with_plan(plan)
            .with_demand(scope.as_ref())
            .finish(service);
        cluster.fleet = fleet.to_string();
        cluster.warming_up = scope.as_ref().is_some_and(ScopeView::is_warming_up);
        cluster.confirmed_unix_ms = age.map(|age| wall_clock.ago(now, age));
        cluster
    };
    pairs.take(MAX).map(cluster).collect()
}

/// Load above which a zone gets a reason. Below, reports of different moments explain it.
const NOTICED: f64 = 1.06;

/// Returns why a zone is above its line although the plan keeps it there.
fn not_planned(service: &Service) -> String {
    match (service.mode, service.ramp) {
        (Mode::Off, _) => "mode OFF: measured demand has no effect".to_owned(),
        (Mode::Shadow, _) => "mode SHADOW: proxies route by host counts".to_owned(),
        (Mode::Enforce, ramp @ 0..100) => {
            format!("ramp {ramp} %: the rest of the way still goes by host counts")
        }
        (Mode::Enforce, _) => {
            "not by plan: traffic has not settled, or proxies do not follow".to_owned()
        }
    }
}

#[derive(Default)]
struct ClusterBuilder {
    zones: BTreeMap<Locality, ZoneState>,
    flows: BTreeMap<(Locality, Locality), f64>,
    flows_measured: bool,
    /// Share of a zone's demand (first locality) that the plan sends to a zone (second locality).
    planned: BTreeMap<(Locality, Locality), f64>,
    basis: &'static str,
    notes: Vec<String>,
}

/// Traffic of one zone in requests per second.
#[derive(Default)]
struct ZoneTraffic {
    issued: f64,
    served: f64,
    kept: f64,
}

impl ClusterBuilder {
    fn new(service: &Service, explained: Option<&ClusterExplanation>) -> Self {
        let mut builder = Self {
            basis: "host_counts",
            ..Self::default()
        };
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
            for (locality, share) in localities.iter().zip(&zone.shares) {
                let key = (zone.locality.clone(), locality.clone());
                builder.planned.insert(key, *share);
            }
        }
        builder
    }

    fn zone(&mut self, locality: &Locality) -> &mut ZoneState {
        let entry = self.zones.entry(locality.clone());
        entry.or_insert_with(|| ZoneState {
            locality: locality.into(),
            ..ZoneState::default()
        })
    }

    fn upstream(&mut self, locality: &Locality, entry: &LocalityExplanation) {
        let zone = self.zone(locality);
        zone.hosts = entry.hosts;
        zone.healthy_hosts = entry.healthy;
        zone.proxies = Some(0);
        // Rounded in `finish`, after `add_served` has used it.
        zone.capacity_share = Some(entry.capacity_share);
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

    fn with_plan(mut self, plan: Option<&ServicePlan>) -> Self {
        let zones = plan.map_or(&[][..], |plan| &plan.zones);
        if !zones.is_empty() {
            self.basis = "measured_demand";
        }
        for fraction in zones {
            let zone = self.zone(&fraction.locality);
            zone.delivered_bp = Some(fraction.fraction.get());
        }
        self
    }

    /// Adds measured demand and flows; if no flows are reported, the flows of the plan.
    fn with_demand(mut self, scope: Option<&ScopeView<'_>>) -> Self {
        let Some(scope) = scope else {
            return self;
        };
        for fraction in scope.plan().map_or(&[][..], |plan| &plan.zones) {
            let zone = self.zone(&fraction.locality);
            zone.measured_bp = Some(fraction.fraction.get());
            zone.demand_estimated = fraction.estimated;
            let rate = rounded(fraction.rate_per_second);
            zone.demand_requests_per_second = Some(rate).filter(|_| fraction.estimated);
        }
        for demand in scope.demand() {
            let zone = self.zone(demand.locality);
            zone.demand_requests_per_second = Some(rounded(demand.smoothed_per_second));
        }
        for flow in scope.flows() {
            let key = (flow.from.clone(), flow.to.clone());
            self.flows.insert(key, flow.rate_per_second);
        }
        self.flows_measured = !self.flows.is_empty();
        if !self.flows_measured {
            for ((from, to), share) in &self.planned {
                let demand = self
                    .zones
                    .get(from)
                    .and_then(|z| z.demand_requests_per_second);
                let rate = demand.unwrap_or_default() * share;
                if rate > 0.0 {
                    self.flows.insert((from.clone(), to.clone()), rate);
                }
            }
        }
        self.add_served();
        self
    }

    /// Computes how much each zone serves, relative to its load line (fair share).
    fn add_served(&mut self) {
        let total: f64 = self.flows.values().sum();
        if total <= 0.0 {
            return;
        }
        let mut sums: BTreeMap<Locality, ZoneTraffic> = BTreeMap::new();
        for locality in self.zones.keys() {
            sums.insert(locality.clone(), ZoneTraffic::default());
        }
        for ((from, to), rate) in &self.flows {
            sums.entry(from.clone()).or_default().issued += rate;
            let there = sums.entry(to.clone()).or_default();
            there.served += rate;
            there.kept += if from == to { *rate } else { 0.0 };
        }
        let measured = self.flows_measured;
        for (locality, sums) in sums {
            let zone = self.zone(&locality);
            zone.served_requests_per_second = Some(rounded(sums.served));
            if measured && sums.issued > 0.0 {
                zone.kept_local = Some(rounded(sums.kept / sums.issued));
            }
            let line = zone.capacity_share.map(|share| share * total);
            zone.line_requests_per_second = line.map(rounded);
            if let Some(line) = line.filter(|line| *line > 0.0) {
                zone.load = Some(rounded(sums.served / line));
            }
        }
    }

    fn finish(mut self, service: &Service) -> ClusterState {
        for zone in self.zones.values_mut() {
            zone.capacity_share = zone.capacity_share.map(rounded);
            // The reason is that of the plan; what is measured decides whether one is needed.
            zone.above_line = match zone.load {
                Some(load) if load <= NOTICED => None,
                Some(_) => Some(
                    zone.above_line
                        .take()
                        .unwrap_or_else(|| not_planned(service)),
                ),
                None => zone.above_line.take(),
            };
        }
        let index: BTreeMap<&Locality, usize> = self.zones.keys().zip(0..).collect();
        let flow = |((from, to), rate): (&(Locality, Locality), &f64)| {
            Some(Flow(*index.get(from)?, *index.get(to)?, rounded(*rate)))
        };
        let zone_aware = service.config.zone_aware();
        let threshold = zone_aware.map(|rules| millis(rules.staleness_threshold()));
        let locality_policy = service.config.locality_policy().name();
        let endpoint_policy = service.config.endpoint_policy().name();
        ClusterState {
            cluster: service.name().to_string(),
            mode: Some(mode_name(service.mode).to_owned()),
            ramp_percent: Some(service.ramp),
            policy: format!("{locality_policy}, {endpoint_policy}"),
            basis: self.basis.to_owned(),
            staleness_threshold_ms: threshold,
            flows: self.flows.iter().filter_map(flow).collect(),
            flows_measured: self.flows_measured,
            zones: self.zones.into_values().collect(),
            notes: self.notes,
            ..ClusterState::default()
        }
    }
}
