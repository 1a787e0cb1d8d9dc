//! [`SteeredBy`]: which plan steers a service at one fleet.

use std::sync::Arc;

use plimsoll_core::planner::Plan;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::zone_plan::ZonePlan;
use plimsoll_core::time::Instant;

use crate::demand::OwnPlan;

/// The demand that steers a service at one fleet.
#[derive(Clone, Debug)]
pub enum SteeredBy {
    /// Demand of the fleet.
    Fleet(Arc<Plan>),
    /// The plan of the service, for all fleets.
    Own(Arc<OwnPlan>),
}

impl SteeredBy {
    /// Returns the demand by zone, before the ramp.
    pub(crate) fn zones(&self) -> &[ZoneFraction] {
        match self {
            Self::Fleet(plan) => &plan.zones,
            Self::Own(plan) => plan.zones(),
        }
    }

    pub(crate) fn zone_plan(&self) -> Option<&ZonePlan> {
        match self {
            Self::Fleet(_) => None,
            Self::Own(plan) => plan.zone_plan(),
        }
    }

    /// Returns the newest plan of the planner that it is made of.
    pub(crate) fn newest(&self) -> &Plan {
        match self {
            Self::Fleet(plan) => plan,
            Self::Own(plan) => plan.newest(),
        }
    }

    /// Returns the time of the latest load report that it includes.
    pub(crate) fn observed_at(&self) -> Instant {
        match self {
            Self::Fleet(plan) => plan.observed_at,
            Self::Own(plan) => plan.observed_at(),
        }
    }
}
