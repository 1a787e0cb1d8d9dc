//! What the control plane writes about a ZoneRoutingPolicy: conditions, load per zone, and the
//! distribution for Istio. Without IO; `write` sends it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::distribute::{Distribution, distributions};
use plimsoll_core::planner::fractions::{ReportedZone, largest_remainder_f64};
use plimsoll_kubernetes::objects::{
    Condition, ObjectKey, PolicyStatus, ZoneRoutingPolicy, ZoneStatus,
};
use plimsoll_kubernetes::settings::Distribute;
use serde_json::{Map, Value, json};

use crate::config::{Mode, Service};
use crate::delivery::{NodeClass, NotSteeredReason, not_steered, proto_name, replaced_delivery};
use crate::fleet_plan::rules;
use crate::load_line::{FailingZones, LoadLine, LoadLines, Traffic, link_fails};
use crate::state::State;

/// Reason of a distribution that is not written because no fleets are named.
pub(super) const NO_FLEETS: &str = "NoFleets";

/// A policy and what it applies to.
#[derive(Clone, Debug)]
pub(super) struct PolicyView {
    pub(super) policy: Arc<ZoneRoutingPolicy>,
    /// Services and clusters that the policy is in force for.
    pub(super) clusters: Vec<(ObjectKey, Arc<str>)>,
    /// Targets that do not exist, or are not selected.
    pub(super) missing: Vec<String>,
    /// Policies that apply to its targets in its place.
    pub(super) preferred: BTreeSet<ObjectKey>,
    /// Why a field of it is refused; the others are in force.
    pub(super) error: Option<String>,
    /// What else is not in force at its targets.
    pub(super) notes: BTreeSet<String>,
    pub(super) distribute: Distribute,
}

/// What to write about a policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PolicyReport {
    pub(super) policy: Arc<ZoneRoutingPolicy>,
    /// Conditions without the time of their transition.
    pub(super) status: PolicyStatus,
    pub(super) distribution: Option<ServiceDistribution>,
}

/// Distribution of one Service, for Istio's DestinationRule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServiceDistribution {
    pub(super) service: ObjectKey,
    /// Why it is only shown, as reason of the condition; `None` if it is written.
    pub(super) shown_only: Option<&'static str>,
    /// `localityLbSetting.distribute`; empty without demand. An error if Istio cannot have it.
    pub(super) distribute: Result<Value, &'static str>,
}

/// Status of a condition, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// `True`, `False` or `Unknown`.
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    pub(super) fn new(
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }

    fn condition(self, kind: &str, observed_generation: i64) -> Condition {
        Condition {
            kind: kind.to_owned(),
            status: self.status.to_owned(),
            observed_generation,
            last_transition_time: String::new(),
            reason: self.reason.to_owned(),
            message: self.message,
        }
    }
}

/// Whether this replica writes status and DestinationRules: that of those in the store that started
/// first, so that of two processes with one name one writes. Replicas may disagree for a while, and
/// would otherwise overwrite each other. While the store is unreachable its last state decides;
/// without a store there is one control plane.
pub(super) fn is_writer(state: &State) -> bool {
    state.replicas().is_none_or(|replicas| {
        let started = replicas
            .all()
            .map(|(record, _)| (record.started_unix_ms, record.instance));
        started.min().map(|(_, instance)| instance) == Some(replicas.instance())
    })
}

/// Builds the reports of all policies.
pub(super) fn reports(state: &State, lines: &LoadLines, views: &[PolicyView]) -> Vec<PolicyReport> {
    views
        .iter()
        .map(|view| report(state, lines, view))
        .collect()
}

fn report(state: &State, lines: &LoadLines, view: &PolicyView) -> PolicyReport {
    let own = |line: &&LoadLine| view.clusters.iter().any(|(_, name)| *name == line.cluster);
    let own: Vec<&LoadLine> = lines.iter().filter(own).collect();
    let generation = view.policy.generation;
    PolicyReport {
        policy: Arc::clone(&view.policy),
        status: PolicyStatus {
            observed_generation: generation,
            conditions: vec![
                accepted(view).condition("Accepted", generation),
                zone_routing(state, view, &own).condition("ZoneRouting", generation),
            ],
            zones: zones(&own),
        },
        distribution: distribution(state, view, &own),
    }
}

