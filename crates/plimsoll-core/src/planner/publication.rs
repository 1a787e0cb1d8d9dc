//! Publication of plans: when receivers need one, and when the plan in force is repeated.
//!
//! A heartbeat carries demand as it is measured then, however little it moved. Receivers to which
//! the next one would come too late (decision 0024) get confirmations in between, for which demand
//! is not evaluated: so one receiver that needs them changes neither when nor what others learn.

use std::sync::Arc;
use std::time::Duration;

use super::config::MIN_HEARTBEAT;
use super::{Plan, PlanScope, Planner, TimerKey, UpdateCause};
use crate::time::Instant;

impl Planner {
    /// Sets the longest time between two updates, for receivers to which the next heartbeat would
    /// come too late: until then, the plan in force is repeated. `None` if heartbeats are enough.
    pub fn set_confirmation(&mut self, interval: Option<Duration>, now: Instant) {
        if interval != self.confirmation {
            self.confirmation = interval;
            self.clock.advance(now);
            let scopes: Vec<_> = self.all_scopes().collect();
            scopes.iter().for_each(|scope| self.arm_confirmation(scope));
        }
    }

    /// Returns the longest time between two updates.
    pub fn confirmation(&self) -> Duration {
        let heartbeat = self.config.heartbeat();
        let interval = self.confirmation.unwrap_or(heartbeat);
        interval.clamp(MIN_HEARTBEAT, heartbeat)
    }

    /// Sets the timer of a scope to the next confirmation of its plan, if there are any.
    pub(super) fn arm_confirmation(&mut self, scope: &PlanScope) {
        let interval = self.confirmation();
        let deadline = self
            .fleets
            .get(&scope.fleet)
            .filter(|_| interval < self.config.heartbeat())
            .and_then(|fleet| fleet.scope(&scope.upstream_cluster)?.data_published_at())
            .map(|at| at.saturating_add(interval));
        let key = TimerKey::Confirmation(scope.clone());
        self.timers.set(&key, deadline);
    }

    /// Repeats the plan in force, unless a newer one has just been made.
    pub(super) fn confirm(&mut self, scope: &PlanScope, now: Instant) {
        let fleet = self.fleets.get(&scope.fleet);
        let state = fleet.and_then(|fleet| fleet.scope(&scope.upstream_cluster));
        let due = |at: Instant| at.saturating_add(self.confirmation()) <= now;
        if let Some(state) = state
            && state.data_published_at().is_some_and(due)
            && let Some(plan) = state.plan()
        {
            let plan = Plan {
                generation: self.generation + 1,
                cause: UpdateCause::Confirmation,
                observed_at: self.clock.to_driver_past(state.observed_at()),
                ..Plan::clone(plan)
            };
            let plan = self.announce(plan);
            if let Some(state) = self.scope_mut(scope) {
                state.confirm(plan, now);
            }
        }
        self.arm_confirmation(scope);
    }

    /// Publishes a plan if receivers need one; returns when to evaluate the scope next.
    pub(super) fn update(&mut self, scope: &PlanScope, now: Instant) -> Option<Instant> {
        let key = &scope.upstream_cluster;
        let zones = self.zones(&scope.fleet, key, Some((self.config.tau(), now)));
        let targets = self.zones(&scope.fleet, key, None);
        let failures = self.fleets.get_mut(&scope.fleet)?.evaluate_failures(
            key,
            self.config.default_report_interval(),
            now,
        );
        self.failures(scope, failures);
        let state = self.fleets.get(&scope.fleet)?.scope(key)?;
        if let Some(cause) = state.cause(&zones, &self.config, now) {
            let plan = Plan {
                scope: scope.clone(),
                generation: self.generation + 1,
                cause,
                warming_up: state.is_warming_up(now),
                observed_at: self.clock.to_driver_past(state.observed_at()),
                zones,
                failing: state.failing().clone(),
                unseen: state.unseen().clone(),
                tried: state.unseen.tried().clone(),
                failed_shares: state.failed_shares().clone(),
            };
            self.publish(plan, now);
        }
        let state = self.fleets.get(&scope.fleet)?.scope(key)?;
        state.next_evaluation(&targets, &self.config, now)
    }

    fn publish(&mut self, plan: Plan, now: Instant) {
        let plan = self.announce(plan);
        if let Some(state) = self.scope_mut(&plan.scope) {
            state.publish(plan, now);
        }
    }

    /// Makes a plan the next one of its scope that is polled.
    fn announce(&mut self, mut plan: Plan) -> Arc<Plan> {
        self.generation = plan.generation;
        // A heartbeat must not hide a change that has not been polled yet.
        if let Some(waiting) = self.pending.get(&plan.scope)
            && plan.is_heartbeat()
            && !waiting.is_confirmation()
        {
            plan.cause = waiting.cause;
        }
        let plan = Arc::new(plan);
        self.pending.insert(plan.scope.clone(), Arc::clone(&plan));
        plan
    }
}
