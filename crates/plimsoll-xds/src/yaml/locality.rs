//! How a locality is chosen: `LocalityLbConfig` of the typed policies, and its legacy twin in
//! `common_lb_config`, which has fewer fields.
//!
//! Fields, defaults and ranges are those of the core's `ZoneAware`; here are only their names.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::zone_aware::{
    CapacityBasis, ForceLocalZone, FractionSource, LocalityBasis, LrsRateConfigParts, ZoneAware,
    ZoneAwareParts,
};
use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::proto_json::{Empty, Named, Percent, ProtoDuration, ProtoEnum, Uint};

/// `LocalityLbConfig`: exactly one of the two.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LocalityLbConfig {
    /// Localities are chosen so that traffic stays local as far as capacity allows.
    zone_aware_lb_config: Option<ZoneAwareLbConfig>,
    /// Localities are chosen by their weights.
    locality_weighted_lb_config: Option<Empty>,
}

impl LocalityLbConfig {
    /// The policy; the path of an error starts inside this message.
    pub(super) fn policy(self) -> Result<LocalityPolicy, FieldError> {
        let zone_aware = self.zone_aware_lb_config.map(ZoneAwareLbConfig::checked);
        match one_of(zone_aware, self.locality_weighted_lb_config)? {
            Some(policy) => Ok(policy),
            // The proto asks for one; an empty message says nothing that could be meant.
            None => Err(FieldError::new(
                "",
                "must have zone_aware_lb_config or locality_weighted_lb_config",
            )),
        }
    }
}

/// The rule shared with the legacy form: at most one of the two.
pub(super) fn one_of(
    zone_aware: Option<Result<ZoneAware, FieldError>>,
    locality_weighted: Option<Empty>,
) -> Result<Option<LocalityPolicy>, FieldError> {
    match (zone_aware, locality_weighted) {
        (Some(_), Some(_)) => Err(FieldError::new(
            "locality_weighted_lb_config",
            "cannot be combined with zone_aware_lb_config",
        )),
        (Some(checked), None) => {
            let zone_aware = checked.map_err(|error| error.under("zone_aware_lb_config"))?;
            Ok(Some(LocalityPolicy::ZoneAware(zone_aware)))
        }
        (None, Some(_)) => Ok(Some(LocalityPolicy::LocalityWeighted)),
        (None, None) => Ok(None),
    }
}

/// `LocalityLbConfig.ZoneAwareLbConfig`, with `lrs_rate_config` and fields of our own.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct ZoneAwareLbConfig {
    /// Percent of requests for which localities are considered. Default 100.
    routing_enabled: Option<Percent>,
    /// Fewer healthy upstream hosts switch it off. Default 6.
    min_cluster_size: Option<Uint<u64>>,
    /// Fail in panic instead of using all hosts.
    fail_traffic_on_panic: bool,
    /// Deprecated spelling of `force_local_zone` with `min_size: 1`.
    force_locality_direct_routing: bool,
    /// Keep everything local while so many healthy hosts are there.
    force_local_zone: Option<ForceLocalZoneConfig>,
    /// What the shares of localities are made of. Default `HEALTHY_HOSTS_NUM`; a control plane
    /// may choose another basis only where none is written.
    locality_basis: Option<Named<LocalityBasis>>,
    /// Settings of `LRS_REPORTED_RATE`.
    lrs_rate_config: LrsRateConfig,
    /// Ours: what stands for capacity with `LRS_REPORTED_RATE` and `OBSERVED_LOAD`. Default
    /// `HEALTHY_HOSTS_NUM`.
    upstream_locality_basis: Named<CapacityBasis>,
    /// Ours: basis points by which demand may exceed capacity before traffic spills, with
    /// `LRS_REPORTED_RATE` and `OBSERVED_LOAD`. Default 100.
    dead_band_bp: Option<Uint<u64>>,
    /// Ours: how often `OBSERVED_LOAD` recomputes its shares, 100ms to 60s. Default `1s`.
    observed_load_period: Option<ProtoDuration>,
    /// Ours: also at priorities above 0.
    all_priorities: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct ForceLocalZoneConfig {
    /// Healthy hosts of the own zone that are enough. Default 1.
    min_size: Option<Uint<u32>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LrsRateConfig {
    /// Age at which fractions stop counting, 5s to 600s. Default `60s`.
    staleness_threshold: Option<ProtoDuration>,
    /// Where the fractions stand in the fleet's assignment. Default `EDS_FIELD`.
    fraction_source: Named<FractionSource>,
}

impl ZoneAwareLbConfig {
    fn checked(self) -> Result<ZoneAware, FieldError> {
        ZoneAware::try_new(ZoneAwareParts {
            routing_enabled: self.routing_enabled.map(|percent| percent.value.0),
            min_cluster_size: self.min_cluster_size.map(|size| size.0),
            fail_traffic_on_panic: self.fail_traffic_on_panic,
            force_locality_direct_routing: self.force_locality_direct_routing,
            force_local_zone: self.force_local_zone.map(|force| ForceLocalZone {
                min_size: force.min_size.map(|size| size.0),
            }),
            locality_basis: self
                .locality_basis
                .map_or_else(Default::default, |basis| basis.0),
            locality_basis_written: self.locality_basis.is_some(),
            lrs_rate_config: LrsRateConfigParts {
                staleness_threshold: self.lrs_rate_config.staleness_threshold.map(|age| age.0),
                fraction_source: self.lrs_rate_config.fraction_source.0,
            },
            upstream_locality_basis: self.upstream_locality_basis.0,
            dead_band_bp: self.dead_band_bp.map(|band| band.0),
            observed_load_period: self.observed_load_period.map(|period| period.0),
            all_priorities: self.all_priorities,
        })
    }
}

/// `CommonLbConfig.ZoneAwareLbConfig`: Envoy refuses the newer fields here, and so do we.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LegacyZoneAwareLbConfig {
    /// Percent of requests for which localities are considered. Default 100.
    routing_enabled: Option<Percent>,
    /// Fewer healthy upstream hosts switch it off. Default 6.
    min_cluster_size: Option<Uint<u64>>,
    /// Fail in panic instead of using all hosts.
    fail_traffic_on_panic: bool,
}

impl LegacyZoneAwareLbConfig {
    /// The settings; the path of an error starts inside this message.
    pub(super) fn checked(self) -> Result<ZoneAware, FieldError> {
        ZoneAware::try_new(ZoneAwareParts {
            routing_enabled: self.routing_enabled.map(|percent| percent.value.0),
            min_cluster_size: self.min_cluster_size.map(|size| size.0),
            fail_traffic_on_panic: self.fail_traffic_on_panic,
            ..Default::default()
        })
    }
}

impl ProtoEnum for LocalityBasis {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("HEALTHY_HOSTS_NUM", 0, Self::HealthyHostsNum),
        ("HEALTHY_HOSTS_WEIGHT", 1, Self::HealthyHostsWeight),
        ("LRS_REPORTED_RATE", 2, Self::LrsReportedRate),
        // As on the wire, away from what Envoy may still give out.
        ("OBSERVED_LOAD", 50_001, Self::ObservedLoad),
    ];
}

impl ProtoEnum for CapacityBasis {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("HEALTHY_HOSTS_NUM", 0, Self::HealthyHostsNum),
        ("HEALTHY_HOSTS_WEIGHT", 1, Self::HealthyHostsWeight),
    ];
}

impl ProtoEnum for FractionSource {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("EDS_FIELD", 0, Self::EdsField),
        ("LOCALITY_METADATA", 1, Self::LocalityMetadata),
    ];
}
