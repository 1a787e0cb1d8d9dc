//! Decoding of the two policies driven by ORCA reports: `client_side_weighted_round_robin` and
//! `load_aware_locality`.

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts, OobReportingConfig,
};
use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::{LoadAwareLocality, LoadAwareLocalityParts};
use plimsoll_core::units::FieldError;

use super::super::{Strictness, named};
use super::decode_locality::locality;
use super::decode_policy::{Policies, child, slow_start};
use plimsoll_schema::pb::duration;
use plimsoll_schema::pb::policy::{
    ClientSideWeightedRoundRobinMessage, LoadAwareLocalityMessage, OobReportingConfigMessage,
};

pub(super) fn client_side_weighted_round_robin(
    message: ClientSideWeightedRoundRobinMessage,
) -> Result<Policies, FieldError> {
    let policy = ClientSideWeightedRoundRobin::try_new(ClientSideWeightedRoundRobinParts {
        enable_oob_load_report: message.enable_oob_load_report.unwrap_or(false),
        oob_reporting_period: duration(message.oob_reporting_period, "oob_reporting_period")?,
        oob_reporting_config: oob_config(message.oob_reporting_config),
        blackout_period: duration(message.blackout_period, "blackout_period")?,
        weight_expiration_period: duration(
            message.weight_expiration_period,
            "weight_expiration_period",
        )?,
        weight_update_period: duration(message.weight_update_period, "weight_update_period")?,
        error_utilization_penalty: message.error_utilization_penalty.map(f64::from),
        metric_names_for_computing_utilization: message.metric_names_for_computing_utilization,
        utilization_precedence: named(message.utilization_precedence, "utilization_precedence")?,
        slow_start: slow_start(message.slow_start_config)?,
        _non_exhaustive: (),
    })?;
    let policy = EndpointPolicy::ClientSideWeightedRoundRobin(policy);
    Ok((policy, locality(message.locality_lb_config)?))
}

fn oob_config(message: Option<OobReportingConfigMessage>) -> OobReportingConfig {
    let message = message.unwrap_or_default();
    OobReportingConfig {
        port_value: message.port_value,
        authority: message.authority,
    }
}

/// Checks the fields of `load_aware_locality` before its child policy, as Envoy does.
pub(super) fn load_aware_locality(
    message: LoadAwareLocalityMessage,
    strictness: Strictness,
) -> Result<Policies, FieldError> {
    let settings = LoadAwareLocality::try_new(LoadAwareLocalityParts {
        weight_update_period: duration(message.weight_update_period, "weight_update_period")?,
        metric_names_for_computing_utilization: message.metric_names_for_computing_utilization,
        utilization_variance_threshold: message.utilization_variance_threshold,
        smoothing_time_constant: duration(
            message.smoothing_time_constant,
            "smoothing_time_constant",
        )?,
        remote_probe_fraction: message.remote_probe_fraction,
        weight_expiration_period: duration(
            message.weight_expiration_period,
            "weight_expiration_period",
        )?,
        enable_oob_load_report: message.enable_oob_load_report.unwrap_or(false),
        oob_reporting_period: duration(message.oob_reporting_period, "oob_reporting_period")?,
        oob_reporting_config: oob_config(message.oob_reporting_config),
        utilization_precedence: named(message.utilization_precedence, "utilization_precedence")?,
        cold_start: named(message.cold_start, "cold_start")?,
        remote_mean: named(message.remote_mean, "remote_mean")?,
        spill_controller: named(message.spill_controller, "spill_controller")?,
        local_probe_fraction: message.local_probe_fraction,
        demand_feed_forward: message.demand_feed_forward,
        demand_feed_forward_percent: message.demand_feed_forward_percent,
        _non_exhaustive: (),
    })?;
    let endpoint = child(
        message.endpoint_picking_policy,
        "load_aware_locality",
        strictness,
    )?;
    Ok((endpoint, Some(LocalityPolicy::LoadAwareLocality(settings))))
}

#[cfg(test)]
mod tests;
