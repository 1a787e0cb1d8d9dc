//! Clusters of this process: passes the hosts of the local cluster to the others, and runs timers.
//!
//! Envoy creates one policy per cluster and knows no connection between them, so they meet here. A
//! thread of the module runs timers of balancers, because policies have none in Envoy; it starts
//! with the first load balancer, never while Envoy only validates its configuration.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::time::Instant;
use plimsoll_xds::clock::Clock;

use crate::cluster::Cluster;
use crate::log::{self, Level};
use crate::orca::{OrcaHosts, uses_reports};

/// Clusters that use the module, and fleets by the name of the local cluster.
#[derive(Debug)]
pub struct Process {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
    orca: OrcaHosts,
}

#[derive(Debug, Default)]
struct State {
    clusters: Vec<Weak<Cluster>>,
    fleets: HashMap<Arc<str>, ClusterLoadAssignment>,
    has_timer_thread: bool,
    /// Grows when a timer may be due earlier than the thread knows.
    changes: u64,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            state: Mutex::default(),
            changed: Condvar::new(),
            orca: OrcaHosts::default(),
        }
    }
}

impl Process {
    /// Returns the clusters of this process.
    pub fn global() -> &'static Self {
        static PROCESS: OnceLock<Process> = OnceLock::new();
        PROCESS.get_or_init(Self::default)
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Adds a cluster; it gets the hosts of its local cluster now, if they are known, and whenever
    /// they change. It is forgotten when the last reference is dropped.
    pub fn add(&self, cluster: &Arc<Cluster>) {
        let mut state = self.lock();
        state.clusters.retain(|cluster| cluster.strong_count() > 0);
        state.clusters.push(Arc::downgrade(cluster));
        let name = cluster.local_cluster_name();
        let fleet = name.and_then(|name| state.fleets.get(name).cloned());
        drop(state);
        if let Some(fleet) = fleet {
            cluster.handle_fleet(fleet, self.now());
        }
        self.wake();
    }

    /// Applies the hosts of a cluster, and those of a local cluster to the clusters that name it.
    pub fn handle_hosts(&self, cluster: &Cluster, hosts: ClusterLoadAssignment) {
        let now = self.now();
        if cluster.is_local_cluster() {
            let mut state = self.lock();
            let name = Arc::clone(cluster.name());
            state.fleets.insert(name, hosts.clone());
            let others: Vec<_> = state.clusters.iter().filter_map(Weak::upgrade).collect();
            drop(state);
            for other in others {
                if other.local_cluster_name() == Some(cluster.name()) {
                    other.handle_fleet(hosts.clone(), now);
                }
            }
        }
        cluster.handle_hosts(hosts, now);
        if uses_reports(cluster.config()) {
            self.publish_orca_hosts();
        }
        self.wake();
    }

    /// Returns the hosts that load reports are applied to.
    pub fn orca(&self) -> &OrcaHosts {
        &self.orca
    }

    /// Runs the timers that are due; returns when the next one is.
    pub fn handle_timeout(&self, now: Instant) -> Option<Instant> {
        let clusters = self.clusters();
        let timers = clusters.iter().map(|cluster| cluster.handle_timeout(now));
        timers.flatten().min()
    }

    fn publish_orca_hosts(&self) {
        let clusters = self.clusters();
        let targets = clusters.iter().flat_map(|cluster| cluster.orca_targets());
        self.orca.publish(targets);
    }

    /// Returns all clusters in use.
    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.lock()
            .clusters
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Starts the thread that runs timers; idempotent.
    pub fn start_timers(&'static self) {
        let mut state = self.lock();
        if !state.has_timer_thread {
            let thread = thread::Builder::new().name("plimsoll-timers".to_owned());
            match thread.spawn(|| self.run_timers()) {
                Ok(_) => state.has_timer_thread = true,
                Err(error) => {
                    let line = format!("plimsoll: timers do not run: {error}");
                    log::write(Level::Error, &line);
                }
            }
        }
    }

    fn run_timers(&self) {
        loop {
            let seen = self.lock().changes;
            let next = self.handle_timeout(self.now());
            let state = self.lock();
            let unchanged = |state: &mut State| state.changes == seen;
            match next {
                None => drop(self.changed.wait_while(state, unchanged)),
                Some(due) => {
                    // A timer in the past would spin if it did not advance.
                    let wait = due
                        .saturating_duration_since(self.now())
                        .max(Duration::from_millis(1));
                    drop(self.changed.wait_timeout_while(state, wait, unchanged));
                }
            }
        }
    }

    fn wake(&self) {
        self.lock().changes += 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
