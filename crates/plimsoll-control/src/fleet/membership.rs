//! [`Membership`]: who is in which fleet, a state machine without IO. The owner of fleets, their
//! limits, checks of identities, and suspects.
//!
//! The state passes in streams and the nodes of other replicas, and drains `poll_left`,
//! `poll_due` and `poll_event`. Changes of membership are batched: every batch is an update for all
//! nodes of the fleet, and a thousand proxies that start one by one must not cause a thousand
//! updates for each of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;

use super::node_checks::WatchedIds;
use super::{
    FleetLimits, Fleets, MemberKey, OpenRefusal, Opened, Peer, StreamKind, Suspects, Suspicion,
};
use crate::events::{ControlEvent, EventQueue};
use crate::replicas::MOVE_TIME;

const MEMBERSHIP_DELAY: Duration = Duration::from_secs(1);
/// In larger fleets than this one, batches wait a millisecond more for each node: otherwise each
/// node that connects would cost as much as there are nodes, and a fleet that connects at once
/// would take minutes.
const SMALL_FLEET: usize = 1000;
const MAX_MEMBERSHIP_DELAY: Duration = Duration::from_secs(10);

/// Settings of fleets that a configuration has.
#[derive(Clone, Debug)]
pub(crate) struct FleetSettings {
    pub(crate) limits: FleetLimits,
    /// How long a node without a stream stays in its fleet.
    pub(crate) leave_after: Duration,
    /// Zones whose nodes count; `None` if all do.
    pub(crate) counted: Option<BTreeSet<Locality>>,
    /// All zones that are known, for nodes in another one.
    pub(crate) known: BTreeSet<Locality>,
}

/// The nodes of all fleets, and what is wrong with some.
#[derive(Debug)]
pub(crate) struct Membership {
    fleets: Fleets,
    pub(super) suspects: Suspects,
    pub(super) watched_ids: WatchedIds,
    settings: FleetSettings,
    /// While the store is away, nodes may have moved to other replicas without this one knowing.
    is_store_connected: bool,
    /// Fleets whose membership has changed, with the time to publish the change.
    due: BTreeMap<Arc<str>, Instant>,
    left: VecDeque<MemberKey>,
    events: EventQueue,
}

impl Membership {
    pub(crate) fn new(settings: FleetSettings) -> Self {
        let mut fleets = Fleets::default();
        fleets.set_limits(settings.limits);
        fleets.set_zones(settings.counted.clone());
        Self {
            fleets,
            suspects: Suspects::default(),
            watched_ids: WatchedIds::new(),
            settings,
            is_store_connected: true,
            due: BTreeMap::new(),
            left: VecDeque::new(),
            events: EventQueue::default(),
        }
    }

    /// Applies limits and zones. The zones that count may have changed, so that all fleets are due.
    pub(crate) fn handle_settings(&mut self, settings: FleetSettings, now: Instant) {
        self.fleets.set_limits(settings.limits);
        self.fleets.set_zones(settings.counted.clone());
        self.settings = settings;
        let names = self.fleets.iter().map(|(name, _)| Arc::clone(name));
        self.due.extend(names.map(|name| (name, now)));
    }

    /// Registers a stream of a node that `peer` opened, or says why it is refused.
    pub(crate) fn handle_open(
        &mut self,
        node: &NodeInfo,
        kind: StreamKind,
        peer: &Peer,
        now: Instant,
    ) -> Result<(), OpenRefusal> {
        match self.fleets.open(node, kind, peer, now) {
            Ok(opened) => {
                self.check_node(node, now);
                self.entered(&node.node.cluster, opened, now);
                Ok(())
            }
            Err(refusal) => {
                self.refused(node, refusal.clone(), now);
                Err(refusal)
            }
        }
    }

    /// Unregisters a stream of a node. Returns whether it was the last one of its kind.
    pub(crate) fn handle_close(&mut self, node: &Node, kind: StreamKind, now: Instant) -> bool {
        self.fleets.close(&node.cluster, &node.id, kind, now)
    }

    /// Adds a node of another replica, or says why there is no room for it.
    pub(crate) fn handle_shared(
        &mut self,
        node: &NodeInfo,
        now: Instant,
    ) -> Result<(), OpenRefusal> {
        match self.fleets.share(node, now) {
            Ok(opened) => {
                self.entered(&node.node.cluster, opened, now);
                Ok(())
            }
            Err(refusal) => {
                self.refused(node, refusal.clone(), now);
                Err(refusal)
            }
        }
    }

    /// No other replica serves the node any more. Without a stream to this one it leaves: at once
    /// if `gone`, else like a node whose last stream has closed.
    pub(crate) fn handle_unshared(&mut self, (fleet, id): &MemberKey, gone: bool, now: Instant) {
        if self.fleets.remove_shared(fleet, id, gone, now) {
            self.changed(fleet, self.next_batch(fleet, now));
        }
    }

