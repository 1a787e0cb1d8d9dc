//! Tests of demand over time and of arrivals.

use super::*;
use crate::scenario::ScenarioParts;
use crate::testing::three_zones;

const SECOND: u64 = num::SECOND;

fn scenario(more: &str) -> Scenario {
    let given: ScenarioParts = toml::from_str(more).unwrap();
    let mut parts = three_zones();
    parts.event = given.event;
    parts.traffic.wave = given.traffic.wave;
    parts.traffic.arrivals = given.traffic.arrivals;
    Scenario::try_new(parts).unwrap()
}

fn assert_rates(workload: &Workload, seconds: f64, expected: [f64; 3]) {
    let rates = workload.rates(num::from_seconds(seconds));
    for (rate, expected) in rates.iter().zip(expected) {
        assert!((rate - expected).abs() < 0.01, "{rates:?} at {seconds} s");
    }
}

/// Returns the arrivals of a stream that gets all requests of a zone, by second.
fn arrivals(scenario: &Scenario, zone: usize) -> Vec<u32> {
    let workload = Workload::new(scenario);
    let mut stream = Stream::new(scenario, 0, zone, 1.0);
    let mut counts = vec![0; 41];
    let mut last = 0;
    while let Some(at) = workload.next_arrival(&mut stream) {
        assert!(at >= last, "time goes on");
        last = at;
        counts[num::slot(at, SECOND)] += 1;
    }
    counts.truncate(40);
    counts
}

#[test]
fn demand_is_split_by_zone() {
    let workload = Workload::new(&scenario(""));
    assert_rates(&workload, 0.0, [129.6, 43.2, 43.2]);
    assert_rates(&workload, 39.9, [129.6, 43.2, 43.2]);
    assert_eq!(workload.capacity(0), [120.0; 3]);
}

#[test]
fn events_change_demand_in_steps_and_ramps() {
    let workload = Workload::new(&scenario(
        "[[event]]\nat = \"10s\"\n\
         demand = { zone = \"b\", factor = 2.0, over = \"4s\", for = \"10s\" }\n\
         [[event]]\nat = \"30s\"\nshares = { a = 1, b = 1, c = 2 }\n",
    ));
    assert_rates(&workload, 9.9, [129.6, 43.2, 43.2]);
    assert_rates(&workload, 12.0, [129.6, 64.8, 43.2]);
    assert_rates(&workload, 15.0, [129.6, 86.4, 43.2]);
    assert_rates(&workload, 22.0, [129.6, 64.8, 43.2]);
    assert_rates(&workload, 25.0, [129.6, 43.2, 43.2]);
    assert_rates(&workload, 30.0, [54.0, 54.0, 108.0]);
}

#[test]
fn waves_modulate_demand() {
    let workload = Workload::new(&scenario(
        "[[traffic.wave]]\nzone = \"a\"\nperiod = \"20s\"\namplitude = 0.5\n",
    ));
    assert_rates(&workload, 0.0, [129.6, 43.2, 43.2]);
    assert_rates(&workload, 5.0, [194.4, 43.2, 43.2]);
    assert_rates(&workload, 15.0, [64.8, 43.2, 43.2]);
}

#[test]
fn demand_of_a_lost_zone_moves_to_the_others() {
    let workload = Workload::new(&scenario(
        "[[event]]\nat = \"10s\"\nlose_zone = { zone = \"b\", for = \"10s\" }\n",
    ));
    assert_rates(&workload, 10.0, [162.0, 0.0, 54.0]);
    assert_rates(&workload, 20.0, [129.6, 43.2, 43.2]);
    assert_eq!(workload.capacity(10 * SECOND), [120.0, 0.0, 120.0]);
    assert_eq!(workload.capacity(9 * SECOND), [120.0; 3]);
}

#[test]
fn paced_arrivals_match_the_rate_within_one_request() {
    let counts = arrivals(&scenario(""), 0);
    let mut sum = 0;
    for (second, count) in (1_u32..).zip(counts) {
        sum += count;
        let expected = 129.6 * f64::from(second);
        let error = (f64::from(sum) - expected).abs();
        assert!(error <= 1.01, "after {second} s: {sum}, not {expected}");
    }
}

#[test]
fn paced_arrivals_follow_a_step_at_once() {
    let counts = arrivals(
        &scenario("[[event]]\nat = \"10s\"\ndemand = { factor = 0.0, for = \"10s\" }\n"),
        1,
    );
    assert!((42..=44).contains(&counts[9]), "{counts:?}");
    assert!(counts[10..20].iter().sum::<u32>() == 0, "{counts:?}");
    assert!((42..=44).contains(&counts[20]), "{counts:?}");
}

#[test]
fn poisson_arrivals_have_the_expected_mean_and_variance() {
    let counts = arrivals(&scenario("[traffic]\narrivals = \"poisson\"\n"), 0);
    let mean = f64::from(counts.iter().sum::<u32>()) / 40.0;
    assert!((mean - 129.6).abs() < 6.0, "{mean}");
    let variance = counts
        .iter()
        .map(|&c| (f64::from(c) - mean).powi(2))
        .sum::<f64>()
        / 39.0;
    assert!(
        (0.5..2.0).contains(&(variance / mean)),
        "{variance} and {mean}"
    );
}

#[test]
fn a_stream_starts_when_its_proxy_does() {
    let scenario = scenario("");
    let workload = Workload::new(&scenario);
    let mut stream = Stream::new(&scenario, 0, 0, 1.0);
    stream.start(5 * SECOND);
    assert!(workload.next_arrival(&mut stream) >= Some(5 * SECOND));
}
