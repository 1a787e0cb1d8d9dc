//! `Demand`: measured demand and the plans made of it, a state machine without IO. The owner of
//! the planner and of what replicas share.
//!
//! The state passes in load reports, streams, membership and the changes in the store; it drains
//! `Demand::poll_member` after each, and calls `Demand::handle_due` last. A plan takes these
//! steps: the planner makes it, the `Gate` lets it pass, replicas agree on it (`AgreedPlans`), and
//! then it is delivered. It waits in `PlanTable`, from which `output` reads those delivered.

mod agreed;
mod capacity;
mod gate;
mod localities;
mod own_plans;
mod plans;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats, Node};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::capacity::{CapacityLearner, LearnedCapacity};
use plimsoll_core::planner::transport::SharedSpilling;
use plimsoll_core::planner::{Plan, PlanScope, Planner, PlannerEvent};
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;

use crate::config::ControlConfig;
use crate::events::{ControlEvent, EventQueue};
use crate::fleet::{Fleets, StreamKind};
use crate::replicas::{
    Effect, NodeKey, PlanKey, Proposal, Replicas, StoreInput, StoredPlan, Timing, Write,
};

use agreed::{AgreedPlans, PROPOSAL_TIMEOUT};
use capacity::Capacities;
pub(crate) use gate::Gate;
pub use gate::Withheld;
pub use own_plans::OwnPlan;
pub(crate) use plans::PlanTable;
use plans::Proposed;

/// Time beyond one load reporting interval after which the start is over. Envoy retries a broken
/// load reporting stream after 5 s; its first report then covers up to 5 s, during which the demand
/// of its fleet counts as incomplete; plus one second for everything else.
const START_MARGIN: Duration = Duration::from_secs(11);

/// The planner, and what replicas share.
#[derive(Debug)]
pub(crate) struct Demand {
    config: Arc<ControlConfig>,
    planner: Planner,
    plans: PlanTable,
    /// What the store has of plans.
    agreed: AgreedPlans,
    capacities: Capacities,
    /// `None` without a store.
    replicas: Option<Replicas>,
    starting_until: Option<Instant>,
    /// What follows from inputs of replicas, in order.
    effects: VecDeque<Effect>,
    /// Which zones spilled before the agreed plans among the effects.
    spilling: BTreeMap<PlanScope, Vec<SharedSpilling>>,
    /// Fleets whose plans in force changed.
    changed: BTreeSet<Arc<str>>,
    /// Services whose plan of their own sends requests elsewhere.
    changed_services: BTreeSet<Arc<str>>,
    events: EventQueue,
}

/// A node of another replica whose membership changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SharedMember {
    Joined(Arc<NodeInfo>),
    /// It is this replica's again, perhaps without a stream.
    Owned(NodeKey),
    Left(NodeKey),
}

/// What is left to do when the effects of an input of the store have been applied.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct StoreChange {
    /// Scopes of the plans that the store had when it was read.
    stored: Vec<PlanScope>,
    connected: Option<ControlEvent>,
    lost: Option<ControlEvent>,
    is_first_read: bool,
}

impl Demand {
    pub(crate) fn new(config: &Arc<ControlConfig>, now: Instant) -> Self {
        let start = config.reporting.load_reporting_interval + START_MARGIN;
        let mut new = Self {
            config: Arc::clone(config),
            planner: Planner::new(config.reporting.planner.clone(), now),
            plans: PlanTable::default(),
            agreed: AgreedPlans::default(),
            capacities: Capacities::default(),
            replicas: None,
            starting_until: Some(now.saturating_add(start)),
            effects: VecDeque::new(),
            spilling: BTreeMap::new(),
            changed: BTreeSet::new(),
            changed_services: BTreeSet::new(),
            events: EventQueue::default(),
        };
        new.capacities.handle_services(config, None, now);
        new.set_heartbeat(now);
        new
    }

    /// Shares demand with other replicas. `agreed` is the hash of the configuration.
    pub(crate) fn set_replica(&mut self, replica: Arc<str>, instance: u64, agreed: u64) {
        self.agreed = AgreedPlans::new(instance, agreed);
        self.replicas = Some(Replicas::new(replica, instance, timing(&self.config)));
        // It starts when the store has been read.
        self.starting_until = None;
    }

    /// Takes services into account whose endpoints changed, and nothing else.
    pub(crate) fn handle_endpoints(&mut self, config: &Arc<ControlConfig>, agreed: u64) {
        self.config = Arc::clone(config);
        let timing = timing(config);
        if let Some(replicas) = &mut self.replicas {
            replicas.set_timing(timing);
        }
        self.agreed.set_configuration(agreed);
    }

