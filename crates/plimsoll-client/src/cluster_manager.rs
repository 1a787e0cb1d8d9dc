//! [`ClusterManager`]: the one writer. Owns every `Balancer`, takes updates, publishes snapshots.
//!
//! What belongs to one cluster is in `managed`. Updates come over one bounded channel; a burst is
//! taken whole before anything is published. Nothing is decided here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use plimsoll_core::assignment_age::AssignmentAge;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::lrs::{ReportedClusters, Wanted as LrsWanted};
use plimsoll_xds::upstream::{Discovery, UpstreamCluster, UpstreamOptions};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::cluster::Cluster;
use crate::cluster_status::ClusterStatus;
use crate::dns::Lookups;
use crate::managed::{Extras, Managed};

/// Updates that may wait for the writer.
const QUEUE: usize = 1024;
/// Updates that are taken before what changed is published.
const BURST: usize = 64;

/// Clusters by name, as services find them.
pub(crate) type Clusters = BTreeMap<Arc<str>, Arc<Cluster>>;

/// What the writer is told.
#[derive(Debug)]
pub(crate) enum Update {
    /// A new cluster, or other settings of one that is known.
    Cluster(Arc<ClusterConfig>, Arc<UpstreamOptions>),
    /// The same with the endpoints that it lists.
    Upstream(Arc<UpstreamCluster>),
    /// The same from the management server.
    Discovered(Arc<UpstreamCluster>),
    /// A cluster is no longer wanted.
    Remove(Arc<str>),
    /// Endpoints of a cluster, whatever name the assignment has.
    Assignment(Arc<str>, ClusterLoadAssignment),
    /// The proxies that are like us: the fleet, with fractions of demand perhaps.
    Originating(ClusterLoadAssignment),
    /// The cluster whose endpoints are the fleet, if it is one of ours.
    LocalCluster(Option<Arc<str>>),
    /// Fractions of demand for one cluster, from the LRS response, and when they were observed.
    ObservedTraffic(Arc<str>, FractionMap, Instant),
    /// A judge other than the assignment says something about a host.
    Health(Arc<str>, SocketAddr, HealthSignal),
    /// What connections and checks need to know of the endpoints of a cluster.
    Extras(Arc<str>, Extras),
    /// One of the active checks, by number, has a verdict on a host.
    Checked(Arc<str>, SocketAddr, (usize, HealthSignal)),
    /// Why does the cluster route as it does?
    Explain(Arc<str>, oneshot::Sender<Option<Explanation>>),
    /// What is every cluster like?
    Status(oneshot::Sender<Vec<ClusterStatus>>),
    /// A server asks for the load of these clusters from now on.
    SelectLoadStats(LrsWanted),
    /// What was sent since the last time?
    DrainLoadStats {
        /// Of which clusters.
        wanted: LrsWanted,
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
    /// Whether every host gets a connection before the first request.
    pub(crate) preconnect: bool,
    /// Start of all chance.
    pub(crate) seed: u64,
    /// Notified when a host has had too many errors in a row.
    pub(crate) suspicion: Arc<Notify>,
}

/// The writer.
#[derive(Debug)]
pub(crate) struct ClusterManager {
    clock: Clock,
    settings: Settings,
    updates: mpsc::Receiver<Update>,
    /// For tasks of ours, which must not keep us alive.
    sender: mpsc::WeakSender<Update>,
    managed: BTreeMap<Arc<str>, Managed>,
    clusters: Arc<ArcSwap<Clusters>>,
    /// Rises when clusters come or go.
    epoch: Arc<AtomicU64>,
    /// Newest fleet and when it arrived: clusters that come later want it too, as old as it is.
    originating: Option<(ClusterLoadAssignment, Instant)>,
    fleet_age: AssignmentAge,
    /// Whose endpoints are the fleet, instead of an assignment that is asked for.
    local_cluster: Option<Arc<str>>,
    /// Whether a cluster can use the fleet's assignment.
    fleet_wanted: watch::Sender<bool>,
    /// Whose load is reported, those that were removed included.
    reported: ReportedClusters,
    lookups: Lookups,
}

impl ClusterManager {
    /// A writer of no cluster, and the way to it.
    pub(crate) fn new(settings: Settings) -> (Self, mpsc::Sender<Update>) {
        let (sender, updates) = mpsc::channel(QUEUE);
        let manager = Self {
            clock: Clock::system(),
            settings,
            updates,
            sender: sender.downgrade(),
            managed: BTreeMap::new(),
            clusters: Arc::default(),
            epoch: Arc::default(),
            originating: None,
            fleet_age: AssignmentAge::default(),
            local_cluster: None,
            fleet_wanted: watch::Sender::new(false),
            reported: ReportedClusters::default(),
            lookups: Lookups::default(),
        };
        (manager, sender)
    }

