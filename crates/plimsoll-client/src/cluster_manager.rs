//! [`ClusterManager`]: the one writer. Owns every [`Balancer`], takes updates, publishes snapshots.
//!
//! Endpoints are published before the snapshot that names them and removed after it, so that a pick
//! always finds its connections. Updates come over one bounded channel; a burst is taken whole
//! before anything is published. Nothing is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::publish::{self, Publisher};
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_xds::driver::Clock;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cluster::{Cluster, ClusterParts, Endpoints};
use crate::dns::Lookups;
use crate::endpoint::Endpoint;
use plimsoll_xds::upstream::{Discovery, UpstreamCluster, UpstreamOptions};

/// Updates that may wait for the writer.
const QUEUE: usize = 1024;
/// Updates that are taken before what changed is published.
const BURST: usize = 64;

/// Removed clusters whose counts are kept.
const RETIRED: usize = 64;

/// Clusters by name, as services find them.
pub(crate) type Clusters = BTreeMap<Arc<str>, Arc<Cluster>>;

/// What the writer is told.
#[derive(Debug)]
pub(crate) enum Update {
    /// A new cluster, or other settings of one that is known.
    Cluster(Arc<ClusterConfig>, Arc<UpstreamOptions>),
    /// The same with the endpoints that it lists.
    Upstream(Arc<UpstreamCluster>),
    /// A cluster is no longer wanted.
    Remove(Arc<str>),
    /// Endpoints of a cluster, whatever name the assignment has.
    Assignment(Arc<str>, ClusterLoadAssignment),
    /// The proxies that are like us: the fleet, with fractions of demand perhaps.
    Originating(ClusterLoadAssignment),
    /// Fractions of demand for one cluster, from the LRS response.
    ObservedTraffic(Arc<str>, FractionMap),
    /// A judge other than the assignment says something about a host.
    Health(Arc<str>, SocketAddr, HealthSignal),
    /// Why does the cluster route as it does?
    Explain(Arc<str>, oneshot::Sender<Option<Explanation>>),
    /// What was sent since the last time?
    DrainLoadStats {
        /// Names of clusters, or all.
        wanted: Option<Vec<Arc<str>>>,
        /// Whether endpoints are wanted one by one.
        by_endpoint: bool,
        /// Where the answer goes.
        reply: oneshot::Sender<Vec<ClusterLoadStats>>,
    },
    /// Everything before this is published.
    Flush(oneshot::Sender<()>),
}

/// What all clusters of a client have in common.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where this process is.
    pub(crate) locality: Locality,
    /// Connection pools per host.
    pub(crate) pools: usize,
    /// Start of all chance.
    pub(crate) seed: u64,
}

/// The writer.
#[derive(Debug)]
pub(crate) struct ClusterManager {
    clock: Clock,
    settings: Settings,
    updates: mpsc::Receiver<Update>,
    managed: BTreeMap<Arc<str>, Managed>,
    clusters: Arc<ArcSwap<Clusters>>,
    /// Newest fleet: clusters that come later want it too.
    originating: Option<ClusterLoadAssignment>,
    /// Clusters that were removed, until all they counted is reported.
    retired: Vec<Balancer>,
    lookups: Lookups,
    /// The way here, for tasks that find endpoints.
    own: mpsc::WeakSender<Update>,
}

/// One cluster and the ends through which it is published.
#[derive(Debug)]
struct Managed {
    balancer: Balancer,
    cluster: Arc<Cluster>,
    snapshots: Publisher<RoutingSnapshot>,
    newest: Arc<RoutingSnapshot>,
    endpoints: Publisher<Endpoints>,
    known: Arc<Endpoints>,
    ready: watch::Sender<bool>,
    pools: usize,
}

impl ClusterManager {
    /// A writer of no cluster, and the way to it.
    pub(crate) fn new(settings: Settings) -> (Self, mpsc::Sender<Update>) {
        let (sender, updates) = mpsc::channel(QUEUE);
        let manager = Self {
            clock: Clock::system(),
            settings,
            updates,
            managed: BTreeMap::new(),
            clusters: Arc::default(),
            originating: None,
            retired: Vec::new(),
            lookups: Lookups::default(),
            own: sender.downgrade(),
        };
        (manager, sender)
    }

    /// Where clusters are found.
    pub(crate) fn clusters(&self) -> Arc<ArcSwap<Clusters>> {
        Arc::clone(&self.clusters)
    }

