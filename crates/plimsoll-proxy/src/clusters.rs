//! Clusters of the configuration: given to the client, changed, taken away again.
//!
//! Those of a management server are the client's own business, as are names and choosing hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_client::{Client, Error};
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::Discovery;

pub use plimsoll_xds::upstream::UpstreamCluster;
pub use plimsoll_xds::yaml::UpstreamClusterYaml;

/// Clusters of the file that the client was told of.
#[derive(Debug)]
pub struct ClusterSource {
    client: Client,
    known: BTreeSet<Arc<str>>,
}

/// Whether endpoints of a cluster can be had: those of the fleet come with the clusters of a
/// server, those of others that are not listed do not.
pub(crate) fn check_discovery(cluster: &UpstreamCluster, fleet: bool) -> Result<(), FieldError> {
    match &cluster.options.discovery {
        Discovery::Eds { .. } if !fleet => {
            let reason = "EDS is for clusters of dynamic_resources.cds_config and for the cluster \
                          of cluster_manager.local_cluster_name";
            Err(FieldError::new("type", reason))
        }
        _ => Ok(()),
    }
}

impl ClusterSource {
    /// No cluster yet.
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            known: BTreeSet::new(),
        }
    }

    /// Adds and changes clusters; `fleet` is the one we are a host of.
    pub async fn set_all(
        &mut self,
        clusters: &[UpstreamCluster],
        fleet: Option<&str>,
    ) -> Result<(), Error> {
        for cluster in clusters {
            if matches!(cluster.options.discovery, Discovery::Eds { .. }) {
                // Asked for by the client.
                continue;
            }
            if fleet == Some(cluster.config.name()) {
                self.set_fleet(cluster).await?;
            }
            self.client.set_upstream(cluster.clone()).await?;
            self.known.insert(Arc::clone(cluster.config.name()));
        }
        Ok(())
    }

    /// The hosts that are listed with an address; names would have to be looked up.
    async fn set_fleet(&self, cluster: &UpstreamCluster) -> Result<(), Error> {
        let Some(assignment) = &cluster.load_assignment else {
            return Ok(());
        };
        match assignment.resolve(|_| &[]) {
            Ok(fleet) => self.client.update_originating(fleet).await,
            Err(error) => {
                tracing::error!(%error, "the fleet is refused");
                Ok(())
            }
        }
    }

    /// Takes away all clusters but these: after no route names them any more.
    pub async fn retain(&mut self, clusters: &[UpstreamCluster]) -> Result<(), Error> {
        let stays = |name: &Arc<str>| clusters.iter().any(|one| one.config.name() == name);
        let gone: Vec<Arc<str>> = self
            .known
            .iter()
            .filter(|name| !stays(name))
            .cloned()
            .collect();
        for name in gone {
            self.known.remove(&name);
            self.client.remove_cluster(&name).await?;
        }
        Ok(())
    }
}
