//! Tests of rates per node: which reports count, for which zone, and until when.

#![expect(clippy::float_cmp, reason = "rates are exact")]

use super::*;
use crate::model::load_report::UpstreamLocalityStats;

fn node(id: &str, zone: &str) -> Node {
    Node {
        id: id.into(),
        cluster: "fleet".into(),
        locality: Locality::zone_only(zone),
    }
}

fn stats(cluster: &str, issued: u64, interval: Duration) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.into(),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            locality: Locality::zone_only("elsewhere"),
            total_issued_requests: issued,
            ..Default::default()
        }],
        total_dropped_requests: 0,
        load_report_interval: interval,
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn at(secs: u64) -> Instant {
    Instant::from_secs(secs)
}

/// Load reports that cover 10 s each, the default, unless stated otherwise.
#[derive(Default)]
struct Harness(Reports);

impl Harness {
    fn report(&mut self, id: &str, demand: (&str, &str, u64), now: u64) -> Reported {
        self.report_over(id, demand, secs(10), now)
    }

    fn report_over(
        &mut self,
        id: &str,
        demand: (&str, &str, u64),
        interval: Duration,
        now: u64,
    ) -> Reported {
        let config = PlannerConfig::default();
        let (zone, cluster, issued) = demand;
        self.0
            .handle_report(
                &node(id, zone),
                &[stats(cluster, issued, interval)],
                &config,
                at(now),
            )
            .unwrap()
    }

    fn deadline(&self, id: &str) -> Option<Instant> {
        self.0.deadline(id, &PlannerConfig::default())
    }

    fn expire(&mut self, id: &str, now: u64) -> Expired {
        self.0
            .expire(&id.into(), &PlannerConfig::default(), at(now))
    }

    /// What each node counts with, per second.
    fn counted(&self) -> Vec<(&str, f64)> {
        let views = self.0.views(at(0));
        views
            .map(|node| (&**node.id, node.counted_per_second))
            .collect()
    }
}

/// Zone, upstream cluster ("" = all), rate before and after the change.
fn table(changes: &[Change]) -> Vec<(&str, &str, Option<f64>, Option<f64>)> {
    changes
        .iter()
        .map(|change| {
            (
                change.locality.zone(),
                change.upstream_cluster.as_deref().unwrap_or(""),
                change.before.map(Rate::per_second),
                change.after.map(Rate::per_second),
            )
        })
        .collect()
}

#[test]
fn a_report_changes_both_sums_where_the_reporter_is() {
    let mut harness = Harness::default();
    let first = harness.report("n1", ("a", "orders", 100), 0);
    assert!(first.joined && first.moved_from.is_none());
    assert_eq!(
        table(&first.effects.changes),
        [
            ("a", "", None, Some(10.0)),
            ("a", "orders", None, Some(10.0))
        ]
    );
    let other = harness.report("n1", ("a", "users", 50), 0);
    assert!(!other.joined);
    assert_eq!(
        table(&other.effects.changes),
        [
            ("a", "", Some(10.0), Some(15.0)),
            ("a", "users", None, Some(5.0))
        ]
    );
    let next = harness.report("n1", ("a", "orders", 200), 10);
    assert_eq!(
        table(&next.effects.changes),
        [
            ("a", "", Some(15.0), Some(25.0)),
            ("a", "orders", Some(10.0), Some(20.0))
        ]
    );
}

#[test]
fn a_node_that_changes_zones_takes_all_its_demand_along() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 0);
    harness.report("n1", ("a", "users", 50), 0);
    let moved = harness.report("n1", ("b", "orders", 100), 10);
    assert_eq!(moved.moved_from, Some(Locality::zone_only("a")));
    assert_eq!(
        table(&moved.effects.changes),
        [
            ("a", "", Some(15.0), None),
            ("a", "orders", Some(10.0), None),
            ("a", "users", Some(5.0), None),
            ("b", "", None, Some(15.0)),
            ("b", "orders", None, Some(10.0)),
            ("b", "users", None, Some(5.0)),
        ]
    );
}

#[test]
fn three_missed_intervals_expire_a_report() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 5);
    assert_eq!(harness.deadline("n1"), Some(at(35)));
    let early = harness.expire("n1", 34);
    assert!(early.effects.changes.is_empty() && early.left.is_none());
    let expired = harness.expire("n1", 35);
    assert_eq!(
        table(&expired.effects.changes),
        [
            ("a", "", Some(10.0), None),
            ("a", "orders", Some(10.0), None)
        ]
    );
    let left = Some((Locality::zone_only("a"), LeaveReason::Silent));
    assert_eq!(expired.left, left);
    assert!(harness.0.is_empty());
    assert_eq!(harness.deadline("n1"), None);
}

