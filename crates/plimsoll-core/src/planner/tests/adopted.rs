//! Tests of plans that another planner made: [`Planner::adopt`].

use super::*;

fn orders() -> PlanScope {
    PlanScope {
        fleet: FLEET.into(),
        upstream_cluster: Some(ORDERS.into()),
    }
}

fn shared(zones: &[(&str, f64)]) -> SharedPlan {
    let zone = |&(name, rate_per_second): &(&str, f64)| SharedZone {
        locality: zone(name),
        rate_per_second,
        reporters: 1,
        estimated: false,
    };
    SharedPlan {
        scope: orders(),
        cause: UpdateCause::FractionsMoved,
        warming_up: false,
        zones: zones.iter().map(zone).collect(),
    }
}

#[test]
fn another_planner_makes_the_same_plan_of_a_shared_one() {
    let mut one = level();
    one.endpoints(FLEET, &[("a", 1), ("b", 2), ("c", 3)], 40);
    one.report("a1", "a", 170, 40);
    one.run(47);
    let plan = Arc::clone(one.plan(Some(ORDERS)).unwrap());
    assert!(plan.zones.iter().any(|zone| zone.estimated));
    let mut other = level();
    let adopted = other.planner.adopt(&plan.shared(), at(47));
    assert_eq!(adopted.zones, plan.zones);
    assert_eq!(
        (adopted.cause, adopted.warming_up),
        (plan.cause, plan.warming_up)
    );
    assert_eq!(adopted.shared(), plan.shared());
    assert_eq!(other.plan(Some(ORDERS)), Some(&adopted));
}

#[test]
fn a_scope_without_load_reports_is_not_remembered() {
    let mut harness = level();
    let other = PlanScope {
        upstream_cluster: Some("other".into()),
        ..orders()
    };
    let plan = SharedPlan {
        scope: other.clone(),
        ..shared(&[("a", 1.0), ("b", 3.0)])
    };
    let adopted = harness.planner.adopt(&plan, at(40));
    assert_eq!(adopted.shared(), plan);
    assert_eq!(adopted.observed_at, at(40));
    assert_eq!(harness.planner.plan(&other), None);
    harness.report_stats(&node("a1", "a"), &stats("other", 1, INTERVAL, "a"), at(41));
    let plan = harness.planner.plan(&other).unwrap();
    assert_eq!(plan.cause, UpdateCause::FirstData);
}

#[test]
fn the_end_of_demand_is_not_held_back() {
    let mut harness = level();
    for id in ["a1", "b1"] {
        harness.disconnect(id, 40);
    }
    harness.run(49);
    harness.causes();
    // The last reports expire at 50 s.
    let plan = shared(&[("a", 100.0), ("b", 100.0)]);
    harness.planner.adopt(&plan, at(49));
    harness.run(50);
    assert_eq!(harness.causes(), [UpdateCause::NoData]);
    // Another planner notices a moment later: the scope is gone here.
    let end = SharedPlan {
        cause: UpdateCause::NoData,
        ..shared(&[])
    };
    assert!(!harness.planner.adopt(&end, at(51)).has_data());
}

#[test]
fn an_adopted_plan_replaces_one_that_was_not_polled() {
    let mut harness = level();
    let doubled = stats(ORDERS, 100_000, INTERVAL, "anywhere");
    harness
        .planner
        .handle_load_report(&node("c1", "c"), &doubled, at(40));
    let adopted = harness.planner.adopt(&shared(&[("a", 1.0)]), at(40));
    let before = adopted.generation;
    let polled: Vec<_> = std::iter::from_fn(|| harness.planner.poll_update()).collect();
    assert!(polled.iter().all(|plan| plan.scope != orders()));
    assert!(polled.iter().all(|plan| plan.generation < before));
}

