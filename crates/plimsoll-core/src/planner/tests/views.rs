//! What an administrator sees of a planner.

use super::*;

fn grains(bench: &Bench, now: u64) -> Vec<GrainView<'_>> {
    let fleet = bench.planner.fleet(FLEET, at(now)).unwrap();
    fleet.grains().collect()
}

/// Zone, reporters, raw and smoothed demand.
fn demand<'a>(grain: &GrainView<'a>) -> Vec<(&'a str, u64, f64, f64)> {
    let row = |zone: ZoneDemand<'a>| {
        (
            zone.locality.zone(),
            zone.reporters,
            zone.raw_per_second,
            zone.smoothed_per_second,
        )
    };
    grain.demand().map(row).collect()
}

#[test]
fn a_new_planner_has_nothing_to_show() {
    let planner = Planner::new(PlannerConfig::default(), at(0));
    assert_eq!(planner.fleets(at(0)).count(), 0);
    assert!(planner.fleet(FLEET, at(0)).is_none());
}

#[test]
fn fleets_and_their_nodes_are_listed_in_order() {
    let mut bench = Bench::new();
    let elsewhere = Node {
        cluster: "batch".into(),
        ..node("z1", "c")
    };
    bench.report_stats(&elsewhere, &stats(ORDERS, 10, INTERVAL, "c"), at(0));
    bench.report("b1", "b", 0, 0);
    bench.report("a1", "a", 100, 2);
    let other = stats("other", 100, Duration::from_secs(20), "a");
    bench.report_stats(&node("a1", "a"), &other, at(3));
    bench.disconnect("b1", 4);
    let names = bench.planner.fleets(at(7)).map(|fleet| &**fleet.name());
    assert!(names.eq(["batch", FLEET]));
    let fleet = bench.planner.fleet(FLEET, at(7)).unwrap();
    let nodes: Vec<_> = fleet.nodes().collect();
    let secs = Duration::from_secs;
    assert_eq!(
        nodes,
        [
            NodeView {
                id: &"a1".into(),
                locality: &zone("a"),
                rate_per_second: 105.0,
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
fn grains_show_demand_as_it_is_and_as_it_is_followed() {
    let mut bench = Bench::new();
    let nodes = [("a1", "a", 100), ("a2", "a", 100), ("b1", "b", 100)];
    bench.steady(&nodes, 0, 40);
    bench.report("a1", "a", 300, 40);
    let other = stats("other", 100, INTERVAL, "a");
    bench.report_stats(&node("b1", "b"), &other, at(40));
    let upstreams = grains(&bench, 60);
    let names: Vec<_> = upstreams.iter().map(GrainView::upstream_cluster).collect();
    assert_eq!(
        names,
        [None, Some(&ORDERS.into()), Some(&"other".into())],
        "the fleet as a whole first"
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
    let mut bench = Bench::new();
    bench.report("a1", "a", 100, 0);
    let views = grains(&bench, 3);
    assert!(views.iter().all(GrainView::is_warming_up));
    bench.run(10);
    let views = grains(&bench, 17);
    assert!(!views.iter().any(GrainView::is_warming_up));
    for (view, upstream) in views.iter().zip([None, Some(ORDERS)]) {
        assert_eq!(view.plan(), bench.plan(upstream));
        assert_eq!(view.plan_age(), Some(Duration::from_secs(7)));
    }
    let early = grains(&bench, 0);
    assert_eq!(early[0].plan_age(), Some(Duration::ZERO), "time is steady");
}
