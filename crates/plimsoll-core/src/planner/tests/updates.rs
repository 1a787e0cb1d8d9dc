//! Tests of when plans are published, and of the planner's timers.

use super::*;

#[test]
fn plans_are_marked_during_warm_up_and_its_end_is_published() {
    let mut harness = Harness::new();
    harness.report("a1", "a", 100, 0);
    harness.report("a2", "a", 100, 5);
    harness.report("b1", "b", 100, 9);
    harness.run(9);
    assert!(harness.plan(None).unwrap().warming_up);
    let warm = [UpdateCause::FirstData, UpdateCause::ZonesChanged];
    assert_eq!(
        harness.causes(),
        warm,
        "a growing sum moves no fraction while a is the only zone"
    );
    assert_eq!(harness.planner.poll_timeout(), Some(at(10)));
    harness.run(10);
    assert_eq!(harness.causes(), [UpdateCause::WarmedUp]);
    assert!(!harness.plan(None).unwrap().warming_up);
    // The rate is the unsmoothed sum of the first interval, not smoothed from the first proxy's.
    assert_eq!(harness.rate("a"), Some(200.0));
}

#[test]
fn the_slowest_reporter_determines_the_warm_up() {
    let mut harness = Harness::new();
    harness.report("a1", "a", 100, 0);
    let slow = stats(ORDERS, 3000, Duration::from_secs(30), "b");
    harness.report_stats(&node("b1", "b"), &slow, at(9));
    harness.run(29);
    assert!(harness.plan(None).unwrap().warming_up);
    harness.run(30);
    assert!(!harness.plan(None).unwrap().warming_up);
    // The first report of c1 comes too late to extend the warm-up.
    let slower = stats(ORDERS, 6000, Duration::from_secs(60), "c");
    harness.report_stats(&node("c1", "c"), &slower, at(31));
    assert!(!harness.plan(None).unwrap().warming_up);
}

#[test]
fn a_step_is_followed_with_the_time_constant() {
    let mut harness = level();
    harness.report("a1", "a", 300, 40);
    assert_eq!(
        harness.fractions(None),
        rows(&[("a", 5000), ("b", 5000)]),
        "not at once"
    );
    harness.report("b1", "b", 100, 41);
    for now in 41..=100_u32 {
        harness.run(u64::from(now));
        if now % 10 == 0 {
            harness.report("a1", "a", 300, u64::from(now));
            harness.report("b1", "b", 100, u64::from(now));
        }
        let followed = 300.0 - 200.0 * (f64::from(now - 40) / -20.0).exp();
        let expected = 10_000.0 * followed / (followed + 100.0);
        let published = f64::from(u32::try_from(harness.fractions(None)[0].1).unwrap());
        // The published fraction lags by less than a material change plus one second.
        assert!(
            (published - expected).abs() < 50.0 + 1.0,
            "{now}: {published} for {expected}"
        );
    }
    let moved = |cause: &&UpdateCause| **cause == UpdateCause::FractionsMoved;
    let moves = harness.causes().iter().filter(moved).count();
    assert!((10..60).contains(&moves), "{moves}");
}

#[test]
fn ticks_follow_a_step_without_further_reports_and_then_stop() {
    let mut harness = level();
    harness.report("a1", "a", 110, 40);
    // The move is 238 bp in the end. The first 50 are reached after 20 s · ln(238 / 188) = 4.7 s.
    assert_eq!(harness.planner.poll_timeout(), Some(at(41)));
    harness.run(44);
    assert_eq!(harness.causes(), []);
    harness.run(45);
    assert_eq!(harness.causes(), [UpdateCause::FractionsMoved]);
    assert_eq!(harness.fractions(None)[0].1, 5055);
    harness.steady(&[("a1", "a", 110), LEVEL[1]], 50, 200);
    assert_eq!(harness.fractions(None)[0].1, 5238);
    let (last, _) = harness.updates.last().unwrap();
    let heartbeat = last.saturating_add(Duration::from_secs(20));
    assert_eq!(
        harness.planner.poll_timeout(),
        Some(heartbeat),
        "ticks have stopped"
    );
}

