//! Interpreter of byte strings as ORCA reports of a backend, with invariant checks.
//!
//! The first byte says where the others are: after a prefix, bare in either header, in a stream
//! message, or as headers and trailers of several responses. Used by the tests of this crate and by
//! the fuzz target `orca_header`.

use plimsoll_core::model::orca::{MetricMap, MetricName, OrcaLoadReport, UtilizationPrecedence};
use plimsoll_xds::orca::{
    ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN, FirstReport, OrcaCode, OrcaError, OrcaFormat,
    OrcaLimits, encode, encode_message, parse, parse_message,
};

pub(crate) const FORMATS: [OrcaFormat; 4] = [
    OrcaFormat::Text,
    OrcaFormat::Json,
    OrcaFormat::Bin,
    OrcaFormat::BinHeader,
];

/// Number of input kinds: the first byte modulo this selects one.
pub(crate) const KINDS: u8 = 7;

/// Result of an input, so that tests can check that both occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Nothing,
    Report,
    Rejected,
}

/// Parses `bytes`; panics if an invariant is violated.
pub(crate) fn run(bytes: &[u8]) -> Outcome {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Outcome::Nothing;
    };
    let limits = OrcaLimits {
        max_bytes: 4096,
        max_metrics: 20,
        ..Default::default()
    };
    let prefixed = |prefix: &str| {
        let value = [prefix.as_bytes(), rest].concat();
        parse([(ENDPOINT_LOAD_METRICS, &value[..])], &limits)
    };
    let found = match kind % KINDS {
        0 => prefixed("TEXT "),
        1 => prefixed("JSON "),
        2 => prefixed("BIN "),
        3 => prefixed(""),
        4 => parse([(ENDPOINT_LOAD_METRICS_BIN, rest)], &limits),
        5 => parse_message(rest, &limits),
        _ => return attempts(rest, &limits),
    };
    check(&found, &limits)
}

/// Every line is a header of consecutive responses; at most one report may be used.
fn attempts(bytes: &[u8], limits: &OrcaLimits) -> Outcome {
    let mut first = FirstReport::default();
    let mut used = Outcome::Nothing;
    for line in bytes.split(|&byte| byte == b'\n') {
        let before = first.is_taken();
        let pair = match line.strip_prefix(b"-bin:") {
            Some(value) => (ENDPOINT_LOAD_METRICS_BIN, value),
            None => (ENDPOINT_LOAD_METRICS, line),
        };
        match first.parse([("x", &b"TEXT eps=1"[..]), pair], limits) {
            Ok(Some(report)) => {
                assert!(!before, "the first one was used already");
                assert!(first.is_taken());
                used = check(&Ok(report), limits);
            }
            Ok(None) => assert!(before, "there is a header, so that silence means taken"),
            Err(error) => {
                assert!(!before && !first.is_taken());
                used = check(&Err(error), limits);
            }
        }
    }
    used
}

fn check(found: &Result<OrcaLoadReport, OrcaError>, limits: &OrcaLimits) -> Outcome {
    match found {
        Ok(report) => {
            assert!(metrics(report) <= limits.max_metrics);
            has_a_utilization(report);
            reads_back(report);
            Outcome::Report
        }
        Err(error) => {
            assert_ne!(error.code(), OrcaCode::NotFound, "something was sent");
            assert!(!error.message().is_empty() && error.message().len() < 1100);
            Outcome::Rejected
        }
    }
}

fn metrics(report: &OrcaLoadReport) -> usize {
    let maps = [
        &report.named_metrics,
        &report.utilization,
        &report.request_cost,
    ];
    maps.iter().map(|map| map.len()).sum()
}

fn has_a_utilization(report: &OrcaLoadReport) {
    let names = [
        "named_metrics.*",
        "utilization.*",
        "request_cost.*",
        "eps",
        "mem_utilization",
    ]
    .map(MetricName::new);
    for precedence in [
        UtilizationPrecedence::ApplicationFirst,
        UtilizationPrecedence::NamedMetricsFirst,
    ] {
        let utilization = report.utilization(&names, precedence);
        assert!(utilization.is_finite() && utilization >= 0.0, "{report:?}");
    }
}

/// Asserts a round trip in every format that can express `report`.
pub(crate) fn reads_back(report: &OrcaLoadReport) {
    let limits = OrcaLimits {
        max_bytes: usize::MAX,
        max_metrics: usize::MAX,
        ..Default::default()
    };
    for format in FORMATS {
        match encode(report, format) {
            Ok((name, value)) => {
                let printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
                assert!(printable && value.trim() == value, "{value:?}");
                let found = parse([(name, value.as_bytes())], &limits);
                let equal = found.as_ref().is_ok_and(|found| same(report, found));
                assert!(equal, "{report:?}\n{value}\n{found:?}");
            }
            Err(_) => assert_eq!(format, OrcaFormat::Text, "the others can say everything"),
        }
    }
    let message = parse_message(&encode_message(report), &limits);
    assert!(
        message.is_ok_and(|found| same(report, &found)),
        "{report:?}"
    );
}

/// Compares reports, where NaN equals NaN.
fn same(left: &OrcaLoadReport, right: &OrcaLoadReport) -> bool {
    let plain = |report: &OrcaLoadReport| {
        [
            report.cpu_utilization,
            report.mem_utilization,
            report.application_utilization,
            report.rps_fractional,
            report.eps,
        ]
    };
    let number = |left: f64, right: f64| left == right || left.is_nan() && right.is_nan();
    let map = |left: &MetricMap, right: &MetricMap| {
        let mut pairs = left.iter().zip(right.iter());
        left.len() == right.len()
            && pairs.all(|(left, right)| left.0 == right.0 && number(left.1, right.1))
    };
    let mut numbers = plain(left).into_iter().zip(plain(right));
    numbers.all(|(left, right)| number(left, right))
        && left.rps == right.rps
        && map(&left.named_metrics, &right.named_metrics)
        && map(&left.utilization, &right.utilization)
        && map(&left.request_cost, &right.request_cost)
}
