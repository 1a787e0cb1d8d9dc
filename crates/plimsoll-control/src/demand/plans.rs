//! [`PlanTable`]: the plans of every fleet and each of its services, on their way to proxies, and
//! the plans that services have of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::planner::transport::SharedSpilling;
use plimsoll_core::planner::{Plan, PlanScope};
use plimsoll_core::time::Instant;

use super::own_plans::{OfService, OwnPlan};
use crate::config::Service;

/// Plans by scope. A newer plan may be held back while an earlier one is delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanTable {
    by_scope: BTreeMap<PlanScope, Entry>,
    /// By upstream cluster, as far as a plan for it is delivered.
    services: BTreeMap<Arc<str>, OfService>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// Waits until the store has been read.
    held: Option<Arc<Plan>>,
    delivered: Option<Delivered>,
}

/// A plan that outputs are built from.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) plan: Arc<Plan>,
    /// When the planner, or another replica, has made it.
    pub(crate) at: Instant,
}

impl PlanTable {
    /// Keeps a plan until [`Self::take_held`], in the place of an earlier one.
    pub(crate) fn hold(&mut self, plan: Arc<Plan>) {
        let entry = self.by_scope.entry(plan.scope.clone()).or_default();
        entry.held = Some(plan);
    }

    /// Drops a plan that is held: another one is newer.
    pub(crate) fn drop_held(&mut self, scope: &PlanScope) {
        if let Some(entry) = self.by_scope.get_mut(scope) {
            entry.held = None;
        }
        self.remove_empty(scope);
    }

    /// Returns all plans that are held.
    pub(crate) fn take_held(&mut self) -> Vec<Arc<Plan>> {
        let entries = self.by_scope.values_mut();
        let held = entries.filter_map(|entry| entry.held.take()).collect();
        self.by_scope.retain(|_, entry| entry.delivered.is_some());
        held
    }

    /// Makes a plan the one that outputs are built from. Returns whether its demand is another one,
    /// so that [`Self::replan`] is to be called.
    pub(crate) fn deliver(&mut self, plan: Arc<Plan>, at: Instant) -> bool {
        let before = self.delivered(&plan.scope);
        if before.is_some_and(|before| plan.confirms(&before.plan)) {
            self.confirm(plan, at);
            return false;
        }
        if plan.scope.upstream_cluster.is_some() && !plan.has_data() {
            // Names of clusters come from load reports: they must not be kept forever.
            if let Some(entry) = self.by_scope.get_mut(&plan.scope) {
                entry.delivered = None;
            }
            self.leave(&plan.scope);
            self.remove_empty(&plan.scope);
            return true;
        }
        if let Some(cluster) = &plan.scope.upstream_cluster {
            let of_service = self.services.entry(Arc::clone(cluster)).or_default();
            of_service.fleets.insert(Arc::clone(&plan.scope.fleet));
        }
        let entry = self.by_scope.entry(plan.scope.clone()).or_default();
        entry.delivered = Some(Delivered { plan, at });
        true
    }

    /// Replaces a plan by one with the same demand. A plan of its own of the service stays: made
    /// again, it would take the time that has passed for a look at demand.
    fn confirm(&mut self, plan: Arc<Plan>, at: Instant) {
        let of_service = plan.scope.upstream_cluster.as_ref();
        if let Some(of_service) = of_service.and_then(|name| self.services.get_mut(name)) {
            of_service.confirm(&plan, at);
        }
        if let Some(entry) = self.by_scope.get_mut(&plan.scope) {
            entry.delivered = Some(Delivered { plan, at });
        }
    }

    /// Forgets what is delivered to a fleet that is gone.
    pub(crate) fn forget(&mut self, fleet: &str) {
        let of_fleet = self.by_scope.keys().filter(|scope| *scope.fleet == *fleet);
        let scopes: Vec<PlanScope> = of_fleet.cloned().collect();
        for scope in &scopes {
            if let Some(entry) = self.by_scope.get_mut(scope) {
                entry.delivered = None;
            }
            self.leave(scope);
            self.remove_empty(scope);
        }
    }

