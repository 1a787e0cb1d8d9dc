//! [`ClientBuilder`]: the settings and clusters that a [`Client`] starts with.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "opentelemetry")]
use opentelemetry::trace::{Tracer, TracerProvider};
use plimsoll_core::locality_picking::demand::{FractionMap, fractions_of};
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
#[cfg(feature = "yaml")]
use plimsoll_xds::service_config::GrpcFeatures;
use plimsoll_xds::upstream::{ClusterEndpoints, UpstreamCluster};
#[cfg(feature = "xds")]
use plimsoll_xds::upstream::{Discovery, EdsSource};

use super::shutdown::SHUTDOWN_TIMEOUT;
use super::{Client, Inner, features};
use crate::cluster::initial_fetch::{INITIAL_FETCH_TIMEOUT, InitialFetch};
use crate::cluster::manager::{ClusterManager, Settings, Update};
#[cfg(feature = "yaml")]
use crate::cluster::service_config;
use crate::config::checks::Startup;
use crate::config::{Cluster, Hosts, environment};
use crate::error::{Error, ErrorKind};
use crate::request::attempt_span::Tracing;
#[cfg(feature = "xds")]
use crate::xds::XdsOptions;
#[cfg(feature = "xds")]
use crate::xds::subscriber;

/// Settings and initial clusters of a [`Client`]; from [`Client::builder`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use plimsoll_client::{Client, Cluster, Policy};
///
/// let orders = Cluster::new("orders")
///     .zone("zone-a", ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"])
///     .zone("zone-b", ["10.0.1.1:80", "10.0.1.2:80", "10.0.1.3:80"])
///     .policy(Policy::zone_aware().measured());
/// let client = Client::builder()
///     .zone("zone-a")
///     .demand([("zone-a", 60), ("zone-b", 20)])
///     .cluster(orders)
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ClientBuilder {
    locality: Option<Locality>,
    originating: Option<ClusterLoadAssignment>,
    demand: Option<FractionMap>,
    /// Clusters with endpoints that the program assigns.
    clusters: Vec<(UpstreamCluster, ClusterEndpoints)>,
    upstreams: Vec<UpstreamCluster>,
    /// Clusters whose program asked for zone-aware routing.
    zone_aware: BTreeSet<String>,
    /// The first error of a setting, reported by `build`.
    error: Option<Error>,
    #[cfg(feature = "xds")]
    xds: Option<XdsOptions>,
    pools: usize,
    preconnect: bool,
    seed: Option<u64>,
    initial_fetch_timeout: Option<Duration>,
    shutdown_timeout: Option<Duration>,
    fallback_cluster: Option<Arc<str>>,
    tracing: Tracing,
}

