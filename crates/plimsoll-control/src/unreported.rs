//! [`Unreported`]: nodes whose load reports omit services that they subscribe to.
//!
//! The demand of these nodes is unknown, and nothing else would show it: discovery works, the load
//! reporting stream is open, reports arrive. A service counts as unreported by a node that for
//! three reporting intervals has been subscribed to the service's assignment and has had a load
//! reporting stream on which no report named the service.
//!
//! Envoy and Plimsoll data planes report idle clusters too, so a listed one does not report at all.
//! A gRPC client subscribes when a channel is first used, and some (grpc-js, grpc-go) omit clusters
//! without requests: a listed one either does not report, or has not sent a request to that service
//! since its reporting stream was opened. A client that reported once and became idle is not
//! listed. With a relay, only clusters whose assignment has the name of the cluster are checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::time::Instant;

use crate::fleet::Member;
use crate::server::{StreamRecord, StreamRecords};
use crate::state::State;

/// Number of reporting intervals after which a service counts as unreported: the default of
/// `demand.missed_intervals`, after which a reporter's demand is dropped.
const INTERVALS: u32 = 3;

type NodeKey = (Arc<str>, Arc<str>);

/// Assignments that each node subscribes to, with the time of the first subscription.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    nodes: BTreeMap<NodeKey, BTreeMap<Arc<str>, Instant>>,
}

/// Services that nodes subscribe to but do not name in load reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreported {
    nodes: BTreeMap<NodeKey, Vec<Arc<str>>>,
}

impl Subscriptions {
    /// Collects the subscriptions of all open discovery streams by node.
    pub fn of(records: &StreamRecords) -> Self {
        let mut all = Self::default();
        records.for_each(|record| all.add(record));
        all
    }

    /// Collects the subscriptions of some streams by node.
    pub(crate) fn of_streams(records: &[StreamRecord]) -> Self {
        let mut all = Self::default();
        records.iter().for_each(|record| all.add(record));
        all
    }

    fn add(&mut self, record: &StreamRecord) {
        let node = &record.node.node;
        let key = (Arc::clone(&node.cluster), Arc::clone(&node.id));
        let own = self.nodes.entry(key).or_default();
        for (name, since) in &record.assignments {
            let first = own.entry(Arc::clone(name)).or_insert(*since);
            *first = (*first).min(*since);
        }
    }
}

impl Unreported {
    /// Compares the subscriptions of nodes with the services in their load reports.
    pub fn new(state: &State, subscriptions: &Subscriptions, now: Instant) -> Self {
        let config = state.config();
        let grace = config
            .reporting
            .load_reporting_interval
            .saturating_mul(INTERVALS);
        let mut all = Self::default();
        for (key, subscribed) in &subscriptions.nodes {
            let Some(member) = state.fleets().member(&key.0, &key.1) else {
                continue;
            };
            let is_due = |since: Instant| since.saturating_add(grace) <= now;
            let names: Vec<_> = subscribed
                .iter()
                .filter(|(name, since)| {
                    config.services.contains_key(*name)
                        && is_due(**since)
                        && member.omits(name, is_due)
                })
                .map(|(name, _)| Arc::clone(name))
                .collect();
            if !names.is_empty() {
                all.nodes.insert(key.clone(), names);
            }
        }
        all
    }

    /// Returns the services that a node's load reports omit, sorted by name.
    pub fn of(&self, fleet: &Arc<str>, id: &Arc<str>) -> &[Arc<str>] {
        let key = (Arc::clone(fleet), Arc::clone(id));
        self.nodes.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Iterates over fleet, id and unreported services of each node, sorted by fleet and id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>, &[Arc<str>])> {
        let nodes = self.nodes.iter();
        nodes.map(|((fleet, id), names)| (fleet, id, names.as_slice()))
    }
}

impl Member {
    fn omits(&self, service: &str, is_due: impl Fn(Instant) -> bool) -> bool {
        self.lrs_since.is_some_and(is_due) && !self.reported.contains(service)
    }
}

#[cfg(test)]
mod tests;
