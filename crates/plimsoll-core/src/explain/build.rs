//! Builds an [`Explanation`] by calling the functions that made the decisions, for this proxy and
//! for the proxies of every zone, and sums up the effect on each locality.

use std::collections::BTreeMap;
use std::time::Duration;

use super::above_line::{Loaded, NOTICED};
use super::shares::Shares;
use super::{
    AboveLine, Explanation, FractionStatus, FractionsExplanation, LocalityExplanation,
    PreconditionExplanation, PriorityExplanation, StateName, ZoneExplanation, words,
};
use crate::counts::{HostSetCounts, LocalityCounts};
use crate::host_source::HostClass;
use crate::locality_picking::demand::{Demand, FractionMap};
use crate::locality_picking::zone_aware::{
    Observed, Precondition, Reason, ZoneRouting, ZoneState, capacity_by_weight, regenerate,
    seen_from,
};
use crate::model::locality::Locality;
use crate::model::zone_aware::ZoneAware;
use crate::snapshot::{PriorityView, RoutingSnapshot};
use crate::time::Instant;
use crate::units::BASIS_POINTS;

/// Explains a snapshot; priority 0 in detail, ages as of `now`. Loads are computed from `actual`
/// demand; if it is not known, from the demand that the snapshot knows.
pub(crate) fn explain(
    snapshot: &RoutingSnapshot,
    actual: Option<&Demand>,
    now: Instant,
) -> Explanation {
    let config = &snapshot.config;
    let off = ZoneRouting::off(Reason::NotConfigured);
    let first = snapshot.priorities.first();
    let zone = first.map_or(&off, |view| &view.source.zone);
    let (state, reason_code) = first.map_or_else(
        || (off.state.name(), off.state.reason()),
        |view| effective(snapshot, view, zone),
    );
    let assumed = true_demand(snapshot);
    let is_measured = assumed.is_measured();
    let true_demand = actual
        .filter(|demand| !demand.is_zero())
        .unwrap_or(&assumed);
    let upstream = snapshot.priorities.first().map(|view| &view.table.counts);
    let localities = upstream.map_or_else(Vec::new, |upstream| upstream.localities.clone());
    let zones = zones(snapshot, &localities, true_demand);
    let own_shares = own_shares(snapshot, zone);
    let traffic = traffic_shares(&zones, own_shares.as_deref(), localities.len());
    Explanation {
        cluster: config.name().to_string(),
        own_locality: snapshot.own.clone(),
        generation: snapshot.generation,
        locality_policy: config.locality_policy().name(),
        endpoint_policy: config.endpoint_policy().name(),
        locality_basis: config.zone_aware().map(ZoneAware::locality_basis),
        state,
        reason: first
            .filter(|_| reason_code == Some(Reason::LoadAwareLocality))
            .and_then(|view| super::reports::without_valid(snapshot, view))
            .unwrap_or_else(|| words::reason(reason_code, zone, config.zone_aware(), is_measured)),
        reason_code,
        zone_state: zone.state.name(),
        local_percent_to_route_bp: reason_code
            .is_none()
            .then(|| kept_bp(&zone.state))
            .flatten(),
        preconditions: preconditions(snapshot),
        fractions: fractions(snapshot, now),
        localities: Rows {
            snapshot,
            zone,
            true_demand,
            zones: &zones,
        }
        .rows(own_shares.as_deref().unwrap_or_default(), &traffic),
        zones,
        priorities: priorities(snapshot),
        subsets: super::subsets::explain(snapshot, now),
        notes: notes(snapshot, own_shares.is_none()),
        changes: Vec::new(),
    }
}

fn kept_bp(state: &ZoneState) -> Option<u64> {
    match state {
        ZoneState::NoLocalityRouting(_) => None,
        ZoneState::LocalityDirect => Some(BASIS_POINTS),
        ZoneState::LocalityResidual(residual) => Some(residual.local_percent_to_route),
    }
}

