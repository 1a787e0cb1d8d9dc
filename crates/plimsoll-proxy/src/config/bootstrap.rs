//! The outermost message: `envoy.config.bootstrap.v3.Bootstrap`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Ignored, Uint};
use serde::Deserialize;

use super::dynamic::{ApiConfigSourceYaml, DynamicResourcesYaml};
use super::listener::ListenerYaml;
use super::{NodeConfig, ProxyConfig};
use crate::clusters::{UpstreamCluster, UpstreamClusterYaml, check_discovery};

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct BootstrapYaml {
    /// Who this proxy is.
    node: NodeYaml,
    /// Where the admin pages are; without it, nowhere.
    admin: Option<AdminYaml>,
    /// Listeners and clusters of the file.
    static_resources: StaticResourcesYaml,
    /// A management server.
    dynamic_resources: Option<DynamicResourcesYaml>,
    /// What holds for all clusters.
    cluster_manager: ClusterManagerYaml,
    /// The limit of connections.
    overload_manager: OverloadManagerYaml,
}

/// `Node`; what else it may say is for control planes.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct NodeYaml {
    /// Its name.
    id: String,
    /// The fleet that it belongs to.
    cluster: String,
    /// Its own zone.
    locality: LocalityYaml,
    /// Without effect.
    metadata: Option<Ignored>,
}

impl NodeYaml {
    /// Load is counted by proxy and fleet: reports without these names count for nobody, and Envoy
    /// does not start without them either.
    fn check_reporter(&self) -> Result<(), FieldError> {
        let reason = "must not be empty with cluster_manager.load_stats_config: load is counted \
                      by node.id and node.cluster";
        match () {
            () if self.id.is_empty() => Err(FieldError::new("node.id", reason)),
            () if self.cluster.is_empty() => Err(FieldError::new("node.cluster", reason)),
            () => Ok(()),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "NodeLocality")
)]
#[serde(default, deny_unknown_fields)]
struct LocalityYaml {
    /// Region.
    region: String,
    /// Zone.
    zone: String,
    /// Part of the zone.
    sub_zone: String,
}

/// `Admin`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct AdminYaml {
    /// The address.
    address: AddressYaml,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct StaticResourcesYaml {
    /// Where requests are accepted.
    listeners: Vec<ListenerYaml>,
    /// Where they may go.
    clusters: Vec<UpstreamClusterYaml>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct ClusterManagerYaml {
    /// The cluster whose hosts are proxies like this one, by zone.
    local_cluster_name: Option<String>,
    /// Report load to the server of `ads_config`, which must be named again.
    load_stats_config: Option<ApiConfigSourceYaml>,
}

/// `OverloadManager`: the limit of connections, and nothing else.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct OverloadManagerYaml {
    /// Only `DownstreamConnectionsConfig`.
    resource_monitors: Vec<ResourceMonitorYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ResourceMonitorYaml {
    /// Only a name.
    #[serde(rename = "name")]
    _name: String,
    /// The limit.
    typed_config: DownstreamConnectionsYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct DownstreamConnectionsYaml {
    /// `type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Connections of clients at a time; more are turned away.
    max_active_downstream_connections: Uint<u64>,
}

const DOWNSTREAM_CONNECTIONS: &str =
    "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig";

/// `Address`.
#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ListenerAddress")
)]
#[serde(deny_unknown_fields)]
pub(super) struct AddressYaml {
    /// IP address and port.
    socket_address: SocketAddressYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ListenerSocketAddress")
)]
#[serde(deny_unknown_fields)]
struct SocketAddressYaml {
    /// An IP address.
    address: String,
    /// The port.
    port_value: Uint<u32>,
}

impl AddressYaml {
    /// The address; paths start at this message.
    pub(super) fn checked(&self) -> Result<SocketAddr, FieldError> {
        let socket = &self.socket_address;
        let ip: IpAddr = socket.address.parse().map_err(|_| {
            let reason = format!("{:?} is not an IP address", socket.address);
            FieldError::new("socket_address.address", reason)
        })?;
        let port = u16::try_from(socket.port_value.0).map_err(|_| {
            let reason = format!("{} is not a port", socket.port_value.0);
            FieldError::new("socket_address.port_value", reason)
        })?;
        Ok(SocketAddr::new(ip, port))
    }
}

/// Whether an `@type` is the message named `full_name`.
pub(super) fn expect_type(type_url: &str, full_name: &str) -> Result<(), FieldError> {
    let found = type_url.rsplit('/').next().unwrap_or_default();
    if found == full_name {
        return Ok(());
    }
    let reason = format!("{type_url:?} is not supported here; known: {full_name}");
    Err(FieldError::new("@type", reason))
}

impl BootstrapYaml {
    /// The checked form.
    pub(super) fn checked(self) -> Result<ProxyConfig, FieldError> {
        let admin = self.admin.map(|admin| {
            let address = admin.address.checked();
            address.map_err(|error| error.under("admin.address"))
        });
        let mut listeners = Vec::new();
        for (index, listener) in self.static_resources.listeners.into_iter().enumerate() {
            let place = format!("static_resources.listeners[{index}]");
            let listener = listener
                .checked(index)
                .map_err(|error| error.under(&place))?;
            listeners.push(Arc::new(listener));
        }
        let manager = &self.cluster_manager;
        let mut clusters = Vec::new();
        for (index, cluster) in self.static_resources.clusters.into_iter().enumerate() {
            let place = format!("static_resources.clusters[{index}]");
            let cluster =
                UpstreamCluster::try_from(cluster).map_err(|error| error.under(&place))?;
            let ads = self.dynamic_resources.is_some();
            check_discovery(&cluster, ads).map_err(|error| error.under(&place))?;
            clusters.push(cluster);
        }
        let load_stats = manager.load_stats_config.as_ref();
        let xds = self.dynamic_resources.map(|dynamic| {
            let xds = dynamic.checked(load_stats, &clusters);
            xds.map_err(|error| error.under("dynamic_resources"))
        });
        let xds = xds.transpose()?;
        if let Some(load_stats) = load_stats {
            let checked = load_stats.check_is(xds.as_ref());
            checked.map_err(|error| error.under("cluster_manager.load_stats_config"))?;
            self.node.check_reporter()?;
        }
        let locality = &self.node.locality;
        let config = ProxyConfig {
            node: NodeConfig {
                id: self.node.id,
                cluster: self.node.cluster,
                locality: Locality::new(&locality.region, &locality.zone, &locality.sub_zone),
            },
            admin: admin.transpose()?,
            listeners,
            clusters,
            xds,
            local_cluster_name: self.cluster_manager.local_cluster_name,
            max_connections: self
                .overload_manager
                .max_connections()
                .map_err(|error| error.under("overload_manager"))?,
        };
        config.check()
    }
}

impl OverloadManagerYaml {
    fn max_connections(&self) -> Result<Option<u64>, FieldError> {
        let mut limit = None;
        for (index, monitor) in self.resource_monitors.iter().enumerate() {
            let config = &monitor.typed_config;
            expect_type(&config.type_url, DOWNSTREAM_CONNECTIONS).map_err(|error| {
                error.under(&format!("resource_monitors[{index}].typed_config"))
            })?;
            limit = Some(config.max_active_downstream_connections.0);
        }
        Ok(limit)
    }
}
