//! Clusters of the bootstrap file: adds them to the client, updates and removes them. The client
//! handles the clusters of a management server itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_client::{Client, Error, Subscriptions};
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::{Discovery, EdsSource};
use tokio::time::Instant;

pub use plimsoll_xds::upstream::UpstreamCluster;

use crate::config::{ListenerConfig, ProxyConfig};

/// Clusters of the bootstrap file that were added to the client.
#[derive(Debug)]
pub struct StaticClusters {
    client: Client,
    configured: BTreeSet<Arc<str>>,
    /// Clusters that left the file, by time: requests already routed may still use them.
    unused: BTreeMap<Arc<str>, Instant>,
}

/// Delay before a cluster that was removed from the file is removed from the client: requests that
/// were routed a moment earlier still need the cluster.
const REMOVAL_DELAY: Duration = Duration::from_secs(5);

/// Checks that endpoints of EDS clusters come over ADS, and that an ADS server is configured.
pub(crate) fn check_discovery(cluster: &UpstreamCluster, ads: bool) -> Result<(), FieldError> {
    match &cluster.options.discovery {
        Discovery::Eds { source, .. } if *source != EdsSource::Ads => {
            let reason = "is not supported; endpoints must come over ADS: `ads: {}`";
            Err(FieldError::new("eds_cluster_config.eds_config", reason))
        }
        Discovery::Eds { .. } if !ads => {
            let reason = "EDS requires dynamic_resources.ads_config";
            Err(FieldError::new("type", reason))
        }
        _ => Ok(()),
    }
}

/// Returns the xDS subscriptions: routes of listeners, endpoints of clusters, the local cluster.
pub(crate) fn subscriptions(
    config: &ProxyConfig,
    dynamic: &[Arc<ListenerConfig>],
) -> Subscriptions {
    let listeners = config.listeners.iter().chain(dynamic);
    let routes = listeners.flat_map(|listener| listener.rds_names().map(Arc::clone));
    let fleet = config.local_cluster_name.as_deref();
    let clusters = config
        .clusters
        .iter()
        .filter(|cluster| {
            let is_fleet = fleet == Some(cluster.config.name());
            !(is_fleet && cluster.eds_name().is_some())
        })
        .map(|cluster| {
            let eds_name = cluster.eds_name().map(Arc::from);
            (Arc::clone(cluster.config.name()), eds_name)
        });
    Subscriptions {
        routes: routes.collect(),
        own_clusters: clusters.collect(),
        local_cluster_name: Some(fleet_name(config)),
        _non_exhaustive: (),
    }
}

/// Returns the EDS name of the local cluster (`service_name`, or else its name). Empty if the
/// cluster is not configured or lists its hosts inline; without a local cluster there is no
/// zone-aware routing, as in Envoy.
fn fleet_name(config: &ProxyConfig) -> Arc<str> {
    let name = config.local_cluster_name.as_deref();
    let mut clusters = config.clusters.iter();
    let local = clusters.find(|cluster| name == Some(cluster.config.name()));
    let eds_name = local.and_then(UpstreamCluster::eds_name);
    eds_name.unwrap_or_default().into()
}

impl StaticClusters {
    /// Creates an empty set of clusters.
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            configured: BTreeSet::new(),
            unused: BTreeMap::new(),
        }
    }

    /// Adds and updates clusters. `fleet` is the local cluster, of which this proxy is a host.
    pub async fn set_all(
        &mut self,
        clusters: &[UpstreamCluster],
        fleet: Option<&str>,
    ) -> Result<(), Error> {
        let is_fleet = |cluster: &UpstreamCluster| fleet == Some(cluster.config.name());
        let inline = |cluster: &&UpstreamCluster| is_fleet(cluster) && cluster.eds_name().is_none();
        let local = clusters
            .iter()
            .find(inline)
            .map(|cluster| &**cluster.config.name());
        self.client.set_local_cluster(local).await?;
        for cluster in clusters {
            if is_fleet(cluster) && cluster.eds_name().is_some() {
                // The client subscribes to the endpoints of the local cluster itself.
                continue;
            }
            self.client.set_upstream(cluster.clone()).await?;
            self.configured.insert(Arc::clone(cluster.config.name()));
            self.unused.remove(cluster.config.name());
        }
        Ok(())
    }

    /// Marks clusters that are no longer in the file; [`Self::remove_unused`] removes them later.
    pub fn retain(&mut self, clusters: &[UpstreamCluster]) {
        let stays = |name: &Arc<str>| clusters.iter().any(|one| one.config.name() == name);
        let removed = self.configured.iter().filter(|name| !stays(name));
        for name in removed {
            let name = Arc::clone(name);
            self.unused.entry(name).or_insert_with(Instant::now);
        }
    }

    /// Removes clusters that left the file more than `REMOVAL_DELAY` ago.
    pub async fn remove_unused(&mut self) -> Result<(), Error> {
        let expired = |since: &Instant| since.elapsed() >= REMOVAL_DELAY;
        let removed: Vec<Arc<str>> = self
            .unused
            .iter()
            .filter(|(_, since)| expired(since))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in removed {
            self.unused.remove(&name);
            self.configured.remove(&name);
            self.client.remove_cluster(&name).await?;
        }
        Ok(())
    }
}
