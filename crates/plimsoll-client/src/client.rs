//! [`Client`]: handle to the clusters of a process and to the tasks behind them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use plimsoll_core::event::Event;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::Metadata;
#[cfg(feature = "xds")]
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::lrs::ClusterSelection;
use plimsoll_xds::upstream::ClusterEndpoints;
use tokio::sync::{mpsc, oneshot};

use crate::cluster::Cluster;
use crate::cluster::initial_fetch::InitialFetch;
use crate::cluster::manager::{Clusters, StatedDemand, Update};
use crate::cluster::status::ClusterStatus;
use crate::config::{self, Hosts};
use crate::error::{Error, ErrorKind};
use crate::metrics::{self, Stats};
use crate::service::ClusterService;
use crate::service::layer::ClusterLayer;
#[cfg(feature = "xds")]
use crate::upstream::endpoint::next_draw;
#[cfg(feature = "xds")]
use crate::xds::XdsStatus;
#[cfg(feature = "xds")]
use crate::xds::subscriber::XdsHandle;

mod builder;
mod features;
#[cfg(feature = "unstable-proxy")]
mod proxy;
mod readiness;
#[cfg(feature = "xds")]
mod shared;
mod shutdown;
#[cfg(feature = "xds")]
mod targets;

pub use builder::ClientBuilder;

/// Handle to the clusters of a process: creates services, changes clusters, explains routing.
///
/// Create one per process with [`Client::builder`], or get the one of gRPC's bootstrap with
/// `Client::from_env`. Clones are cheap and share everything. The tasks behind a client end with
/// its last clone and its last service, or with [`Client::shutdown`].
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clusters: Arc<ArcSwap<Clusters>>,
    cluster_epoch: Arc<AtomicU64>,
    updates: mpsc::Sender<Update>,
    #[cfg(feature = "xds")]
    xds: Option<XdsHandle>,
    initial_fetch: Arc<InitialFetch>,
    shutdown_timeout: Duration,
    #[cfg(feature = "xds")]
    seeds: AtomicU64,
}

impl Client {
    /// Returns a builder; [`ClientBuilder::build`] starts the client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns a service that sends requests to a cluster.
    ///
    /// Use it when the program knows the cluster by name; [`Self::target`] follows the routes of a
    /// management server instead.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::{Client, Cluster, ErrorKind};
    ///
    /// let cluster = Cluster::new("orders").endpoints(["10.0.0.1:80"]);
    /// let client = Client::builder().cluster(cluster).build()?;
    /// assert_eq!(client.service("orders")?.cluster_name(), "orders");
    /// assert_eq!(client.service("users").unwrap_err().kind(), ErrorKind::UnknownCluster);
    /// # Ok(())
    /// # }
    /// ```
    pub fn service(&self, cluster: &str) -> Result<ClusterService, Error> {
        self.service_on(cluster, 0)
    }

    /// Like [`Self::service`], with the connections of one pool: for programs with a runtime per
    /// core, where a request must not wake another core. See [`ClientBuilder::pools`].
    pub fn service_on(&self, cluster: &str, pool: usize) -> Result<ClusterService, Error> {
        Ok(ClusterService::new(self.clone(), self.find(cluster)?, pool))
    }

    pub(crate) fn find(&self, cluster: &str) -> Result<Arc<Cluster>, Error> {
        let clusters = self.0.clusters.load();
        let found = clusters.get(cluster).cloned();
        found.ok_or_else(|| {
            let known: Vec<&str> = clusters.keys().map(AsRef::as_ref).collect();
            let message = format!("unknown cluster {cluster:?}; known clusters: {known:?}");
            Error::new(ErrorKind::UnknownCluster, message)
        })
    }

