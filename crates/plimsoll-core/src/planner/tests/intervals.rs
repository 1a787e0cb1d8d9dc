//! Tests of nodes that are asked to report at another interval.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn left(harness: &Harness) -> Vec<&str> {
    let mut left = Vec::new();
    for event in &harness.events {
        if let PlannerEvent::NodeLeft { node, .. } = event {
            left.push(&**node);
        }
    }
    left
}

impl Harness {
    fn ask_all(&mut self, interval: Duration, now: u64) {
        let result = self.planner.set_default_report_interval(interval, at(now));
        result.unwrap();
        self.drain(at(now));
    }

    /// Sends one report of `node` over `covered`, at 100 requests per second.
    fn report_over(&mut self, id: &str, zone_name: &str, covered: Duration, now: u64) {
        let stats = stats(ORDERS, 100 * covered.as_secs(), covered, "anywhere");
        self.report_stats(&node(id, zone_name), &stats, at(now));
    }
}

#[test]
fn an_unannounced_longer_interval_looks_like_silence() {
    let mut harness = Harness::new();
    harness.steady(&[("a1", "a", 100)], 0, 20);
    harness.run(69);
    assert_eq!(left(&harness), ["a1"], "what the notice is for");
}

#[test]
fn nodes_do_not_expire_while_their_interval_grows() {
    for missed in [1, 3] {
        let mut harness = Harness::with(|parts| parts.missed_intervals = Some(missed));
        harness.report("a1", "a", 100, 0);
        harness.report("b1", "b", 100, 5);
        harness.ask_all(MINUTE, 9);
        // A node restarts its timer when it receives the new interval.
        for now in [69, 129, 189] {
            harness.run(now - 1);
            assert_eq!(left(&harness), [""; 0], "at {now}, {missed} missed");
            harness.report_over("a1", "a", MINUTE, now);
            harness.report_over("b1", "b", MINUTE, now);
        }
        let tolerance = 60 * u64::from(missed);
        harness.run(189 + tolerance - 1);
        assert_eq!(left(&harness), [""; 0]);
        harness.run(189 + tolerance);
        assert_eq!(left(&harness), ["a1", "b1"]);
        assert_eq!(harness.planner.poll_timeout(), None);
    }
}

#[test]
fn a_report_in_flight_does_not_restore_the_old_interval() {
    let mut harness = Harness::new();
    harness.steady(&[("a1", "a", 100)], 0, 20);
    harness.ask_all(MINUTE, 20);
    harness.report("a1", "a", 100, 21);
    harness.run(80);
    harness.report_over("a1", "a", MINUTE, 80);
    assert_eq!(left(&harness), [""; 0]);
}

#[test]
fn a_shorter_interval_is_believed_once_reports_follow_it() {
    let mut harness = Harness::with(|parts| parts.default_report_interval = Some(MINUTE));
    harness.report_over("a1", "a", MINUTE, 0);
    harness.report_over("b1", "b", MINUTE, 0);
    harness.ask_all(INTERVAL, 1);
    harness.report("a1", "a", 100, 11);
    harness.run(40);
    assert_eq!(left(&harness), [""; 0]);
    harness.run(41);
    assert_eq!(left(&harness), ["a1"]);
    harness.run(181);
    assert_eq!(
        left(&harness),
        ["a1", "b1"],
        "it may never have heard of it"
    );
}

#[test]
fn the_new_default_applies_to_new_nodes() {
    let mut harness = Harness::new();
    harness.ask_all(MINUTE, 0);
    assert_eq!(harness.planner.config().default_report_interval(), MINUTE);
    // The first report covers the few seconds since the node's retry.
    harness.report_over("a1", "a", Duration::from_secs(2), 0);
    harness.run(179);
    assert_eq!(left(&harness), [""; 0]);
    harness.run(180);
    assert_eq!(left(&harness), ["a1"]);
}

#[test]
fn a_single_node_can_be_asked() {
    let mut harness = Harness::new();
    harness.report("a1", "a", 100, 0);
    harness.report("b1", "b", 100, 0);
    harness
        .planner
        .handle_report_interval("a1", FLEET, MINUTE, at(5));
    harness
        .planner
        .handle_report_interval("a1", "other", MINUTE, at(5));
    harness
        .planner
        .handle_report_interval("c1", FLEET, MINUTE, at(5));
    harness.run(30);
    assert_eq!(left(&harness), ["b1"]);
    // A report about a cluster that the node has not reported about before.
    let other = stats("other", 20, Duration::from_secs(2), "a");
    harness.report_stats(&node("a1", "a"), &other, at(31));
    harness.run(184);
    assert_eq!(left(&harness), ["b1"]);
    harness.run(31 + 180);
    assert_eq!(left(&harness), ["b1", "a1"]);
}

#[test]
fn asking_again_for_the_same_interval_does_not_keep_a_silent_node() {
    let mut harness = Harness::new();
    harness.report("a1", "a", 100, 0);
    for now in 1..=180 {
        harness.run(now);
        harness.ask_all(MINUTE, now);
    }
    assert_eq!(left(&harness), [""; 0]);
    harness.run(181);
    assert_eq!(left(&harness), ["a1"]);
}

#[test]
fn asking_a_disconnected_node_changes_nothing() {
    let mut harness = Harness::new();
    harness.report("a1", "a", 100, 0);
    harness.disconnect("a1", 5);
    harness.ask_all(MINUTE, 6);
    harness.run(15);
    assert_eq!(left(&harness), ["a1"]);
}

#[test]
fn an_interval_out_of_range_changes_nothing() {
    let mut harness = Harness::new();
    harness.report("a1", "a", 100, 0);
    let error = harness
        .planner
        .set_default_report_interval(Duration::ZERO, at(1))
        .unwrap_err();
    assert_eq!(error.path(), "default_report_interval");
    assert_eq!(harness.planner.config().default_report_interval(), INTERVAL);
    harness.run(30);
    assert_eq!(left(&harness), ["a1"]);
}

/// After an outage, a first report covers all of it and does not predict when other nodes report.
#[test]
fn a_long_outage_does_not_lengthen_the_warm_up() {
    let mut harness = Harness::new();
    harness.report_over("a1", "a", 10 * MINUTE, 0);
    harness.report_over("b1", "b", 10 * MINUTE, 1);
    assert!(harness.plan(None).unwrap().warming_up);
    harness.run(29);
    assert!(harness.plan(None).unwrap().warming_up);
    harness.run(30);
    assert!(!harness.plan(None).unwrap().warming_up);
    assert_eq!(harness.fractions(None), rows(&[("a", 5000), ("b", 5000)]));
}
