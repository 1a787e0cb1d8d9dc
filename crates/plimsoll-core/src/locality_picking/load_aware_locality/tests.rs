//! Tests of the five stages beyond the vectors: worked example, switches, floors.

use proptest::prelude::*;

use super::*;
use crate::model::load_aware_locality::{LoadAwareLocalityParts, SpillController};
use crate::rng::splitmix64;

fn settings(change: impl FnOnce(&mut LoadAwareLocalityParts)) -> LoadAwareLocality {
    let mut parts = LoadAwareLocalityParts::default();
    change(&mut parts);
    assert_eq!(parts.spill_controller, SpillController::Headroom);
    LoadAwareLocality::try_new(parts).unwrap()
}

fn slots(zones: &[(&str, u64, Option<f64>)]) -> Vec<SlotLoad> {
    let slot = |&(zone, eligible, utilization): &(&str, u64, Option<f64>)| SlotLoad {
        locality: Locality::zone_only(zone),
        has_hosts: true,
        eligible,
        utilization,
    };
    zones.iter().map(slot).collect()
}

fn shares(weights: &LocalityWeights) -> Vec<String> {
    let total: f64 = weights.weights.iter().sum();
    weights
        .weights
        .iter()
        .map(|weight| format!("{:.2}", weight / total))
        .collect()
}

#[test]
fn worked_example_of_the_seed() {
    let zones = slots(&[
        ("a", 10, Some(0.7)),
        ("b", 10, Some(0.3)),
        ("c", 10, Some(0.4)),
    ]);
    let weights = Smoother::default().tick(&settings(|_| ()), &zones, true);
    let rounded: Vec<_> = weights
        .weights
        .iter()
        .map(|weight| format!("{weight:.1}"))
        .collect();
    assert_eq!(rounded, ["3.0", "7.0", "6.0"]);
    assert!(weights.spill_active && !weights.local_preferred && !weights.probe_active);
    let even = slots(&[
        ("a", 10, Some(0.45)),
        ("b", 10, Some(0.45)),
        ("c", 10, Some(0.45)),
    ]);
    let weights = Smoother::default().tick(&settings(|_| ()), &even, true);
    assert_eq!(weights.weights, [0.97, 0.015, 0.015]);
    assert!(weights.local_preferred && weights.probe_active && !weights.all_local);
}

#[test]
fn cold_start_is_local_or_by_host_count() {
    let zones = slots(&[("a", 1, None), ("b", 3, None)]);
    let weights = Smoother::default().tick(&settings(|_| ()), &zones, true);
    assert_eq!(shares(&weights), ["0.97", "0.03"]);
    let by_count = settings(|parts| parts.cold_start = ColdStart::HostCount);
    let weights = Smoother::default().tick(&by_count, &zones, true);
    assert_eq!(shares(&weights), ["0.25", "0.75"]);
    assert!(!weights.all_overloaded);
    let reported = slots(&[("a", 1, Some(0.1)), ("b", 3, None)]);
    let weights = Smoother::default().tick(&by_count, &reported, true);
    assert_eq!(
        shares(&weights),
        ["0.97", "0.03"],
        "the first report ends the cold start"
    );
}

#[test]
fn the_remote_mean_may_exclude_zones_without_reports() {
    let zones = slots(&[("a", 1, Some(0.25)), ("b", 1, Some(0.3)), ("c", 1, None)]);
    let all = Smoother::default().tick(&settings(|_| ()), &zones, true);
    assert!(all.local_preferred, "0.25 is at most 0.15 + 0.1");
    let hot = slots(&[("a", 1, Some(0.3)), ("b", 1, Some(0.3)), ("c", 1, None)]);
    assert!(
        Smoother::default()
            .tick(&settings(|_| ()), &hot, true)
            .spill_active
    );
    let reporting = settings(|parts| parts.remote_mean = RemoteMean::ReportingOnly);
    assert!(
        Smoother::default()
            .tick(&reporting, &hot, true)
            .local_preferred
    );
    let silent = slots(&[("a", 1, Some(0.05)), ("b", 1, None), ("c", 1, None)]);
    assert!(
        Smoother::default()
            .tick(&reporting, &silent, true)
            .local_preferred
    );
}

#[test]
fn the_local_probe_prevents_a_lock_out() {
    let hot = slots(&[
        ("a", 4, Some(1.0)),
        ("b", 4, Some(0.3)),
        ("c", 4, Some(0.4)),
    ]);
    let locked = Smoother::default().tick(&settings(|_| ()), &hot, true);
    assert_eq!(
        locked.weights[0], 0.0,
        "the rule of the seed gives the local locality nothing"
    );
    let cure = settings(|parts| parts.local_probe_fraction = Some(0.05));
    let cured = Smoother::default().tick(&cure, &hot, true);
    assert_eq!(shares(&cured)[0], "0.05");
    let total: f64 = cured.weights.iter().sum();
    let before: f64 = locked.weights.iter().sum();
    assert!((total - before).abs() < 1e-9, "the total is conserved");
}

