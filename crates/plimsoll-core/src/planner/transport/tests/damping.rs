//! Hysteresis under noise, and its limits. `vectors/transport.json` has the cases step by step.

use super::super::{Hysteresis, Prices};
use super::problem;
use crate::model::locality::Locality;
use crate::rng::{Rng as _, Xoshiro256};
use crate::time::Instant;

const CAPACITY: [u64; 3] = [100_000; 3];

fn localities() -> [Locality; 3] {
    ["a", "b", "c"].map(Locality::zone_only)
}

/// Sends `mean` requests to zone a for ten minutes, with 5 % of noise in reports every `interval`
/// seconds. Returns how often the set of spilling zones changed, and the lowest and highest
/// percentage of the zone's requests that were sent away, from a minute after each change.
fn noisy(mean: u64, interval: usize, seed: u64) -> (u32, u64, u64) {
    let (mut state, mut rng) = (Hysteresis::default(), Xoshiro256::from_seed(seed));
    let (mut changes, mut lowest, mut highest) = (0, u64::MAX, 0);
    let (mut spilling, mut changed_at) = (Vec::new(), 0);
    for second in (0..600).step_by(interval) {
        let noise = rng.next_u64() % (mean / 10 + 1);
        let demand = [mean - mean / 20 + noise, 30_000, 30_000];
        let now = Instant::from_secs(second);
        let planned = state.handle_report(&localities(), &problem(&demand, &CAPACITY, 0.8), now);
        let damped = problem(&planned, &CAPACITY, 0.8);
        let plan = damped.solve(&Prices::uniform(3)).unwrap();
        let away = 100 - plan.row(0)[0] / 10_000;
        let found: Vec<_> = state.spilling().cloned().collect();
        if found != spilling {
            (changes, changed_at, spilling) = (changes + 1, second, found);
        }
        if second > changed_at + 60 {
            (lowest, highest) = (lowest.min(away), highest.max(away));
        }
    }
    (changes, lowest, highest)
}

#[test]
fn nothing_swings_at_the_target() {
    for interval in [1, 10] {
        for mean in (60_000..110_000).step_by(1000) {
            let (changes, lowest, highest) = noisy(mean, interval, mean);
            // Below the target nothing spills, far above it the zone spills for good.
            let allowed = if (75_000..83_000).contains(&mean) {
                2
            } else {
                1
            };
            assert!(
                changes <= allowed,
                "{mean}, every {interval} s: {changes} changes"
            );
            let swing = highest - lowest;
            assert!(
                swing <= 6,
                "{mean}, every {interval} s: {lowest} to {highest} %"
            );
        }
    }
}

#[test]
fn a_rise_is_followed_within_seconds_and_a_fall_within_minutes() {
    let mut state = Hysteresis::default();
    let mut report = |demand: u64, second: u64| {
        let problem = problem(&[demand, 0, 0], &CAPACITY, 0.8);
        state.handle_report(&localities(), &problem, Instant::from_secs(second))[0]
    };
    assert_eq!(report(70_000, 0), 70_000);
    assert_eq!(report(90_000, 10), 90_000, "the first report counts");
    let risen: Vec<u64> = (2..=4).map(|step| report(120_000, 10 * step)).collect();
    assert!(risen[0] > 105_000 && risen[2] > 118_000, "{risen:?}");
    let fallen: Vec<u64> = (5..=17).map(|step| report(60_000, 10 * step)).collect();
    let falling = fallen[..7].is_sorted_by(|a, b| a > b);
    assert!(fallen[0] > 95_000 && falling, "{fallen:?}");
    // After 60 s below the band the plan fits, and the zone is no longer damped.
    assert_eq!(fallen[7..], [60_000; 6]);
    assert_eq!(report(50_000, 180), 50_000);
}

#[test]
fn zones_that_are_gone_and_level_are_forgotten() {
    let mut state = Hysteresis::default();
    let hot = problem(&[90_000, 85_000, 0], &CAPACITY, 0.8);
    state.handle_report(&localities(), &hot, Instant::ORIGIN);
    assert_eq!(state.spilling().count(), 2);
    let two = problem(&[90_000, 0], &CAPACITY[..2], 0.8);
    state.handle_report(&localities()[..2], &two, Instant::from_secs(1));
    assert_eq!(state.spilling().count(), 2);
    state.handle_report(&localities()[1..], &two, Instant::from_secs(2));
    let spilling: Vec<_> = state.spilling().map(Locality::zone).collect();
    assert_eq!(spilling, ["b"]);
    let level = problem(&[90_000, 85_000, 0], &CAPACITY, 0.0);
    let planned = state.handle_report(&localities(), &level, Instant::from_secs(3));
    assert_eq!(
        (planned, state.spilling().count()),
        (vec![90_000, 85_000, 0], 0)
    );
}

#[test]
fn a_zone_without_hosts_spills_at_once_and_time_does_not_go_back() {
    let mut state = Hysteresis::default();
    let none = problem(&[500, 0, 0], &[0, 1000, 1000], 0.8);
    let planned = state.handle_report(&localities(), &none, Instant::from_secs(9));
    assert_eq!(planned, [500, 0, 0]);
    let planned = state.handle_report(&localities(), &none, Instant::from_secs(3));
    assert_eq!(planned, [500, 0, 0]);
}

#[test]
fn another_replica_goes_on_from_the_same_history_whatever_its_clock_says() {
    let demand = |step: u64| match step {
        0..=3 => 110_000,
        4..=9 => 78_000,
        _ => 60_000,
    };
    let report = |state: &mut Hysteresis, step: u64, second: u64| {
        let problem = problem(&[demand(step), 0, 0], &CAPACITY, 0.8);
        state.handle_report(&localities(), &problem, Instant::from_secs(second))
    };
    let (mut first, mut differing) = (Hysteresis::default(), 0);
    for taken_over in 1..20 {
        report(&mut first, taken_over - 1, 10 * (taken_over - 1));
        let (now, later) = (10 * taken_over, 7000 + 10 * taken_over);
        let shared = first.shared(Instant::from_secs(now));
        let mut own = first.clone();
        let mut second = Hysteresis::adopted(&shared, Instant::from_secs(later));
        let mut fresh = Hysteresis::default();
        let mut differs = false;
        for step in taken_over..20 {
            let shift = 10 * (step - taken_over);
            let planned = report(&mut own, step, now + shift);
            assert_eq!(report(&mut second, step, later + shift), planned, "{step}");
            differs |= report(&mut fresh, step, later + shift) != planned;
        }
        differing += u32::from(differs);
    }
    assert!(differing > 5, "without the history plans differ");
}
