//! Clusters of this process: passes the hosts of the local cluster to the others, and runs timers.
//!
//! Envoy creates one policy per cluster and knows no connection between them, so they meet here. A
//! thread of the module runs timers of balancers, because policies have none in Envoy; it starts
//! with the first load balancer, never while Envoy only validates its configuration.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::time::Instant;
use plimsoll_xds::clock::Clock;

use crate::cluster::Cluster;
use crate::config::Identity;
use crate::explain;
use crate::guard::{RESTART_DELAY, guarded};
use crate::log::{self, Level};
use crate::management::{ManagementServer, Stream};
use crate::metrics::Tick;
use crate::orca::{OrcaHosts, uses_reports};
use crate::override_host::Overrides;
use crate::report_format::ReportFormats;

/// How often workers may write their metrics.
const TICK: Duration = Duration::from_secs(1);

/// Clusters that use the module, and fleets by the name of the local cluster.
#[derive(Debug)]
pub struct Process {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
    orca: OrcaHosts,
    overrides: Overrides,
    report_formats: ReportFormats,
    tick: Tick,
}

#[derive(Debug, Default)]
struct State {
    clusters: Vec<Weak<Cluster>>,
    fleets: HashMap<Arc<str>, ClusterLoadAssignment>,
    /// Measured demand by cluster, and when it was observed, for clusters that are added later.
    traffic: HashMap<Arc<str>, (FractionMap, Instant)>,
    streams: Vec<(ManagementServer, Weak<Stream>)>,
    /// Identity of this Envoy, from the newest configuration that names its control plane.
    identity: Identity,
    /// Addresses of servers for explanations.
    explaining: HashSet<SocketAddr>,
    has_timer_thread: bool,
    /// Clusters whose timers have panicked, until when they are left alone.
    resting: Vec<(Weak<Cluster>, Instant)>,
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
            overrides: Overrides::default(),
            report_formats: ReportFormats::default(),
            tick: Tick::default(),
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

    /// Returns what is the same for all clusters of this Envoy: as `written`, or that of the newest
    /// configuration that names a control plane, which clusters of that control plane leave out.
    pub fn identity(&self, written: Option<&Identity>) -> Identity {
        let mut state = self.lock();
        match written {
            None => state.identity.clone(),
            Some(written) => {
                if written.management_server.is_some() {
                    state.identity = written.clone();
                }
                written.clone()
            }
        }
    }

    /// Adds a cluster; it gets the hosts of its local cluster now, if they are known, and whenever
    /// they change. It is forgotten when the last reference is dropped.
    pub fn add(&self, cluster: &Arc<Cluster>) {
        let mut state = self.lock();
        state.clusters.retain(|cluster| cluster.strong_count() > 0);
        state.clusters.push(Arc::downgrade(cluster));
        let name = cluster.local_cluster_name();
        let fleet = name.and_then(|name| state.fleets.get(name).cloned());
        let traffic = state.traffic.get(cluster.name()).cloned();
        drop(state);
        if let Some(fleet) = fleet {
            cluster.handle_fleet(fleet, self.now());
        }
        if let Some((fractions, observed_at)) = traffic {
            cluster.handle_observed_traffic(fractions, observed_at, self.now());
        }
        self.wake();
    }

