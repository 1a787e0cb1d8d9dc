//! When plans are made, and when the planner wants to be woken.

use super::*;

const LEVEL: [(&str, &str, u64); 2] = [("a1", "a", 100), ("b1", "b", 100)];

/// Two level zones, warm, the first updates forgotten; time is 40.
fn level() -> Bench {
    let mut bench = Bench::new();
    bench.steady(&LEVEL, 0, 40);
    bench.causes();
    bench
}

#[test]
fn the_first_interval_is_marked_and_its_end_is_told() {
    let mut bench = Bench::new();
    bench.report("a1", "a", 100, 0);
    bench.report("a2", "a", 100, 5);
    bench.report("b1", "b", 100, 9);
    bench.run(9);
    assert!(bench.plan(None).unwrap().warming_up);
    let warm = [UpdateCause::FirstData, UpdateCause::ZonesChanged];
    assert_eq!(
        bench.causes(),
        warm,
        "a sum that grows moves no fraction while a is alone"
    );
    assert_eq!(bench.planner.poll_timeout(), Some(at(10)));
    bench.run(10);
    assert_eq!(bench.causes(), [UpdateCause::WarmedUp]);
    assert!(!bench.plan(None).unwrap().warming_up);
    // The raw sum of the first round, not a smoothed climb from the first proxy's rate.
    assert_eq!(bench.rate("a"), Some(200.0));
}

#[test]
fn the_first_interval_is_that_of_the_slowest() {
    let mut bench = Bench::new();
    bench.report("a1", "a", 100, 0);
    let slow = stats(ORDERS, 3000, Duration::from_secs(30), "b");
    bench.report_stats(&node("b1", "b"), &slow, at(9));
    bench.run(29);
    assert!(bench.plan(None).unwrap().warming_up);
    bench.run(30);
    assert!(!bench.plan(None).unwrap().warming_up);
    // Too late to prolong it: the round is over.
    let slower = stats(ORDERS, 6000, Duration::from_secs(60), "c");
    bench.report_stats(&node("c1", "c"), &slower, at(31));
    assert!(!bench.plan(None).unwrap().warming_up);
}

#[test]
fn a_step_is_followed_with_the_time_constant() {
    let mut bench = level();
    bench.report("a1", "a", 300, 40);
    assert_eq!(
        bench.fractions(None),
        rows(&[("a", 5000), ("b", 5000)]),
        "not at once"
    );
    bench.report("b1", "b", 100, 41);
    for now in 41..=100_u32 {
        bench.run(u64::from(now));
        if now % 10 == 0 {
            bench.report("a1", "a", 300, u64::from(now));
            bench.report("b1", "b", 100, u64::from(now));
        }
        let followed = 300.0 - 200.0 * (f64::from(now - 40) / -20.0).exp();
        let expected = 10_000.0 * followed / (followed + 100.0);
        let told = f64::from(u32::try_from(bench.fractions(None)[0].1).unwrap());
        // What was told is never a material change, and a second, behind.
        assert!(
            (told - expected).abs() < 50.0 + 1.0,
            "{now}: {told} for {expected}"
        );
    }
    let moved = |cause: &&UpdateCause| **cause == UpdateCause::FractionsMoved;
    let moves = bench.causes().iter().filter(moved).count();
    assert!((10..60).contains(&moves), "{moves}");
}

#[test]
fn ticks_follow_a_step_without_further_reports_and_then_stop() {
    let mut bench = level();
    bench.report("a1", "a", 110, 40);
    // Worth 238 bp in the end. 20 s · ln(238 / 188) = 4.7 s until the first 50 are there.
    assert_eq!(bench.planner.poll_timeout(), Some(at(41)));
    bench.run(44);
    assert_eq!(bench.causes(), []);
    bench.run(45);
    assert_eq!(bench.causes(), [UpdateCause::FractionsMoved]);
    assert_eq!(bench.fractions(None)[0].1, 5055);
    bench.steady(&[("a1", "a", 110), LEVEL[1]], 50, 200);
    assert_eq!(bench.fractions(None)[0].1, 5238);
    let (last, _) = bench.updates.last().unwrap();
    let heartbeat = last.saturating_add(Duration::from_secs(20));
    assert_eq!(
        bench.planner.poll_timeout(),
        Some(heartbeat),
        "no ticks any more"
    );
}

