//! Tests of the utilization rule in both orders, and of names in load reports.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const BOTH: [UtilizationPrecedence; 2] = [
    UtilizationPrecedence::ApplicationFirst,
    UtilizationPrecedence::NamedMetricsFirst,
];

/// Values that decision 0026 treats as missing.
const MISSING: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -0.5];

fn names(names: &[&str]) -> Vec<MetricName> {
    names.iter().map(|name| MetricName::new(name)).collect()
}

fn metrics(metrics: &[(&str, f64)]) -> MetricMap {
    metrics.iter().copied().collect()
}

/// Returns a report with `application_utilization`, `named_metrics.foo` and `cpu_utilization`.
fn report(application: f64, foo: f64, cpu: f64) -> OrcaLoadReport {
    OrcaLoadReport {
        application_utilization: application,
        named_metrics: metrics(&[("foo", foo)]),
        cpu_utilization: cpu,
        ..Default::default()
    }
}

fn utilizations(report: &OrcaLoadReport, configured: &[&str]) -> [f64; 2] {
    let names = names(configured);
    BOTH.map(|precedence| report.utilization(&names, precedence))
}

#[test]
fn the_default_order_is_that_of_the_seeds() {
    assert_eq!(UtilizationPrecedence::default(), BOTH[0]);
}

#[test]
fn each_order_takes_the_first_usable_value() {
    let foo = ["named_metrics.foo"];
    assert_eq!(utilizations(&report(0.5, 0.3, 0.6), &foo), [0.5, 0.3]);
    assert_eq!(utilizations(&report(0.5, 0.0, 0.6), &foo), [0.5, 0.5]);
    assert_eq!(utilizations(&report(0.0, 0.3, 0.6), &foo), [0.3, 0.3]);
    assert_eq!(utilizations(&report(0.0, 0.0, 0.6), &foo), [0.6, 0.6]);
    assert_eq!(utilizations(&OrcaLoadReport::default(), &foo), [0.0, 0.0]);
}

#[test]
fn a_metric_counts_only_where_it_is_configured() {
    assert_eq!(utilizations(&report(0.0, 0.3, 0.6), &[]), [0.6, 0.6]);
    let other = ["utilization.foo", "named_metrics.bar", "rps", "nonsense.x"];
    assert_eq!(utilizations(&report(0.0, 0.3, 0.6), &other), [0.6, 0.6]);
}

#[test]
fn unusable_values_count_as_missing_everywhere() {
    let foo = ["named_metrics.foo"];
    for missing in MISSING {
        let of = |report: OrcaLoadReport| utilizations(&report, &foo);
        assert_eq!(of(report(missing, 0.3, 0.6)), [0.3, 0.3], "{missing}");
        assert_eq!(of(report(0.5, missing, 0.6)), [0.5, 0.5], "{missing}");
        assert_eq!(of(report(missing, missing, 0.6)), [0.6, 0.6], "{missing}");
        assert_eq!(
            of(report(missing, missing, missing)),
            [0.0, 0.0],
            "{missing}"
        );
    }
}

#[test]
fn an_empty_report_has_positive_zero_utilization() {
    let nothing = report(-0.0, -0.0, -0.0);
    for utilization in utilizations(&nothing, &["named_metrics.foo", "cpu_utilization"]) {
        assert_eq!(utilization.to_bits(), 0);
    }
}

#[test]
fn the_largest_selected_metric_wins_in_any_order() {
    let report = OrcaLoadReport {
        mem_utilization: 0.35,
        eps: f64::NAN,
        rps_fractional: f64::INFINITY,
        utilization: metrics(&[("disk", 0.4), ("net", 0.2)]),
        request_cost: metrics(&[("cpu", 0.1)]),
        ..Default::default()
    };
    let mut configured = [
        "mem_utilization",
        "eps",
        "utilization.disk",
        "request_cost.cpu",
        "rps_fractional",
    ];
    assert_eq!(utilizations(&report, &configured), [0.4; 2]);
    configured.reverse();
    assert_eq!(utilizations(&report, &configured), [0.4; 2]);
    assert_eq!(utilizations(&report, &["utilization.*"]), [0.4; 2]);
    let doubled = ["utilization.net", "utilization.net"];
    assert_eq!(utilizations(&report, &doubled), [0.2; 2]);
}

#[test]
fn there_is_no_upper_bound() {
    assert_eq!(utilizations(&report(0.0, 0.0, 1.7), &[]), [1.7; 2]);
    assert_eq!(
        utilizations(&report(0.0, 0.0, f64::MAX), &[]),
        [f64::MAX; 2]
    );
    let smallest = f64::from_bits(1);
    assert_eq!(
        utilizations(&report(0.0, 0.0, smallest), &[]),
        [smallest; 2]
    );
}

