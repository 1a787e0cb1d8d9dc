//! The balancer of one cluster, shared by the threads of Envoy.
//!
//! Hosts come from the load balancer of the main thread, the fleet and timers from [`Process`].
//! Workers never take the lock: they pick from published snapshots.
//!
//! [`Process`]: crate::process::Process

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
use plimsoll_xds::clock::Clock;

use crate::management::Stream;
use crate::metrics::ZoneGauges;
use crate::oob::{self, OobStreams};
use crate::orca::{Target, uses_reports};

/// The routing state of one cluster.
pub struct Cluster {
    name: Arc<str>,
    config: Arc<ClusterConfig>,
    local_cluster_name: Option<Arc<str>>,
    writer: Mutex<Writer>,
    /// Keeps the stream to the control plane open.
    stream: OnceLock<Arc<Stream>>,
    gauges: ArcSwap<ZoneGauges>,
    oob: OnceLock<OobStreams>,
}

struct Writer {
    balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
}

impl Writer {
    fn publish(&mut self) -> Option<Instant> {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
        while self.balancer.poll_event().is_some() {}
        self.balancer.poll_timeout()
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
            }),
            stream: OnceLock::new(),
            gauges: ArcSwap::default(),
            oob: OnceLock::new(),
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
    pub fn start_oob(&self, clock: Clock) -> io::Result<()> {
        if let Some(reporting) = oob::settings(&self.config) {
            let seed = RandomState::new().hash_one(&*self.name);
            let streams = OobStreams::start(reporting, self.snapshot(), clock, seed)?;
            let _ = self.oob.set(streams);
        }
        Ok(())
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

    /// Computes the gauges that workers write after a tick.
    pub fn update_gauges(&self, tick: u64, now: Instant) {
        let gauges = ZoneGauges::new(&self.explain(now), tick);
        self.gauges.store(Arc::new(gauges));
    }

    /// Returns the gauges of the last tick.
    pub fn gauges(&self) -> Arc<ZoneGauges> {
        self.gauges.load_full()
    }

    /// A panic while the lock was held leaves a balancer whose next input rebuilds its state.
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
