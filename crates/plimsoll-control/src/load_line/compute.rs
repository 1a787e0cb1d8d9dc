//! Computes load lines from what `collect` has copied, beside the writer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::Plan;
use plimsoll_core::planner::zone_plan::ZonePlan;

use super::collect::{Collected, collect};
use super::shares::{Rows, Shares};
use super::{LoadLine, PlannedZone, Traffic, Unknown, ZoneLine, ZoneTraffic, target};
use crate::config::Service;
use crate::demand::OwnPlan;
use crate::run::Context;
use crate::server::Stopped;
use crate::state::State;

/// Load lines of every pair of fleet and service, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadLines(pub(super) Vec<LoadLine>);

impl LoadLines {
    /// Returns all load lines, sorted by fleet and service.
    pub fn iter(&self) -> std::slice::Iter<'_, LoadLine> {
        self.0.iter()
    }

    /// Returns the load line of one fleet and service.
    pub fn get(&self, fleet: &str, cluster: &str) -> Option<&LoadLine> {
        let key = |line: &LoadLine| (&*line.fleet, &*line.cluster).cmp(&(fleet, cluster));
        let found = self.0.binary_search_by(key).ok()?;
        self.0.get(found)
    }
}

impl FromIterator<LoadLine> for LoadLines {
    fn from_iter<T: IntoIterator<Item = LoadLine>>(lines: T) -> Self {
        let mut lines: Vec<LoadLine> = lines.into_iter().collect();
        lines.sort_by(|a, b| (&a.fleet, &a.cluster).cmp(&(&b.fleet, &b.cluster)));
        Self(lines)
    }
}

impl Context {
    /// Computes the load lines of every fleet and service. Routing shares that have changed are
    /// computed first, for at most `budget`; beyond it, load lines have the previous ones.
    pub async fn load_lines(&self, budget: Duration) -> Result<LoadLines, Stopped> {
        self.shares.refresh(self, budget).await?;
        let cache = self.shares.clone();
        let inspect = move |state: &State, now| collect(state, &cache, now);
        let collected = self.handle.inspect(inspect).await?;
        let compute = move || collected.into_iter().map(load_line).collect();
        let computed = tokio::task::spawn_blocking(compute);
        // The thread only fails if it panics, or if the runtime shuts down.
        computed.await.map_err(|_| Stopped)
    }
}

/// Load above which a zone has a reason; less is rounding.
const NOTICED: f64 = 1.005;

/// Positions of zones in [`LoadLine::zones`]. Looked up for every flow, of which there are a
/// hundred thousand with many zones and services: hashing is faster than comparing names.
type Index<'a> = HashMap<&'a Locality, usize>;

pub(super) fn load_line(collected: Collected) -> LoadLine {
    let Collected {
        shares,
        demand,
        delivered,
        ..
    } = &collected;
    let zones = all_zones(&collected);
    let index: Index<'_> = zones.iter().zip(0..).collect();
    let capacity: Vec<f64> = zones
        .iter()
        .map(|zone| shares.now.capacity.get(zone).copied().unwrap_or(0.0))
        .collect();
    let total: f64 = demand.values().sum();
    let edge = |(from, to, rate): &(Locality, Locality, f64)| {
        Some((*index.get(from)?, *index.get(to)?, *rate))
    };
    let seen: Vec<_> = collected.flows.iter().filter_map(edge).collect();
    let planned = |shares: &Shares| {
        let flows = planned(shares, demand, &index, &seen)?;
        Ok(Traffic::new(flows, &capacity))
    };
    let now = planned(&shares.now);
    let plan = collected.measured.as_deref();
    let has_hosts = |zone: &Locality| shares.now.capacity.get(zone).is_some_and(|by| *by > 0.0);
    let distorted = plan.and_then(|plan| Unknown::distorted(plan, has_hosts));
    let enforce = if let Some(reason) = distorted {
        Err(reason)
    } else if Arc::ptr_eq(&shares.now, &shares.enforce) {
        now.clone()
    } else {
        planned(&shares.enforce)
    };
    let own_plan = collected.own_plan.as_deref();
    let capacities = declared_capacity(&collected.service);
    let zone = |(locality, capacity_share): (&Locality, &f64)| ZoneLine {
        locality: locality.clone(),
        demand: demand.get(locality).copied().unwrap_or(0.0),
        proxies: collected.proxies.get(locality).copied().unwrap_or(0),
        capacity_share: *capacity_share,
        capacity: capacities.get(locality).copied(),
        line: capacity_share * total,
        above_line: above_line(&collected, locality),
        failed_share: collected.failed_shares.get(locality).copied(),
        fails: plan.is_some_and(|plan| plan.failing.contains(locality)),
        fails_only_from: fails_only_from(plan, locality),
        planned: own_plan.and_then(|plan| PlannedZone::of(plan, locality)),
    };
    let mut line = LoadLine {
        fleet: Arc::clone(&collected.key.0),
        cluster: Arc::clone(&collected.key.1),
        mode: delivered.mode,
        ramp: delivered.ramp,
        basis: delivered.basis,
        on_fallback: delivered.on_fallback,
        warming_up: delivered.warming_up,
        objective: collected.service.goal.objective,
        target_utilization: own_plan.and_then(target),
        bill: own_plan.and_then(OwnPlan::zone_plan).map(ZonePlan::bill),
        cost: Arc::clone(&collected.cost),
        withheld: delivered.withheld.clone(),
        undelivered: delivered.undelivered,
        zones: zones.iter().zip(&capacity).map(zone).collect(),
        seen: (!seen.is_empty()).then(|| Traffic::new(seen, &capacity)),
        now,
        enforce,
    };
    line.drop_needless_reasons();
    line
}