#[test]
fn smoothing_blends_keeps_and_forgets() {
    let mut smoother = Smoother::default();
    let value = |smoother: &mut Smoother, zones: &[SlotLoad]| {
        smoother.smooth(0.5, Duration::from_secs(1), zones)
    };
    assert_eq!(
        value(&mut smoother, &slots(&[("a", 1, Some(0.8))]))[0].utilization,
        0.8
    );
    assert_eq!(
        value(&mut smoother, &slots(&[("a", 1, Some(0.4))]))[0].utilization,
        0.6000000000000001
    );
    let carried = value(&mut smoother, &slots(&[("a", 1, None)]))[0];
    assert!(carried.stale && carried.utilization == 0.6000000000000001);
    value(&mut smoother, &slots(&[("b", 1, None)]));
    let fresh = value(&mut smoother, &slots(&[("a", 1, None)]))[0];
    assert!(
        fresh.cold && !fresh.stale,
        "a locality that was removed starts over"
    );
}

#[test]
fn overload_falls_back_to_host_counts() {
    let zones = slots(&[("a", 3, Some(1.0)), ("b", 1, Some(1.0))]);
    let weights = Smoother::default().tick(&settings(|_| ()), &zones, true);
    assert!(weights.all_overloaded);
    assert_eq!(weights.weights, [3.0, 1.0]);
    let none = Smoother::default().tick(&settings(|_| ()), &slots(&[("a", 0, None)]), true);
    assert!(!none.all_overloaded);
}

#[test]
fn slots_are_chosen_by_prefix_sums() {
    assert_eq!(choose_locality(splitmix64(3), &[1.0, 2.0]), 0);
    assert_eq!(choose_locality(splitmix64(6), &[1.0, 2.0]), 1);
    assert_eq!(
        choose_locality(u64::MAX, &[1.0, 2.0]),
        1,
        "clamped to the last"
    );
    assert_eq!(choose_locality(7, &[]), 0);
    assert_eq!(choose_locality(u64::MAX, &[0.0, 0.0]), 0);
    assert_eq!(usable_slot(1, 2, |slot| slot == 0), Some(0));
    assert_eq!(usable_slot(0, 0, |_| true), None);
    assert_eq!(usable_slot(0, 3, |_| false), None);
}

/// Runs one tick with `first` and then some with `second`; `None` in the second is a silent zone.
fn after_silence(first: [f64; 3], second: [Option<f64>; 3]) -> LocalityWeights {
    after_silent(COMPARED, first, second)
}

fn after_silent(silent: Duration, first: [f64; 3], second: [Option<f64>; 3]) -> LocalityWeights {
    let mut smoother = Smoother::default();
    let hosts = settings(|_| ());
    let zones = |reports: [Option<f64>; 3]| {
        slots(&[
            ("a", 4, reports[0]),
            ("b", 4, reports[1]),
            ("c", 4, reports[2]),
        ])
    };
    smoother.tick(&hosts, &zones(first.map(Some)), true);
    let seconds = 0..=silent.as_secs();
    let ticks = seconds.map(|_| smoother.tick(&hosts, &zones(second), true));
    ticks.last().unwrap()
}

#[test]
fn a_gap_in_the_reports_moves_nothing_as_in_envoy() {
    let mut smoother = Smoother::default();
    let settings = settings(|_| ());
    let zones = |own| slots(&[("a", 4, own), ("b", 4, Some(0.3)), ("c", 4, Some(0.3))]);
    let mut is_local = |own| smoother.tick(&settings, &zones(own), true).local_preferred;
    assert!(is_local(Some(0.3)));
    assert!((0..COMPARED.as_secs()).all(|_| is_local(None)));
    assert!(!is_local(None));
}

#[test]
fn silence_is_measured_in_seconds_and_not_in_ticks() {
    for (millis, ticks) in [(100, 301), (1_000, 31), (10_000, 4)] {
        let period = Duration::from_millis(millis);
        let zones = |own| slots(&[("a", 4, own), ("b", 4, Some(0.3))]);
        let mut smoother = Smoother::default();
        smoother.smooth(0.5, period, &zones(Some(0.3)));
        let mut is_compared = || !smoother.smooth(0.5, period, &zones(None))[0].is_forgotten();
        let compared = std::iter::repeat_with(&mut is_compared).take_while(|is| *is);
        assert_eq!(compared.count() + 1, ticks, "every {millis} ms");
    }
}