    /// Applies the hosts of a cluster, and those of a local cluster to the clusters that name it.
    pub fn handle_hosts(&self, cluster: &Arc<Cluster>, hosts: ClusterLoadAssignment) {
        let now = self.now();
        self.overrides.handle_hosts(cluster, &hosts);
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

    /// Applies measured demand to the clusters with this name.
    pub fn handle_observed_traffic(&self, name: &Arc<str>, fractions: FractionMap, at: Instant) {
        let mut state = self.lock();
        let observed = (fractions.clone(), at);
        state.traffic.insert(Arc::clone(name), observed);
        drop(state);
        for cluster in self.clusters() {
            if cluster.name() == name {
                cluster.handle_observed_traffic(fractions.clone(), at, self.now());
            }
        }
        self.wake();
    }

    /// Connects a cluster to its control plane. Clusters with the same one share a stream.
    pub fn connect(&'static self, cluster: &Cluster, server: &ManagementServer) {
        let mut state = self.lock();
        state
            .streams
            .retain(|(_, stream)| stream.strong_count() > 0);
        let mut open = state.streams.iter();
        let shared = open.find_map(|(known, stream)| (known == server).then(|| stream.upgrade()));
        if let Some(stream) = shared.flatten() {
            cluster.keep_stream(stream);
            return;
        }
        let sink = Box::new(|name: &Arc<str>, fractions, at| {
            self.handle_observed_traffic(name, fractions, at);
        });
        match Stream::start(server, sink) {
            Ok(stream) => {
                let stream = Arc::new(stream);
                let entry = (server.clone(), Arc::downgrade(&stream));
                state.streams.push(entry);
                cluster.keep_stream(stream);
            }
            Err(error) => {
                let line = format!("plimsoll: no stream to the control plane: {error}");
                log::write(Level::Error, &line);
            }
        }
    }

    /// Starts streams of out-of-band load reports, if the policy of the cluster uses them.
    pub fn start_oob(&self, cluster: &Cluster) {
        if let Err(error) = cluster.start_oob() {
            let line = format!("plimsoll: no out-of-band load reports: {error}");
            log::write(Level::Error, &line);
        }
    }

    /// Returns the number of the last tick, for metrics.
    #[inline]
    pub fn tick(&self) -> u64 {
        self.tick.now()
    }

    /// Reads the statistics of clusters, and lets workers write their metrics.
    pub fn advance_tick(&self) {
        let next = self.tick.now() + 1;
        let now = self.now();
        self.for_each_cluster(now, |cluster| {
            cluster.update_tick_values(next, now);
            None
        });
        self.tick.advance();
    }

    /// Serves explanations at an address, until the process exits; idempotent.
    pub fn start_explaining(&'static self, address: SocketAddr) {
        let is_new = self.lock().explaining.insert(address);
        if is_new && let Err(error) = explain::start(self, address) {
            let line = format!("plimsoll: admin.address {address}: {error}");
            log::write(Level::Error, &line);
        }
    }

    /// Returns the hosts that load reports are applied to.
    pub fn orca(&self) -> &OrcaHosts {
        &self.orca
    }

    /// Returns the hosts that requests shall be sent to although they are not healthy.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Returns the clusters whose hosts are asked for load reports.
    pub fn report_formats(&self) -> &ReportFormats {
        &self.report_formats
    }

    /// Runs the timers that are due; returns when the next one is.
    pub fn handle_timeout(&self, now: Instant) -> Option<Instant> {
        self.for_each_cluster(now, |cluster| cluster.handle_timeout(now))
    }

    /// Runs timers of all clusters; returns when the next one is due. A cluster whose timers panic
    /// does not stop the others, and is tried again after a delay.
    fn for_each_cluster(
        &self,
        now: Instant,
        run: impl Fn(&Arc<Cluster>) -> Option<Instant>,
    ) -> Option<Instant> {
        let mut resting = std::mem::take(&mut self.lock().resting);
        resting.retain(|(_, until)| *until > now);
        let mut due = resting.iter().map(|(_, until)| *until).min();
        for cluster in self.clusters() {
            if resting
                .iter()
                .any(|(other, _)| other.as_ptr() == Arc::as_ptr(&cluster))
            {
                continue;
            }
            let name = format!("timer of cluster {}", cluster.name());
            let next = guarded(&name, Err(()), || Ok(run(&cluster))).unwrap_or_else(|()| {
                let until = now.saturating_add(RESTART_DELAY);
                resting.push((Arc::downgrade(&cluster), until));
                Some(until)
            });
            due = due.into_iter().chain(next).min();
        }
        self.lock().resting.extend(resting);
        due
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
        let mut next_tick = Instant::ORIGIN;
        loop {
            let seen = self.lock().changes;
            let next = guarded("timers", None, || self.handle_timeout(self.now()));
            if self.now() >= next_tick {
                guarded("tick", (), || self.advance_tick());
                next_tick = self.now().saturating_add(TICK);
            }
            let due = next.map_or(next_tick, |due| due.min(next_tick));
            // A timer in the past would spin if it did not advance.
            let wait = due
                .saturating_duration_since(self.now())
                .max(Duration::from_millis(1));
            let unchanged = |state: &mut State| state.changes == seen;
            drop(
                self.changed
                    .wait_timeout_while(self.lock(), wait, unchanged),
            );
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use plimsoll_core::model::locality::Locality;

    use super::*;
    use crate::config::ModuleConfig;

    #[test]
    fn timers_that_panic_do_not_stop_those_of_other_clusters() {
        let process = Process::default();
        let clusters = ["bad", "good"].map(|name| {
            let config = ModuleConfig::parse("{}").unwrap().cluster(name).unwrap();
            let locality = Locality::zone_only("a");
            Arc::new(Cluster::new(config, locality, None, process.now()))
        });
        clusters.iter().for_each(|cluster| process.add(cluster));
        let run_at = |millis: u64| {
            let ran = RefCell::new(Vec::new());
            let now = Instant::ORIGIN.saturating_add(Duration::from_millis(millis));
            let due = process.for_each_cluster(now, |cluster| {
                ran.borrow_mut().push(cluster.name().to_string());
                assert_ne!(&**cluster.name(), "bad");
                Some(now.saturating_add(Duration::from_secs(10)))
            });
            let wait = due.unwrap().saturating_duration_since(now);
            (ran.into_inner(), wait.as_millis())
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(run_at(0), (names(&["bad", "good"]), 1000));
        assert_eq!(run_at(400), (names(&["good"]), 600));
        assert_eq!(run_at(1000), (names(&["bad", "good"]), 1000));
    }
}
