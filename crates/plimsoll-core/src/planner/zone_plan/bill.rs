//! [`PlanBill`]: what the requests between zones cost by a plan, and by one with another target.

use std::sync::OnceLock;

use super::ZoneGoal;
use crate::planner::transport::{Objective, Problem, Solution};

/// Step of the target whose price is told: what the last percent costs.
const PERCENT: f64 = 0.01;

/// US dollars per month for the requests between zones, for the demand of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanBill {
    pub objective: f64,
    /// If all zones were equally full.
    pub level: f64,
    /// What the last percent of headroom costs: so much less would it be with a target one percent
    /// higher. `None` for `LEVEL`, for a target above 0.99, and where demand exceeds the target.
    pub last_percent: Option<f64>,
}

/// A bill that is made when somebody asks: it needs two more plans.
#[derive(Clone, Debug, Default)]
pub(super) struct BillOnce(OnceLock<PlanBill>);

impl PartialEq for BillOnce {
    /// A bill follows from its plan.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl BillOnce {
    pub(super) fn get(&self, goal: &ZoneGoal, solution: &Solution) -> PlanBill {
        *self.0.get_or_init(|| bill(goal, solution))
    }
}

fn bill(goal: &ZoneGoal, solution: &Solution) -> PlanBill {
    let cost = |sum| goal.cost.usd_per_month_of(sum);
    let with = |objective: Objective| {
        let problem = Problem::try_new(solution.problem().zones(), objective).ok()?;
        let solution = problem.solve(solution.prices()).ok()?;
        Some(cost(solution.cost()))
    };
    let objective = cost(solution.cost());
    let is_level = goal.objective.is_level();
    let next = || Objective::waterfall(goal.objective.target_utilization() + PERCENT).ok();
    let next = (!is_level && !solution.problem().is_forced()).then(next);
    PlanBill {
        objective,
        level: Some(Objective::LEVEL)
            .filter(|_| !is_level)
            .and_then(with)
            .unwrap_or(objective),
        // Rounding to units may make the higher target dearer by a fraction of a cent.
        last_percent: next
            .flatten()
            .and_then(with)
            .map(|higher| (objective - higher).max(0.0)),
    }
}
