//! `envoy.extensions.load_balancing_policies.*.v3` and the list that holds them.
//!
//! Fields and values from 50001 on are ours: settings that only plimsoll data planes have. They are
//! written for nobody else. A test of the binary compares every number here with the descriptors
//! inside released Envoys (`crates/plimsoll/tests/e2e`, `descriptors`).

use plimsoll_core::model::zone_aware::LocalityBasis;
use prost::{Enumeration, Message};

use super::{AnyMessage, DurationMessage, PercentMessage};

/// `envoy.config.cluster.v3.LoadBalancingPolicy`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LoadBalancingPolicyMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) policies: Vec<PolicyMessage>,
}

/// `LoadBalancingPolicy.Policy`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PolicyMessage {
    #[prost(message, optional, tag = "4")]
    pub(crate) typed_extension_config: Option<TypedExtensionConfigMessage>,
}

/// `envoy.config.core.v3.TypedExtensionConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TypedExtensionConfigMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) typed_config: Option<AnyMessage>,
}

/// `round_robin.v3.RoundRobin`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RoundRobinMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) slow_start_config: Option<SlowStartMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) locality_lb_config: Option<LocalityLbConfigMessage>,
}

/// `least_request.v3.LeastRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeastRequestMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) choice_count: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub(crate) active_request_bias: Option<RuntimeDoubleMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) slow_start_config: Option<SlowStartMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) locality_lb_config: Option<LocalityLbConfigMessage>,
    #[prost(int32, tag = "6")]
    pub(crate) selection_method: i32,
}

/// `random.v3.Random`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RandomMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) locality_lb_config: Option<LocalityLbConfigMessage>,
}

/// `ring_hash.v3.RingHash`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RingHashMessage {
    #[prost(int32, tag = "1")]
    pub(crate) hash_function: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) minimum_ring_size: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub(crate) maximum_ring_size: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(crate) use_hostname_for_hashing: bool,
    #[prost(message, optional, tag = "5")]
    pub(crate) hash_balance_factor: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub(crate) consistent_hashing_lb_config: Option<ConsistentHashingMessage>,
    #[prost(message, optional, tag = "7")]
    pub(crate) locality_weighted_lb_config: Option<()>,
}

/// `maglev.v3.Maglev`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MaglevMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) table_size: Option<u64>,
    #[prost(message, optional, tag = "2")]
    pub(crate) consistent_hashing_lb_config: Option<ConsistentHashingMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) locality_weighted_lb_config: Option<()>,
}

/// `wrr_locality.v3.WrrLocality`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WrrLocalityMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) endpoint_picking_policy: Option<LoadBalancingPolicyMessage>,
}

/// `client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClientSideWeightedRoundRobinMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) enable_oob_load_report: Option<bool>,
    #[prost(message, optional, tag = "2")]
    pub(crate) oob_reporting_period: Option<DurationMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) blackout_period: Option<DurationMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) weight_expiration_period: Option<DurationMessage>,
    #[prost(message, optional, tag = "5")]
    pub(crate) weight_update_period: Option<DurationMessage>,
    #[prost(message, optional, tag = "6")]
    pub(crate) error_utilization_penalty: Option<f32>,
    #[prost(string, repeated, tag = "7")]
    pub(crate) metric_names_for_computing_utilization: Vec<String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) slow_start_config: Option<SlowStartMessage>,
    #[prost(message, optional, tag = "9")]
    pub(crate) oob_reporting_config: Option<OobReportingConfigMessage>,
    #[prost(int32, tag = "50001")]
    pub(crate) utilization_precedence: i32,
    /// Ours: Envoy's message cannot say how a locality is chosen.
    #[prost(message, optional, tag = "50002")]
    pub(crate) locality_lb_config: Option<LocalityLbConfigMessage>,
}

/// `common.v3.OrcaOobReportingConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct OobReportingConfigMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) port_value: u32,
    #[prost(string, tag = "2")]
    pub(crate) authority: String,
}

/// `load_aware_locality.v3.LoadAwareLocality`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadAwareLocalityMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) endpoint_picking_policy: Option<LoadBalancingPolicyMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) weight_update_period: Option<DurationMessage>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) metric_names_for_computing_utilization: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub(crate) utilization_variance_threshold: Option<f64>,
    #[prost(message, optional, tag = "5")]
    pub(crate) smoothing_time_constant: Option<DurationMessage>,
    #[prost(message, optional, tag = "6")]
    pub(crate) remote_probe_fraction: Option<f64>,
    #[prost(message, optional, tag = "7")]
    pub(crate) weight_expiration_period: Option<DurationMessage>,
    #[prost(message, optional, tag = "8")]
    pub(crate) enable_oob_load_report: Option<bool>,
    #[prost(message, optional, tag = "9")]
    pub(crate) oob_reporting_period: Option<DurationMessage>,
    #[prost(message, optional, tag = "10")]
    pub(crate) oob_reporting_config: Option<OobReportingConfigMessage>,
    #[prost(int32, tag = "50001")]
    pub(crate) utilization_precedence: i32,
    #[prost(int32, tag = "50002")]
    pub(crate) cold_start: i32,
    #[prost(int32, tag = "50003")]
    pub(crate) remote_mean: i32,
    #[prost(int32, tag = "50004")]
    pub(crate) spill_controller: i32,
    #[prost(message, optional, tag = "50005")]
    pub(crate) local_probe_fraction: Option<f64>,
    #[prost(message, optional, tag = "50006")]
    pub(crate) demand_feed_forward: Option<bool>,
}

