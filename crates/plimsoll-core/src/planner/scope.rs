//! [`ScopeState`]: the zone sums of one plan scope, and when a new plan is worth sending.
//!
//! Sums follow the changes that `aggregate` reports, and `smoothing` follows the sums. This module
//! decides whether receivers need an update and when to evaluate again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::aggregate::{Change, Rate};
use super::config::PlannerConfig;
use super::failing::FailingZones;
use super::fractions::ZoneFraction;
use super::losses::{Link, Losses};
use super::plan::{Plan, UpdateCause};
use super::smoothing::SmoothedRate;
use super::unseen::UnseenZones;
use crate::model::locality::Locality;
use crate::time::Instant;

/// Interval at which demand that is still converging is evaluated between reports.
const SMOOTHING_TICK: Duration = Duration::from_secs(1);

/// How long the plan of another planner holds before this one contradicts it, unless the demand of
/// the scope begins or ends. Load reports reach
/// planners of a set at different times: two that see a difference would replace each other's plan
/// again and again. The planner whose plan it is may replace it at any time.
const ADOPTED_HOLD: Duration = Duration::from_secs(1);

/// Sums of one fleet, or of one fleet and one upstream cluster.
#[derive(Debug)]
pub(super) struct ScopeState {
    zones: BTreeMap<Locality, ZoneState>,
    first_report: Instant,
    /// End of the warm-up: one reporting interval after the first demand.
    warm_at: Instant,
    observed_at: Instant,
    published: Option<Published>,
    pub(super) failing: FailingZones,
    pub(super) unseen: UnseenZones,
    pub(super) losses: Losses,
}

#[derive(Debug)]
struct ZoneState {
    sum: Rate,
    reporters: u64,
    first_report: Instant,
    smoothed: SmoothedRate,
}

#[derive(Debug)]
struct Published {
    plan: Arc<Plan>,
    at: Instant,
    /// When the demand of the plan was measured: confirmations repeat it.
    measured_at: Instant,
    /// Until when the plan of another planner holds.
    held_until: Option<Instant>,
}

