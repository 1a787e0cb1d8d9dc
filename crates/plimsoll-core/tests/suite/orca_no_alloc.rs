//! Once metric names are resolved, reading a report allocates nothing, neither for a utilization
//! nor for load reporting by plain names. Allocations are counted per thread.

use std::hint::black_box;

use allocation_counter::measure;
use plimsoll_core::model::orca::{MetricName, OrcaLoadReport, UtilizationPrecedence};

fn report(metrics: usize) -> OrcaLoadReport {
    let named = || (0..metrics).map(|index| (format!("metric.{index}"), 0.01));
    OrcaLoadReport {
        cpu_utilization: 0.5,
        named_metrics: named().collect(),
        utilization: named().collect(),
        request_cost: named().collect(),
        ..Default::default()
    }
}

/// Returns plain fields, present and missing entries, whole maps, and unknown names.
fn names() -> Vec<MetricName> {
    let names = [
        "cpu_utilization",
        "mem_utilization",
        "application_utilization",
        "eps",
        "rps_fractional",
        "named_metrics.metric.3",
        "named_metrics.missing",
        "named_metrics.*",
        "utilization.*",
        "request_cost.metric.0",
        "rps",
        "nonsense.metric",
    ];
    names.map(MetricName::new).to_vec()
}

#[test]
fn a_utilization_allocates_nothing() {
    let names = names();
    for metrics in [0, 1, 10, 1_000] {
        let report = report(metrics);
        let info = measure(|| {
            for precedence in [
                UtilizationPrecedence::ApplicationFirst,
                UtilizationPrecedence::NamedMetricsFirst,
            ] {
                let utilization = black_box(&report).utilization(&names, precedence);
                assert!(black_box(utilization) > 0.0);
            }
        });
        assert_eq!(info.count_total, 0, "{metrics} metrics");
    }
}

#[test]
fn load_reporting_allocates_only_for_a_star() {
    let report = report(10);
    let count = |names: &[MetricName]| {
        let mut sum = 0.0;
        let info = measure(|| report.lrs_metrics(names, |_, value| sum += value));
        assert!(black_box(sum) > 0.0);
        info.count_total
    };
    let is_star = |name: &MetricName| name.as_str().ends_with('*');
    let (stars, plain): (Vec<_>, Vec<_>) = names().into_iter().partition(is_star);
    assert_eq!(count(&plain), 0);
    assert!(count(&stars) > 0, "allocations are counted");
    assert!(count(&stars) < 10, "one buffer, not one name per entry");
}