/// State in effect: that of zone-aware routing unless panic, weights or settings override it.
fn effective(
    snapshot: &RoutingSnapshot,
    view: &PriorityView,
    zone: &ZoneRouting,
) -> (StateName, Option<Reason>) {
    let weights = snapshot.config.locality_weighted()
        && view.table.locality_weights[HostClass::Healthy].is_some();
    let overruled = match &view.source {
        source if source.panic => Some(Reason::UpstreamInPanic),
        _ if view.load_aware.is_some() => Some(Reason::LoadAwareLocality),
        _ if weights => Some(Reason::LocalityWeights),
        _ if !zone.is_active() => None,
        source if source.routing_enabled == 0 => Some(Reason::RoutingNotEnabled),
        source if source.fleet_panic => Some(Reason::LocalClusterInPanic),
        _ => None,
    };
    let state = match overruled {
        None => zone.state.name(),
        Some(Reason::LoadAwareLocality) => StateName::LoadAwareLocality,
        Some(Reason::LocalityWeights) => StateName::LocalityWeighted,
        Some(_) => StateName::NoLocalityRouting,
    };
    (state, overruled.or_else(|| zone.state.reason()))
}

fn preconditions(snapshot: &RoutingSnapshot) -> Vec<PreconditionExplanation> {
    let Some(view) = snapshot.priorities.first() else {
        return Vec::new();
    };
    let threshold = snapshot.config.panic_threshold();
    let usable = |counts: &HostSetCounts| {
        let flat = &counts.flat;
        100 * (flat.healthy + flat.degraded) / flat.considered().max(1)
    };
    let test = |reason, passed, actual, required: u32| Precondition {
        reason,
        passed,
        actual,
        required: u64::from(required),
    };
    let source = &view.source;
    let mut tests = source.zone.preconditions.clone();
    if snapshot.config.zone_aware().is_some() {
        let upstream = usable(&view.table.counts);
        tests.push(test(
            Reason::UpstreamInPanic,
            !source.panic,
            upstream,
            threshold,
        ));
    }
    if !tests.is_empty()
        && let Some(fleet) = &snapshot.zone.fleet
    {
        let enabled = u64::from(source.routing_enabled);
        tests.push(test(Reason::RoutingNotEnabled, enabled > 0, enabled, 1));
        let fleet = usable(fleet);
        tests.push(test(
            Reason::LocalClusterInPanic,
            !source.fleet_panic,
            fleet,
            threshold,
        ));
    }
    let explained = |test: &Precondition| PreconditionExplanation {
        name: test.reason,
        passed: test.passed,
        actual: test.actual,
        required: test.required,
        text: words::precondition(test),
    };
    tests.iter().map(explained).collect()
}

/// Where demand arrives: by the last fractions, even if unused, or by healthy proxies.
fn true_demand(snapshot: &RoutingSnapshot) -> Demand {
    let Some(fleet) = &snapshot.zone.fleet else {
        return Demand::default();
    };
    let measured = snapshot.zone.fractions.last_known();
    measured
        .and_then(|fractions| Demand::from_fractions(fractions, fleet))
        .unwrap_or_else(|| Demand::from_host_counts(fleet))
}

fn fractions(snapshot: &RoutingSnapshot, now: Instant) -> FractionsExplanation {
    let store = &snapshot.zone.fractions;
    let threshold = snapshot.config.staleness_threshold();
    let current = store.current();
    let status = match current {
        _ if threshold.is_none() => FractionStatus::Unused,
        None if store.is_stale() => FractionStatus::Stale,
        None => FractionStatus::Absent,
        Some(current) => in_force(snapshot, current.fractions),
    };
    let stated = current.is_some_and(|current| current.received_at.is_none());
    let age = store
        .last_received_at()
        .filter(|_| !stated)
        .map(|received| now.saturating_duration_since(received));
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    FractionsExplanation {
        status,
        origin: current.map(|current| current.origin),
        age_ms: age.map(millis),
        staleness_threshold_ms: threshold.filter(|_| !stated).map(millis),
    }
}

pub(super) fn in_force(snapshot: &RoutingSnapshot, fractions: &FractionMap) -> FractionStatus {
    let fleet = snapshot.zone.fleet.as_ref();
    if snapshot.config.uses_demand_feed_forward() {
        // Without a fleet the demand of a zone is unknown.
        let demand = fleet.map(|fleet| Demand::from_fractions(fractions, fleet));
        return match demand {
            None => FractionStatus::Unused,
            Some(None) => FractionStatus::AllZero,
            Some(Some(_)) => FractionStatus::FeedForward,
        };
    }
    if !snapshot.zone.demand.is_measured() {
        return FractionStatus::AllZero;
    }
    let unknown =
        |slot: &LocalityCounts| slot.healthy > 0 && !fractions.contains_key(&slot.locality);
    let partial = fleet.is_some_and(|fleet| fleet.localities.iter().any(unknown));
    if partial {
        FractionStatus::Partial
    } else {
        FractionStatus::Fresh
    }
}

