//! [`Client`]: the clusters of a process and the task behind them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
#[cfg(feature = "tonic")]
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use plimsoll_core::event::Event;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::lrs::Wanted as LrsWanted;
use plimsoll_xds::route::RouteConfiguration;
use plimsoll_xds::service_config::GrpcFeatures;
use plimsoll_xds::upstream::{EndpointExtras, UpstreamCluster, UpstreamOptions};
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cluster::Cluster;
use crate::cluster_manager::{ClusterManager, Clusters, Settings, Update};
use crate::cluster_status::ClusterStatus;
use crate::endpoint::next_draw;
use crate::error::{Error, ErrorKind};
use crate::layer::ClusterLayer;
use crate::metrics;
use crate::service::ClusterService;
use crate::service_config;
use crate::target::TargetService;
use crate::xds::subscriber::{self, Wanted, XdsHandle};
use crate::xds::{Following, XdsOptions, XdsStatus};

/// The clusters of a process. Cloning is cheap; the tasks behind it end with the last clone.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clusters: Arc<ArcSwap<Clusters>>,
    cluster_epoch: Arc<AtomicU64>,
    updates: mpsc::Sender<Update>,
    xds: Option<XdsHandle>,
    /// Where the draws of the next target start.
    seeds: AtomicU64,
}

/// A client that does not keep its tasks alive.
#[cfg(feature = "tonic")]
#[derive(Debug)]
pub(crate) struct WeakClient(Weak<Inner>);

#[cfg(feature = "tonic")]
impl WeakClient {
    /// The client, if somebody else has it.
    pub(crate) fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(Client)
    }
}

/// Collects what a client is made of.
#[derive(Debug, Default)]
pub struct ClientBuilder {
    locality: Locality,
    originating: Option<ClusterLoadAssignment>,
    clusters: Vec<(ClusterConfig, ClusterLoadAssignment, UpstreamOptions)>,
    upstreams: Vec<UpstreamCluster>,
    xds: Option<XdsOptions>,
    pools: usize,
    preconnect: bool,
    seed: Option<u64>,
}

impl ClientBuilder {
    /// Where this process is.
    #[must_use]
    pub fn locality(mut self, locality: Locality) -> Self {
        self.locality = locality;
        self
    }

    /// The processes that are like this one, by zone: what zone-aware routing compares with.
    #[must_use]
    pub fn originating(mut self, fleet: ClusterLoadAssignment) -> Self {
        self.originating = Some(fleet);
        self
    }

    /// One cluster with fixed endpoints. They may be replaced with [`Client::update_endpoints`].
    #[must_use]
    pub fn cluster(
        mut self,
        config: ClusterConfig,
        endpoints: ClusterLoadAssignment,
        options: UpstreamOptions,
    ) -> Self {
        self.clusters.push((config, endpoints, options));
        self
    }

    /// One cluster as a file has it, with the endpoints that it lists. Those that come by EDS need
    /// [`Self::xds`].
    #[must_use]
    pub fn upstream(mut self, cluster: UpstreamCluster) -> Self {
        self.upstreams.push(cluster);
        self
    }

    /// Balances a cluster that was added before by a gRPC service config: JSON as a gRPC channel
    /// takes it as its default, of which `loadBalancingConfig` counts. `weighted_round_robin` (gRFC
    /// A58) and `round_robin` are supported; the first of the list that is wins. Clusters of a
    /// management server are balanced as that says.
    ///
    /// `metricNamesForComputingUtilization` (gRFC A114) has an effect only if the environment
    /// variable [`WRR_CUSTOM_METRICS`](crate::WRR_CUSTOM_METRICS) is `true`, as in gRPC.
    pub fn service_config(self, cluster: &str, json: &str) -> Result<Self, Error> {
        self.service_config_with(cluster, json, service_config::features_of_environment())
    }

    /// The same with features that the program chooses, whatever the environment says.
    pub fn service_config_with(
        mut self,
        cluster: &str,
        json: &str,
        features: GrpcFeatures,
    ) -> Result<Self, Error> {
        let given = self.clusters.iter_mut().map(|(config, ..)| config);
        let read = self
            .upstreams
            .iter_mut()
            .map(|upstream| &mut upstream.config);
        let mut configs = given.chain(read);
        let found = configs.find(|config| **config.name() == *cluster);
        let config = found.ok_or_else(|| {
            let message = format!("service config: no cluster {cluster:?} was added before");
            Error::new(ErrorKind::UnknownCluster, message)
        })?;
        *config = service_config::apply(config, json, features)?;
        Ok(self)
    }

    /// A management server; its node says where this process is.
    #[must_use]
    pub fn xds(mut self, options: XdsOptions) -> Self {
        self.locality = options.locality().clone();
        self.xds = Some(options);
        self
    }