/// `common.v3.LocalityLbConfig`, a oneof in the original.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocalityLbConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) zone_aware_lb_config: Option<ZoneAwareMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) locality_weighted_lb_config: Option<()>,
}

/// `LocalityLbConfig.ZoneAwareLbConfig`; field 7 and value 2 of `locality_basis` are those of seed
/// `000…`; fields from 50001 on and value 50001 of `locality_basis` (`OBSERVED_LOAD`) are ours.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ZoneAwareMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) routing_enabled: Option<PercentMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) min_cluster_size: Option<u64>,
    #[prost(bool, tag = "3")]
    pub(crate) fail_traffic_on_panic: bool,
    #[prost(bool, tag = "4")]
    pub(crate) force_locality_direct_routing: bool,
    #[prost(message, optional, tag = "5")]
    pub(crate) force_local_zone: Option<ForceLocalZoneMessage>,
    /// Optional here, not in the original: a 0 that stands on the wire was written by somebody.
    #[prost(int32, optional, tag = "6")]
    pub(crate) locality_basis: Option<i32>,
    #[prost(message, optional, tag = "7")]
    pub(crate) lrs_rate_config: Option<LrsRateConfigMessage>,
    #[prost(int32, tag = "50001")]
    pub(crate) upstream_locality_basis: i32,
    #[prost(message, optional, tag = "50002")]
    pub(crate) dead_band_bp: Option<u64>,
    #[prost(bool, tag = "50003")]
    pub(crate) all_priorities: bool,
    #[prost(message, optional, tag = "50004")]
    pub(crate) observed_load_period: Option<DurationMessage>,
}

/// `ZoneAwareLbConfig.LocalityBasis`; value 2 is that of seed `000…`, those from 50001 on are ours,
/// out of the way of whatever Envoy may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum LocalityBasisValue {
    HealthyHostsNum = 0,
    HealthyHostsWeight = 1,
    LrsReportedRate = 2,
    ObservedLoad = 50001,
}

impl From<LocalityBasis> for LocalityBasisValue {
    fn from(basis: LocalityBasis) -> Self {
        match basis {
            LocalityBasis::HealthyHostsNum => Self::HealthyHostsNum,
            LocalityBasis::HealthyHostsWeight => Self::HealthyHostsWeight,
            LocalityBasis::LrsReportedRate => Self::LrsReportedRate,
            LocalityBasis::ObservedLoad => Self::ObservedLoad,
        }
    }
}

impl From<LocalityBasisValue> for LocalityBasis {
    fn from(value: LocalityBasisValue) -> Self {
        match value {
            LocalityBasisValue::HealthyHostsNum => Self::HealthyHostsNum,
            LocalityBasisValue::HealthyHostsWeight => Self::HealthyHostsWeight,
            LocalityBasisValue::LrsReportedRate => Self::LrsReportedRate,
            LocalityBasisValue::ObservedLoad => Self::ObservedLoad,
        }
    }
}

/// `ZoneAwareLbConfig.ForceLocalZone`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ForceLocalZoneMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) min_size: Option<u32>,
}

/// `lrs_rate_config` of seed `000…`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LrsRateConfigMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) staleness_threshold: Option<DurationMessage>,
    #[prost(int32, tag = "2")]
    pub(crate) fraction_source: i32,
}

/// `SlowStartConfig`, typed and legacy alike.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SlowStartMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) slow_start_window: Option<DurationMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) aggression: Option<RuntimeDoubleMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) min_weight_percent: Option<PercentMessage>,
}

/// `ConsistentHashingLbConfig`, typed and legacy alike.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ConsistentHashingMessage {
    #[prost(bool, tag = "1")]
    pub(crate) use_hostname_for_hashing: bool,
    #[prost(message, optional, tag = "2")]
    pub(crate) hash_balance_factor: Option<u32>,
}

/// `envoy.config.core.v3.RuntimeDouble`; the key has no meaning here but must not be empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuntimeDoubleMessage {
    #[prost(double, tag = "1")]
    pub(crate) default_value: f64,
    #[prost(string, tag = "2")]
    pub(crate) runtime_key: String,
}
