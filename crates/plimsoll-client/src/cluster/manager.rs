//! [`ClusterManager`]: the only writer of cluster state. Owns every `Balancer`, applies updates and
//! publishes snapshots.
//!
//! `managed` holds the state of one cluster. Updates arrive over one bounded channel; a burst of
//! them is applied before snapshots are published.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use plimsoll_core::assignment_age::AssignmentAge;
use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::log_line;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::lrs::{ClusterSelection, ReportedClusters};
use plimsoll_xds::upstream::{ClusterEndpoints, Discovery, UpstreamCluster, UpstreamOptions};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::cluster::Cluster;
use crate::cluster::dns::DnsResolvers;
use crate::cluster::initial_fetch::InitialFetch;
use crate::cluster::managed::ManagedCluster;
use crate::cluster::status::ClusterStatus;
use crate::config::checks;
use crate::log_lines;
use crate::request::attempt_span::Tracing;

const QUEUE_CAPACITY: usize = 1024;
/// Maximum number of names of clusters whose fractions are kept. A management server may send
/// fractions of clusters that this client never gets.
const MAX_OBSERVED: usize = 10_000;
/// Maximum number of updates applied before new snapshots are published.
const MAX_BURST: usize = 64;

pub(crate) type Clusters = BTreeMap<Arc<str>, Arc<Cluster>>;

#[derive(Debug)]
pub(crate) enum Update {
    Cluster(Arc<ClusterConfig>, Arc<UpstreamOptions>),
    /// Like `Cluster`, but with endpoints listed in the cluster or DNS names to resolve.
    Upstream(Arc<UpstreamCluster>),
    /// Like `Upstream`, from the management server.
    #[cfg(feature = "xds")]
    Discovered(Arc<UpstreamCluster>),
    Remove(Arc<str>),
    /// Endpoints of the named cluster, whatever `cluster_name` the assignment has.
    Endpoints(Arc<str>, ClusterEndpoints),
    /// Endpoints of the fleet (Envoy's originating cluster), possibly with fractions of demand.
    #[cfg(feature = "xds")]
    Originating(ClusterLoadAssignment),
    /// Endpoints of the fleet from the program: their fractions are stated, not measured.
    StatedFleet(ClusterLoadAssignment),
    StatedDemand(StatedDemand),
    /// The cluster whose endpoints are the fleet, if the program adds it itself.
    LocalCluster(Option<Arc<str>>),
    /// Fractions of demand of one cluster from an LRS response, and when they were observed.
    ObservedTraffic(Arc<str>, FractionMap, Instant),
    Health(Arc<str>, SocketAddr, HealthSignal),
    Checked {
        cluster: Arc<str>,
        address: SocketAddr,
        check: usize,
        signal: HealthSignal,
    },
    Explain(Arc<str>, oneshot::Sender<Option<Explanation>>),
    Status(oneshot::Sender<Vec<ClusterStatus>>),
    #[cfg(feature = "xds")]
    SelectLoadStats(ClusterSelection),
    DrainLoadStats {
        wanted: ClusterSelection,
        by_endpoint: bool,
        reply: oneshot::Sender<Vec<ClusterLoadStats>>,
    },
    /// Replies once the snapshots with all earlier updates are published.
    Flush(oneshot::Sender<()>),
    /// Closes all connections and ends the manager.
    Shutdown,
}

/// Demand that the program states, for all clusters.
#[derive(Debug)]
pub(crate) struct StatedDemand {
    pub(crate) demand: FractionMap,
    /// Refuses zones that no cluster has.
    pub(crate) check_zones: bool,
    pub(crate) reply: oneshot::Sender<Result<(), FieldError>>,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) locality: Locality,
    pub(crate) pools: usize,
    pub(crate) preconnect: bool,
    pub(crate) seed: u64,
    /// Notified when a host reaches the consecutive-error threshold of outlier detection.
    pub(crate) outlier_notify: Arc<Notify>,
    pub(crate) initial_fetch: Arc<InitialFetch>,
    pub(crate) tracing: Tracing,
}