fn accepted(view: &PolicyView) -> Verdict {
    if let Some(error) = &view.error {
        return Verdict::new("False", "Invalid", error);
    }
    let missing = || format!("{} not found", view.missing.join(", "));
    let notes: String = view.notes.iter().map(|note| format!("; {note}")).collect();
    if view.clusters.is_empty() && view.preferred.is_empty() {
        let message = if view.missing.is_empty() {
            "no Service of targetRefs exists, or it is not selected".to_owned()
        } else {
            missing()
        };
        return Verdict::new("False", "TargetNotFound", message + &notes);
    }
    let preferred: Vec<String> = view.preferred.iter().map(ToString::to_string).collect();
    if view.clusters.is_empty() {
        let message = format!("its targets follow {}", preferred.join(", "));
        return Verdict::new("False", "Conflicted", message);
    }
    let names: Vec<&str> = view.clusters.iter().map(|(_, name)| &**name).collect();
    let mut message = format!("applies to {}", names.join(", "));
    if !view.missing.is_empty() {
        message += &format!("; {}", missing());
    }
    if !preferred.is_empty() {
        message += &format!("; other targets follow {}", preferred.join(", "));
    }
    Verdict::new("True", "Accepted", message + &notes)
}

fn zone_routing(state: &State, view: &PolicyView, lines: &[&LoadLine]) -> Verdict {
    let services = &state.config().services;
    let names = view.clusters.iter();
    let modes: Vec<Mode> = names
        .filter_map(|(_, name)| services.get(name))
        .map(|service| service.mode)
        .collect();
    if modes.is_empty() {
        return Verdict::new("False", "NotAccepted", "no cluster has these settings");
    }
    if modes.iter().all(|mode| *mode == Mode::Off) {
        return Verdict::new("False", "ModeOff", "mode is Off");
    }
    if !modes.contains(&Mode::Enforce) {
        let message = "demand is measured and shown, but does not steer";
        return Verdict::new("False", "ModeShadow", message);
    }
    let own = view
        .clusters
        .iter()
        .filter_map(|(_, name)| services.get(name));
    if own
        .clone()
        .all(|service| service.assignment.endpoints().is_empty())
    {
        return Verdict::new("False", "NoEndpoints", "no target has an endpoint");
    }
    let classes = classes_in_use(state, lines);
    let others = match steered_classes(state, view, &classes) {
        Ok(others) => others,
        Err(reason) => return Verdict::new("False", "NotSteered", reason.text()),
    };
    let with_demand: Vec<_> = lines.iter().filter(|line| line.demand() > 0.0).collect();
    if with_demand.is_empty() || with_demand.iter().all(|line| line.on_fallback) {
        let message = "no load report says where demand is: host counts steer";
        return Verdict::new("False", "NoDemand", message);
    }
    let mut withheld = with_demand.iter().map(|line| &line.withheld);
    if let Some((reason, message)) = withheld.find_map(withheld_by) {
        return Verdict::new("False", reason, message);
    }
    if with_demand.iter().all(|line| line.warming_up) {
        let mut reasons = with_demand.iter().filter_map(|line| line.undelivered);
        let message = reasons.next().map_or_else(
            || "some proxies have not reported since they connected".to_owned(),
            |reason| format!("demand is not delivered yet: {reason}"),
        );
        return Verdict::new("Unknown", "WarmingUp", message);
    }
    let mut message = "measured demand steers".to_owned();
    for (class, reason) in &others {
        let (name, text) = (nodes_of(*class), reason.text());
        message.push_str(&format!("; not {name}: {text}"));
    }
    let services = view
        .clusters
        .iter()
        .filter_map(|(_, name)| services.get(name));
    let replaced = |service: &Arc<Service>| {
        let form = replaced_delivery(service, classes.iter().copied())?;
        Some((proto_name(service.delivery), proto_name(form)))
    };
    if let Some((asked, form)) = services.into_iter().find_map(replaced) {
        message.push_str(&format!("; delivery {asked} has no effect: it is {form}"));
    }
    Verdict::new("True", "DemandSteers", message)
}

/// Returns the classes of nodes that matter for clusters with these load lines: those of the fleets
/// with demand for them, or else of all nodes that are connected, or else all.
fn classes_in_use(state: &State, lines: &[&LoadLine]) -> BTreeSet<NodeClass> {
    let classes_of = |fleets: &mut dyn Iterator<Item = &Arc<str>>| -> BTreeSet<NodeClass> {
        fleets
            .flat_map(|fleet| state.fleets().classes(fleet))
            .collect()
    };
    let with_demand = lines.iter().filter(|line| line.demand() > 0.0);
    let mut classes = classes_of(&mut with_demand.map(|line| &line.fleet));
    if classes.is_empty() {
        classes = classes_of(&mut state.fleets().iter().map(|(fleet, _)| fleet));
    }
    if classes.is_empty() {
        classes.extend(NodeClass::ALL);
    }
    classes
}

