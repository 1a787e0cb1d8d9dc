//! [`Engine`]: what the cases of routing run through.
//!
//! Cases that need a cluster with hosts (zone-aware routing, weights of localities, reports that
//! stop) are the same for every data plane that balances with the core; how settings, hosts and
//! load reports reach it differs. [`Core`] passes them as they are. The module inside Envoy
//! implements the trait in its tests, with settings as a control plane delivers them and host sets
//! as Envoy shows them.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;

/// A data plane that balances with the core.
pub trait Engine {
    /// Whether cases of single functions run too, which use no cluster.
    fn runs_functions(&self) -> bool {
        false
    }

    /// Creates a cluster without hosts, for a proxy in the locality `own`.
    fn start(
        &self,
        config: &Arc<ClusterConfig>,
        own: &Locality,
        now: Instant,
    ) -> Result<Box<dyn Cluster>, Unsupported>;
}

/// A cluster of an engine. As with a balancer, every input may publish a snapshot and move the
/// timer.
pub trait Cluster {
    /// Takes the hosts in place of those before; `Unsupported` leaves the cluster unusable.
    fn handle_hosts(
        &mut self,
        hosts: ClusterLoadAssignment,
        now: Instant,
    ) -> Result<(), Unsupported>;
    /// Replaces the hosts of the local cluster.
    fn handle_fleet(
        &mut self,
        fleet: ClusterLoadAssignment,
        now: Instant,
    ) -> Result<(), Unsupported>;
    /// Takes the fractions that a control plane measured, as of `now`.
    fn handle_observed_traffic(&mut self, fractions: FractionMap, now: Instant);
    /// Applies the load report of a response of the host at `host`; `at` may be in the past.
    fn handle_report(&mut self, host: SocketAddr, report: &OrcaLoadReport, at: Instant);
    /// Runs the timers that are due.
    fn handle_timeout(&mut self, now: Instant);
    /// Returns when [`Self::handle_timeout`] is due.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Returns the newest snapshot.
    fn snapshot(&self) -> Arc<RoutingSnapshot>;
    /// Returns name and value of every counter of `load_aware_locality`.
    fn load_aware_counters(&self) -> Vec<(&'static str, u64)>;
}

/// Inputs that an engine cannot have, such as settings that no control plane can deliver. The case
/// is skipped for this engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub &'static str);

/// The balancer of the core. It supports all inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Core;

struct CoreCluster {
    balancer: Balancer,
    config: Arc<ClusterConfig>,
    snapshot: Arc<RoutingSnapshot>,
}

impl Engine for Core {
    fn runs_functions(&self) -> bool {
        true
    }

    fn start(
        &self,
        config: &Arc<ClusterConfig>,
        own: &Locality,
        now: Instant,
    ) -> Result<Box<dyn Cluster>, Unsupported> {
        let balancer = Balancer::new(Arc::clone(config), own.clone(), now);
        Ok(Box::new(CoreCluster {
            snapshot: balancer.initial_snapshot(now),
            balancer,
            config: Arc::clone(config),
        }))
    }
}

impl CoreCluster {
    fn update_snapshot(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.snapshot = snapshot;
        }
    }
}

impl Cluster for CoreCluster {
    fn handle_hosts(
        &mut self,
        hosts: ClusterLoadAssignment,
        now: Instant,
    ) -> Result<(), Unsupported> {
        self.balancer.handle_assignment(hosts, now);
        self.update_snapshot();
        Ok(())
    }

    fn handle_fleet(
        &mut self,
        fleet: ClusterLoadAssignment,
        now: Instant,
    ) -> Result<(), Unsupported> {
        self.balancer.handle_fleet_assignment(fleet, now);
        self.update_snapshot();
        Ok(())
    }

    fn handle_observed_traffic(&mut self, fractions: FractionMap, now: Instant) {
        self.balancer.handle_observed_traffic(fractions, now);
        self.update_snapshot();
    }

    fn handle_report(&mut self, address: SocketAddr, report: &OrcaLoadReport, at: Instant) {
        let mut hosts = self.snapshot.hosts();
        if let Some(host) = hosts.find(|host| host.address() == address) {
            host.observe_orca(report, &self.config, at);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.balancer.handle_timeout(now);
        self.update_snapshot();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.balancer.poll_timeout()
    }

    fn snapshot(&self) -> Arc<RoutingSnapshot> {
        Arc::clone(&self.snapshot)
    }

    fn load_aware_counters(&self) -> Vec<(&'static str, u64)> {
        self.balancer.load_aware_stats().iter().collect()
    }
}
