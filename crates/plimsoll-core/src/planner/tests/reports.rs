//! Tests of which reports count, for which zone, and for how long.

use super::*;
use crate::model::zone_aware::{FractionSource, LocalityBasis, ZoneAware};
use crate::planner::fleet_weights::{FleetHosts, fleet_weights};
use crate::planner::weights::locality_weights;

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
    let mut harness = Harness::new();
    let hosts = [("a", 3), ("b", 5), ("c", 2)];
    harness.endpoints(FLEET, &hosts, 0);
    harness.steady(&EXAMPLE, 0, 40);
    let expected = rows(&[("a", 5000), ("b", 3500), ("c", 1500)]);
    assert_eq!(harness.fractions(None), expected);
    assert_eq!(harness.fractions(Some(ORDERS)), expected);
    let plan = harness.plan(Some(ORDERS)).unwrap();
    assert!(!plan.warming_up);
    // The locality weights that a control plane derives from the plan.
    let fleet = assignment(FLEET, &hosts);
    let counts = HostSetCounts::of_assignment(&fleet, 0, None);
    let rules = ZoneAware::default()
        .with_locality_basis(LocalityBasis::LrsReportedRate, FractionSource::EdsField)
        .without_dead_band();
    let from_a = &locality_weights(&rules, &counts, Some(&counts), &plan.zones)[0];
    let numbers: Vec<_> = from_a.weights.iter().map(|(_, weight)| *weight).collect();
    assert_eq!(numbers, [Some(6000), Some(3000), Some(1000)]);
    let zones = &harness.plan(None).unwrap().zones;
    let weights = fleet_weights(zones, &FleetHosts::of_assignment(&fleet));
    let numbers: Vec<_> = weights.endpoints.iter().map(|e| e.weight).collect();
    assert_eq!(
        numbers,
        [1667, 1667, 1666, 700, 700, 700, 700, 700, 750, 750]
    );
}

#[test]
fn proxies_add_up_in_any_order() {
    // A mean over reports in order of arrival would yield 471 or 629 (envoy-semantics §10, problem
    // 3).
    for order in [
        [("big", 1000), ("small", 100)],
        [("small", 100), ("big", 1000)],
    ] {
        let mut harness = Harness::new();
        for round in [0, 10, 20, 30] {
            for (id, per_second) in order {
                harness.report(id, "a", per_second, round);
            }
        }
        harness.run(59);
        assert_eq!(harness.rate("a"), Some(1100.0), "{order:?}");
    }
}

