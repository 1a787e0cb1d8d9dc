//! [`Client`]: the clusters of a process and the task behind them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::load_report::ClusterLoadStats;
use plimsoll_core::model::locality::Locality;
use tokio::sync::{mpsc, oneshot};

use crate::cluster_manager::{ClusterManager, Clusters, Settings, Update};
use crate::error::{Error, ErrorKind};
use crate::service::ClusterService;
use plimsoll_xds::upstream::UpstreamOptions;

/// The clusters of a process. Cloning is cheap; the task behind it ends with the last clone.
#[derive(Clone, Debug)]
pub struct Client {
    clusters: Arc<ArcSwap<Clusters>>,
    updates: mpsc::Sender<Update>,
}

/// Collects what a client is made of.
#[derive(Debug, Default)]
pub struct ClientBuilder {
    locality: Locality,
    originating: Option<ClusterLoadAssignment>,
    clusters: Vec<(ClusterConfig, ClusterLoadAssignment, UpstreamOptions)>,
    pools: usize,
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

    /// Connection pools per host, for programs with a runtime per core: see
    /// [`Client::service_on`]. One.
    #[must_use]
    pub const fn pools(mut self, pools: usize) -> Self {
        self.pools = pools;
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
        let (mut manager, updates) = ClusterManager::new(Settings {
            locality: self.locality,
            pools: self.pools.max(1),
            seed: self.seed.unwrap_or_else(entropy),
        });
        if let Some(fleet) = self.originating {
            manager.handle(Update::Originating(fleet));
        }
        for (config, endpoints, options) in self.clusters {
            let name = Arc::clone(config.name());
            manager.handle(Update::Cluster(Arc::new(config), Arc::new(options)));
            manager.handle(Update::Assignment(name, endpoints));
        }
        manager.publish();
        let clusters = manager.clusters();
        tokio::spawn(manager.run());
        Client { clusters, updates }
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
        let clusters = self.clusters.load();
        let found = clusters.get(cluster).ok_or_else(|| {
            let known: Vec<&str> = clusters.keys().map(AsRef::as_ref).collect();
            let message = format!("cluster {cluster:?} is not known; known are {known:?}");
            Error::new(ErrorKind::UnknownCluster, message)
        })?;
        Ok(ClusterService::new(Arc::clone(found), pool))
    }

    /// Names of the clusters.
    pub fn cluster_names(&self) -> Vec<Arc<str>> {
        self.clusters.load().keys().cloned().collect()
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
        self.update(Update::ObservedTraffic(cluster.into(), fractions))
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
            wanted: None,
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

    /// Waits until everything that was said before is in force.
    async fn flush(&self) -> Result<(), Error> {
        let (reply, done) = oneshot::channel();
        self.update(Update::Flush(reply)).await?;
        done.await.map_err(|_| closed())
    }

    async fn update(&self, update: Update) -> Result<(), Error> {
        self.updates.send(update).await.map_err(|_| closed())
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client is shut down")
}
