//! [`DelayedWrites`]: load reports of nodes that report too often. A node's record is written once
//! per half reporting interval at most, with the newest report: otherwise one client would fill the
//! history of the store, whose quota all of its users share.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::NodeKey;
use super::table::{Owner, SharedNode, Table};

/// Nodes whose newest report waits to be written, by time.
#[derive(Debug, Default)]
pub(super) struct DelayedWrites(BTreeSet<(Instant, NodeKey)>);

impl DelayedWrites {
    /// Returns whether the report of a node must wait.
    pub(super) fn delay(
        &mut self,
        key: &NodeKey,
        node: &mut SharedNode,
        pause: Duration,
        now: Instant,
    ) -> bool {
        if let Some(at) = node.writable_at.filter(|at| *at > now) {
            self.0.insert((at, key.clone()));
            return true;
        }
        node.writable_at = Some(now.saturating_add(pause));
        false
    }

    /// Returns the nodes that may be written again.
    pub(super) fn handle_timeout(
        &mut self,
        table: &mut Table,
        pause: Duration,
        now: Instant,
    ) -> Vec<NodeKey> {
        let mut ready = BTreeSet::new();
        while self.poll_timeout().is_some_and(|at| at <= now) {
            ready.extend(self.0.pop_first());
        }
        Self::written(ready, table, pause, now)
    }

    /// Returns all nodes that wait: the store has just been read, and replicas rely on it.
    pub(super) fn handle_snapshot(
        &mut self,
        table: &mut Table,
        pause: Duration,
        now: Instant,
    ) -> Vec<NodeKey> {
        Self::written(std::mem::take(&mut self.0), table, pause, now)
    }

    fn written(
        ready: BTreeSet<(Instant, NodeKey)>,
        table: &mut Table,
        pause: Duration,
        now: Instant,
    ) -> Vec<NodeKey> {
        let mut due = Vec::new();
        for (_, key) in ready {
            // It may have left, or reports to another replica.
            if let Some(mut node) = table.take(&key) {
                let is_own = node.owner == Owner::Us;
                node.writable_at = Some(now.saturating_add(pause));
                table.insert(key.clone(), node);
                if is_own {
                    due.push(key);
                }
            }
        }
        due
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }
}