#[derive(Debug)]
pub(crate) struct ClusterManager {
    clock: Clock,
    settings: Settings,
    updates: mpsc::Receiver<Update>,
    /// Sender for the manager's own tasks; weak, so that they do not keep the manager alive.
    sender: mpsc::WeakSender<Update>,
    managed: BTreeMap<Arc<str>, ManagedCluster>,
    clusters: Arc<ArcSwap<Clusters>>,
    epoch: Arc<AtomicU64>,
    /// Newest assignment of the fleet, for clusters that are added later, and the time from which
    /// on the age of its fractions counts: none if they are stated.
    originating: Option<(ClusterLoadAssignment, Option<Instant>)>,
    /// Demand that the program states; empty if it does not.
    stated_demand: FractionMap,
    /// Newest fractions from LRS responses, and when they were observed: they may arrive before
    /// their cluster, and the next ones only a heartbeat later.
    observed: BTreeMap<Arc<str>, (FractionMap, Instant)>,
    fleet_age: AssignmentAge,
    /// Cluster whose endpoints are the fleet, instead of a separate assignment.
    local_cluster: Option<Arc<str>>,
    fleet_needed: watch::Sender<bool>,
    /// Clusters whose load is reported (LRS), including removed ones with undrained counts.
    reported: ReportedClusters,
    dns: DnsResolvers,
    /// The client was dropped with its services, or shut down.
    finished: bool,
}

impl ClusterManager {
    pub(crate) fn new(settings: Settings) -> (Self, mpsc::Sender<Update>) {
        let (sender, updates) = mpsc::channel(QUEUE_CAPACITY);
        let manager = Self {
            clock: Clock::system(),
            settings,
            updates,
            sender: sender.downgrade(),
            managed: BTreeMap::new(),
            clusters: Arc::default(),
            epoch: Arc::default(),
            originating: None,
            stated_demand: FractionMap::new(),
            observed: BTreeMap::new(),
            fleet_age: AssignmentAge::default(),
            local_cluster: None,
            fleet_needed: watch::Sender::new(false),
            reported: ReportedClusters::default(),
            dns: DnsResolvers::default(),
            finished: false,
        };
        (manager, sender)
    }

    pub(crate) fn clusters(&self) -> Arc<ArcSwap<Clusters>> {
        Arc::clone(&self.clusters)
    }

