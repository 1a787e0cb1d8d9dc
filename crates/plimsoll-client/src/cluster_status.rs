//! [`ClusterStatus`]: one cluster and its hosts at a moment, for pages such as Envoy's `/clusters`.
//!
//! Collected by the cluster manager when somebody asks: every judge's word on a host is the
//! writer's. Requests are counted by the core's hosts, connections here; counting a connection
//! happens when it is dialled, never on the way of a request.

use std::sync::Arc;

use plimsoll_core::host::Host;
use plimsoll_core::model::health::HealthFlags;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_xds::upstream::CircuitBreakers;

use crate::stats::Counter;

/// One cluster at a moment.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Its name.
    pub name: Arc<str>,
    /// It came from the management server, not from the program.
    pub added_via_api: bool,
    /// The limits in force.
    pub circuit_breakers: CircuitBreakers,
    /// Its hosts, by priority, locality (own first) and address.
    pub hosts: Vec<HostStatus>,
}

/// One host at a moment.
#[derive(Clone, Debug)]
pub struct HostStatus {
    /// Address, locality, weight and what was counted of requests.
    pub host: Arc<Host>,
    /// Its priority in the assignment.
    pub priority: u32,
    /// What every judge says about it.
    pub health: HealthFlags,
    /// `filter_metadata["envoy.lb"]` of its endpoint.
    pub metadata: Metadata,
    /// Its connections.
    pub connections: ConnectionCounts,
}

/// Connections to one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Open or being dialled.
    pub active: u64,
    /// Dialled so far.
    pub total: u64,
    /// Of those, the ones that failed.
    pub connect_fail: u64,
}

/// What was dialled to one host so far, whatever the settings were.
#[derive(Debug, Default)]
pub(crate) struct Dialled {
    pub(crate) total: Counter,
    pub(crate) connect_fail: Counter,
}

impl Dialled {
    /// With those that are there now.
    pub(crate) fn counts(&self, active: u32) -> ConnectionCounts {
        ConnectionCounts {
            active: active.into(),
            total: self.total.get(),
            connect_fail: self.connect_fail.get(),
        }
    }
}
