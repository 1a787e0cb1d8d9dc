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
            services: Arc::new([(Arc::clone(service.name()), Arc::clone(&service))].into()),
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
        sent_assignment: None,
        demand_field: service.demand_field.or(Some("mode")),
        ..Service::clone(service)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::driver::config;

    #[test]
    fn only_a_complete_ramp_of_an_enforced_service_is_enforced() {
        for (settings, expected) in [
            ("mode: ENFORCE", true),
            ("mode: ENFORCE, ramp: 99", false),
            ("mode: SHADOW", false),
            ("mode: 'OFF'", false),
        ] {
            let config = config(settings);
            let service = &config.services["orders"];
            assert_eq!(is_enforced(service), expected, "{settings}");
            let enforced = enforced(service);
            assert!(is_enforced(&enforced), "{settings}");
            assert!(enforced.demand_field.is_some(), "{settings}");
            assert_eq!(enforced.config, service.config);
        }
    }

    #[test]
    fn the_field_that_requests_demand_stays() {
        let config = config("delivery: EDS_FIELD");
        let enforced = enforced(&config.services["orders"]);
        assert_eq!(enforced.demand_field, Some("delivery"));
    }
}
