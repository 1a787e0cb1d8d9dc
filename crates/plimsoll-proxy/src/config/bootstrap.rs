//! The top-level message of a configuration file: `envoy.config.bootstrap.v3.Bootstrap`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::units::FieldError;
use plimsoll_xds::ads::CLUSTER;
use plimsoll_xds::pb::listener::ListenerMessage;
use plimsoll_xds::pb::{AddressMessage, LocalityMessage};
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::ignored_fields;
use plimsoll_xds::yaml::ClusterYaml;
use plimsoll_xds::yaml::proto_json::Ignored;
use serde::Deserialize;

use super::dynamic::{ApiConfigSourceYaml, DynamicResourcesYaml};
use super::overload::OverloadManagerYaml;
use super::{ListenerConfig, NodeConfig, ProxyConfig};
use crate::clusters::{UpstreamCluster, check_discovery};
use crate::source::NodeOverrides;

/// A bootstrap file of the proxy.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct BootstrapYaml {
    /// Identity and locality of this proxy.
    node: NodeYaml,
    /// Admin interface. Default disabled.
    admin: Option<AdminYaml>,
    /// Listeners and clusters that are configured in this file.
    static_resources: StaticResourcesYaml,
    /// Management server to subscribe to. Default none.
    dynamic_resources: Option<DynamicResourcesYaml>,
    /// Options that apply to all clusters.
    cluster_manager: ClusterManagerYaml,
    /// Limits of downstream connections, and actions against overload.
    overload_manager: OverloadManagerYaml,
}

/// Identity of this proxy (`Node`).
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct NodeYaml {
    /// Unique id of this proxy.
    id: String,
    /// Name of the fleet that this proxy belongs to.
    cluster: String,
    /// Region, zone and sub-zone in which this proxy runs.
    locality: FileMessage<LocalityMessage>,
    /// Metadata of the node; has no effect.
    metadata: Option<Ignored>,
    /// Zone of the command line, which replaces that of `locality`.
    #[serde(skip)]
    zone: Option<String>,
}

impl NodeYaml {
    /// Checks that `id` and `cluster` are set, because the load reporting server sums load by proxy
    /// and fleet. Envoy does not start without these names either.
    fn check_load_reporting(&self) -> Result<(), FieldError> {
        let reason = "must not be empty with cluster_manager.load_stats_config: load is reported \
                      by node.id and node.cluster";
        for (path, name) in [("node.id", &self.id), ("node.cluster", &self.cluster)] {
            if name.is_empty() {
                return Err(FieldError::new(path, reason));
            }
        }
        Ok(())
    }
}

/// Settings of the admin interface (`Admin`).
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct AdminYaml {
    /// Address of the admin interface; port 0 selects any.
    address: FileMessage<AddressMessage>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct StaticResourcesYaml {
    /// Listeners that accept requests.
    listeners: Vec<FileMessage<ListenerMessage>>,
    /// Clusters that routes can refer to.
    clusters: Vec<ClusterYaml>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct ClusterManagerYaml {
    /// Name of the cluster that this proxy is a host of. Enables zone-aware routing.
    local_cluster_name: Option<String>,
    /// Report load to this server, which must be that of `ads_config`. Default no reports.
    load_stats_config: Option<ApiConfigSourceYaml>,
}

/// Parses an address to listen on; port 0 is allowed. Error paths are relative to the `Address`.
pub(super) fn socket_address(message: AddressMessage) -> Result<SocketAddr, FieldError> {
    let Some(socket) = message.socket_address else {
        return Err(FieldError::new("socket_address", "must be set"));
    };
    let ip: IpAddr = socket.address.parse().map_err(|_| {
        let reason = format!("{:?} is not an IP address", socket.address);
        FieldError::new("socket_address.address", reason)
    })?;
    match socket.port_value.map(u16::try_from) {
        Some(Ok(port)) => Ok(SocketAddr::new(ip, port)),
        _ => {
            let reason = "must be a port from 0 to 65535";
            Err(FieldError::new("socket_address.port_value", reason))
        }
    }
}

impl BootstrapYaml {
    pub(super) fn override_node(&mut self, overrides: &NodeOverrides) {
        if let Some(id) = &overrides.id {
            self.node.id.clone_from(id);
        }
        if let Some(cluster) = &overrides.cluster {
            self.node.cluster.clone_from(cluster);
        }
        self.node.zone.clone_from(&overrides.zone);
    }

    pub(super) fn validate(self) -> Result<ProxyConfig, FieldError> {
        let admin = self.admin.map(|admin| {
            let address = admin.address.message().and_then(socket_address);
            address.map_err(|error| error.under("admin.address"))
        });
        let mut listeners = Vec::new();
        for (index, listener) in self.static_resources.listeners.into_iter().enumerate() {
            let prefix = format!("static_resources.listeners[{index}]");
            let listener = listener
                .message()
                .and_then(|message| ListenerConfig::try_new(message, index))
                .map_err(|error| error.under(&prefix))?;
            listeners.push(Arc::new(listener));
        }
        let manager = &self.cluster_manager;
        let mut clusters = Vec::new();
        let mut ignored = Vec::new();
        for (index, cluster) in self.static_resources.clusters.into_iter().enumerate() {
            let prefix = format!("static_resources.clusters[{index}]");
            let fields = ignored_fields(CLUSTER, cluster.bytes()).into_iter();
            ignored.extend(fields.map(|field| format!("{prefix}.{field}")));
            let cluster =
                UpstreamCluster::try_from(cluster).map_err(|error| error.under(&prefix))?;
            let ads = self.dynamic_resources.is_some();
            check_discovery(&cluster, ads).map_err(|error| error.under(&prefix))?;
            clusters.push(cluster);
        }
        let load_stats = manager.load_stats_config.as_ref();
        let xds = self
            .dynamic_resources
            .map(|dynamic| {
                let xds = dynamic.validate(load_stats, &clusters);
                xds.map_err(|error| error.under("dynamic_resources"))
            })
            .transpose()?;
        if let Some(load_stats) = load_stats {
            load_stats
                .check_same_server(xds.as_ref())
                .map_err(|error| error.under("cluster_manager.load_stats_config"))?;
            self.node.check_load_reporting()?;
        }
        let mut locality = self
            .node
            .locality
            .message()
            .map_err(|error| error.under("node.locality"))?;
        if let Some(zone) = self.node.zone {
            locality.zone = zone;
        }
        let overload = self.overload_manager.validate();
        let (max_connections, overload) =
            overload.map_err(|error| error.under("overload_manager"))?;
        let config = ProxyConfig {
            node: NodeConfig {
                id: self.node.id,
                cluster: self.node.cluster,
                locality: locality.into(),
            },
            admin: admin.transpose()?,
            listeners,
            clusters,
            ignored_fields: ignored,
            xds,
            local_cluster_name: self.cluster_manager.local_cluster_name,
            max_connections,
            overload,
        };
        config.check()
    }
}
