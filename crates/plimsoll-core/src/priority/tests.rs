//! Tests of priority load beyond the vectors: what is kept, capped and chosen.

use super::*;
use crate::counts::ClassCounts;

const BY_COUNT: PriorityHealthPolicy = PriorityHealthPolicy {
    overprovisioning_factor: 140,
    weighted_priority_health: false,
};

fn set(all: u64, healthy: u64, degraded: u64) -> HostSetCounts {
    HostSetCounts {
        flat: ClassCounts {
            all,
            healthy,
            degraded,
            excluded: 0,
        },
        ..Default::default()
    }
}

fn loads(sets: &[HostSetCounts], threshold: u32) -> PriorityLoads {
    let mut loads = PriorityLoads::default();
    update(&mut loads, sets, threshold);
    loads
}

fn update(loads: &mut PriorityLoads, sets: &[HostSetCounts], threshold: u32) {
    for (priority, set) in sets.iter().enumerate() {
        loads.set_health(priority, set, BY_COUNT);
    }
    loads.recalculate(sets.iter(), threshold);
}

#[test]
fn the_rounding_remainder_goes_to_one_priority() {
    // The documentation of Envoy prints 36/36/28 for this; its code gives 37/35/28.
    let loads = loads(&[set(100, 25, 0), set(100, 25, 0), set(100, 20, 0)], 0);
    assert_eq!(loads.healthy_load(), [37, 35, 28]);
}

#[test]
fn loads_are_kept_if_nothing_is_available() {
    let mut state = loads(&[set(10, 2, 0), set(10, 10, 0)], 0);
    let before = state.healthy_load().to_vec();
    assert_eq!(before, [28, 72]);
    update(&mut state, &[set(10, 0, 0), set(10, 0, 0)], 0);
    assert_eq!(
        state.healthy_load(),
        [100, 72],
        "P0 is set to 100, the rest keeps its old value"
    );
    assert_eq!(
        state.choose(99),
        (0, Availability::Healthy),
        "choosing stops at P0"
    );
}

#[test]
fn excluded_hosts_do_not_count_against_health() {
    let mut excluded = set(10, 5, 0);
    excluded.flat.excluded = 5;
    assert_eq!(loads(&[excluded, set(10, 10, 0)], 50).health(), [100, 100]);
}

#[test]
fn weights_count_only_if_configured() {
    let mut heavy = set(4, 2, 0);
    heavy.weights = ClassCounts {
        all: 10,
        healthy: 6,
        degraded: 0,
        excluded: 0,
    };
    let mut state = PriorityLoads::default();
    let by_weight = PriorityHealthPolicy {
        overprovisioning_factor: 100,
        weighted_priority_health: true,
    };
    state.set_health(0, &heavy, by_weight);
    assert_eq!(state.health(), [60]);
    let by_count = PriorityHealthPolicy {
        weighted_priority_health: false,
        ..by_weight
    };
    state.set_health(0, &heavy, by_count);
    assert_eq!(state.health(), [50]);
}

#[test]
fn huge_counts_do_not_wrap() {
    let state = loads(&[set(u64::MAX / 2, u64::MAX / 2, 0)], 50);
    assert_eq!(state.health(), [100]);
    assert_eq!(state.healthy_load(), [100]);
}

#[test]
fn degraded_follows_healthy_in_the_same_walk() {
    let (healthy, degraded) = ([0, 0, 28], [28, 44, 0]);
    let chosen: Vec<_> = [0, 27, 28, 55, 56, 99]
        .map(|h| choose_priority(h, &healthy, &degraded))
        .to_vec();
    use Availability::{Degraded, Healthy};
    let expected = [
        (2, Healthy),
        (2, Healthy),
        (0, Degraded),
        (0, Degraded),
        (1, Degraded),
        (1, Degraded),
    ];
    assert_eq!(chosen, expected);
}
