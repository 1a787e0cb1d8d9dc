//! Tests of load estimates: windows in, response times and loads out.

use super::*;

/// A window of requests that all took `millis` milliseconds.
fn window(answered: u64, millis: f64) -> Window {
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let log_sum = answered as f64 * (millis * 1e6).log2();
    Window {
        issued: answered,
        waiting: 0,
        answered,
        log_sum,
    }
}

/// Estimate of a locality after windows of one second, each given as (requests, milliseconds).
fn after(windows: &[(u64, f64)]) -> Estimate {
    let mut estimate = Estimate::default();
    for &(answered, millis) in windows {
        estimate.observe(&window(answered, millis), 1.0);
    }
    estimate
}

fn millis(estimate: &Estimate) -> f64 {
    estimate.response_time().unwrap().exp2() / 1e6
}

#[test]
fn a_few_requests_give_no_estimate() {
    assert_eq!(after(&[(99, 400.0)]).response_time(), None);
    let known = after(&[(60, 20.0), (60, 20.0)]);
    assert!((millis(&known) - 20.0).abs() < 0.01, "{known:?}");
    assert_eq!(relative_loads(&[after(&[(99, 400.0)])]), [None]);
}

#[test]
fn load_grows_by_one_with_each_doubling_of_the_response_time() {
    let times = [(500, 40.0), (500, 10.0), (500, 10.5), (20, 1.0)];
    let estimates = times.map(|window| after(&[window; 3]));
    let loads = relative_loads(&estimates);
    let near = |load: Option<f64>, expected: f64| (load.unwrap() - expected).abs() < 0.01;
    assert!(near(loads[0], 3.0) && near(loads[1], 1.0), "{loads:?}");
    assert!(near(loads[2], 1.07), "{loads:?}");
    assert_eq!(loads[3], None, "60 requests");
}

#[test]
fn one_window_of_few_requests_moves_the_mean_by_little() {
    let mut windows = vec![(100, 100.0); 10];
    windows.push((2, 10.0));
    let lucky = after(&windows);
    assert!((99.0..100.0).contains(&millis(&lucky)), "{lucky:?}");
}

#[test]
fn a_mean_of_few_requests_is_old() {
    let often = after(&[(1_000, 100.0); 100]);
    let rarely = after(&[(2, 100.0); 1_000]);
    assert!(often.age() < 12.0, "{often:?}");
    assert!(rarely.age() > 100.0, "{rarely:?}");
    let mut silent = often;
    silent.observe(&Window::default(), 1.0);
    assert_eq!(silent.age(), often.age() + 1.0);
    assert_eq!(silent.response_time(), often.response_time());
}

#[test]
fn hanging_requests_count_before_any_response() {
    let mut estimate = after(&[(100, 20.0); 20]);
    for second in 1..=3 {
        let hung = Window {
            issued: 100,
            waiting: second * 100,
            ..Default::default()
        };
        estimate.observe(&hung, 1.0);
    }
    // 300 requests wait at 100 per second: about three seconds, less what may be noise.
    assert!(
        (1_500.0..3_000.0).contains(&millis(&estimate)),
        "{estimate:?}"
    );
    assert_eq!(estimate.age(), 0.0, "a backlog is current");
    estimate.observe(&window(100, 20.0), 1.0);
    assert!(
        (millis(&estimate) - 20.0).abs() < 0.1,
        "answered again: {estimate:?}"
    );
}

#[test]
fn long_lived_streams_are_not_a_backlog() {
    let with_streams = |streams: u64| Window {
        waiting: streams + 2,
        ..window(100, 20.0)
    };
    let mut estimate = Estimate::default();
    // A thousand streams from the start; then a few more each minute.
    for second in 0..600 {
        estimate.observe(&with_streams(1_000 + second / 20), 1.0);
        if second > 2 {
            assert!(
                (millis(&estimate) - 20.0).abs() < 0.1,
                "{second}: {estimate:?}"
            );
        }
    }
}

#[test]
fn a_small_backlog_is_noise() {
    let mut estimate = after(&[(10, 20.0); 30]);
    for waiting in [0, 3, 1, 6, 2, 0, 5] {
        let busy = Window {
            waiting,
            ..window(10, 20.0)
        };
        estimate.observe(&busy, 1.0);
        assert!(
            (millis(&estimate) - 20.0).abs() < 0.1,
            "{waiting}: {estimate:?}"
        );
    }
}

#[test]
fn responses_after_a_long_silence_soon_outweigh_the_earlier_ones() {
    let slow = after(&[(1_000, 100.0); 20]);
    let resumed = |idle: u32| {
        let mut estimate = slow;
        (0..idle).for_each(|_| estimate.observe(&Window::default(), 1.0));
        assert_eq!(estimate.quiet(), f64::from(idle));
        estimate.observe(&window(100, 10.0), 1.0);
        assert_eq!(estimate.quiet(), 0.0);
        millis(&estimate)
    };
    assert!(resumed(5) > 70.0, "noise: {}", resumed(5));
    assert!(resumed(120) < 35.0, "half of the way: {}", resumed(120));
}
