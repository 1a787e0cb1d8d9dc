//! Decoding and encoding of `envoy.config.cluster.v3.Cluster`.
//!
//! This file encodes discovery, timeouts and protocol options. Policies are encoded in
//! `encode_policy` (for the module inside Envoy in `module`) and decoded in `decode_policy` and
//! `legacy`, their subsets in `subset`; `rewrite` replaces the policy in a cluster of another
//! server. `upstream` decodes the connection settings. Called through `wire`.

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

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::cluster::ClusterConfig;
use prost::Message;

pub(crate) use decode::read_config_parts;
pub use decode::{ClusterIn, decode_cluster};
pub use encode_policy::{ClassicBasis, LocalityDelivery};
pub use rewrite::{rewrite_cluster_policy, rewrite_load_reporting};
pub use upstream::decode_upstream_cluster;
pub(crate) use upstream::read_upstream_cluster;

use plimsoll_schema::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use plimsoll_schema::pb::upstream::{
    EdsClusterConfigMessage, ExplicitHttpConfigMessage, Http2Message, HttpProtocolOptionsMessage,
};
use plimsoll_schema::pb::{AnyMessage, ConfigSourceMessage, PercentMessage};

/// Number of `EDS` in `Cluster.DiscoveryType`.
const EDS: i32 = 3;
/// Full name of the protocol options message, which is also its map key.
pub(super) const HTTP_PROTOCOL_OPTIONS: &str =
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// Envoy's default of `connect_timeout`.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Cluster to be encoded, with endpoints from EDS on the same ADS stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOut<'a> {
    pub config: &'a ClusterConfig,
    /// How the locality policy is encoded for the client that gets the cluster.
    pub locality: LocalityDelivery,
    pub connect_timeout: Duration,
    /// Name of the assignment, if it differs from the name of the cluster.
    pub eds_service_name: Option<&'a str>,
    /// Sets `lrs_server: self`, which makes gRPC clients report load. Envoy ignores the field.
    pub load_reporting: bool,
    pub lrs_report_endpoint_metrics: &'a [String],
    /// HTTP/2 settings; `None` means HTTP/1.1.
    pub http2: Option<&'a Http2Message>,
    /// Zero makes Envoy before 1.40 apply a second weight update immediately.
    pub update_merge_window: Option<Duration>,
}

impl<'a> ClusterOut<'a> {
    /// Creates a cluster with default settings around a configuration.
    pub const fn new(config: &'a ClusterConfig, locality: LocalityDelivery) -> Self {
        Self {
            config,
            locality,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            eds_service_name: None,
            load_reporting: false,
            lrs_report_endpoint_metrics: &[],
            http2: None,
            update_merge_window: None,
        }
    }
}

/// Encodes a cluster resource.
pub fn encode_cluster(cluster: &ClusterOut<'_>) -> Bytes {
    let mut message = ClusterMessage {
        name: cluster.config.name().as_ref().to_owned(),
        discovery_type: Some(EDS),
        eds_cluster_config: Some(EdsClusterConfigMessage {
            eds_config: Some(ConfigSourceMessage::ads()),
            service_name: cluster.eds_service_name.unwrap_or_default().to_owned(),
        }),
        connect_timeout: Some(cluster.connect_timeout.into()),
        lrs_server: cluster
            .load_reporting
            .then(ConfigSourceMessage::this_server),
        lrs_report_endpoint_metrics: cluster.lrs_report_endpoint_metrics.to_vec(),
        common_lb_config: Some(common_lb_config(cluster)),
        ..Default::default()
    };
    if let Some(settings) = cluster.http2 {
        message.typed_extension_protocol_options = http2(settings);
    }
    encode_policy::put(&mut message, cluster.config, cluster.locality);
    if cluster.locality == LocalityDelivery::Module {
        module::put_orca_filter(&mut message, cluster.config);
    }
    message.encode_to_vec().into()
}

fn common_lb_config(cluster: &ClusterOut<'_>) -> CommonLbConfigMessage {
    let health = cluster.config.health_checking();
    CommonLbConfigMessage {
        healthy_panic_threshold: Some(PercentMessage {
            value: f64::from(cluster.config.panic_threshold()),
        }),
        update_merge_window: cluster.update_merge_window.map(Into::into),
        ignore_new_hosts_until_first_hc: health.ignore_new_hosts_until_first_hc,
        ..Default::default()
    }
}

fn http2(settings: &Http2Message) -> BTreeMap<String, AnyMessage> {
    let options = HttpProtocolOptionsMessage {
        explicit_http_config: Some(ExplicitHttpConfigMessage {
            http2_protocol_options: Some(settings.clone()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let any = AnyMessage::pack(HTTP_PROTOCOL_OPTIONS, &options);
    BTreeMap::from([(HTTP_PROTOCOL_OPTIONS.to_owned(), any)])
}

#[cfg(test)]
mod tests;