/// Returns those of `classes` at which demand does not steer a cluster of the policy, each with the
/// reason; an error if it steers none of them anywhere.
fn steered_classes(
    state: &State,
    view: &PolicyView,
    classes: &BTreeSet<NodeClass>,
) -> Result<BTreeMap<NodeClass, NotSteeredReason>, NotSteeredReason> {
    let services = &state.config().services;
    let names = view.clusters.iter();
    let enforced = names
        .filter_map(|(_, name)| services.get(name))
        .filter(|service| service.mode == Mode::Enforce);
    let mut is_steered = false;
    let mut others = BTreeMap::new();
    for service in enforced {
        for class in classes {
            match not_steered(service, [*class]) {
                Some(reason) => drop(others.insert(*class, reason)),
                None => is_steered = true,
            }
        }
    }
    match others.values().next() {
        Some(reason) if !is_steered => Err(*reason),
        _ => Ok(others),
    }
}

/// What the nodes of a class are called in messages.
const fn nodes_of(class: NodeClass) -> &'static str {
    match class {
        NodeClass::Plimsoll => "Plimsoll's data planes",
        NodeClass::EnvoyModule => "Envoys with the module",
        NodeClass::Grpc => "gRPC clients",
        NodeClass::Envoy => "Envoys",
    }
}

/// Returns reason and message if a zone keeps demand from steering.
fn withheld_by(withheld: &FailingZones) -> Option<(&'static str, String)> {
    if let Some(zone) = withheld.failing.first() {
        let what = match withheld.only_from.get(zone) {
            Some(from) => link_fails(from, zone),
            None => format!("requests to {zone} fail"),
        };
        let message = format!("{what}: host counts steer until it recovers");
        return Some(("ZoneFails", message));
    }
    let zone = withheld.unseen.first()?;
    let message = format!(
        "no proxy reports requests to {zone} any more: host counts steer, and it is tried now and \
         then"
    );
    Some(("ZoneUnseen", message))
}

/// Requests per second of one zone, of all fleets together.
#[derive(Clone, Copy, Debug, Default)]
struct ZoneSum {
    demand: f64,
    line: f64,
    served: f64,
}

/// Sums the load lines of all fleets by zone.
fn zones(lines: &[&LoadLine]) -> Vec<ZoneStatus> {
    let mut sums: BTreeMap<&Locality, ZoneSum> = BTreeMap::new();
    for line in lines {
        let traffic: Option<&Traffic> = line.now.as_ref().ok().or(line.seen.as_ref());
        for (index, zone) in line.zones.iter().enumerate() {
            let served = traffic.and_then(|traffic| traffic.zones.get(index));
            let sum = sums.entry(&zone.locality).or_default();
            sum.demand += zone.demand;
            sum.line += zone.line;
            sum.served += served.map_or(0.0, |served| served.served);
        }
    }
    let percents = |value: fn(&ZoneSum) -> f64| {
        let values: Vec<f64> = sums.values().map(value).collect();
        largest_remainder_f64(&values, 100).unwrap_or_else(|| vec![0; values.len()])
    };
    let (demand, capacity) = (percents(|sum| sum.demand), percents(|sum| sum.line));
    let percent = |value: u64| u32::try_from(value).unwrap_or(100);
    let zones = sums.iter().zip(demand).zip(capacity);
    zones
        .map(|(((zone, sum), demand), capacity)| ZoneStatus {
            zone: zone.to_string(),
            demand_percent: percent(demand),
            capacity_percent: percent(capacity),
            load: if sum.line > 0.0 {
                format!("{:.2}", sum.served / sum.line)
            } else {
                "0.00".to_owned()
            },
        })
        .collect()
}