    /// Connection pools per host, for programs with a runtime per core: see
    /// [`Client::service_on`]. One.
    #[must_use]
    pub const fn pools(mut self, pools: usize) -> Self {
        self.pools = pools;
        self
    }

    /// Opens a connection to every host as soon as it is known, rather than with its first request.
    /// Without effect when there are several pools.
    #[must_use]
    pub const fn preconnect(mut self, preconnect: bool) -> Self {
        self.preconnect = preconnect;
        self
    }

    /// Fixes all chance, for tests.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the client; needs a tokio runtime around it.
    pub fn build(self) -> Client {
        // Each RandomState has keys of its own.
        let entropy = || RandomState::new().build_hasher().finish();
        let seed = self.seed.unwrap_or_else(entropy);
        let (mut manager, updates) = ClusterManager::new(Settings {
            locality: self.locality,
            pools: self.pools.max(1),
            preconnect: self.preconnect,
            suspicion: Arc::default(),
            seed,
        });
        if let Some(fleet) = self.originating {
            manager.handle(Update::Originating(fleet));
        }
        for (config, endpoints, options) in self.clusters {
            let name = Arc::clone(config.name());
            manager.handle(Update::Cluster(Arc::new(config), Arc::new(options)));
            manager.handle(Update::Assignment(name, endpoints));
        }
        for cluster in self.upstreams {
            manager.handle(Update::Upstream(Arc::new(cluster)));
        }
        manager.publish();
        let (clusters, cluster_epoch) = (manager.clusters(), manager.epoch());
        let fleet_wanted = manager.fleet_wanted();
        tokio::spawn(manager.run());
        let start = |options| subscriber::start(options, &updates, fleet_wanted);
        let xds = self.xds.map(start);
        Client(Arc::new(Inner {
            clusters,
            cluster_epoch,
            updates,
            xds,
            seeds: seed.rotate_left(32).into(),
        }))
    }
}

impl Client {
    /// Collects what a client is made of.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A service that sends to a cluster.
    pub fn service(&self, cluster: &str) -> Result<ClusterService, Error> {
        self.service_on(cluster, 0)
    }

    /// The same with the connections of one pool, for a runtime that has it to itself.
    pub fn service_on(&self, cluster: &str, pool: usize) -> Result<ClusterService, Error> {
        Ok(ClusterService::new(self.find(cluster)?, pool))
    }

    pub(crate) fn find(&self, cluster: &str) -> Result<Arc<Cluster>, Error> {
        let clusters = self.0.clusters.load();
        let found = clusters.get(cluster).cloned();
        found.ok_or_else(|| {
            let known: Vec<&str> = clusters.keys().map(AsRef::as_ref).collect();
            let message = format!("cluster {cluster:?} is not known; known are {known:?}");
            Error::new(ErrorKind::UnknownCluster, message)
        })
    }

    /// A layer that balances the requests of another HTTP client over a cluster.
    pub fn layer(&self, cluster: &str) -> Result<ClusterLayer, Error> {
        Ok(ClusterLayer::new(self.find(cluster)?))
    }

    /// A service that sends where the routes of a target say: `xds:///name`. Waits until the
    /// management server has said so.
    pub async fn target(&self, target: &str) -> Result<TargetService, Error> {
        let name = target_name(target)?;
        let xds = self.xds()?;
        let listener = xds.listener_name(&name);
        let wanted = Wanted::Listener(Arc::clone(&listener));
        xds.wanted.send(wanted).await.map_err(|_| closed())?;
        xds.wait_for_routes(&listener).await?;
        Ok(TargetService::new(self.clone(), listener, name))
    }

    /// How discovery is doing; `None` without a management server.
    pub fn xds_status(&self) -> Option<XdsStatus> {
        let xds = self.0.xds.as_ref()?;
        Some(xds.status.borrow().clone())
    }

    /// Follows routes by name, and endpoints of clusters that the program adds itself, instead of
    /// those that were followed before. Clusters come first, as with [`Self::set_upstream`].
    pub async fn follow(&self, following: Following) -> Result<(), Error> {
        let wanted = Wanted::Following(following);
        self.xds()?.wanted.send(wanted).await.map_err(|_| closed())
    }

    /// The newest good routes of a name that is followed, once there are any and their clusters are
    /// there.
    pub fn route_configuration(&self, name: &str) -> Option<Arc<RouteConfiguration>> {
        let xds = self.0.xds.as_ref()?;
        xds.routes.load().followed.get(name).cloned()
    }

    /// A number that changes whenever routes do; `None` without a management server.
    pub fn routes_changed(&self) -> Option<watch::Receiver<u64>> {
        self.0.xds.as_ref().map(|xds| xds.routed.clone())
    }

