//! [`Table`]: nodes of all replicas by key, and those that are due for a repetition by time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::time::Instant;
use plimsoll_xds::node::NodeInfo;

use super::{Effect, NodeKey};
use crate::fleet::StreamKind;

/// Replica that owns the record of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Us,
    Other(Arc<str>),
}

#[derive(Debug)]
pub(super) struct SharedNode {
    pub(super) info: Arc<NodeInfo>,
    /// Latest load report; empty if the node does not report load.
    pub(super) stats: Arc<[ClusterStats]>,
    pub(super) owner: Owner,
    /// Revision of the record in the store that was seen last.
    pub(super) revision: i64,
    /// Streams to this replica: discovery, load reporting.
    streams: [u32; 3],
    /// Time of the latest load report to this replica, while the stream is open.
    pub(super) reported_at: Option<Instant>,
    /// Until when the node counts with its last report although its load reporting stream has
    /// closed, or has opened and carried none.
    pub(super) waits_until: Option<Instant>,
    /// Since when the record is missing in the store.
    pub(super) missing_since: Option<Instant>,
    /// Reports of another replica that contradict those to this one.
    pub(super) contested: u32,
    /// When the report is repeated.
    pub(super) due: Option<Instant>,
    /// From when on another report is written to the store.
    pub(super) writable_at: Option<Instant>,
}

impl SharedNode {
    pub(super) fn new(info: Arc<NodeInfo>, owner: Owner) -> Self {
        Self {
            info,
            stats: Arc::default(),
            owner,
            revision: 0,
            streams: [0; 3],
            reported_at: None,
            waits_until: None,
            missing_since: None,
            contested: 0,
            due: None,
            writable_at: None,
        }
    }

    /// Makes it a node of this replica. Fleets have to know: a node that another replica serves
    /// does not leave its fleet with its last stream here.
    pub(super) fn own(&mut self, effects: &mut impl Extend<Effect>) {
        if self.owner != Owner::Us {
            self.owner = Owner::Us;
            effects.extend([Effect::Own(NodeKey::of(&self.info.node))]);
        }
    }

    pub(super) const fn open(&mut self, kind: StreamKind) {
        self.streams[kind as usize] += 1;
    }

    /// Returns whether it was the last stream of this kind.
    pub(super) const fn close(&mut self, kind: StreamKind) -> bool {
        let streams = &mut self.streams[kind as usize];
        *streams = streams.saturating_sub(1);
        *streams == 0
    }

    pub(super) const fn has_stream(&self) -> bool {
        self.streams[0] + self.streams[1] + self.streams[2] > 0
    }

    /// Whether the node counts by its record: it has a report, and none to this replica.
    pub(super) fn repeats(&self) -> bool {
        !self.stats.is_empty() && (self.reported_at.is_none() || self.owner != Owner::Us)
    }

    pub(super) fn report(&self) -> Effect {
        Effect::Report(Arc::clone(&self.info), Arc::clone(&self.stats))
    }
}

/// Nodes by key. A node is taken out to change it, which keeps the index by time true.
#[derive(Debug, Default)]
pub(super) struct Table {
    nodes: BTreeMap<NodeKey, SharedNode>,
    by_due: BTreeSet<(Instant, NodeKey)>,
}