fn reported(report: &OrcaLoadReport, configured: &[&str]) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    report.lrs_metrics(&names(configured), |name, value| {
        found.push((name.to_owned(), value));
    });
    found
}

fn pairs(list: &[(&str, f64)]) -> Vec<(String, f64)> {
    let owned = list.iter().map(|&(name, value)| (name.to_owned(), value));
    owned.collect()
}

#[test]
fn load_reporting_gets_all_plain_fields_and_present_entries() {
    let configured = [
        "application_utilization",
        "cpu_utilization",
        "named_metrics.a",
        "rps",
        "eps",
    ];
    let empty = OrcaLoadReport::default();
    let expected = [
        ("application_utilization", 0.0),
        ("cpu_utilization", 0.0),
        ("eps", 0.0),
    ];
    assert_eq!(reported(&empty, &configured), pairs(&expected));
    let report = OrcaLoadReport {
        named_metrics: metrics(&[("a", -1.0), ("b", 2.0)]),
        ..empty
    };
    let found = reported(&report, &configured);
    assert_eq!(found[2], ("named_metrics.a".to_owned(), -1.0), "not judged");
    assert_eq!(found.len(), 4);
}

#[test]
fn load_reporting_expands_a_star() {
    let report = OrcaLoadReport {
        named_metrics: metrics(&[("b.c", 0.2), ("a", 0.0)]),
        utilization: metrics(&[("*", 0.6)]),
        request_cost: metrics(&[("long key", -0.4)]),
        ..Default::default()
    };
    let configured = ["request_cost.*", "utilization.*", "named_metrics.*"];
    let expected = [
        ("request_cost.long key", -0.4),
        ("utilization.*", 0.6),
        ("named_metrics.a", 0.0),
        ("named_metrics.b.c", 0.2),
    ];
    assert_eq!(reported(&report, &configured), pairs(&expected));
    let twice = ["named_metrics.a", "named_metrics.*"];
    assert_eq!(reported(&report, &twice).len(), 3, "configured twice");
    assert_eq!(reported(&OrcaLoadReport::default(), &configured), []);
}

/// Any double, biased to special values.
fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        proptest::sample::select(MISSING.to_vec()),
        0.0..1.5
    ]
}

fn any_map() -> impl Strategy<Value = MetricMap> {
    vec(("[a-c]", any_value()), 0..5).prop_map(|list| list.into_iter().collect())
}

fn any_report() -> impl Strategy<Value = OrcaLoadReport> {
    let plain = (
        any_value(),
        any_value(),
        any_value(),
        any_value(),
        any_value(),
    );
    (plain, any_map(), any_map(), any_map()).prop_map(|(plain, named, utilization, cost)| {
        OrcaLoadReport {
            cpu_utilization: plain.0,
            mem_utilization: plain.1,
            application_utilization: plain.2,
            rps: 7,
            rps_fractional: plain.3,
            eps: plain.4,
            named_metrics: named,
            utilization,
            request_cost: cost,
            ..Default::default()
        }
    })
}

fn any_names() -> impl Strategy<Value = Vec<MetricName>> {
    let name = prop_oneof![
        "(cpu|mem|application)_utilization",
        "eps|rps|rps_fractional|x",
        "(named_metrics|utilization|request_cost)\\.[a-c*]",
    ];
    vec(name.prop_map(|name| MetricName::new(&name)), 0..6)
}

proptest! {
    /// The rule as a specification: an ordered list of candidates, each the best of a group.
    #[test]
    fn the_rule_is_the_first_group_with_a_usable_value(
        report in any_report(),
        configured in any_names(),
    ) {
        let mut selected = Vec::new();
        report.lrs_metrics(&configured, |_, value| selected.push(value));
        let best = |values: &[f64]| {
            let usable = values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
            usable.fold(0.0, f64::max)
        };
        let application = best(&[report.application_utilization]);
        let named = best(&selected);
        let cpu = best(&[report.cpu_utilization]);
        for (precedence, order) in
            BOTH.into_iter().zip([[application, named, cpu], [named, application, cpu]])
        {
            let expected = order.into_iter().find(|value| *value > 0.0).unwrap_or(0.0);
            prop_assert_eq!(report.utilization(&configured, precedence), expected);
        }
    }

    #[test]
    fn a_utilization_is_finite_and_not_negative(report in any_report(), configured in any_names()) {
        for precedence in BOTH {
            let utilization = report.utilization(&configured, precedence);
            prop_assert!(utilization.is_finite() && utilization >= 0.0);
        }
    }
}
