//! `envoy.extensions.load_balancing_policies.*.v3` and the list that contains them.
//!
//! Fields and values from 50001 on are Plimsoll extensions, sent only to Plimsoll data planes. A
//! test of the binary compares every other number with the descriptors of released Envoys
//! (`tests/e2e`, `descriptors`).

use plimsoll_core::model::endpoint_policy::SelectionMethod;
use plimsoll_core::model::load_aware_locality::{ColdStart, RemoteMean, SpillController};
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::model::zone_aware::{CapacityBasis, FractionSource, LocalityBasis};
use plimsoll_schema_derive::Described;
use prost::Message;

use super::enums::TypedHashFunction;

use super::{AnyMessage, DurationMessage, PercentMessage};

/// `envoy.config.cluster.v3.LoadBalancingPolicy`: a list of policies.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.LoadBalancingPolicy")]
pub struct LoadBalancingPolicyMessage {
    /// Policies in order of preference; the first supported one is used. Must be set.
    #[prost(message, repeated, tag = "1")]
    #[schema(first_supported)]
    pub policies: Vec<PolicyMessage>,
}

/// `LoadBalancingPolicy.Policy`: one entry of the list.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.LoadBalancingPolicy.Policy")]
pub struct PolicyMessage {
    /// Name and configuration of the policy. Must be set.
    #[prost(message, optional, tag = "4")]
    pub typed_extension_config: Option<TypedExtensionConfigMessage>,
}

/// `envoy.config.core.v3.TypedExtensionConfig`: a policy by its type.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.TypedExtensionConfig")]
pub struct TypedExtensionConfigMessage {
    /// Name of the extension; any non-empty text. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Configuration of the policy; `@type` selects the policy. Must be set.
    #[prost(message, optional, tag = "2")]
    #[schema(types = POLICIES)]
    pub typed_config: Option<AnyMessage>,
}

/// `round_robin.v3.RoundRobin`: weighted round robin.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin")]
pub struct RoundRobinMessage {
    /// Slow start: traffic to new hosts increases gradually.
    #[prost(message, optional, tag = "1")]
    pub slow_start_config: Option<SlowStartMessage>,
    /// How a locality is selected before a host. Default zone-aware routing.
    #[prost(message, optional, tag = "2")]
    pub locality_lb_config: Option<LocalityLbConfigMessage>,
}

/// `least_request.v3.LeastRequest`: prefers hosts with few requests in flight.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest")]
pub struct LeastRequestMessage {
    /// Number of random hosts to compare per request, at least 2. Default 2.
    #[prost(message, optional, tag = "1")]
    pub choice_count: Option<u32>,
    /// Exponent by which requests in flight reduce the weight of a host, at least 0. Default 1.
    #[prost(message, optional, tag = "2")]
    pub active_request_bias: Option<RuntimeDoubleMessage>,
    /// Slow start: traffic to new hosts increases gradually.
    #[prost(message, optional, tag = "3")]
    pub slow_start_config: Option<SlowStartMessage>,
    /// How a locality is selected before a host. Default zone-aware routing.
    #[prost(message, optional, tag = "4")]
    pub locality_lb_config: Option<LocalityLbConfigMessage>,
    /// Refused, because Envoy ignores it; use `selection_method: FULL_SCAN`.
    #[prost(message, optional, tag = "5")]
    pub enable_full_scan: Option<bool>,
    /// Compare `choice_count` random hosts (`N_CHOICES`) or all hosts (`FULL_SCAN`). Default
    /// `N_CHOICES`.
    #[prost(int32, tag = "6")]
    #[schema(values = SelectionMethod)]
    pub selection_method: i32,
}

/// `random.v3.Random`: picks a random host.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.random.v3.Random")]
pub struct RandomMessage {
    /// How a locality is selected before a host. Default zone-aware routing.
    #[prost(message, optional, tag = "1")]
    pub locality_lb_config: Option<LocalityLbConfigMessage>,
}

/// `ring_hash.v3.RingHash`: consistent hashing on a ring.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash")]
pub struct RingHashMessage {
    /// Hash function of hosts on the ring; `DEFAULT_HASH` means `XX_HASH`. Default `XX_HASH`.
    #[prost(int32, tag = "1")]
    #[schema(values = TypedHashFunction)]
    pub hash_function: i32,
    /// Minimum number of entries of the ring. Default 1024.
    #[prost(message, optional, tag = "2")]
    pub minimum_ring_size: Option<u64>,
    /// Maximum number of entries of the ring, up to 8388608. Default 8388608.
    #[prost(message, optional, tag = "3")]
    pub maximum_ring_size: Option<u64>,
    /// Deprecated: set it in `consistent_hashing_lb_config`.
    #[prost(bool, tag = "4")]
    pub use_hostname_for_hashing: bool,
    /// Deprecated: set it in `consistent_hashing_lb_config`.
    #[prost(message, optional, tag = "5")]
    pub hash_balance_factor: Option<u32>,
    /// Hash key of hosts and bounded load.
    #[prost(message, optional, tag = "6")]
    pub consistent_hashing_lb_config: Option<ConsistentHashingMessage>,
    /// Select localities in proportion to their weights.
    #[prost(message, optional, tag = "7")]
    pub locality_weighted_lb_config: Option<()>,
}

