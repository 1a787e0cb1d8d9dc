//! [`ClientBuilder`]: the settings and clusters that a [`Client`] starts with.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::locality::Locality;
#[cfg(feature = "yaml")]
use plimsoll_xds::service_config::GrpcFeatures;
use plimsoll_xds::upstream::{UpstreamCluster, UpstreamOptions};

use super::{Client, Inner};
use crate::cluster::manager::{ClusterManager, Settings, Update};
#[cfg(feature = "yaml")]
use crate::cluster::service_config;
#[cfg(feature = "yaml")]
use crate::error::{Error, ErrorKind};
#[cfg(feature = "xds")]
use crate::xds::{XdsOptions, subscriber};

/// Settings and initial clusters of a [`Client`]; from [`Client::builder`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use plimsoll_client::Client;
/// use plimsoll_core::model::locality::Locality;
/// use plimsoll_xds::yaml::parse_upstream_cluster;
///
/// let cluster = "{name: orders, type: STATIC, load_assignment: {cluster_name: orders}}";
/// let client = Client::builder()
///     .locality(Locality::zone_only("zone-a"))
///     .upstream(parse_upstream_cluster(cluster)?)
///     .preconnect(true)
///     .build();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ClientBuilder {
    locality: Locality,
    originating: Option<ClusterLoadAssignment>,
    clusters: Vec<(ClusterConfig, ClusterLoadAssignment, UpstreamOptions)>,
    upstreams: Vec<UpstreamCluster>,
    #[cfg(feature = "xds")]
    xds: Option<XdsOptions>,
    pools: usize,
    preconnect: bool,
    seed: Option<u64>,
}

impl ClientBuilder {
    /// Sets the locality of this process, which zone-aware routing prefers.
    #[must_use]
    pub fn locality(mut self, locality: Locality) -> Self {
        self.locality = locality;
        self
    }

    /// Sets the endpoints of the fleet, the processes like this one (Envoy's local cluster).
    /// Zone-aware routing compares the zones of the fleet with those of the upstream hosts.
    #[must_use]
    pub fn originating(mut self, fleet: ClusterLoadAssignment) -> Self {
        self.originating = Some(fleet);
        self
    }

    /// Adds a cluster with endpoints, which [`Client::update_endpoints`] may replace later.
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

    /// Adds a cluster in Envoy's format, with listed endpoints or DNS names. A cluster with
    /// endpoints from EDS needs a management server (`ClientBuilder::xds`, feature `xds`).
    #[must_use]
    pub fn upstream(mut self, cluster: UpstreamCluster) -> Self {
        self.upstreams.push(cluster);
        self
    }

    /// Applies a gRPC service config, in JSON, to a cluster that was added before.
    ///
    /// Only `loadBalancingConfig` is used: the first supported policy of the list, of
    /// `weighted_round_robin` (gRFC A58) and `round_robin`. Clusters from a management server keep
    /// the policy that the server sent. `metricNamesForComputingUtilization` (gRFC A114) has an
    /// effect only if the environment variable [`WRR_CUSTOM_METRICS`](crate::WRR_CUSTOM_METRICS) is
    /// `true`, as in gRPC.
    #[cfg(feature = "yaml")]
    pub fn service_config(self, cluster: &str, json: &str) -> Result<Self, Error> {
        self.service_config_with(cluster, json, service_config::features_from_env())
    }

    /// Like [`Self::service_config`], with `features` instead of environment variables.
    #[cfg(feature = "yaml")]
    pub fn service_config_with(
        mut self,
        cluster: &str,
        json: &str,
        features: GrpcFeatures,
    ) -> Result<Self, Error> {
        let upstreams = self.upstreams.iter_mut();
        let mut configs = (self.clusters.iter_mut().map(|(config, ..)| config))
            .chain(upstreams.map(|upstream| &mut upstream.config));
        let found = configs.find(|config| **config.name() == *cluster);
        let config = found.ok_or_else(|| {
            let message = format!("service config: unknown cluster {cluster:?}; add it before");
            Error::new(ErrorKind::UnknownCluster, message)
        })?;
        *config = service_config::apply(config, json, features)?;
        Ok(self)
    }

    /// Connects to a management server. This process gets the locality in `options.node`.
    #[cfg(feature = "xds")]
    #[must_use]
    pub fn xds(mut self, options: XdsOptions) -> Self {
        self.locality = options.locality().clone();
        self.xds = Some(options);
        self
    }

    /// Sets the number of connection pools per host; 1 by default. Programs with a runtime per core
    /// use one pool per runtime: see [`Client::service_on`].
    #[must_use]
    pub const fn pools(mut self, pools: usize) -> Self {
        self.pools = pools;
        self
    }

    /// Dials every host when it is added rather than for its first request. Has no effect with more
    /// than one connection pool.
    #[must_use]
    pub const fn preconnect(mut self, preconnect: bool) -> Self {
        self.preconnect = preconnect;
        self
    }

    /// Seeds all random choices, for reproducible tests.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the client. Must be called within a tokio runtime.
    pub fn build(self) -> Client {
        // Each `RandomState` has new random keys, which are the entropy here.
        let entropy = || RandomState::new().build_hasher().finish();
        let seed = self.seed.unwrap_or_else(entropy);
        let (mut manager, updates) = ClusterManager::new(Settings {
            locality: self.locality,
            pools: self.pools.max(1),
            preconnect: self.preconnect,
            outlier_notify: Arc::default(),
            seed,
        });
        if let Some(fleet) = self.originating {
            manager.handle(Update::Originating(fleet));
        }
        for (config, endpoints, options) in self.clusters {
            let name = Arc::clone(config.name());
            manager.handle(Update::Cluster(Arc::new(config), Arc::new(options)));
            manager.handle(Update::Endpoints(name, endpoints.into()));
        }
        for cluster in self.upstreams {
            manager.handle(Update::Upstream(Arc::new(cluster)));
        }
        manager.publish();
        let (clusters, cluster_epoch) = (manager.clusters(), manager.epoch());
        #[cfg(feature = "xds")]
        let xds = {
            let fleet_needed = manager.fleet_needed();
            let start = |options| subscriber::start(options, &updates, fleet_needed);
            self.xds.map(start)
        };
        tokio::spawn(manager.run());
        Client(Arc::new(Inner {
            clusters,
            cluster_epoch,
            updates,
            #[cfg(feature = "xds")]
            xds,
            #[cfg(feature = "xds")]
            seeds: seed.rotate_left(32).into(),
        }))
    }
}
