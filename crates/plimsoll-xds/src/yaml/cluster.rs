//! [`ClusterYaml`]: one cluster as Envoy's `clusters` list has it.
//!
//! Here lives the choice between the typed and the legacy way, the fields that have nothing to do
//! with load balancing, and our own block `plimsoll`. Everything else is an error. Those other
//! fields are read, for whoever needs them, in `full`.

mod full;

use std::fmt;

use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, HealthChecking, LocalityPolicy, LocalitySampling,
};
use plimsoll_core::model::subset::LbSubsetConfig;
use plimsoll_core::units::FieldError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

pub use full::UpstreamClusterYaml;

use super::endpoint::{
    LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig, RoundRobinLbConfig, Typed,
};
use super::legacy::{self, CommonLbConfig, LbConfig, LbPolicy};
use super::policy::LoadBalancingPolicy;
use super::proto_json::{Ignored, Named, ProtoEnum};
use super::subset::LbSubsetConfigYaml;
use crate::subset::check_legacy;

/// Fields of Envoy's cluster that do not change how hosts are chosen: accepted, whatever they hold.
/// What is not in this list and not read below is refused. Missing on purpose, among others:
/// `load_assignment` (endpoints come another way), `outlier_detection`, `preconnect_policy` (they
/// do change how hosts are chosen, and we do not have them).
const NOT_LOAD_BALANCING: [&str; 34] = [
    "alt_stat_name",
    "circuit_breakers",
    "cleanup_interval",
    "cluster_type",
    "common_http_protocol_options",
    "connect_timeout",
    "connection_pool_per_downstream_connection",
    "dns_failure_refresh_rate",
    "dns_jitter",
    "dns_lookup_family",
    "dns_refresh_rate",
    "dns_resolution_config",
    "dns_resolvers",
    "eds_cluster_config",
    "filters",
    "http2_protocol_options",
    "http_protocol_options",
    "ignore_health_on_host_removal",
    "lrs_server",
    "max_requests_per_connection",
    "metadata",
    "per_connection_buffer_limit_bytes",
    "protocol_selection",
    "respect_dns_ttl",
    "track_cluster_stats",
    "track_timeout_budgets",
    "transport_socket",
    "transport_socket_matches",
    "type",
    "typed_dns_resolver_config",
    "typed_extension_protocol_options",
    "upstream_bind_config",
    "upstream_connection_options",
    "wait_for_warm_on_init",
];

/// One cluster, unchecked: becomes [`ClusterConfigParts`] or [`ClusterConfig`] with `try_into`.
#[derive(Clone, Debug)]
pub struct ClusterYaml(Fields);

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Fields {
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
    /// Only whether there are any: until its first check passes, a new host counts as failed.
    #[serde(default)]
    health_checks: Vec<Ignored>,
    /// Metrics of backends that load reports sum up.
    #[serde(default)]
    lrs_report_endpoint_metrics: Vec<String>,
    /// What is ours and not Envoy's.
    #[serde(default)]
    plimsoll: Extensions,
}

/// Our own settings of a cluster, beside Envoy's.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct Extensions {
    /// How evenly the shares of localities are taken: `RANDOM` draws as Envoy does. Default
    /// `RANDOM`; with `locality_basis: LRS_REPORTED_RATE` and with `spill_controller: CONVERGENT`
    /// `LOW_DISCREPANCY`.
    locality_sampling: Option<Named<LocalitySampling>>,
}

impl ProtoEnum for LocalitySampling {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("RANDOM", 0, Self::Random),
        ("LOW_DISCREPANCY", 1, Self::LowDiscrepancy),
    ];
}

impl TryFrom<ClusterYaml> for ClusterConfigParts {
    type Error = FieldError;

