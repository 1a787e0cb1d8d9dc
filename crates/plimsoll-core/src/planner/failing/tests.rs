//! Tests of [`FailingZones`] on sums of reports.

use std::sync::Arc;

use super::*;
use crate::planner::outcomes::FleetOutcomes;

/// Zone of the proxies, upstream zone, requests that arrived, requests that failed.
type Reported = (&'static str, &'static str, u64, u64);

fn evaluate(failing: &mut FailingZones, reports: &[Reported], second: u64) -> String {
    let answered = |&(from, to, arrived, failed): &Reported| {
        let outcome = Outcome {
            arrived,
            ended: arrived,
            failed,
            in_progress: 0,
        };
        (from, to, outcome)
    };
    evaluate_outcomes(failing, reports.iter().map(answered), second)
}

fn evaluate_outcomes(
    failing: &mut FailingZones,
    reports: impl Iterator<Item = (&'static str, &'static str, Outcome)>,
    second: u64,
) -> String {
    let cluster: Arc<str> = "orders".into();
    let mut sums = FleetOutcomes::default();
    for (from, to, outcome) in reports {
        let report = [(Locality::zone_only(to), outcome)];
        sums.replace(&cluster, &Locality::zone_only(from), &[], &report);
    }
    let compared = sums.get(&Some(cluster)).map(compared);
    let now = Instant::from_secs(second);
    failing.evaluate(&compared.unwrap_or_default(), &BTreeSet::new(), now);
    let names: Vec<&str> = failing.zones().iter().map(Locality::zone).collect();
    names.join(",")
}

#[test]
fn a_zone_fails_by_more_than_chance_and_more_than_another() {
    let cases: [(&str, &[Reported], &str); 12] = [
        ("healthy", &[("a", "a", 100, 0), ("b", "b", 80, 0)], ""),
        (
            "refused",
            &[("a", "a", 100, 0), ("b", "b", 80, 80), ("c", "c", 50, 1)],
            "b",
        ),
        (
            "half of its hosts",
            &[("a", "a", 100, 0), ("b", "b", 80, 40), ("c", "c", 50, 0)],
            "b",
        ),
        (
            "a few errors",
            &[("a", "a", 100, 1), ("b", "b", 80, 12)],
            "",
        ),
        ("chance", &[("a", "a", 100, 0), ("b", "b", 3, 3)], ""),
        (
            "few requests",
            &[("a", "a", 10, 0), ("b", "b", 10, 10)],
            "b",
        ),
        (
            "the service fails, not a zone",
            &[("a", "a", 100, 95), ("b", "b", 80, 78)],
            "",
        ),
        (
            "two zones",
            &[("a", "a", 100, 0), ("b", "b", 80, 80), ("c", "c", 50, 50)],
            "b,c",
        ),
        (
            "three of four, with most of the requests",
            &[
                ("a", "a", 30, 0),
                ("b", "b", 300, 300),
                ("c", "c", 300, 300),
                ("d", "d", 300, 300),
            ],
            "b,c,d",
        ),
        ("nothing to compare with", &[("b", "b", 80, 80)], ""),
        (
            "only the link from a to b",
            &[
                ("a", "a", 800, 0),
                ("a", "b", 100, 100),
                ("b", "b", 900, 0),
                ("c", "c", 500, 0),
            ],
            "b",
        ),
        (
            "the proxies of a fail everywhere alike",
            &[
                ("a", "a", 800, 400),
                ("a", "b", 100, 50),
                ("b", "b", 900, 0),
                ("c", "c", 500, 0),
            ],
            "a",
        ),
    ];
    for (name, reports, expected) in cases {
        let seen = evaluate(&mut FailingZones::default(), reports, 0);
        assert_eq!(seen, expected, "{name}");
    }
}

#[test]
fn a_zone_fails_that_answers_nothing_while_others_answer() {
    let in_flight = |arrived| Outcome {
        arrived,
        ended: 0,
        failed: 0,
        in_progress: 0,
    };
    let answered = |arrived| Outcome {
        arrived,
        ended: arrived,
        failed: 0,
        in_progress: 0,
    };
    let mut failing = FailingZones::default();
    let hangs = [("a", "a", answered(100)), ("b", "b", in_flight(80))];
    assert_eq!(evaluate_outcomes(&mut failing, hangs.into_iter(), 0), "b");
    let mut failing = FailingZones::default();
    let slow = [("a", "a", in_flight(100)), ("b", "b", in_flight(80))];
    assert_eq!(evaluate_outcomes(&mut failing, slow.into_iter(), 0), "");
}

