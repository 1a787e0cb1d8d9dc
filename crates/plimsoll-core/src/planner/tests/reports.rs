//! Whose demand counts, where, and how long.

use super::*;

/// Ten proxies, three zones, 1000 requests per second: the worked example of seed `000…`.
const EXAMPLE: [(&str, &str, u64); 10] = [
    ("a1", "a", 200),
    ("a2", "a", 200),
    ("a3", "a", 100),
    ("b1", "b", 70),
    ("b2", "b", 70),
    ("b3", "b", 70),
    ("b4", "b", 70),
    ("b5", "b", 70),
    ("c1", "c", 100),
    ("c2", "c", 50),
];

#[test]
fn the_worked_example() {
    let mut bench = Bench::new();
    let hosts = [("a", 3), ("b", 5), ("c", 2)];
    bench.endpoints(FLEET, &hosts, 0);
    bench.endpoints(ORDERS, &hosts, 0);
    bench.steady(&EXAMPLE, 0, 40);
    let expected = rows(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    assert_eq!(bench.fractions(None), expected);
    assert_eq!(bench.fractions(Some(ORDERS)), expected);
    let plan = bench.plan(Some(ORDERS)).unwrap();
    assert!(!plan.warming_up && plan.fleet_weights.is_none());
    let from_a = &plan.locality_weights[0];
    let numbers: Vec<_> = from_a.weights.iter().map(|(_, weight)| *weight).collect();
    assert_eq!(numbers, [Some(6000), Some(3000), Some(1000)]);
    let fleet = bench.plan(None).unwrap().fleet_weights.as_ref().unwrap();
    let numbers: Vec<_> = fleet.endpoints.iter().map(|e| e.weight).collect();
    assert_eq!(
        numbers,
        [1667, 1667, 1666, 700, 700, 700, 700, 700, 750, 750]
    );
    assert!(bench.plan(None).unwrap().locality_weights.is_empty());
}

#[test]
fn proxies_add_up_in_any_order() {
    // A mean over reports as they come yields 471 or 629 here (envoy-semantics §10, problem 3).
    for order in [
        [("big", 1000), ("small", 100)],
        [("small", 100), ("big", 1000)],
    ] {
        let mut bench = Bench::new();
        for round in [0, 10, 20, 30] {
            for (id, per_second) in order {
                bench.report(id, "a", per_second, round);
            }
        }
        bench.run(59);
        assert_eq!(bench.rate("a"), Some(1100.0), "{order:?}");
    }
}

#[test]
fn the_interval_of_reports_does_not_matter() {
    // Zone b reports every 30 s, 3000 requests at a time; zone a every 10 s, 1000.
    let mut bench = Bench::new();
    for now in (0..=120).step_by(10) {
        bench.run(now);
        bench.report("a1", "a", 100, now);
        if now % 30 == 0 {
            let slow = stats(ORDERS, 3000, Duration::from_secs(30), "a");
            bench.report_stats(&node("b1", "b"), &slow, at(now));
        }
        assert_eq!(bench.rate("b"), Some(100.0), "at {now}");
        assert_eq!(bench.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    }
}

#[test]
fn drops_are_demand_and_the_destination_is_not_a_key() {
    let mut bench = Bench::new();
    let mut spilled = stats(ORDERS, 600, INTERVAL, "b");
    spilled.total_dropped_requests = 400;
    bench.report_stats(&node("a1", "a"), &spilled, at(0));
    assert_eq!(bench.rate("a"), Some(100.0));
    assert_eq!(bench.rate("b"), None);
}

#[test]
fn a_node_that_falls_silent_leaves_after_three_intervals() {
    let mut bench = Bench::new();
    let nodes = [("a1", "a", 100), ("a2", "a", 100), ("b1", "b", 200)];
    bench.steady(&nodes, 0, 40);
    // a2 reported last at 31 and is silent from then on.
    bench.steady(&[nodes[0], ("", "a", 0), nodes[2]], 40, 60);
    assert_eq!(bench.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    let left = |bench: &Bench| {
        let left = |e: &&PlannerEvent| matches!(e, PlannerEvent::NodeLeft { .. });
        bench.events.iter().find(left).cloned()
    };
    bench.run(60);
    assert_eq!(left(&bench), None);
    bench.run(61);
    let expected = PlannerEvent::NodeLeft {
        fleet: FLEET.into(),
        node: "a2".into(),
        locality: zone("a"),
        reason: LeaveReason::Silent,
    };
    assert_eq!(left(&bench), Some(expected));
    // The sum fell at once; the smoothed demand follows: 100 to 200 as 1 to 2, towards 1/3.
    bench.steady(&[nodes[0], ("", "a", 0), nodes[2]], 70, 200);
    let fractions = bench.fractions(None);
    assert!(fractions[0].1.abs_diff(3333) < 50, "{fractions:?}");
}

#[test]
fn a_restart_within_one_interval_is_not_noticed() {
    let mut bench = Bench::new();
    let nodes = [("a1", "a", 100), ("b1", "b", 100)];
    bench.steady(&nodes, 0, 40);
    bench.causes();
    bench.events.clear();
    bench.disconnect("a1", 43);
    bench.run(52);
    // It comes back after 9 s and reports the 5 s it has been up.
    let first = stats(ORDERS, 500, Duration::from_secs(5), "a");
    bench.report_stats(&node("a1", "a"), &first, at(52));
    bench.steady(&[("", "a", 0), nodes[1]], 52, 62);
    bench.run(70);
    assert!(
        bench
            .causes()
            .iter()
            .all(|cause| *cause == UpdateCause::Heartbeat)
    );
    assert_eq!(bench.rate("a"), Some(100.0));
    let gone = |e: &PlannerEvent| !matches!(e, PlannerEvent::ReportIgnored { .. });
    assert_eq!(bench.events.iter().filter(|e| gone(e)).count(), 0);
}

#[test]
fn a_closed_stream_leaves_after_one_interval() {
    let mut bench = Bench::new();
    bench.steady(&[("a1", "a", 100), ("b1", "b", 100)], 0, 40);
    bench.disconnect("b1", 40);
    bench.report("a1", "a", 100, 40);
    bench.run(49);
    assert_eq!(bench.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    bench.run(50);
    assert_eq!(
        bench.fractions(None),
        rows(&[("a", 10_000)]),
        "nobody is left in b"
    );
    bench.disconnect("b1", 51);
    bench
        .planner
        .handle_disconnect("b1", "another fleet", at(51));
    assert_eq!(bench.planner.fleets.len(), 1);
}

#[test]
fn an_idle_client_that_says_nothing_more_stays_a_known_zero() {
    let mut bench = Bench::new();
    bench.endpoints(FLEET, &[("a", 1), ("b", 1)], 0);
    bench.steady(&[("a1", "a", 100), ("b1", "b", 100)], 0, 30);
    // gRPC: one report of zero, then silence with the stream open.
    bench.report("b1", "b", 0, 31);
    bench.steady(&[("a1", "a", 100)], 40, 3600);
    let plan = bench.plan(Some(ORDERS)).unwrap();
    assert_eq!(
        bench.fractions(Some(ORDERS)),
        rows(&[("a", 10_000), ("b", 0)])
    );
    assert!(!plan.zones[1].estimated, "known to be zero, not guessed");
    // The stream closes: now b is unknown and taken for average.
    bench.disconnect("b1", 3600);
    bench.report("a1", "a", 100, 3600);
    bench.run(3610);
    let plan = bench.plan(Some(ORDERS)).unwrap();
    assert_eq!(
        bench.fractions(Some(ORDERS)),
        rows(&[("a", 5000), ("b", 5000)])
    );
    assert!(plan.zones[1].estimated);
}

#[test]
fn an_idle_fleet_is_no_data() {
    let mut bench = Bench::new();
    bench.steady(&[("a1", "a", 100), ("b1", "b", 300)], 0, 40);
    bench.report("a1", "a", 0, 40);
    bench.report("b1", "b", 0, 41);
    // The last shares hold while the demand fades, then there is nothing to go by.
    bench.run(100);
    assert!(bench.plan(None).unwrap().has_data());
    bench.causes();
    bench.run(400);
    assert_eq!(bench.causes().last(), Some(&UpdateCause::NoData));
    assert!(!bench.plan(None).unwrap().has_data());
    assert_eq!(bench.planner.poll_timeout(), None, "nothing to keep fresh");
    bench.report("a1", "a", 5, 401);
    assert_eq!(bench.causes(), [UpdateCause::FirstData]);
    // It begins anew: one interval of raw sums, marked.
    bench.report("b1", "b", 15, 407);
    assert!(bench.plan(None).unwrap().warming_up);
    assert_eq!(bench.fractions(None), rows(&[("a", 2500), ("b", 7500)]));
    bench.run(411);
    assert_eq!(bench.causes().last(), Some(&UpdateCause::WarmedUp));
}

#[test]
fn a_node_that_moves_takes_its_demand_along() {
    let mut bench = Bench::new();
    bench.steady(&[("n1", "a", 100), ("n2", "b", 300)], 0, 40);
    bench.report("n1", "c", 100, 40);
    assert_eq!(bench.fractions(None), rows(&[("b", 7500), ("c", 2500)]));
    let moved = PlannerEvent::NodeMoved {
        fleet: FLEET.into(),
        node: "n1".into(),
        from: zone("a"),
        to: zone("c"),
    };
    assert_eq!(bench.events.last(), Some(&moved));
}

#[test]
fn reports_that_cannot_be_used_are_named_and_forgotten() {
    let mut bench = Bench::new();
    bench.report_stats(
        &node("n1", "a"),
        &stats(ORDERS, 10, Duration::ZERO, "a"),
        at(0),
    );
    let ignored = PlannerEvent::ReportIgnored {
        fleet: FLEET.into(),
        node: "n1".into(),
        upstream_cluster: ORDERS.into(),
        reason: IgnoreReason::ImplausibleInterval,
    };
    assert_eq!(bench.events, [ignored]);
    assert!(bench.planner.fleets.is_empty() && bench.updates.is_empty());
    assert_eq!(bench.planner.poll_timeout(), None);
    // What was known before stays in force.
    bench.report("n1", "a", 10, 1);
    bench.report_stats(
        &node("n1", "a"),
        &stats(ORDERS, u64::MAX, INTERVAL, "a"),
        at(2),
    );
    assert_eq!(bench.rate("a"), Some(10.0));
}

#[test]
fn clusters_have_demands_of_their_own() {
    // Zone a talks to orders, zone b to users; the fleet as a whole is level.
    let mut bench = Bench::new();
    for now in [0, 10, 20] {
        for (id, zone_name, orders, users) in [("n1", "a", 900, 100), ("n2", "b", 100, 900)] {
            bench.report(id, zone_name, orders, now);
            let users = stats("users", users * 10, INTERVAL, "a");
            bench.report_stats(&node(id, zone_name), &users, at(now));
        }
    }
    assert_eq!(bench.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    assert_eq!(
        bench.fractions(Some(ORDERS)),
        rows(&[("a", 9000), ("b", 1000)])
    );
    assert_eq!(
        bench.fractions(Some("users")),
        rows(&[("a", 1000), ("b", 9000)])
    );
}

#[test]
fn a_zone_that_never_mentions_a_cluster_sends_it_nothing() {
    let mut bench = Bench::new();
    bench.endpoints(FLEET, &[("a", 1), ("b", 1), ("c", 1)], 0);
    let users = stats("users", 1000, INTERVAL, "a");
    bench.report_stats(&node("b1", "b"), &users, at(0));
    bench.report("a1", "a", 100, 1);
    // b reports, only not this cluster: zero. Nobody reports in c: a guess.
    let plan = bench.plan(Some(ORDERS)).unwrap();
    let row = |zone: &ZoneFraction| (zone.fraction.get(), zone.estimated);
    let table: Vec<_> = plan.zones.iter().map(row).collect();
    assert_eq!(table, [(6667, false), (0, false), (3333, true)]);
}

#[test]
fn a_zone_whose_last_node_leaves_is_unknown_to_every_cluster_at_once() {
    let mut bench = Bench::new();
    bench.endpoints(FLEET, &[("a", 1), ("b", 1)], 0);
    bench.report_stats(
        &node("b1", "b"),
        &stats("users", 1000, INTERVAL, "a"),
        at(0),
    );
    bench.steady(&[("a1", "a", 100)], 1, 11);
    assert_eq!(
        bench.fractions(Some(ORDERS)),
        rows(&[("a", 10_000), ("b", 0)])
    );
    bench.disconnect("b1", 11);
    bench.report("a1", "a", 100, 11);
    bench.run(21);
    assert_eq!(
        bench.fractions(Some(ORDERS)),
        rows(&[("a", 5000), ("b", 5000)])
    );
    assert!(bench.plan(Some("users")).is_none());
}

#[test]
fn fleets_do_not_mix() {
    let mut bench = Bench::new();
    bench.report("n1", "a", 100, 0);
    let mut other = node("n1", "b");
    other.cluster = "other".into();
    bench.report_stats(&other, &stats(ORDERS, 1000, INTERVAL, "a"), at(0));
    assert_eq!(bench.fractions(Some(ORDERS)), rows(&[("a", 10_000)]));
    assert_eq!(bench.planner.fleets.len(), 2);
}

#[test]
fn whoever_left_is_forgotten() {
    let mut bench = Bench::new();
    bench.endpoints(ORDERS, &[("a", 3), ("b", 3)], 0);
    // A thousand short-lived nodes, each with a name of its own.
    for generation in 0..1000_u64 {
        bench.run(generation);
        let id = format!("pod-{generation}");
        let zone_name = if generation % 3 == 0 { "b" } else { "a" };
        bench.report(&id, zone_name, 100, generation);
        bench.disconnect(&id, generation);
        assert!(
            bench.planner.timers.len() <= 15,
            "{}",
            bench.planner.timers.len()
        );
    }
    bench.run(2000);
    assert!(bench.planner.fleets.is_empty());
    assert_eq!(
        (bench.planner.timers.len(), bench.planner.poll_timeout()),
        (0, None)
    );
    let (_, last) = bench.updates.last().unwrap();
    assert!(last.cause == UpdateCause::NoData && !last.has_data());
    let joined = |e: &&PlannerEvent| matches!(e, PlannerEvent::NodeJoined { .. });
    let left = |e: &&PlannerEvent| matches!(e, PlannerEvent::NodeLeft { .. });
    let count = |test: &dyn Fn(&&PlannerEvent) -> bool| bench.events.iter().filter(test).count();
    assert_eq!((count(&joined), count(&left)), (1000, 1000));
}