#[test]
fn a_change_below_the_threshold_needs_no_ticks() {
    let mut harness = level();
    harness.report("a1", "a", 101, 40);
    // The move is 25 bp in the end: only the heartbeat and the deadline of b1 are left.
    let next = harness.planner.poll_timeout().unwrap();
    assert!(next > at(41), "{next:?}");
    harness.report("b1", "b", 100, 41);
    harness.run(60);
    assert!(
        harness
            .causes()
            .iter()
            .all(|cause| *cause == UpdateCause::Heartbeat)
    );
}

#[test]
fn without_changes_only_heartbeats_are_sent() {
    let mut harness = Harness::new();
    harness.steady(&LEVEL, 0, 140);
    let heartbeats: Vec<_> = harness
        .updates
        .iter()
        .filter(|(_, plan)| plan.is_heartbeat())
        .map(|(now, _)| now.as_nanos() / 1_000_000_000)
        .collect();
    assert_eq!(
        heartbeats,
        [30, 50, 70, 90, 110, 130],
        "every 20 s after the last plan"
    );
    let generations: Vec<_> = harness
        .updates
        .iter()
        .map(|(_, plan)| plan.generation)
        .collect();
    assert!(
        generations.is_sorted_by(|one, other| one < other),
        "{generations:?}"
    );
    assert_eq!(
        harness.causes()[..3],
        [
            UpdateCause::FirstData,
            UpdateCause::ZonesChanged,
            UpdateCause::WarmedUp
        ]
    );
}

#[test]
fn a_heartbeat_does_not_make_an_observation_newer() {
    let mut harness = Harness::with(|parts| parts.heartbeat = Some(Duration::from_secs(4)));
    harness.steady(&LEVEL, 0, 40);
    harness.updates.clear();
    // The last report came at 31 s.
    harness.run(58);
    let plans = harness.updates.iter().filter(|(_, plan)| plan.has_data());
    let ages: Vec<_> = plans.map(|(now, plan)| (*now, plan.observed_at)).collect();
    assert!(ages.len() >= 3, "{ages:?}");
    assert!(
        ages.iter().all(|(_, observed)| *observed == at(31)),
        "{ages:?}"
    );
}

#[test]
fn a_changed_heartbeat_takes_effect_at_once() {
    let mut harness = Harness::new();
    harness.steady(&LEVEL, 0, 40);
    harness.updates.clear();
    assert!(
        harness
            .planner
            .set_heartbeat(Duration::ZERO, at(40))
            .is_err()
    );
    let heartbeat = Duration::from_secs(2);
    harness.planner.set_heartbeat(heartbeat, at(45)).unwrap();
    harness.drain(at(45));
    harness.run(50);
    let published: Vec<_> = harness.updates.iter().map(|(now, _)| *now).collect();
    assert_eq!(published, [at(45), at(47), at(49)]);
}

/// Demand moves by 25 bp, which is worth no update but a heartbeat.
#[test]
fn confirmations_repeat_the_plan_in_force_until_the_heartbeat() {
    let run = |confirmation: Option<u64>| {
        let mut harness = level();
        let interval = confirmation.map(Duration::from_secs);
        harness.planner.set_confirmation(interval, at(40));
        harness.drain(at(40));
        harness.steady(&[("a1", "a", 101), LEVEL[1]], 40, 120);
        let all = harness.updates.iter();
        let of_orders = all.filter(|(_, plan)| plan.scope.upstream_cluster.is_some());
        let updates = of_orders.map(|(now, plan)| {
            let seconds = now.as_nanos() / 1_000_000_000;
            (seconds, plan.cause, plan.zones[0].fraction.get())
        });
        updates.collect::<Vec<_>>()
    };
    let heartbeats = run(None);
    assert!(heartbeats.len() >= 3, "{heartbeats:?}");
    assert!(
        heartbeats
            .iter()
            .all(|(_, cause, _)| *cause == UpdateCause::Heartbeat)
    );
    let moved: BTreeSet<u64> = heartbeats.iter().map(|(_, _, share)| *share).collect();
    assert!(
        moved.len() > 1,
        "heartbeats carry small moves: {heartbeats:?}"
    );

    let confirmed = run(Some(3));
    let (confirmations, measured): (Vec<_>, Vec<_>) = confirmed
        .iter()
        .copied()
        .partition(|(_, cause, _)| *cause == UpdateCause::Confirmation);
    assert_eq!(measured, heartbeats, "heartbeats stay as they are");
    assert!(confirmations.len() > 15, "{confirmations:?}");
    for pair in confirmed.windows(2) {
        let [(before, _, share), (at, cause, next)] = pair else {
            unreachable!("windows of two");
        };
        assert!(at - before <= 3, "{pair:?}");
        assert!(
            *cause != UpdateCause::Confirmation || share == next,
            "{pair:?}"
        );
    }
}

