//! `envoy.config.cluster.v3`: clusters and their legacy load-balancing settings.

use std::collections::BTreeMap;

use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_core::model::endpoint_policy::HashFunction;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::orca::EndpointLoadMetricsFormat;
use plimsoll_core::model::transport::DnsLookupFamily;
use plimsoll_schema_derive::Described;
use prost::Message;

use super::enums::{DiscoveryType, LbPolicy};

use super::endpoint::AssignmentMessage;
use super::health_check::HealthCheckMessage;
use super::metadata::MetadataMessage;
use super::policy::{
    ConsistentHashingMessage, LoadBalancingPolicyMessage, RuntimeDoubleMessage, SlowStartMessage,
};
use super::subset::SubsetMessage;
use super::upstream::{
    BindConfigMessage, CircuitBreakersMessage, CommonHttpMessage, ConnectionOptionsMessage,
    EdsClusterConfigMessage, Http1Message, Http2Message, OutlierDetectionMessage,
    PreconnectPolicyMessage, TrackClusterStatsMessage, TransportSocketMatchMessage,
    TransportSocketMessage, UpstreamHttpMessage,
};
use super::{AnyMessage, ConfigSourceMessage, DurationMessage, PercentMessage};

/// `Cluster`: upstream hosts, how to balance across them and how to connect to them.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster")]
#[schema(
    unused = "18 dns_resolvers, 20 cleanup_interval, 26 protocol_selection, 39 respect_dns_ttl, \
          44 dns_failure_refresh_rate, 45 use_tcp_for_dns_lookups, 53 dns_resolution_config, \
          55 typed_dns_resolver_config, 58 dns_jitter, 61 stats_matcher"
)]
#[schema(changes_request = "38 cluster_type, 40 filters, 48 upstream_config, \
          59 transport_socket_matcher, 62 queuing_policies")]
