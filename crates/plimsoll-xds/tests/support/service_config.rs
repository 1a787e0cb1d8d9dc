//! Interpreter of byte strings as service configs, with invariant checks.
//!
//! The first byte says where the others are: as the whole text, as the settings of
//! `weighted_round_robin`, or as tokens of a config. Used by the tests of this crate and by the
//! fuzz target `service_config`.

use std::time::Duration;

use plimsoll_xds::service_config::{GrpcFeatures, ServicePolicy, parse_service_config};

/// Number of input kinds: the first byte modulo this selects one.
pub(crate) const KINDS: u8 = 3;

/// Tokens of a config, by byte. Balanced often enough to be accepted.
const TOKENS: [&str; 24] = [
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

/// Result of an input, so that tests can check that both occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Nothing,
    Policy,
    Rejected,
}

/// Parses `bytes`; panics if an invariant is violated.
pub(crate) fn run(bytes: &[u8]) -> Outcome {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Outcome::Nothing;
    };
    let text = match kind % KINDS {
        0 => String::from_utf8_lossy(rest).into_owned(),
        1 => {
            let settings = String::from_utf8_lossy(rest);
            format!("{}{settings}{}", TOKENS[0], TOKENS[1])
        }
        _ => {
            let pieces = rest.iter().map(|&byte| TOKENS[usize::from(byte) % 24]);
            pieces.collect()
        }
    };
    check(&text)
}

fn check(text: &str) -> Outcome {
    let read = |wrr_custom_metrics| {
        parse_service_config(
            text,
            GrpcFeatures {
                wrr_custom_metrics,
                ..Default::default()
            },
        )
    };
    match (read(true), read(false)) {
        (Ok(with), Ok(without)) => {
            holds(&with);
            holds(&without);
            if let ServicePolicy::WeightedRoundRobin(settings) = &without {
                assert!(settings.metric_names().is_empty(), "the feature is off");
            }
            Outcome::Policy
        }
        (Err(with), Err(without)) => {
            assert!(!with.to_string().is_empty());
            assert_eq!(with.to_string(), without.to_string());
            Outcome::Rejected
        }
        (with, without) => unreachable!("the feature decides: {with:?}, {without:?}"),
    }
}

/// Asserts the ranges of gRFC A58.
fn holds(policy: &ServicePolicy) {
    let ServicePolicy::WeightedRoundRobin(settings) = policy else {
        return;
    };
    assert!(settings.weight_update_period() >= Duration::from_millis(100));
    assert!(settings.oob_reporting_period() >= Duration::from_millis(1));
    let penalty = settings.error_utilization_penalty();
    assert!(penalty.is_finite() && penalty >= 0.0, "{penalty}");
}