    pub(crate) fn epoch(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.epoch)
    }

    #[cfg(feature = "xds")]
    pub(crate) fn fleet_needed(&self) -> watch::Receiver<bool> {
        self.fleet_needed.subscribe()
    }

    /// Applies an update. Requests see it once [`Self::publish`] has published a snapshot.
    pub(crate) fn handle(&mut self, update: Update) {
        let now = self.clock.now();
        match update {
            Update::Cluster(config, options) => self.handle_cluster(config, options, now),
            Update::Upstream(cluster) => self.handle_upstream(&cluster, false, now),
            #[cfg(feature = "xds")]
            Update::Discovered(cluster) => self.handle_upstream(&cluster, true, now),
            Update::Remove(name) => self.remove(&name),
            Update::Endpoints(name, endpoints) => self.handle_endpoints(&name, endpoints, now),
            #[cfg(feature = "xds")]
            Update::Originating(fleet) => self.handle_originating(fleet, Some(now), now),
            Update::StatedFleet(fleet) => self.handle_originating(fleet, None, now),
            Update::StatedDemand(stated) => self.handle_stated_demand(stated),
            Update::LocalCluster(name) => self.local_cluster = name,
            Update::ObservedTraffic(name, fractions, observed_at) => {
                self.handle_observed_traffic(name, fractions, observed_at, now);
            }
            Update::Health(name, address, signal) => {
                if let Some(managed) = self.managed.get_mut(&name) {
                    managed.handle_health(address, signal, now);
                }
            }
            Update::Checked {
                cluster,
                address,
                check,
                signal,
            } => {
                if let Some(managed) = self.managed.get_mut(&cluster) {
                    managed.handle_check_result(address, check, signal, now);
                }
            }
            // In the arms below, the receiver of `reply` may have been dropped; ignore send errors.
            Update::Explain(name, reply) => {
                self.publish();
                let managed = self.managed.get(&name);
                let _ = reply.send(managed.map(|managed| managed.newest.routing().explain_at(now)));
            }
            Update::Status(reply) => {
                self.publish();
                let _ = reply.send(self.managed.values().map(ManagedCluster::status).collect());
            }
            #[cfg(feature = "xds")]
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
            Update::Shutdown => {
                for managed in self.managed.values() {
                    managed.close_connections();
                }
                self.finished = true;
            }
        }
    }

    pub(crate) fn publish(&mut self) {
        let now = self.clock.now();
        for managed in self.managed.values_mut() {
            managed.publish(now);
        }
    }

    pub(crate) async fn run(mut self) {
        let outlier_notify = Arc::clone(&self.settings.outlier_notify);
        while !self.finished {
            self.publish();
            let deadline = self.deadline();
            tokio::select! {
                update = self.updates.recv() => match update {
                    None => self.finished = true,
                    Some(update) => self.handle(update),
                },
                () = self.clock.sleep_until(deadline) => self.handle_timeout(),
                () = outlier_notify.notified() => {
                    let now = self.clock.now();
                    for managed in self.managed.values_mut() {
                        managed.handle_outlier_candidates(now);
                    }
                }
            }
            for _ in 0..MAX_BURST {
                let Ok(update) = self.updates.try_recv() else {
                    break;
                };
                self.handle(update);
            }
        }
    }

    fn handle_endpoints(&mut self, name: &Arc<str>, endpoints: ClusterEndpoints, now: Instant) {
        if self.local_cluster.as_ref() == Some(name) {
            let discovered = self.managed.get(name).is_some_and(is_eds).then_some(now);
            self.handle_fleet_assignment(endpoints.assignment.clone(), discovered, now);
        }
        if let Some(managed) = self.managed.get_mut(name) {
            managed.handle_endpoints(endpoints, now);
        }
    }

    fn handle_originating(
        &mut self,
        fleet: ClusterLoadAssignment,
        received_at: Option<Instant>,
        now: Instant,
    ) {
        self.fleet_age.handle_assignment(&fleet, now);
        self.handle_fleet_assignment(fleet, received_at, now);
    }

    fn handle_observed_traffic(
        &mut self,
        name: Arc<str>,
        fractions: FractionMap,
        observed_at: Instant,
        now: Instant,
    ) {
        if let Some(managed) = self.managed.get_mut(&name) {
            let (balancer, fractions) = (&mut managed.balancer, fractions.clone());
            balancer.handle_observed_traffic_at(fractions, observed_at, now);
        }
        if fractions.is_empty() {
            self.observed.remove(&name);
        } else if self.observed.len() < MAX_OBSERVED || self.observed.contains_key(&name) {
            self.observed.insert(name, (fractions, observed_at));
        }
    }

    fn handle_stated_demand(&mut self, stated: StatedDemand) {
        let checked = self.check_demand(&stated.demand, stated.check_zones);
        if checked.is_ok() {
            self.state_demand(stated.demand);
        }
        // The receiver may have been dropped; ignore send errors.
        let _ = stated.reply.send(checked);
    }

    fn handle_fleet_assignment(
        &mut self,
        assignment: ClusterLoadAssignment,
        received_at: Option<Instant>,
        now: Instant,
    ) {
        for managed in self.managed.values_mut() {
            let (balancer, fleet) = (&mut managed.balancer, assignment.clone());
            balancer.handle_cached_fleet_assignment(fleet, received_at, now);
        }
        self.originating = Some((assignment, received_at));
    }

    /// Applies demand that the program states to all clusters, also to those added later.
    pub(crate) fn state_demand(&mut self, demand: FractionMap) {
        let now = self.clock.now();
        for managed in self.managed.values_mut() {
            managed.balancer.handle_stated_demand(demand.clone(), now);
        }
        self.stated_demand = demand;
    }

    fn check_demand(&self, demand: &FractionMap, check_zones: bool) -> Result<(), FieldError> {
        let hosts = self.managed.values().flat_map(|one| one.balancer.hosts());
        // A zone of the last demand may be one that was declared without hosts.
        let known = hosts
            .map(|(host, ..)| host.locality())
            .chain(self.stated_demand.keys());
        let known = check_zones.then(|| known.collect());
        checks::check_demand(demand, &self.settings.locality, known.as_ref())
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
                let mut managed = ManagedCluster::new(&config, options, settings, updates, now);
                if let Some((fleet, received_at)) = &self.originating {
                    let balancer = &mut managed.balancer;
                    balancer.handle_cached_fleet_assignment(fleet.clone(), *received_at, now);
                }
                if !self.stated_demand.is_empty() {
                    let demand = self.stated_demand.clone();
                    managed.balancer.handle_stated_demand(demand, now);
                }
                if let Some((fractions, observed_at)) = self.observed.get(config.name()) {
                    let (balancer, fractions) = (&mut managed.balancer, fractions.clone());
                    balancer.handle_observed_traffic_at(fractions, *observed_at, now);
                }
                self.settings.initial_fetch.handle_cluster(&managed.cluster);
                self.managed.insert(Arc::clone(config.name()), managed);
                self.publish_clusters();
            }
        }
        self.update_fleet_needed();
    }

    fn update_fleet_needed(&self) {
        let mut managed = self.managed.values();
        let needed = managed.any(|managed| managed.balancer.config().uses_fleet());
        self.fleet_needed
            .send_if_modified(|current| std::mem::replace(current, needed) != needed);
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
            let limits = &managed.cluster.limits;
            limits.added_via_api.store(added_via_api, Ordering::Relaxed);
            let shared = Arc::clone(&managed.cluster);
            self.dns.watch(cluster, shared, self.sender.clone());
        }
        let listed = cluster.load_assignment.as_ref();
        if let (Discovery::Static, Some(listed)) = (&cluster.options.discovery, listed) {
            match listed.resolve(|_| &[]) {
                Ok(endpoints) => {
                    let name = Arc::clone(cluster.config.name());
                    self.handle(Update::Endpoints(name, endpoints));
                }
                Err(error) => {
                    let cluster = cluster.config.name();
                    log_line!(log_lines::STATIC_ENDPOINTS_REJECTED, %cluster, %error);
                }
            }
        }
    }

    /// Removes a cluster. Existing services keep its last snapshot; requests in flight finish.
    fn remove(&mut self, name: &str) {
        self.dns.stop(name);
        self.settings.initial_fetch.handle_removed(name);
        if let Some(managed) = self.managed.remove(name) {
            // Undrained load counts stay until the next load report.
            self.reported.retire(managed.balancer);
            self.publish_clusters();
            self.update_fleet_needed();
        }
    }

    fn publish_clusters(&self) {
        let clusters = self.managed.values().map(|managed| {
            let cluster = Arc::clone(&managed.cluster);
            (Arc::clone(&cluster.name), cluster)
        });
        self.clusters.store(Arc::new(clusters.collect()));
        // After the store: a reader that sees the new epoch also sees the new clusters.
        self.epoch.fetch_add(1, Ordering::Release);
        self.settings.initial_fetch.changed.notify_waiters();
    }

    fn deadline(&self) -> Option<Instant> {
        self.managed
            .values()
            .filter_map(ManagedCluster::poll_timeout)
            .chain(self.fleet_age.poll_timeout())
            .min()
    }

    fn handle_timeout(&mut self) {
        let now = self.clock.now();
        if let Some((stale_after, empty)) = self.fleet_age.handle_timeout(now) {
            let endpoint_stale_after_s = stale_after.as_secs_f64();
            let fleet = empty.cluster_name();
            log_line!(log_lines::FLEET_STALE, %fleet, endpoint_stale_after_s);
            self.handle_fleet_assignment(empty, Some(now), now);
        }
        for managed in self.managed.values_mut() {
            let due = managed.poll_timeout();
            if due.is_some_and(|due| due <= now) {
                managed.handle_timeout(now);
            }
        }
    }
}

impl Drop for ClusterManager {
    /// Runs when the runtime drops the task of [`ClusterManager::run`], too.
    fn drop(&mut self) {
        if !self.finished {
            self.settings.initial_fetch.handle_end_of_runtime();
        }
    }
}

fn is_eds(managed: &ManagedCluster) -> bool {
    let options = managed.cluster.options.load();
    matches!(options.discovery, Discovery::Eds { .. })
}

fn balancers(
    managed: &mut BTreeMap<Arc<str>, ManagedCluster>,
) -> impl Iterator<Item = &mut Balancer> {
    managed.values_mut().map(|managed| &mut managed.balancer)
}

#[cfg(test)]
#[cfg(feature = "xds")]
mod tests;
