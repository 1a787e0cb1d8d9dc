//! [`Replicas`]: the nodes that all replicas of the control plane serve, a state machine without
//! IO.
//!
//! There is one record per node in the store, so a node counts once by construction, whichever
//! replica it reports to; the newest record wins. A replica owns the records of the nodes that
//! report to it, and writes them under its lease. As long as the record of another replica exists,
//! the node counts with the load report in it: the owner replaces it or deletes it, or its lease
//! expires (decision 0034).
//!
//! [`State`](crate::state::State) passes streams and load reports of its own nodes and the changes
//! in the store, and applies the effects. `store` reads and writes the store.

mod delayed;
mod messages;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::{NodeRecord, ReplicaRecord};

use crate::fleet::StreamKind;
use delayed::DelayedWrites;
pub(crate) use messages::Effect;
pub use messages::{
    OrderInput, PlanKey, Proposal, StoreInput, StoreSnapshot, StoredNode, StoredPlan, Write,
};
use table::{Owner, SharedNode, Table};

/// How long a node counts after its load reporting stream to this replica closed: it may be moving
/// to another one, and Envoy retries a broken load reporting stream after 5 s.
pub(crate) const MOVE_TIME: Duration = Duration::from_secs(7);
/// How long nodes of other replicas count by their last record while the store is away. Without an
/// end, every proxy that ended in a long outage would count beside its successor. Before it, the
/// shares of zones are better known from old records than from this replica's own proxies, which
/// may all be in one zone.
const MAX_OUTAGE: Duration = Duration::from_secs(1800);
/// Reports of another replica, about a node that reports to this one, that make it a duplicate. A
/// node that moves causes one or two, until its old stream is closed.
const DUPLICATE_REPORTS: u32 = 3;

/// Fleet and id of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    pub fleet: Arc<str>,
    pub id: Arc<str>,
}

impl NodeKey {
    /// Returns the key of a node.
    pub fn of(node: &Node) -> Self {
        Self {
            fleet: Arc::clone(&node.cluster),
            id: Arc::clone(&node.id),
        }
    }
}

/// Times that depend on the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Interval at which nodes are asked to report.
    pub(crate) interval: Duration,
    /// Intervals after which the planner forgets a report.
    pub(crate) missed_intervals: u32,
    /// How long a record that is missing in the store counts after the store was away.
    pub(crate) lease_ttl: Duration,
    /// How long a node without a stream stays in its fleet.
    pub(crate) leave_after: Duration,
}

/// The nodes of all replicas.
#[derive(Debug)]
pub struct Replicas {
    replica: Arc<str>,
    instance: u64,
    timing: Timing,
    table: Table,
    writes: BTreeSet<NodeKey>,
    delayed: DelayedWrites,
    connected: bool,
    synced: bool,
    /// Since when the store is away, if it was there before.
    away_since: Option<Instant>,
    /// Fleets whose demand was in the store when this replica started.
    known_fleets: BTreeSet<Arc<str>>,
    others: BTreeMap<Arc<str>, (ReplicaRecord, Instant)>,
}

impl Replicas {
    /// Creates the state of a replica that has not read the store yet.
    pub(crate) fn new(replica: Arc<str>, instance: u64, timing: Timing) -> Self {
        Self {
            replica,
            instance,
            timing,
            table: Table::default(),
            writes: BTreeSet::new(),
            delayed: DelayedWrites::default(),
            connected: false,
            synced: false,
            away_since: None,
            known_fleets: BTreeSet::new(),
            others: BTreeMap::new(),
        }
    }

    pub(crate) const fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Returns the name of this replica.
    pub const fn id(&self) -> &Arc<str> {
        &self.replica
    }

    /// Returns the id of this process, which is a new one after each start.
    pub const fn instance(&self) -> u64 {
        self.instance
    }

    /// Whether the store is connected.
    pub const fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether the store has been read since the start.
    pub const fn is_synced(&self) -> bool {
        self.synced
    }

    /// Whether the demand of a fleet was in the store when this replica started.
    pub(crate) fn had_demand_at_start(&self, fleet: &str) -> bool {
        self.known_fleets.contains(fleet)
    }

    /// Forgets which fleets were in the store at the start.
    pub(crate) fn clear_startup_fleets(&mut self) {
        self.known_fleets.clear();
    }

    /// Iterates over the replicas in the store, this one included, with the time of their last
    /// sign of life.
    pub fn all(&self) -> impl Iterator<Item = &(ReplicaRecord, Instant)> {
        self.others.values()
    }

    /// Returns the replica that serves a node; `None` if no replica does.
    pub fn owner(&self, fleet: &str, id: &str) -> Option<&Arc<str>> {
        let key = NodeKey {
            fleet: fleet.into(),
            id: id.into(),
        };
        self.table.get(&key).map(|node| match &node.owner {
            Owner::Us => &self.replica,
            Owner::Other(replica) => replica,
        })
    }

