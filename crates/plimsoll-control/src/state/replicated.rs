//! The part of [`State`] that replicas of the control plane share: nodes and load reports of other
//! replicas are added to its own, so that every replica computes the same demand.

use std::sync::Arc;

use plimsoll_core::planner::PlanScope;
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;

use super::{ControlEvent, HOLD_MARGIN, State};
use crate::config::ControlConfig;
use crate::fleet::{Opened, StreamKind};
use crate::replicas::{
    Effect, NodeKey, PlanKey, Proposal, Replicas, StoreInput, StoredPlan, Timing, Write,
};

impl State {
    /// Makes this control plane one of several replicas. `instance` differs between processes with
    /// the same name.
    #[must_use]
    pub fn with_replicas(mut self, replica: Arc<str>, instance: u64) -> Self {
        let timing = timing(&self.config);
        let mut replicas = Replicas::new(replica, instance, timing);
        replicas.set_configuration(self.fingerprint);
        self.replicas = Some(replicas);
        // It starts when the store has been read.
        self.hold_until = None;
        self
    }

    /// Handles a change in the store, or of the connection to it.
    pub fn handle_store(&mut self, input: StoreInput, now: Instant) {
        let Some(replicas) = &mut self.replicas else {
            return;
        };
        let (was_connected, was_synced) = (replicas.is_connected(), replicas.is_synced());
        let reason = match &input {
            StoreInput::Disconnected(reason) => Some(reason.clone()),
            _ => None,
        };
        let stored = match &input {
            StoreInput::Snapshot(snapshot) => snapshot.plans.iter().map(plan_scope).collect(),
            _ => Vec::new(),
        };
        let effects = replicas.handle_store(input, now);
        let is_connected = replicas.is_connected();
        let (nodes, _) = replicas.counts();
        self.apply(effects, now);
        self.forget_ended_plans(&stored);
        if is_connected && !was_connected {
            self.fleets.restart_leaving(now);
            self.event(ControlEvent::StoreConnected { nodes });
        }
        if let Some(reason) = reason
            && was_connected
        {
            self.event(ControlEvent::StoreLost { reason });
        }
        if is_connected && !was_synced {
            let hold = self.config.load_reporting_interval + HOLD_MARGIN;
            self.hold_until = Some(now.saturating_add(hold));
            for plan in std::mem::take(&mut self.waiting_plans).into_values() {
                self.handle_plan(plan, now);
            }
        }
        self.process_due(now);
    }

    /// Returns the next record to write to the store.
    pub fn poll_store_write(&mut self) -> Option<(NodeKey, Write)> {
        self.replicas.as_mut()?.poll_write()
    }

    /// Returns the next plan to propose to the store.
    pub fn poll_proposal(&mut self) -> Option<(PlanKey, Proposal)> {
        self.replicas.as_mut()?.poll_proposal()
    }

    /// Returns what this control plane knows about its replicas; `None` without a store.
    pub const fn replicas(&self) -> Option<&Replicas> {
        self.replicas.as_ref()
    }

    /// Whether the store has not been read since the start, so that demand is incomplete.
    pub(super) fn awaits_store(&self) -> bool {
        let replicas = self.replicas.as_ref();
        replicas.is_some_and(|replicas| !replicas.is_synced())
    }

    /// Whether nodes may have moved to other replicas without this one knowing.
    pub(super) fn store_is_away(&self) -> bool {
        let replicas = self.replicas.as_ref();
        replicas.is_some_and(|replicas| !replicas.is_connected())
    }

    pub(super) fn replicas_open(&mut self, node: &NodeInfo, kind: StreamKind, now: Instant) {
        if let Some(replicas) = &mut self.replicas
            && replicas.handle_open(node, kind, now)
        {
            let (fleet, id) = (&node.node.cluster, &node.node.id);
            self.fleets.unshare(fleet, id, false, now);
        }
    }

    pub(super) fn replicas_timeout(&mut self, now: Instant) {
        let Some(replicas) = &mut self.replicas else {
            return;
        };
        let effects = replicas.handle_timeout(now);
        self.apply(effects, now);
    }

