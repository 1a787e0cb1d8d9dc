//! [`OwnPlan`]: the plan of a service that needs more than the planner's plan for each fleet.
//!
//! A service has a plan of its own if it has an objective, or while fleets whose demand differs use
//! it: planned one by one, two fleets that are skewed in opposite directions would exchange
//! requests for nothing. [`PlanTable`](super::PlanTable) keeps it beside the plans that it is made
//! of, `Demand` tells what changed; the arithmetic is that of `plimsoll_core::planner`.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::Plan;
use plimsoll_core::planner::fractions::{ZoneFraction, combined};
use plimsoll_core::planner::transport::SharedSpilling;
use plimsoll_core::planner::zone_plan::{ZoneInputs, ZonePlan, ZonePlanner};
use plimsoll_core::time::Instant;

use crate::config::Service;

/// Fleets have different demand if the share of a zone differs by more basis points than this from
/// that of all of them. Less costs at most a percent of the requests.
const SKEW: u64 = 100;
/// Demand of all fleets is delivered again once the share of a zone has moved by this many basis
/// points: each of many fleets would else cause an update of all others with every heartbeat.
const MATERIAL: u64 = 50;

/// What the plans of a service have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct OfService {
    /// Fleets whose plan for the service is delivered.
    pub(super) fleets: BTreeSet<Arc<str>>,
    /// Whether demand of the fleets has differed since there were several.
    differs: bool,
    planner: ZonePlanner,
    own: Option<Arc<OwnPlan>>,
}

/// What steers a service at all fleets.
#[derive(Clone, Debug)]
pub struct OwnPlan {
    /// Demand by zone as data planes follow it: that of all fleets, or the virtual demand of
    /// `zone_plan`.
    zones: Vec<ZoneFraction>,
    /// What the zones serve by the objective of the service; `None` if it is `LEVEL`.
    zone_plan: Option<ZonePlan>,
    /// The newest of the plans that this one is made of.
    newest: Arc<Plan>,
    observed_at: Instant,
    planned_at: Instant,
}

impl OwnPlan {
    /// Returns what the zones serve; `None` if the objective is `LEVEL`, or no zone has hosts.
    pub(crate) const fn zone_plan(&self) -> Option<&ZonePlan> {
        self.zone_plan.as_ref()
    }

    pub(crate) fn zones(&self) -> &[ZoneFraction] {
        &self.zones
    }

    /// Returns the newest of the plans that it is made of.
    pub(crate) fn newest(&self) -> &Plan {
        &self.newest
    }

    pub(crate) const fn observed_at(&self) -> Instant {
        self.observed_at
    }

    pub(crate) const fn planned_at(&self) -> Instant {
        self.planned_at
    }

    fn sends_as(&self, other: &Self) -> bool {
        let is_same = match (&self.zone_plan, &other.zone_plan) {
            (Some(own), Some(other)) => own.has_same_split(other),
            (own, other) => own.is_none() && other.is_none(),
        };
        let shares = |plan: &'_ Self| -> Vec<(Locality, u64)> {
            let zones = plan.zones.iter();
            zones
                .map(|zone| (zone.locality.clone(), zone.fraction.get()))
                .collect()
        };
        is_same && shares(self) == shares(other)
    }
}