/// `maglev.v3.Maglev`: consistent hashing with a lookup table.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.maglev.v3.Maglev")]
pub struct MaglevMessage {
    /// Size of the lookup table, a prime number up to 5000011. Default 65537.
    #[prost(message, optional, tag = "1")]
    pub table_size: Option<u64>,
    /// Hash key of hosts and bounded load.
    #[prost(message, optional, tag = "2")]
    pub consistent_hashing_lb_config: Option<ConsistentHashingMessage>,
    /// Select localities in proportion to their weights.
    #[prost(message, optional, tag = "3")]
    pub locality_weighted_lb_config: Option<()>,
}

/// `wrr_locality.v3.WrrLocality`: weighted round robin over localities.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality")]
pub struct WrrLocalityMessage {
    /// Policy that picks a host within the selected locality. Must be set.
    #[prost(message, optional, tag = "1")]
    pub endpoint_picking_policy: Option<LoadBalancingPolicyMessage>,
}

/// `client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin`: weights from ORCA reports.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.\
            client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin")]
pub struct ClientSideWeightedRoundRobinMessage {
    /// Receive ORCA load reports on a separate stream per host instead of with responses.
    #[prost(message, optional, tag = "1")]
    pub enable_oob_load_report: Option<bool>,
    /// Interval of out-of-band load reports; `0s` means the default. Default `10s`.
    #[prost(message, optional, tag = "2")]
    pub oob_reporting_period: Option<DurationMessage>,
    /// How long a host must report load before its computed weight is used. Default `10s`.
    #[prost(message, optional, tag = "3")]
    pub blackout_period: Option<DurationMessage>,
    /// A computed weight expires if the host has not reported for this long. Default `180s`.
    #[prost(message, optional, tag = "4")]
    pub weight_expiration_period: Option<DurationMessage>,
    /// Interval between weight updates, at least 0.001s. Default `1s`.
    #[prost(message, optional, tag = "5")]
    pub weight_update_period: Option<DurationMessage>,
    /// Factor for the error rate of a host that is added to its utilization, at least 0. Default 0.
    #[prost(message, optional, tag = "6")]
    pub error_utilization_penalty: Option<f32>,
    /// ORCA metrics used as utilization, such as `named_metrics.foo`; the largest value is used.
    #[prost(string, repeated, tag = "7")]
    pub metric_names_for_computing_utilization: Vec<String>,
    /// Slow start: traffic to new hosts increases gradually.
    #[prost(message, optional, tag = "8")]
    pub slow_start_config: Option<SlowStartMessage>,
    /// Port and authority of out-of-band load reports.
    #[prost(message, optional, tag = "9")]
    pub oob_reporting_config: Option<OobReportingConfigMessage>,
    /// Plimsoll extension: which metric is used if a report has both `application_utilization` and
    /// the named metrics. Default `APPLICATION_FIRST`.
    #[prost(int32, tag = "50001")]
    #[schema(values = UtilizationPrecedence)]
    pub utilization_precedence: i32,
    /// Plimsoll extension: how a locality is selected before a host, as in the other policies.
    #[prost(message, optional, tag = "50002")]
    pub locality_lb_config: Option<LocalityLbConfigMessage>,
}

/// `common.v3.OrcaOobReportingConfig`: where hosts serve out-of-band load reports.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.common.v3.OrcaOobReportingConfig")]
#[schema(changes_request = "3 transport_socket_match_criteria")]
pub struct OobReportingConfigMessage {
    /// Port of the reporting service; 0 means the port of the host.
    #[prost(uint32, tag = "1")]
    pub port_value: u32,
    /// `:authority` of the reporting stream; empty means the host's own.
    #[prost(string, tag = "2")]
    pub authority: String,
}