#[test]
fn demand_is_smoothed_from_the_rates_of_an_adopted_plan() {
    let mut harness = level();
    let plan = shared(&[("a", 300.0), ("b", 100.0)]);
    harness.planner.adopt(&plan, at(40));
    assert_eq!(
        harness.fractions(Some(ORDERS)),
        rows(&[("a", 7500), ("b", 2500)])
    );
    // 20 s · ln(2) later half of the difference is left.
    harness.run(53);
    harness.report("b1", "b", 100, 54);
    let expected = 100.0 + 200.0 * (-14.0_f64 / 20.0).exp();
    let view = harness.planner.fleet(FLEET, at(54)).unwrap();
    let mut scopes = view.scopes();
    let scope = scopes.find(|scope| scope.upstream_cluster().is_some());
    let a = scope.unwrap().demand().next().unwrap();
    assert!(
        (a.smoothed_per_second - expected).abs() < 1e-9,
        "{} for {expected}",
        a.smoothed_per_second
    );
}

#[test]
fn a_planner_that_starts_continues_where_the_others_are() {
    // The zone's first interval, in which its sum counts unsmoothed, ends with the adoption.
    let mut harness = Harness::new();
    harness.report("a1", "a", 300, 40);
    harness.report("b1", "b", 100, 40);
    let plan = shared(&[("a", 100.0), ("b", 100.0)]);
    harness.planner.adopt(&plan, at(40));
    harness.causes();
    harness.run(42);
    let a = harness.fractions(Some(ORDERS))[0].1;
    let followed = 300.0 - 200.0 * (-2.0_f64 / 20.0).exp();
    let expected = 10_000.0 * followed / (followed + 100.0);
    let a = f64::from(u32::try_from(a).unwrap());
    assert!((a - expected).abs() < 51.0, "{a} for {expected}");
}

#[test]
fn an_adopted_plan_holds_for_a_second_and_an_own_one_does_not() {
    let mut harness = level();
    let plan = shared(&[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
    harness.planner.adopt(&plan, at(40));
    // Here the zone has no reporter, but its load reports may be on their way.
    harness.report("a1", "a", 100, 40);
    assert_eq!(harness.causes(), []);
    assert_eq!(harness.planner.poll_timeout(), Some(at(41)));
    harness.run(41);
    assert_eq!(harness.causes(), [UpdateCause::ZonesChanged]);
    harness.report("c1", "c", 100, 41);
    assert_eq!(harness.causes(), [UpdateCause::ZonesChanged]);
}

#[test]
fn a_heartbeat_follows_an_adopted_plan() {
    let mut harness = level();
    let plan = shared(&[("a", 100.0), ("b", 100.0)]);
    harness.planner.adopt(&plan, at(45));
    harness.steady(&LEVEL, 50, 64);
    assert_eq!(harness.causes(), []);
    harness.run(65);
    assert_eq!(harness.causes(), [UpdateCause::Heartbeat]);
}

#[test]
fn planners_that_adopt_each_others_plans_stay_together() {
    // Each hears the reports, one of them two seconds late.
    let mut planners = [level(), level()];
    let mut delivered: [Vec<Vec<(String, u64)>>; 2] = Default::default();
    for now in 40..200 {
        for (index, late) in [(0, 0), (1, 2)] {
            if now % 10 == late {
                let rate = if (60..120).contains(&now) { 400 } else { 100 };
                planners[index].report("a1", "a", rate, now);
                planners[index].report("b1", "b", 100, now);
            }
            planners[index].run(now);
            let plans = std::mem::take(&mut planners[index].updates);
            for (_, plan) in plans {
                let other = &mut planners[1 - index].planner;
                other.adopt(&plan.shared(), at(now));
                for (index, planner) in planners.iter().enumerate() {
                    delivered[index].push(planner.fractions(Some(ORDERS)));
                }
            }
        }
    }
    assert_eq!(delivered[0], delivered[1]);
    // A step up and one down of 3,000 bp, a plan a second or for every 50 bp, and heartbeats.
    let updates = delivered[0].len();
    assert!((50..180).contains(&updates), "{updates}");
}
