//! Tests of metrics computed from hand-made runs.

use super::recorder::Recorder;
use super::*;
use crate::scenario::Scenario;
use crate::testing::three_zones;
use crate::workload::Workload;

/// Records a run in which zone a keeps all its requests: 60/20/20 at mean utilization 0.6.
fn all_local() -> Metrics {
    let scenario = Scenario::try_new(three_zones()).unwrap();
    let workload = Workload::new(&scenario);
    let mut recorder = Recorder::new(&scenario);
    for (zone, rate) in [(0, 1296), (1, 432), (2, 432)] {
        for request in 0..rate * 4_u64 {
            let at = request * num::SECOND * 10 / rate;
            recorder.issued(at, zone);
            recorder.sent(at, zone, zone);
            if request % 100 > 0 {
                recorder.succeeded(at, 20_000_000);
            } else {
                recorder.failed(at, 0, 0);
            }
        }
    }
    recorder.finish(0);
    Metrics::measure(&Windows::new(&scenario, &workload, &recorder))
}

fn assert_close(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() < 0.012,
        "{value} is not {expected}"
    );
}

#[test]
fn an_all_local_run_matches_the_measurements() {
    let metrics = all_local();
    assert_close(metrics.max_over_mean_5s_avg, 1.8);
    assert_close(metrics.max_over_mean_1s_avg, 1.8);
    assert_close(metrics.zones[0].utilization, 1.08);
    assert_close(metrics.zones[0].load_factor, 1.8);
    assert_close(metrics.cross_zone_needed, 0.267);
    assert_close(metrics.above_capacity_share, 0.044);
    assert_eq!(metrics.cross_zone_share, 0.0);
    assert_eq!(
        (metrics.hottest_zone.as_str(), metrics.oscillates),
        ("a", false)
    );
    assert_eq!(metrics.settled_s, None, "it is never even");
    assert_close(metrics.zones[0].demand_rps / 129.6, 1.0);
    assert_eq!(metrics.zones[2].kept_local, 1.0);
}

#[test]
fn failures_are_counted_and_latency_is_that_of_successes() {
    let metrics = all_local();
    assert_eq!(metrics.requests, 2160 * 4);
    assert_eq!(metrics.failures, 52 + 18 + 18);
    assert_close(metrics.latency_p50_ms.unwrap() / 20.0, 1.0);
    assert_close(metrics.latency_p99_ms.unwrap() / 20.0, 1.0);
}

#[test]
fn one_step_that_does_not_settle_leaves_no_settling_time() {
    assert_eq!(worst([Some(3.0), Some(5.0)].into_iter()), Some(5.0));
    assert_eq!(worst([Some(3.0), None, Some(5.0)].into_iter()), None);
    assert_eq!(worst(std::iter::empty()), Some(0.0));
}