    /// Returns a tower layer that balances the requests of another HTTP client over a cluster.
    ///
    /// ```
    /// # fn example(client: &plimsoll_client::Client) -> Result<(), plimsoll_client::Error> {
    /// use hyper_util::{client::legacy::Client as HttpClient, rt::TokioExecutor};
    /// use tower_layer::Layer as _;
    ///
    /// # type Body = http_body_util::Empty<bytes::Bytes>;
    /// let http = HttpClient::builder(TokioExecutor::new()).build_http::<Body>();
    /// let balanced = client.layer("orders")?.layer(http);
    /// # Ok(())
    /// # }
    /// ```
    pub fn layer(&self, cluster: &str) -> Result<ClusterLayer, Error> {
        Ok(ClusterLayer::new(self.clone(), self.find(cluster)?))
    }

    /// Waits until all clusters have endpoints and all targets have routes: those of the builder,
    /// of [`XdsOptions::clusters`](crate::XdsOptions::clusters), and those added since.
    ///
    /// Ends with an error that names what is missing once the management server says that a
    /// resource does not exist, or after [`ClientBuilder::initial_fetch_timeout`]. Requests can be
    /// sent before; they wait for what they need themselves.
    pub async fn ready(&self) -> Result<(), Error> {
        readiness::wait(self).await
    }

    /// State of the discovery stream and of resources that are missing or were rejected; `None`
    /// without a management server.
    #[cfg(feature = "xds")]
    pub fn xds_status(&self) -> Option<XdsStatus> {
        let xds = self.0.xds.as_ref()?;
        Some(xds.status.borrow().clone())
    }

    /// Whether the client takes requests: it was not shut down, and its runtime has not ended.
    #[cfg(feature = "xds")]
    pub(crate) fn is_open(&self) -> bool {
        self.0.initial_fetch.lifecycle.is_open()
    }

    #[cfg(feature = "xds")]
    pub(crate) fn next_rng(&self) -> Xoshiro256 {
        Xoshiro256::from_seed(next_draw(&self.0.seeds))
    }

    #[cfg(feature = "xds")]
    fn xds(&self) -> Result<&XdsHandle, Error> {
        let none = || {
            Error::new(
                ErrorKind::Config,
                "no management server: see ClientBuilder::xds",
            )
        };
        self.0.xds.as_ref().ok_or_else(none)
    }

    /// Names of all clusters, sorted.
    pub fn cluster_names(&self) -> Vec<Arc<str>> {
        self.0.clusters.load().keys().cloned().collect()
    }

    /// Adds a cluster, or replaces the settings and hosts of an existing one. A [`Cluster`] that
    /// names no hosts keeps those that it has. Requests in flight and the state of hosts that stay
    /// are kept. Once this returns, [`Self::service`] finds the cluster.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::{Client, Cluster, Policy};
    ///
    /// let client = Client::builder().build()?;
    /// let orders = Cluster::new("orders").endpoints(["10.0.0.1:80"]);
    /// client.set_cluster(orders).await?;
    /// let least_request = Cluster::new("orders").policy(Policy::least_request());
    /// client.set_cluster(least_request).await?;
    /// assert_eq!(client.snapshot("orders").unwrap().hosts().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Cluster`]: crate::Cluster
    pub async fn set_cluster(&self, cluster: impl Into<config::Cluster>) -> Result<(), Error> {
        let (cluster, hosts) = cluster.into().build_with_hosts()?;
        let name = Arc::clone(cluster.config.name());
        features::check(&name, &cluster.options)?;
        let settings = || {
            let (config, options) = (cluster.config.clone(), cluster.options.clone());
            Update::Cluster(Arc::new(config), Arc::new(options))
        };
        match hosts {
            Hosts::Unchanged => self.update(settings()).await?,
            Hosts::Assigned(endpoints) => {
                self.update(settings()).await?;
                self.update(Update::Endpoints(name, endpoints)).await?;
            }
            Hosts::Listed => self.update(Update::Upstream(Arc::new(cluster))).await?,
        }
        self.flush().await
    }

    /// Removes a cluster. Requests in flight finish.
    pub async fn remove_cluster(&self, cluster: &str) -> Result<(), Error> {
        self.update(Update::Remove(cluster.into())).await?;
        self.flush().await
    }