#[test]
fn host_counts_decide_while_the_local_zone_is_silent() {
    for own in [0.1, 0.5, 1.0] {
        let silent = after_silence([own, 0.3, 0.3], [None; 3]);
        assert_eq!(
            shares(&silent),
            ["0.33", "0.33", "0.33"],
            "last report {own}"
        );
        assert!(!silent.local_preferred && !silent.spill_active && !silent.all_local);
        assert_eq!(silent.stale_localities, 3);
        // Hosts of the silent zone count whole, those of the others by their headroom.
        let partly = after_silence([own, 0.5, 0.5], [None, Some(0.5), Some(0.5)]);
        assert_eq!(
            shares(&partly),
            ["0.50", "0.25", "0.25"],
            "last report {own}"
        );
    }
}

#[test]
fn a_silent_remote_zone_does_not_count_in_the_mean() {
    // The mean of b alone is 0.3: a at 0.7 spills, whether c was hot or idle at its last report.
    for last in [0.01, 1.0] {
        let partly = after_silence([0.7, 0.3, last], [Some(0.7), Some(0.3), None]);
        assert!(partly.spill_active, "{partly:?}");
        let partly = after_silence([0.35, 0.3, last], [Some(0.35), Some(0.3), None]);
        assert!(partly.local_preferred, "{partly:?}");
    }
    // Without another report, the last one is used, as in Envoy.
    let silent = after_silence([0.5, 0.6, 0.6], [Some(0.5), None, None]);
    assert!(silent.local_preferred, "{silent:?}");
}

/// Zones with as much headroom as the mean, of which some are silent: each is worth its hosts.
#[test]
fn a_zone_that_stays_silent_neither_attracts_nor_repels() {
    for last in [0.01, 0.6, 1.0] {
        for (reports, expected) in [
            // Nothing is known of the local zone: hosts decide.
            ([None, Some(0.6), Some(0.6)], ["0.33", "0.33", "0.33"]),
            // The local zone spills into both others, into the silent one by the mean of 0.6.
            ([Some(0.8), Some(0.4), None], ["0.17", "0.50", "0.33"]),
            ([Some(0.8), None, Some(0.4)], ["0.17", "0.33", "0.50"]),
            // Nothing to compare with.
            ([Some(0.8), None, None], ["0.33", "0.33", "0.33"]),
            ([Some(0.2), None, None], ["0.33", "0.33", "0.33"]),
            ([None, Some(0.6), None], ["0.33", "0.33", "0.33"]),
            ([None, None, Some(1.0)], ["0.33", "0.33", "0.33"]),
        ] {
            let past = reports.map(|report| report.unwrap_or(last));
            let weights = after_silent(WHOLE, past, reports);
            assert_eq!(
                shares(&weights),
                expected,
                "{reports:?}, last report {last}"
            );
        }
    }
    // A zone that does not need to spill stays local, whatever the silent one did.
    let local = after_silent(WHOLE, [0.3, 0.3, 1.0], [Some(0.3), Some(0.3), None]);
    assert!(local.local_preferred, "{local:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Frozen inputs reach a fixed point that does not depend on the state at the freeze: as soon
    /// as the local zone, or one of two remote ones, is silent, its past is forgotten.
    #[test]
    fn weights_do_not_depend_on_expired_reports(
        one in prop::collection::vec(0.01_f64..1.0, 3),
        other in prop::collection::vec(0.01_f64..1.0, 3),
        frozen in prop::collection::vec(0.01_f64..1.0, 3),
        silent in prop::sample::select(vec![
            vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2],
        ]),
    ) {
        let weights = |past: &[f64]| {
            let mut smoother = Smoother::default();
            let settings = settings(|_| ());
            let zones = |report: &dyn Fn(usize) -> Option<f64>| {
                slots(&[("a", 4, report(0)), ("b", 5, report(1)), ("c", 2, report(2))])
            };
            smoother.tick(&settings, &zones(&|zone| Some(past[zone])), true);
            let report = |zone: usize| (!silent.contains(&zone)).then(|| frozen[zone]);
            let ticks = (0..400).map(|_| smoother.tick(&settings, &zones(&report), true));
            ticks.last().map(|outcome| outcome.weights).unwrap_or_default()
        };
        for (one, other) in weights(&one).into_iter().zip(weights(&other)) {
            prop_assert!((one - other).abs() < 1e-9, "{one} and {other}");
        }
    }
}
