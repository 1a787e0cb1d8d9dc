//! [`AgreedPlans`]: plans that replicas deliver only when the store has them.
//!
//! Every replica plans for itself, from the same load reports at slightly different times. Before
//! it delivers a plan, it proposes it: the store takes the first proposal that follows the plan
//! that it has, and all replicas deliver what the store took. So their proxies get the same
//! weights, in the same order. There is no leader: if a replica dies, the next proposal is another
//! one's. Without the store, every replica delivers its own plans (decision 0034).
//!
//! Replicas with different configurations plan differently, and agree only with their like.
//!
//! The plans themselves are in [`PlanTable`] while they wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::planner::{Plan, PlanScope, SharedPlan};
use plimsoll_core::time::Instant;
use plimsoll_xds::replica::PlanRecord;

use super::plans::PlanTable;
use crate::replicas::{Effect, PlanKey, Proposal, StoredPlan};

/// How long a plan waits for the store. etcd needs some milliseconds; a longer wait would only
/// delay updates while it elects a leader.
pub(super) const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What replicas have agreed on, and what is to be deleted in the store.
#[derive(Debug, Default)]
pub(crate) struct AgreedPlans {
    instance: u64,
    configuration: u64,
    /// Revisions of the plans in the store.
    revisions: BTreeMap<PlanKey, i64>,
    /// Scopes whose plans are to be deleted in the store.
    ended: BTreeSet<PlanScope>,
    /// Scopes whose plans in force were delivered without the other replicas.
    alone: BTreeSet<PlanScope>,
}

impl AgreedPlans {
    pub(crate) fn new(instance: u64, configuration: u64) -> Self {
        Self {
            instance,
            configuration,
            ..Self::default()
        }
    }

    /// Returns the configuration that plans are made with.
    #[cfg(test)]
    pub(crate) const fn configuration(&self) -> u64 {
        self.configuration
    }

    /// Sets the configuration that plans are made with.
    pub(crate) const fn set_configuration(&mut self, configuration: u64) {
        self.configuration = configuration;
    }

    /// Handles all plans in the store, when it has been read.
    pub(crate) fn handle_snapshot(
        &mut self,
        stored: Vec<StoredPlan>,
        plans: &mut PlanTable,
        effects: &mut VecDeque<Effect>,
        now: Instant,
    ) {
        let before = std::mem::take(&mut self.revisions);
        for plan in stored {
            if let Some(revision) = before.get(&plan.key) {
                self.revisions.insert(plan.key.clone(), *revision);
            }
            self.handle_put(plan, plans, effects, now);
        }
    }

    /// Handles a plan that the store has taken.
    pub(crate) fn handle_put(
        &mut self,
        stored: StoredPlan,
        plans: &mut PlanTable,
        effects: &mut VecDeque<Effect>,
        now: Instant,
    ) {
        let StoredPlan {
            key,
            record,
            revision,
        } = stored;
        let scope = key.scope.clone();
        let is_ours = key.configuration == self.configuration;
        if self.revisions.insert(key, revision) == Some(revision) || !is_ours {
            return;
        }
        let taken = SharedPlan {
            scope,
            cause: record.cause,
            warming_up: record.warming_up,
            zones: record.zones,
        };
        self.alone.remove(&taken.scope);
        let proposed = plans.take_proposed(&taken.scope);
        let Some(proposed) = proposed.filter(|_| record.instance == self.instance) else {
            // The plan of another replica, which one of ours that waits does not follow. Or an
            // earlier one of ours: the store took it late, or is an earlier copy of itself.
            return effects.push_back(Effect::Adopt(taken));
        };
        let next = if proposed.plan.shared() == taken {
            effects.push_back(Effect::Deliver(proposed.plan));
            proposed.next
        } else {
            effects.push_back(Effect::Adopt(taken));
            Some(proposed.newest())
        };
        if let Some(next) = next {
            plans.propose(next, now.saturating_add(PROPOSAL_TIMEOUT));
        }
    }

    /// Notes that a plan is delivered without the other replicas.
    pub(crate) fn handle_alone(&mut self, plan: &Plan) {
        self.alone.insert(plan.scope.clone());
    }

    /// Delivers a plan that the store has not answered in time.
    pub(crate) fn deliver_alone(&mut self, plan: Arc<Plan>) -> Effect {
        self.handle_alone(&plan);
        Effect::Deliver(plan)
    }

    /// Returns the scopes whose plans in force other replicas may not have.
    pub(crate) fn not_agreed(&self) -> impl Iterator<Item = &PlanScope> {
        self.alone.iter()
    }

    /// Handles a plan that has expired in the store. It stays in force.
    pub(crate) fn handle_deleted(&mut self, key: &PlanKey) {
        self.revisions.remove(key);
    }

    /// Deletes the plan of a scope without demand in the store. Names of fleets and clusters come
    /// from the network: they must not stay there while this replica runs.
    pub(crate) fn forget(&mut self, scope: &PlanScope) {
        self.alone.remove(scope);
        self.ended.insert(scope.clone());
    }

    /// Handles that the store cannot be reached.
    pub(crate) fn handle_disconnected(&mut self) {
        self.ended.clear();
    }

    /// Returns the next plan to propose to the store.
    pub(crate) fn poll_proposal(&mut self, plans: &mut PlanTable) -> Option<(PlanKey, Proposal)> {
        while let Some(scope) = self.ended.pop_first() {
            let (key, after) = self.known(&scope);
            // There may be demand again, and another plan on its way.
            if after != 0 && !plans.is_proposed(&scope) {
                let record = None;
                return Some((key, Proposal { record, after }));
            }
        }
        let plan = plans.pop_unsent()?;
        let record = Some(self.record(plan));
        let (key, after) = self.known(&plan.scope);
        Some((key, Proposal { record, after }))
    }

    /// Returns the key of a scope's plan, and its revision; 0 if the store has none.
    fn known(&self, scope: &PlanScope) -> (PlanKey, i64) {
        let key = PlanKey {
            configuration: self.configuration,
            scope: scope.clone(),
        };
        let revision = self.revisions.get(&key).copied();
        (key, revision.unwrap_or_default())
    }

    fn record(&self, plan: &Plan) -> PlanRecord {
        let SharedPlan {
            cause,
            warming_up,
            zones,
            ..
        } = plan.shared();
        PlanRecord {
            instance: self.instance,
            cause,
            warming_up,
            zones,
            // `Demand` knows it.
            spilling: None,
        }
    }
}

#[cfg(test)]
mod tests;