#[test]
fn expiry_follows_each_nodes_own_interval() {
    let mut harness = Harness::default();
    harness.report_over("slow", ("a", "orders", 1), secs(30), 0);
    assert_eq!(harness.deadline("slow"), Some(at(90)));
    // A fast node is held to the requested interval until two reports have shown a shorter one.
    harness.report_over("fast", ("a", "orders", 1), secs(1), 0);
    assert_eq!(harness.deadline("fast"), Some(at(30)));
    harness.report_over("fast", ("a", "orders", 1), secs(1), 1);
    assert_eq!(harness.deadline("fast"), Some(at(4)));
}

#[test]
fn a_short_report_after_a_reconnect_does_not_shorten_the_deadline() {
    // After a reconnect Envoy first reports 5 s; its next report comes after the regular 30 s.
    let mut harness = Harness::default();
    harness.report_over("n1", ("a", "orders", 300), secs(30), 0);
    harness.report_over("n1", ("a", "orders", 300), secs(30), 30);
    harness.0.handle_disconnect("n1", at(35));
    let back = harness.report_over("n1", ("a", "orders", 50), secs(5), 40);
    assert_eq!(back.interval, secs(30));
    assert_eq!(harness.deadline("n1"), Some(at(130)));
    harness.report_over("n1", ("a", "orders", 300), secs(30), 70);
    assert_eq!(harness.deadline("n1"), Some(at(160)));
}

#[test]
fn an_implausibly_long_interval_has_a_rate_but_predicts_nothing() {
    let mut harness = Harness::default();
    let day = secs(86_400);
    let reported = harness.report_over("n1", ("a", "orders", 864_000), day, 0);
    assert_eq!(table(&reported.effects.changes)[1].3, Some(10.0));
    assert_eq!(harness.deadline("n1"), Some(at(30)));
}

#[test]
fn a_zero_report_is_valid_while_the_stream_is_open() {
    let mut harness = Harness::default();
    harness.report("grpc", ("a", "orders", 100), 0);
    let idle = harness.report("grpc", ("a", "orders", 0), 10);
    assert_eq!(
        table(&idle.effects.changes)[1],
        ("a", "orders", Some(10.0), Some(0.0))
    );
    assert_eq!(harness.deadline("grpc"), Some(at(3610)));
    assert!(harness.expire("grpc", 3609).effects.changes.is_empty());
    // The stream closes: the node still has one interval to come back.
    harness.0.handle_disconnect("grpc", at(3000));
    assert_eq!(harness.deadline("grpc"), Some(at(3010)));
    assert!(harness.expire("grpc", 3009).left.is_none());
    let left = harness.expire("grpc", 3010).left;
    assert_eq!(left.unwrap().1, LeaveReason::Disconnected);
}

#[test]
fn an_idle_node_expires_after_an_hour() {
    let mut harness = Harness::default();
    harness.report("grpc", ("a", "orders", 0), 10);
    assert!(harness.expire("grpc", 3609).left.is_none());
    let left = harness.expire("grpc", 3610).left;
    assert_eq!(left.unwrap().1, LeaveReason::Silent);
}

#[test]
fn an_interval_counts_at_most_three_times_the_requested_one() {
    let mut harness = Harness::default();
    let reported = harness.report_over("n1", ("a", "orders", 36_000), secs(3600), 0);
    assert_eq!(
        table(&reported.effects.changes)[1].3,
        Some(10.0),
        "the rate is exact"
    );
    assert_eq!(reported.interval, secs(3600), "all of it was covered");
    assert_eq!(harness.deadline("n1"), Some(at(90)));
    harness.0.handle_disconnect("n1", at(1));
    assert_eq!(harness.deadline("n1"), Some(at(31)));
    // Asked for a minute, the node may take three.
    harness.report_over("n2", ("a", "orders", 1), secs(10), 0);
    harness.0.handle_report_interval("n2", secs(60), at(0));
    harness.report_over("n2", ("a", "orders", 1), secs(600), 60);
    assert_eq!(harness.deadline("n2"), Some(at(60 + 3 * 180)));
}

#[test]
fn zero_reports_expire_with_a_silent_busy_node() {
    // Envoy reports idle clusters too. If Envoy hangs, its zeros must not keep its zone known.
    let mut harness = Harness::default();
    for now in [0, 10] {
        harness.report("envoy", ("a", "orders", 100), now);
        harness.report("envoy", ("a", "idle", 0), now);
    }
    assert_eq!(harness.deadline("envoy"), Some(at(40)));
    let expired = harness.expire("envoy", 40);
    assert_eq!(expired.left.unwrap().1, LeaveReason::Silent);
    // The zero report expires as well if its interval is longer than that of the others.
    harness.report("envoy", ("a", "orders", 100), 100);
    harness.report_over("envoy", ("a", "idle", 0), secs(30), 100);
    assert!(harness.expire("envoy", 130).left.is_none());
    assert_eq!(harness.deadline("envoy"), Some(at(190)));
}

