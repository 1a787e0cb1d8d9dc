//! Tests of the read-only views of a planner.

use super::*;

fn scopes(harness: &Harness, now: u64) -> Vec<ScopeView<'_>> {
    let fleet = harness.planner.fleet(FLEET, at(now)).unwrap();
    fleet.scopes().collect()
}

/// Zone, reporters, raw and smoothed demand.
fn demand<'a>(scope: &ScopeView<'a>) -> Vec<(&'a str, u64, f64, f64)> {
    let row = |zone: ZoneDemand<'a>| {
        (
            zone.locality.zone(),
            zone.reporters,
            zone.raw_per_second,
            zone.smoothed_per_second,
        )
    };
    scope.demand().map(row).collect()
}

#[test]
fn a_new_planner_has_empty_views() {
    let planner = Planner::new(PlannerConfig::default(), at(0));
    assert_eq!(planner.fleets(at(0)).count(), 0);
    assert!(planner.fleet(FLEET, at(0)).is_none());
}

#[test]
fn fleets_and_their_nodes_are_listed_in_order() {
    let mut harness = Harness::new();
    let elsewhere = Node {
        cluster: "batch".into(),
        ..node("z1", "c")
    };
    harness.report_stats(&elsewhere, &stats(ORDERS, 10, INTERVAL, "c"), at(0));
    harness.report("b1", "b", 0, 0);
    harness.report("a1", "a", 100, 2);
    let other = stats("other", 100, Duration::from_secs(20), "a");
    harness.report_stats(&node("a1", "a"), &other, at(3));
    harness.disconnect("b1", 4);
    let names = harness.planner.fleets(at(7)).map(|fleet| &**fleet.name());
    assert!(names.eq(["batch", FLEET]));
    let fleet = harness.planner.fleet(FLEET, at(7)).unwrap();
    let nodes: Vec<_> = fleet.nodes().collect();
    let secs = Duration::from_secs;
    assert_eq!(
        nodes,
        [
            NodeView {
                id: &"a1".into(),
                locality: &zone("a"),
                rate_per_second: 105.0,
                counted_per_second: 105.0,
                upstream_clusters: 2,
                last_report_age: secs(4),
                report_interval: secs(20),
                idle: false,
                disconnected: false,
            },
            NodeView {
                id: &"b1".into(),
                locality: &zone("b"),
                rate_per_second: 0.0,
                counted_per_second: 0.0,
                upstream_clusters: 1,
                last_report_age: secs(7),
                report_interval: secs(10),
                idle: true,
                disconnected: true,
            },
        ]
    );
}

#[test]
fn scopes_show_raw_and_smoothed_demand() {
    let mut harness = Harness::new();
    let nodes = [("a1", "a", 100), ("a2", "a", 100), ("b1", "b", 100)];
    harness.steady(&nodes, 0, 40);
    harness.report("a1", "a", 300, 40);
    let other = stats("other", 100, INTERVAL, "a");
    harness.report_stats(&node("b1", "b"), &other, at(40));
    let upstreams = scopes(&harness, 60);
    let names: Vec<_> = upstreams.iter().map(ScopeView::upstream_cluster).collect();
    assert_eq!(
        names,
        [None, Some(&ORDERS.into()), Some(&"other".into())],
        "the whole fleet first"
    );
    let rows = demand(&upstreams[1]);
    let followed = 400.0 - 200.0 * (-1.0_f64).exp();
    assert_eq!((rows[0].0, rows[0].1, rows[0].2), ("a", 2, 400.0));
    assert!((rows[0].3 - followed).abs() < 1e-9, "{rows:?}");
    assert_eq!(rows[1], ("b", 1, 100.0, 100.0));
    let rows = demand(&upstreams[2]);
    assert_eq!(rows, [("a", 2, 0.0, 0.0), ("b", 1, 10.0, 10.0)]);
}

#[test]
fn plans_in_force_are_shown_with_their_age() {
    let mut harness = Harness::new();
    harness.report("a1", "a", 100, 0);
    let views = scopes(&harness, 3);
    assert!(views.iter().all(ScopeView::is_warming_up));
    harness.run(10);
    let views = scopes(&harness, 17);
    assert!(!views.iter().any(ScopeView::is_warming_up));
    for (view, upstream) in views.iter().zip([None, Some(ORDERS)]) {
        assert_eq!(view.plan(), harness.plan(upstream));
        assert_eq!(view.plan_age(), Some(Duration::from_secs(7)));
    }
    let early = scopes(&harness, 0);
    assert_eq!(early[0].plan_age(), Some(Duration::ZERO), "time is steady");
}

#[test]
fn flows_show_rates_by_source_and_destination() {
    let mut harness = Harness::new();
    let send = |harness: &mut Harness, id: &str, from: &str, cluster: &str, to: &[(&str, u64)]| {
        let mut stats = stats(cluster, 0, INTERVAL, "nowhere");
        stats.total_dropped_requests = 70;
        stats.upstream_locality_stats = to
            .iter()
            .map(|&(to, requests)| UpstreamLocalityStats {
                locality: zone(to),
                total_issued_requests: requests,
                ..Default::default()
            })
            .collect();
        harness.report_stats(&node(id, from), &stats, at(0));
    };
    send(&mut harness, "a1", "a", ORDERS, &[("a", 300), ("b", 100)]);
    send(&mut harness, "a2", "a", ORDERS, &[("a", 100)]);
    send(&mut harness, "b1", "b", ORDERS, &[("b", 50), ("c", 0)]);
    send(&mut harness, "b1", "b", "other", &[("b", 10)]);
    let flows = |harness: &Harness, scope: usize, now: u64| -> Vec<(String, String, f64)> {
        let views = scopes(harness, now);
        let flows = views[scope].flows();
        let row = |flow: Flow<'_>| {
            let names = [flow.from, flow.to].map(|place| place.zone().to_owned());
            let [from, to] = names;
            (from, to, flow.rate_per_second)
        };
        flows.map(row).collect()
    };
    let row = |from: &str, to: &str, rate| (from.to_owned(), to.to_owned(), rate);
    let orders = [row("a", "a", 40.0), row("a", "b", 10.0), row("b", "b", 5.0)];
    assert_eq!(flows(&harness, 1, 1), orders, "drops have no destination");
    let all = [row("a", "a", 40.0), row("a", "b", 10.0), row("b", "b", 6.0)];
    assert_eq!(flows(&harness, 0, 1), all, "the fleet as a whole");
    // Rates follow the reports of a node within a few of them, and an expired node does not count.
    send(&mut harness, "a1", "a", ORDERS, &[("a", 10)]);
    let kept = (-10.0_f64 / 20.0).exp();
    let shown = flows(&harness, 1, 1);
    for (flow, expected) in shown.iter().zip([11.0 + 29.0 * kept, 10.0 * kept]) {
        assert!((flow.2 - expected).abs() < 1e-9, "{shown:?}");
    }
    send(&mut harness, "a1", "a", ORDERS, &[("a", 0)]);
    harness.disconnect("b1", 1);
    harness.run(12);
    let left = flows(&harness, 1, 12);
    assert_eq!(left, [row("a", "a", 10.0)], "an idle node is not smoothed");
}