impl Table {
    pub(super) fn get(&self, key: &NodeKey) -> Option<&SharedNode> {
        self.nodes.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn owned(&self) -> usize {
        let nodes = self.nodes.values();
        nodes.filter(|node| node.owner == Owner::Us).count()
    }

    pub(super) fn keys(&self) -> Vec<NodeKey> {
        self.nodes.keys().cloned().collect()
    }

    pub(super) fn owned_keys(&self) -> impl Iterator<Item = NodeKey> {
        let owned = self
            .nodes
            .iter()
            .filter(|(_, node)| node.owner == Owner::Us);
        owned.map(|(key, _)| key.clone())
    }

    pub(super) fn take(&mut self, key: &NodeKey) -> Option<SharedNode> {
        let node = self.nodes.remove(key)?;
        if let Some(due) = node.due {
            self.by_due.remove(&(due, key.clone()));
        }
        Some(node)
    }

    pub(super) fn insert(&mut self, key: NodeKey, node: SharedNode) {
        if let Some(due) = node.due {
            self.by_due.insert((due, key.clone()));
        }
        self.nodes.insert(key, node);
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Takes out a node that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(NodeKey, SharedNode)> {
        let (due, key) = self.by_due.first()?;
        if *due > now {
            return None;
        }
        let key = key.clone();
        let node = self.take(&key)?;
        Some((key, node))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::load_report::Node;
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn node(id: &str, owner: Owner, due: Option<u64>) -> (NodeKey, SharedNode) {
        let node = Node {
            id: id.into(),
            cluster: "fleet".into(),
            locality: Locality::default(),
        };
        let key = NodeKey::of(&node);
        let info = NodeInfo {
            node,
            user_agent_name: String::new(),
            user_agent_version: String::new(),
            client_features: Vec::new(),
        };
        let mut shared = SharedNode::new(Arc::new(info), owner);
        shared.due = due.map(at);
        (key, shared)
    }

    #[test]
    fn streams_are_counted_by_kind() {
        let (_, mut node) = node("a", Owner::Us, None);
        assert!(!node.has_stream());
        let kinds = [StreamKind::Ads, StreamKind::Lrs, StreamKind::Module];
        for kind in kinds {
            node.open(kind);
            node.open(kind);
            assert!(node.has_stream());
            assert!(!node.close(kind), "one is left");
            assert!(node.has_stream());
            assert!(node.close(kind));
            assert!(!node.has_stream());
            assert!(node.close(kind), "none is left");
        }
        for kind in kinds {
            node.open(kind);
        }
        for (index, kind) in kinds.into_iter().enumerate() {
            assert!(node.close(kind));
            assert_eq!(node.has_stream(), index < 2);
        }
    }

    #[test]
    fn a_node_counts_by_its_record_while_it_reports_elsewhere() {
        let (_, mut node) = node("a", Owner::Us, None);
        assert!(!node.repeats(), "it has no report");
        node.stats = [ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: Vec::new(),
            total_dropped_requests: 0,
            load_report_interval: std::time::Duration::from_secs(1),
        }]
        .into();
        assert!(node.repeats());
        node.reported_at = Some(at(1));
        assert!(!node.repeats(), "it reports to us");
        node.owner = Owner::Other("b".into());
        assert!(node.repeats());
        let Effect::Report(info, stats) = node.report() else {
            panic!("a report");
        };
        assert_eq!((&*info.node.id, stats.len()), ("a", 1));
    }

    #[test]
    fn nodes_are_taken_out_when_they_are_due() {
        let mut table = Table::default();
        let other = || Owner::Other("b".into());
        for (key, shared) in [
            node("late", other(), Some(9)),
            node("early", Owner::Us, Some(3)),
            node("never", Owner::Us, None),
        ] {
            table.insert(key, shared);
        }
        assert_eq!((table.len(), table.owned()), (3, 2));
        let ids = |keys: Vec<NodeKey>| keys.into_iter().map(|key| key.id).collect::<Vec<_>>();
        let expected: [Arc<str>; 3] = ["early".into(), "late".into(), "never".into()];
        assert_eq!(ids(table.keys()), expected);
        let owned = ids(table.owned_keys().collect());
        assert_eq!(owned, [expected[0].clone(), expected[2].clone()]);
        assert_eq!(table.next_due(), Some(at(3)));
        assert!(table.take_due(at(2)).is_none());
        let (early, mut shared) = table.take_due(at(3)).unwrap();
        assert_eq!(&*early.id, "early");
        assert!(table.get(&early).is_none());
        assert_eq!(table.next_due(), Some(at(9)));
        shared.due = Some(at(12));
        table.insert(early.clone(), shared);
        assert!(table.get(&early).is_some());
        let late = node("late", other(), None).0;
        assert!(table.take(&late).is_some());
        assert!(table.take(&late).is_none());
        assert_eq!((table.len(), table.next_due()), (2, Some(at(12))));
    }
}