impl ScopeState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            zones: BTreeMap::new(),
            first_report: now,
            warm_at: now,
            observed_at: now,
            published: None,
            failing: FailingZones::default(),
            unseen: UnseenZones::default(),
            losses: Losses::default(),
        }
    }

    /// Updates the sum of one zone; `interval` is that of the load report, `None` if there is none.
    pub(super) fn apply(
        &mut self,
        change: &Change,
        interval: Option<Duration>,
        tau: Duration,
        now: Instant,
    ) {
        if interval.is_some() {
            self.observed_at = now;
        }
        let interval = interval.unwrap_or_default();
        if change.after.is_some_and(|rate| rate > Rate::default()) && self.is_idle(tau, now) {
            self.begin(interval, now);
        }
        if self.is_warming_up(now) {
            let warm_at = self.first_report.saturating_add(interval);
            self.warm_at = self.warm_at.max(warm_at);
        }
        let zone = self
            .zones
            .entry(change.locality.clone())
            .or_insert_with(|| ZoneState::new(interval, now));
        if let Some(before) = change.before {
            zone.sum.subtract(before);
            zone.reporters = zone.reporters.saturating_sub(1);
        }
        if let Some(after) = change.after {
            zone.sum.add(after);
            zone.reporters += 1;
        }
        zone.smoothed.extend(zone.first_report, interval, now);
        zone.smoothed.set(zone.sum.per_second(), tau, now);
    }

    pub(super) fn has_reporters(&self) -> bool {
        self.zones.values().any(|zone| zone.reporters > 0)
    }

    pub(super) fn reporters(&self) -> impl Iterator<Item = (&Locality, u64)> {
        self.zones
            .iter()
            .map(|(locality, zone)| (locality, zone.reporters))
    }

    pub(super) fn remove_zone(&mut self, locality: &Locality) {
        self.zones.remove(locality);
    }

    /// Returns the smoothed demand of a zone at `now`, in requests per second.
    pub(super) fn smoothed(&self, locality: &Locality, tau: Duration, now: Instant) -> f64 {
        let zone = self.zones.get(locality);
        zone.map_or(0.0, |zone| zone.smoothed.at(tau, now))
    }

    /// Returns the demand that [`ScopeState::smoothed`] converges to.
    pub(super) fn target(&self, locality: &Locality) -> f64 {
        let zone = self.zones.get(locality);
        zone.map_or(0.0, |zone| zone.smoothed.target())
    }

    pub(super) fn plan(&self) -> Option<&Arc<Plan>> {
        self.published.as_ref().map(|published| &published.plan)
    }

    pub(super) fn published_at(&self) -> Option<Instant> {
        self.published.as_ref().map(|published| published.at)
    }

    /// Returns when the plan in force was published, if it has data.
    pub(super) fn data_published_at(&self) -> Option<Instant> {
        self.published_at()
            .filter(|_| self.plan().is_some_and(|plan| plan.has_data()))
    }

    pub(super) fn publish(&mut self, plan: Arc<Plan>, now: Instant) {
        self.published = Some(Published {
            plan,
            at: now,
            measured_at: now,
            held_until: None,
        });
    }

    /// Publishes the plan in force again.
    pub(super) fn confirm(&mut self, plan: Arc<Plan>, now: Instant) {
        if let Some(published) = &mut self.published {
            published.plan = plan;
            published.at = now;
        }
    }

    /// Publishes the plan of another planner, and continues from its rates, unless they were
    /// measured before.
    pub(super) fn adopt(&mut self, plan: Arc<Plan>, now: Instant) {
        let repeated = self.published.as_ref().filter(|_| plan.is_confirmation());
        let measured_at = repeated.map_or(now, |last| last.measured_at);
        let measured = plan.zones.iter().filter(|zone| !zone.estimated);
        for zone in measured.filter(|_| repeated.is_none()) {
            if let Some(known) = self.zones.get_mut(&zone.locality) {
                known.smoothed.continue_from(zone.rate_per_second, now);
            }
        }
        self.published = Some(Published {
            measured_at,
            plan,
            at: now,
            held_until: Some(now.saturating_add(ADOPTED_HOLD)),
        });
    }

    /// Returns the upstream zones whose requests fail.
    pub(super) const fn failing(&self) -> &BTreeSet<Locality> {
        self.failing.zones()
    }

    /// Returns the zones to which no request is reported although there should be some.
    pub(super) const fn unseen(&self) -> &BTreeSet<Locality> {
        self.unseen.zones()
    }

    /// Returns the shares of the requests between zones that fail there and not elsewhere.
    pub(super) const fn failed_shares(&self) -> &BTreeMap<Link, f64> {
        self.losses.shares()
    }

    pub(super) const fn observed_at(&self) -> Instant {
        self.observed_at
    }

    /// Whether the scope is younger than one reporting interval, so that sums are incomplete.
    pub(super) fn is_warming_up(&self, now: Instant) -> bool {
        now < self.warm_at
    }

    /// Returns why receivers need `zones` (empty = no data) now, or `None` if they do not.
    pub(super) fn cause(
        &self,
        zones: &[ZoneFraction],
        config: &PlannerConfig,
        now: Instant,
    ) -> Option<UpdateCause> {
        let Some(Published {
            plan,
            measured_at,
            held_until,
            ..
        }) = &self.published
        else {
            return (!zones.is_empty()).then_some(UpdateCause::FirstData);
        };
        match (plan.has_data(), !zones.is_empty()) {
            (false, false) => return None,
            (false, true) => return Some(UpdateCause::FirstData),
            (true, false) => return Some(UpdateCause::NoData),
            (true, true) => (),
        }
        if plan.failing != *self.failing()
            || plan.unseen != *self.unseen()
            || plan.tried != *self.unseen.tried()
            || plan.failed_shares != *self.failed_shares()
        {
            return Some(UpdateCause::ZonesChanged);
        }
        if held_until.is_some_and(|until| now < until) {
            return None;
        }
        if plan.warming_up && !self.is_warming_up(now) {
            return Some(UpdateCause::WarmedUp);
        }
        if !same_zones(&plan.zones, zones) {
            return Some(UpdateCause::ZonesChanged);
        }
        if largest_move(&plan.zones, zones) >= config.material_change_bp() {
            return Some(UpdateCause::FractionsMoved);
        }
        let heartbeat = measured_at.saturating_add(config.heartbeat());
        (heartbeat <= now).then_some(UpdateCause::Heartbeat)
    }

    /// When to evaluate again without reports: at the heartbeat, at the end of the warm-up, when
    /// another planner's plan has been held long enough, and every second while demand converges to
    /// `targets` worth an update. Fractions move in one
    /// direction then, so if the end is not worth an update, nothing before is.
    pub(super) fn next_evaluation(
        &self,
        targets: &[ZoneFraction],
        config: &PlannerConfig,
        now: Instant,
    ) -> Option<Instant> {
        let warm = self.is_warming_up(now).then_some(self.warm_at);
        let last = self.published.as_ref();
        let held = last.and_then(|last| last.held_until.filter(|until| now < *until));
        let published = last.filter(|last| last.plan.has_data());
        let heartbeat = published.map(|last| last.measured_at.saturating_add(config.heartbeat()));
        let tick = published.and_then(|last| {
            // One basis point less, because both fractions are rounded.
            let worth = config.material_change_bp().saturating_sub(1).max(1);
            let converging = same_zones(&last.plan.zones, targets)
                && largest_move(&last.plan.zones, targets) >= worth;
            converging.then(|| now.saturating_add(SMOOTHING_TICK))
        });
        let recovered = self.failing.deadline();
        // Both are evaluated together with the failing zones.
        let [tried, ended] = [self.unseen.deadline(), self.losses.deadline()]
            .map(|at| at.map(|at| self.failing.evaluated_from(at)));
        let next = [warm, held, heartbeat, tick, recovered, tried, ended];
        next.into_iter().flatten().min()
    }

    fn is_idle(&self, tau: Duration, now: Instant) -> bool {
        let idle =
            |zone: &ZoneState| zone.smoothed.target() <= 0.0 && zone.smoothed.at(tau, now) <= 0.0;
        self.zones.values().all(idle)
    }

    /// Starts a warm-up at the first demand, or the first after none: there is no past value to
    /// smooth with, so sums are used unsmoothed for one interval.
    fn begin(&mut self, interval: Duration, now: Instant) {
        self.first_report = now;
        self.warm_at = now.saturating_add(interval);
        for zone in self.zones.values_mut() {
            zone.first_report = now;
            zone.smoothed = SmoothedRate::new(interval, now);
        }
    }
}

impl ZoneState {
    fn new(interval: Duration, now: Instant) -> Self {
        Self {
            sum: Rate::default(),
            reporters: 0,
            first_report: now,
            smoothed: SmoothedRate::new(interval, now),
        }
    }
}

fn same_zones(one: &[ZoneFraction], other: &[ZoneFraction]) -> bool {
    let key = |zone: &ZoneFraction| (zone.locality.clone(), zone.estimated);
    one.len() == other.len() && one.iter().map(key).eq(other.iter().map(key))
}

/// Returns the largest move of a fraction in basis points. Both lists have the same zones.
fn largest_move(one: &[ZoneFraction], other: &[ZoneFraction]) -> u64 {
    one.iter()
        .zip(other)
        .map(|(one, other)| one.fraction.get().abs_diff(other.fraction.get()))
        .max()
        .unwrap_or(0)
}
