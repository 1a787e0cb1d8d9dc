//! Decoding of `LocalityLbConfig`, including Plimsoll's extension fields.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::zone_aware::{
    ForceLocalZone, LrsRateConfigParts, ZoneAware, ZoneAwareParts,
};
use plimsoll_core::units::FieldError;

use super::super::named;
use super::decode_policy::one_of;
use plimsoll_schema::pb::duration;
use plimsoll_schema::pb::policy::{
    LocalityLbConfigMessage, LrsRateConfigMessage, ZoneAwareMessage,
};

/// Decodes the locality policy; error paths include the message name.
pub(super) fn locality(
    config: Option<LocalityLbConfigMessage>,
) -> Result<Option<LocalityPolicy>, FieldError> {
    let Some(config) = config else {
        return Ok(None);
    };
    let zone_aware = config.zone_aware_lb_config.map(zone_aware);
    let policy = one_of(zone_aware, config.locality_weighted_lb_config);
    let policy = policy.and_then(|policy| match policy {
        Some(policy) => Ok(Some(policy)),
        // The proto requires zone-aware or locality-weighted settings.
        None => Err(FieldError::new(
            "",
            "must have zone_aware_lb_config or locality_weighted_lb_config",
        )),
    });
    policy.map_err(|error| error.under("locality_lb_config"))
}

fn zone_aware(message: ZoneAwareMessage) -> Result<ZoneAware, FieldError> {
    let force = message.force_local_zone;
    ZoneAware::try_new(ZoneAwareParts {
        routing_enabled: message.routing_enabled.map(|percent| percent.value),
        min_cluster_size: message.min_cluster_size,
        fail_traffic_on_panic: message.fail_traffic_on_panic,
        force_locality_direct_routing: message.force_locality_direct_routing,
        force_local_zone: force.map(|force| ForceLocalZone {
            min_size: force.min_size,
        }),
        locality_basis: named(message.locality_basis.unwrap_or_default(), "locality_basis")?,
        locality_basis_written: message.locality_basis.is_some(),
        lrs_rate_config: lrs_rate_config(message.lrs_rate_config.unwrap_or_default())
            .map_err(|error| error.under("lrs_rate_config"))?,
        upstream_locality_basis: named(message.upstream_locality_basis, "upstream_locality_basis")?,
        dead_band_bp: message.dead_band_bp,
        observed_load_period: duration(message.observed_load_period, "observed_load_period")?,
        all_priorities: message.all_priorities,
        _non_exhaustive: (),
    })
}

fn lrs_rate_config(message: LrsRateConfigMessage) -> Result<LrsRateConfigParts, FieldError> {
    Ok(LrsRateConfigParts {
        staleness_threshold: duration(message.staleness_threshold, "staleness_threshold")?,
        fraction_source: named(message.fraction_source, "fraction_source")?,
        _non_exhaustive: (),
    })
}