fn own_shares(snapshot: &RoutingSnapshot, zone: &ZoneRouting) -> Option<Vec<f64>> {
    let shares = Shares::new(snapshot, 0)?;
    let order: Vec<usize> = (0..zone.percentages.len()).collect();
    shares.under(zone, &order)
}

fn zones(
    snapshot: &RoutingSnapshot,
    localities: &[LocalityCounts],
    true_demand: &Demand,
) -> Vec<ZoneExplanation> {
    // Under load_aware_locality and OBSERVED_LOAD every proxy decides by what it saw itself.
    let observed = |view: &PriorityView| view.source.zone.observed != Observed::Unused;
    if snapshot.config.load_aware_locality().is_some()
        || snapshot.priorities.first().is_some_and(observed)
    {
        return Vec::new();
    }
    let (Some(fleet), Some(shares), Some(view)) = (
        &snapshot.zone.fleet,
        Shares::new(snapshot, 0),
        snapshot.priorities.first(),
    ) else {
        return Vec::new();
    };
    let mut receivers: Vec<Locality> = fleet
        .localities
        .iter()
        .map(|slot| slot.locality.clone())
        .collect();
    receivers.extend(
        true_demand
            .weights()
            .iter()
            .map(|(locality, _)| locality.clone()),
    );
    receivers.sort();
    receivers.dedup();
    let position: BTreeMap<&Locality, usize> = localities
        .iter()
        .enumerate()
        .map(|(slot, counts)| (&counts.locality, slot))
        .collect();
    let explain_zone = |receiver: Locality| {
        let (zone, order) = zone_of(snapshot, &receiver, &position, fleet);
        let shares = shares
            .under(&zone, &order)
            .unwrap_or_else(|| vec![0.0; localities.len()]);
        let kept = position.get(&receiver).and_then(|&slot| shares.get(slot));
        ZoneExplanation {
            demand_share: true_demand.share(&receiver),
            state: effective(snapshot, view, &zone).0,
            kept_local: kept.copied().unwrap_or(0.0),
            locality: receiver,
            shares,
        }
    };
    receivers.into_iter().map(explain_zone).collect()
}

/// Routing of the proxies in `receiver`, and positions of their localities in this table.
fn zone_of(
    snapshot: &RoutingSnapshot,
    receiver: &Locality,
    position: &BTreeMap<&Locality, usize>,
    fleet: &HostSetCounts,
) -> (ZoneRouting, Vec<usize>) {
    let off = || ZoneRouting::off(Reason::NotConfigured);
    let (Some(config), Some(upstream)) = (snapshot.config.zone_aware(), snapshot.counts(0)) else {
        return (off(), Vec::new());
    };
    let upstream = seen_from(receiver, upstream);
    let order = upstream
        .localities
        .iter()
        .filter_map(|slot| position.get(&slot.locality).copied())
        .collect();
    (
        regenerate(
            config,
            &upstream,
            &seen_from(receiver, fleet),
            &snapshot.zone.demand,
        ),
        order,
    )
}

/// The fleet's requests per locality, if the proxies of all zones route as explained.
fn traffic_shares(zones: &[ZoneExplanation], own: Option<&[f64]>, slots: usize) -> Vec<f64> {
    let mut traffic = vec![0.0; slots];
    let known: f64 = zones.iter().map(|zone| zone.demand_share).sum();
    if known <= 0.0 {
        // Other proxies are unknown and assumed to be like this one.
        return own.map_or(traffic, <[f64]>::to_vec);
    }
    for zone in zones {
        for (sum, share) in traffic.iter_mut().zip(&zone.shares) {
            *sum += zone.demand_share * share;
        }
    }
    traffic
}

struct Rows<'a> {
    snapshot: &'a RoutingSnapshot,
    zone: &'a ZoneRouting,
    true_demand: &'a Demand,
    zones: &'a [ZoneExplanation],
}

