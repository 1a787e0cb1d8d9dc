//! Plans by the objective of the service, as `plimsoll control` makes them: virtual demand instead
//! of the measured one.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::Plan;
use plimsoll_core::planner::zone_plan::{
    HostCapacity, ZoneGoal, ZoneInputs, ZonePlan, ZonePlanner,
};
use plimsoll_core::time::Instant;

use super::World;
use crate::num;
use crate::policy::Policy;
use crate::scenario::{Scenario, Zone};

/// The goal of a service, and what its latest plan was made of.
#[derive(Debug)]
pub(super) struct Planning {
    goal: ZoneGoal,
    planner: ZonePlanner,
    newest: Option<ZonePlan>,
}

impl Planning {
    /// `None` if all zones shall be equally full.
    pub(super) fn new(scenario: &Scenario, policy: Policy) -> Option<Self> {
        let objective = scenario.control_plane.objective;
        let is_planned = policy == Policy::LrsByReporter && !objective.is_level();
        let capacity: f64 = scenario.zones.iter().map(Zone::capacity).sum();
        let groups = scenario.zones.iter().flat_map(|zone| &zone.hosts);
        let weights = groups.map(|group| group.count * group.weight.unwrap_or(1));
        let weight: f64 = weights.map(f64::from).sum();
        let of_host = HostCapacity::requests_per_second(num::ratio(capacity, weight));
        let goal = ZoneGoal {
            objective,
            capacity: Some(of_host.ok()?),
            ..ZoneGoal::default()
        };
        is_planned.then(|| Self {
            goal,
            planner: ZonePlanner::default(),
            newest: None,
        })
    }
}

impl Planning {
    /// Replaces what a host of weight 1 serves.
    pub(super) const fn set_capacity(&mut self, of_host: HostCapacity) {
        self.goal.capacity = Some(of_host);
    }
}

impl World<'_> {
    /// Returns a plan as it is delivered: with virtual demand if the service has an objective.
    pub(super) fn by_objective(&mut self, plan: Arc<Plan>) -> Arc<Plan> {
        let Some(planning) = self.planning.as_mut().filter(|_| plan.has_data()) else {
            return plan;
        };
        let failing: BTreeSet<Locality> = plan.failing.clone();
        let inputs = ZoneInputs {
            demand: &plan.zones,
            upstream: &HostSetCounts::of_assignment(&self.upstream, 0, None),
            failing: &failing,
        };
        let now = Instant::from_nanos(self.now);
        let planned = planning.planner.plan(&planning.goal, inputs, now);
        // Without hosts nothing can be planned.
        let Ok(planned) = planned else {
            return plan;
        };
        let settled = match &planning.newest {
            Some(before) => planned.settled(before),
            None => planned,
        };
        let mut delivered = Plan::clone(&plan);
        delivered.zones = settled.virtual_demand().to_vec();
        planning.newest = Some(settled);
        Arc::new(delivered)
    }
}
