//! Records that replicas of a control plane share. `convert::replica` encodes and decodes them.

use std::sync::Arc;

use plimsoll_core::model::load_report::ClusterStats;
use plimsoll_core::planner::transport::SharedSpilling;
use plimsoll_core::planner::{SharedZone, UpdateCause};

use crate::node::NodeInfo;

/// What one replica knows about a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRecord {
    /// Replica that wrote the record.
    pub replica: Arc<str>,
    /// Process of the replica: a replica that restarts has another one.
    pub instance: u64,
    pub node: NodeInfo,
    /// Latest load report of the node; empty if the node does not report load.
    pub cluster_stats: Vec<ClusterStats>,
}

/// A replica that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaRecord {
    pub replica: String,
    pub instance: u64,
    /// Address of ADS and LRS.
    pub listen: String,
    pub version: String,
    /// Hash of the configuration: replicas should have the same.
    pub configuration: u64,
    pub started_unix_ms: u64,
    /// Nodes with a stream to this replica.
    pub nodes: u64,
}

/// Demand that replicas agreed to deliver. Fleet and upstream cluster are in its key.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRecord {
    /// Process of the replica that made the plan.
    pub instance: u64,
    pub cause: UpdateCause,
    pub warming_up: bool,
    pub zones: Vec<SharedZone>,
    /// Which zones of a service with an objective spilled before this report; `None` without one.
    pub spilling: Option<Vec<SharedSpilling>>,
}