    pub(super) fn replicas_config(&mut self) {
        let timing = timing(&self.config);
        if let Some(replicas) = &mut self.replicas {
            replicas.set_timing(timing);
            replicas.set_configuration(self.fingerprint);
        }
    }

    /// Handles nodes that have left their fleets.
    pub(super) fn nodes_left(&mut self, left: &[(Arc<str>, Arc<str>)], now: Instant) {
        for (fleet, id) in left {
            if let Some(replicas) = &mut self.replicas {
                let (fleet, id) = (Arc::clone(fleet), Arc::clone(id));
                replicas.handle_left(&NodeKey { fleet, id });
            }
            self.membership_changed(fleet, self.next_batch(fleet, now));
        }
    }

    fn apply(&mut self, effects: Vec<Effect>, now: Instant) {
        for effect in effects {
            match effect {
                Effect::Join(info) => self.join(&info, now),
                // There is no room for the node.
                Effect::Report(info, _) if self.is_unknown(&info) => {}
                Effect::Leave(NodeKey { fleet, id }) => {
                    if self.fleets.unshare(&fleet, &id, true, now) {
                        self.membership_changed(&fleet, self.next_batch(&fleet, now));
                    }
                }
                Effect::Report(info, stats) => {
                    let counted = self.counted(&stats);
                    self.planner.handle_load_reports(&info.node, &counted, now);
                }
                Effect::Silent(NodeKey { fleet, id }) => {
                    self.planner.handle_disconnect(&id, &fleet, now);
                }
                Effect::Duplicate(NodeKey { fleet, id }, replica) => {
                    let event = ControlEvent::DuplicateNode {
                        fleet,
                        node: id,
                        replica,
                    };
                    self.suspects.handle_event(&event, now);
                    self.event(event);
                }
                Effect::Adopt(shared) => {
                    let plan = self.planner.adopt(&shared, now);
                    self.waiting_plans.remove(&plan.scope);
                    self.deliver(plan, now);
                }
                Effect::Deliver(plan) => self.deliver(plan, now),
            }
        }
    }

    /// Deletes plans in the store whose demand ended while the store was away.
    fn forget_ended_plans(&mut self, stored: &[PlanScope]) {
        let planner = &self.planner;
        if let Some(replicas) = &mut self.replicas {
            let ended = stored.iter().filter(|scope| planner.plan(scope).is_none());
            ended.for_each(|scope| replicas.forget_plan(scope));
        }
    }

    fn is_unknown(&self, info: &NodeInfo) -> bool {
        let node = &info.node;
        self.fleets.member(&node.cluster, &node.id).is_none()
    }

    /// Adds a node of another replica to its fleet.
    fn join(&mut self, info: &NodeInfo, now: Instant) {
        let fleet = &info.node.cluster;
        let Opened {
            changed,
            new_zone,
            left,
        } = match self.fleets.share(info, now) {
            Ok(opened) => opened,
            Err(refusal) => {
                let (fleet, node) = (Arc::clone(fleet), Arc::clone(&info.node.id));
                if let Some(replicas) = &mut self.replicas {
                    replicas.forget(&NodeKey::of(&info.node));
                }
                return self.event(ControlEvent::StreamRefused {
                    fleet,
                    node,
                    refusal,
                });
            }
        };
        self.nodes_left(&left, now);
        if changed {
            let later = self.next_batch(fleet, now);
            self.membership_changed(fleet, if new_zone { now } else { later });
        }
    }
}

fn plan_scope(stored: &StoredPlan) -> PlanScope {
    stored.key.scope.clone()
}

fn timing(config: &ControlConfig) -> Timing {
    let store = config.store.as_ref();
    Timing {
        interval: config.load_reporting_interval,
        missed_intervals: config.planner.missed_intervals(),
        lease_ttl: store.map_or(crate::config::DEFAULT_LEASE_TTL, |store| store.lease_ttl),
    }
}
