//! [`UpstreamClusterYaml`]: one cluster read in full, for whoever connects to its endpoints.
//!
//! The policies are read as beside us in `cluster`; the rest in `yaml::upstream`. A field that is
//! neither read nor in [`HARMLESS`] is refused by its name, so that a block pasted from an Envoy
//! either does what it did there or says why not.

use std::fmt;

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::units::FieldError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::super::endpoint::{
    LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig, RoundRobinLbConfig,
};
use super::super::legacy::{CommonLbConfig, LbPolicy};
use super::super::policy::LoadBalancingPolicy;
use super::super::proto_json::{Empty, Ignored, Named, ProtoDuration, Uint};
use super::super::subset::LbSubsetConfigYaml;
use super::super::upstream::breakers::CircuitBreakersYaml;
use super::super::upstream::health_check::HealthCheckYaml;
use super::super::upstream::http::{
    self, CommonHttpProtocolOptions, Http2ProtocolOptions, LegacyHttp,
    TypedExtensionProtocolOptions, UpstreamHttpProtocolOptions,
};
use super::super::upstream::load_assignment::LoadAssignmentYaml;
use super::super::upstream::outlier::OutlierDetectionYaml;
use super::super::upstream::tls::TransportSocket;
use super::super::upstream::{
    ConfigSource, DiscoveryFields, DiscoveryType, EdsClusterConfig, UpstreamConnectionOptions,
};
use super::{ClusterYaml, Extensions, Fields, Relevant};
use crate::upstream::{DnsLookupFamily, HealthCheck, UpstreamCluster, UpstreamOptions};

/// Fields that change nothing of what a request meets: accepted, whatever they hold.
const HARMLESS: [&str; 11] = [
    // Names and extent of Envoy's statistics.
    "alt_stat_name",
    "track_cluster_stats",
    "track_timeout_budgets",
    // Read by Envoy's filters, of which there are none here.
    "metadata",
    // Of clusters whose hosts are not listed by anybody.
    "cleanup_interval",
    // How much Envoy buffers before it stops reading; here HTTP's own flow control decides.
    "per_connection_buffer_limit_bytes",
    // The order in which Envoy starts.
    "wait_for_warm_on_init",
    // A host that discovery removed is always removed.
    "ignore_health_on_host_removal",
    // When a name is looked up again: the rate in force is `dns_refresh_rate`.
    "dns_failure_refresh_rate",
    "dns_jitter",
    "respect_dns_ttl",
];

/// One cluster, unchecked: becomes an [`UpstreamCluster`] with `try_into`.
#[derive(Clone, Debug)]
pub struct UpstreamClusterYaml(FullFields);

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FullFields {
    /// Name of the cluster.
    name: String,
    /// How a host is chosen, the legacy way. Default `ROUND_ROBIN`.
    #[serde(default)]
    lb_policy: Named<LbPolicy>,
    /// Settings of `LEAST_REQUEST`.
    least_request_lb_config: Option<LeastRequestLbConfig>,
    /// Settings of `MAGLEV`.
    maglev_lb_config: Option<MaglevLbConfig>,
    /// Settings of `RING_HASH`.
    ring_hash_lb_config: Option<RingHashLbConfig>,
    /// Settings of `ROUND_ROBIN`.
    round_robin_lb_config: Option<RoundRobinLbConfig>,
    /// Panic, and how a locality is chosen, the legacy way.
    #[serde(default)]
    common_lb_config: CommonLbConfig,
    /// Subsets of hosts by their metadata, the legacy way.
    lb_subset_config: Option<LbSubsetConfigYaml>,
    /// How hosts and localities are chosen, the typed way; goes before `lb_policy`.
    load_balancing_policy: Option<LoadBalancingPolicy>,
    /// Metrics of backends that load reports sum up, such as `named_metrics.*`.
    #[serde(default)]
    lrs_report_endpoint_metrics: Vec<String>,
    /// What is ours and not Envoy's.
    #[serde(default)]
    plimsoll: Extensions,

    /// Where endpoints come from. Default `STATIC`.
    #[serde(default, rename = "type")]
    discovery_type: Named<DiscoveryType>,
    /// Where endpoints come from with `type: EDS`, which needs it.
    eds_cluster_config: Option<EdsClusterConfig>,
    /// How often a name is looked up, at least 0.001s. Default `5s`.
    dns_refresh_rate: Option<ProtoDuration>,
    /// Which addresses of a name are used. Default `AUTO`.
    dns_lookup_family: Option<Named<DnsLookupFamily>>,
    /// The endpoints, with every `type` but `EDS`.
    load_assignment: Option<LoadAssignmentYaml>,
    /// How long connecting may take, TLS included. Default `5s`.
    connect_timeout: Option<ProtoDuration>,
    /// Limits of connections, requests and retries.
    #[serde(default)]
    circuit_breakers: CircuitBreakersYaml,
    /// Active checks of every host.
    #[serde(default)]
    health_checks: Vec<HealthCheckYaml>,
    /// When a host answers too badly to be kept; without it none is taken out.
    outlier_detection: Option<OutlierDetectionYaml>,
    /// How hosts are spoken to, the typed way.
    #[serde(default)]
    typed_extension_protocol_options: TypedExtensionProtocolOptions,
    /// Deprecated: requests after which a connection is closed; 0 is no limit.
    max_requests_per_connection: Option<Uint<u32>>,
    /// Deprecated place of the same message in `typed_extension_protocol_options`.
    common_http_protocol_options: Option<CommonHttpProtocolOptions>,
    /// Deprecated place of the same message in `typed_extension_protocol_options`.
    upstream_http_protocol_options: Option<UpstreamHttpProtocolOptions>,
    /// Deprecated way to say HTTP/1.1.
    http_protocol_options: Option<Empty>,
    /// Deprecated way to say HTTP/2.
    http2_protocol_options: Option<Http2ProtocolOptions>,
    /// TLS to the hosts; without it plain text.
    transport_socket: Option<TransportSocket>,
    /// Report load to the server that the cluster came from: only `self`.
    lrs_server: Option<ConfigSource>,
    /// Settings of sockets.
    #[serde(default)]
    upstream_connection_options: UpstreamConnectionOptions,
    /// Close the connections of a host when it becomes unhealthy.
    #[serde(default)]
    close_connections_on_host_health_failure: bool,
}