/// Computes the distribution of the target with the most demand: a DestinationRule has one for all
/// ports of its host.
fn distribution(
    state: &State,
    view: &PolicyView,
    lines: &[&LoadLine],
) -> Option<ServiceDistribution> {
    if view.distribute == Distribute::Off {
        return None;
    }
    // Any fleet may report demand, so the owner of the Service says whose moves its requests.
    let fleets = view.policy.istio_fleets();
    let counts = |line: &LoadLine| {
        fleets.is_empty() || fleets.contains("*") || fleets.contains(&*line.fleet)
    };
    let lines: Vec<&LoadLine> = lines.iter().filter(|line| counts(line)).copied().collect();
    let demand_of = |name: &Arc<str>| -> f64 {
        let own = lines.iter().filter(|line| line.cluster == *name);
        own.map(|line| line.demand()).sum()
    };
    let clusters = view.clusters.iter();
    let (key, name) = clusters.max_by(|a, b| demand_of(&a.1).total_cmp(&demand_of(&b.1)))?;
    let service = state.config().services.get(name)?;
    let with_demand = |line: &&&LoadLine| line.cluster == *name && line.demand() > 0.0;
    let own: Vec<&LoadLine> = lines.iter().filter(with_demand).copied().collect();
    let mut demand: BTreeMap<Locality, ReportedZone> = BTreeMap::new();
    for line in &own {
        for zone in line.zones.iter().filter(|zone| zone.demand > 0.0) {
            let known = demand.entry(zone.locality.clone()).or_default();
            known.rate_per_second += zone.demand;
            known.reporters += 1;
        }
    }
    let upstream = HostSetCounts::of_assignment(&service.assignment, 0, None);
    let percent = percent_by_demand(state, service, &own);
    let found = distributions(&rules(service), &upstream, &demand, percent);
    let zones = found
        .iter()
        .flat_map(|one| one.to.iter().map(|(zone, _)| zone));
    let all_zones = zones.chain(found.iter().map(|one| &one.from));
    let has_regions = all_zones.into_iter().all(|zone| !zone.region().is_empty());
    Some(ServiceDistribution {
        service: key.clone(),
        shown_only: match (view.distribute, service.mode) {
            (Distribute::DryRun, _) => Some("DryRun"),
            (_, Mode::Shadow) => Some("ModeShadow"),
            (_, Mode::Off) => Some("ModeOff"),
            (_, Mode::Enforce) if fleets.is_empty() => Some(NO_FLEETS),
            (_, Mode::Enforce) => {
                let reason = not_steered(service, classes_in_use(state, &own));
                reason.map(|_| "NotSteered")
            }
        },
        distribute: if has_regions {
            Ok(found.iter().map(istio).collect())
        } else {
            Err("Istio needs the region of zones: set kubernetes.region")
        },
    })
}

/// Returns the percentage of the requests that follow demand: the `ramp` of the service, less while
/// one of the fleets with these load lines tries a zone, and none while one of them sees a zone
/// fail. The distribution is the same for all fleets.
fn percent_by_demand(state: &State, service: &Service, lines: &[&LoadLine]) -> u32 {
    let of_fleet = |line: &&LoadLine| {
        if !line.withheld.is_empty() {
            return 0;
        }
        let plan = state.fleet_plan(&line.fleet);
        let own = plan.and_then(|plan| plan.services.get(service.name()));
        own.map_or(service.ramp, |own| own.ramp)
    };
    let percents = lines.iter().map(of_fleet);
    percents.min().unwrap_or(service.ramp)
}

/// Converts to an entry of `localityLbSetting.distribute`.
fn istio(distribution: &Distribution) -> Value {
    let to: Map<String, Value> = distribution
        .to
        .iter()
        .map(|(zone, percent)| (istio_zone(zone), json!(percent)))
        .collect();
    json!({"from": istio_zone(&distribution.from), "to": to})
}

/// Writes a locality as Istio does: `region/zone/*`.
fn istio_zone(locality: &Locality) -> String {
    format!("{}/{}/*", locality.region(), locality.zone())
}

/// Adds the outcome of writing a distribution to a status.
pub(super) fn add_distribute_condition(status: &mut PolicyStatus, outcome: Verdict) {
    let condition = outcome.condition("IstioDistribute", status.observed_generation);
    status.conditions.push(condition);
}

/// Returns the status to write over `before`: conditions that did not change keep the time of their
/// transition. `None` if nothing worth a write changed; numbers of zones alone are `may_refresh`.
pub(super) fn next_status(
    before: &PolicyStatus,
    mut next: PolicyStatus,
    now: &str,
    may_refresh: bool,
) -> Option<PolicyStatus> {
    for condition in &mut next.conditions {
        let old = before
            .conditions
            .iter()
            .find(|old| old.kind == condition.kind);
        condition.last_transition_time = match old {
            Some(old) if old.status == condition.status => old.last_transition_time.clone(),
            _ => now.to_owned(),
        };
    }
    let is_same = next.conditions == before.conditions
        && next.observed_generation == before.observed_generation;
    let has_changed = !is_same || (may_refresh && next.zones != before.zones);
    has_changed.then_some(next)
}

#[cfg(test)]
mod tests;
