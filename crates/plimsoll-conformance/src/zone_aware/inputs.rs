//! Inputs of the suite `zone_aware`, and their translation to core types.

use plimsoll_core::counts::HostSetCounts;
use plimsoll_core::locality_picking::demand::{Demand, FractionMap};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{
    ForceLocalZone, LocalityBasis, RuntimeOverrides, ZoneAware, ZoneAwareParts,
};
use plimsoll_core::units::BasisPoints;
use serde::Deserialize;

use crate::CaseError;
use crate::translate::{AvailabilityName, LocalityInput, LocalityName, sums};

/// Inputs of `kind.state` and `kind.pick`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoutingInputs {
    #[serde(default)]
    pub(super) config: ConfigInput,
    #[serde(default)]
    pub(super) runtime: RuntimeInput,
    pub(super) healthy_panic_threshold_percent: Option<f64>,
    /// Hosts of the local cluster; missing if no local cluster is configured.
    pub(super) local: Option<HostSetInput>,
    pub(super) upstream: HostSetInput,
    #[serde(default)]
    pub(super) priority: u32,
    pub(super) literal_fractions: Option<Vec<LiteralFraction>>,
    pub(super) measured_fractions: Option<Vec<LiteralFraction>>,
    pub(super) random: Option<Vec<u64>>,
    pub(super) zone_routing_draw: Option<bool>,
    pub(super) availability: Option<AvailabilityName>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigInput {
    routing_enabled_percent: Option<f64>,
    min_cluster_size: Option<u64>,
    #[serde(default)]
    fail_traffic_on_panic: bool,
    #[serde(default)]
    force_locality_direct_routing: bool,
    force_local_zone: Option<ForceLocalZoneInput>,
    locality_basis: Option<BasisInput>,
    dead_band_bp: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForceLocalZoneInput {
    min_size: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum BasisInput {
    HealthyHostsNum,
    HealthyHostsWeight,
    LrsReportedRate,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuntimeInput {
    #[serde(rename = "upstream.healthy_panic_threshold")]
    healthy_panic_threshold: Option<u32>,
    #[serde(rename = "upstream.zone_routing.enabled")]
    enabled: Option<u32>,
    #[serde(rename = "upstream.zone_routing.min_cluster_size")]
    min_cluster_size: Option<u64>,
    #[serde(rename = "upstream.zone_routing.force_local_zone.min_size")]
    force_local_zone_min_size: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostSetInput {
    #[serde(default)]
    pub(super) has_local_locality: bool,
    pub(super) localities: Vec<LocalityInput>,
    /// Sizes of the lists over all localities, if they differ from the sums.
    #[serde(default)]
    pub(super) flat: FlatInput,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlatInput {
    hosts: Option<u64>,
    healthy: Option<u64>,
    degraded: Option<u64>,
    excluded: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiteralFraction {
    locality: LocalityName,
    basis_points: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigInputs {
    #[serde(default)]
    pub(super) config: ConfigInput,
    #[serde(default)]
    pub(super) runtime: RuntimeInput,
    pub(super) healthy_panic_threshold_percent: Option<f64>,
}

pub(super) type Triple = (String, String, String);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderInputs {
    pub(super) node_locality: Option<Triple>,
    pub(super) localities: Vec<Triple>,
}

pub(super) fn cluster(
    config: &ConfigInput,
    runtime: &RuntimeInput,
    healthy_panic_threshold: Option<f64>,
) -> Result<ClusterConfig, CaseError> {
    let zone_aware = ZoneAware::try_new(ZoneAwareParts {
        routing_enabled: config.routing_enabled_percent,
        min_cluster_size: config.min_cluster_size,
        fail_traffic_on_panic: config.fail_traffic_on_panic,
        force_locality_direct_routing: config.force_locality_direct_routing,
        force_local_zone: config.force_local_zone.map(|force| ForceLocalZone {
            min_size: force.min_size,
        }),
        locality_basis: match config.locality_basis {
            None | Some(BasisInput::HealthyHostsNum) => LocalityBasis::HealthyHostsNum,
            Some(BasisInput::HealthyHostsWeight) => LocalityBasis::HealthyHostsWeight,
            Some(BasisInput::LrsReportedRate) => LocalityBasis::LrsReportedRate,
        },
        dead_band_bp: config.dead_band_bp,
        ..ZoneAwareParts::default()
    })?;
    let runtime = RuntimeOverrides {
        healthy_panic_threshold: runtime.healthy_panic_threshold,
        zone_routing_enabled: runtime.enabled,
        zone_routing_min_cluster_size: runtime.min_cluster_size,
        force_local_zone_min_size: runtime.force_local_zone_min_size,
        _non_exhaustive: (),
    };
    Ok(ClusterConfig::try_new(ClusterConfigParts {
        name: "upstream".into(),
        healthy_panic_threshold,
        locality_policy: LocalityPolicy::ZoneAware(zone_aware),
        runtime,
        ..ClusterConfigParts::default()
    })?)
}

/// Computes demand as the original design literally says, which mixes units: the fraction if one is
/// given, else the number of healthy hosts, only for zones with healthy hosts. Kept for comparison
/// (decision 0023); these numbers replace host weights, the rest is as in Envoy.
pub(super) fn literal_demand(fractions: &[LiteralFraction], fleet: &HostSetCounts) -> Demand {
    let mut literal = fleet.clone();
    for slot in &mut literal.localities {
        let given = fractions
            .iter()
            .find(|f| Locality::from(&f.locality) == slot.locality);
        slot.healthy_weight = match (slot.healthy, given) {
            (0, _) => 0,
            (_, Some(fraction)) => fraction.basis_points,
            (healthy, None) => healthy,
        };
    }
    Demand::from_host_weights(&literal)
}

/// Demand as a Plimsoll data plane computes it from measured fractions (decision 0023).
pub(super) fn measured_demand(
    fractions: &[LiteralFraction],
    fleet: &HostSetCounts,
) -> Result<Demand, CaseError> {
    Demand::from_fractions(&fraction_map(fractions)?, fleet)
        .ok_or_else(|| CaseError::inputs("measured_fractions have no demand"))
}

pub(super) fn fraction_map(fractions: &[LiteralFraction]) -> Result<FractionMap, CaseError> {
    let fraction = |given: &LiteralFraction| {
        let share = BasisPoints::new(given.basis_points, "measured_fractions")?;
        Ok((Locality::from(&given.locality), share))
    };
    fractions.iter().map(fraction).collect()
}

pub(super) fn host_set(input: &HostSetInput) -> HostSetCounts {
    let localities: Vec<_> = input.localities.iter().map(LocalityInput::counts).collect();
    let mut flat = sums(&localities);
    let given = &input.flat;
    flat.all = given.hosts.unwrap_or(flat.all);
    flat.healthy = given.healthy.unwrap_or(flat.healthy);
    flat.degraded = given.degraded.unwrap_or(flat.degraded);
    flat.excluded = given.excluded.unwrap_or(flat.excluded);
    let has_local_locality = input.has_local_locality;
    HostSetCounts {
        localities,
        has_local_locality,
        flat,
        weights: flat,
    }
}
