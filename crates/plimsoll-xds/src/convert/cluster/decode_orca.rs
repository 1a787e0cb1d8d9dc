//! The two policies that live on load reports, from bytes: `client_side_weighted_round_robin` and
//! `load_aware_locality`.

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts, OobReportingConfig,
};
use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::{
    ColdStart, LoadAwareLocality, LoadAwareLocalityParts, RemoteMean, SpillController,
};
use plimsoll_core::model::orca::UtilizationPrecedence;
use plimsoll_core::units::FieldError;

use super::super::pb::duration;
use super::super::pb::policy::{
    ClientSideWeightedRoundRobinMessage, LoadAwareLocalityMessage, OobReportingConfigMessage,
};
use super::decode_locality::locality;
use super::decode_policy::{Typed, child, choice, slow_start};

pub(super) fn client_side_weighted_round_robin(
    message: ClientSideWeightedRoundRobinMessage,
) -> Result<Typed, FieldError> {
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
        utilization_precedence: precedence(message.utilization_precedence)?,
        slow_start: slow_start(message.slow_start_config)?,
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

/// Own fields first, then the child, as Envoy checks them.
pub(super) fn load_aware_locality(message: LoadAwareLocalityMessage) -> Result<Typed, FieldError> {
    let colds = [ColdStart::Local, ColdStart::HostCount];
    let means = [RemoteMean::All, RemoteMean::ReportingOnly];
    let controllers = [SpillController::Headroom, SpillController::Convergent];
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
        utilization_precedence: precedence(message.utilization_precedence)?,
        cold_start: choice(message.cold_start, &colds, "cold_start")?,
        remote_mean: choice(message.remote_mean, &means, "remote_mean")?,
        spill_controller: choice(message.spill_controller, &controllers, "spill_controller")?,
        local_probe_fraction: message.local_probe_fraction,
        demand_feed_forward: message.demand_feed_forward,
    })?;
    let endpoint = child(message.endpoint_picking_policy, "load_aware_locality")?;
    Ok((endpoint, Some(LocalityPolicy::LoadAwareLocality(settings))))
}

fn precedence(number: i32) -> Result<UtilizationPrecedence, FieldError> {
    let values = [
        UtilizationPrecedence::ApplicationFirst,
        UtilizationPrecedence::NamedMetricsFirst,
    ];
    choice(number, &values, "utilization_precedence")
}
