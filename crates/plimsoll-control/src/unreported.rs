//! [`Unreported`]: nodes whose load reports leave out services that they subscribe to.
//!
//! Their demand is not known, and nothing else would show it: discovery works, the reporting stream
//! is open, reports arrive. A service is unreported by a node when, for three reporting intervals,
//! the node has subscribed to its assignment and had a reporting stream, and it has named the
//! service in none of the reports on that stream.
//!
//! Envoys and plimsoll data planes name idle clusters too, so one that is listed here does not
//! report. A gRPC client subscribes when a channel is first used, and some (grpc-js, grpc-go) leave
//! out clusters without requests: one that is listed here does not report either, or it has sent
//! that service no request since the stream opened. A client that reported once and fell idle is
//! not listed. Behind a relay, clusters are known whose assignment has the name of the cluster.
//!
//! Subscriptions come from the records of streams, reports from the state; the admin API, metrics
//! and the dashboard show the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::time::Instant;

use crate::fleet::Member;
use crate::server::Records;
use crate::state::State;

/// Reporting intervals that a node has to name what it subscribes to, as many as a reporter may
/// miss before it no longer counts.
const INTERVALS: u32 = 3;

/// Fleet and id of a node.
type NodeKey = (Arc<str>, Arc<str>);

/// The assignments that each node subscribes to, and since when.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    nodes: BTreeMap<NodeKey, BTreeMap<Arc<str>, Instant>>,
}

/// Services that nodes subscribe to and do not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreported {
    nodes: BTreeMap<NodeKey, Vec<Arc<str>>>,
}

impl Subscriptions {
    /// Those of all open streams.
    pub fn of(records: &Records) -> Self {
        let mut all = Self::default();
        records.for_each(|record| {
            let node = &record.node.node;
            let key = (Arc::clone(&node.cluster), Arc::clone(&node.id));
            let own = all.nodes.entry(key).or_default();
            for (name, since) in &record.assignments {
                let first = own.entry(Arc::clone(name)).or_insert(*since);
                *first = (*first).min(*since);
            }
        });
        all
    }
}

impl Unreported {
    /// As things are now.
    pub fn new(state: &State, subscriptions: &Subscriptions, now: Instant) -> Self {
        let config = state.config();
        let patience = config.load_reporting_interval.saturating_mul(INTERVALS);
        let mut all = Self::default();
        for (fleet, members) in state.fleets().iter() {
            for (id, member) in members {
                let key = (Arc::clone(fleet), Arc::clone(id));
                let Some(subscribed) = subscriptions.nodes.get(&key) else {
                    continue;
                };
                let is_due = |since: Instant| since.saturating_add(patience) <= now;
                let names = subscribed
                    .iter()
                    .filter(|(name, since)| {
                        config.services.contains_key(*name)
                            && is_due(**since)
                            && member.is_silent_about(name, is_due)
                    })
                    .map(|(name, _)| Arc::clone(name));
                let names: Vec<_> = names.collect();
                if !names.is_empty() {
                    all.nodes.insert(key, names);
                }
            }
        }
        all
    }

    /// What one node does not report, in order of name.
    pub fn of(&self, fleet: &Arc<str>, id: &Arc<str>) -> &[Arc<str>] {
        let key = (Arc::clone(fleet), Arc::clone(id));
        self.nodes.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Ids of the nodes and the services they do not report, in order of fleet and id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>, &[Arc<str>])> {
        let nodes = self.nodes.iter();
        nodes.map(|((fleet, id), names)| (fleet, id, names.as_slice()))
    }
}

impl Member {
    fn is_silent_about(&self, service: &str, is_due: impl Fn(Instant) -> bool) -> bool {
        self.lrs_since.is_some_and(is_due) && !self.reported.contains(service)
    }
}

#[cfg(test)]
mod tests;
