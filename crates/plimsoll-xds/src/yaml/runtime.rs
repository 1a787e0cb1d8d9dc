//! [`RuntimeYaml`]: the runtime keys of Envoy that load balancing reads, as a flat map.

use plimsoll_core::model::zone_aware::RuntimeOverrides;
use serde::Deserialize;

use super::proto_json::Uint;

/// Runtime keys, spelled in full; a key that load balancing does not read is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeYaml {
    /// Percent of hosts below which a priority is in panic; goes before the cluster's own.
    #[serde(rename = "upstream.healthy_panic_threshold")]
    healthy_panic_threshold: Option<Uint<u32>>,
    /// Percent of requests for which zone-aware routing is considered; goes before
    /// `routing_enabled`.
    #[serde(rename = "upstream.zone_routing.enabled")]
    zone_routing_enabled: Option<Uint<u32>>,
    /// Goes before `min_cluster_size`.
    #[serde(rename = "upstream.zone_routing.min_cluster_size")]
    zone_routing_min_cluster_size: Option<Uint<u64>>,
    /// Goes before `force_local_zone.min_size`.
    #[serde(rename = "upstream.zone_routing.force_local_zone.min_size")]
    force_local_zone_min_size: Option<Uint<u32>>,
}

impl From<RuntimeYaml> for RuntimeOverrides {
    fn from(yaml: RuntimeYaml) -> Self {
        Self {
            healthy_panic_threshold: yaml.healthy_panic_threshold.map(|value| value.0),
            zone_routing_enabled: yaml.zone_routing_enabled.map(|value| value.0),
            zone_routing_min_cluster_size: yaml.zone_routing_min_cluster_size.map(|size| size.0),
            force_local_zone_min_size: yaml.force_local_zone_min_size.map(|size| size.0),
        }
    }
}