    /// Takes an update.
    pub(crate) fn handle(&mut self, update: Update) {
        let now = self.clock.now();
        match update {
            Update::Cluster(config, options) => self.handle_cluster(config, options, now),
            Update::Upstream(cluster) => self.handle_upstream(&cluster, now),
            Update::Remove(name) => self.remove(&name),
            Update::Assignment(name, assignment) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.balancer.handle_assignment(assignment, now);
                    managed.publish();
                    managed.ready.send_replace(true);
                }
            }
            Update::Originating(assignment) => {
                for managed in self.managed.values_mut() {
                    managed.balancer.handle_originating(assignment.clone(), now);
                }
                self.originating = Some(assignment);
            }
            Update::ObservedTraffic(name, fractions) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.balancer.handle_observed_traffic(fractions, now);
                }
            }
            Update::Health(name, address, signal) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.balancer.handle_health(address, signal, now);
                }
            }
            // Whoever asked the rest may have gone.
            Update::Explain(name, reply) => {
                self.publish();
                let managed = self.managed.get(&name);
                let _ = reply.send(managed.map(|managed| managed.newest.explain()));
            }
            Update::DrainLoadStats {
                wanted,
                by_endpoint,
                reply,
            } => {
                let stats = self.drain_load_stats(wanted.as_deref(), by_endpoint, now);
                let _ = reply.send(stats);
            }
            Update::Flush(reply) => {
                self.publish();
                let _ = reply.send(());
            }
        }
    }

    /// Publishes what changed.
    pub(crate) fn publish(&mut self) {
        for managed in self.managed.values_mut() {
            managed.publish();
        }
    }

    /// Works until every sender of updates is gone.
    pub(crate) async fn run(mut self) {
        loop {
            self.publish();
            let deadline = self.deadline();
            tokio::select! {
                update = self.updates.recv() => match update {
                    None => return,
                    Some(update) => self.handle(update),
                },
                () = self.clock.sleep_until(deadline) => self.handle_timeout(),
            }
            for _ in 0..BURST {
                let Ok(update) = self.updates.try_recv() else {
                    break;
                };
                self.handle(update);
            }
        }
    }

    fn handle_cluster(
        &mut self,
        config: Arc<ClusterConfig>,
        options: Arc<UpstreamOptions>,
        now: Instant,
    ) {
        match self.managed.get_mut(config.name()) {
            Some(managed) => {
                managed.balancer.handle_config(config, now);
                managed.handle_options(options);
            }
            None => {
                let managed = self.begin(config, options, now);
                let name = Arc::clone(&managed.cluster.name);
                self.managed.insert(name, managed);
                self.list();
            }
        }
    }

    fn handle_upstream(&mut self, cluster: &Arc<UpstreamCluster>, now: Instant) {
        let options = Arc::new(cluster.options.clone());
        self.handle_cluster(Arc::new(cluster.config.clone()), options, now);
        self.lookups.follow(cluster, self.own.clone());
        let listed = cluster.load_assignment.as_ref();
        if let (Discovery::Static, Some(listed)) = (&cluster.options.discovery, listed) {
            match listed.resolve(|_| &[]) {
                Ok(assignment) => {
                    let name = Arc::clone(cluster.config.name());
                    self.handle(Update::Assignment(name, assignment));
                }
                Err(error) => {
                    let cluster = cluster.config.name();
                    tracing::warn!(%cluster, %error, "endpoints cannot be used");
                }
            }
        }
    }

    fn begin(
        &mut self,
        config: Arc<ClusterConfig>,
        options: Arc<UpstreamOptions>,
        now: Instant,
    ) -> Managed {
        let settings = &mut self.settings;
        settings.seed = settings
            .seed
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
            .wrapping_add(1);
        let name = Arc::clone(config.name());
        let mut balancer = Balancer::new(config, settings.locality.clone(), now);
        let newest = balancer.initial_snapshot(now);
        if let Some(fleet) = &self.originating {
            balancer.handle_originating(fleet.clone(), now);
        }
        let (snapshots, snapshot_reader) = publish::channel(Arc::clone(&newest));
        let known = Arc::new(Endpoints::new());
        let (endpoints, endpoint_reader) = publish::channel(Arc::clone(&known));
        let (ready, is_ready) = watch::channel(false);
        let cluster = Cluster::new(ClusterParts {
            name,
            options,
            snapshots: snapshot_reader,
            endpoints: endpoint_reader,
            ready: is_ready,
            load: Arc::clone(balancer.cluster_load()),
            seed: settings.seed,
        });
        Managed {
            balancer,
            cluster: Arc::new(cluster),
            snapshots,
            newest,
            endpoints,
            known,
            ready,
            pools: settings.pools,
        }
    }

    /// Services that have the cluster keep what they have; requests in flight finish.
    fn remove(&mut self, name: &str) {
        self.lookups.forget(name);
        if let Some(managed) = self.managed.remove(name) {
            // Where load is not reported nobody ever drains them.
            if self.retired.len() == RETIRED {
                self.retired.remove(0);
            }
            self.retired.push(managed.balancer);
            self.list();
        }
    }

    fn drain_load_stats(
        &mut self,
        wanted: Option<&[Arc<str>]>,
        by_endpoint: bool,
        now: Instant,
    ) -> Vec<ClusterLoadStats> {
        let wanted = |name: &Arc<str>| wanted.is_none_or(|names| names.contains(name));
        let managed = self
            .managed
            .values_mut()
            .map(|managed| &mut managed.balancer);
        let balancers = managed.chain(&mut self.retired);
        let balancers = balancers.filter(|balancer| wanted(balancer.config().name()));
        let stats = balancers
            .map(|balancer| balancer.drain_load_stats(by_endpoint, now))
            .collect();
        // What ends after this drain ends in another one, while there is something to end.
        self.retired
            .retain(|balancer| balancer.cluster_load().active() > 0);
        stats
    }

    fn list(&self) {
        let clusters = self.managed.values().map(|managed| {
            let cluster = Arc::clone(&managed.cluster);
            (Arc::clone(&cluster.name), cluster)
        });
        self.clusters.store(Arc::new(clusters.collect()));
    }

    fn deadline(&self) -> Option<Instant> {
        let clusters = self.managed.values();
        clusters
            .filter_map(|managed| managed.balancer.poll_timeout())
            .min()
    }

    fn handle_timeout(&mut self) {
        let now = self.clock.now();
        for managed in self.managed.values_mut() {
            let due = managed.balancer.poll_timeout();
            if due.is_some_and(|due| due <= now) {
                managed.balancer.handle_timeout(now);
            }
        }
    }
}

