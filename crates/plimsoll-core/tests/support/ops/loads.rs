//! Load reports, and policies that use them, from bytes.

use std::time::Duration;

use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts,
};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::load_aware_locality::{
    ColdStart, LoadAwareLocality, LoadAwareLocalityParts, RemoteMean, SpillController,
};
use plimsoll_core::model::orca::{OrcaLoadReport, UtilizationPrecedence};

use super::bytes::Bytes;

/// Numbers that a backend may send, valid or not.
const NUMBERS: [f64; 12] = [
    0.5,
    0.0,
    0.1,
    0.8,
    0.999,
    1.0,
    7.0,
    1e300,
    -1.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

/// Returns a load report with arbitrary values.
pub(crate) fn report(bytes: &mut Bytes<'_>) -> OrcaLoadReport {
    let named = bytes.maybe(&NUMBERS).map(|value| ("a".to_owned(), value));
    OrcaLoadReport {
        cpu_utilization: bytes.one_of(&NUMBERS),
        application_utilization: bytes.one_of(&NUMBERS),
        rps_fractional: bytes.one_of(&[100.0, 0.0, 1.0, 1e12, f64::NAN]),
        eps: bytes.one_of(&[0.0, 1.0, f64::INFINITY]),
        named_metrics: named.into_iter().collect(),
        ..Default::default()
    }
}

/// Returns valid settings of `load_aware_locality`.
pub(crate) fn load_aware_locality(bytes: &mut Bytes<'_>) -> LoadAwareLocality {
    let millis = |value: Option<u64>| value.map(Duration::from_millis);
    let parts = LoadAwareLocalityParts {
        weight_update_period: millis(bytes.maybe(&[100, 1_000, 60_000])),
        metric_names_for_computing_utilization: names(bytes),
        utilization_variance_threshold: bytes.maybe(&[0.0, 0.1, 1.0]),
        smoothing_time_constant: millis(bytes.maybe(&[1, 5_000, 600_000])),
        remote_probe_fraction: bytes.maybe(&[0.0, 0.03, 0.5]),
        weight_expiration_period: millis(bytes.maybe(&[0, 1, 10_000])),
        enable_oob_load_report: bytes.flag(),
        oob_reporting_period: millis(bytes.maybe(&[0, 1_000])),
        oob_reporting_config: Default::default(),
        utilization_precedence: precedence(bytes),
        cold_start: bytes.one_of(&[ColdStart::Local, ColdStart::HostCount]),
        remote_mean: bytes.one_of(&[RemoteMean::All, RemoteMean::ReportingOnly]),
        spill_controller: bytes.one_of(&[SpillController::Headroom, SpillController::Convergent]),
        local_probe_fraction: bytes.maybe(&[0.0, 0.1, 0.5]),
        demand_feed_forward: bytes.maybe(&[false]),
        ..Default::default()
    };
    LoadAwareLocality::try_new(parts).expect("valid by construction")
}

/// Returns valid settings of `client_side_weighted_round_robin`.
pub(crate) fn client_side_weights(bytes: &mut Bytes<'_>) -> EndpointPolicy {
    let millis = |value: Option<u64>| value.map(Duration::from_millis);
    let parts = ClientSideWeightedRoundRobinParts {
        blackout_period: millis(bytes.maybe(&[0, 1, 10_000])),
        weight_expiration_period: millis(bytes.maybe(&[0, 1_000, 180_000])),
        weight_update_period: millis(bytes.maybe(&[1, 100, 60_000])),
        error_utilization_penalty: bytes.maybe(&[0.0, 1.0, 1e300]),
        metric_names_for_computing_utilization: names(bytes),
        utilization_precedence: precedence(bytes),
        ..Default::default()
    };
    let settings = ClientSideWeightedRoundRobin::try_new(parts);
    EndpointPolicy::ClientSideWeightedRoundRobin(settings.expect("valid by construction"))
}

fn names(bytes: &mut Bytes<'_>) -> Vec<String> {
    let names = ["named_metrics.a", "named_metrics.*", "eps", "nonsense"];
    bytes.maybe(&names).map(str::to_owned).into_iter().collect()
}

fn precedence(bytes: &mut Bytes<'_>) -> UtilizationPrecedence {
    bytes.one_of(&[
        UtilizationPrecedence::ApplicationFirst,
        UtilizationPrecedence::NamedMetricsFirst,
    ])
}
