//! Tests of [`Plan::failing`]: upstream zones whose requests fail.

use super::*;

/// A report of a node whose requests to its own zone fail, by connections that are refused.
fn refused(to: &str, requests: u64) -> ClusterStats {
    let mut stats = stats(ORDERS, 0, INTERVAL, to);
    stats.upstream_locality_stats[0].total_error_requests = requests;
    stats
}

fn failing(harness: &Harness) -> Vec<&str> {
    let plan = harness.plan(Some(ORDERS)).unwrap();
    assert_eq!(plan.may_steer(), plan.failing.is_empty());
    plan.failing.iter().map(Locality::zone).collect()
}

#[test]
fn a_plan_names_the_zone_whose_connections_are_refused_at_once() {
    let mut harness = level();
    harness.report_stats(
        &node("a1", "a"),
        &stats(ORDERS, 1000, INTERVAL, "a"),
        at(41),
    );
    // Zone b was not seen before, nor zone a.
    assert_eq!(harness.causes(), [UpdateCause::ZonesChanged]);
    harness.report_stats(&node("b1", "b"), &refused("b", 1000), at(42));
    assert_eq!(failing(&harness), ["b"]);
    assert_eq!(harness.causes(), [UpdateCause::ZonesChanged]);
    // Refused requests are demand: the fractions stay.
    let plan = harness.plan(Some(ORDERS)).unwrap();
    assert!(plan.zones.iter().all(|zone| zone.fraction.get() == 5000));
}

#[test]
fn a_zone_recovers_when_its_requests_have_succeeded_for_a_while() {
    let mut harness = level();
    harness.report_stats(
        &node("a1", "a"),
        &stats(ORDERS, 1000, INTERVAL, "a"),
        at(41),
    );
    harness.report_stats(&node("b1", "b"), &refused("b", 1000), at(42));
    // The last evaluation with the failed requests is at 51 s, just before zone b reports again.
    for second in [51, 61, 71, 81] {
        harness.report_stats(
            &node("a1", "a"),
            &stats(ORDERS, 1000, INTERVAL, "a"),
            at(second),
        );
        let good = stats(ORDERS, 1000, INTERVAL, "b");
        harness.report_stats(&node("b1", "b"), &good, at(second + 1));
        let expected: &[&str] = if second < 81 { &["b"] } else { &[] };
        assert_eq!(failing(&harness), expected, "{second}");
    }
}

/// A report that comes half a second before is evaluated, so that nothing is evaluated at 81 s.
#[test]
fn the_timer_waits_for_the_next_evaluation_if_a_zone_recovers_before_it() {
    let mut harness = level();
    let good = |zone| stats(ORDERS, 1000, INTERVAL, zone);
    harness.report_stats(&node("a1", "a"), &good("a"), at(41));
    harness.report_stats(&node("b1", "b"), &refused("b", 1000), at(42));
    for second in [51, 61, 71] {
        harness.report_stats(&node("a1", "a"), &good("a"), at(second));
        harness.report_stats(&node("b1", "b"), &good("b"), at(second + 1));
    }
    harness.run(80);
    let early = Instant::from_millis(80_500);
    harness.report_stats(&node("a1", "a"), &good("a"), early);
    for (moment, expected) in [(at(81), &["b"][..]), (Instant::from_millis(81_500), &[])] {
        harness.planner.handle_timeout(moment);
        harness.drain(moment);
        assert_eq!(failing(&harness), expected);
        assert!(harness.planner.poll_timeout() > Some(moment), "{moment:?}");
    }
}

#[test]
fn an_adopted_plan_fails_where_the_reports_of_this_planner_say_so() {
    let mut one = level();
    one.report_stats(&node("b1", "b"), &refused("b", 1000), at(42));
    assert_eq!(failing(&one), ["b"]);
    let shared = level().plan(Some(ORDERS)).unwrap().shared();
    assert_eq!(one.planner.adopt(&shared, at(43)).failing.len(), 1);
    one.causes();
    one.run(44);
    assert_eq!(one.causes(), [], "the adopted plan is final");
}

/// Envoy 1.38 reports nothing about a zone of which every host refuses connections, and no Envoy
/// reports requests that time out before the connection does.
#[test]
fn nobody_spills_into_a_zone_from_which_all_requests_vanish() {
    let mut harness = Harness::new();
    let silent = || ClusterStats {
        upstream_locality_stats: Vec::new(),
        ..stats(ORDERS, 0, INTERVAL, "b")
    };
    let mut seen = Vec::new();
    for (round, second) in (41..181).step_by(10).enumerate() {
        let to_own = stats(ORDERS, 1000, INTERVAL, "a");
        harness.report_stats(&node("a1", "a"), &to_own, at(second));
        let own = match round {
            0 => stats(ORDERS, 1000, INTERVAL, "b"),
            _ => silent(),
        };
        harness.report_stats(&node("b1", "b"), &own, at(second + 1));
        harness.run(second + 9);
        let plan = harness.plan(Some(ORDERS)).unwrap();
        assert!(plan.failing.is_empty(), "nobody knows that it fails");
        assert_eq!(plan.may_steer(), plan.unseen.is_empty());
        seen.push(plan.unseen.iter().map(Locality::zone).collect::<String>());
    }
    // Zone b is unseen for 30 s, tried for 25 s, unseen for 60 s, and tried again.
    let expected = [
        "", "b", "b", "b", "", "", "b", "b", "b", "b", "b", "b", "", "",
    ];
    assert_eq!(seen, expected);
    let spilled = stats(ORDERS, 100, INTERVAL, "b");
    harness.report_stats(&node("b1", "b"), &spilled, at(183));
    assert!(harness.plan(Some(ORDERS)).unwrap().unseen.is_empty());
}
