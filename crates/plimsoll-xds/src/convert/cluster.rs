//! `envoy.config.cluster.v3.Cluster` to and from bytes.
//!
//! Here are the cluster and what stands around its policy: discovery, timeouts, breakers. The
//! policy is written in `encode_policy` and read in `decode_policy` and `legacy`, subsets around it
//! in `subset`; a policy in the cluster of somebody else is exchanged in `rewrite`. What clients
//! need of a cluster beyond its policies is read in `upstream`. Called through `wire`.

mod decode;
mod decode_locality;
mod decode_orca;
mod decode_policy;
mod encode_policy;
mod legacy;
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

pub use decode::{ClusterIn, decode_cluster};
#[cfg(test)]
pub(super) use decode_policy::SUPPORTED as SUPPORTED_POLICIES;
pub(super) use encode_policy::PREFIX as POLICY_PREFIX;
pub use encode_policy::{ClassicBasis, LocalityDelivery};
pub use rewrite::{rewrite_cluster_policy, rewrite_load_reporting};
pub use upstream::decode_upstream_cluster;

use super::pb::cluster::{ClusterMessage, CommonLbConfigMessage};
use super::pb::upstream::{
    CircuitBreakersMessage, EdsClusterConfigMessage, ExplicitHttpConfigMessage, Http2Message,
    HttpProtocolOptionsMessage, OutlierDetectionMessage, ThresholdsMessage,
};
use super::pb::{AnyMessage, ConfigSourceMessage, PercentMessage};

/// `Cluster.DiscoveryType.EDS`.
const EDS: i32 = 3;
/// Full name of the protocol options, which is also their key.
pub(super) const HTTP_PROTOCOL_OPTIONS: &str =
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// Envoy's own default of `connect_timeout`.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A cluster whose endpoints come by EDS on the same stream, to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOut<'a> {
    /// Name, policies and health settings.
    pub config: &'a ClusterConfig,
    /// What the receiver is told about localities.
    pub locality: LocalityDelivery,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// Name of the assignment when it differs from the cluster's.
    pub eds_service_name: Option<&'a str>,
    /// `lrs_server: self`: gRPC clients report load. Envoy ignores it.
    pub load_reporting: bool,
    /// Metrics of backends that load reports sum up.
    pub lrs_report_endpoint_metrics: &'a [String],
    /// Speak HTTP/2 to the endpoints; otherwise HTTP/1.
    pub http2: bool,
    /// Zero lets weights of a second update take effect at once in Envoys before 1.40.
    pub update_merge_window: Option<Duration>,
    /// Breakers of the default priority.
    pub circuit_breakers: Option<CircuitBreakersOut>,
    /// Outlier detection by consecutive errors.
    pub outlier_detection: Option<OutlierDetectionOut>,
}

impl<'a> ClusterOut<'a> {
    /// A cluster with nothing but a configuration.
    pub const fn new(config: &'a ClusterConfig, locality: LocalityDelivery) -> Self {
        Self {
            config,
            locality,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            eds_service_name: None,
            load_reporting: false,
            lrs_report_endpoint_metrics: &[],
            http2: false,
            update_merge_window: None,
            circuit_breakers: None,
            outlier_detection: None,
        }
    }
}

/// `CircuitBreakers.Thresholds`; unset means Envoy's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitBreakersOut {
    /// Connections.
    pub max_connections: Option<u32>,
    /// Requests that wait for a connection.
    pub max_pending_requests: Option<u32>,
    /// Requests at a time.
    pub max_requests: Option<u32>,
    /// Retries at a time.
    pub max_retries: Option<u32>,
}

/// `OutlierDetection`; unset means Envoy's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutlierDetectionOut {
    /// Errors in a row that eject a host.
    pub consecutive_5xx: Option<u32>,
    /// Time between two looks.
    pub interval: Option<Duration>,
    /// First ejection.
    pub base_ejection_time: Option<Duration>,
    /// At most so many percent of the hosts.
    pub max_ejection_percent: Option<u32>,
}

/// Writes a cluster.
pub fn encode_cluster(cluster: &ClusterOut<'_>) -> Bytes {
    let mut message = ClusterMessage {
        name: cluster.config.name().as_ref().to_owned(),
        discovery_type: Some(EDS),
        eds_cluster_config: Some(EdsClusterConfigMessage {
            eds_config: Some(ConfigSourceMessage::ads()),
            service_name: cluster.eds_service_name.unwrap_or_default().to_owned(),
        }),
        connect_timeout: Some(cluster.connect_timeout.into()),
        circuit_breakers: cluster.circuit_breakers.map(circuit_breakers),
        outlier_detection: cluster.outlier_detection.map(outlier_detection),
        lrs_server: cluster
            .load_reporting
            .then(ConfigSourceMessage::this_server),
        lrs_report_endpoint_metrics: cluster.lrs_report_endpoint_metrics.to_vec(),
        common_lb_config: Some(common_lb_config(cluster)),
        ..Default::default()
    };
    if cluster.http2 {
        message.typed_extension_protocol_options = http2();
    }
    encode_policy::put(&mut message, cluster.config, cluster.locality);
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

fn http2() -> BTreeMap<String, AnyMessage> {
    let options = HttpProtocolOptionsMessage {
        explicit_http_config: Some(ExplicitHttpConfigMessage {
            http2_protocol_options: Some(Http2Message::default()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let any = AnyMessage::pack(HTTP_PROTOCOL_OPTIONS, &options);
    BTreeMap::from([(HTTP_PROTOCOL_OPTIONS.to_owned(), any)])
}

fn circuit_breakers(out: CircuitBreakersOut) -> CircuitBreakersMessage {
    CircuitBreakersMessage {
        thresholds: vec![ThresholdsMessage {
            max_connections: out.max_connections,
            max_pending_requests: out.max_pending_requests,
            max_requests: out.max_requests,
            max_retries: out.max_retries,
            ..Default::default()
        }],
    }
}

fn outlier_detection(out: OutlierDetectionOut) -> OutlierDetectionMessage {
    OutlierDetectionMessage {
        consecutive_5xx: out.consecutive_5xx,
        interval: out.interval.map(Into::into),
        base_ejection_time: out.base_ejection_time.map(Into::into),
        max_ejection_percent: out.max_ejection_percent,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