impl TryFrom<UpstreamClusterYaml> for UpstreamCluster {
    type Error = FieldError;

    fn try_from(UpstreamClusterYaml(fields): UpstreamClusterYaml) -> Result<Self, FieldError> {
        let checks = fields.health_checks.len();
        let policies = Fields {
            name: fields.name,
            lb_policy: fields.lb_policy,
            least_request_lb_config: fields.least_request_lb_config,
            maglev_lb_config: fields.maglev_lb_config,
            ring_hash_lb_config: fields.ring_hash_lb_config,
            round_robin_lb_config: fields.round_robin_lb_config,
            common_lb_config: fields.common_lb_config,
            lb_subset_config: fields.lb_subset_config,
            load_balancing_policy: fields.load_balancing_policy,
            health_checks: vec![Ignored; checks],
            lrs_report_endpoint_metrics: fields.lrs_report_endpoint_metrics,
            plimsoll: fields.plimsoll,
        };
        let config = ClusterConfig::try_from(ClusterYaml(policies))?;
        let discovery = DiscoveryFields {
            discovery_type: fields.discovery_type.0,
            eds_cluster_config: fields.eds_cluster_config,
            dns_refresh_rate: fields.dns_refresh_rate,
            dns_lookup_family: fields.dns_lookup_family,
        };
        let mut options = UpstreamOptions {
            discovery: discovery.checked()?,
            circuit_breakers: fields
                .circuit_breakers
                .checked()
                .map_err(|error| error.under("circuit_breakers"))?,
            health_checks: health_checks(fields.health_checks)?,
            outlier_detection: under(
                fields.outlier_detection.map(OutlierDetectionYaml::checked),
                "outlier_detection",
            )?,
            tls: under(
                fields.transport_socket.map(TransportSocket::checked),
                "transport_socket",
            )?
            .flatten(),
            lrs: under(
                fields.lrs_server.as_ref().map(ConfigSource::is_self),
                "lrs_server",
            )?
            .unwrap_or(false),
            tcp_keepalive: fields.upstream_connection_options.tcp_keepalive(),
            close_connections_on_host_health_failure: fields
                .close_connections_on_host_health_failure,
            ..Default::default()
        };
        if let Some(timeout) = fields.connect_timeout {
            options.connect_timeout = timeout.0;
        }
        let legacy = LegacyHttp {
            max_requests_per_connection: fields.max_requests_per_connection,
            common: fields.common_http_protocol_options,
            upstream: fields.upstream_http_protocol_options,
            http1: fields.http_protocol_options,
            http2: fields.http2_protocol_options,
        };
        http::put(
            fields.typed_extension_protocol_options,
            legacy,
            &mut options,
        )?;
        let assignment = fields.load_assignment.map(LoadAssignmentYaml::checked);
        Self::try_new(config, options, under(assignment, "load_assignment")?)
    }
}

/// What was checked, or its error seen from the cluster.
fn under<T>(checked: Option<Result<T, FieldError>>, field: &str) -> Result<Option<T>, FieldError> {
    checked.transpose().map_err(|error| error.under(field))
}

fn health_checks(list: Vec<HealthCheckYaml>) -> Result<Vec<HealthCheck>, FieldError> {
    let checks = list.into_iter().enumerate().map(|(index, check)| {
        let path = format!("health_checks[{index}]");
        check.checked().map_err(|error| error.under(&path))
    });
    checks.collect()
}

impl<'de> Deserialize<'de> for UpstreamClusterYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClusterVisitor;

        impl<'de> Visitor<'de> for ClusterVisitor {
            type Value = UpstreamClusterYaml;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cluster")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let fields = MapAccessDeserializer::new(Relevant(map, &HARMLESS));
                FullFields::deserialize(fields).map(UpstreamClusterYaml)
            }
        }

        deserializer.deserialize_map(ClusterVisitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for UpstreamClusterYaml {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "UpstreamCluster".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        super::super::schema::with_unread::<FullFields>(generator, &HARMLESS)
    }
}
