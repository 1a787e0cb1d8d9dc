//! [`AgreedPlans`]: plans that replicas deliver only when the store has them.
//!
//! Every replica plans for itself, from the same load reports at slightly different times. Before
//! it delivers a plan, it proposes it: the store takes the first proposal that follows the plan
//! that it has, and all replicas deliver what the store took. So their proxies get the same
//! weights, in the same order. There is no leader: if a replica dies, the next proposal is another
//! one's. Without the store, every replica delivers its own plans (decision 0034).
//!
//! Replicas with different configurations plan differently, and agree only with their like.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::planner::{Plan, PlanScope, SharedPlan};
use plimsoll_core::time::Instant;
use plimsoll_xds::replica::PlanRecord;

use super::Effect;

/// How long a plan waits for the store. etcd needs some milliseconds; a longer wait would only
/// delay updates while it elects a leader.
const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What a plan in the store is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanKey {
    /// Hash of the configuration that the plan was made with.
    pub configuration: u64,
    pub scope: PlanScope,
}

/// A plan in the store.
#[derive(Clone, Debug)]
pub struct StoredPlan {
    pub key: PlanKey,
    pub record: PlanRecord,
    /// Revision of the store at which the plan was written.
    pub revision: i64,
}

/// A change that the store takes if it still has the plan with revision `after`, or none if that is
/// 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// `None` deletes the plan.
    pub record: Option<PlanRecord>,
    pub after: i64,
}

/// Plans that replicas agree on.
#[derive(Debug, Default)]
pub(super) struct AgreedPlans {
    instance: u64,
    configuration: u64,
    /// Revisions of the plans in the store.
    revisions: BTreeMap<PlanKey, i64>,
    proposed: BTreeMap<PlanScope, Proposed>,
    /// Proposals that are not handed over to the store yet.
    unsent: BTreeSet<PlanScope>,
    /// Scopes whose plans are to be deleted in the store.
    ended: BTreeSet<PlanScope>,
}

/// A plan of this replica that waits for the store.
#[derive(Debug)]
struct Proposed {
    plan: Arc<Plan>,
    due: Instant,
    /// A newer plan, which is proposed when the store has answered. It would not follow the plan
    /// that the store has by then.
    next: Option<Arc<Plan>>,
}

impl AgreedPlans {
    pub(super) fn new(instance: u64) -> Self {
        Self {
            instance,
            ..Self::default()
        }
    }

    #[cfg(test)]
    pub(super) const fn configuration(&self) -> u64 {
        self.configuration
    }

    /// Sets the configuration that plans are made with.
    pub(super) const fn set_configuration(&mut self, configuration: u64) {
        self.configuration = configuration;
    }

    /// Proposes a plan to the store.
    pub(super) fn propose(&mut self, plan: Arc<Plan>, now: Instant) {
        if let Some(proposed) = self.proposed.get_mut(&plan.scope) {
            proposed.next = Some(plan);
            return;
        }
        self.unsent.insert(plan.scope.clone());
        let proposed = Proposed {
            due: now.saturating_add(PROPOSAL_TIMEOUT),
            next: None,
            plan,
        };
        let scope = proposed.plan.scope.clone();
        self.proposed.insert(scope, proposed);
    }

    /// Whether a plan waits for the store.
    pub(super) fn is_proposed(&self, scope: &PlanScope) -> bool {
        self.proposed.contains_key(scope)
    }

    /// Handles all plans in the store, when it has been read.
    pub(super) fn handle_snapshot(
        &mut self,
        plans: Vec<StoredPlan>,
        effects: &mut Vec<Effect>,
        now: Instant,
    ) {
        let before = std::mem::take(&mut self.revisions);
        for plan in plans {
            if let Some(revision) = before.get(&plan.key) {
                self.revisions.insert(plan.key.clone(), *revision);
            }
            self.handle_put(plan, effects, now);
        }
    }

    /// Handles a plan that the store has taken.
    pub(super) fn handle_put(
        &mut self,
        stored: StoredPlan,
        effects: &mut Vec<Effect>,
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
        if record.instance != self.instance {
            // A plan of ours that waits does not follow this one.
            self.unsent.remove(&taken.scope);
            self.proposed.remove(&taken.scope);
            effects.push(Effect::Adopt(taken));
        } else if let Some(proposed) = self.proposed.remove(&taken.scope) {
            self.unsent.remove(&taken.scope);
            let next = if proposed.plan.shared() == taken {
                effects.push(Effect::Deliver(proposed.plan));
                proposed.next
            } else {
                // An earlier one, which was delivered when it had waited for too long.
                Some(proposed.next.unwrap_or(proposed.plan))
            };
            if let Some(next) = next {
                self.propose(next, now);
            }
        }
    }

    /// Handles a plan that has expired in the store. It stays in force.
    pub(super) fn handle_deleted(&mut self, key: &PlanKey) {
        self.revisions.remove(key);
    }

    /// Deletes the plan of a scope without demand in the store. Names of fleets and clusters come
    /// from the network: they must not stay there while this replica runs.
    pub(super) fn forget(&mut self, scope: &PlanScope) {
        self.ended.insert(scope.clone());
    }

    /// Delivers a plan that the store does not take.
    pub(super) fn handle_refused(&mut self, key: &PlanKey, effects: &mut Vec<Effect>) {
        self.unsent.remove(&key.scope);
        if let Some(proposed) = self.proposed.remove(&key.scope) {
            effects.push(proposed.newest());
        }
    }

    /// Delivers the plans that wait for the store, which cannot be reached.
    pub(super) fn handle_disconnected(&mut self, effects: &mut Vec<Effect>) {
        self.unsent.clear();
        self.ended.clear();
        for (_, proposed) in std::mem::take(&mut self.proposed) {
            effects.push(proposed.newest());
        }
    }

    /// Delivers the plans that have waited for too long.
    pub(super) fn handle_timeout(&mut self, effects: &mut Vec<Effect>, now: Instant) {
        let (late, waiting) = std::mem::take(&mut self.proposed)
            .into_iter()
            .partition(|(_, proposed)| proposed.due <= now);
        self.proposed = waiting;
        for (scope, proposed) in late {
            self.unsent.remove(&scope);
            effects.push(proposed.newest());
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.proposed.values().map(|proposed| proposed.due).min()
    }

    /// Returns the next plan to propose to the store.
    pub(super) fn poll_proposal(&mut self) -> Option<(PlanKey, Proposal)> {
        while let Some(scope) = self.ended.pop_first() {
            let (key, after) = self.known(&scope);
            // There may be demand again, and another plan on its way.
            if after != 0 && !self.proposed.contains_key(&scope) {
                let record = None;
                return Some((key, Proposal { record, after }));
            }
        }
        while let Some(scope) = self.unsent.pop_first() {
            if let Some(proposed) = self.proposed.get(&scope) {
                let record = Some(self.record(&proposed.plan));
                let (key, after) = self.known(&scope);
                return Some((key, Proposal { record, after }));
            }
        }
        None
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

impl Proposed {
    fn newest(self) -> Effect {
        Effect::Deliver(self.next.unwrap_or(self.plan))
    }
}