#[test]
fn an_interval_of_confirmations_is_at_most_the_heartbeat() {
    let mut harness = level();
    for (interval, confirmed) in [
        (Some(Duration::from_secs(60)), Duration::from_secs(20)),
        (Some(Duration::ZERO), Duration::from_millis(100)),
        (Some(Duration::from_secs(5)), Duration::from_secs(5)),
        (None, Duration::from_secs(20)),
    ] {
        harness.planner.set_confirmation(interval, at(40));
        assert_eq!(harness.planner.confirmation(), confirmed);
    }
}

/// A planner that gets the confirmations of another one follows demand as if it had none.
#[test]
fn demand_is_not_smoothed_from_a_confirmed_plan() {
    let mut confirmed = level();
    let mut other = level();
    for harness in [&mut confirmed, &mut other] {
        harness.report("a1", "a", 101, 40);
    }
    let mut shared = confirmed.plan(Some(ORDERS)).unwrap().shared();
    shared.cause = UpdateCause::Confirmation;
    for now in 41..=48 {
        confirmed.planner.adopt(&shared, at(now));
        for harness in [&mut confirmed, &mut other] {
            harness.run(now);
        }
    }
    for harness in [&mut confirmed, &mut other] {
        harness.run(55);
    }
    assert_eq!(
        confirmed.fractions(Some(ORDERS)),
        other.fractions(Some(ORDERS))
    );
    assert_ne!(
        other.fractions(Some(ORDERS)),
        rows(&[("a", 5000), ("b", 5000)])
    );
}

#[test]
fn a_change_postpones_the_heartbeat() {
    let mut harness = Harness::with(|parts| parts.heartbeat = Some(Duration::from_secs(7)));
    harness.report("a1", "a", 100, 0);
    harness.run(10);
    assert_eq!(
        harness.causes(),
        [
            UpdateCause::FirstData,
            UpdateCause::Heartbeat,
            UpdateCause::WarmedUp
        ]
    );
    harness.endpoints(FLEET, &[("a", 1), ("c", 4)], 12);
    harness.run(20);
    assert_eq!(
        harness.causes(),
        [UpdateCause::ZonesChanged, UpdateCause::Heartbeat]
    );
}

#[test]
fn a_heartbeat_does_not_hide_a_pending_change() {
    let mut planner = Planner::new(PlannerConfig::default(), at(0));
    let report = stats(ORDERS, 10, INTERVAL, "a");
    planner.handle_load_report(&node("n1", "a"), &report, at(0));
    for now in [10, 20, 30] {
        planner.handle_load_report(&node("n1", "a"), &report, at(now));
        planner.handle_timeout(at(now));
    }
    let fleet = planner.poll_update().unwrap();
    assert_eq!(fleet.cause, UpdateCause::WarmedUp);
    assert_eq!(fleet.scope.upstream_cluster, None, "the fleet comes first");
    let orders = planner.poll_update().unwrap();
    assert_eq!(orders.scope.upstream_cluster.as_deref(), Some(ORDERS));
    assert_eq!(
        planner.poll_update(),
        None,
        "one plan per scope, the newest"
    );
}

