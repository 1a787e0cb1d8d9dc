//! Checks of a run: the bounds that a scenario sets (`[[expect]]`), and conservation of requests.
//!
//! Metrics are named as in the JSON report. Checks run after the simulation; if one fails,
//! `plimsoll sim` exits with status 1.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::scenario::{Expectation, Scenario};

/// A bound of the scenario and whether the run kept it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub policy: Policy,
    /// The bound, for example `max_over_mean_5s_avg at most 1.06`.
    pub text: String,
    /// The measured value; `null` = there is none (for example, the run did not settle).
    pub found: Option<f64>,
    pub passed: bool,
}

/// Reads a metric; `None` = the run has no such value.
type MetricReader = fn(&Metrics) -> Option<f64>;

/// Metrics that can be bounded. A missing value fails every bound.
const METRICS: &[(&str, MetricReader)] = &[
    ("max_over_mean_1s_avg", |m| Some(m.max_over_mean_1s_avg)),
    ("max_over_mean_1s_peak", |m| Some(m.max_over_mean_1s_peak)),
    ("max_over_mean_5s_avg", |m| Some(m.max_over_mean_5s_avg)),
    ("max_over_mean_5s_peak", |m| Some(m.max_over_mean_5s_peak)),
    ("cross_zone_share", |m| Some(m.cross_zone_share)),
    ("cross_zone_above_needed", |m| {
        Some(m.cross_zone_share - m.cross_zone_needed)
    }),
    ("above_capacity_share", |m| Some(m.above_capacity_share)),
    ("settled_s", |m| m.settled_s),
    ("oscillates", |m| Some(f64::from(u8::from(m.oscillates)))),
    ("oscillation_period_s", |m| m.oscillation_period_s),
    ("latency_p50_ms", |m| m.latency_p50_ms),
    ("latency_p99_ms", |m| m.latency_p99_ms),
    ("failure_share", |m| Some(m.failure_share)),
    ("measured_failure_share", |m| Some(m.measured_failure_share)),
    ("lock_out_s", |m| Some(m.lock_out_s)),
    ("load_factor_max", |m| {
        Some(m.zones.iter().map(|z| z.load_factor).fold(0.0, f64::max))
    }),
    ("load_factor_min", |m| {
        Some(
            m.zones
                .iter()
                .map(|z| z.load_factor)
                .fold(f64::INFINITY, f64::min),
        )
    }),
];

pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if METRICS.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    let names: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
    Err(format!(
        "unknown metric {name:?}: expected one of {}",
        names.join(", ")
    ))
}

/// Checks the bounds on one policy. Bounds that compare it with a policy that did not run are left
/// out, like those on policies that did not run.
pub(crate) fn check(
    scenario: &Scenario,
    policy: Policy,
    results: &BTreeMap<Policy, &Metrics>,
) -> Vec<Check> {
    let expectations = scenario.expectations.iter().filter(|e| e.policy == policy);
    expectations
        .filter_map(|expectation| {
            let metrics = results.get(&policy)?;
            let other = match expectation.compared_to {
                Some(other) => Some(*results.get(&other)?),
                None => None,
            };
            Some(check_one(expectation, metrics, other))
        })
        .collect()
}

fn check_one(expectation: &Expectation, metrics: &Metrics, other: Option<&Metrics>) -> Check {
    let Expectation {
        policy,
        compared_to,
        metric,
        bound,
        at_most,
    } = expectation;
    let reading = METRICS.iter().find(|(name, _)| name == metric);
    let read = |metrics| reading.and_then(|(_, reading)| reading(metrics));
    let found = match other {
        Some(other) => read(metrics)
            .zip(read(other))
            .map(|(found, other)| found - other),
        None => read(metrics),
    };
    let words = if *at_most { "at most" } else { "at least" };
    let above = compared_to.map_or_else(String::new, |other| format!(" above {}", other.name()));
    let passed = match found {
        Some(found) if *at_most => found <= *bound,
        Some(found) => found >= *bound,
        None => false,
    };
    Check {
        policy: *policy,
        text: format!("{metric} {words} {bound}{above}"),
        found,
        passed,
    }
}

/// Checks that every issued request completed or is still in flight.
pub(crate) fn conservation(policy: Policy, totals: crate::metrics::recorder::Totals) -> Check {
    let ended = totals.succeeded + totals.failed + totals.no_host + totals.in_flight;
    Check {
        policy,
        text: "lost requests at most 0".into(),
        found: Some(totals.issued.abs_diff(ended) as f64),
        passed: ended == totals.issued,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::recorder::{Recorder, Totals};
    use crate::metrics::windows::Windows;
    use crate::scenario::ScenarioParts;
    use crate::testing::three_zones;
    use crate::workload::Workload;

    fn checks(expect: &str) -> Vec<Check> {
        let mut parts = three_zones();
        let given: ScenarioParts = toml::from_str(expect).unwrap();
        parts.expect = given.expect;
        let scenario = Scenario::try_new(parts).unwrap();
        let workload = Workload::new(&scenario);
        let recorder = Recorder::new(&scenario);
        let windows = Windows::new(&scenario, &workload, &recorder);
        let metrics = crate::optimum::optimum(&windows);
        let results = BTreeMap::from([(Policy::Optimum, &metrics)]);
        check(&scenario, Policy::Optimum, &results)
    }

    #[test]
    fn bounds_are_checked() {
        let checks = checks(
            "[[expect]]\npolicy = \"optimum\"\n\
             at_most = { max_over_mean_5s_avg = 1.0, cross_zone_share = 0.2 }\n\
             at_least = { load_factor_min = 0.99 }\n\
             [[expect]]\npolicy = \"none\"\nat_most = { settled_s = 1 }\n",
        );
        let verdicts: Vec<(&str, bool)> = checks
            .iter()
            .map(|check| (check.text.as_str(), check.passed))
            .collect();
        let expected = [
            ("cross_zone_share at most 0.2", false),
            ("max_over_mean_5s_avg at most 1", true),
            ("load_factor_min at least 0.99", true),
        ];
        assert_eq!(verdicts, expected);
        assert!((checks[0].found.unwrap() - 0.267).abs() < 0.001);
    }

    #[test]
    fn a_missing_value_exceeds_every_bound() {
        let checks = checks(
            "[[expect]]\npolicy = \"optimum\"\nat_most = { latency_p99_ms = 1e9 }\n\
             at_least = { oscillation_period_s = 0 }\n",
        );
        assert!(
            checks
                .iter()
                .all(|check| !check.passed && check.found.is_none())
        );
    }

    #[test]
    fn lost_requests_fail_the_check() {
        let mut totals = Totals {
            issued: 10,
            succeeded: 5,
            failed: 2,
            no_host: 1,
            in_flight: 2,
        };
        assert!(conservation(Policy::None, totals).passed);
        totals.in_flight = 1;
        let check = conservation(Policy::None, totals);
        assert_eq!((check.passed, check.found), (false, Some(1.0)));
    }

    #[test]
    fn unknown_metrics_are_rejected_by_name() {
        assert!(check_name("settled_s").is_ok());
        let error = check_name("speed").unwrap_err();
        assert!(
            error.contains("speed") && error.contains("latency_p99_ms"),
            "{error}"
        );
    }
}
