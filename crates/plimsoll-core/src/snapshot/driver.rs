//! Routing snapshot with a driver's per-host data attached.
//!
//! Drivers keep data per host, connections for instance. Published separately from the hosts, it
//! would be ahead of them or behind them for a while. In a [`DriverSnapshot`] both change with the
//! same pointer swap, and a worker finds the data by [`Host::index`] with a single read.

use std::sync::Arc;

use super::RoutingSnapshot;
use crate::host::Host;

/// A routing snapshot with a `T` attached to each of its hosts, for drivers to publish and pickers
/// to pick from.
#[derive(Debug)]
pub struct DriverSnapshot<T> {
    /// Keeps the hosts alive, so that their indices are not reused.
    routing: Arc<RoutingSnapshot>,
    /// By [`Host::index`]; shared by snapshots with the same hosts.
    attached: Arc<[Option<T>]>,
}

impl<T> DriverSnapshot<T> {
    /// Wraps the balancer's initial snapshot, which has no hosts.
    pub fn initial(routing: Arc<RoutingSnapshot>) -> Self {
        Self {
            routing,
            attached: Arc::default(),
        }
    }

    /// Attaches to each host of `routing` the value that `attach` returns for it.
    pub fn new(routing: Arc<RoutingSnapshot>, mut attach: impl FnMut(&Arc<Host>) -> T) -> Self {
        let mut attached = Vec::new();
        for host in routing.hosts() {
            if attached.len() <= host.index() {
                attached.resize_with(host.index() + 1, || None);
            }
            attached[host.index()] = Some(attach(host));
        }
        Self {
            routing,
            attached: attached.into(),
        }
    }

    /// Builds the snapshot that replaces this one. While the hosts are the same, all attached
    /// values are shared; otherwise `attach` is called for every host, with the value that this
    /// snapshot attached to the host.
    #[must_use]
    pub fn next(
        &self,
        routing: Arc<RoutingSnapshot>,
        mut attach: impl FnMut(&Arc<Host>, Option<&T>) -> T,
    ) -> Self {
        if routing.same_hosts(&self.routing) {
            return Self {
                routing,
                attached: Arc::clone(&self.attached),
            };
        }
        Self::new(routing, |host| attach(host, self.attached(host)))
    }

    getters! {
        /// Returns the snapshot that the balancer built.
        routing: &Arc<RoutingSnapshot>,
    }

    /// Returns all hosts with their attached values.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Host>, &T)> {
        let hosts = self.routing.hosts();
        hosts.filter_map(|host| Some((host, self.attached(host)?)))
    }

    /// Returns the value attached to `host`; `None` if this snapshot does not contain the host.
    #[inline]
    pub fn attached(&self, host: &Host) -> Option<&T> {
        self.attached.get(host.index())?.as_ref()
    }
}

impl<T> AsRef<RoutingSnapshot> for DriverSnapshot<T> {
    #[inline]
    fn as_ref(&self) -> &RoutingSnapshot {
        &self.routing
    }
}

#[cfg(test)]
mod tests;