#[schema(changes_host = "34 original_dst_lb_config")]
pub struct ClusterMessage {
    /// Name of the cluster, used by routes and statistics. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How endpoints are discovered: from this file, by DNS or by EDS. Default `STATIC`.
    #[prost(int32, optional, tag = "2")]
    #[schema(name = "type", values = DiscoveryType)]
    pub discovery_type: Option<i32>,
    /// Source of endpoints for `type: EDS`; required for that type.
    #[prost(message, optional, tag = "3")]
    pub eds_cluster_config: Option<EdsClusterConfigMessage>,
    /// Timeout for establishing a connection to a host, including the TLS handshake. Default `5s`.
    #[prost(message, optional, tag = "4")]
    pub connect_timeout: Option<DurationMessage>,
    /// Soft limit on the read and write buffers of a connection, in bytes. Default 1 MiB.
    #[prost(message, optional, tag = "5")]
    #[schema(unread = "unused")]
    pub per_connection_buffer_limit_bytes: Option<u32>,
    /// Load balancing policy; `load_balancing_policy` takes precedence. Default `ROUND_ROBIN`.
    #[prost(int32, tag = "6")]
    #[schema(values = LbPolicy)]
    pub lb_policy: i32,
    /// Active health checks that are sent to every host.
    #[prost(message, repeated, tag = "8")]
    pub health_checks: Vec<HealthCheckMessage>,
    /// Deprecated: requests per connection before it is closed; 0 means no limit. Use
    /// `common_http_protocol_options`.
    #[prost(message, optional, tag = "9")]
    pub max_requests_per_connection: Option<u32>,
    /// Limits on connections, concurrent requests and retries of the cluster.
    #[prost(message, optional, tag = "10")]
    pub circuit_breakers: Option<CircuitBreakersMessage>,
    /// Deprecated: selects HTTP/1.1. Use `typed_extension_protocol_options`.
    #[prost(message, optional, tag = "13")]
    pub http_protocol_options: Option<Http1Message>,
    /// Deprecated: selects HTTP/2. Use `typed_extension_protocol_options`.
    #[prost(message, optional, tag = "14")]
    pub http2_protocol_options: Option<Http2Message>,
    /// Interval between DNS lookups of a host name, at least 0.001s. Default `5s`.
    #[prost(message, optional, tag = "16")]
    pub dns_refresh_rate: Option<DurationMessage>,
    /// IP address families used from DNS answers. Default `AUTO`.
    #[prost(int32, tag = "17")]
    #[schema(values = DnsLookupFamily)]
    pub dns_lookup_family: i32,
    /// Ejection of hosts that fail too many requests; disabled if not set.
    #[prost(message, optional, tag = "19")]
    pub outlier_detection: Option<OutlierDetectionMessage>,
    /// Source address of connections to the hosts.
    #[prost(message, optional, tag = "21")]
    #[schema(unread = "changes_request")]
    pub upstream_bind_config: Option<BindConfigMessage>,
    /// Subset load balancing by host metadata, legacy field.
    #[prost(message, optional, tag = "22")]
    pub lb_subset_config: Option<SubsetMessage>,
    /// Settings of `lb_policy: RING_HASH`.
    #[prost(message, optional, tag = "23")]
    pub ring_hash_lb_config: Option<RingHashLbConfigMessage>,
    /// TLS settings for connections to the hosts; plain text if not set.
    #[prost(message, optional, tag = "24")]
    pub transport_socket: Option<TransportSocketMessage>,
    /// Metadata of the cluster, by namespace, for filters and access logs.
    #[prost(message, optional, tag = "25")]
    #[schema(unread = "unused")]
    pub metadata: Option<MetadataMessage>,
    /// Panic threshold and locality selection, legacy field.
    #[prost(message, optional, tag = "27")]
    pub common_lb_config: Option<CommonLbConfigMessage>,
    /// Name of the cluster in statistics. Default the name of the cluster.
    #[prost(string, tag = "28")]
    #[schema(unread = "unused")]
    pub alt_stat_name: String,
    /// Deprecated: use the same message in `typed_extension_protocol_options`.
    #[prost(message, optional, tag = "29")]
    pub common_http_protocol_options: Option<CommonHttpMessage>,
    /// Socket options of upstream connections, such as TCP keepalive.
    #[prost(message, optional, tag = "30")]
    pub upstream_connection_options: Option<ConnectionOptionsMessage>,
    /// Close all connections to a host when it becomes unhealthy.
    #[prost(bool, tag = "31")]
    pub close_connections_on_host_health_failure: bool,
    /// Remove hosts that are no longer discovered even while they pass health checks.
    #[prost(bool, tag = "32")]
    #[schema(unread = "unused")]
    pub ignore_health_on_host_removal: bool,
    /// Endpoints of the cluster, for every `type` except `EDS`.
    #[prost(message, optional, tag = "33")]
    pub load_assignment: Option<AssignmentMessage>,
    /// HTTP protocol options for connections to the hosts, by extension name.
    #[prost(btree_map = "string, message", tag = "36")]
    #[schema(types = PROTOCOL_OPTIONS)]
    pub typed_extension_protocol_options: BTreeMap<String, AnyMessage>,
    /// Settings of `lb_policy: LEAST_REQUEST`.
    #[prost(message, optional, tag = "37")]
    pub least_request_lb_config: Option<LeastRequestLbConfigMessage>,
    /// Load balancing policy for hosts and localities; takes precedence over `lb_policy`.
    #[prost(message, optional, tag = "41")]
    pub load_balancing_policy: Option<LoadBalancingPolicyMessage>,
    /// Enables load reporting (LRS) to the server that sent the cluster; only `self` is supported.
    #[prost(message, optional, tag = "42")]
    pub lrs_server: Option<ConfigSourceMessage>,
    /// Transport sockets by metadata of the endpoint; the first that matches is used.
    #[prost(message, repeated, tag = "43")]
    #[schema(unread = "changes_request")]
    pub transport_socket_matches: Vec<TransportSocketMatchMessage>,
    /// Deprecated: use the same message in `typed_extension_protocol_options`.
    #[prost(message, optional, tag = "46")]
    pub upstream_http_protocol_options: Option<UpstreamHttpMessage>,
    /// Publishes how much of a request's time budget was used; `track_cluster_stats` replaces it.
    #[prost(bool, tag = "47")]
    #[schema(unread = "unused")]
    pub track_timeout_budgets: bool,
    /// Statistics of the cluster beyond the usual ones.
    #[prost(message, optional, tag = "49")]
    #[schema(unread = "unused")]
    pub track_cluster_stats: Option<TrackClusterStatsMessage>,
    /// Connections that are opened before requests need them.
    #[prost(message, optional, tag = "50")]
    #[schema(unread = "changes_request")]
    pub preconnect_policy: Option<PreconnectPolicyMessage>,
    /// Use separate upstream connections for each downstream connection.
    #[prost(bool, tag = "51")]
    #[schema(unread = "changes_request")]
    pub connection_pool_per_downstream_connection: bool,
    /// Settings of `lb_policy: MAGLEV`.
    #[prost(message, optional, tag = "52")]
    pub maglev_lb_config: Option<MaglevLbConfigMessage>,
    /// Whether the proxy waits for the first health checks of the cluster before it starts.
    /// Default true.
    #[prost(message, optional, tag = "54")]
    #[schema(unread = "unused")]
    pub wait_for_warm_on_init: Option<bool>,
    /// Settings of `lb_policy: ROUND_ROBIN`.
    #[prost(message, optional, tag = "56")]
    pub round_robin_lb_config: Option<RoundRobinLbConfigMessage>,
    /// ORCA metrics of backends to include in load reports, such as `named_metrics.*`.
    #[prost(string, repeated, tag = "57")]
    pub lrs_report_endpoint_metrics: Vec<String>,
    /// Time after which a connection whose buffers stay above their limit is closed.
    #[prost(message, optional, tag = "60")]
    #[schema(unread = "unused")]
    pub per_connection_buffer_high_watermark_timeout: Option<DurationMessage>,
    /// Plimsoll extension: settings of the cluster that Envoy does not have.
    #[prost(message, optional, tag = "50002")]
    pub plimsoll: Option<PlimsollMessage>,
}

