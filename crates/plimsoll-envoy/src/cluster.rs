//! The balancer of one cluster, shared by the threads of Envoy.
//!
//! Hosts come from the load balancer of the main thread, the fleet and timers from [`Process`].
//! Workers never take the lock: they pick from published snapshots.
//!
//! [`Process`]: crate::process::Process

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::picker::Picker;
use plimsoll_core::publish::{self, Publisher, Reader};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_xds::orca::oob::{OobStats, OobStreams};

use crate::management::Stream;
use crate::metrics::{ClusterStats, TickValues};
use crate::oob;
use crate::orca::{Target, uses_reports};

/// The routing state of one cluster.
pub struct Cluster {
    name: Arc<str>,
    config: Arc<ClusterConfig>,
    local_cluster_name: Option<Arc<str>>,
    writer: Mutex<Writer>,
    /// Keeps the stream to the control plane open.
    stream: OnceLock<Arc<Stream>>,
    tick_values: ArcSwap<TickValues>,
    oob: OnceLock<OobStreams>,
    oob_stats: Arc<ArcSwap<OobStats>>,
}

struct Writer {
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
    /// Whether it was logged that load reports of a locality expired.
    is_expiry_logged: bool,
}

impl Writer {
    fn publish(&mut self) -> Option<Instant> {
        self.warn_expired_reports();
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
        while let Some(event) = self.balancer.poll_event() {
            plimsoll_core::log_event!(self.balancer.config().name(), &event);
        }
        self.balancer.poll_timeout()
    }

    /// Warns once, as client and proxy do.
    fn warn_expired_reports(&mut self) {
        let expired = self.balancer.load_aware_stats().stale_locality_total.get();
        let snapshot = self.reader.latest();
        if expired > 0
            && !self.is_expiry_logged
            && let Some(settings) = snapshot.config().load_aware_locality()
        {
            self.is_expiry_logged = true;
            let localities: BTreeSet<_> = snapshot.hosts().map(|host| host.locality()).collect();
            let name = snapshot.config().name();
            plimsoll_core::log_expired_reports!(name, settings, localities.len());
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates a cluster without hosts, for an Envoy in `locality`.
    pub fn new(
        config: ClusterConfig,
        locality: Locality,
        local_cluster_name: Option<Arc<str>>,
        now: Instant,
    ) -> Self {
        let config = Arc::new(config);
        let balancer = Balancer::new(Arc::clone(&config), locality, now);
        let (publisher, reader) = publish::channel(balancer.initial_snapshot(now));
        Self {
            name: Arc::clone(config.name()),
            config,
            local_cluster_name,
            writer: Mutex::new(Writer {
                balancer,
                publisher,
                reader,
                is_expiry_logged: false,
            }),
            stream: OnceLock::new(),
            tick_values: ArcSwap::default(),
            oob: OnceLock::new(),
            oob_stats: Arc::default(),
        }
    }

    /// Returns the name that Envoy gave to the cluster.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the settings, which do not change: Envoy creates a new policy for new ones.
    pub fn config(&self) -> &Arc<ClusterConfig> {
        &self.config
    }

    /// Returns the name of the local cluster, whose hosts are the fleet.
    pub fn local_cluster_name(&self) -> Option<&Arc<str>> {
        self.local_cluster_name.as_ref()
    }

    /// Returns whether this is the local cluster: its hosts are the fleet of other clusters.
    pub fn is_local_cluster(&self) -> bool {
        self.local_cluster_name.as_ref() == Some(&self.name)
    }

    /// Returns a picker with its own random numbers, for one thread.
    pub fn picker(&self) -> Picker {
        // A new `RandomState` has new random keys: the only entropy of the standard library.
        let seed = RandomState::new().hash_one(&*self.name);
        Picker::new(self.lock().reader.clone(), Xoshiro256::from_seed(seed))
    }

    /// Applies the hosts of this cluster. All `handle_*` functions return when
    /// [`Self::handle_timeout`] is due.
    pub fn handle_hosts(&self, hosts: ClusterLoadAssignment, now: Instant) -> Option<Instant> {
        let mut writer = self.lock();
        writer.balancer.handle_assignment(hosts, now);
        let due = writer.publish();
        if let Some(oob) = self.oob.get() {
            oob.update(Arc::clone(writer.reader.latest()));
        }
        due
    }

    /// Starts streams of out-of-band load reports, if the policy uses them.
    pub fn start_oob(&self) -> io::Result<()> {
        let seed = RandomState::new().hash_one(&*self.name);
        if let Some(streams) = oob::start(self.snapshot(), Arc::clone(&self.oob_stats), seed)? {
            let _ = self.oob.set(streams);
        }
        Ok(())
    }

    /// Returns the statistics of out-of-band load reports; all 0 without them.
    pub fn oob_stats(&self) -> OobStats {
        **self.oob_stats.load()
    }

    /// Applies the hosts of the local cluster.
    pub fn handle_fleet(&self, fleet: ClusterLoadAssignment, now: Instant) -> Option<Instant> {
        let mut writer = self.lock();
        writer.balancer.handle_fleet_assignment(fleet, now);
        writer.publish()
    }

    /// Applies the measured demand for this cluster.
    pub fn handle_observed_traffic(
        &self,
        fractions: FractionMap,
        observed_at: Instant,
        now: Instant,
    ) -> Option<Instant> {
        let mut writer = self.lock();
        let balancer = &mut writer.balancer;
        balancer.handle_observed_traffic_at(fractions, observed_at, now);
        writer.publish()
    }

    /// Keeps a stream to the control plane open as long as the cluster exists.
    pub fn keep_stream(&self, stream: Arc<Stream>) {
        let _ = self.stream.set(stream);
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&self, now: Instant) -> Option<Instant> {
        let mut writer = self.lock();
        if writer.balancer.poll_timeout().is_some_and(|due| due <= now) {
            writer.balancer.handle_timeout(now);
        }
        writer.publish()
    }

    /// Returns the hosts, if the cluster uses their load reports.
    pub fn orca_targets(&self) -> impl Iterator<Item = Target> + use<> {
        let mut hosts = Vec::new();
        if uses_reports(&self.config) {
            let snapshot = self.snapshot();
            hosts.extend(snapshot.hosts().map(|host| Target {
                host: Arc::clone(host),
                config: Arc::clone(&self.config),
            }));
        }
        hosts.into_iter()
    }

    /// Returns the snapshot in force.
    pub fn snapshot(&self) -> Arc<RoutingSnapshot> {
        Arc::clone(self.lock().reader.latest())
    }

    /// Explains where requests go and why.
    pub fn explain(&self, now: Instant) -> Explanation {
        self.snapshot().explain_at(now)
    }

    /// Reads what workers write after a tick.
    pub fn update_tick_values(&self, tick: u64, now: Instant) {
        let explanation = self.explain(now);
        let oob = self.oob_stats();
        let writer = self.lock();
        let balancer = &writer.balancer;
        let stats = ClusterStats::new(balancer.stats(), balancer.load_aware_stats(), &oob);
        drop(writer);
        let values = TickValues::new(&explanation, stats, tick);
        self.tick_values.store(Arc::new(values));
    }

    /// Returns the values of the last tick.
    pub fn tick_values(&self) -> Arc<TickValues> {
        self.tick_values.load_full()
    }

    /// A panic while the lock was held leaves a balancer whose next input rebuilds its state.
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