    /// Records the services that a load report of a node has named.
    pub(crate) fn handle_report(&mut self, node: &Node, stats: &[ClusterStats]) {
        for stats in stats {
            self.fleets.reported(node, &stats.cluster_name);
        }
    }

    /// The store of the replicas is connected, or not. When it is again, nodes without a stream
    /// start over to wait until they leave.
    pub(crate) fn handle_store_connected(&mut self, is_connected: bool, now: Instant) {
        if is_connected && !self.is_store_connected {
            self.fleets.restart_leaving(now);
        }
        self.is_store_connected = is_connected;
    }

    /// Notes what an event of another owner says against a node.
    pub(crate) fn handle_event(&mut self, event: &ControlEvent, now: Instant) {
        self.suspects.handle_event(event, now);
    }

    /// Removes nodes that have been disconnected for too long, and checks ids again.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let left = self.fleets.expire(self.leave_after(), now);
        self.leave(left, now);
        self.check_shared_ids(now);
    }

    /// Returns how long a node without a stream stays. While the store is away it may have moved to
    /// another replica: it stays longer, but not forever.
    const fn leave_after(&self) -> Duration {
        let written = self.settings.leave_after;
        if self.is_store_connected {
            written
        } else {
            written.saturating_mul(2).saturating_add(MOVE_TIME)
        }
    }

    /// Returns the next node that has left its fleet because this replica removed it.
    pub(crate) fn poll_left(&mut self) -> Option<MemberKey> {
        self.left.pop_front()
    }

    /// Returns the next fleet whose change of membership is to be published, with its proxies.
    pub(crate) fn poll_due(&mut self, now: Instant) -> Option<(Arc<str>, HostSetCounts)> {
        let due = self.due.iter().find(|(_, due)| **due <= now);
        let fleet = due.map(|(fleet, _)| Arc::clone(fleet))?;
        self.due.remove(&fleet);
        let counts = self.fleets.counts(&fleet);
        Some((fleet, counts))
    }

    pub(crate) fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop()
    }

    /// Returns when to call [`Self::handle_timeout`] and [`Self::poll_due`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.fleets.deadline(self.leave_after()),
            self.due.values().min().copied(),
            self.watched_ids.values().min().copied(),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) const fn fleets(&self) -> &Fleets {
        &self.fleets
    }

    pub(crate) const fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Returns the known locality that a node in another one probably means.
    pub(crate) fn nearest_locality(&self, locality: &Locality) -> Option<Locality> {
        locality.nearest(self.settings.known.iter()).cloned()
    }

    #[cfg(test)]
    pub(crate) const fn due(&self) -> &BTreeMap<Arc<str>, Instant> {
        &self.due
    }

    #[cfg(test)]
    pub(crate) fn watched(&self) -> usize {
        self.watched_ids.len()
    }

    /// Reports what is wrong with a node, unless that has been reported a short time ago.
    pub(super) fn report(
        &mut self,
        kind: Suspicion,
        node: &MemberKey,
        event: ControlEvent,
        now: Instant,
    ) {
        let is_new = !self.suspects.is_recent(kind, node, now);
        self.suspects.handle_event(&event, now);
        if is_new {
            self.events.push(event);
        }
    }

    fn entered(&mut self, fleet: &Arc<str>, opened: Opened, now: Instant) {
        let Opened {
            changed,
            new_zone,
            left,
        } = opened;
        self.leave(left, now);
        if changed {
            let later = self.next_batch(fleet, now);
            // Envoy does not route by zone if its own zone is missing in its fleet's assignment.
            self.changed(fleet, if new_zone { now } else { later });
        }
    }

    fn refused(&mut self, node: &NodeInfo, refusal: OpenRefusal, now: Instant) {
        let event = ControlEvent::StreamRefused {
            fleet: Arc::clone(&node.node.cluster),
            node: Arc::clone(&node.node.id),
            refusal,
        };
        self.suspects.handle_event(&event, now);
        self.events.push(event);
    }

    fn leave(&mut self, left: Vec<MemberKey>, now: Instant) {
        for node in left {
            self.changed(&node.0, self.next_batch(&node.0, now));
            self.left.push_back(node);
        }
    }

    /// Returns when a change of membership is published.
    fn next_batch(&self, fleet: &str, now: Instant) -> Instant {
        let more = self.fleets.node_count(fleet).saturating_sub(SMALL_FLEET);
        let delay = MEMBERSHIP_DELAY.saturating_add(Duration::from_millis(more as u64));
        now.saturating_add(delay.min(MAX_MEMBERSHIP_DELAY))
    }

    fn changed(&mut self, fleet: &Arc<str>, due: Instant) {
        let nodes = self.fleets.node_count(fleet);
        self.events.push(ControlEvent::FleetChanged {
            fleet: Arc::clone(fleet),
            nodes,
        });
        let deadline = self.due.entry(Arc::clone(fleet)).or_insert(due);
        *deadline = due.min(*deadline);
    }
}

#[cfg(test)]
mod tests;