/// Plimsoll extension: settings of a cluster that Envoy does not have.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "plimsoll.v1.Plimsoll")]
pub struct PlimsollMessage {
    /// How localities are sampled by their shares: `RANDOM` draws independently, as Envoy does;
    /// `LOW_DISCREPANCY` follows the shares more evenly. Default `RANDOM`; `LOW_DISCREPANCY`
    /// with `locality_basis: LRS_REPORTED_RATE` or `OBSERVED_LOAD` and with `spill_controller:
    /// CONVERGENT`.
    #[prost(int32, optional, tag = "1")]
    #[schema(values = LocalitySampling)]
    pub locality_sampling: Option<i32>,
    /// Requests ask hosts for load reports in this format, with the header
    /// `endpoint-load-metrics-format`, unless they have one: for servers that report only when
    /// asked, such as vLLM and Triton. Unset: requests do not ask.
    #[prost(int32, optional, tag = "2")]
    #[schema(values = EndpointLoadMetricsFormat)]
    pub endpoint_load_metrics_format: Option<i32>,
}

/// `Cluster.CommonLbConfig`: panic threshold and locality selection, legacy API.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.CommonLbConfig")]
pub struct CommonLbConfigMessage {
    /// Panic threshold: below this percentage of healthy hosts, all hosts are used. Default 50.
    #[prost(message, optional, tag = "1")]
    pub healthy_panic_threshold: Option<PercentMessage>,
    /// Settings of zone-aware routing, which is enabled by default except for hash policies.
    #[prost(message, optional, tag = "2")]
    pub zone_aware_lb_config: Option<LegacyZoneAwareMessage>,
    /// Select localities in proportion to their weights.
    #[prost(message, optional, tag = "3")]
    pub locality_weighted_lb_config: Option<()>,
    /// Ignored: updates are applied immediately and never merged.
    #[prost(message, optional, tag = "4")]
    pub update_merge_window: Option<DurationMessage>,
    /// Exclude new hosts from load balancing and host counts until their first health check.
    #[prost(bool, tag = "5")]
    pub ignore_new_hosts_until_first_hc: bool,
    /// Close all connections to a host when hosts are added or removed.
    #[prost(bool, tag = "6")]
    #[schema(unread = "unused")]
    pub close_connections_on_host_set_change: bool,
    /// Hashing settings shared by `RING_HASH` and `MAGLEV`.
    #[prost(message, optional, tag = "7")]
    pub consistent_hashing_lb_config: Option<ConsistentHashingMessage>,
    /// Health of hosts to which stateful sessions may return.
    #[prost(message, optional, tag = "8")]
    #[schema(unread = "unused")]
    pub override_host_status: Option<HealthStatusSetMessage>,
}

