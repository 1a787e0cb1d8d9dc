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
            self.client.set_cluster(cluster.clone()).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A proxy with clusters of all kinds; the fleet is EDS or static.
    fn config(fleet: &str) -> ProxyConfig {
        let assignment = |name: &str| {
            format!(
                "load_assignment: {{cluster_name: {name}, endpoints: [{{lb_endpoints: [{{endpoint: \
                 {{address: {{socket_address: {{address: 127.0.0.1, port_value: 1}}}}}}}}]}}]}}"
            )
        };
        let text = format!(
            "node: {{id: p1, cluster: edge}}
cluster_manager: {{local_cluster_name: fleet}}
dynamic_resources: {{ads_config: {{api_type: GRPC, grpc_services: [{{envoy_grpc: {{cluster_name: \
             server}}}}]}}}}
static_resources:
  clusters:
  - {{name: server, {}}}
  - {{name: orders, type: EDS, eds_cluster_config: {{service_name: o1, eds_config: {{ads: {{}}}}}}}}
  - {{name: fleet, {fleet}}}
",
            assignment("server")
        );
        ProxyConfig::parse(&text.replace("ASSIGNMENT", &assignment("fleet"))).unwrap()
    }

    const EDS_FLEET: &str =
        "type: EDS, eds_cluster_config: {service_name: f1, eds_config: {ads: {}}}";
    const STATIC_FLEET: &str = "type: STATIC, ASSIGNMENT";

    #[test]
    fn the_endpoints_of_an_eds_fleet_are_subscribed_to_as_such() {
        let wanted = subscriptions(&config(EDS_FLEET), &[]);
        let names: Vec<(&str, Option<&str>)> = wanted
            .own_clusters
            .iter()
            .map(|(name, eds)| (&**name, eds.as_deref()))
            .collect();
        assert_eq!(names, [("orders", Some("o1")), ("server", None)]);
        assert_eq!(wanted.local_cluster_name.as_deref(), Some("f1"));
        let wanted = subscriptions(&config(STATIC_FLEET), &[]);
        let names: Vec<&str> = wanted.own_clusters.keys().map(|name| &**name).collect();
        assert_eq!(names, ["fleet", "orders", "server"]);
        assert_eq!(wanted.local_cluster_name.as_deref(), Some(""));
    }

    #[tokio::test(start_paused = true)]
    async fn clusters_that_left_the_file_are_removed_after_a_delay() {
        let client = Client::builder().build().unwrap();
        let config = config(STATIC_FLEET);
        let mut clusters = StaticClusters::new(client.clone());
        let [server, fleet] = [0, 2].map(|index| config.clusters[index].clone());
        let both = [server.clone(), fleet.clone()];
        clusters.set_all(&both, Some("fleet")).await.unwrap();
        let names = || {
            let names = client.cluster_names();
            let names: Vec<String> = names.iter().map(|name| (**name).to_owned()).collect();
            names.join(" ")
        };
        assert_eq!(names(), "fleet server");
        clusters.retain(&both);
        assert!(clusters.unused.is_empty());
        clusters.retain(std::slice::from_ref(&server));
        tokio::time::advance(REMOVAL_DELAY - Duration::from_millis(1)).await;
        clusters.remove_unused().await.unwrap();
        assert_eq!(names(), "fleet server");
        // A cluster that returns stays.
        clusters.set_all(&both, Some("fleet")).await.unwrap();
        tokio::time::advance(REMOVAL_DELAY).await;
        clusters.remove_unused().await.unwrap();
        assert_eq!(names(), "fleet server");
        clusters.retain(std::slice::from_ref(&server));
        tokio::time::advance(REMOVAL_DELAY).await;
        clusters.remove_unused().await.unwrap();
        assert_eq!(names(), "server");
        assert_eq!(clusters.configured.len(), 1);
    }
}
