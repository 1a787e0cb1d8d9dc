//! [`PlannerEvent`]: changes among the reporting nodes, for drivers to log and count.
//!
//! Decisions of the planner are not events: they are a [`Plan`](super::plan::Plan).

use std::sync::Arc;

use crate::model::locality::Locality;

/// An event that a control plane may want to log.
#[derive(Clone, Debug, PartialEq)]
pub enum PlannerEvent {
    /// A node reported for the first time, or after it had left.
    NodeJoined {
        fleet: Arc<str>,
        node: Arc<str>,
        /// Zone for which the node's demand counts.
        locality: Locality,
    },
    /// A node's last report expired or its stream closed for good.
    NodeLeft {
        fleet: Arc<str>,
        node: Arc<str>,
        locality: Locality,
        reason: LeaveReason,
    },
    /// A node reports from another locality than before; its demand moved with it.
    NodeMoved {
        fleet: Arc<str>,
        node: Arc<str>,
        from: Locality,
        to: Locality,
    },
    /// A node began to count with less than it reports, because that is too many times the median
    /// of its fleet (decision 0032).
    NodeCapped {
        fleet: Arc<str>,
        node: Arc<str>,
        locality: Locality,
        reported_per_second: f64,
        counted_per_second: f64,
    },
    /// Many more of the requests to an upstream zone fail than of those to another: its hosts are
    /// no spare capacity (decision 0038).
    ZoneFails {
        fleet: Arc<str>,
        upstream_cluster: Arc<str>,
        locality: Locality,
        /// In the latest reports of all nodes, 0 to 1. It can be small if only the requests from
        /// one zone fail.
        failed_share: f64,
        /// Zones of the proxies whose requests fail; empty if those of all do.
        from: Vec<Locality>,
    },
    /// No request to the zone has failed for a while: demand steers again.
    ZoneRecovered {
        fleet: Arc<str>,
        upstream_cluster: Arc<str>,
        locality: Locality,
    },
    /// A load report was unusable; the node's previous report stays in force.
    ReportIgnored {
        fleet: Arc<str>,
        node: Arc<str>,
        upstream_cluster: Arc<str>,
        reason: IgnoreReason,
    },
}

/// Why a node's demand was removed from the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// The node's stream closed, and it did not report again within one of its intervals.
    Disconnected,
    /// The node missed too many of its own reporting intervals.
    Silent,
}

/// Why a load report was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The report's interval is 0, or so short that a single request would look like a burst.
    ImplausibleInterval,
    /// The report has more requests per second than one process can send.
    ImplausibleRate,
    /// `node.id` is empty, so the node cannot be told apart from others.
    NodeWithoutId,
    /// `node.locality` is unset. Such a node does not route by zone: its requests spread over the
    /// upstream cluster in proportion to capacity and do not change the fair share of any zone.
    NodeWithoutLocality,
    /// The zone of the node is not one of those that the control plane knows: see
    /// [`Planner::set_zones`](super::Planner::set_zones).
    UnknownZone,
    /// The fleet reports about too many upstream clusters.
    TooManyClusters,
}