/// `HealthStatusSet`: a set of health states.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.HealthStatusSet")]
pub struct HealthStatusSetMessage {
    /// Health states of the set.
    #[prost(int32, repeated, tag = "1")]
    #[schema(values = HealthStatus)]
    pub statuses: Vec<i32>,
}

/// `Cluster.CommonLbConfig.ZoneAwareLbConfig`: zone-aware routing, legacy API.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.CommonLbConfig.ZoneAwareLbConfig")]
pub struct LegacyZoneAwareMessage {
    /// Percentage of requests to which zone-aware routing applies. Default 100.
    #[prost(message, optional, tag = "1")]
    pub routing_enabled: Option<PercentMessage>,
    /// Zone-aware routing is disabled below this number of healthy upstream hosts. Default 6.
    #[prost(message, optional, tag = "2")]
    pub min_cluster_size: Option<u64>,
    /// Fail requests in panic mode instead of using all hosts.
    #[prost(bool, tag = "3")]
    pub fail_traffic_on_panic: bool,
}

/// `Cluster.RoundRobinLbConfig`: round robin, legacy API.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.RoundRobinLbConfig")]
pub struct RoundRobinLbConfigMessage {
    /// Slow start: traffic to new hosts increases gradually.
    #[prost(message, optional, tag = "1")]
    pub slow_start_config: Option<SlowStartMessage>,
}

/// `Cluster.LeastRequestLbConfig`: least request, legacy API.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.LeastRequestLbConfig")]
pub struct LeastRequestLbConfigMessage {
    /// Number of random hosts to compare per request, at least 2. Default 2.
    #[prost(message, optional, tag = "1")]
    pub choice_count: Option<u32>,
    /// Exponent by which requests in flight reduce the weight of a host, at least 0. Default 1.
    #[prost(message, optional, tag = "2")]
    pub active_request_bias: Option<RuntimeDoubleMessage>,
    /// Slow start: traffic to new hosts increases gradually.
    #[prost(message, optional, tag = "3")]
    pub slow_start_config: Option<SlowStartMessage>,
}

/// `Cluster.RingHashLbConfig`: ring hash, legacy API.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.RingHashLbConfig")]
pub struct RingHashLbConfigMessage {
    /// Minimum number of entries of the ring. Default 1024.
    #[prost(message, optional, tag = "1")]
    pub minimum_ring_size: Option<u64>,
    /// Hash function that places hosts on the ring. Default `XX_HASH`.
    #[prost(int32, tag = "3")]
    #[schema(values = HashFunction)]
    pub hash_function: i32,
    /// Maximum number of entries of the ring, up to 8388608. Default 8388608.
    #[prost(message, optional, tag = "4")]
    pub maximum_ring_size: Option<u64>,
}

/// `Cluster.MaglevLbConfig`: Maglev hashing, legacy API.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.cluster.v3.Cluster.MaglevLbConfig")]
pub struct MaglevLbConfigMessage {
    /// Size of the lookup table, a prime number up to 5000011. Default 65537.
    #[prost(message, optional, tag = "1")]
    pub table_size: Option<u64>,
}