    pub(crate) fn routes_of(&self, target: &str) -> Result<Arc<RouteConfiguration>, Error> {
        let routes = self.xds()?.routes.load();
        let unknown = || Error::new(ErrorKind::NoRoute, format!("no routes for {target:?}"));
        routes.targets.get(target).cloned().ok_or_else(unknown)
    }

    #[cfg(feature = "tonic")]
    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.0))
    }

    /// Draws that nobody else has.
    pub(crate) fn next_rng(&self) -> Xoshiro256 {
        Xoshiro256::from_seed(next_draw(&self.0.seeds))
    }

    fn xds(&self) -> Result<&XdsHandle, Error> {
        let none = || Error::new(ErrorKind::Config, "targets need a management server");
        self.0.xds.as_ref().ok_or_else(none)
    }

    /// Names of the clusters.
    pub fn cluster_names(&self) -> Vec<Arc<str>> {
        self.0.clusters.load().keys().cloned().collect()
    }

    /// Rises when clusters come or go, and only then: a service of an earlier epoch may belong to a
    /// cluster that was removed.
    pub fn cluster_epoch(&self) -> u64 {
        self.0.cluster_epoch.load(Ordering::Acquire)
    }

    /// Adds a cluster, or replaces the settings of one, without losing requests or what is known of
    /// its hosts. Once this returns, [`Self::service`] finds it.
    pub async fn set_cluster(
        &self,
        config: ClusterConfig,
        options: UpstreamOptions,
    ) -> Result<(), Error> {
        self.update(Update::Cluster(Arc::new(config), Arc::new(options)))
            .await?;
        self.flush().await
    }

    /// The same for a cluster as a file has it, with the endpoints that it lists.
    pub async fn set_upstream(&self, cluster: UpstreamCluster) -> Result<(), Error> {
        self.update(Update::Upstream(Arc::new(cluster))).await?;
        self.flush().await
    }

    /// Forgets a cluster. Requests in flight finish.
    pub async fn remove_cluster(&self, cluster: &str) -> Result<(), Error> {
        self.update(Update::Remove(cluster.into())).await?;
        self.flush().await
    }

    /// Replaces the endpoints of a cluster. Requests in flight finish where they are.
    pub async fn update_endpoints(&self, endpoints: ClusterLoadAssignment) -> Result<(), Error> {
        let name = Arc::clone(endpoints.cluster_name());
        self.update(Update::Assignment(name, endpoints)).await?;
        self.flush().await
    }

    /// Says what connections and checks need to know of the endpoints of a cluster: further
    /// addresses of a host, where it is checked. Replaces what was said before.
    pub async fn update_endpoint_extras(
        &self,
        cluster: &str,
        extras: BTreeMap<SocketAddr, EndpointExtras>,
    ) -> Result<(), Error> {
        self.update(Update::Extras(cluster.into(), extras)).await?;
        self.flush().await
    }

    /// Takes the endpoints of a cluster that the program adds itself for the fleet of processes
    /// like this one, listed or looked up in DNS, from its next update on: say so before
    /// [`Self::set_upstream`]. The management server should then not be asked for another one:
    /// [`Following::local_cluster_name`].
    pub async fn set_local_cluster(&self, cluster: Option<&str>) -> Result<(), Error> {
        let cluster = cluster.map(Arc::from);
        self.update(Update::LocalCluster(cluster)).await?;
        self.flush().await
    }

    /// Replaces the fleet of processes like this one.
    pub async fn update_originating(&self, fleet: ClusterLoadAssignment) -> Result<(), Error> {
        self.update(Update::Originating(fleet)).await?;
        self.flush().await
    }

    /// Says what a health check or another judge found.
    pub async fn update_health(
        &self,
        cluster: &str,
        address: SocketAddr,
        signal: HealthSignal,
    ) -> Result<(), Error> {
        self.update(Update::Health(cluster.into(), address, signal))
            .await?;
        self.flush().await
    }

    /// Shares of demand by zone for one cluster, from whoever measures them. Those that come with
    /// the endpoints or the fleet need no call.
    pub async fn update_observed_traffic(
        &self,
        cluster: &str,
        fractions: FractionMap,
    ) -> Result<(), Error> {
        let now = Clock::system().now();
        self.update(Update::ObservedTraffic(cluster.into(), fractions, now))
            .await?;
        self.flush().await
    }

    /// What was sent since the last call, of every cluster; endpoints one by one if `by_endpoint`.
    /// For reporters of load: whoever else calls it takes the counts away from them.
    pub async fn drain_load_stats(
        &self,
        by_endpoint: bool,
    ) -> Result<Vec<ClusterLoadStats>, Error> {
        let (reply, stats) = oneshot::channel();
        let update = Update::DrainLoadStats {
            wanted: LrsWanted::All,
            by_endpoint,
            reply,
        };
        self.update(update).await?;
        stats.await.map_err(|_| closed())
    }

    /// Why a cluster routes as it does.
    pub async fn explain(&self, cluster: &str) -> Result<Explanation, Error> {
        let (reply, answer) = oneshot::channel();
        self.update(Update::Explain(cluster.into(), reply)).await?;
        let unknown = || Error::new(ErrorKind::UnknownCluster, format!("no cluster {cluster:?}"));
        answer.await.map_err(|_| closed())?.ok_or_else(unknown)
    }

    /// Why one subset of a cluster routes as it does: the one whose hosts have exactly this
    /// metadata in common. [`Self::explain`] lists the subsets. A subset of a single host has
    /// nothing to explain.
    pub fn explain_subset(&self, cluster: &str, subset: &Metadata) -> Result<Explanation, Error> {
        let unknown = |what: &str| Error::new(ErrorKind::UnknownCluster, what);
        let snapshot = self.snapshot(cluster);
        let snapshot = snapshot.ok_or_else(|| unknown(&format!("no cluster {cluster:?}")))?;
        let subsets = snapshot.subsets();
        let mut subsets = subsets.iter();
        let found = subsets.find(|known| known.metadata == *subset);
        let routing = found.and_then(|found| found.routing);
        let routing = routing.ok_or_else(|| {
            unknown(&format!(
                "cluster {cluster:?} has no subset {subset} that is balanced"
            ))
        })?;
        Ok(routing.explain_at(Clock::system().now()))
    }

    /// Every cluster with its hosts as they are now, by name.
    pub async fn cluster_statuses(&self) -> Result<Vec<ClusterStatus>, Error> {
        let (reply, answer) = oneshot::channel();
        self.update(Update::Status(reply)).await?;
        answer.await.map_err(|_| closed())
    }

    /// The newest snapshot of a cluster: its hosts, with what was counted and reported of them.
    pub fn snapshot(&self, cluster: &str) -> Option<Arc<RoutingSnapshot>> {
        let clusters = self.0.clusters.load();
        let mut snapshots = clusters.get(cluster)?.snapshots.clone();
        Some(Arc::clone(snapshots.latest()))
    }

    /// What happened last to the routing of a cluster, newest first, by the system's [`Clock`];
    /// nothing of a cluster that is not known.
    ///
    /// [`Clock`]: plimsoll_xds::driver::Clock
    pub fn recent_events(&self, cluster: &str) -> Vec<(Instant, Event)> {
        let clusters = self.0.clusters.load();
        let cluster = clusters.get(cluster);
        cluster.map(|cluster| cluster.events()).unwrap_or_default()
    }

    /// Adds the metrics of all clusters, those that come later too, to `registry`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        metrics::register(&self.0.clusters, registry);
    }

    /// Sets the same metrics in the recorder of the `metrics` facade to what they are now. To be
    /// called before every scrape, or every few seconds if the recorder pushes.
    #[cfg(feature = "metrics")]
    pub fn record_metrics(&self) {
        metrics::facade::record(&self.0.clusters.load());
    }

    /// Adds the same metrics to a meter of OpenTelemetry, as observable counters and gauges. They
    /// are read whenever a reader collects.
    #[cfg(feature = "opentelemetry")]
    pub fn register_meter(&self, meter: &opentelemetry::metrics::Meter) {
        metrics::meter::register(&self.0.clusters, meter);
    }

    /// The same counters and gauges as a list: cluster, name as Envoy has it, value.
    pub fn stats(&self) -> Vec<(Arc<str>, String, u64)> {
        metrics::values(&self.0.clusters.load())
    }

    /// Waits until everything that was said before is in force.
    async fn flush(&self) -> Result<(), Error> {
        let (reply, done) = oneshot::channel();
        self.update(Update::Flush(reply)).await?;
        done.await.map_err(|_| closed())
    }

    async fn update(&self, update: Update) -> Result<(), Error> {
        self.0.updates.send(update).await.map_err(|_| closed())
    }
}

/// `xds:///name` and `xds:name`.
fn target_name(target: &str) -> Result<Arc<str>, Error> {
    let wrong = |why: &str| Error::new(ErrorKind::Config, format!("target {target:?}: {why}"));
    let rest = target
        .strip_prefix("xds:")
        .ok_or_else(|| wrong("must start with xds:"))?;
    let name = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => match rest.split_once('/') {
            Some(("", name)) => name,
            _ => return Err(wrong("names of authorities are not supported: xds:///name")),
        },
    };
    match name {
        "" => Err(wrong("has no name")),
        name => Ok(name.into()),
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client is shut down")
}
