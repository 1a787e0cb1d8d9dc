//! `envoy.config.cluster.v3`: clusters and the legacy way to choose a policy.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::policy::{
    ConsistentHashingMessage, LoadBalancingPolicyMessage, RuntimeDoubleMessage, SlowStartMessage,
};
use super::subset::SubsetMessage;
use super::upstream::{CircuitBreakersMessage, EdsClusterConfigMessage, OutlierDetectionMessage};
use super::{AnyMessage, ConfigSourceMessage, DurationMessage, PercentMessage};

/// `Cluster`; the last field is ours.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// `type`
    #[prost(int32, optional, tag = "2")]
    pub(crate) discovery_type: Option<i32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) eds_cluster_config: Option<EdsClusterConfigMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) connect_timeout: Option<DurationMessage>,
    #[prost(int32, tag = "6")]
    pub(crate) lb_policy: i32,
    /// Read only to know whether there are any.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub(crate) health_checks: Vec<Bytes>,
    #[prost(message, optional, tag = "10")]
    pub(crate) circuit_breakers: Option<CircuitBreakersMessage>,
    #[prost(message, optional, tag = "19")]
    pub(crate) outlier_detection: Option<OutlierDetectionMessage>,
    #[prost(message, optional, tag = "22")]
    pub(crate) lb_subset_config: Option<SubsetMessage>,
    #[prost(message, optional, tag = "23")]
    pub(crate) ring_hash_lb_config: Option<RingHashLbConfigMessage>,
    #[prost(message, optional, tag = "27")]
    pub(crate) common_lb_config: Option<CommonLbConfigMessage>,
    #[prost(btree_map = "string, message", tag = "36")]
    pub(crate) typed_extension_protocol_options: BTreeMap<String, AnyMessage>,
    #[prost(message, optional, tag = "37")]
    pub(crate) least_request_lb_config: Option<LeastRequestLbConfigMessage>,
    #[prost(message, optional, tag = "41")]
    pub(crate) load_balancing_policy: Option<LoadBalancingPolicyMessage>,
    #[prost(message, optional, tag = "42")]
    pub(crate) lrs_server: Option<ConfigSourceMessage>,
    #[prost(message, optional, tag = "52")]
    pub(crate) maglev_lb_config: Option<MaglevLbConfigMessage>,
    #[prost(message, optional, tag = "56")]
    pub(crate) round_robin_lb_config: Option<RoundRobinLbConfigMessage>,
    #[prost(string, repeated, tag = "57")]
    pub(crate) lrs_report_endpoint_metrics: Vec<String>,
    /// Unset: as the policy wants it.
    #[prost(int32, optional, tag = "50001")]
    pub(crate) locality_sampling: Option<i32>,
}

/// `Cluster.CommonLbConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CommonLbConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) healthy_panic_threshold: Option<PercentMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) zone_aware_lb_config: Option<LegacyZoneAwareMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) locality_weighted_lb_config: Option<()>,
    #[prost(message, optional, tag = "4")]
    pub(crate) update_merge_window: Option<DurationMessage>,
    #[prost(bool, tag = "5")]
    pub(crate) ignore_new_hosts_until_first_hc: bool,
    #[prost(message, optional, tag = "7")]
    pub(crate) consistent_hashing_lb_config: Option<ConsistentHashingMessage>,
}

/// `Cluster.CommonLbConfig.ZoneAwareLbConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LegacyZoneAwareMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) routing_enabled: Option<PercentMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) min_cluster_size: Option<u64>,
    #[prost(bool, tag = "3")]
    pub(crate) fail_traffic_on_panic: bool,
}

/// `Cluster.RoundRobinLbConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RoundRobinLbConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) slow_start_config: Option<SlowStartMessage>,
}

/// `Cluster.LeastRequestLbConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeastRequestLbConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) choice_count: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub(crate) active_request_bias: Option<RuntimeDoubleMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) slow_start_config: Option<SlowStartMessage>,
}

/// `Cluster.RingHashLbConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RingHashLbConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) minimum_ring_size: Option<u64>,
    #[prost(int32, tag = "3")]
    pub(crate) hash_function: i32,
    #[prost(message, optional, tag = "4")]
    pub(crate) maximum_ring_size: Option<u64>,
}

/// `Cluster.MaglevLbConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MaglevLbConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) table_size: Option<u64>,
}