    /// Replaces the endpoints of a cluster, from an assignment, or from [`ClusterEndpoints`] with
    /// additional addresses or health-check ports. Hosts that stay keep their connections and
    /// state; requests in flight finish.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use plimsoll_client::{Client, Cluster};
    /// # let cluster = Cluster::new("orders").zone("zone-a", ["10.0.0.2:80"]);
    /// # let client = Client::builder().cluster(cluster).build()?;
    /// let now = Cluster::new("orders").zone("zone-a", ["10.0.0.1:80"]);
    /// client.update_endpoints(now.build_endpoints()?).await?;
    /// assert_eq!(client.snapshot("orders").unwrap().hosts().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn update_endpoints(
        &self,
        endpoints: impl Into<ClusterEndpoints>,
    ) -> Result<(), Error> {
        let endpoints = endpoints.into();
        let name = Arc::clone(endpoints.assignment.cluster_name());
        self.update(Update::Endpoints(name, endpoints)).await?;
        self.flush().await
    }

    /// Replaces the endpoints of the fleet, the processes like this one. Fractions of demand in it
    /// are stated and never expire; [`Self::update_observed_traffic`] is for measured demand.
    pub async fn update_originating(&self, fleet: ClusterLoadAssignment) -> Result<(), Error> {
        self.update(Update::StatedFleet(fleet)).await?;
        self.flush().await
    }

    /// Replaces the demand that [`ClientBuilder::demand`] states, for all clusters. Fails for a
    /// zone that no cluster has, unless there is a management server, which may know more zones.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use plimsoll_client::{Client, Cluster};
    /// # let cluster = Cluster::new("orders").zone("zone-a", ["10.0.0.1:80"]);
    /// # let cluster = cluster.zone("zone-b", ["10.0.0.2:80"]);
    /// # let client = Client::builder().zone("zone-a").cluster(cluster).build()?;
    /// client.set_demand([("zone-a", 3), ("zone-b", 1)]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_demand<L: Into<Locality>, N: Into<f64>>(
        &self,
        demand: impl IntoIterator<Item = (L, N)>,
    ) -> Result<(), Error> {
        let (reply, checked) = oneshot::channel();
        let stated = StatedDemand {
            demand: builder::fractions(demand).map_err(builder::invalid)?,
            check_zones: self.0.initial_fetch.server().is_none(),
            reply,
        };
        self.update(Update::StatedDemand(stated)).await?;
        checked
            .await
            .map_err(|_| self.ended())?
            .map_err(builder::invalid)?;
        self.flush().await
    }

    /// Sets the health of a host, as found by a health check outside of this client.
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

    /// Sets which fraction of the demand for a cluster comes from each zone, if the program
    /// measures it. Unlike stated demand ([`Self::set_demand`]), it expires after
    /// `staleness_threshold`. Fractions in EDS or LRS responses take effect without this call.
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

    /// Takes the load counted since the last call, of every cluster, per endpoint if `by_endpoint`.
    /// For programs that report load themselves. Each count is returned once, so do not combine
    /// this with the client's own load reporting.
    pub async fn drain_load_stats(
        &self,
        by_endpoint: bool,
    ) -> Result<Vec<ClusterLoadStats>, Error> {
        let (reply, stats) = oneshot::channel();
        let update = Update::DrainLoadStats {
            wanted: ClusterSelection::All,
            by_endpoint,
            reply,
        };
        self.update(update).await?;
        stats.await.map_err(|_| self.ended())
    }

    /// Explains how requests to a cluster are routed: routing state, preconditions, the share of
    /// each zone, and the origin and age of the measured fractions of demand.
    pub async fn explain(&self, cluster: &str) -> Result<Explanation, Error> {
        let (reply, answer) = oneshot::channel();
        self.update(Update::Explain(cluster.into(), reply)).await?;
        let message = format!("unknown cluster {cluster:?}");
        let unknown = || Error::new(ErrorKind::UnknownCluster, message);
        answer.await.map_err(|_| self.ended())?.ok_or_else(unknown)
    }

    /// Explains how requests to one subset of a cluster are routed: the subset with exactly this
    /// metadata. [`Self::explain`] lists the subsets. Returns an error for a subset of a single
    /// host, because such a subset is not balanced.
    pub fn explain_subset(&self, cluster: &str, subset: &Metadata) -> Result<Explanation, Error> {
        let unknown = |message: String| Error::new(ErrorKind::UnknownCluster, message);
        let snapshot = self
            .snapshot(cluster)
            .ok_or_else(|| unknown(format!("unknown cluster {cluster:?}")))?;
        let subsets = snapshot.subsets();
        let routing = subsets
            .iter()
            .find(|known| known.metadata == *subset)
            .and_then(|found| found.routing)
            .ok_or_else(|| {
                unknown(format!(
                    "cluster {cluster:?} has no balanced subset {subset}"
                ))
            })?;
        Ok(routing.explain_at(Clock::system().now()))
    }

    /// Returns the state of every cluster and its hosts, sorted by name.
    pub async fn cluster_statuses(&self) -> Result<Vec<ClusterStatus>, Error> {
        let (reply, answer) = oneshot::channel();
        self.update(Update::Status(reply)).await?;
        answer.await.map_err(|_| self.ended())
    }

    /// Newest snapshot of a cluster: its hosts with their counters and load reports.
    pub fn snapshot(&self, cluster: &str) -> Option<Arc<RoutingSnapshot>> {
        let clusters = self.0.clusters.load();
        let mut snapshots = clusters.get(cluster)?.snapshots.clone();
        Some(Arc::clone(snapshots.latest().routing()))
    }

    /// Recent routing events of a cluster, newest first, each with the instant when it occurred on
    /// the system's [`Clock`]; empty for an unknown cluster.
    ///
    /// [`Clock`]: plimsoll_xds::clock::Clock
    pub fn recent_events(&self, cluster: &str) -> Vec<(Instant, Event)> {
        let clusters = self.0.clusters.load();
        let cluster = clusters.get(cluster);
        cluster.map(|cluster| cluster.events()).unwrap_or_default()
    }

    /// Registers the metrics of all clusters, including clusters added later, with a Prometheus
    /// `registry`.
    #[cfg(feature = "prometheus")]
    pub fn register_metrics(&self, registry: &mut prometheus_client::registry::Registry) {
        metrics::prometheus::register(&self.0.clusters, registry);
    }

    /// Copies the metrics of all clusters to the recorder of the `metrics` facade. Call it before
    /// every scrape, or every few seconds if the recorder pushes.
    #[cfg(feature = "metrics")]
    pub fn record_metrics(&self) {
        metrics::facade::record(&self.0.clusters.load());
    }

    /// Registers the metrics of all clusters with an OpenTelemetry `meter`, as observable counters
    /// and gauges.
    #[cfg(feature = "opentelemetry")]
    pub fn register_meter(&self, meter: &opentelemetry::metrics::Meter) {
        metrics::meter::register(&self.0.clusters, meter);
    }

    /// Returns the counters and gauges of all clusters at present, without a metrics library.
    ///
    /// ```
    /// # fn example(client: &plimsoll_client::Client) {
    /// let stats = client.stats();
    /// let retries = stats.get("orders", "upstream_rq_retry");
    /// for stat in stats.iter() {
    ///     println!("{} {} {}", stat.cluster, stat.name, stat.value);
    /// }
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        metrics::stats(&self.0.clusters.load())
    }

    /// Why the tasks of the client do not answer.
    #[cold]
    pub(crate) fn ended(&self) -> Error {
        self.0.initial_fetch.lifecycle.error()
    }

    /// Waits until the snapshots with all earlier updates are published.
    async fn flush(&self) -> Result<(), Error> {
        let (reply, done) = oneshot::channel();
        self.update(Update::Flush(reply)).await?;
        done.await.map_err(|_| self.ended())
    }

    async fn update(&self, update: Update) -> Result<(), Error> {
        self.0.updates.send(update).await.map_err(|_| self.ended())
    }
}