    /// Where clusters are found.
    pub(crate) fn clusters(&self) -> Arc<ArcSwap<Clusters>> {
        Arc::clone(&self.clusters)
    }

    /// Rises when clusters come or go, and only then.
    pub(crate) fn epoch(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.epoch)
    }

    /// Whether a cluster can use the fleet's assignment, now and later.
    pub(crate) fn fleet_wanted(&self) -> watch::Receiver<bool> {
        self.fleet_wanted.subscribe()
    }

    /// Takes an update.
    pub(crate) fn handle(&mut self, update: Update) {
        let now = self.clock.now();
        match update {
            Update::Cluster(config, options) => self.handle_cluster(config, options, now),
            Update::Upstream(cluster) => self.handle_upstream(&cluster, false, now),
            Update::Discovered(cluster) => self.handle_upstream(&cluster, true, now),
            Update::Remove(name) => self.remove(&name),
            Update::Assignment(name, assignment) => {
                if self.local_cluster.as_ref() == Some(&name) {
                    self.handle_originating(assignment.clone(), now);
                }
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.handle_assignment(assignment, now);
                }
            }
            Update::Originating(assignment) => {
                self.fleet_age.handle_assignment(&assignment, now);
                self.handle_originating(assignment, now);
            }
            Update::LocalCluster(name) => self.local_cluster = name,
            Update::ObservedTraffic(name, fractions, observed_at) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    let balancer = &mut managed.balancer;
                    balancer.handle_observation(fractions, observed_at, now);
                }
            }
            Update::Health(name, address, signal) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.handle_health(address, signal, now);
                }
            }
            Update::Extras(name, extras) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.handle_extras(extras, now);
                }
            }
            Update::Checked(name, address, verdict) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.handle_verdict(address, verdict, now);
                }
            }
            // Whoever asked the rest may have gone.
            Update::Explain(name, reply) => {
                self.publish();
                let managed = self.managed.get(&name);
                let _ = reply.send(managed.map(|managed| managed.newest.explain_at(now)));
            }
            Update::Status(reply) => {
                self.publish();
                let _ = reply.send(self.managed.values().map(Managed::status).collect());
            }
            Update::SelectLoadStats(wanted) => {
                self.reported
                    .select(wanted, balancers(&mut self.managed), now);
            }
            Update::DrainLoadStats {
                wanted,
                by_endpoint,
                reply,
            } => {
                let balancers = balancers(&mut self.managed);
                let stats = self.reported.drain(&wanted, balancers, by_endpoint, now);
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
        let now = self.clock.now();
        for managed in self.managed.values_mut() {
            managed.publish(now);
            // Judging new hosts may have changed something at once.
            managed.publish(now);
        }
    }

    /// Works until every sender of updates is gone.
    pub(crate) async fn run(mut self) {
        let suspicion = Arc::clone(&self.settings.suspicion);
        loop {
            self.publish();
            let deadline = self.deadline();
            tokio::select! {
                update = self.updates.recv() => match update {
                    None => return,
                    Some(update) => self.handle(update),
                },
                () = self.clock.sleep_until(deadline) => self.handle_timeout(),
                () = suspicion.notified() => {
                    let now = self.clock.now();
                    for managed in self.managed.values_mut() {
                        managed.handle_suspects(now);
                    }
                }
            }
            for _ in 0..BURST {
                let Ok(update) = self.updates.try_recv() else {
                    break;
                };
                self.handle(update);
            }
        }
    }

    fn handle_originating(&mut self, assignment: ClusterLoadAssignment, now: Instant) {
        for managed in self.managed.values_mut() {
            managed.balancer.handle_originating(assignment.clone(), now);
        }
        self.originating = Some((assignment, now));
    }

    fn handle_cluster(
        &mut self,
        config: Arc<ClusterConfig>,
        options: Arc<UpstreamOptions>,
        now: Instant,
    ) {
        match self.managed.get_mut(config.name()) {
            Some(managed) => managed.handle_config(&config, options, now),
            None => {
                let settings = &mut self.settings;
                settings.seed = settings
                    .seed
                    .wrapping_mul(0x2545_f491_4f6c_dd1d)
                    .wrapping_add(1);
                let updates = self.sender.clone();
                let mut managed = Managed::new(&config, options, settings, updates, now);
                if let Some((fleet, received_at)) = &self.originating {
                    let balancer = &mut managed.balancer;
                    balancer.handle_known_originating(fleet.clone(), *received_at, now);
                }
                self.managed.insert(Arc::clone(config.name()), managed);
                self.list();
            }
        }
        self.want_fleet();
    }

    /// Asks for the fleet's assignment as long as a cluster can use it.
    fn want_fleet(&self) {
        let mut managed = self.managed.values();
        let wanted = managed.any(|managed| managed.balancer.config().uses_fleet());
        let is_news = |known: &mut bool| std::mem::replace(known, wanted) != wanted;
        self.fleet_wanted.send_if_modified(is_news);
    }

    fn handle_upstream(
        &mut self,
        cluster: &Arc<UpstreamCluster>,
        added_via_api: bool,
        now: Instant,
    ) {
        let options = Arc::new(cluster.options.clone());
        self.handle_cluster(Arc::new(cluster.config.clone()), options, now);
        if let Some(managed) = self.managed.get_mut(cluster.config.name()) {
            managed.added_via_api = added_via_api;
        }
        self.lookups.follow(cluster, self.sender.clone());
        let listed = cluster.load_assignment.as_ref();
        if let (Discovery::Static, Some(listed)) = (&cluster.options.discovery, listed) {
            match listed.resolve(|_| &[]) {
                Ok(assignment) => {
                    let name = cluster.config.name();
                    self.handle(Update::Extras(Arc::clone(name), listed.extras()));
                    self.handle(Update::Assignment(Arc::clone(name), assignment));
                }
                Err(error) => {
                    let cluster = cluster.config.name();
                    tracing::warn!(%cluster, %error, "endpoints cannot be used");
                }
            }
        }
    }

    /// Services that have the cluster keep what they have; requests in flight finish.
    fn remove(&mut self, name: &str) {
        self.lookups.forget(name);
        if let Some(managed) = self.managed.remove(name) {
            // Where load is not reported nobody ever drains them.
            self.reported.retire(managed.balancer);
            self.list();
            self.want_fleet();
        }
    }

    fn list(&self) {
        let clusters = self.managed.values().map(|managed| {
            let cluster = Arc::clone(&managed.cluster);
            (Arc::clone(&cluster.name), cluster)
        });
        self.clusters.store(Arc::new(clusters.collect()));
        // After the list: whoever sees the new epoch finds the new clusters.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    fn deadline(&self) -> Option<Instant> {
        let clusters = self.managed.values();
        let clusters = clusters.filter_map(Managed::poll_timeout);
        clusters.chain(self.fleet_age.poll_timeout()).min()
    }

    fn handle_timeout(&mut self) {
        let now = self.clock.now();
        if let Some((stale_after, empty)) = self.fleet_age.handle_timeout(now) {
            let endpoint_stale_after_s = stale_after.as_secs_f64();
            tracing::warn!(
                fleet = %empty.cluster_name(), endpoint_stale_after_s,
                "endpoints of the fleet are stale; zone-aware routing waits for the next ones"
            );
            self.handle_originating(empty, now);
        }
        for managed in self.managed.values_mut() {
            let due = managed.poll_timeout();
            if due.is_some_and(|due| due <= now) {
                managed.handle_timeout(now);
            }
        }
    }
}

fn balancers(managed: &mut BTreeMap<Arc<str>, Managed>) -> impl Iterator<Item = &mut Balancer> {
    managed.values_mut().map(|managed| &mut managed.balancer)
}

#[cfg(test)]
mod tests;