impl Managed {
    fn publish(&mut self) {
        if let Some(snapshot) = self.balancer.poll_snapshot() {
            let addresses: BTreeSet<SocketAddr> =
                snapshot.hosts().map(|host| host.address()).collect();
            self.add_endpoints(&addresses);
            self.newest = Arc::clone(&snapshot);
            self.snapshots.publish(snapshot);
            self.remove_endpoints(&addresses);
        }
        while let Some(event) = self.balancer.poll_event() {
            tracing::info!(cluster = %self.cluster.name, ?event, "balancing");
        }
    }

    /// Other settings: limits apply at once, connections that differ are dialled anew.
    fn handle_options(&mut self, options: Arc<UpstreamOptions>) {
        if **self.cluster.options.load() == *options {
            return;
        }
        self.cluster.options.store(Arc::clone(&options));
        let renew = |address: &SocketAddr| {
            let endpoint = Endpoint::new(*address, Arc::clone(&options), self.pools);
            (*address, Arc::new(endpoint))
        };
        self.replace(self.known.keys().map(renew).collect());
    }

    fn add_endpoints(&mut self, addresses: &BTreeSet<SocketAddr>) {
        let new = |address: &&SocketAddr| !self.known.contains_key(address);
        let new: Vec<SocketAddr> = addresses.iter().filter(new).copied().collect();
        if new.is_empty() {
            return;
        }
        let options = self.cluster.options.load_full();
        let mut next = Endpoints::clone(&self.known);
        for address in new {
            let endpoint = Endpoint::new(address, Arc::clone(&options), self.pools);
            next.insert(address, Arc::new(endpoint));
        }
        self.replace(next);
    }

    fn remove_endpoints(&mut self, addresses: &BTreeSet<SocketAddr>) {
        if self.known.len() == addresses.len() {
            return;
        }
        let mut next = Endpoints::clone(&self.known);
        next.retain(|address, _| addresses.contains(address));
        self.replace(next);
    }

    fn replace(&mut self, next: Endpoints) {
        self.known = Arc::new(next);
        self.endpoints.publish(Arc::clone(&self.known));
    }
}