#[test]
fn a_closed_stream_has_one_interval_to_come_back() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 0);
    assert!(harness.0.handle_disconnect("n1", at(4)));
    assert!(
        harness.0.handle_disconnect("n1", at(9)),
        "a repeated disconnect counts from the first"
    );
    assert_eq!(harness.deadline("n1"), Some(at(14)));
    harness.report("n1", ("a", "orders", 100), 13);
    assert_eq!(harness.deadline("n1"), Some(at(43)));
    // The stream closes just before the silent node expires: its deadline does not move.
    harness.0.handle_disconnect("n1", at(42));
    assert_eq!(harness.deadline("n1"), Some(at(43)));
    assert!(!harness.0.handle_disconnect("nobody", at(42)));
}

#[test]
fn reports_of_one_node_expire_independently() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 0);
    harness.report("n1", ("a", "users", 50), 0);
    harness.report("n1", ("a", "users", 50), 10);
    assert_eq!(harness.deadline("n1"), Some(at(30)));
    let expired = harness.expire("n1", 30);
    assert_eq!(
        table(&expired.effects.changes),
        [
            ("a", "", Some(15.0), Some(5.0)),
            ("a", "orders", Some(10.0), None)
        ]
    );
    assert_eq!(expired.left, None);
    assert_eq!(harness.deadline("n1"), Some(at(40)));
}

#[test]
fn implausible_reports_change_nothing() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 0);
    let config = PlannerConfig::default();
    let mut ignored = |node: Node, stats: ClusterStats| {
        let result = harness.0.handle_report(&node, &[stats], &config, at(10));
        match result {
            Err(reason) => reason,
            Ok(reported) => {
                assert!(reported.effects.changes.is_empty() && !reported.joined);
                let [(cluster, reason)] = &reported.ignored[..] else {
                    panic!("{reported:?}");
                };
                assert_eq!(&**cluster, "orders");
                *reason
            }
        }
    };
    let good = || stats("orders", 100, secs(10));
    let n1 = || node("n1", "a");
    for interval in [
        Duration::ZERO,
        Duration::from_micros(1),
        Duration::from_millis(9),
    ] {
        let reason = ignored(n1(), stats("orders", 1, interval));
        assert_eq!(reason, IgnoreReason::ImplausibleInterval, "{interval:?}");
    }
    let absurd = stats("orders", u64::MAX, secs(1));
    assert_eq!(ignored(n1(), absurd), IgnoreReason::ImplausibleRate);
    assert_eq!(ignored(node("", "a"), good()), IgnoreReason::NodeWithoutId);
    assert_eq!(
        ignored(node("n2", ""), good()),
        IgnoreReason::NodeWithoutLocality
    );
    assert_eq!(
        harness.deadline("n1"),
        Some(at(30)),
        "not even the deadline"
    );
    assert_eq!(harness.deadline("n2"), None);
}

#[test]
fn an_unusable_cluster_of_a_report_does_not_spoil_the_others() {
    let mut reports = Reports::default();
    let clusters = [
        stats("orders", 100, secs(10)),
        stats("users", 1, Duration::ZERO),
        stats("carts", 50, secs(10)),
    ];
    let config = PlannerConfig::default();
    let reported = reports
        .handle_report(&node("n1", "a"), &clusters, &config, at(0))
        .unwrap();
    let ignored = ("users".into(), IgnoreReason::ImplausibleInterval);
    assert_eq!(reported.ignored, [ignored]);
    assert_eq!(
        table(&reported.effects.changes),
        [
            ("a", "", None, Some(15.0)),
            ("a", "carts", None, Some(5.0)),
            ("a", "orders", None, Some(10.0)),
        ]
    );
}

/// Three honest nodes at 16 requests per second, whose median needs no rounding.
fn fleet_of_three() -> Harness {
    let mut harness = Harness::default();
    for id in ["n1", "n2", "n3"] {
        harness.report(id, ("a", "orders", 160), 0);
    }
    harness
}

