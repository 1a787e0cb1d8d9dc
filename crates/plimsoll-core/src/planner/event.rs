//! [`PlannerEvent`]: what happened among the reporters, for drivers to log and count.
//!
//! What the planner decided is not here: that is a [`Plan`](super::plan::Plan).

use std::sync::Arc;

use crate::model::locality::Locality;

/// Something a control plane may want to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannerEvent {
    /// A node reported for the first time, or after it had left.
    NodeJoined {
        /// `node.cluster`.
        fleet: Arc<str>,
        /// `node.id`.
        node: Arc<str>,
        /// Where its demand counts.
        locality: Locality,
    },
    /// The last of a node's demand left the sums.
    NodeLeft {
        /// `node.cluster`.
        fleet: Arc<str>,
        /// `node.id`.
        node: Arc<str>,
        /// Where its demand had counted.
        locality: Locality,
        /// Why.
        reason: LeaveReason,
    },
    /// A node reports from another locality than before; its demand moved along.
    NodeMoved {
        /// `node.cluster`.
        fleet: Arc<str>,
        /// `node.id`.
        node: Arc<str>,
        /// Where its demand had counted.
        from: Locality,
        /// Where it counts now.
        to: Locality,
    },
    /// A report could not be used; what the node had said before stays in force.
    ReportIgnored {
        /// `node.cluster`.
        fleet: Arc<str>,
        /// `node.id`.
        node: Arc<str>,
        /// The upstream cluster of the report.
        upstream_cluster: Arc<str>,
        /// Why.
        reason: IgnoreReason,
    },
}

/// Why a node's demand left the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// Its stream closed and it did not come back within one of its intervals.
    Disconnected,
    /// It missed too many of its own intervals.
    Silent,
}

/// Why a report could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The interval is 0 or so short that one request would look like a storm.
    ImplausibleInterval,
    /// More requests per second than one process can make.
    ImplausibleRate,
    /// `node.id` is empty: such nodes cannot be told apart.
    NodeWithoutId,
    /// `node.locality` is unset. Such a node does not route by zone, so what it sends spreads over
    /// the upstream cluster as its capacity does and changes nobody's fair share.
    NodeWithoutLocality,
}