impl OfService {
    pub(super) const fn own(&self) -> Option<&Arc<OwnPlan>> {
        self.own.as_ref()
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_empty(&self) -> bool {
        self.fleets.is_empty() && self.own.is_none()
    }

    /// Makes the plan of a service again, of those of the fleets. Returns whether proxies send
    /// requests elsewhere by it.
    pub(super) fn replan(&mut self, service: &Service, plans: &[&Arc<Plan>], now: Instant) -> bool {
        let next = self.plan(service, plans, now).map(Arc::new);
        let is_same = match (&self.own, &next) {
            (Some(before), Some(next)) => next.sends_as(before),
            (before, next) => before.is_none() && next.is_none(),
        };
        self.own = next;
        !is_same
    }

    /// Handles that one of the plans is confirmed: its demand is the same.
    pub(super) fn confirm(&mut self, plan: &Arc<Plan>, now: Instant) {
        if let Some(own) = &mut self.own {
            let own = Arc::make_mut(own);
            own.newest = Arc::clone(plan);
            own.observed_at = own.observed_at.max(plan.observed_at);
            own.planned_at = now;
        }
    }

    /// Returns which zones spill, for other replicas, as of the time of the next report; `None`
    /// without an objective.
    pub(super) fn spilling(&self, at: Instant) -> Option<Vec<SharedSpilling>> {
        self.own.as_ref()?.zone_plan()?;
        Some(self.planner.spilling(at))
    }

    /// Plans the next report as the replica does whose plan all deliver.
    pub(super) fn adopt(&mut self, spilling: &[SharedSpilling], now: Instant) {
        self.planner.adopt(spilling, now);
    }

    /// Drops the plan of a service that is not configured any more.
    pub(super) fn forget_own(&mut self) {
        *self = Self {
            fleets: std::mem::take(&mut self.fleets),
            ..Self::default()
        };
    }

    fn plan(&mut self, service: &Service, plans: &[&Arc<Plan>], now: Instant) -> Option<OwnPlan> {
        let zones = || combined(plans.iter().map(|plan| &plan.zones[..]));
        let several = plans.len() > 1;
        self.differs = several && (self.differs || differ(plans, &zones()?));
        if !self.differs && !service.goal.needs_plan() {
            self.planner = ZonePlanner::default();
            return None;
        }
        let newest = plans.iter().max_by_key(|plan| plan.generation)?;
        let observed_at = plans.iter().map(|plan| plan.observed_at).max()?;
        let demand = zones()?;
        let zone_plan = service
            .goal
            .needs_plan()
            .then(|| self.zone_plan(service, plans, &demand, now))
            .flatten();
        let zones = match &zone_plan {
            Some(plan) => plan.virtual_demand().to_vec(),
            None => self.settled(demand),
        };
        Some(OwnPlan {
            zones,
            zone_plan,
            newest: Arc::clone(newest),
            observed_at,
            planned_at: now,
        })
    }

    /// Returns the demand that is in force if `next` is about the same.
    fn settled(&self, next: Vec<ZoneFraction>) -> Vec<ZoneFraction> {
        let level = self.own.as_ref().filter(|own| own.zone_plan.is_none());
        let before = level.map_or(&[][..], |own| own.zones());
        let mut pairs = before.iter().zip(&next);
        let is_same = before.len() == next.len()
            && pairs.all(|(before, next)| {
                let moved = before.fraction.get().abs_diff(next.fraction.get());
                before.locality == next.locality && moved < MATERIAL
            });
        if is_same { before.to_vec() } else { next }
    }

    /// `None` if the service has no healthy host.
    fn zone_plan(
        &mut self,
        service: &Service,
        plans: &[&Arc<Plan>],
        demand: &[ZoneFraction],
        now: Instant,
    ) -> Option<ZonePlan> {
        let failing = plans.iter().flat_map(|plan| &plan.failing).cloned();
        let failing: BTreeSet<Locality> = failing.collect();
        let inputs = ZoneInputs {
            demand,
            upstream: &HostSetCounts::of_assignment(&service.assignment, 0, None),
            failing: &failing,
        };
        let plan = self.planner.plan(&service.goal, inputs, now).ok()?;
        let before = self.own.as_ref().and_then(|own| own.zone_plan.as_ref());
        Some(match before {
            Some(before) => plan.settled(before),
            None => plan,
        })
    }
}

/// Whether the demand of a fleet differs from that of all.
fn differ(plans: &[&Arc<Plan>], all: &[ZoneFraction]) -> bool {
    plans.iter().any(|plan| {
        all.iter().any(|zone| {
            let mut own = plan.zones.iter();
            let own = own.find(|own| own.locality == zone.locality);
            let own = own.map_or(0, |own| own.fraction.get());
            own.abs_diff(zone.fraction.get()) > SKEW
        })
    })
}