#[test]
fn fleet_endpoints_change_the_estimates() {
    let mut harness = level();
    harness.endpoints(FLEET, &[("a", 1), ("b", 1)], 41);
    assert_eq!(harness.causes(), [], "the zones that report");
    // Two proxies appear in zone c and have not reported yet.
    let three = [("a", 1), ("b", 1), ("c", 2)];
    harness.endpoints(FLEET, &three, 42);
    assert_eq!(harness.causes(), [UpdateCause::ZonesChanged]);
    assert_eq!(
        harness.fractions(None),
        rows(&[("a", 2500), ("b", 2500), ("c", 5000)])
    );
    harness.endpoints(FLEET, &three, 43);
    harness.endpoints("another fleet", &[("d", 9)], 43);
    assert_eq!(harness.causes(), []);
    // One proxy of zone c reports a low rate: the zone is measured now.
    harness.report("c1", "c", 1, 43);
    assert_eq!(
        harness.fractions(None),
        rows(&[("a", 4975), ("b", 4975), ("c", 50)])
    );
}

#[test]
fn a_change_that_coincides_with_the_heartbeat_is_a_change() {
    let mut harness = level();
    // The heartbeat of 50 s is due, and the driver is late.
    harness.endpoints(FLEET, &[("a", 1), ("b", 1), ("c", 2)], 55);
    assert_eq!(harness.causes(), [UpdateCause::ZonesChanged]);
}

#[test]
fn endpoints_without_reports_make_no_plan() {
    let mut harness = Harness::new();
    harness.endpoints(FLEET, &[("a", 1), ("b", 1)], 0);
    assert_eq!(harness.planner.poll_timeout(), None);
    assert!(harness.updates.is_empty() && harness.plan(None).is_none());
}

#[test]
fn poll_timeout_returns_the_earliest_deadline() {
    let mut harness = level();
    // The last plans are the heartbeats of 30 s; a1 reported last at 30 s, b1 at 31 s.
    assert_eq!(
        harness.planner.poll_timeout(),
        Some(at(50)),
        "the heartbeat"
    );
    harness.disconnect("b1", 41);
    harness.run(50);
    assert_eq!(harness.planner.poll_timeout(), Some(at(51)), "b1 leaves");
    harness.run(51);
    assert_eq!(harness.planner.poll_timeout(), Some(at(60)), "a1 leaves");
    harness.run(1000);
    assert_eq!(harness.planner.poll_timeout(), None, "nobody is left");
}

#[test]
fn a_late_driver_gets_the_same_plans() {
    let mut punctual = level();
    let mut late = level();
    for harness in [&mut punctual, &mut late] {
        harness.report("a1", "a", 300, 40);
        harness.report("b1", "b", 100, 41);
    }
    punctual.run(59);
    punctual.planner.handle_timeout(at(59));
    late.planner.handle_timeout(at(59));
    for harness in [&mut punctual, &mut late] {
        harness.report("a1", "a", 300, 60);
        harness
            .planner
            .handle_endpoints(&assignment(FLEET, &[("a", 1), ("b", 1)]), at(60));
        harness.drain(at(60));
    }
    let rates = |harness: &Harness| {
        let zones = &harness.plan(None).unwrap().zones;
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
fn a_clock_that_steps_back_does_no_harm() {
    let mut harness = Harness::new();
    harness.steady(&LEVEL, 1000, 1040);
    harness.report("a1", "a", 300, 1040);
    harness.report("b1", "b", 100, 1040);
    harness.run(1045);
    harness.causes();
    harness.events.clear();
    let before = harness.fractions(None);
    // The clock steps 1000 s back: no time has passed, no node expires, no fraction jumps.
    harness.report("b1", "b", 100, 45);
    let deadline = harness.planner.poll_timeout().unwrap();
    assert!((at(45)..=at(65)).contains(&deadline), "{deadline:?}");
    let moved = harness.fractions(None)[0].1.abs_diff(before[0].1);
    assert!(moved < 110, "at most what a second brings: {moved}");
    // Time continues from there: demand is smoothed, heartbeats are sent, silent nodes expire.
    harness.steady(&[("a1", "a", 300), ("b1", "b", 100)], 50, 200);
    let after = harness.fractions(None)[0].1;
    assert!(after.abs_diff(7500) < 50, "{after}");
    assert!(harness.causes().contains(&UpdateCause::Heartbeat));
    assert!(harness.events.is_empty());
    harness.run(300);
    assert_eq!(harness.events.len(), 2, "both left: {:?}", harness.events);
}

#[test]
fn events_that_are_not_polled_do_not_pile_up() {
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
