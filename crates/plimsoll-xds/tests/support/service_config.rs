//! Interpreter of service configs: bytes in, and what must hold whatever they say.
//!
//! The first byte says where the others stand: as the whole text, as the settings of
//! `weighted_round_robin`, or as pieces of a config that are put together. Used by the tests of
//! this crate and by the fuzz target `service_config`.

use std::time::Duration;

use plimsoll_xds::service_config::{GrpcFeatures, ServicePolicy, parse_service_config};

/// How many kinds of input there are: the first byte counts modulo this.
pub(crate) const KINDS: u8 = 3;

/// What a byte stands for where a config is put together. Balanced often enough to be accepted.
const PIECES: [&str; 24] = [
    "{\"loadBalancingConfig\":[{\"weighted_round_robin\":{",
    "}}]}",
    "\"enableOobLoadReport\":",
    "\"oobReportingPeriod\":",
    "\"blackoutPeriod\":",
    "\"weightExpirationPeriod\":",
    "\"weightUpdatePeriod\":",
    "\"errorUtilizationPenalty\":",
    "\"metricNamesForComputingUtilization\":",
    "[\"named_metrics.a\"]",
    "[]",
    "true",
    "false",
    "null",
    "\"10s\"",
    "\"0.0009s\"",
    "\"-1s\"",
    "\"315576000001s\"",
    "1.5",
    "\"NaN\"",
    "1e999",
    ",",
    "}},{\"round_robin\":{",
    "}},{\"other\":{",
];

/// What came of it, so that tests can see that both happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    Nothing,
    Policy,
    Refused,
}

/// Reads `bytes`, and panics when something does not hold.
pub(crate) fn run(bytes: &[u8]) -> Seen {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Seen::Nothing;
    };
    let text = match kind % KINDS {
        0 => String::from_utf8_lossy(rest).into_owned(),
        1 => {
            let settings = String::from_utf8_lossy(rest);
            format!("{}{settings}{}", PIECES[0], PIECES[1])
        }
        _ => {
            let pieces = rest.iter().map(|&byte| PIECES[usize::from(byte) % 24]);
            pieces.collect()
        }
    };
    judge(&text)
}

fn judge(text: &str) -> Seen {
    let read = |wrr_custom_metrics| parse_service_config(text, GrpcFeatures { wrr_custom_metrics });
    match (read(true), read(false)) {
        (Ok(with), Ok(without)) => {
            holds(&with);
            holds(&without);
            if let ServicePolicy::WeightedRoundRobin(settings) = &without {
                assert!(settings.metric_names().is_empty(), "the feature is off");
            }
            Seen::Policy
        }
        (Err(with), Err(without)) => {
            assert!(!with.to_string().is_empty());
            assert_eq!(with.to_string(), without.to_string());
            Seen::Refused
        }
        (with, without) => unreachable!("the feature decides: {with:?}, {without:?}"),
    }
}

/// Ranges of gRFC A58.
fn holds(policy: &ServicePolicy) {
    let ServicePolicy::WeightedRoundRobin(settings) = policy else {
        return;
    };
    assert!(settings.weight_update_period() >= Duration::from_millis(100));
    assert!(settings.oob_reporting_period() >= Duration::from_millis(1));
    let penalty = settings.error_utilization_penalty();
    assert!(penalty.is_finite() && penalty >= 0.0, "{penalty}");
}