impl Rows<'_> {
    fn rows(&self, own_shares: &[f64], traffic: &[f64]) -> Vec<LocalityExplanation> {
        let Some(view) = self.snapshot.priorities.first() else {
            return Vec::new();
        };
        let upstream = &view.table.counts;
        let weights: Vec<u32> = view.table.assigned_weights().collect();
        let capacity: f64 = upstream
            .localities
            .iter()
            .map(|slot| self.capacity(slot))
            .sum();
        let mut rows: Vec<LocalityExplanation> = Vec::with_capacity(upstream.localities.len());
        for (index, slot) in upstream.localities.iter().enumerate() {
            let mut row = self.row(slot);
            row.load_balancing_weight = weights.get(index).copied().unwrap_or(0);
            row.own = index == 0 && upstream.has_local_locality;
            if let Some(percentages) = self.zone.percentages.get(index) {
                row.local_bp = percentages.local;
                row.upstream_bp = percentages.upstream;
            }
            row.residual_bp = self.residual_bp(index);
            row.utilization = view.load_aware.as_ref().and_then(|table| {
                table.sources[HostClass::Healthy]
                    .utilization
                    .get(index)
                    .copied()
                    .flatten()
            });
            row.expected_share = own_shares.get(index).copied().unwrap_or(0.0);
            row.traffic_share = traffic.get(index).copied().unwrap_or(0.0);
            if capacity > 0.0 {
                row.capacity_share = self.capacity(slot) / capacity;
            }
            row.load_factor =
                (row.capacity_share > 0.0).then(|| row.traffic_share / row.capacity_share);
            rows.push(row);
        }
        load_by_reports(&mut rows);
        for row in &mut rows {
            row.above_line = self.above_line(view, row);
        }
        let fleet = self
            .snapshot
            .zone
            .fleet
            .iter()
            .flat_map(|fleet| &fleet.localities);
        let missing = fleet.filter(|slot| {
            !upstream
                .localities
                .iter()
                .any(|other| other.locality == slot.locality)
        });
        rows.extend(missing.map(|slot| {
            let nothing = LocalityCounts {
                locality: slot.locality.clone(),
                ..Default::default()
            };
            let mut row = self.row(&nothing);
            row.own = Some(&slot.locality) == self.snapshot.own.as_ref();
            row.local_bp = self.snapshot.zone.demand.basis_points(&slot.locality);
            row
        }));
        rows
    }

    fn row(&self, slot: &LocalityCounts) -> LocalityExplanation {
        let fleet = self.snapshot.zone.fleet.as_ref().and_then(|fleet| {
            fleet
                .localities
                .iter()
                .find(|other| other.locality == slot.locality)
        });
        let measured = self.snapshot.zone.fractions.last_known();
        LocalityExplanation {
            region: slot.locality.region().to_owned(),
            zone: slot.locality.zone().to_owned(),
            sub_zone: slot.locality.sub_zone().to_owned(),
            own: false,
            hosts: slot.all,
            healthy: slot.healthy,
            degraded: slot.degraded,
            excluded: slot.excluded,
            healthy_weight: slot.healthy_weight,
            load_balancing_weight: 0,
            utilization: None,
            fleet_hosts: fleet.map_or(0, |fleet| fleet.all),
            fleet_healthy: fleet.map_or(0, |fleet| fleet.healthy),
            observed_traffic_fraction_bp: measured
                .and_then(|fractions| fractions.get(&slot.locality))
                .map(|fraction| fraction.get()),
            local_bp: 0,
            upstream_bp: 0,
            residual_bp: 0,
            expected_share: 0.0,
            demand_share: self.true_demand.share(&slot.locality),
            traffic_share: 0.0,
            capacity_share: 0.0,
            load_factor: None,
            above_line: None,
        }
    }

    /// Why a locality is above its line, by the routing of the proxies there; `None` if it is not.
    /// Without the proxies of other zones, the load factor is that of one proxy's requests alone.
    fn above_line(&self, view: &PriorityView, row: &LocalityExplanation) -> Option<AboveLine> {
        let load_aware = view.load_aware.is_some();
        let fleet = self.snapshot.zone.fleet.as_ref();
        if row.load_factor? <= NOTICED || (self.zones.is_empty() && !load_aware) {
            return None;
        }
        let locality = row.locality();
        let off = || ZoneRouting::off(Reason::NotConfigured);
        let routing = fleet.map_or_else(off, |fleet| {
            zone_of(self.snapshot, &locality, &BTreeMap::new(), fleet).0
        });
        let loaded = Loaded {
            snapshot: self.snapshot,
            locality: &locality,
            off: effective(self.snapshot, view, &routing).1,
            routing: &routing,
            demand: row.demand_share,
            capacity: row.capacity_share,
        };
        Some(loaded.above_line())
    }

    #[expect(clippy::cast_precision_loss, reason = "host counts and weights")]
    fn capacity(&self, slot: &LocalityCounts) -> f64 {
        let measured = self.snapshot.zone.demand.is_measured();
        let config = self.snapshot.config.zone_aware();
        let by_weight = config.is_some_and(|config| capacity_by_weight(config, measured));
        if by_weight {
            slot.healthy_weight as f64
        } else {
            slot.healthy as f64
        }
    }

    fn residual_bp(&self, index: usize) -> u64 {
        let ZoneState::LocalityResidual(residual) = &self.zone.state else {
            return 0;
        };
        let upto = |index: usize| residual.capacity.get(index).copied().unwrap_or(0);
        let spare = upto(index) - index.checked_sub(1).map_or(0, upto);
        let shares = self
            .zone
            .percentages
            .get(index)
            .copied()
            .unwrap_or_default();
        // The spare capacity itself may be finer than basis points.
        match (spare, self.zone.observed) {
            (0, _) | (_, Observed::Learning | Observed::Decides) => 0,
            _ => shares.upstream.saturating_sub(shares.local),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "host counts")]
