//! [`RuntimeYaml`]: the Envoy runtime keys that affect load balancing, as a flat map.

use plimsoll_core::model::zone_aware::RuntimeOverrides;
use serde::Deserialize;

use super::proto_json::Uint;

/// Envoy runtime keys, spelled in full; keys that do not affect load balancing are errors.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeYaml {
    /// Percent of healthy hosts below which a priority is in panic mode; overrides the threshold of
    /// clusters.
    #[serde(rename = "upstream.healthy_panic_threshold")]
    healthy_panic_threshold: Option<Uint<u32>>,
    /// Percent of requests to which zone-aware routing applies; overrides `routing_enabled`.
    #[serde(rename = "upstream.zone_routing.enabled")]
    zone_routing_enabled: Option<Uint<u32>>,
    /// Healthy upstream hosts needed for zone-aware routing; overrides `min_cluster_size`.
    #[serde(rename = "upstream.zone_routing.min_cluster_size")]
    zone_routing_min_cluster_size: Option<Uint<u64>>,
    /// Healthy hosts in the local zone that keep all traffic local; overrides
    /// `force_local_zone.min_size`.
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
            _non_exhaustive: (),
        }
    }
}
