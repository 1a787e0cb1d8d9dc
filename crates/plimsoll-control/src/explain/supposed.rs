//! [`Supposed`]: the plan of a service with an objective for hosts or demand that somebody
//! supposes.
//!
//! The same planner makes it. A balancer then computes what proxies would do from its virtual
//! demand, as it does from that of the plan in force.

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::explain::ProxyInput;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::zone_plan::ZonePlan;
use plimsoll_core::units::FieldError;

use super::{Question, pairs};

/// A plan, and the demand that it is made for, in requests per second.
#[derive(Debug)]
pub(super) struct Supposed {
    pub(super) plan: ZonePlan,
    pub(super) demand: Vec<(Locality, f64)>,
}

impl Supposed {
    /// Plans with the goal of `plan`. Demand in the question is in requests per second; without it,
    /// demand is as it was measured.
    pub(super) fn new(
        plan: &ZonePlan,
        input: &ProxyInput<'static>,
        question: &Question,
    ) -> Result<Self, FieldError> {
        let input = input.clone().with_hosts(&question.hosts)?;
        let demand = if question.demand.is_empty() {
            let zones = plan.zones().iter();
            zones
                .map(|zone| (zone.locality.clone(), zone.demand))
                .collect()
        } else {
            input.requested(&question.demand)?
        };
        let upstream = HostSetCounts::of_assignment(&input.upstream, 0, None);
        let plan = plan.supposing(&demand, &upstream)?;
        Ok(Self { plan, demand })
    }

    /// Lets a balancer follow the plan, in the form in which it gets demand.
    pub(super) fn put_into(&self, input: &mut ProxyInput<'_>) {
        input.fractions = pairs(self.plan.virtual_demand());
        if !input.observed_traffic.is_empty() {
            input.observed_traffic.clone_from(&input.fractions);
        }
    }
}
