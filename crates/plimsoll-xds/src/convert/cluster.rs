//! Decoding and encoding of `envoy.config.cluster.v3.Cluster`.
//!
//! This file encodes discovery and takes connection settings as they are written. Policies are
//! encoded in `encode_policy` (for the module inside Envoy in `module`) and decoded in
//! `decode_policy` and `legacy`, their subsets in `subset`; `rewrite` replaces the policy in a
//! cluster of another server. `upstream` decodes the connection settings. Called through `wire`.

mod decode;
mod decode_locality;
mod decode_orca;
mod decode_policy;
mod encode_policy;
mod legacy;
mod module;
mod rewrite;
mod subset;
mod upstream;
mod upstream_health;
mod upstream_http;
mod upstream_tls;

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::cluster::ClusterConfig;
use prost::Message;

pub(crate) use decode::read_config_parts;
pub use decode::{ClusterIn, decode_cluster};
pub use encode_policy::{ClassicBasis, LocalityDelivery};
pub use rewrite::{
    rewrite_cluster_policy, rewrite_extensions, rewrite_load_reporting, rewrite_panic_threshold,
};
pub use upstream::decode_upstream_cluster;
pub(crate) use upstream::read_upstream_cluster;

use plimsoll_schema::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use plimsoll_schema::pb::upstream::EdsClusterConfigMessage;
use plimsoll_schema::pb::{ConfigSourceMessage, PercentMessage};

/// Number of `EDS` in `Cluster.DiscoveryType`.
const EDS: i32 = 3;
/// Full name of the protocol options message, which is also its map key.
pub(super) const HTTP_PROTOCOL_OPTIONS: &str =
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Cluster to be encoded, with endpoints from EDS on the same ADS stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOut<'a> {
    pub config: &'a ClusterConfig,
    /// How the locality policy is encoded for the client that gets the cluster.
    pub locality: LocalityDelivery,
    /// Settings beside load balancing, which are encoded as they are, such as health checks,
    /// circuit breakers and TLS.
    pub settings: Option<&'a ClusterMessage>,
    /// Name of the assignment, if it differs from the name of the cluster.
    pub eds_service_name: Option<&'a str>,
    /// Sets `lrs_server: self`, which makes gRPC clients report load. Envoy ignores the field.
    pub load_reporting: bool,
    /// Zero makes Envoy before 1.40 apply a second weight update immediately. Only if `settings`
    /// have no other value.
    pub update_merge_window: Option<Duration>,
}

impl<'a> ClusterOut<'a> {
    /// Creates a cluster with default settings around a configuration.
    pub const fn new(config: &'a ClusterConfig, locality: LocalityDelivery) -> Self {
        Self {
            config,
            locality,
            settings: None,
            eds_service_name: None,
            load_reporting: false,
            update_merge_window: None,
        }
    }
}

/// Encodes a cluster resource.
pub fn encode_cluster(cluster: &ClusterOut<'_>) -> Bytes {
    let settings = cluster.settings.cloned().unwrap_or_default();
    let mut message = ClusterMessage {
        name: cluster.config.name().as_ref().to_owned(),
        discovery_type: Some(EDS),
        eds_cluster_config: Some(EdsClusterConfigMessage {
            eds_config: Some(ConfigSourceMessage::ads()),
            service_name: cluster.eds_service_name.unwrap_or_default().to_owned(),
        }),
        lrs_server: cluster
            .load_reporting
            .then(ConfigSourceMessage::this_server),
        common_lb_config: Some(common_lb_config(cluster)),
        ..settings
    };
    encode_policy::put(&mut message, cluster.config, cluster.locality);
    if cluster.locality == LocalityDelivery::Module {
        let encoded = message.encode_to_vec();
        module::put_orca_filter(&mut message, cluster.config, &encoded);
    }
    message.encode_to_vec().into()
}

fn common_lb_config(cluster: &ClusterOut<'_>) -> CommonLbConfigMessage {
    let settings = cluster.settings;
    let written = settings
        .and_then(|one| one.common_lb_config.clone())
        .unwrap_or_default();
    let health = cluster.config.health_checking();
    CommonLbConfigMessage {
        healthy_panic_threshold: Some(PercentMessage {
            value: f64::from(cluster.config.panic_threshold()),
        }),
        update_merge_window: written
            .update_merge_window
            .or(cluster.update_merge_window.map(Into::into)),
        ignore_new_hosts_until_first_hc: written.ignore_new_hosts_until_first_hc
            || health.ignore_new_hosts_until_first_hc,
        ..written
    }
}

#[cfg(test)]
mod tests;