fn load_by_reports(rows: &mut [LocalityExplanation]) {
    let reported = rows
        .iter()
        .filter_map(|row| row.utilization.map(|u| (u, row.healthy as f64)));
    let (load, hosts) = reported.fold((0.0, 0.0), |(l, h), (u, n)| (l + u * n, h + n));
    if load <= 0.0 {
        return;
    }
    for row in rows.iter_mut() {
        row.load_factor = row
            .utilization
            .map(|utilization| utilization * hosts / load);
    }
}

fn priorities(snapshot: &RoutingSnapshot) -> Vec<PriorityExplanation> {
    let load = |loads: &[u32], priority: usize| loads.get(priority).copied().unwrap_or(0);
    let priority = |(priority, view): (usize, &PriorityView)| {
        let flat = &view.table.counts.flat;
        let (state, reason_code) = effective(snapshot, view, &view.source.zone);
        PriorityExplanation {
            priority,
            healthy_load: load(snapshot.loads.healthy_load(), priority),
            degraded_load: load(snapshot.loads.degraded_load(), priority),
            panic: view.source.panic,
            hosts: flat.all,
            healthy: flat.healthy,
            degraded: flat.degraded,
            excluded: flat.excluded,
            state,
            reason_code,
        }
    };
    snapshot
        .priorities
        .iter()
        .enumerate()
        .map(priority)
        .collect()
}

fn notes(snapshot: &RoutingSnapshot, fails: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: &str| notes.push(text.to_owned());
    let Some(view) = snapshot.priorities.first() else {
        note("no assignment received yet: requests wait");
        return notes;
    };
    let source = &view.source;
    let zone_active = source.zone.state.name() != StateName::NoLocalityRouting;
    if source.panic && fails {
        note("priority 0 is in panic and fail_traffic_on_panic is set: requests fail");
    } else if source.panic {
        note("priority 0 is in panic: requests go to all its hosts, healthy or not");
    }
    if zone_active && !source.panic {
        match source.routing_enabled {
            0 => note("routing_enabled is 0 %: localities are ignored"),
            percent @ 1..=99 => notes.push(format!(
                "routing_enabled is {percent} %: the other requests ignore localities"
            )),
            _ => {}
        }
        if source.fleet_panic && source.routing_enabled > 0 {
            notes.push(if fails {
                "the fleet itself is in panic and fail_traffic_on_panic is set: requests fail"
                    .into()
            } else {
                "the fleet itself is in panic: localities are ignored until it recovers".into()
            });
        }
    }
    if snapshot.config.locality_weighted() {
        let healthy = &view.table.locality_weights[HostClass::Healthy];
        notes.push(match healthy {
            Some(_) => "localities are chosen by the weights of the assignment".into(),
            None => {
                "no locality has a weight and a usable host: locality weights are ignored".into()
            }
        });
    }
    if view.table.counts.flat.healthy == 0 && !source.panic {
        notes.push("priority 0 has no healthy host".into());
    }
    notes.extend(words::other_region(
        snapshot.own.as_ref(),
        "the upstream cluster",
        &view.table.counts,
    ));
    if let Some(fleet) = &snapshot.zone.fleet {
        notes.extend(words::other_region(
            snapshot.own.as_ref(),
            "the fleet",
            fleet,
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