/// `load_aware_locality.v3.LoadAwareLocality`: keeps traffic local and spills by utilization.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(
    name = "envoy.extensions.load_balancing_policies.load_aware_locality.v3.LoadAwareLocality"
)]
pub struct LoadAwareLocalityMessage {
    /// Policy that picks a host within the selected locality. Must be set.
    #[prost(message, optional, tag = "1")]
    pub endpoint_picking_policy: Option<LoadBalancingPolicyMessage>,
    /// Interval between updates of locality weights, at least 0.1s. Default `1s`.
    #[prost(message, optional, tag = "2")]
    pub weight_update_period: Option<DurationMessage>,
    /// ORCA metrics used as utilization, such as `named_metrics.foo`; the largest value is used.
    #[prost(string, repeated, tag = "3")]
    pub metric_names_for_computing_utilization: Vec<String>,
    /// Excess of local utilization over others at which traffic spills, 0 to 1. Default 0.1.
    #[prost(message, optional, tag = "4")]
    pub utilization_variance_threshold: Option<f64>,
    /// Time constant for smoothing the utilization of a locality, above 0. Default `5s`.
    #[prost(message, optional, tag = "5")]
    pub smoothing_time_constant: Option<DurationMessage>,
    /// Minimum share of requests sent to other localities, so that their load stays known, 0 to
    /// below 1. Default 0.03.
    #[prost(message, optional, tag = "6")]
    pub remote_probe_fraction: Option<f64>,
    /// Load reports older than this are ignored; `0s` disables expiration. Default `180s`.
    #[prost(message, optional, tag = "7")]
    pub weight_expiration_period: Option<DurationMessage>,
    /// Receive ORCA load reports on a separate stream per host (out of band).
    #[prost(message, optional, tag = "8")]
    pub enable_oob_load_report: Option<bool>,
    /// Interval of out-of-band load reports; `0s` means the default. Default `10s`.
    #[prost(message, optional, tag = "9")]
    pub oob_reporting_period: Option<DurationMessage>,
    /// Port and authority of out-of-band load reports.
    #[prost(message, optional, tag = "10")]
    pub oob_reporting_config: Option<OobReportingConfigMessage>,
    /// Plimsoll extension: which metric is used if a report has both `application_utilization` and
    /// the named metrics. Default `APPLICATION_FIRST`.
    #[prost(int32, tag = "50001")]
    #[schema(values = UtilizationPrecedence)]
    pub utilization_precedence: i32,
    /// Plimsoll extension: routing before the first load report; `LOCAL` keeps traffic local,
    /// `HOST_COUNT` distributes it by host counts. Default `LOCAL`.
    #[prost(int32, tag = "50002")]
    #[schema(values = ColdStart)]
    pub cold_start: i32,
    /// Plimsoll extension: remote localities in the mean that local utilization is compared with.
    /// Default `ALL`.
    #[prost(int32, tag = "50003")]
    #[schema(values = RemoteMean)]
    pub remote_mean: i32,
    /// Plimsoll extension: how the spilled share is computed; `HEADROOM` is Envoy's rule,
    /// `CONVERGENT` converges instead of oscillating. Default `HEADROOM`.
    #[prost(int32, tag = "50004")]
    #[schema(values = SpillController)]
    pub spill_controller: i32,
    /// Plimsoll extension: minimum share of requests that stays local; `CONVERGENT` uses at least
    /// 0.03. Default 0.
    #[prost(message, optional, tag = "50005")]
    pub local_probe_fraction: Option<f64>,
    /// Plimsoll extension: `CONVERGENT` starts from measured demand while that is fresh and
    /// corrects it by load reports. Default true with `CONVERGENT`.
    #[prost(message, optional, tag = "50006")]
    pub demand_feed_forward: Option<bool>,
    /// Plimsoll extension: part of the influence of measured demand on `CONVERGENT` that is in
    /// force, in percent. The control plane sets it to the `ramp` of a service. Default 100.
    #[prost(message, optional, tag = "50007")]
    pub demand_feed_forward_percent: Option<u32>,
}

/// `common.v3.LocalityLbConfig`: how a locality is selected; set one field.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig")]
pub struct LocalityLbConfigMessage {
    /// Zone-aware routing: keep traffic in the local zone as far as its capacity allows.
    #[prost(message, optional, tag = "1")]
    pub zone_aware_lb_config: Option<ZoneAwareMessage>,
    /// Select localities in proportion to their weights.
    #[prost(message, optional, tag = "2")]
    pub locality_weighted_lb_config: Option<()>,
}

