//! Tests of rates per node: which reports count, for which zone, and until when.

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
                &stats(cluster, issued, interval),
                &config,
                at(now),
            )
            .unwrap()
    }

    fn deadline(&self, id: &str) -> Option<Instant> {
        self.0.deadline(id, 3)
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
        table(&first.changes),
        [
            ("a", "", None, Some(10.0)),
            ("a", "orders", None, Some(10.0))
        ]
    );
    let other = harness.report("n1", ("a", "users", 50), 0);
    assert!(!other.joined);
    assert_eq!(
        table(&other.changes),
        [
            ("a", "", Some(10.0), Some(15.0)),
            ("a", "users", None, Some(5.0))
        ]
    );
    let next = harness.report("n1", ("a", "orders", 200), 10);
    assert_eq!(
        table(&next.changes),
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
        table(&moved.changes),
        [
            ("a", "", Some(15.0), None),
            ("b", "", None, Some(15.0)),
            ("a", "orders", Some(10.0), None),
            ("b", "orders", None, Some(10.0)),
            ("a", "users", Some(5.0), None),
            ("b", "users", None, Some(5.0)),
            ("b", "", Some(15.0), Some(15.0)),
            ("b", "orders", Some(10.0), Some(10.0)),
        ]
    );
}

#[test]
fn three_missed_intervals_expire_a_report() {
    let mut harness = Harness::default();
    harness.report("n1", ("a", "orders", 100), 5);
    assert_eq!(harness.deadline("n1"), Some(at(35)));
    let early = harness.0.expire("n1", 3, at(34));
    assert!(early.changes.is_empty() && early.left.is_none());
    let expired = harness.0.expire("n1", 3, at(35));
    assert_eq!(
        table(&expired.changes),
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
    assert_eq!(table(&reported.changes)[1].3, Some(10.0));
    assert_eq!(harness.deadline("n1"), Some(at(30)));
}

#[test]
fn a_zero_report_is_valid_while_the_stream_is_open() {
    let mut harness = Harness::default();
    harness.report("grpc", ("a", "orders", 100), 0);
    let idle = harness.report("grpc", ("a", "orders", 0), 10);
    assert_eq!(
        table(&idle.changes)[1],
        ("a", "orders", Some(10.0), Some(0.0))
    );
    assert_eq!(harness.deadline("grpc"), None);
    assert!(harness.0.expire("grpc", 3, at(100_000)).changes.is_empty());
    // An hour later the stream closes: the node still has one interval to come back.
    harness.0.handle_disconnect("grpc", at(3600));
    assert_eq!(harness.deadline("grpc"), Some(at(3610)));
    assert!(harness.0.expire("grpc", 3, at(3609)).left.is_none());
    let left = harness.0.expire("grpc", 3, at(3610)).left;
    assert_eq!(left.unwrap().1, LeaveReason::Disconnected);
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
    let expired = harness.0.expire("envoy", 3, at(40));
    assert_eq!(expired.left.unwrap().1, LeaveReason::Silent);
    // The zero report expires as well if its interval is longer than that of the others.
    harness.report("envoy", ("a", "orders", 100), 100);
    harness.report_over("envoy", ("a", "idle", 0), secs(30), 100);
    assert!(harness.0.expire("envoy", 3, at(130)).left.is_none());
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
    let expired = harness.0.expire("n1", 3, at(30));
    assert_eq!(
        table(&expired.changes),
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
        let result = harness.0.handle_report(&node, &stats, &config, at(10));
        result.unwrap_err()
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
fn sums_stay_exact() {
    let mut sum = Rate::default();
    let third = Rate::from_stats(&stats("orders", 1, secs(3))).unwrap();
    let tenth = Rate::from_stats(&stats("orders", 1, secs(10))).unwrap();
    for _ in 0..1000 {
        sum.add(third);
        sum.add(tenth);
        sum.subtract(third);
    }
    assert_eq!(sum, Rate(100_000_000));
    (0..1000).for_each(|_| sum.subtract(tenth));
    assert_eq!(sum, Rate::default());
}