/// Returns what the healthy hosts of each zone serve at utilization 1; empty if nobody says.
#[expect(clippy::cast_precision_loss, reason = "weights of hosts")]
fn declared_capacity(service: &Service) -> BTreeMap<Locality, f64> {
    let Some(of_host) = service.goal.capacity else {
        return BTreeMap::new();
    };
    let counts = HostSetCounts::of_assignment(&service.assignment, 0, None);
    let mut capacity = BTreeMap::new();
    for slot in counts.localities {
        *capacity.entry(slot.locality).or_default() += slot.healthy_weight as f64 * of_host.rate();
    }
    capacity
}

fn fails_only_from(plan: Option<&Plan>, zone: &Locality) -> Vec<Locality> {
    let from = plan.map(|plan| plan.fails_only_from(zone));
    from.into_iter().flatten().cloned().collect()
}

/// Returns why a zone is above its line, if it is.
fn above_line(collected: &Collected, zone: &Locality) -> Option<Arc<str>> {
    match collected.delivered.withheld.text() {
        Some(why) => Some(format!("host counts decide while {why}").into()),
        None => collected.shares.now.reason(zone),
    }
}

fn all_zones(collected: &Collected) -> Vec<Locality> {
    let mut zones: HashSet<&Locality> = collected.shares.now.capacity.keys().collect();
    zones.extend(collected.shares.enforce.capacity.keys());
    zones.extend(collected.demand.keys());
    zones.extend(collected.proxies.keys());
    for (from, to, _) in &collected.flows {
        zones.extend([from, to]);
    }
    let mut sorted: Vec<Locality> = zones.into_iter().cloned().collect();
    sorted.sort();
    sorted
}

/// Source and destination as indexes of [`LoadLine::zones`], and requests per second.
type Edge = (usize, usize, f64);

/// Requests per second from zone to zone if proxies divide measured demand by `shares`.
fn planned(
    shares: &Shares,
    demand: &BTreeMap<Locality, f64>,
    index: &Index<'_>,
    seen: &[Edge],
) -> Result<Vec<Edge>, Unknown> {
    if demand.values().all(|rate| *rate <= 0.0) {
        return Err(Unknown::NoDemand);
    }
    let (rows, unknown) = match &shares.rows {
        Rows::NotComputed => return Err(Unknown::NotComputed),
        Rows::OnlyProxiesKnow => return Err(Unknown::OnlyProxiesKnow),
        Rows::Observed => (None, Unknown::NotReported),
        Rows::Computed(rows) => (Some(rows), Unknown::NoShares),
    };
    let columns: Vec<Option<usize>> = shares
        .capacity
        .keys()
        .map(|zone| index.get(zone).copied())
        .collect();
    let mut flows = Vec::new();
    for (from, rate) in demand {
        let Some(&at) = index.get(from) else {
            continue;
        };
        match rows {
            None => flows.extend(as_seen(at, *rate, seen)),
            Some(rows) => {
                let row = rows.get(from).map_or(&[][..], |row| row);
                let edges = columns.iter().zip(row);
                flows.extend(edges.filter_map(|(to, share)| Some((at, (*to)?, rate * share))));
            }
        }
    }
    flows.retain(|(_, _, rate)| *rate > 0.0);
    if flows.is_empty() {
        return Err(unknown);
    }
    Ok(flows)
}

/// Divides the demand of one zone in the shares that its proxies report.
fn as_seen(from: usize, rate: f64, seen: &[Edge]) -> Vec<Edge> {
    let own = || seen.iter().filter(move |(of, ..)| *of == from);
    let total: f64 = own().map(|(_, _, rate)| rate).sum();
    let edge = |&(_, to, part): &Edge| (from, to, rate * part / total);
    own().map(edge).collect()
}

impl LoadLine {
    /// Keeps reasons of zones that are above their line now.
    fn drop_needless_reasons(&mut self) {
        let now = self.now.as_ref().ok();
        for (index, zone) in self.zones.iter_mut().enumerate() {
            let load = now.and_then(|now| now.zones.get(index)?.load);
            if load.is_none_or(|load| load <= NOTICED) {
                zone.above_line = None;
            }
        }
    }
}

impl Traffic {
    /// Sums up flows between zones with these shares of the capacity.
    fn new(flows: Vec<(usize, usize, f64)>, capacity: &[f64]) -> Self {
        let zones = capacity.len();
        let [mut issued, mut served, mut kept] =
            [vec![0.0; zones], vec![0.0; zones], vec![0.0; zones]];
        let (mut requests, mut cross_zone) = (0.0, 0.0);
        for &(from, to, rate) in &flows {
            issued[from] += rate;
            served[to] += rate;
            requests += rate;
            if from == to {
                kept[from] += rate;
            } else {
                cross_zone += rate;
            }
        }
        let zone = |zone: usize| {
            let line = capacity[zone] * requests;
            ZoneTraffic {
                served: served[zone],
                load: (line > 0.0).then(|| served[zone] / line),
                kept_local: (issued[zone] > 0.0).then(|| kept[zone] / issued[zone]),
            }
        };
        Self {
            zones: (0..zones).map(zone).collect(),
            flows,
            requests,
            cross_zone,
        }
    }
}