    /// Returns the number of nodes that all replicas serve.
    pub(crate) fn nodes(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of nodes that all replicas serve, and of those that this one owns.
    pub fn counts(&self) -> (usize, usize) {
        (self.table.len(), self.table.owned())
    }

    /// Handles a stream of a node that was opened. Returns whether the node was another replica's
    /// and is this one's from now on.
    pub(crate) fn handle_open(&mut self, info: &NodeInfo, kind: StreamKind, now: Instant) -> bool {
        let key = NodeKey::of(&info.node);
        let Some(mut node) = self.table.take(&key) else {
            let mut node = SharedNode::new(Arc::new(info.clone()), Owner::Us);
            node.open(kind);
            self.table.insert(key.clone(), node);
            self.writes.insert(key);
            return false;
        };
        node.open(kind);
        let mut taken_over = false;
        if kind == StreamKind::Lrs {
            // Taken over before its first report, so that the record does not expire with the lease
            // of a replica that is gone.
            node.contested = 0;
            node.waits_until = Some(now.saturating_add(self.first_report()));
            taken_over = node.owner != Owner::Us;
            if taken_over {
                node.owner = Owner::Us;
                node.info = Arc::new(info.clone());
                self.writes.insert(key.clone());
            }
            // Until its first report here, the node counts with the last one that is known.
            self.schedule(&mut node, now);
        }
        self.table.insert(key, node);
        taken_over
    }

    /// Handles a load report of a node that reports to this replica. Returns whether it is written
    /// later, because the node has reported a moment ago: it counts here at once.
    pub(crate) fn handle_report(
        &mut self,
        info: &NodeInfo,
        stats: &[ClusterStats],
        effects: &mut impl Extend<Effect>,
        now: Instant,
    ) -> bool {
        let key = NodeKey::of(&info.node);
        let mut node = self
            .table
            .take(&key)
            .unwrap_or_else(|| SharedNode::new(Arc::new(info.clone()), Owner::Us));
        if node.info.node != info.node {
            node.info = Arc::new(info.clone());
        }
        node.own(effects);
        node.stats = stats.into();
        node.reported_at = Some(now);
        node.waits_until = None;
        node.due = None;
        let is_delayed = self
            .delayed
            .delay(&key, &mut node, self.timing.interval / 2, now);
        self.table.insert(key.clone(), node);
        if !is_delayed {
            self.writes.insert(key);
        }
        is_delayed
    }

    /// Handles a stream of a node that was closed.
    pub(crate) fn handle_close(&mut self, key: &NodeKey, kind: StreamKind, now: Instant) {
        let Some(mut node) = self.table.take(key) else {
            return;
        };
        if node.close(kind) && kind == StreamKind::Lrs {
            node.reported_at = None;
            node.contested = 0;
            node.waits_until = Some(now.saturating_add(MOVE_TIME));
            self.schedule(&mut node, now);
        }
        self.table.insert(key.clone(), node);
    }

    /// Handles that a node does not count any more, because it was silent.
    pub(crate) fn handle_stopped_reporting(&mut self, key: &NodeKey) {
        if let Some(mut node) = self.table.take(key) {
            if node.owner == Owner::Us && !node.stats.is_empty() {
                node.stats = Arc::default();
                node.due = None;
                self.writes.insert(key.clone());
            }
            self.table.insert(key.clone(), node);
        }
    }

    /// Handles that a node without a stream to this replica has left its fleet.
    pub(crate) fn handle_left(&mut self, key: &NodeKey) {
        if let Some(node) = self.table.take(key) {
            if node.owner == Owner::Us {
                self.writes.insert(key.clone());
            } else {
                self.table.insert(key.clone(), node);
            }
        }
    }

    /// Forgets a node of another replica, for which there is no room.
    pub(crate) fn forget(&mut self, key: &NodeKey) {
        drop(self.table.take(key));
    }

    /// Handles a change in the store, or of the connection to it.
    pub(crate) fn handle_store(&mut self, input: StoreInput, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            StoreInput::Snapshot(StoreSnapshot {
                nodes,
                replicas,
                plans: _,
            }) => {
                self.reconcile(nodes, &mut effects, now);
                let half = self.timing.interval / 2;
                let waiting = self.delayed.handle_snapshot(&mut self.table, half, now);
                self.writes.extend(waiting);
                let named = |record: ReplicaRecord| (record.replica.as_str().into(), (record, now));
                self.others = replicas.into_iter().map(named).collect();
                self.connected = true;
                self.synced = true;
                self.away_since = None;
            }
            StoreInput::NodePut(stored) => self.put(stored, &mut effects, now),
            StoreInput::NodeDeleted(key) => self.deleted(&key, &mut effects),
            StoreInput::ReplicaPut(record) => {
                let name = Arc::from(record.replica.as_str());
                self.others.insert(name, (record, now));
            }
            StoreInput::ReplicaDeleted(name) => {
                self.others.remove(&name);
            }
            // `demand` agrees on plans.
            StoreInput::PlanPut(_)
            | StoreInput::PlanDeleted(_)
            | StoreInput::PlanTooLarge { .. } => {}
            // The owner of services has them.
            StoreInput::Order(_) => {}
            StoreInput::LeaseChanged => self.writes.extend(self.table.owned_keys()),
            StoreInput::Disconnected(_) => {
                self.connected = false;
                self.away_since.get_or_insert(now);
            }
        }
        effects
    }