#[test]
fn what_will_never_be_worth_an_update_needs_no_ticks() {
    let mut bench = level();
    bench.report("a1", "a", 101, 40);
    // 25 bp in the end: only the heartbeat of the plan of time 31 and the deadline of b1 are left.
    let next = bench.planner.poll_timeout().unwrap();
    assert!(next > at(41), "{next:?}");
    bench.report("b1", "b", 100, 41);
    bench.run(60);
    assert!(
        bench
            .causes()
            .iter()
            .all(|cause| *cause == UpdateCause::Heartbeat)
    );
}

#[test]
fn nothing_new_is_said_only_by_heartbeats() {
    let mut bench = Bench::new();
    bench.steady(&LEVEL, 0, 140);
    let heartbeats: Vec<_> = bench
        .updates
        .iter()
        .filter(|(_, plan)| plan.heartbeat())
        .map(|(now, _)| now.as_nanos() / 1_000_000_000)
        .collect();
    assert_eq!(
        heartbeats,
        [30, 50, 70, 90, 110, 130],
        "every 20 s after the last plan"
    );
    let generations: Vec<_> = bench
        .updates
        .iter()
        .map(|(_, plan)| plan.generation)
        .collect();
    assert!(
        generations.is_sorted_by(|one, other| one < other),
        "{generations:?}"
    );
    assert_eq!(
        bench.causes()[..3],
        [
            UpdateCause::FirstData,
            UpdateCause::ZonesChanged,
            UpdateCause::WarmedUp
        ]
    );
}

#[test]
fn a_heartbeat_does_not_make_an_observation_newer() {
    let mut bench = Bench::with(|parts| parts.heartbeat = Some(Duration::from_secs(4)));
    bench.steady(&LEVEL, 0, 40);
    bench.updates.clear();
    // The last report came at 31 s; nobody speaks any more.
    bench.run(58);
    let plans = bench.updates.iter().filter(|(_, plan)| plan.has_data());
    let ages: Vec<_> = plans.map(|(now, plan)| (*now, plan.observed_at)).collect();
    assert!(ages.len() >= 3, "{ages:?}");
    assert!(
        ages.iter().all(|(_, observed)| *observed == at(31)),
        "{ages:?}"
    );
}

#[test]
fn another_heartbeat_takes_effect_at_once() {
    let mut bench = Bench::new();
    bench.steady(&LEVEL, 0, 40);
    bench.updates.clear();
    assert!(bench.planner.set_heartbeat(Duration::ZERO, at(40)).is_err());
    let heartbeat = Duration::from_secs(2);
    bench.planner.set_heartbeat(heartbeat, at(45)).unwrap();
    bench.drain(at(45));
    bench.run(50);
    let told: Vec<_> = bench.updates.iter().map(|(now, _)| *now).collect();
    assert_eq!(told, [at(45), at(47), at(49)]);
}

#[test]
fn a_change_puts_the_heartbeat_off() {
    let mut bench = Bench::with(|parts| parts.heartbeat = Some(Duration::from_secs(7)));
    bench.endpoints(ORDERS, &[("a", 3), ("b", 3)], 0);
    bench.report("a1", "a", 100, 0);
    bench.run(10);
    assert_eq!(
        bench.causes(),
        [
            UpdateCause::FirstData,
            UpdateCause::Heartbeat,
            UpdateCause::WarmedUp
        ]
    );
    bench.endpoints(ORDERS, &[("a", 3), ("b", 3), ("c", 4)], 12);
    bench.run(20);
    assert_eq!(
        bench.causes(),
        [UpdateCause::EndpointsChanged, UpdateCause::Heartbeat]
    );
}

