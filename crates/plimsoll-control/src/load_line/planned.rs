//! [`PlannedZone`]: what the objective of a service plans for a zone, beside the load line.

use std::sync::Arc;

use plimsoll_core::model::locality::Locality;

use crate::demand::OwnPlan;

/// What is planned for one zone, of the demand of all fleets.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedZone {
    /// Requests per second that its healthy hosts serve at utilization 1; `None` if nobody says.
    pub capacity: Option<f64>,
    /// Planned utilization, 0 to 1 or, if the zone has to take more, above; `None` without hosts
    /// or without capacity.
    pub utilization: Option<f64>,
    /// Hosts of weight 1 that the zone's own demand needs at the target; `None` with `LEVEL`.
    pub wanted_hosts: Option<u64>,
    /// How its requests are planned, as a sentence.
    pub text: Arc<str>,
}

impl PlannedZone {
    pub(crate) fn of(plan: &OwnPlan, zone: &Locality) -> Option<Self> {
        let plan = plan.zone_plan()?;
        let own = plan.zone(zone)?;
        let capacity = plan.goal().capacity.map(|_| own.capacity);
        Some(Self {
            capacity,
            utilization: capacity
                .filter(|capacity| *capacity > 0.0)
                .map(|capacity| own.served / capacity),
            wanted_hosts: plan.goal().wanted_hosts(own.demand),
            text: plan.sentence(zone)?.into(),
        })
    }
}

/// Returns the target utilization of a plan; `None` with `LEVEL`.
pub(crate) fn target(plan: &OwnPlan) -> Option<f64> {
    let objective = plan.zone_plan()?.goal().objective;
    (!objective.is_level()).then(|| objective.target_utilization())
}
