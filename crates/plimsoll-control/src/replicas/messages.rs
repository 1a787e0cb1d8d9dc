//! What goes in and out of [`Replicas`](super::Replicas): changes in the store, writes to it, and
//! effects on the nodes that count.

use std::sync::Arc;

use plimsoll_core::evacuation::{Order, ZoneName};
use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::planner::{Plan, PlanScope, SharedPlan};
use plimsoll_xds::node::NodeInfo;
use plimsoll_xds::replica::{NodeRecord, PlanRecord, ReplicaRecord};

use super::NodeKey;

/// Something that the store reports.
#[derive(Clone, Debug)]
pub enum StoreInput {
    /// Everything that is in the store. The store is connected from now on.
    Snapshot(StoreSnapshot),
    NodePut(StoredNode),
    NodeDeleted(NodeKey),
    ReplicaPut(ReplicaRecord),
    ReplicaDeleted(Arc<str>),
    PlanPut(StoredPlan),
    PlanDeleted(PlanKey),
    /// The store does not take a plan of this size.
    PlanTooLarge {
        key: PlanKey,
        bytes: usize,
    },
    /// Orders to take zones out of use.
    Order(OrderInput),
    /// This replica has another lease: the store drops what was written under the earlier one.
    LeaseChanged,
    /// The store cannot be reached, for this reason.
    Disconnected(String),
}

/// Orders in the store.
#[derive(Clone, Debug)]
pub enum OrderInput {
    /// All of them, after a snapshot.
    All(Vec<Order>),
    Put(Order),
    Deleted(ZoneName),
}

/// Everything that is in the store.
#[derive(Clone, Debug, Default)]
pub struct StoreSnapshot {
    pub nodes: Vec<StoredNode>,
    pub replicas: Vec<ReplicaRecord>,
    pub plans: Vec<StoredPlan>,
}

/// A record in the store.
#[derive(Clone, Debug)]
pub struct StoredNode {
    pub record: NodeRecord,
    /// Revision of the store at which the record was written.
    pub revision: i64,
}

/// A change that follows from an input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Another replica serves the node.
    Join(Arc<NodeInfo>),
    /// No replica serves the node.
    Leave(NodeKey),
    /// This replica serves the node, or was the last one that did.
    Own(NodeKey),
    /// The node's latest load report is this one.
    Report(Arc<NodeInfo>, Arc<[ClusterStats]>),
    /// The node does not report load any more.
    Silent(NodeKey),
    /// The node is at this replica and at another at the same time.
    Duplicate(NodeKey, Arc<str>),
    /// Replicas agreed on the plan of another one.
    Adopt(SharedPlan),
    /// Replicas agreed on this plan of ours, or cannot be asked.
    Deliver(Arc<Plan>),
}

/// A change of a record in the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A record with a load report, the newest one.
    Put(NodeRecord),
    /// A record without a load report. It must not replace the record of another replica: a node
    /// opens its discovery stream before its load reporting stream, perhaps before this replica has
    /// read the store, and counts with the report in its record until then.
    PutIfOwn(NodeRecord),
    /// Deletes the record if it is still the one that this replica wrote.
    Delete,
    /// Drops a write that waits for the store, which is away: this replica deletes its records of
    /// nodes that have left when it reads the store again.
    Forget,
}

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