#[test]
fn rates_do_not_depend_on_the_reporting_interval() {
    // Zone b reports every 30 s, 3000 requests at a time; zone a every 10 s, 1000.
    let mut harness = Harness::new();
    for now in (0..=120).step_by(10) {
        harness.run(now);
        harness.report("a1", "a", 100, now);
        if now % 30 == 0 {
            let slow = stats(ORDERS, 3000, Duration::from_secs(30), "a");
            harness.report_stats(&node("b1", "b"), &slow, at(now));
        }
        assert_eq!(harness.rate("b"), Some(100.0), "at {now}");
        assert_eq!(harness.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    }
}

#[test]
fn drops_count_as_demand_and_the_destination_does_not_matter() {
    let mut harness = Harness::new();
    let mut spilled = stats(ORDERS, 600, INTERVAL, "b");
    spilled.total_dropped_requests = 400;
    harness.report_stats(&node("a1", "a"), &spilled, at(0));
    assert_eq!(harness.rate("a"), Some(100.0));
    assert_eq!(harness.rate("b"), None);
}

#[test]
fn a_silent_node_expires_after_three_intervals() {
    let mut harness = Harness::new();
    let nodes = [("a1", "a", 100), ("a2", "a", 100), ("b1", "b", 200)];
    harness.steady(&nodes, 0, 40);
    // The last report of node a2 arrives at 31 s.
    harness.steady(&[nodes[0], ("", "a", 0), nodes[2]], 40, 60);
    assert_eq!(harness.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    let left = |harness: &Harness| {
        let left = |e: &&PlannerEvent| matches!(e, PlannerEvent::NodeLeft { .. });
        harness.events.iter().find(left).cloned()
    };
    harness.run(60);
    assert_eq!(left(&harness), None);
    harness.run(61);
    let expected = PlannerEvent::NodeLeft {
        fleet: FLEET.into(),
        node: "a2".into(),
        locality: zone("a"),
        reason: LeaveReason::Silent,
    };
    assert_eq!(left(&harness), Some(expected));
    // The sum drops at once; the smoothed demand follows: 100 to 200 as 1 to 2, towards 1/3.
    harness.steady(&[nodes[0], ("", "a", 0), nodes[2]], 70, 200);
    let fractions = harness.fractions(None);
    assert!(fractions[0].1.abs_diff(3333) < 50, "{fractions:?}");
}

#[test]
fn a_restart_within_one_interval_is_not_noticed() {
    let mut harness = Harness::new();
    let nodes = [("a1", "a", 100), ("b1", "b", 100)];
    harness.steady(&nodes, 0, 40);
    harness.causes();
    harness.events.clear();
    harness.disconnect("a1", 43);
    harness.run(52);
    // The node comes back after 9 s and reports the 5 s since it started.
    let first = stats(ORDERS, 500, Duration::from_secs(5), "anywhere");
    harness.report_stats(&node("a1", "a"), &first, at(52));
    harness.steady(&[("", "a", 0), nodes[1]], 52, 62);
    harness.run(70);
    assert!(
        harness
            .causes()
            .iter()
            .all(|cause| *cause == UpdateCause::Heartbeat)
    );
    assert_eq!(harness.rate("a"), Some(100.0));
    let gone = |e: &PlannerEvent| !matches!(e, PlannerEvent::ReportIgnored { .. });
    assert_eq!(harness.events.iter().filter(|e| gone(e)).count(), 0);
}

#[test]
fn a_disconnected_node_expires_after_one_interval() {
    let mut harness = Harness::new();
    harness.steady(&[("a1", "a", 100), ("b1", "b", 100)], 0, 40);
    harness.disconnect("b1", 40);
    harness.report("a1", "a", 100, 40);
    harness.run(49);
    assert_eq!(harness.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    harness.run(50);
    assert_eq!(
        harness.fractions(None),
        rows(&[("a", 10_000)]),
        "no node is left in b"
    );
    harness.disconnect("b1", 51);
    harness
        .planner
        .handle_disconnect("b1", "another fleet", at(51));
    assert_eq!(harness.planner.fleets.len(), 1);
}

#[test]
fn an_idle_client_counts_as_zero_while_connected() {
    let mut harness = Harness::new();
    harness.endpoints(FLEET, &[("a", 1), ("b", 1)], 0);
    harness.steady(&[("a1", "a", 100), ("b1", "b", 100)], 0, 30);
    // gRPC sends one report of zero, then nothing while the stream is open.
    harness.report("b1", "b", 0, 31);
    harness.steady(&[("a1", "a", 100)], 40, 3600);
    let plan = harness.plan(Some(ORDERS)).unwrap();
    assert_eq!(
        harness.fractions(Some(ORDERS)),
        rows(&[("a", 10_000), ("b", 0)])
    );
    assert!(!plan.zones[1].estimated, "known to be zero, not guessed");
    // The stream closes: b is now unknown and estimated as average.
    harness.disconnect("b1", 3600);
    harness.report("a1", "a", 100, 3600);
    harness.run(3610);
    let plan = harness.plan(Some(ORDERS)).unwrap();
    assert_eq!(
        harness.fractions(Some(ORDERS)),
        rows(&[("a", 5000), ("b", 5000)])
    );
    assert!(plan.zones[1].estimated);
}

#[test]
fn an_idle_fleet_has_no_data() {
    let mut harness = Harness::new();
    harness.steady(&[("a1", "a", 100), ("b1", "b", 300)], 0, 40);
    harness.report("a1", "a", 0, 40);
    harness.report("b1", "b", 0, 41);
    // The last fractions hold while the smoothed demand decays; then there is no data.
    harness.run(100);
    assert!(harness.plan(None).unwrap().has_data());
    harness.causes();
    harness.run(400);
    assert_eq!(harness.causes().last(), Some(&UpdateCause::NoData));
    assert!(!harness.plan(None).unwrap().has_data());
    assert_eq!(
        harness.planner.poll_timeout(),
        Some(at(3640)),
        "nothing to keep fresh: only idle nodes expire"
    );
    harness.report("a1", "a", 5, 401);
    assert_eq!(harness.causes(), [UpdateCause::FirstData]);
    // A new warm-up: one interval of unsmoothed sums, marked as such.
    harness.report("b1", "b", 15, 407);
    assert!(harness.plan(None).unwrap().warming_up);
    assert_eq!(harness.fractions(None), rows(&[("a", 2500), ("b", 7500)]));
    harness.run(411);
    assert_eq!(harness.causes().last(), Some(&UpdateCause::WarmedUp));
}

#[test]
fn a_node_that_changes_zones_takes_its_demand_along() {
    let mut harness = Harness::new();
    harness.steady(&[("n1", "a", 100), ("n2", "b", 300)], 0, 40);
    harness.report("n1", "c", 100, 40);
    assert_eq!(harness.fractions(None), rows(&[("b", 7500), ("c", 2500)]));
    let moved = PlannerEvent::NodeMoved {
        fleet: FLEET.into(),
        node: "n1".into(),
        from: zone("a"),
        to: zone("c"),
    };
    assert_eq!(harness.events.last(), Some(&moved));
}

#[test]
fn unusable_reports_raise_an_event_and_change_nothing() {
    let mut harness = Harness::new();
    harness.report_stats(
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
    assert_eq!(harness.events, [ignored]);
    assert!(harness.planner.fleets.is_empty() && harness.updates.is_empty());
    assert_eq!(harness.planner.poll_timeout(), None);
    // The previous report stays in force.
    harness.report("n1", "a", 10, 1);
    harness.report_stats(
        &node("n1", "a"),
        &stats(ORDERS, u64::MAX, INTERVAL, "a"),
        at(2),
    );
    assert_eq!(harness.rate("a"), Some(10.0));
}

#[test]
fn demand_is_kept_per_upstream_cluster() {
    // Zone a talks to orders, zone b to users; over the whole fleet both zones are equal.
    let mut harness = Harness::new();
    for now in [0, 10, 20] {
        for (id, zone_name, orders, users) in [("n1", "a", 900, 100), ("n2", "b", 100, 900)] {
            harness.report(id, zone_name, orders, now);
            let users = stats("users", users * 10, INTERVAL, "a");
            harness.report_stats(&node(id, zone_name), &users, at(now));
        }
    }
    assert_eq!(harness.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
    assert_eq!(
        harness.fractions(Some(ORDERS)),
        rows(&[("a", 9000), ("b", 1000)])
    );
    assert_eq!(
        harness.fractions(Some("users")),
        rows(&[("a", 1000), ("b", 9000)])
    );
}

#[test]
fn a_zone_that_does_not_report_a_cluster_has_zero_demand_for_it() {
    let mut harness = Harness::new();
    harness.endpoints(FLEET, &[("a", 1), ("b", 1), ("c", 1)], 0);
    let users = stats("users", 1000, INTERVAL, "a");
    harness.report_stats(&node("b1", "b"), &users, at(0));
    harness.report("a1", "a", 100, 1);
    // Zone b has reporters, but not about this cluster: zero demand. Zone c has none: estimated.
    let plan = harness.plan(Some(ORDERS)).unwrap();
    let row = |zone: &ZoneFraction| (zone.fraction.get(), zone.estimated);
    let table: Vec<_> = plan.zones.iter().map(row).collect();
    assert_eq!(table, [(6667, false), (0, false), (3333, true)]);
}

#[test]
fn a_zone_whose_last_node_expires_is_unknown_in_every_scope() {
    let mut harness = Harness::new();
    harness.endpoints(FLEET, &[("a", 1), ("b", 1)], 0);
    harness.report_stats(
        &node("b1", "b"),
        &stats("users", 1000, INTERVAL, "a"),
        at(0),
    );
    harness.steady(&[("a1", "a", 100)], 1, 11);
    assert_eq!(
        harness.fractions(Some(ORDERS)),
        rows(&[("a", 10_000), ("b", 0)])
    );
    harness.disconnect("b1", 11);
    harness.report("a1", "a", 100, 11);
    harness.run(21);
    assert_eq!(
        harness.fractions(Some(ORDERS)),
        rows(&[("a", 5000), ("b", 5000)])
    );
    assert!(harness.plan(Some("users")).is_none());
}

#[test]
fn fleets_do_not_mix() {
    let mut harness = Harness::new();
    harness.report("n1", "a", 100, 0);
    let mut other = node("n1", "b");
    other.cluster = "other".into();
    harness.report_stats(&other, &stats(ORDERS, 1000, INTERVAL, "a"), at(0));
    assert_eq!(harness.fractions(Some(ORDERS)), rows(&[("a", 10_000)]));
    assert_eq!(harness.planner.fleets.len(), 2);
}

#[test]
fn expired_nodes_leave_no_state_behind() {
    let mut harness = Harness::new();
    // A thousand short-lived nodes with different ids.
    for generation in 0..1000_u64 {
        harness.run(generation);
        let id = format!("pod-{generation}");
        let zone_name = if generation % 3 == 0 { "b" } else { "a" };
        harness.report(&id, zone_name, 100, generation);
        harness.disconnect(&id, generation);
        assert!(
            harness.planner.timers.len() <= 15,
            "{}",
            harness.planner.timers.len()
        );
    }
    harness.run(2000);
    assert!(harness.planner.fleets.is_empty());
    assert_eq!(
        (harness.planner.timers.len(), harness.planner.poll_timeout()),
        (0, None)
    );
    let (_, last) = harness.updates.last().unwrap();
    assert!(last.cause == UpdateCause::NoData && !last.has_data());
    let joined = |e: &&PlannerEvent| matches!(e, PlannerEvent::NodeJoined { .. });
    let left = |e: &&PlannerEvent| matches!(e, PlannerEvent::NodeLeft { .. });
    let count = |test: &dyn Fn(&&PlannerEvent) -> bool| harness.events.iter().filter(test).count();
    assert_eq!((count(&joined), count(&left)), (1000, 1000));
}
