//! Configuration of the module: the `lb_policy_config` of a cluster, a `google.protobuf.Struct`
//! that Envoy passes as JSON.
//!
//! Names are those of Envoy's bootstrap. The ABI shows the module neither the node nor the local
//! cluster, so they are repeated here; `cluster` has the load balancing settings of the cluster,
//! read by the same converter as files of the proxy and as clusters of a management server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, HealthChecking};
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::EndpointLoadMetricsFormat;
use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::{AddressMessage, LocalityMessage};
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::upstream::UpstreamCluster;
use plimsoll_xds::yaml::{ClusterYaml, ConfigError, Document, cluster_config_parts};
use serde::Deserialize;

use crate::management::ManagementServer;
use crate::report_format;

/// Name of a cluster whose real name is not known yet.
const UNNAMED: &str = "unnamed";

/// Checked configuration of one cluster.
#[derive(Clone, Debug)]
pub struct ModuleConfig {
    /// `None` if nothing of it is written: clusters of a control plane are the same for all nodes.
    pub identity: Option<Identity>,
    /// Address of the server for explanations, on loopback.
    pub admin_address: Option<SocketAddr>,
    /// Format in which requests ask the hosts for load reports.
    pub endpoint_load_metrics_format: Option<&'static str>,
    parts: ClusterConfigParts,
}

/// What is the same for all clusters of an Envoy.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Locality of this Envoy; unset if the node has none.
    pub locality: Locality,
    /// Name of the cluster that this Envoy is a host of.
    pub local_cluster_name: Option<Arc<str>>,
    /// Control plane that measures demand.
    pub management_server: Option<ManagementServer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ModuleYaml {
    node: Option<NodeYaml>,
    cluster_manager: Option<ClusterManagerYaml>,
    cluster: ClusterYaml,
    management_server: Option<ClusterYaml>,
    admin: Option<AdminYaml>,
    endpoint_load_metrics_format: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdminYaml {
    address: FileMessage<AddressMessage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodeYaml {
    id: String,
    cluster: String,
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
        let parts = cluster_parts(&yaml.cluster).map_err(|error| error.under("cluster"))?;
        let own = yaml.endpoint_load_metrics_format.as_deref();
        let config = Self {
            identity: identity(yaml.node, yaml.cluster_manager, yaml.management_server)?,
            admin_address: yaml.admin.map(admin_address).transpose()?,
            endpoint_load_metrics_format: report_format(own, &parts)?,
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

fn identity(
    node: Option<NodeYaml>,
    cluster_manager: Option<ClusterManagerYaml>,
    server: Option<ClusterYaml>,
) -> Result<Option<Identity>, FieldError> {
    if node.is_none() && cluster_manager.is_none() && server.is_none() {
        return Ok(None);
    }
    let node = node.unwrap_or_default();
    let locality = node.locality.message();
    let locality: Locality = locality
        .map_err(|error| error.under("node.locality"))?
        .into();
    let management_server = server
        .map(|server| management_server(server, &node, &locality))
        .transpose()?;
    let name = cluster_manager.and_then(|manager| manager.local_cluster_name);
    Ok(Some(Identity {
        locality,
        local_cluster_name: name.filter(|name| !name.is_empty()).map(Arc::from),
        management_server,
    }))
}

/// Reads the field of the module or that of the cluster, which a control plane sends.
fn report_format(
    own: Option<&str>,
    parts: &ClusterConfigParts,
) -> Result<Option<&'static str>, FieldError> {
    let invalid = |reason: &str| FieldError::new("endpoint_load_metrics_format", reason);
    let unknown = || invalid("must be TEXT, JSON or BIN");
    let own = own
        .map(|text| report_format::parse(text).ok_or_else(unknown))
        .transpose()?;
    let of_cluster = parts
        .endpoint_load_metrics_format
        .map(EndpointLoadMetricsFormat::header_value);
    match (own, of_cluster) {
        (Some(own), Some(other)) if own != other => Err(invalid(
            "differs from cluster.plimsoll.endpoint_load_metrics_format; remove one of the two",
        )),
        (own, of_cluster) => Ok(own.or(of_cluster)),
    }
}

fn admin_address(admin: AdminYaml) -> Result<SocketAddr, FieldError> {
    let written = admin
        .address
        .message()
        .map_err(|error| error.under("admin.address"))?;
    let address = written.socket_address.and_then(|socket| {
        let port = u16::try_from(socket.port_value?).ok()?;
        let ip: IpAddr = socket.address.parse().ok()?;
        ip.is_loopback().then(|| SocketAddr::new(ip, port))
    });
    let reason = "must be an IP address of loopback with a port: explanations have no access rules";
    address.ok_or_else(|| FieldError::new("admin.address.socket_address", reason))
}

/// Checks the control plane and the identity that it needs.
fn management_server(
    server: ClusterYaml,
    node: &NodeYaml,
    locality: &Locality,
) -> Result<ManagementServer, FieldError> {
    for (path, name) in [("node.id", &node.id), ("node.cluster", &node.cluster)] {
        if name.is_empty() {
            let reason = "must be set with management_server, to the value in the bootstrap";
            return Err(FieldError::new(path, reason));
        }
    }
    let node = Node {
        id: node.id.as_str().into(),
        cluster: node.cluster.as_str().into(),
        locality: locality.clone(),
    };
    UpstreamCluster::try_from(server)
        .and_then(|server| ManagementServer::try_new(server, node))
        .map_err(|error| error.under("management_server"))
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
    Ok(())
}

#[cfg(test)]
mod tests;