    fn try_from(ClusterYaml(fields): ClusterYaml) -> Result<Self, FieldError> {
        let healthy_panic_threshold = fields.common_lb_config.healthy_panic_threshold();
        let health_checking = HealthChecking {
            active: !fields.health_checks.is_empty(),
            ignore_new_hosts_until_first_hc: fields
                .common_lb_config
                .ignore_new_hosts_until_first_hc(),
        };
        let name = fields.name.clone();
        let locality_sampling = fields.plimsoll.locality_sampling.as_ref();
        let locality_sampling = locality_sampling.map(|named| named.0);
        let lrs_report_endpoint_metrics = fields.lrs_report_endpoint_metrics.clone();
        let (lb_subset_config, (endpoint_policy, locality_policy)) = fields.policies()?;
        let locality_policy = match locality_policy {
            Some(policy) => policy,
            // Zone-aware routing is on unless somebody says otherwise, except for hashing.
            None if endpoint_policy.is_hash() => LocalityPolicy::Flat,
            None => LocalityPolicy::default(),
        };
        Ok(Self {
            name,
            healthy_panic_threshold,
            locality_policy,
            endpoint_policy,
            locality_sampling,
            health_checking,
            lrs_report_endpoint_metrics,
            lb_subset_config,
            ..Default::default()
        })
    }
}

impl TryFrom<ClusterYaml> for ClusterConfig {
    type Error = FieldError;

    fn try_from(yaml: ClusterYaml) -> Result<Self, FieldError> {
        Self::try_new(yaml.try_into()?)
    }
}

impl Fields {
    /// `load_balancing_policy` if there is one. It supersedes `lb_policy` and its settings, which
    /// remain for clients that do not know it: they are checked and not used.
    fn policies(self) -> Result<(Option<LbSubsetConfig>, Typed), FieldError> {
        let lb_config = LbConfig {
            least_request: self.least_request_lb_config,
            maglev: self.maglev_lb_config,
            ring_hash: self.ring_hash_lb_config,
            round_robin: self.round_robin_lb_config,
        };
        let lb_policy = self.lb_policy.0;
        let Some(typed) = self.load_balancing_policy else {
            let typed = legacy::checked(lb_policy, lb_config, self.common_lb_config)?;
            return Ok((subsets(self.lb_subset_config, &typed)?, typed));
        };
        if self.lb_subset_config.is_some() {
            let reason = "cannot be combined with load_balancing_policy; use the policy subset";
            return Err(FieldError::new("lb_subset_config", reason));
        }
        self.common_lb_config
            .refuse_choices()
            .map_err(|error| error.under("common_lb_config"))?;
        if lb_policy != LbPolicy::LoadBalancingPolicyConfig {
            legacy::checked(lb_policy, lb_config, CommonLbConfig::default())?;
        }
        typed
            .outermost()
            .map_err(|error| error.under("load_balancing_policy"))
    }
}

/// Subsets of the legacy way, around a policy of the legacy way.
fn subsets(
    config: Option<LbSubsetConfigYaml>,
    (_, locality): &Typed,
) -> Result<Option<LbSubsetConfig>, FieldError> {
    let under = |error: FieldError| error.under("lb_subset_config");
    let config = config.map(LbSubsetConfigYaml::checked).transpose();
    let config = config.map_err(under)?.flatten();
    if let Some(config) = &config {
        check_legacy(config, locality.as_ref()).map_err(under)?;
    }
    Ok(config)
}

impl<'de> Deserialize<'de> for ClusterYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClusterVisitor;

        impl<'de> Visitor<'de> for ClusterVisitor {
            type Value = ClusterYaml;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cluster")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClusterYaml, A::Error> {
                let fields = MapAccessDeserializer::new(Relevant(map, &NOT_LOAD_BALANCING));
                Fields::deserialize(fields).map(ClusterYaml)
            }
        }

        deserializer.deserialize_map(ClusterVisitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ClusterYaml {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cluster".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        super::schema::with_unread::<Fields>(generator, &NOT_LOAD_BALANCING)
    }
}

/// A map without some of its fields.
struct Relevant<A>(A, &'static [&'static str]);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Relevant<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        mut seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        loop {
            match self.0.next_key_seed(UnlessIrrelevant(seed, self.1))? {
                None => return Ok(None),
                Some(Ok(key)) => return Ok(Some(key)),
                Some(Err(unused)) => seed = unused,
            }
            self.0.next_value::<IgnoredAny>()?;
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

/// Reads a key with the seed, or gives the seed back when the field is irrelevant. It works on the
/// key's own deserializer so that an error still knows which key it was.
struct UnlessIrrelevant<K>(K, &'static [&'static str]);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for UnlessIrrelevant<K> {
    type Value = Result<K::Value, K>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        let name = String::deserialize(key)?;
        if self.1.contains(&name.as_str()) {
            return Ok(Err(self.0));
        }
        self.0
            .deserialize(serde::de::value::StringDeserializer::new(name))
            .map(Ok)
    }
}
