//! [`PlanTable`]: the plans of every fleet and each of its services, on their way to proxies, and
//! the plans that services have of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::planner::transport::SharedSpilling;
use plimsoll_core::planner::{Plan, PlanScope};
use plimsoll_core::time::Instant;

use super::own_plans::{OfService, OwnPlan};
use crate::config::Service;

/// Plans by scope. A newer plan may wait while an earlier one is delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanTable {
    by_scope: BTreeMap<PlanScope, Entry>,
    /// Scopes of proposals by the time until which they wait.
    by_due: BTreeSet<(Instant, PlanScope)>,
    /// Scopes of proposals that the store does not have yet.
    unsent: BTreeSet<PlanScope>,
    /// By upstream cluster, as far as a plan for it is delivered.
    services: BTreeMap<Arc<str>, OfService>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    waiting: Option<Waiting>,
    delivered: Option<Delivered>,
}

/// A plan that is not delivered yet.
#[derive(Clone, Debug)]
enum Waiting {
    /// Until the store has been read.
    Held(Arc<Plan>),
    /// Until the store has taken it.
    Proposed(Proposed),
}

/// A plan that is proposed to the store.
#[derive(Clone, Debug)]
pub(super) struct Proposed {
    pub(super) plan: Arc<Plan>,
    due: Instant,
    /// A newer plan, which is proposed when the store has answered. It would not follow the plan
    /// that the store has by then.
    pub(super) next: Option<Arc<Plan>>,
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
        // Its indexes must not outlive a proposal.
        self.take_proposed(&plan.scope);
        let entry = self.by_scope.entry(plan.scope.clone()).or_default();
        entry.waiting = Some(Waiting::Held(plan));
    }

    /// Drops a plan that is held: another one is newer.
    pub(crate) fn drop_held(&mut self, scope: &PlanScope) {
        if let Some(entry) = self.by_scope.get_mut(scope) {
            entry.waiting.take_if(|one| matches!(one, Waiting::Held(_)));
        }
        self.remove_empty(scope);
    }

    /// Returns all plans that are held.
    pub(crate) fn take_held(&mut self) -> Vec<Arc<Plan>> {
        let held = |entry: &mut Entry| {
            let held = entry.waiting.take_if(|one| matches!(one, Waiting::Held(_)));
            held.map(Waiting::newest)
        };
        let held = self.by_scope.values_mut().filter_map(held).collect();
        self.by_scope.retain(|_, entry| !entry.is_empty());
        held
    }

    /// Notes that a plan is to be proposed to the store, and waits until `due` at the latest. If
    /// one waits already, this one is next.
    pub(super) fn propose(&mut self, plan: Arc<Plan>, due: Instant) {
        let scope = plan.scope.clone();
        let entry = self.by_scope.entry(scope.clone()).or_default();
        if let Some(Waiting::Proposed(proposed)) = &mut entry.waiting {
            proposed.next = Some(plan);
            return;
        }
        let next = None;
        entry.waiting = Some(Waiting::Proposed(Proposed { plan, due, next }));
        self.by_due.insert((due, scope.clone()));
        self.unsent.insert(scope);
    }

    /// Whether a plan waits for the store.
    pub(super) fn is_proposed(&self, scope: &PlanScope) -> bool {
        let entry = self.by_scope.get(scope);
        entry.is_some_and(|entry| matches!(entry.waiting, Some(Waiting::Proposed(_))))
    }

    /// Returns the next plan to propose to the store.
    pub(super) fn pop_unsent(&mut self) -> Option<&Plan> {
        let scope = self.unsent.pop_first()?;
        match &self.by_scope.get(&scope)?.waiting {
            Some(Waiting::Proposed(proposed)) => Some(&proposed.plan),
            _ => None,
        }
    }

    /// Takes out the plan of a scope that waits for the store.
    pub(super) fn take_proposed(&mut self, scope: &PlanScope) -> Option<Proposed> {
        let entry = self.by_scope.get_mut(scope)?;
        let Some(Waiting::Proposed(proposed)) = entry
            .waiting
            .take_if(|one| matches!(one, Waiting::Proposed(_)))
        else {
            return None;
        };
        self.by_due.remove(&(proposed.due, scope.clone()));
        self.unsent.remove(scope);
        self.remove_empty(scope);
        Some(proposed)
    }

    /// Takes out a plan that has waited for the store for too long.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<Proposed> {
        let (due, scope) = self.by_due.first()?;
        if *due > now {
            return None;
        }
        let scope = scope.clone();
        self.take_proposed(&scope)
    }

    /// Takes out all plans that wait for the store.
    pub(super) fn take_all_proposed(&mut self) -> Vec<Proposed> {
        let scopes = self.by_due.clone();
        let proposed = scopes.iter().map(|(_, scope)| self.take_proposed(scope));
        proposed.flatten().collect()
    }

    /// Returns until when the first proposal waits.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
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

    /// Returns the scopes with a plan, delivered or not.
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
        if self.by_scope.get(scope).is_some_and(Entry::is_empty) {
            self.by_scope.remove(scope);
        }
    }
}

impl Entry {
    const fn is_empty(&self) -> bool {
        self.waiting.is_none() && self.delivered.is_none()
    }
}

impl Waiting {
    fn newest(self) -> Arc<Plan> {
        match self {
            Self::Held(plan) => plan,
            Self::Proposed(proposed) => proposed.newest(),
        }
    }
}

impl Proposed {
    pub(super) fn newest(self) -> Arc<Plan> {
        self.next.unwrap_or(self.plan)
    }
}
