//! [`ClusterStatus`]: state of a cluster and its hosts, for pages such as Envoy's `/clusters`.
//!
//! Collected on demand by the cluster manager, which knows the health of every host. Connections
//! are counted when they are dialed, never per request.

use std::sync::Arc;

use plimsoll_core::host::Host;
use plimsoll_core::model::health::HealthFlags;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::stats::SharedCounter;
use plimsoll_xds::upstream::CircuitBreakers;

/// State of one cluster, from [`Client::cluster_statuses`](crate::Client::cluster_statuses).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterStatus {
    pub name: Arc<str>,
    /// Whether the management server sent the cluster, rather than the program having added it.
    pub added_via_api: bool,
    pub circuit_breakers: CircuitBreakers,
    /// Hosts, ordered by priority, locality (the local one first) and address.
    pub hosts: Vec<HostStatus>,
}

/// State of one host of a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostStatus {
    pub host: Arc<Host>,
    pub priority: u32,
    /// Health by source: EDS, active checks, outlier detection.
    pub health: HealthFlags,
    /// `filter_metadata["envoy.lb"]` of the endpoint.
    pub metadata: Metadata,
    pub connections: ConnectionCounts,
}

/// Connection counts of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionCounts {
    /// Connections open or being dialed.
    pub active: u64,
    /// Connections dialed since the host was added.
    pub total: u64,
    pub connect_fail: u64,
}

/// Dial counters of one host; they survive changes of the connection settings.
#[derive(Debug, Default)]
pub(crate) struct DialCounters {
    pub(crate) total: SharedCounter,
    pub(crate) connect_fail: SharedCounter,
}

impl DialCounters {
    pub(crate) fn counts(&self, active: u32) -> ConnectionCounts {
        ConnectionCounts {
            active: active.into(),
            total: self.total.get(),
            connect_fail: self.connect_fail.get(),
        }
    }
}
