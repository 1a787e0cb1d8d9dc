//! Clusters of the configuration: given to the client, changed, taken away again.
//!
//! Those of a management server are the client's own business, as are names and choosing hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_client::{Client, Error, Following};
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::{Discovery, EdsSource};
use tokio::time::Instant;

pub use plimsoll_xds::upstream::UpstreamCluster;
pub use plimsoll_xds::yaml::UpstreamClusterYaml;

use crate::config::{ProxyConfig, RouteSource};

/// Clusters of the file that the client was told of.
#[derive(Debug)]
pub struct ClusterSource {
    client: Client,
    known: BTreeSet<Arc<str>>,
    /// Clusters that no route names any more, and since when.
    unused: BTreeMap<Arc<str>, Instant>,
}

/// How long a cluster stays after the last route that named it: requests that were routed a moment
/// earlier still look for it.
const LINGER: Duration = Duration::from_secs(5);

/// Whether endpoints of a cluster can be had; `ads` is whether there is a server to ask.
pub(crate) fn check_discovery(cluster: &UpstreamCluster, ads: bool) -> Result<(), FieldError> {
    match &cluster.options.discovery {
        Discovery::Eds { source, .. } if *source != EdsSource::Ads => {
            let reason = "only assignments of the management server are supported: ads: {}";
            Err(FieldError::new("eds_cluster_config.eds_config", reason))
        }
        Discovery::Eds { .. } if !ads => {
            let reason = "EDS needs dynamic_resources.ads_config";
            Err(FieldError::new("type", reason))
        }
        _ => Ok(()),
    }
}

/// What the management server is asked for: routes of listeners, endpoints of clusters, and the
/// fleet as long as a cluster can use it.
pub(crate) fn following(config: &ProxyConfig) -> Following {
    let listeners = config.listeners.iter();
    let routes = listeners.filter_map(|listener| match &listener.routes {
        RouteSource::Rds(name) => Some(Arc::clone(name)),
        RouteSource::Inline(_) => None,
    });
    let fleet = config.local_cluster_name.as_deref();
    let clusters = config.clusters.iter();
    let clusters = clusters.filter(|cluster| {
        let is_fleet = fleet == Some(cluster.config.name());
        !(is_fleet && cluster.eds_name().is_some())
    });
    let clusters = clusters.map(|cluster| {
        let eds_name = cluster.eds_name().map(Arc::from);
        (Arc::clone(cluster.config.name()), eds_name)
    });
    Following {
        routes: routes.collect(),
        own_clusters: clusters.collect(),
        local_cluster_name: Some(fleet_name(config)),
    }
}

/// Name of the fleet's assignment: what the file's local cluster says (`service_name`, or else its
/// own name). Empty where that lists its hosts itself, and without one: as in Envoy, nothing is
/// then routed by zone.
fn fleet_name(config: &ProxyConfig) -> Arc<str> {
    let name = config.local_cluster_name.as_deref();
    let mut clusters = config.clusters.iter();
    let local = clusters.find(|cluster| name == Some(cluster.config.name()));
    let eds_name = local.and_then(UpstreamCluster::eds_name);
    eds_name.unwrap_or_default().into()
}

impl ClusterSource {
    /// No cluster yet.
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            known: BTreeSet::new(),
            unused: BTreeMap::new(),
        }
    }

    /// Adds and changes clusters; `fleet` is the one we are a host of.
    pub async fn set_all(
        &mut self,
        clusters: &[UpstreamCluster],
        fleet: Option<&str>,
    ) -> Result<(), Error> {
        let is_fleet = |cluster: &UpstreamCluster| fleet == Some(cluster.config.name());
        let listed = |cluster: &&UpstreamCluster| is_fleet(cluster) && cluster.eds_name().is_none();
        let local = clusters.iter().find(listed);
        let local = local.map(|cluster| &**cluster.config.name());
        self.client.set_local_cluster(local).await?;
        for cluster in clusters {
            if is_fleet(cluster) && cluster.eds_name().is_some() {
                // The client asks for it.
                continue;
            }
            self.client.set_upstream(cluster.clone()).await?;
            self.known.insert(Arc::clone(cluster.config.name()));
            self.unused.remove(cluster.config.name());
        }
        Ok(())
    }

    /// Only these clusters are named by routes from now on; [`Self::sweep`] takes away the others.
    pub fn retain(&mut self, clusters: &[UpstreamCluster]) {
        let stays = |name: &Arc<str>| clusters.iter().any(|one| one.config.name() == name);
        let gone = self.known.iter().filter(|name| !stays(name));
        for name in gone {
            let name = Arc::clone(name);
            self.unused.entry(name).or_insert_with(Instant::now);
        }
    }

    /// Takes away clusters that have not been named for a while.
    pub async fn sweep(&mut self) -> Result<(), Error> {
        let over = |since: &Instant| since.elapsed() >= LINGER;
        let gone = self.unused.iter().filter(|(_, since)| over(since));
        let gone: Vec<Arc<str>> = gone.map(|(name, _)| Arc::clone(name)).collect();
        for name in gone {
            self.unused.remove(&name);
            self.known.remove(&name);
            self.client.remove_cluster(&name).await?;
        }
        Ok(())
    }
}