    /// Makes the plan of a service of its own again. Returns whether proxies send requests
    /// elsewhere by it.
    pub(crate) fn replan(&mut self, service: &Service, now: Instant) -> bool {
        let Some(of_service) = self.services.get_mut(service.name()) else {
            return false;
        };
        let delivered = |fleet: &Arc<str>| {
            let scope = PlanScope {
                fleet: Arc::clone(fleet),
                upstream_cluster: Some(Arc::clone(service.name())),
            };
            let delivered = self.by_scope.get(&scope)?.delivered.as_ref();
            delivered.map(|delivered| &delivered.plan)
        };
        let of_fleets = of_service.fleets.iter().filter_map(delivered);
        let plans: Vec<&Arc<Plan>> = of_fleets.filter(|plan| plan.has_data()).collect();
        let has_changed = of_service.replan(service, &plans, now);
        if of_service.is_empty() {
            self.services.remove(service.name());
        }
        has_changed
    }

    /// Returns which zones of a service spill, for other replicas, as of the time of the next
    /// report.
    pub(super) fn spilling(&self, service: &str, at: Instant) -> Option<Vec<SharedSpilling>> {
        self.services.get(service)?.spilling(at)
    }

    /// Plans the next report of a service as the replica does whose plan all deliver.
    pub(super) fn adopt(&mut self, service: &str, spilling: &[SharedSpilling], now: Instant) {
        if let Some(of_service) = self.services.get_mut(service) {
            of_service.adopt(spilling, now);
        }
    }

    /// Drops the plan of its own of a service that is not configured any more.
    pub(crate) fn forget_own(&mut self, service: &str) {
        if let Some(of_service) = self.services.get_mut(service) {
            of_service.forget_own();
            if of_service.is_empty() {
                self.services.remove(service);
            }
        }
    }

    /// Returns the plan that a service has of its own.
    pub(crate) fn own(&self, service: &str) -> Option<&Arc<OwnPlan>> {
        self.services.get(service)?.own()
    }

    /// Returns the upstream clusters with a plan.
    pub(super) fn upstream_clusters(&self) -> BTreeSet<Arc<str>> {
        self.services.keys().cloned().collect()
    }

    /// Returns the plan that is delivered for a scope.
    pub(crate) fn delivered(&self, scope: &PlanScope) -> Option<&Delivered> {
        self.by_scope.get(scope)?.delivered.as_ref()
    }

    /// Whether measured demand of a fleet is delivered.
    pub(crate) fn has_demand(&self, fleet: &Arc<str>) -> bool {
        let scope = PlanScope {
            fleet: Arc::clone(fleet),
            upstream_cluster: None,
        };
        let delivered = self.delivered(&scope);
        delivered.is_some_and(|delivered| delivered.plan.has_data())
    }

    /// Returns the scopes with a plan, delivered or held.
    #[cfg(test)]
    pub(crate) fn scopes(&self) -> Vec<&PlanScope> {
        self.by_scope.keys().collect()
    }

    /// Notes that no plan is delivered for a scope any more. A plan of its own stays until it is
    /// made again.
    fn leave(&mut self, scope: &PlanScope) {
        if let Some(cluster) = &scope.upstream_cluster
            && let Some(of_service) = self.services.get_mut(cluster)
        {
            of_service.fleets.remove(&scope.fleet);
            if of_service.is_empty() {
                self.services.remove(cluster);
            }
        }
    }

    fn remove_empty(&mut self, scope: &PlanScope) {
        let entry = self.by_scope.get(scope);
        if entry.is_some_and(|entry| entry.held.is_none() && entry.delivered.is_none()) {
            self.by_scope.remove(scope);
        }
    }
}
