//! Tests of the five stages beyond the vectors: worked example, switches, floors.

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
    let value = |smoother: &mut Smoother, zones: &[SlotLoad]| smoother.smooth(0.5, zones);
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
