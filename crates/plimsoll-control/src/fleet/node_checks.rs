//! Checks of the identity of nodes: a locality that nothing else has, and an id that two proxies
//! share. Such nodes are served, but their demand is wrong or does not count, so that every one of
//! them becomes an event, a notice, a line in the log and a count.
//!
//! A proxy that reconnects may have its old stream for some seconds, so an id counts as shared only
//! if that lasts. gRPC clients open one stream for each of their targets: theirs are not checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;

use super::membership::Membership;
use super::{MemberKey, Suspicion};
use crate::delivery::NodeClass;
use crate::events::ControlEvent;

/// How long two streams of a kind are open before the id of their node counts as shared. Envoy
/// notices a lost connection to the control plane within 15 s.
const SHARED_AFTER: Duration = Duration::from_secs(20);
/// Most nodes whose streams are watched; ids come from the network.
const MAX_WATCHED: usize = 1000;

/// Fleet and id of nodes with more streams than expected, and when they are checked again.
pub(super) type WatchedIds = BTreeMap<MemberKey, Instant>;

impl Membership {
    /// Checks the node of a stream that was opened.
    pub(super) fn check_node(&mut self, info: &NodeInfo, now: Instant) {
        self.check_locality(info, now);
        let key = (Arc::clone(&info.node.cluster), Arc::clone(&info.node.id));
        if self.shared_streams(&key).is_some() && self.watched_ids.len() < MAX_WATCHED {
            let due = now.saturating_add(SHARED_AFTER);
            self.watched_ids.entry(key).or_insert(due);
        }
    }

    /// Reports ids that two proxies still share.
    pub(super) fn check_shared_ids(&mut self, now: Instant) {
        let due: Vec<_> = self
            .watched_ids
            .iter()
            .filter(|(_, due)| **due <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.watched_ids.remove(&key);
            let Some(streams) = self.shared_streams(&key) else {
                continue;
            };
            // The notice stays as long as the id is shared.
            self.watched_ids
                .insert(key.clone(), now.saturating_add(SHARED_AFTER));
            let event = ControlEvent::SharedId {
                fleet: Arc::clone(&key.0),
                node: Arc::clone(&key.1),
                streams,
            };
            self.report(Suspicion::SharedId, &key, event, now);
        }
    }

    fn check_locality(&mut self, info: &NodeInfo, now: Instant) {
        let node = &info.node;
        if self.fleets().counts_zone(&node.locality) && !node.locality.is_unset() {
            return;
        }
        let key = (Arc::clone(&node.cluster), Arc::clone(&node.id));
        let event = ControlEvent::UnknownLocality {
            fleet: Arc::clone(&key.0),
            node: Arc::clone(&key.1),
            nearest: self.nearest_locality(&node.locality),
            locality: node.locality.clone(),
        };
        self.report(Suspicion::UnknownLocality, &key, event, now);
    }

    /// Returns the number of streams of one kind of a node, if that is more than a proxy opens.
    fn shared_streams(&self, (fleet, id): &MemberKey) -> Option<u32> {
        let member = self.fleets().member(fleet, id)?;
        let streams = [
            member.ads_streams,
            member.lrs_streams,
            member.module_streams,
        ];
        let streams = streams.into_iter().max()?;
        (streams > 1 && NodeClass::of(&member.info) != NodeClass::Grpc).then_some(streams)
    }
}