#[test]
fn a_zone_fails_if_a_part_of_it_never_answers() {
    /// Zone, requests that arrived, that ended, and that are in flight.
    type Unanswered = (&'static str, u64, u64, u64);
    let cases: [(&str, &[Unanswered], &str); 7] = [
        ("half", &[("a", 90, 90, 1), ("b", 80, 40, 40)], "b"),
        (
            "half for a while",
            &[("a", 90, 90, 1), ("b", 80, 40, 150)],
            "b",
        ),
        (
            "half of two",
            &[("a", 90, 90, 1), ("b", 80, 40, 40), ("c", 80, 40, 40)],
            "b,c",
        ),
        ("few", &[("a", 90, 90, 1), ("b", 10, 5, 5)], ""),
        (
            "slow since long",
            &[("a", 90, 90, 1), ("b", 80, 80, 80)],
            "",
        ),
        ("streams", &[("a", 50, 40, 900), ("b", 50, 20, 800)], ""),
        (
            "knows only what was issued",
            &[("a", 90, 90, 0), ("b", 80, 1, 0)],
            "",
        ),
    ];
    for (name, reports, expected) in cases {
        let outcome = |&(zone, arrived, ended, in_progress): &Unanswered| {
            let outcome = Outcome {
                arrived,
                ended,
                failed: 0,
                in_progress,
            };
            (zone, zone, outcome)
        };
        let reports = reports.iter().map(outcome);
        let seen = evaluate_outcomes(&mut FailingZones::default(), reports, 0);
        assert_eq!(seen, expected, "{name}");
    }
}

#[test]
fn a_failing_zone_recovers_after_a_while_without_failures() {
    let mut failing = FailingZones::default();
    let mut at = |reports: &[Reported], second| evaluate(&mut failing, reports, second);
    assert_eq!(at(&[("a", "a", 90, 0), ("b", "b", 90, 90)], 0), "b");
    assert_eq!(at(&[("a", "a", 90, 0), ("b", "b", 90, 22)], 10), "b");
    assert_eq!(at(&[("a", "a", 90, 0)], 39), "b");
    assert_eq!(at(&[("a", "a", 90, 0), ("b", "b", 90, 1)], 40), "");
    assert_eq!(failing.deadline(), None);
}

/// Only spilled requests use the link: it is tried less and less often.
#[test]
fn a_zone_that_fails_again_when_it_is_tried_is_tried_half_as_often() {
    let fails: [Reported; 3] = [("a", "a", 90, 0), ("a", "b", 30, 30), ("b", "b", 90, 0)];
    let not_tried: [Reported; 2] = [("a", "a", 90, 0), ("b", "b", 90, 0)];
    let mut failing = FailingZones::default();
    let mut held = Vec::new();
    let mut second = 0;
    for _ in 0..8 {
        assert_eq!(evaluate(&mut failing, &fails, second), "b");
        let failed_at = second;
        while evaluate(&mut failing, &not_tried, second) == "b" {
            second += 1;
        }
        held.push(second - failed_at);
        // The next report after demand steers again.
        second += 10;
    }
    assert_eq!(held, [30, 60, 120, 240, 480, 960, 960, 960]);
    second += 960;
    assert_eq!(evaluate(&mut failing, &not_tried, second), "");
    assert_eq!(evaluate(&mut failing, &fails, second), "b");
    assert_eq!(evaluate(&mut failing, &not_tried, second + 30), "");
}

#[test]
fn evaluations_are_a_second_apart_and_the_next_is_the_recovery() {
    let mut failing = FailingZones::default();
    assert!(failing.is_due(Instant::from_secs(1)));
    failing.evaluate(&[], &BTreeSet::new(), Instant::from_secs(1));
    assert_eq!(failing.deadline(), None);
    assert!(!failing.is_due(Instant::from_millis(1999)));
    assert_eq!(failing.deadline(), Some(Instant::from_secs(2)));
    assert!(failing.is_due(Instant::from_secs(2)));
    let fails: [Reported; 2] = [("a", "a", 90, 0), ("b", "b", 90, 90)];
    evaluate(&mut failing, &fails, 2);
    assert_eq!(failing.deadline(), Some(Instant::from_secs(32)));
}

#[test]
fn names_from_the_network_are_bounded_and_zones_with_proxies_stay() {
    let cluster: Arc<str> = "orders".into();
    let mut sums = FleetOutcomes::default();
    let outcome = |failed| Outcome {
        arrived: 100,
        ended: 100,
        failed,
        in_progress: 0,
    };
    let mut report = vec![(Locality::zone_only("a"), outcome(0))];
    let invented = |index| (Locality::zone_only(&format!("z{index}")), outcome(100));
    report.extend((0..2000).map(invented));
    sums.replace(&cluster, &Locality::zone_only("a"), &[], &report);
    let mut failing = FailingZones::default();
    let all = |sums: &FleetOutcomes, failing: &mut FailingZones, second| {
        let compared = compared(sums.get(&None).unwrap());
        let reporters = [Locality::zone_only("zone-b")].into();
        failing.evaluate(&compared, &reporters, Instant::from_secs(second));
    };
    all(&sums, &mut failing, 0);
    assert_eq!(failing.known.len(), MAX_ZONES);
    let zone_b = Locality::zone_only("zone-b");
    let dead = [(zone_b.clone(), outcome(100))];
    sums.replace(&cluster, &zone_b, &[], &dead);
    all(&sums, &mut failing, 1);
    assert_eq!(failing.known.len(), MAX_ZONES);
    assert!(failing.zones().contains(&zone_b), "it has proxies");
}
