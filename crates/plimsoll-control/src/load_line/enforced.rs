//! [`Enforced`]: the resources that a service would have with `mode: ENFORCE` and `ramp: 100`.
//!
//! Built by the code that builds the real ones, from the same demand. Nothing of it is delivered.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{ControlConfig, Mode, Service};
use crate::fleet_plan::FleetPlan;
use crate::state::State;
use crate::view::Catalog;

/// Hypothetical resources of one service for one fleet.
pub(crate) struct Enforced {
    pub(crate) service: Arc<Service>,
    pub(crate) plan: FleetPlan,
    pub(crate) catalog: Catalog,
}

impl Enforced {
    pub(crate) fn new(
        state: &State,
        fleet: &Arc<str>,
        service: &Service,
        plan: &FleetPlan,
    ) -> Self {
        let service = Arc::new(enforced(service));
        let config = ControlConfig {
            services: BTreeMap::from([(Arc::clone(service.name()), Arc::clone(&service))]),
            listeners: BTreeMap::new(),
            ..ControlConfig::clone(state.config())
        };
        Self {
            plan: state.plan_for(fleet, plan, &service),
            catalog: Catalog::new(&Arc::new(config)),
            service,
        }
    }
}

/// Whether a service already routes as enforced, so that `now` and `enforce` are the same.
pub(crate) fn is_enforced(service: &Service) -> bool {
    service.mode == Mode::Enforce && service.ramp >= 100
}

fn enforced(service: &Service) -> Service {
    Service {
        mode: Mode::Enforce,
        ramp: 100,
        demand_field: service.demand_field.or(Some("mode")),
        ..Service::clone(service)
    }
}