#[test]
fn a_node_counts_at_most_twenty_times_the_median() {
    let mut harness = fleet_of_three();
    // The median of 16, rounded up to five bits of millionths, times 20.
    let cap = 16.252_928 * 20.0;
    let heavy = harness.report("heavy", ("b", "orders", 3_200), 0);
    assert!(heavy.effects.capped.is_empty(), "twenty times is allowed");
    let liar = harness.report("liar", ("b", "orders", 10_000_000), 0);
    let [capped] = &liar.effects.capped[..] else {
        panic!("{:?}", liar.effects.capped);
    };
    assert_eq!((&*capped.node, capped.locality.zone()), ("liar", "b"));
    assert_eq!(capped.reported.per_second(), 1e6);
    assert_eq!(capped.counted.per_second(), cap);
    assert_eq!(
        table(&liar.effects.changes),
        [("b", "", None, Some(cap)), ("b", "orders", None, Some(cap))]
    );
    let again = harness.report("liar", ("b", "orders", 20_000_000), 10);
    assert!(again.effects.capped.is_empty(), "said once");
    let sums = [
        ("heavy", 320.0),
        ("liar", cap),
        ("n1", 16.0),
        ("n2", 16.0),
        ("n3", 16.0),
    ];
    assert_eq!(harness.counted(), sums);
}

#[test]
fn clusters_of_a_capped_node_count_in_proportion() {
    let mut harness = fleet_of_three();
    let cap = 16.252_928 * 20.0;
    harness.report("liar", ("b", "orders", 1_000_000), 0);
    let more = harness.report("liar", ("b", "users", 3_000_000), 0);
    assert_eq!(
        table(&more.effects.changes),
        [
            ("b", "", Some(cap), Some(cap)),
            ("b", "orders", Some(cap), Some(cap / 4.0)),
            ("b", "users", None, Some(cap * 3.0 / 4.0)),
        ]
    );
    // Honest again: everything counts with its rate.
    let honest = harness.report("liar", ("b", "users", 0), 10);
    assert_eq!(table(&honest.effects.changes)[0].3, Some(cap));
    let honest = harness.report("liar", ("b", "orders", 100), 10);
    assert_eq!(
        table(&honest.effects.changes),
        [
            ("b", "", Some(cap), Some(10.0)),
            ("b", "orders", Some(cap), Some(10.0)),
        ]
    );
}

#[test]
fn one_or_two_nodes_are_not_capped_and_a_third_one_caps_them() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 10), 0);
    harness.report("n2", ("a", "orders", 10_000_000), 0);
    assert_eq!(harness.counted(), [("n1", 1.0), ("n2", 1e6)]);
    let third = harness.report("n3", ("a", "orders", 10), 0);
    let [capped] = &third.effects.capped[..] else {
        panic!("{:?}", third.effects.capped);
    };
    assert_eq!(&*capped.node, "n2");
    let counted = capped.counted.per_second();
    assert!((20.0..=21.25).contains(&counted), "{counted}");
    // The third one leaves, and nobody can tell who is wrong.
    let gone = harness.expire("n3", 30);
    assert_eq!(gone.left.unwrap().1, LeaveReason::Silent);
    assert_eq!(harness.counted()[1], ("n2", 1e6));
    assert!(table(&gone.effects.changes).contains(&("a", "", Some(counted), Some(1e6))));
}

#[test]
fn a_cap_follows_the_median() {
    let mut harness = fleet_of_three();
    harness.report("liar", ("b", "orders", 10_000_000), 0);
    let before = harness.counted()[0].1;
    for id in ["n1", "n2", "n3"] {
        harness.report(id, ("a", "orders", 320), 10);
    }
    let after = harness.counted()[0].1;
    assert_eq!((after, before), (2.0 * before, 16.252_928 * 20.0));
}

#[test]
fn of_two_nodes_in_a_zone_one_with_nine_tenths_is_named() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 0);
    assert_eq!(harness.0.dominant_nodes(), [], "alone");
    harness.report("n2", ("a", "orders", 900), 0);
    assert_eq!(harness.0.dominant_nodes(), [], "exactly nine tenths");
    harness.report("n2", ("a", "orders", 910), 10);
    let named: Vec<_> = harness
        .0
        .dominant_nodes()
        .iter()
        .map(|node| node.id.to_string())
        .collect();
    assert_eq!(named, ["n2"]);
    harness.report("n1", ("a", "orders", 0), 20);
    assert_eq!(harness.0.dominant_nodes(), [], "the other one is idle");
}

#[test]
fn a_node_with_most_of_a_zone_is_named_if_the_zone_has_three() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 0);
    harness.report("n2", ("a", "orders", 900), 0);
    harness.report("n3", ("b", "orders", 100), 0);
    assert_eq!(harness.0.dominant_nodes(), [], "two nodes");
    harness.report("n4", ("a", "orders", 800), 0);
    assert_eq!(harness.0.dominant_nodes(), [], "exactly half");
    harness.report("n2", ("a", "orders", 1800), 10);
    let dominant = harness.0.dominant_nodes();
    let [node] = &dominant[..] else {
        panic!("{dominant:?}");
    };
    assert_eq!((&**node.id, node.locality.zone()), ("n2", "a"));
    assert_eq!(
        (node.counted_per_second, node.zone_per_second),
        (180.0, 270.0)
    );
    assert_eq!(harness.0.nodes_with_demand(), 4);
}
