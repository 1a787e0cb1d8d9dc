//! What the control plane writes about a ZoneRoutingPolicy: conditions, load per zone, and the
//! distribution for Istio. Without IO; `write` sends it.

use std::collections::BTreeMap;
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

use crate::config::Mode;
use crate::fleet_plan::rules;
use crate::load_line::{LoadLine, LoadLines, Traffic};
use crate::state::State;

/// A policy and what it applies to.
#[derive(Clone, Debug)]
pub(super) struct PolicyView {
    pub(super) policy: Arc<ZoneRoutingPolicy>,
    /// Services and clusters that the policy is in force for.
    pub(super) clusters: Vec<(ObjectKey, Arc<str>)>,
    /// Whether one of its targets exists.
    pub(super) has_target: bool,
    /// Why it is refused.
    pub(super) error: Option<String>,
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
    pub(super) is_dry_run: bool,
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

/// Whether this replica writes status and DestinationRules: the first by name of those in the
/// store. Replicas may disagree for a while, and would else overwrite each other. While the store
/// is away its last state decides; without a store there is one control plane.
pub(super) fn is_writer(state: &State) -> bool {
    state.replicas().is_none_or(|replicas| {
        let names = replicas.all().map(|(record, _)| record.replica.as_str());
        names.min() == Some(&**replicas.id())
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
    if !view.has_target {
        let message = "no Service of targetRefs exists, or it is not selected";
        return Verdict::new("False", "TargetNotFound", message);
    }
    if view.clusters.is_empty() {
        let message = "another policy applies to all of its targets";
        return Verdict::new("False", "Conflicted", message);
    }
    let names: Vec<&str> = view.clusters.iter().map(|(_, name)| &**name).collect();
    Verdict::new(
        "True",
        "Accepted",
        format!("applies to {}", names.join(", ")),
    )
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
    let with_demand: Vec<_> = lines.iter().filter(|line| line.demand() > 0.0).collect();
    if with_demand.is_empty() || with_demand.iter().all(|line| line.on_fallback) {
        let message = "no load report says where demand is: host counts steer";
        return Verdict::new("False", "NoDemand", message);
    }
    if with_demand.iter().all(|line| line.warming_up) {
        let message = "some proxies have not reported since they connected";
        return Verdict::new("Unknown", "WarmingUp", message);
    }
    Verdict::new("True", "DemandSteers", "measured demand steers")
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
    let demand_of = |name: &Arc<str>| -> f64 {
        let own = lines.iter().filter(|line| line.cluster == *name);
        own.map(|line| line.demand()).sum()
    };
    let clusters = view.clusters.iter();
    let (key, name) = clusters.max_by(|a, b| demand_of(&a.1).total_cmp(&demand_of(&b.1)))?;
    let service = state.config().services.get(name)?;
    let mut demand: BTreeMap<Locality, ReportedZone> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.cluster == *name) {
        for zone in line.zones.iter().filter(|zone| zone.demand > 0.0) {
            let known = demand.entry(zone.locality.clone()).or_default();
            known.rate_per_second += zone.demand;
            known.reporters += 1;
        }
    }
    let upstream = HostSetCounts::of_assignment(&service.assignment, 0, None);
    let found = distributions(&rules(service), &upstream, &demand);
    let zones = found
        .iter()
        .flat_map(|one| one.to.iter().map(|(zone, _)| zone));
    let all_zones = zones.chain(found.iter().map(|one| &one.from));
    let has_regions = all_zones.into_iter().all(|zone| !zone.region().is_empty());
    Some(ServiceDistribution {
        service: key.clone(),
        is_dry_run: view.distribute == Distribute::DryRun,
        distribute: if has_regions {
            Ok(found.iter().map(istio).collect())
        } else {
            Err("Istio needs the region of zones: set kubernetes.region")
        },
    })
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
