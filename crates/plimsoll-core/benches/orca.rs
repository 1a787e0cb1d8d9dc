//! Nanoseconds per report: `cargo bench -p plimsoll-core --bench orca`.
//!
//! From a report with ten named metrics to one utilization, by the configured names. The bar is 44
//! ns for one name; the last line, all ten by name, is not a realistic configuration.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::model::orca::{MetricName, OrcaLoadReport, UtilizationPrecedence};

const KEYS: [&str; 10] = [
    "queue_depth",
    "heap_used",
    "threads_busy",
    "connections_open",
    "disk_wait",
    "gpu_utilization",
    "cache_pressure",
    "db_pool_utilization",
    "event_loop_lag",
    "tenant.blue.utilization",
];

fn utilization(c: &mut Criterion) {
    let named = |key: &str| format!("named_metrics.{key}");
    let every_key = KEYS.map(named);
    let cases = [
        ("no_name", vec![]),
        ("one_name", vec![named("tenant.blue.utilization")]),
        ("one_missing_name", vec![named("tenant.green.utilization")]),
        (
            "three_names",
            vec![
                named("queue_depth"),
                named("gpu_utilization"),
                "mem_utilization".into(),
            ],
        ),
        ("every_entry", vec![named("*")]),
        ("ten_names", every_key.to_vec()),
    ];
    let report = report();
    for (name, configured) in cases {
        let names: Vec<_> = configured
            .iter()
            .map(|name| MetricName::new(name))
            .collect();
        c.bench_function(&format!("orca/utilization/{name}"), |b| {
            b.iter(|| {
                black_box(&report).utilization(
                    black_box(&names),
                    black_box(UtilizationPrecedence::ApplicationFirst),
                )
            });
        });
    }
}

/// No `application_utilization`, so that the names are read in either order.
fn report() -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: 0.31,
        mem_utilization: 0.47,
        rps_fractional: 812.5,
        eps: 0.25,
        named_metrics: KEYS
            .into_iter()
            .zip([0.4, 0.1, 0.7, 0.2, 0.9, 0.3, 0.6, 0.5, 0.8, 0.55])
            .collect(),
        ..Default::default()
    }
}

criterion_group!(benches, utilization);
criterion_main!(benches);
