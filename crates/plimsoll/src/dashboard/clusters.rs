//! Clusters of the document: zones, flows, demand and capacity of each service and fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_admin::state::{ClusterState, Flow, ZoneState};
use plimsoll_admin::what_if::{rounded, state_name};
use plimsoll_control::admin::mode_name;
use plimsoll_control::config::Service;
use plimsoll_control::fleet_plan::{FleetPlan, ServicePlan};
use plimsoll_control::state::State;
use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::explain::{ChangeExplanation, LocalityExplanation, ZoneExplanation};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{FleetView, GrainView};
use plimsoll_core::time::Instant;

use super::explained::{Explained, Words};
use super::{Moments, millis};

/// Entries at most: fleets times services, in order of name.
pub(super) const MAX: usize = 500;

/// Every service as every fleet uses it; without a fleet, what the files say.
pub(super) fn clusters(
    state: &State,
    origin: Moments,
    explained: &mut Explained,
    now: Instant,
) -> Vec<ClusterState> {
    explained.begin(state);
    let services = || state.config().services.values();
    let fleets: Vec<&Arc<str>> = state.fleets().iter().map(|(name, _)| name).collect();
    if fleets.is_empty() {
        return services()
            .take(MAX)
            .map(|service| written(service))
            .collect();
    }
    let pairs = fleets
        .into_iter()
        .flat_map(|fleet| services().map(move |service| (fleet, service)));
    let cluster = |(fleet, service): (&Arc<str>, &Arc<Service>)| {
        let words = explained.of(state, fleet, service);
        let view = state.planner().fleet(fleet, now);
        let mut grains = view.iter().flat_map(FleetView::grains);
        let grain = grains.find(|grain| grain.upstream_cluster() == Some(service.name()));
        let fleet_plan = state.fleet_plan(fleet);
        let plan = fleet_plan.and_then(|plan| plan.services.get(service.name()));
        let age = state.delivered_age(fleet, Some(service.name()), now);
        let mut cluster = Table::new(service, words.as_deref())
            .with_fleet(fleet_plan)
            .with_plan(plan)
            .with_demand(grain.as_ref())
            .finish(service);
        cluster.fleet = fleet.to_string();
        cluster.warming_up = grain.as_ref().is_some_and(GrainView::is_warming_up);
        cluster.confirmed_unix_ms = age.map(|age| origin.ago(now, age));
        cluster
    };
    pairs.take(MAX).map(cluster).collect()
}

/// What is known of a service that nobody uses yet.
fn written(service: &Service) -> ClusterState {
    Table::new(service, None).finish(service)
}

/// Zones and flows of a cluster while they are put together.
#[derive(Default)]
struct Table {
    zones: BTreeMap<Locality, ZoneState>,
    flows: BTreeMap<(Locality, Locality), f64>,
    flows_measured: bool,
    /// Where the plan sends the demand of each zone.
    planned: BTreeMap<(Locality, Locality), f64>,
    basis: &'static str,
    notes: Vec<String>,
}

/// Traffic of one zone, requests per second.
#[derive(Default)]
struct Sums {
    issued: f64,
    served: f64,
    kept: f64,
}

impl Table {
    fn new(service: &Service, words: Option<&Words>) -> Self {
        let mut table = Self {
            basis: "host_counts",
            ..Self::default()
        };
        let Some(words) = words else {
            let counts = HostSetCounts::of_assignment(&service.assignment, 0, None);
            for slot in &counts.localities {
                let zone = table.zone(&slot.locality);
                zone.hosts = slot.all;
                zone.healthy_hosts = slot.healthy;
            }
            return table;
        };
        let explanation = &words.explanation;
        table.notes.clone_from(&explanation.notes);
        // That defaults are chosen is no news; what somebody wrote is.
        let changes = explanation.changes.iter();
        let replaced = changes.filter(|change| change.written.is_some());
        table
            .notes
            .extend(replaced.map(ChangeExplanation::sentence));
        let places: Vec<Locality> = explanation.localities.iter().map(place).collect();
        for (locality, place) in explanation.localities.iter().zip(&places) {
            table.upstream(place, locality);
        }
        for zone in &explanation.zones {
            let reason = words.reasons.get(&zone.locality);
            table.proxies(zone, reason);
            for (place, share) in places.iter().zip(&zone.shares) {
                let key = (zone.locality.clone(), place.clone());
                table.planned.insert(key, *share);
            }
        }
        table
    }

