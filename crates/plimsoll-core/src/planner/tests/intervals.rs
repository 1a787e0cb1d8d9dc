//! Nodes that are asked for reports at another interval than before.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn left(bench: &Bench) -> Vec<&str> {
    let mut left = Vec::new();
    for event in &bench.events {
        if let PlannerEvent::NodeLeft { node, .. } = event {
            left.push(&**node);
        }
    }
    left
}

impl Bench {
    fn ask_all(&mut self, interval: Duration, now: u64) {
        let result = self.planner.set_default_report_interval(interval, at(now));
        result.unwrap();
        self.drain(at(now));
    }

    /// One report of `node` over `covered`, at 100 requests per second.
    fn report_over(&mut self, id: &str, zone_name: &str, covered: Duration, now: u64) {
        let stats = stats(ORDERS, 100 * covered.as_secs(), covered, "anywhere");
        self.report_stats(&node(id, zone_name), &stats, at(now));
    }
}

#[test]
fn without_notice_a_longer_interval_looks_like_silence() {
    let mut bench = Bench::new();
    bench.steady(&[("a1", "a", 100)], 0, 20);
    bench.run(69);
    assert_eq!(left(&bench), ["a1"], "what the notice is for");
}

#[test]
fn nodes_stay_while_their_interval_grows() {
    for missed in [1, 3] {
        let mut bench = Bench::with(|parts| parts.missed_intervals = Some(missed));
        bench.report("a1", "a", 100, 0);
        bench.report("b1", "b", 100, 5);
        bench.ask_all(MINUTE, 9);
        // The timer of a node starts anew when it hears of the interval.
        for now in [69, 129, 189] {
            bench.run(now - 1);
            assert_eq!(left(&bench), [""; 0], "at {now}, {missed} missed");
            bench.report_over("a1", "a", MINUTE, now);
            bench.report_over("b1", "b", MINUTE, now);
        }
        let patience = 60 * u64::from(missed);
        bench.run(189 + patience - 1);
        assert_eq!(left(&bench), [""; 0]);
        bench.run(189 + patience);
        assert_eq!(left(&bench), ["a1", "b1"]);
        assert_eq!(bench.planner.poll_timeout(), None);
    }
}

#[test]
fn a_report_that_was_under_way_does_not_bring_the_old_interval_back() {
    let mut bench = Bench::new();
    bench.steady(&[("a1", "a", 100)], 0, 20);
    bench.ask_all(MINUTE, 20);
    bench.report("a1", "a", 100, 21);
    bench.run(80);
    bench.report_over("a1", "a", MINUTE, 80);
    assert_eq!(left(&bench), [""; 0]);
}

#[test]
fn a_shorter_interval_is_believed_once_reports_follow_it() {
    let mut bench = Bench::with(|parts| parts.default_report_interval = Some(MINUTE));
    bench.report_over("a1", "a", MINUTE, 0);
    bench.report_over("b1", "b", MINUTE, 0);
    bench.ask_all(INTERVAL, 1);
    bench.report("a1", "a", 100, 11);
    bench.run(40);
    assert_eq!(left(&bench), [""; 0]);
    bench.run(41);
    assert_eq!(left(&bench), ["a1"]);
    bench.run(181);
    assert_eq!(left(&bench), ["a1", "b1"], "it may never have heard of it");
}

#[test]
fn the_new_default_holds_for_nodes_to_come() {
    let mut bench = Bench::new();
    bench.ask_all(MINUTE, 0);
    assert_eq!(bench.planner.config().default_report_interval(), MINUTE);
    // The first report covers the few seconds since the node's retry.
    bench.report_over("a1", "a", Duration::from_secs(2), 0);
    bench.run(179);
    assert_eq!(left(&bench), [""; 0]);
    bench.run(180);
    assert_eq!(left(&bench), ["a1"]);
}

#[test]
fn one_node_alone_can_be_asked() {
    let mut bench = Bench::new();
    bench.report("a1", "a", 100, 0);
    bench.report("b1", "b", 100, 0);
    bench.planner.handle_interval("a1", FLEET, MINUTE, at(5));
    bench.planner.handle_interval("a1", "other", MINUTE, at(5));
    bench.planner.handle_interval("c1", FLEET, MINUTE, at(5));
    bench.run(30);
    assert_eq!(left(&bench), ["b1"]);
    // A cluster it has not reported about before.
    let other = stats("other", 20, Duration::from_secs(2), "a");
    bench.report_stats(&node("a1", "a"), &other, at(31));
    bench.run(184);
    assert_eq!(left(&bench), ["b1"]);
    bench.run(31 + 180);
    assert_eq!(left(&bench), ["b1", "a1"]);
}

#[test]
fn asking_again_for_the_same_keeps_no_silent_node() {
    let mut bench = Bench::new();
    bench.report("a1", "a", 100, 0);
    for now in 1..=180 {
        bench.run(now);
        bench.ask_all(MINUTE, now);
    }
    assert_eq!(left(&bench), [""; 0]);
    bench.run(181);
    assert_eq!(left(&bench), ["a1"]);
}

#[test]
fn a_node_without_a_stream_hears_nothing() {
    let mut bench = Bench::new();
    bench.report("a1", "a", 100, 0);
    bench.disconnect("a1", 5);
    bench.ask_all(MINUTE, 6);
    bench.run(15);
    assert_eq!(left(&bench), ["a1"]);
}

#[test]
fn an_interval_out_of_range_changes_nothing() {
    let mut bench = Bench::new();
    bench.report("a1", "a", 100, 0);
    let error = bench
        .planner
        .set_default_report_interval(Duration::ZERO, at(1))
        .unwrap_err();
    assert_eq!(error.path(), "default_report_interval");
    assert_eq!(bench.planner.config().default_report_interval(), INTERVAL);
    bench.run(30);
    assert_eq!(left(&bench), ["a1"]);
}

/// After an outage a first report covers all of it, and says nothing about when the others report.
#[test]
fn a_long_outage_does_not_make_a_long_warm_up() {
    let mut bench = Bench::new();
    bench.report_over("a1", "a", 10 * MINUTE, 0);
    bench.report_over("b1", "b", 10 * MINUTE, 1);
    assert!(bench.plan(None).unwrap().warming_up);
    bench.run(29);
    assert!(bench.plan(None).unwrap().warming_up);
    bench.run(30);
    assert!(!bench.plan(None).unwrap().warming_up);
    assert_eq!(bench.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
}