impl ClientBuilder {
    /// Sets the zone of this process, which zone-aware routing prefers. Short for
    /// [`Self::locality`] without region and sub-zone.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        self.locality(Locality::zone_only(zone))
    }

    /// Sets the locality of this process, which zone-aware routing prefers. Without it, the
    /// locality is that of [`XdsOptions::node`], or else of the environment variables
    /// `PLIMSOLL_REGION`, `PLIMSOLL_ZONE` and `PLIMSOLL_SUB_ZONE`, read once by
    /// [`Self::build`].
    #[must_use]
    pub fn locality(mut self, locality: Locality) -> Self {
        self.locality = Some(locality);
        self
    }

    /// States how much of the fleet's requests arrive in each zone, as relative numbers: percent,
    /// requests per second, or numbers of processes. The fleet are the processes like this one, so
    /// the zone of this process must be among them.
    ///
    /// For zone-aware routing without a control plane that measures demand. Stated demand never
    /// expires; [`Client::set_demand`] changes it. Measured demand takes precedence while it is
    /// fresh.
    #[must_use]
    pub fn demand<L: Into<Locality>, N: Into<f64>>(
        mut self,
        demand: impl IntoIterator<Item = (L, N)>,
    ) -> Self {
        match fractions(demand) {
            Ok(fractions) => self.demand = Some(fractions),
            Err(error) => self.note(invalid(error)),
        }
        self
    }

    /// Sets the endpoints of the fleet, the processes like this one (Envoy's local cluster).
    /// Zone-aware routing compares the zones of the fleet with those of the upstream hosts.
    /// Fractions of demand in it are stated, so they never expire. [`Self::demand`] is simpler.
    #[must_use]
    pub fn originating(mut self, fleet: ClusterLoadAssignment) -> Self {
        self.originating = Some(fleet);
        self
    }

    /// Adds a cluster: a [`Cluster`], or one in Envoy's terms ([`UpstreamCluster`]). A cluster with
    /// endpoints from EDS needs a management server (`ClientBuilder::xds`, feature `xds`).
    #[must_use]
    pub fn cluster(mut self, cluster: impl Into<Cluster>) -> Self {
        let cluster = cluster.into();
        let zone_aware = cluster.asks_for_zones();
        match cluster.build_with_hosts() {
            Ok((cluster, hosts)) => {
                if zone_aware {
                    self.zone_aware.insert(cluster.config.name().to_string());
                }
                match hosts {
                    Hosts::Assigned(endpoints) => self.clusters.push((cluster, endpoints)),
                    Hosts::Listed | Hosts::Unchanged => self.upstreams.push(cluster),
                }
            }
            Err(error) => self.note(error),
        }
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
        if let Some(error) = self.error {
            return Err(error);
        }
        let upstreams = self.upstreams.iter_mut();
        let clusters = self.clusters.iter_mut().map(|(cluster, _)| cluster);
        let mut configs = (clusters.chain(upstreams)).map(|upstream| &mut upstream.config);
        let found = configs.find(|config| **config.name() == *cluster);
        let config = found.ok_or_else(|| {
            let message = format!("service config: unknown cluster {cluster:?}; add it before");
            Error::new(ErrorKind::UnknownCluster, message)
        })?;
        *config = service_config::apply(config, json, features)?;
        Ok(self)
    }

    /// Connects to a management server. This process gets the locality in `options.node`, unless
    /// [`Self::locality`] sets another one, which the node is sent with then.
    #[cfg(feature = "xds")]
    #[must_use]
    pub fn xds(mut self, options: XdsOptions) -> Self {
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

    /// Sets how long requests wait for discovery: for the first endpoints of a cluster, and for the
    /// first routes of a target; 15 s by default, as in Envoy, and unlimited if it is zero.
    ///
    /// The time starts when the cluster is added or the target is first named. Once it has passed,
    /// requests fail at once, or go to [`Self::fallback_cluster`], until the resources arrive.
    #[must_use]
    pub const fn initial_fetch_timeout(mut self, timeout: Duration) -> Self {
        self.initial_fetch_timeout = Some(timeout);
        self
    }

    /// Sets how long [`Client::shutdown`] waits for requests in flight; 20 s by default.
    #[must_use]
    pub const fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = Some(timeout);
        self
    }

    /// Names a cluster of the program that serves requests whose target or cluster the management
    /// server has not sent within [`Self::initial_fetch_timeout`]. Resources that arrive later take
    /// over.
    #[must_use]
    pub fn fallback_cluster(mut self, cluster: &str) -> Self {
        self.fallback_cluster = Some(cluster.into());
        self
    }

    /// Gives every attempt of a request a span of kind CLIENT from `provider`, whose context goes
    /// to the host in `traceparent` and `tracestate`. The parent is the caller's active span, or
    /// else the trace context in the request's headers.
    ///
    /// Without this, trace headers of the program pass through unchanged. Build exporters within an
    /// [`ExportRuntime`](crate::ExportRuntime).
    #[cfg(feature = "opentelemetry")]
    #[must_use]
    pub fn tracer_provider<P>(mut self, provider: &P) -> Self
    where
        P: TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as Tracer>::Span: Send + Sync + 'static,
    {
        self.tracing = Tracing::new(provider);
        self
    }

    /// Seeds all random choices, for reproducible tests.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the client, within a tokio runtime.
    ///
    /// Refuses what cannot work, with the field and the reason: a setting out of range, a cluster
    /// without hosts or with hosts from EDS but without [`Self::xds`], two clusters of one name,
    /// zone-aware routing without an own zone or without [demand](Self::demand), demand in a zone
    /// that no cluster has, hosts that differ from the own zone by a missing region, and
    /// certificates that cannot be read.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use plimsoll_client::{Client, Cluster};
    ///
    /// let error = Client::builder().cluster(Cluster::eds("orders")).build().unwrap_err();
    /// assert!(error.to_string().starts_with("clusters[orders].eds_cluster_config: "));
    /// # }
    /// ```
    pub fn build(self) -> Result<Client, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            let message = "build: must be called within a tokio runtime";
            return Err(Error::new(ErrorKind::Config, message));
        }
        self.check_features()?;
        let locality = self.own_locality();
        self.startup(&locality).check().map_err(invalid)?;
        self.check_fallback()?;
        #[cfg(feature = "tls")]
        for cluster in self.all_clusters() {
            features::check_certificates(cluster.config.name(), &cluster.options)?;
        }
        Ok(self.start(&locality))
    }

    fn check_features(&self) -> Result<(), Error> {
        let mut all = self.all_clusters();
        all.try_for_each(|cluster| features::check(cluster.config.name(), &cluster.options))
    }

    fn all_clusters(&self) -> impl Iterator<Item = &UpstreamCluster> {
        let assigned = self.clusters.iter().map(|(cluster, _)| cluster);
        self.upstreams.iter().chain(assigned)
    }

    fn check_fallback(&self) -> Result<(), Error> {
        let Some(fallback) = &self.fallback_cluster else {
            return Ok(());
        };
        let mut all = self.all_clusters();
        if all.any(|cluster| cluster.config.name() == fallback) {
            return Ok(());
        }
        let message = format!("fallback_cluster: no cluster {fallback:?} was added");
        Err(Error::new(ErrorKind::Config, message))
    }

    fn note(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    fn own_locality(&self) -> Locality {
        let mut given = self.locality.iter().chain(self.node_locality());
        if let Some(set) = given.clone().find(|locality| !locality.is_unset()) {
            return set.clone();
        }
        // A program that states that it has no locality gets none from the environment.
        let environment = || environment::own_locality(|name| std::env::var(name).ok());
        let stated = given.next().filter(|_| self.locality.is_some());
        stated.cloned().unwrap_or_else(environment)
    }

    #[cfg(feature = "xds")]
    fn node_locality(&self) -> Option<&Locality> {
        self.xds.as_ref().map(XdsOptions::locality)
    }

    #[cfg(not(feature = "xds"))]
    const fn node_locality(&self) -> Option<&Locality> {
        None
    }

    fn startup<'a>(&'a self, own: &'a Locality) -> Startup<'a> {
        let clusters = self.clusters.iter();
        let assigned = clusters.map(|(cluster, endpoints)| {
            let entries = endpoints.assignment.endpoints().iter();
            (
                &cluster.config,
                entries.map(|entry| &entry.locality).collect(),
            )
        });
        Startup {
            own,
            upstreams: &self.upstreams,
            zone_aware: &self.zone_aware,
            assigned: assigned.collect(),
            demand: self.demand.as_ref(),
            has_fleet: self.originating.is_some(),
            has_server: self.node_locality().is_some(),
        }
    }

    fn start(self, locality: &Locality) -> Client {
        // Each `RandomState` has new random keys, which are the entropy here.
        let entropy = || RandomState::new().build_hasher().finish();
        let seed = self.seed.unwrap_or_else(entropy);
        let timeout = self.initial_fetch_timeout.unwrap_or(INITIAL_FETCH_TIMEOUT);
        let initial_fetch = Arc::new(InitialFetch::new(timeout, self.fallback_cluster));
        let (mut manager, updates) = ClusterManager::new(Settings {
            locality: locality.clone(),
            pools: self.pools.max(1),
            preconnect: self.preconnect,
            outlier_notify: Arc::default(),
            initial_fetch: Arc::clone(&initial_fetch),
            tracing: self.tracing,
            seed,
        });
        if let Some(fleet) = self.originating {
            manager.handle(Update::StatedFleet(fleet));
        }
        if let Some(demand) = self.demand {
            manager.state_demand(demand);
        }
        for (cluster, endpoints) in self.clusters {
            let name = Arc::clone(cluster.config.name());
            let (config, options) = (Arc::new(cluster.config), Arc::new(cluster.options));
            manager.handle(Update::Cluster(config, options));
            manager.handle(Update::Endpoints(name, endpoints));
        }
        #[cfg(feature = "xds")]
        let own_clusters = self.upstreams.iter().filter_map(eds_subscription).collect();
        for cluster in self.upstreams {
            manager.handle(Update::Upstream(Arc::new(cluster)));
        }
        manager.publish();
        let (clusters, cluster_epoch) = (manager.clusters(), manager.epoch());
        #[cfg(feature = "xds")]
        let xds = {
            let fleet_needed = manager.fleet_needed();
            let fetch = Arc::clone(&initial_fetch);
            let start = |mut options: XdsOptions| {
                options.node.locality = locality.clone();
                subscriber::start(options, &updates, fleet_needed, own_clusters, fetch)
            };
            self.xds.map(start)
        };
        tokio::spawn(manager.run());
        Client(Arc::new(Inner {
            clusters,
            cluster_epoch,
            updates,
            #[cfg(feature = "xds")]
            xds,
            initial_fetch,
            shutdown_timeout: self.shutdown_timeout.unwrap_or(SHUTDOWN_TIMEOUT),
            #[cfg(feature = "xds")]
            seeds: seed.rotate_left(32).into(),
        }))
    }
}

/// Converts demand in relative numbers to fractions.
pub(super) fn fractions<L: Into<Locality>, N: Into<f64>>(
    demand: impl IntoIterator<Item = (L, N)>,
) -> Result<FractionMap, FieldError> {
    let demand = demand.into_iter();
    let demand: Vec<_> = demand
        .map(|(zone, number)| (zone.into(), number.into()))
        .collect();
    fractions_of(&demand)
}

pub(super) fn invalid(error: FieldError) -> Error {
    Error::new(ErrorKind::Config, error.to_string())
}

/// Name of a cluster and of its assignment, if that comes from the management server.
#[cfg(feature = "xds")]
fn eds_subscription(cluster: &UpstreamCluster) -> Option<(Arc<str>, Option<Arc<str>>)> {
    let Discovery::Eds {
        source: EdsSource::Ads,
        ..
    } = cluster.options.discovery
    else {
        return None;
    };
    let eds_name = cluster.eds_name()?;
    Some((Arc::clone(cluster.config.name()), Some(eds_name.into())))
}