#[test]
fn a_heartbeat_does_not_hide_a_change_that_waits() {
    let mut planner = Planner::new(PlannerConfig::default(), at(0));
    let report = stats(ORDERS, 10, INTERVAL, "a");
    planner.handle_load_report(&node("n1", "a"), &report, at(0));
    for now in [10, 20, 30] {
        planner.handle_load_report(&node("n1", "a"), &report, at(now));
        planner.handle_timeout(at(now));
    }
    let fleet = planner.poll_update().unwrap();
    assert_eq!(fleet.cause, UpdateCause::WarmedUp);
    assert_eq!(fleet.grain.upstream_cluster, None, "the fleet comes first");
    let orders = planner.poll_update().unwrap();
    assert_eq!(orders.grain.upstream_cluster.as_deref(), Some(ORDERS));
    assert_eq!(
        planner.poll_update(),
        None,
        "one plan per grain, the newest"
    );
}

#[test]
fn endpoints_of_the_upstream_cluster_change_its_weights() {
    let mut bench = level();
    let weights = |bench: &Bench| bench.plan(Some(ORDERS)).unwrap().locality_weights.clone();
    assert_eq!(weights(&bench), []);
    bench.endpoints(ORDERS, &[("a", 2), ("b", 6)], 41);
    assert_eq!(bench.causes(), [UpdateCause::EndpointsChanged]);
    let first = weights(&bench);
    assert_eq!(
        first[0].weights,
        [(zone("a"), Some(5000)), (zone("b"), Some(5000))]
    );
    bench.endpoints(ORDERS, &[("a", 2), ("b", 6)], 42);
    assert_eq!(bench.causes(), [], "the same again");
    bench.endpoints(ORDERS, &[("a", 4), ("b", 12)], 43);
    assert_eq!(
        bench.causes(),
        [],
        "twice as many of each: the same weights"
    );
    bench.endpoints("unrelated", &[("a", 1), ("b", 9)], 44);
    assert_eq!(bench.causes(), []);
    bench.planner.handle_endpoints_removed(ORDERS, at(45));
    bench.drain(at(45));
    assert_eq!(bench.causes(), [UpdateCause::EndpointsChanged]);
    assert_eq!(weights(&bench), []);
    bench.planner.handle_endpoints_removed(ORDERS, at(46));
    bench.drain(at(46));
    assert_eq!(bench.causes(), []);
}

#[test]
fn a_change_that_meets_the_heartbeat_is_a_change() {
    let mut bench = level();
    // The heartbeat of 50 is due, and the driver is late with it.
    bench.endpoints(ORDERS, &[("a", 2), ("b", 6)], 55);
    assert_eq!(bench.causes(), [UpdateCause::EndpointsChanged]);
}

#[test]
fn endpoints_of_the_fleet_change_its_weights_and_its_guesses() {
    let mut bench = level();
    let fleet = |bench: &Bench| bench.plan(None).unwrap().clone();
    assert_eq!(fleet(&bench).fleet_weights, None);
    bench.endpoints(FLEET, &[("a", 1), ("b", 1)], 41);
    assert_eq!(fleet(&bench).cause, UpdateCause::EndpointsChanged);
    let weights = fleet(&bench).fleet_weights.clone().unwrap();
    assert_eq!(weights.endpoints[0].weight, 5000);
    // Two proxies appear in c and have not reported yet.
    bench.endpoints(FLEET, &[("a", 1), ("b", 1), ("c", 2)], 42);
    assert_eq!(fleet(&bench).cause, UpdateCause::ZonesChanged);
    assert_eq!(
        bench.fractions(None),
        rows(&[("a", 2500), ("b", 2500), ("c", 5000)])
    );
    assert_eq!(bench.causes().last(), Some(&UpdateCause::ZonesChanged));
    // One of them reports little: measured now.
    bench.report("c1", "c", 1, 43);
    assert_eq!(
        bench.fractions(None),
        rows(&[("a", 4975), ("b", 4975), ("c", 50)])
    );
    // b's proxy vanishes from the assignment but still reports: a phantom speaks for it.
    bench.endpoints(FLEET, &[("a", 1), ("b", 0), ("c", 2)], 44);
    let weights = fleet(&bench).fleet_weights.clone().unwrap();
    assert_eq!(weights.phantom[0].locality, zone("b"));
}