    /// Repeats the load reports of nodes that count by their record, and drops records that are
    /// missing in the store.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        let half = self.timing.interval / 2;
        let due = self.delayed.handle_timeout(&mut self.table, half, now);
        self.writes.extend(due);
        while let Some((key, mut node)) = self.table.take_due(now) {
            node.due = None;
            let missing = node.missing_since;
            let is_lost = missing.is_some_and(|at| at.saturating_add(self.timing.lease_ttl) <= now);
            if self.connected && is_lost {
                effects.extend([Effect::Leave(key.clone()), Effect::Silent(key)]);
                continue;
            }
            if node.owner == Owner::Us && self.has_left(&node, now) {
                node.waits_until = None;
                effects.push(Effect::Silent(key.clone()));
            } else if node.owner != Owner::Us && self.is_outdated(now) {
                // Its record counts again when the store is back, even if it is the same one.
                node.stats = Arc::default();
                node.revision = 0;
                effects.push(Effect::Silent(key.clone()));
            } else if node.repeats() {
                effects.push(node.report());
                self.schedule(&mut node, now);
            }
            self.table.insert(key, node);
        }
        effects
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.table.next_due(), self.delayed.poll_timeout()];
        due.into_iter().flatten().min()
    }

    /// Returns the next record to write.
    pub fn poll_write(&mut self) -> Option<(NodeKey, Write)> {
        while let Some(key) = self.writes.pop_first() {
            let write = match self.table.get(&key) {
                None if self.connected => Write::Delete,
                None => Write::Forget,
                Some(node) if node.owner == Owner::Us => self.put_of(node),
                // Another replica has taken over since.
                Some(_) => continue,
            };
            return Some((key, write));
        }
        None
    }

    /// Whether a node of this replica has stopped counting. While the store is away it may have
    /// moved to another replica, if there is one: it gets as much longer as a node may be away.
    fn has_left(&self, node: &SharedNode, now: Instant) -> bool {
        let Some(until) = node.waits_until.filter(|until| *until <= now) else {
            return false;
        };
        let is_us = |name: &Arc<str>| *name == self.replica;
        let is_alone = !self.others.is_empty() && self.others.keys().all(is_us);
        self.connected || is_alone || until.saturating_add(self.timing.leave_after) <= now
    }

    /// Whether records of other replicas are too old to count.
    fn is_outdated(&self, now: Instant) -> bool {
        let away = self.away_since;
        away.is_some_and(|since| since.saturating_add(MAX_OUTAGE) <= now)
    }

    fn put_of(&self, node: &SharedNode) -> Write {
        let record = NodeRecord {
            replica: Arc::clone(&self.replica),
            instance: self.instance,
            node: NodeInfo::clone(&node.info),
            cluster_stats: node.stats.to_vec(),
        };
        if node.stats.is_empty() {
            Write::PutIfOwn(record)
        } else {
            Write::Put(record)
        }
    }

    fn reconcile(&mut self, nodes: Vec<StoredNode>, effects: &mut Vec<Effect>, now: Instant) {
        let mut seen = BTreeSet::new();
        for stored in nodes {
            if !self.synced && !stored.record.cluster_stats.is_empty() {
                let fleet = &stored.record.node.node.cluster;
                self.known_fleets.insert(Arc::clone(fleet));
            }
            seen.insert(NodeKey::of(&stored.record.node.node));
            self.put(stored, effects, now);
        }
        for key in self.table.keys() {
            let Some(mut node) = self.table.take(&key) else {
                continue;
            };
            if let Some(until) = node.waits_until {
                // The replica that the node moved to may need a moment, too, to find the store.
                node.waits_until = Some(until.max(now.saturating_add(MOVE_TIME)));
                self.schedule(&mut node, now);
            }
            if !self.synced && node.owner == Owner::Us && !node.stats.is_empty() {
                // Reported to this replica before it had read the store.
                effects.push(node.report());
            }
            if !seen.contains(&key) {
                if node.owner == Owner::Us || node.has_stream() {
                    node.own(effects);
                    self.writes.insert(key.clone());
                } else {
                    node.missing_since.get_or_insert(now);
                    self.schedule(&mut node, now);
                }
            }
            self.table.insert(key, node);
        }
    }

    fn put(&mut self, stored: StoredNode, effects: &mut Vec<Effect>, now: Instant) {
        let StoredNode { record, revision } = stored;
        let key = NodeKey::of(&record.node.node);
        let known = self.table.take(&key);
        if record.instance == self.instance {
            if let Some(mut node) = known {
                node.revision = revision;
                node.missing_since = None;
                if node.owner != Owner::Us {
                    self.retake(&mut node, record.cluster_stats, effects, now);
                }
                self.table.insert(key, node);
            } else {
                // Written by this process, which has dropped the node since.
                self.writes.insert(key);
            }
            return;
        }
        let is_new = known.is_none();
        let info = Arc::new(record.node);
        let other = Owner::Other(Arc::clone(&record.replica));
        let mut node = known.unwrap_or_else(|| SharedNode::new(Arc::clone(&info), other.clone()));
        node.missing_since = None;
        if !is_new && node.revision == revision {
            self.table.insert(key, node);
            return;
        }
        node.revision = revision;
        if self.reports_here(&node, now) {
            node.contested += 1;
            if node.contested == DUPLICATE_REPORTS {
                effects.push(Effect::Duplicate(key.clone(), record.replica));
            }
            self.table.insert(key, node);
            return;
        }
        let counted = !node.stats.is_empty();
        node.owner = other;
        node.stats = record.cluster_stats.into();
        node.waits_until = None;
        node.contested = 0;
        if !node.has_stream() {
            node.info = Arc::clone(&info);
        }
        effects.push(Effect::Join(info));
        if !node.stats.is_empty() {
            effects.push(node.report());
        } else if counted {
            effects.push(Effect::Silent(key.clone()));
        }
        self.schedule(&mut node, now);
        self.table.insert(key, node);
    }

    /// Makes a node this replica's own again: it has taken over from this one, and a write that was
    /// on its way then has replaced the record of the other. Otherwise each of the two would take
    /// the other for the owner, and the node would count for good.
    fn retake(
        &self,
        node: &mut SharedNode,
        stats: Vec<ClusterStats>,
        effects: &mut Vec<Effect>,
        now: Instant,
    ) {
        let key = NodeKey::of(&node.info.node);
        node.own(effects);
        let counted = !node.stats.is_empty();
        node.stats = stats.into();
        node.waits_until = Some(now.saturating_add(self.first_report()));
        if !node.stats.is_empty() {
            effects.push(node.report());
        } else if counted {
            effects.push(Effect::Silent(key));
        }
        self.schedule(node, now);
    }

    /// Returns how long a node counts by its record before its first report to this replica.
    fn first_report(&self) -> Duration {
        self.timing.interval.saturating_mul(3).max(MOVE_TIME)
    }

    fn deleted(&mut self, key: &NodeKey, effects: &mut Vec<Effect>) {
        let Some(mut node) = self.table.take(key) else {
            return;
        };
        if node.owner == Owner::Us || node.has_stream() {
            node.own(effects);
            self.table.insert(key.clone(), node);
            self.writes.insert(key.clone());
        } else {
            effects.extend([Effect::Leave(key.clone()), Effect::Silent(key.clone())]);
        }
    }

    /// Whether the newest reports of a node are those to this replica. A stream that is silent for
    /// longer than an interval may belong to a connection that is broken and not closed yet.
    fn reports_here(&self, node: &SharedNode, now: Instant) -> bool {
        let tolerance = self.base_interval(node).saturating_mul(3) / 2;
        node.reported_at
            .is_some_and(|at| now < at.saturating_add(tolerance))
    }

    fn base_interval(&self, node: &SharedNode) -> Duration {
        let intervals = node.stats.iter().map(|stats| stats.load_report_interval);
        let longest = self.timing.interval.saturating_mul(3);
        let base = intervals.max().unwrap_or(self.timing.interval);
        base.min(longest).max(Duration::from_millis(100))
    }

    /// Sets when the report of a node is repeated: later than the next one is due, but before the
    /// planner forgets this one.
    fn schedule(&self, node: &mut SharedNode, now: Instant) {
        let base = self.base_interval(node);
        let after = if self.timing.missed_intervals > 1 {
            base.saturating_mul(3) / 2
        } else {
            base.saturating_mul(9) / 10
        };
        node.due = Some(now.saturating_add(after));
    }
}

#[cfg(test)]
mod tests;