    /// Takes changed settings into account.
    pub(crate) fn handle_settings(
        &mut self,
        config: &Arc<ControlConfig>,
        agreed: u64,
        now: Instant,
    ) {
        self.handle_endpoints(config, agreed);
        self.set_heartbeat(now);
    }

    /// Plans services again whose hosts or settings changed, by default all that have demand.
    pub(crate) fn handle_services(&mut self, names: Option<&BTreeSet<Arc<str>>>, now: Instant) {
        self.capacities.handle_services(&self.config, names, now);
        match names {
            Some(names) => names.iter().for_each(|name| self.replan(name, now)),
            None => {
                let names = self.plans.upstream_clusters();
                names.iter().for_each(|name| self.replan(name, now));
            }
        }
    }

    /// Takes the load reporting interval of edited files into account.
    pub(crate) fn handle_interval(&mut self, interval: Duration, now: Instant) {
        // `ControlConfig` was validated with the same range, so this cannot fail.
        let set = self.planner.set_default_report_interval(interval, now);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// Sets the zones whose demand counts; `None` for all.
    pub(crate) fn handle_zones(&mut self, zones: Option<BTreeSet<Locality>>) {
        self.planner.set_zones(zones);
    }

    /// Handles a stream of a node that was opened. Returns whether the node was another replica's
    /// and is this one's from now on.
    pub(crate) fn handle_open(&mut self, node: &NodeInfo, kind: StreamKind, now: Instant) -> bool {
        let replicas = self.replicas.as_mut();
        replicas.is_some_and(|replicas| replicas.handle_open(node, kind, now))
    }

    /// Handles a stream of a node that was closed, perhaps the last of its kind.
    pub(crate) fn handle_close(
        &mut self,
        node: &Node,
        kind: StreamKind,
        is_last: bool,
        now: Instant,
    ) {
        if let Some(replicas) = &mut self.replicas {
            // The node may be moving to another replica: it counts for a while.
            replicas.handle_close(&NodeKey::of(node), kind, now);
        } else if is_last && kind == StreamKind::Lrs {
            self.planner.handle_disconnect(&node.id, &node.cluster, now);
        }
    }

    /// Handles that a node has left its fleet.
    pub(crate) fn handle_left(&mut self, node: &NodeKey) {
        self.capacities.handle_left(node);
        if let Some(replicas) = &mut self.replicas {
            replicas.handle_left(node);
        }
    }

    /// Handles that there is no room for a node of another replica.
    pub(crate) fn handle_refused(&mut self, node: &NodeKey) {
        if let Some(replicas) = &mut self.replicas {
            replicas.forget(node);
        }
    }

    /// Takes the part of a load report that [`Self::counted`] returned.
    pub(crate) fn handle_report(
        &mut self,
        node: &NodeInfo,
        counted: &[ClusterStats],
        now: Instant,
    ) {
        if let Some(replicas) = &mut self.replicas
            && !counted.is_empty()
            && replicas.handle_report(node, counted, &mut self.effects, now)
        {
            let Node { id, cluster, .. } = &node.node;
            self.events.push(ControlEvent::WriteDelayed {
                fleet: Arc::clone(cluster),
                node: Arc::clone(id),
            });
        }
        self.capacities.handle_report(&node.node, counted, now);
        // Until the store has been read, local reports cover only part of the fleet; adding the
        // rest later would be a step change, which smoothing follows slowly. All count from then
        // on.
        if !self.gate().is_store_unread() {
            self.planner.handle_load_reports(&node.node, counted, now);
        }
    }

    /// Takes what a load report says of hosts, after [`Self::handle_report`].
    pub(crate) fn handle_host_stats(&mut self, node: &NodeInfo, stats: &[ClusterHostStats]) {
        self.capacities.handle_host_stats(&node.node, stats);
    }

    /// Handles the proxies of a fleet whose membership changed.
    pub(crate) fn handle_hosts(&mut self, fleet: &Arc<str>, counts: HostSetCounts, now: Instant) {
        self.planner.handle_fleet_hosts(fleet, counts, now);
        self.changed.insert(Arc::clone(fleet));
    }

    /// Handles a change in the store, or of the connection to it. When [`Self::poll_member`] has
    /// been drained, call [`Self::finish_store`].
    pub(crate) fn handle_store(&mut self, input: StoreInput, now: Instant) -> StoreChange {
        let Some(replicas) = &mut self.replicas else {
            return StoreChange::default();
        };
        let (was_connected, was_synced) = (replicas.is_connected(), replicas.is_synced());
        let lost = match &input {
            StoreInput::Disconnected(reason) if was_connected => Some(ControlEvent::StoreLost {
                reason: reason.clone(),
            }),
            _ => None,
        };
        let (stored, plans) = match &input {
            StoreInput::Snapshot(snapshot) => {
                let scopes = snapshot.plans.iter().map(plan_scope).collect();
                (scopes, &snapshot.plans[..])
            }
            StoreInput::PlanPut(plan) => (Vec::new(), std::slice::from_ref(plan)),
            _ => (Vec::new(), &[][..]),
        };
        self.spilling = plans.iter().filter_map(spilling).collect();
        let (plans, effects) = (&mut self.plans, &mut self.effects);
        match input {
            StoreInput::Snapshot(mut snapshot) => {
                let stored = std::mem::take(&mut snapshot.plans);
                effects.extend(replicas.handle_store(StoreInput::Snapshot(snapshot), now));
                // After the load reports, which planners need to have in common.
                self.agreed.handle_snapshot(stored, plans, effects, now);
            }
            StoreInput::PlanPut(stored) => self.agreed.handle_put(stored, plans, effects, now),
            StoreInput::PlanDeleted(key) => self.agreed.handle_deleted(&key),
            StoreInput::PlanTooLarge { key, bytes } => {
                let refused = plans.take_proposed(&key.scope).map(Proposed::newest);
                effects.extend(refused.map(|plan| self.agreed.deliver_alone(plan)));
                let scope = key.scope;
                self.events
                    .push(ControlEvent::PlanTooLarge { scope, bytes });
            }
            input => {
                if matches!(input, StoreInput::Disconnected(_)) {
                    self.agreed.handle_disconnected();
                    for plan in plans.take_all_proposed().into_iter().map(Proposed::newest) {
                        effects.push_back(self.agreed.deliver_alone(plan));
                    }
                }
                effects.extend(replicas.handle_store(input, now));
            }
        }
        let (nodes, _) = replicas.counts();
        let is_connected = replicas.is_connected();
        StoreChange {
            stored,
            connected: (is_connected && !was_connected)
                .then_some(ControlEvent::StoreConnected { nodes }),
            lost,
            is_first_read: is_connected && !was_synced,
        }
    }

    /// Ends the handling of an input of the store.
    pub(crate) fn finish_store(&mut self, change: StoreChange, fleets: &Fleets, now: Instant) {
        // The demand of these plans has ended while the store was away.
        let ended = change
            .stored
            .iter()
            .filter(|scope| self.planner.plan(scope).is_none());
        ended.for_each(|scope| self.agreed.forget(scope));
        for event in [change.connected, change.lost].into_iter().flatten() {
            self.events.push(event);
        }
        if change.is_first_read {
            let start = self.config.reporting.load_reporting_interval + START_MARGIN;
            self.starting_until = Some(now.saturating_add(start));
            for plan in self.plans.take_held() {
                self.handle_plan(plan, fleets, now);
            }
        }
    }

    /// Lets replicas repeat reports and deliver plans that are due. Called before the planner's
    /// timers, so that the planner does not forget reports that are repeated.
    pub(crate) fn handle_replicas_timeout(&mut self, now: Instant) {
        while let Some(proposed) = self.plans.take_overdue(now) {
            let effect = self.agreed.deliver_alone(proposed.newest());
            self.effects.push_back(effect);
        }
        if let Some(replicas) = &mut self.replicas {
            self.effects.extend(replicas.handle_timeout(now));
        }
    }

    /// Handles timers of the planner.
    pub(crate) fn handle_planner_timeout(&mut self, now: Instant) {
        self.planner.handle_timeout(now);
    }

    /// Ends the start if it is due. Returns whether it ended.
    pub(crate) fn handle_start_timeout(&mut self, now: Instant) -> bool {
        let is_due = self.starting_until.is_some_and(|until| until <= now);
        if is_due {
            self.starting_until = None;
            if let Some(replicas) = &mut self.replicas {
                replicas.clear_startup_fleets();
            }
        }
        is_due
    }

    /// Processes what the planner has made of the inputs.
    pub(crate) fn handle_due(&mut self, fleets: &Fleets, now: Instant) {
        if self.planner.poll_timeout().is_some_and(|due| due <= now) {
            self.planner.handle_timeout(now);
        }
        self.capacities.handle_timeout(now);
        while let Some(plan) = self.planner.poll_update() {
            self.handle_plan(plan, fleets, now);
        }
        while let Some(event) = self.planner.poll_event() {
            if let (Some(replicas), PlannerEvent::NodeLeft { fleet, node, .. }) =
                (&mut self.replicas, &event)
            {
                let (fleet, id) = (Arc::clone(fleet), Arc::clone(node));
                replicas.handle_stopped_reporting(&NodeKey { fleet, id });
            }
            self.events.push(ControlEvent::Planner(event));
        }
    }

    /// Forgets the plans of a fleet that is gone.
    pub(crate) fn handle_fleet_gone(&mut self, fleet: &str) {
        self.plans.forget(fleet);
    }

    /// Returns the next node of another replica that joins or leaves its fleet, and applies all
    /// effects before it. A node without room must be refused before the next call.
    pub(crate) fn poll_member(&mut self, fleets: &Fleets, now: Instant) -> Option<SharedMember> {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Join(node) => return Some(SharedMember::Joined(node)),
                Effect::Own(node) => return Some(SharedMember::Owned(node)),
                Effect::Leave(node) => return Some(SharedMember::Left(node)),
                // There is no room for the node.
                Effect::Report(info, _) if is_unknown(fleets, &info.node) => {}
                Effect::Report(info, stats) => {
                    let counted = self.counted(&info.node.cluster, &stats);
                    self.capacities.handle_report(&info.node, &counted, now);
                    self.planner.handle_load_reports(&info.node, &counted, now);
                }
                Effect::Silent(NodeKey { fleet, id }) => {
                    self.planner.handle_disconnect(&id, &fleet, now);
                }
                Effect::Duplicate(NodeKey { fleet, id }, replica) => {
                    self.events.push(ControlEvent::DuplicateNode {
                        fleet,
                        node: id,
                        replica,
                    });
                }
                Effect::Adopt(shared) => {
                    let plan = self.planner.adopt(&shared, now);
                    self.plans.drop_held(&plan.scope);
                    self.deliver(plan, now);
                }
                Effect::Deliver(plan) => self.deliver(plan, now),
            }
        }
        None
    }

    /// Returns the next fleet whose proxies or plans in force changed.
    pub(crate) fn poll_fleet(&mut self) -> Option<Arc<str>> {
        self.changed.pop_first()
    }

    /// Returns the next service whose requests go elsewhere at all fleets, not only at the one that
    /// reported.
    pub(crate) fn poll_service(&mut self) -> Option<Arc<str>> {
        self.changed_services.pop_first()
    }

    /// Returns the next service whose hosts can serve something else than was known.
    pub(crate) fn poll_learned(&mut self, now: Instant) -> Option<(Arc<str>, LearnedCapacity)> {
        self.capacities.poll_learned(now)
    }

    /// Returns what is known of the capacity of a service's hosts; `None` if it is not learned.
    pub(crate) fn capacity_of(&self, service: &str) -> Option<&CapacityLearner> {
        self.capacities.learner(service)
    }

    pub(crate) fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop()
    }

    /// Returns the next record to write to the store.
    pub(crate) fn poll_write(&mut self) -> Option<(NodeKey, Write)> {
        self.replicas.as_mut()?.poll_write()
    }

    /// Returns the next plan to propose to the store.
    pub(crate) fn poll_proposal(&mut self) -> Option<(PlanKey, Proposal)> {
        let (key, mut proposal) = self.agreed.poll_proposal(&mut self.plans)?;
        if let (Some(record), Some(cluster)) = (&mut proposal.record, &key.scope.upstream_cluster)
            && let Some(plan) = self.planner.plan(&key.scope)
        {
            record.spilling = self.plans.spilling(cluster, plan.observed_at);
        }
        Some((key, proposal))
    }

    /// Returns when the next timer is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.planner.poll_timeout(),
            self.capacities.poll_timeout(),
            self.replicas.as_ref().and_then(Replicas::poll_timeout),
            self.plans.next_due(),
            self.starting_until,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Whether the store is connected. Without a store, no node can be at another replica.
    pub(crate) fn is_connected(&self) -> bool {
        self.replicas.as_ref().is_none_or(Replicas::is_connected)
    }

    pub(crate) const fn planner(&self) -> &Planner {
        &self.planner
    }

    pub(crate) const fn plans(&self) -> &PlanTable {
        &self.plans
    }

    pub(crate) const fn replicas(&self) -> Option<&Replicas> {
        self.replicas.as_ref()
    }

    /// Returns what decides whether demand may be delivered.
    pub(crate) const fn gate(&self) -> Gate<'_> {
        Gate {
            starting_until: self.starting_until,
            replicas: self.replicas.as_ref(),
            planner: &self.planner,
            plans: &self.plans,
        }
    }

    pub(crate) const fn agreed(&self) -> &AgreedPlans {
        &self.agreed
    }

    #[cfg(test)]
    pub(crate) const fn starting_until(&self) -> Option<Instant> {
        self.starting_until
    }

    /// Delivers a plan, unless demand is still incomplete. Replicas agree on it first.
    fn handle_plan(&mut self, plan: Arc<Plan>, fleets: &Fleets, now: Instant) {
        match self.gate().may_propose(&plan, fleets, now) {
            Ok(()) => {}
            Err(Withheld::StoreUnread) => return self.plans.hold(plan),
            Err(_) => return self.events.push(ControlEvent::Planned(plan)),
        }
        if self.replicas.as_ref().is_some_and(Replicas::is_connected) {
            let due = now.saturating_add(PROPOSAL_TIMEOUT);
            self.plans.propose(plan, due);
        } else {
            // There is nobody to agree on it with.
            if self.replicas.is_some() {
                self.agreed.handle_alone(&plan);
            }
            self.deliver(plan, now);
        }
    }

    /// Makes a plan the one that outputs are built from.
    fn deliver(&mut self, plan: Arc<Plan>, now: Instant) {
        self.events.push(ControlEvent::Planned(Arc::clone(&plan)));
        self.changed.insert(Arc::clone(&plan.scope.fleet));
        if self.replicas.is_some() && !plan.has_data() {
            self.agreed.forget(&plan.scope);
        }
        let cluster = plan.scope.upstream_cluster.clone();
        let spilling = self.spilling.remove(&plan.scope);
        let is_new = self.plans.deliver(plan, now);
        if let Some(cluster) = cluster.filter(|_| is_new) {
            if let Some(spilling) = spilling {
                self.plans.adopt(&cluster, &spilling, now);
            }
            self.replan(&cluster, now);
        }
    }

    /// Makes the plan that a service has of its own again.
    fn replan(&mut self, name: &Arc<str>, now: Instant) {
        match self.config.services.get(name) {
            Some(service) if self.plans.replan(service, now) => {
                self.changed_services.insert(Arc::clone(name));
            }
            Some(_) => {}
            None => self.plans.forget_own(name),
        }
    }

    fn set_heartbeat(&mut self, now: Instant) {
        let written = self.config.reporting.planner.heartbeat();
        let (heartbeat, shortened) = self.config.heartbeat();
        let before = self.planner.confirmation();
        // `ControlConfig` was validated with the same range, so this cannot fail.
        let set = self.planner.set_heartbeat(written, now);
        debug_assert!(set.is_ok(), "{set:?}");
        // Between the heartbeats as written, demand is confirmed without small moves: a service
        // with a short threshold does not change the demand of others.
        self.planner
            .set_confirmation(shortened.map(|_| heartbeat), now);
        if let Some((service, staleness_threshold)) = shortened
            && before != heartbeat
        {
            self.events.push(ControlEvent::HeartbeatShortened {
                cluster: Arc::clone(service.name()),
                staleness_threshold,
                written,
                heartbeat,
                is_written: self.config.reporting.heartbeat_error.is_some(),
            });
        }
    }
}

fn is_unknown(fleets: &Fleets, node: &Node) -> bool {
    fleets.member(&node.cluster, &node.id).is_none()
}

fn plan_scope(stored: &StoredPlan) -> PlanScope {
    stored.key.scope.clone()
}

/// Returns which zones spilled before a plan that another replica may have proposed.
fn spilling(stored: &StoredPlan) -> Option<(PlanScope, Vec<SharedSpilling>)> {
    Some((plan_scope(stored), stored.record.spilling.clone()?))
}

fn timing(config: &ControlConfig) -> Timing {
    let store = config.store.as_ref();
    Timing {
        interval: config.reporting.load_reporting_interval,
        missed_intervals: config.reporting.planner.missed_intervals(),
        lease_ttl: store.map_or(crate::config::DEFAULT_LEASE_TTL, |store| store.lease_ttl),
        leave_after: config.fleets.leave_after,
    }
}

#[cfg(test)]
mod tests;