/// `LocalityLbConfig.ZoneAwareLbConfig`: zone-aware routing. Field 7 and value 2 of
/// `locality_basis` come from the LRS design (decision 0028); fields from 50001 on and value 50001
/// of `locality_basis` (`OBSERVED_LOAD`) are Plimsoll extensions.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(
    name = "envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig.ZoneAwareLbConfig"
)]
pub struct ZoneAwareMessage {
    /// Percentage of requests to which zone-aware routing applies. Default 100.
    #[prost(message, optional, tag = "1")]
    pub routing_enabled: Option<PercentMessage>,
    /// Zone-aware routing is disabled below this number of healthy upstream hosts. Default 6.
    #[prost(message, optional, tag = "2")]
    pub min_cluster_size: Option<u64>,
    /// Fail requests in panic mode instead of using all hosts.
    #[prost(bool, tag = "3")]
    pub fail_traffic_on_panic: bool,
    /// Deprecated: same as `force_local_zone` with `min_size: 1`.
    #[prost(bool, tag = "4")]
    pub force_locality_direct_routing: bool,
    /// Keep all traffic local while the local zone has at least `min_size` healthy hosts.
    #[prost(message, optional, tag = "5")]
    pub force_local_zone: Option<ForceLocalZoneMessage>,
    /// Measure from which the shares of localities are computed. Default `HEALTHY_HOSTS_NUM`; a
    /// control plane may choose another basis only if the field is not set.
    #[prost(int32, optional, tag = "6")]
    #[schema(values = LocalityBasis)]
    pub locality_basis: Option<i32>,
    /// Settings of `locality_basis: LRS_REPORTED_RATE`.
    #[prost(message, optional, tag = "7")]
    pub lrs_rate_config: Option<LrsRateConfigMessage>,
    /// Plimsoll extension: measure of upstream capacity with `LRS_REPORTED_RATE` and
    /// `OBSERVED_LOAD`. Default `HEALTHY_HOSTS_NUM`.
    #[prost(int32, tag = "50001")]
    #[schema(values = CapacityBasis)]
    pub upstream_locality_basis: i32,
    /// Plimsoll extension: how far the demand of a zone may exceed its capacity before requests
    /// spill, in basis points of that capacity, with `LRS_REPORTED_RATE`; with `OBSERVED_LOAD`, how
    /// far the load of the own zone may exceed the mean. The default is limited to 100 basis points
    /// of the whole; 0 turns the band off. Default 300.
    #[prost(message, optional, tag = "50002")]
    pub dead_band_bp: Option<u64>,
    /// Plimsoll extension: apply zone-aware routing at priorities above 0 too.
    #[prost(bool, tag = "50003")]
    pub all_priorities: bool,
    /// Plimsoll extension: interval of `OBSERVED_LOAD` updates, 100ms to 60s. Default `1s`.
    #[prost(message, optional, tag = "50004")]
    pub observed_load_period: Option<DurationMessage>,
}

/// `ZoneAwareLbConfig.ForceLocalZone`: keeps all traffic local.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.\
            common.v3.LocalityLbConfig.ZoneAwareLbConfig.ForceLocalZone")]
pub struct ForceLocalZoneMessage {
    /// Healthy hosts in the local zone that suffice to keep all traffic local. Default 1.
    #[prost(message, optional, tag = "1")]
    pub min_size: Option<u32>,
}

/// `LrsRateConfig`: settings of `LRS_REPORTED_RATE` (decision 0028).
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.\
            common.v3.LocalityLbConfig.ZoneAwareLbConfig.LrsRateConfig")]
pub struct LrsRateConfigMessage {
    /// Traffic fractions older than this are ignored, 5s to 600s. Default `60s`.
    #[prost(message, optional, tag = "1")]
    pub staleness_threshold: Option<DurationMessage>,
    /// Where the fleet's assignment carries the traffic fractions. Default `EDS_FIELD`.
    #[prost(int32, tag = "2")]
    #[schema(values = FractionSource)]
    pub fraction_source: i32,
}

/// `SlowStartConfig`, of the typed and the legacy API.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.common.v3.SlowStartConfig")]
pub struct SlowStartMessage {
    /// Time until a new host receives its full weight.
    #[prost(message, optional, tag = "1")]
    pub slow_start_window: Option<DurationMessage>,
    /// Shape of the increase, above 0: 1 is linear, larger is faster at first. Default 1.
    #[prost(message, optional, tag = "2")]
    pub aggression: Option<RuntimeDoubleMessage>,
    /// Percentage of its weight that a new host starts with. Default 10.
    #[prost(message, optional, tag = "3")]
    pub min_weight_percent: Option<PercentMessage>,
}

/// `ConsistentHashingLbConfig`, of the typed and the legacy API.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.load_balancing_policies.common.v3.ConsistentHashingLbConfig")]
#[schema(changes_host = "3 hash_policy")]
pub struct ConsistentHashingMessage {
    /// Hash the host name of an endpoint instead of its address.
    #[prost(bool, tag = "1")]
    pub use_hostname_for_hashing: bool,
    /// Bounded load: percent of the mean load that a host may have, at least 100. Default no limit.
    #[prost(message, optional, tag = "2")]
    pub hash_balance_factor: Option<u32>,
}

/// `envoy.config.core.v3.RuntimeDouble`; the runtime key must be set but is ignored.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.core.v3.RuntimeDouble")]
pub struct RuntimeDoubleMessage {
    /// Value of the setting.
    #[prost(double, tag = "1")]
    pub default_value: f64,
    /// Runtime key that overrides the value in Envoy; required but ignored.
    #[prost(string, tag = "2")]
    pub runtime_key: String,
}
