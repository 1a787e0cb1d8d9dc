//! [`Solutions`]: the plans of many services, of which only those that changed are made again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Prices, Problem, Solution};
use crate::units::FieldError;

/// The newest plan of each service.
#[derive(Clone, Debug, Default)]
pub struct Solutions {
    services: BTreeMap<Arc<str>, Arc<Solution>>,
}

impl Solutions {
    /// Plans a service, unless its problem and prices are those of its newest plan. Returns the
    /// plan, and whether it is a new one.
    pub fn update(
        &mut self,
        service: &Arc<str>,
        problem: &Problem,
        prices: &Prices,
    ) -> Result<(Arc<Solution>, bool), FieldError> {
        let known = self.services.get(service);
        if let Some(known) = known.filter(|known| known.is_for(problem, prices)) {
            return Ok((Arc::clone(known), false));
        }
        let solution = Arc::new(problem.solve(prices)?);
        self.services
            .insert(Arc::clone(service), Arc::clone(&solution));
        Ok((solution, true))
    }

    /// Returns the newest plan of a service.
    pub fn get(&self, service: &str) -> Option<&Arc<Solution>> {
        self.services.get(service)
    }

    /// Forgets all services but these.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.services.retain(|service, _| is_kept(service));
    }
}
