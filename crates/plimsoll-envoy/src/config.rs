//! Configuration of the module: the `lb_policy_config` of a cluster, a `google.protobuf.Struct`
//! that Envoy passes as JSON.
//!
//! Names are those of Envoy's bootstrap. The ABI shows the module neither the node nor the local
//! cluster, so they are repeated here; `cluster` has the load balancing settings of the cluster,
//! read by the same converter as files of the proxy and as clusters of a management server.

use std::sync::Arc;

use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, HealthChecking};
use plimsoll_core::model::endpoint_policy::ConsistentHashing;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::LocalityMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::yaml::{ClusterYaml, ConfigError, Document, cluster_config_parts};
use serde::Deserialize;

/// Name of a cluster whose real name is not known yet.
const UNNAMED: &str = "unnamed";

/// Checked configuration of one cluster.
#[derive(Clone, Debug)]
pub struct ModuleConfig {
    /// Locality of this Envoy; unset if the node has none.
    pub locality: Locality,
    /// Name of the cluster that this Envoy is a host of.
    pub local_cluster_name: Option<Arc<str>>,
    parts: ClusterConfigParts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ModuleYaml {
    node: NodeYaml,
    cluster_manager: ClusterManagerYaml,
    cluster: ClusterYaml,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodeYaml {
    locality: FileMessage<LocalityMessage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ClusterManagerYaml {
    local_cluster_name: Option<String>,
}

impl ModuleConfig {
    /// Reads the text that Envoy passes. An error names the path of the field.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let document = Document::parse(if text.is_empty() { "{}" } else { text })?;
        let yaml: ModuleYaml = document.read()?;
        Self::checked(yaml).map_err(|error| document.locate(error))
    }

    fn checked(yaml: ModuleYaml) -> Result<Self, FieldError> {
        let locality = yaml.node.locality.message();
        let locality = locality.map_err(|error| error.under("node.locality"))?;
        let name = yaml.cluster_manager.local_cluster_name;
        let parts = cluster_parts(&yaml.cluster).map_err(|error| error.under("cluster"))?;
        let config = Self {
            locality: locality.into(),
            local_cluster_name: name.filter(|name| !name.is_empty()).map(Arc::from),
            parts,
        };
        let checked = config
            .cluster(UNNAMED)
            .and_then(|cluster| check_supported(&cluster));
        checked.map_err(|error| error.under("cluster"))?;
        Ok(config)
    }

    /// Returns the settings of the cluster, whose name Envoy tells when it creates load balancers.
    pub fn cluster(&self, name: &str) -> Result<ClusterConfig, FieldError> {
        ClusterConfig::try_new(ClusterConfigParts {
            name: name.into(),
            ..self.parts.clone()
        })
    }
}

fn cluster_parts(cluster: &ClusterYaml) -> Result<ClusterConfigParts, FieldError> {
    let mut parts = cluster_config_parts(cluster)?;
    // Envoy checks health; the module sees the result.
    parts.health_checking = HealthChecking::default();
    Ok(parts)
}

/// Rejects settings that need information which Envoy does not give to a module.
fn check_supported(cluster: &ClusterConfig) -> Result<(), FieldError> {
    if cluster.lb_subset_config().is_some() {
        let reason = "is not supported in Envoy: a module does not see the metadata of requests";
        return Err(FieldError::new("lb_subset_config", reason));
    }
    let basis = cluster.zone_aware().map(ZoneAware::locality_basis);
    if basis == Some(LocalityBasis::ObservedLoad) {
        let reason = "OBSERVED_LOAD is not supported in Envoy: a module does not see when requests \
                      start";
        return Err(FieldError::new("locality_basis", reason));
    }
    let hashing = cluster.endpoint_policy().consistent_hashing();
    let balanced = hashing.and_then(ConsistentHashing::hash_balance_factor);
    if balanced.is_some() {
        let reason = "is not supported in Envoy: a module does not count requests in flight";
        return Err(FieldError::new("hash_balance_factor", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