#[test]
fn endpoints_alone_are_no_reason_for_a_plan() {
    let mut bench = Bench::new();
    bench.endpoints(FLEET, &[("a", 1), ("b", 1)], 0);
    bench.endpoints(ORDERS, &[("a", 5), ("b", 5)], 0);
    assert_eq!(bench.planner.poll_timeout(), None);
    assert!(bench.updates.is_empty() && bench.plan(None).is_none());
}

#[test]
fn the_deadline_is_the_earliest_of_all() {
    let mut bench = level();
    // The last plans are the heartbeats of 30; a1 reported last at 30, b1 at 31.
    assert_eq!(bench.planner.poll_timeout(), Some(at(50)), "the heartbeat");
    bench.disconnect("b1", 41);
    bench.run(50);
    assert_eq!(bench.planner.poll_timeout(), Some(at(51)), "b1 leaves");
    bench.run(51);
    assert_eq!(bench.planner.poll_timeout(), Some(at(60)), "a1 leaves");
    bench.run(1000);
    assert_eq!(bench.planner.poll_timeout(), None, "nobody is left");
}

#[test]
fn a_late_driver_gets_the_same() {
    let mut punctual = level();
    let mut late = level();
    for bench in [&mut punctual, &mut late] {
        bench.report("a1", "a", 300, 40);
        bench.report("b1", "b", 100, 41);
    }
    punctual.run(59);
    punctual.planner.handle_timeout(at(59));
    late.planner.handle_timeout(at(59));
    for bench in [&mut punctual, &mut late] {
        bench.report("a1", "a", 300, 60);
        bench
            .planner
            .handle_endpoints(&assignment(FLEET, &[("a", 1), ("b", 1)]), at(60));
        bench.drain(at(60));
    }
    let rates = |bench: &Bench| {
        let zones = &bench.plan(None).unwrap().zones;
        zones
            .iter()
            .map(|zone| zone.rate_per_second)
            .collect::<Vec<_>>()
    };
    for (punctual, late) in rates(&punctual).iter().zip(rates(&late)) {
        assert!((punctual - late).abs() < 1e-9, "{punctual} and {late}");
    }
}

#[test]
fn a_clock_that_steps_back_harms_nobody() {
    let mut bench = Bench::new();
    bench.steady(&LEVEL, 1000, 1040);
    bench.report("a1", "a", 300, 1040);
    bench.report("b1", "b", 100, 1040);
    bench.run(1045);
    bench.causes();
    bench.events.clear();
    let before = bench.fractions(None);
    // 1000 s back: no time has passed, nobody expires, nothing jumps.
    bench.report("b1", "b", 100, 45);
    let deadline = bench.planner.poll_timeout().unwrap();
    assert!((at(45)..=at(65)).contains(&deadline), "{deadline:?}");
    let moved = bench.fractions(None)[0].1.abs_diff(before[0].1);
    assert!(moved < 110, "at most what a second brings: {moved}");
    // Time goes on from there: demand is followed, heartbeats come, silence ends in expiry.
    bench.steady(&[("a1", "a", 300), ("b1", "b", 100)], 50, 200);
    let after = bench.fractions(None)[0].1;
    assert!(after.abs_diff(7500) < 50, "{after}");
    assert!(bench.causes().contains(&UpdateCause::Heartbeat));
    assert!(bench.events.is_empty());
    bench.run(300);
    assert_eq!(bench.events.len(), 2, "both left: {:?}", bench.events);
}

#[test]
fn events_nobody_fetches_do_not_pile_up() {
    let mut planner = Planner::new(PlannerConfig::default(), at(0));
    for now in 0..5000 {
        let bad = stats(ORDERS, 1, Duration::ZERO, "a");
        planner.handle_load_report(&node(&format!("n{now}"), "a"), &bad, at(now));
    }
    let mut left = Vec::new();
    while let Some(event) = planner.poll_event() {
        left.push(event);
    }
    assert_eq!(left.len(), MAX_EVENTS);
    let newest =
        matches!(left.last(), Some(PlannerEvent::ReportIgnored { node, .. }) if &**node == "n4999");
    assert!(newest, "the newest are kept");
}