    fn zone(&mut self, locality: &Locality) -> &mut ZoneState {
        let entry = self.zones.entry(locality.clone());
        entry.or_insert_with(|| ZoneState {
            locality: locality.into(),
            ..ZoneState::default()
        })
    }

    fn upstream(&mut self, place: &Locality, locality: &LocalityExplanation) {
        let zone = self.zone(place);
        zone.hosts = locality.hosts;
        zone.healthy_hosts = locality.healthy;
        zone.proxies = Some(0);
        // Exact for as long as it is computed with.
        zone.capacity_share = Some(locality.capacity_share);
        zone.utilization = locality.utilization.map(rounded);
    }

    fn proxies(&mut self, explanation: &ZoneExplanation, reason: Option<&String>) {
        let zone = self.zone(&explanation.locality);
        zone.kept_local_planned = Some(rounded(explanation.kept_local));
        zone.state = Some(state_name(explanation.state).to_owned());
        zone.reason = reason.cloned();
    }

    /// How many proxies there really are; an explanation knows some that stand for all.
    fn with_fleet(mut self, plan: Option<&FleetPlan>) -> Self {
        for slot in plan.map_or(&[][..], |plan| &plan.counts.localities) {
            self.zone(&slot.locality).proxies = Some(slot.all);
        }
        self
    }

    /// What is delivered.
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

    /// What is measured.
    fn with_demand(mut self, grain: Option<&GrainView<'_>>) -> Self {
        let Some(grain) = grain else {
            return self;
        };
        for fraction in grain.plan().map_or(&[][..], |plan| &plan.zones) {
            let zone = self.zone(&fraction.locality);
            zone.measured_bp = Some(fraction.fraction.get());
            zone.demand_estimated = fraction.estimated;
            let rate = rounded(fraction.rate_per_second);
            zone.demand_requests_per_second = Some(rate).filter(|_| fraction.estimated);
        }
        for demand in grain.demand() {
            let zone = self.zone(demand.locality);
            zone.demand_requests_per_second = Some(rounded(demand.raw_per_second));
        }
        for flow in grain.flows() {
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
        self.served();
        self
    }

    /// What each zone serves, against its load line.
    fn served(&mut self) {
        let total: f64 = self.flows.values().sum();
        if total <= 0.0 {
            return;
        }
        let mut sums: BTreeMap<Locality, Sums> = BTreeMap::new();
        for place in self.zones.keys() {
            sums.insert(place.clone(), Sums::default());
        }
        for ((from, to), rate) in &self.flows {
            sums.entry(from.clone()).or_default().issued += rate;
            let there = sums.entry(to.clone()).or_default();
            there.served += rate;
            there.kept += if from == to { *rate } else { 0.0 };
        }
        let measured = self.flows_measured;
        for (place, sums) in sums {
            let zone = self.zone(&place);
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
        }
        let index: BTreeMap<&Locality, usize> = self.zones.keys().zip(0..).collect();
        let flow = |((from, to), rate): (&(Locality, Locality), &f64)| {
            Some(Flow(*index.get(from)?, *index.get(to)?, rounded(*rate)))
        };
        let threshold = service.config.zone_aware();
        let threshold = threshold.map(|rules| millis(rules.staleness_threshold()));
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

fn place(locality: &LocalityExplanation) -> Locality {
    Locality::new(&locality.region, &locality.zone, &locality.sub_zone)
}
