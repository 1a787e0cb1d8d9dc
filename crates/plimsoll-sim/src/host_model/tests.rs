//! Tests of the queuing model, one request at a time.

use super::*;
use crate::testing::three_zones;

const SECOND: u64 = num::SECOND;

fn hosts(change: impl FnOnce(&mut crate::scenario::ScenarioParts)) -> Hosts {
    let mut parts = three_zones();
    change(&mut parts);
    Hosts::new(&Scenario::try_new(parts).unwrap())
}

fn constant(parts: &mut crate::scenario::ScenarioParts) {
    parts.host.service = Some("constant".into());
}

#[test]
fn hosts_are_in_zone_order() {
    let hosts = hosts(|_| {});
    assert_eq!(hosts.len(), 12);
    assert_eq!((hosts.zone(3), hosts.zone(4), hosts.zone(11)), (0, 1, 2));
}

#[test]
fn requests_wait_when_all_servers_are_busy() {
    // Capacity 30 with three servers: a request takes 100 ms.
    let mut hosts = hosts(constant);
    let done: Vec<u64> = (0..4)
        .map(|_| hosts.serve(0, None, SECOND).at - SECOND)
        .collect();
    assert_eq!(done, [100_000_000, 100_000_000, 100_000_000, 200_000_000]);
    assert_eq!(
        hosts.serve(1, None, SECOND).at - SECOND,
        100_000_000,
        "another host"
    );
}

#[test]
fn a_full_queue_refuses() {
    let mut hosts = hosts(|parts| {
        constant(parts);
        parts.host.queue = Some(6.0);
    });
    let outcomes: Vec<Outcome> = (0..12)
        .map(|_| hosts.serve(0, None, SECOND).outcome)
        .collect();
    let refused = outcomes
        .iter()
        .filter(|&&outcome| outcome == Outcome::Error)
        .count();
    // Three in service, six waiting: the tenth request would exceed the queue.
    assert_eq!(refused, 3, "{outcomes:?}");
    assert_eq!(
        hosts.serve(0, None, SECOND + SECOND / 2).outcome,
        Outcome::Success
    );
}

#[test]
fn overload_is_served_at_capacity_and_the_rest_refused() {
    let mut hosts = hosts(|_| {});
    // 60 requests/s for 100 s at a host that can serve 30.
    let served = (0..6_000_u64)
        .filter(|request| hosts.serve(0, None, request * SECOND / 60).outcome == Outcome::Success)
        .count();
    assert!((2_900..=3_150).contains(&served), "{served}");
}

#[test]
fn utilization_is_rate_by_capacity_even_above_one() {
    let mut hosts = hosts(|_| {});
    for request in 0..450_u64 {
        hosts.serve(0, None, request * SECOND / 45);
    }
    let utilization = hosts.utilization(0, 10 * SECOND);
    assert!((utilization - 1.5).abs() < 0.05, "{utilization}");
    assert_eq!(hosts.utilization(1, 10 * SECOND), 0.0);
}

#[test]
fn dead_hosts_do_not_respond_and_recover_with_an_empty_queue() {
    let mut hosts = hosts(constant);
    (0..10).for_each(|_| {
        hosts.serve(0, None, 0);
    });
    let mut parts = three_zones();
    let events = "[[event]]\nat = \"0s\"\nlose_hosts = { zone = \"a\", for = \"1s\" }\n";
    let given: crate::scenario::ScenarioParts = toml::from_str(events).unwrap();
    parts.event = given.event;
    let scenario = Scenario::try_new(parts).unwrap();
    hosts.apply(&Faults::at(&scenario, 0));
    assert!(hosts.is_dead(0) && !hosts.is_dead(4));
    assert_eq!(hosts.serve(0, None, 5).outcome, Outcome::Dead);
    hosts.apply(&Faults::at(&scenario, SECOND));
    let served = hosts.serve(0, None, 10);
    assert_eq!((served.at, served.outcome), (100_000_010, Outcome::Success));
}

#[test]
fn a_host_with_half_its_capacity_takes_twice_as_long() {
    let mut hosts = hosts(constant);
    let mut parts = three_zones();
    let events = "[[event]]\nat = \"0s\"\ncapacity = { zone = \"a\", factor = 0.5 }\n";
    let given: crate::scenario::ScenarioParts = toml::from_str(events).unwrap();
    parts.event = given.event;
    hosts.apply(&Faults::at(&Scenario::try_new(parts).unwrap(), 0));
    assert_eq!(hosts.serve(0, None, 0).at, 200_000_000);
    assert_eq!(hosts.serve(4, None, 0).at, 100_000_000);
}

#[test]
fn instant_hosts_respond_at_once_at_any_load() {
    let mut hosts = hosts(|parts| parts.host.service = Some("instant".into()));
    for _ in 0..1_000 {
        let served = hosts.serve(0, None, 7);
        assert_eq!((served.at, served.outcome), (7, Outcome::Success));
    }
}

#[test]
fn sampled_hosts_of_a_group_share_their_meter() {
    let mut hosts = hosts(|parts| parts.scale.requests_per_sample = Some(10));
    // 6 samples/s of 10 requests each over four hosts of 30 requests/s: half their capacity.
    for sample in 0..60_u64 {
        hosts.serve(num::slot(sample % 4, 1), None, sample * SECOND / 6);
    }
    let utilization = hosts.utilization(3, 10 * SECOND);
    assert!((utilization - 0.5).abs() < 0.05, "{utilization}");
    assert_eq!(hosts.utilization(4, 10 * SECOND), 0.0, "another zone");
}
