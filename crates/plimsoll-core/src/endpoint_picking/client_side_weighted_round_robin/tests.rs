//! Tests of the rules of envoy-semantics §5.2 to §5.4, with numbers that can be checked by hand.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::model::client_side_weighted_round_robin::ClientSideWeightedRoundRobinParts;
use crate::model::orca::UtilizationPrecedence;

type Parts = ClientSideWeightedRoundRobinParts;

const BLACKOUT: Duration = Duration::from_secs(10);
const EXPIRATION: Duration = Duration::from_secs(180);

fn settings(parts: Parts) -> ClientSideWeightedRoundRobin {
    ClientSideWeightedRoundRobin::try_new(parts).unwrap()
}

fn penalty(penalty: f64) -> ClientSideWeightedRoundRobin {
    settings(Parts {
        error_utilization_penalty: Some(penalty),
        ..Parts::default()
    })
}

fn report(qps: f64, utilization: f64, eps: f64) -> OrcaLoadReport {
    OrcaLoadReport {
        rps_fractional: qps,
        application_utilization: utilization,
        eps,
        ..OrcaLoadReport::default()
    }
}

const fn at(second: u64) -> Instant {
    Instant::from_secs(second)
}

#[test]
fn a_weight_is_requests_per_second_at_full_utilization() {
    let none = penalty(0.0);
    assert_eq!(weight(&report(1000.0, 0.5, 0.0), &none), Ok(2000));
    assert_eq!(
        weight(&report(100.0, 2.5, 0.0), &none),
        Ok(40),
        "no upper bound"
    );
    assert_eq!(weight(&report(2.0, 3.0, 0.0), &none), Ok(0), "truncated");
    assert_eq!(weight(&report(8.0, 3.0, 0.0), &none), Ok(2), "truncated");
    assert_eq!(weight(&report(1e13, 1e-7, 0.0), &none), Ok(u32::MAX));
    assert_eq!(
        weight(&report(f64::MAX, f64::MIN_POSITIVE, 0.0), &none),
        Ok(u32::MAX)
    );
    let edge = f64::from(u32::MAX);
    assert_eq!(weight(&report(edge, 1.0, 0.0), &none), Ok(u32::MAX));
    assert_eq!(
        weight(&report(edge - 0.5, 1.0, 0.0), &none),
        Ok(u32::MAX - 1)
    );
}

#[test]
fn errors_count_as_utilization() {
    let failing = report(1000.0, 0.5, 100.0);
    assert_eq!(weight(&failing, &penalty(0.0)), Ok(2000), "off by default");
    assert_eq!(
        weight(&failing, &penalty(2.0)),
        Ok(1428),
        "1000 / (0.5 + 2 * 0.1)"
    );
    let nothing_but_errors = report(100.0, 0.0, 10.0);
    assert_eq!(weight(&nothing_but_errors, &penalty(1.0)), Ok(1000));
    assert_eq!(
        weight(&nothing_but_errors, &penalty(0.0)),
        Err(WeightError::UtilizationNotPositive)
    );
    let hopeless = report(1e-300, 0.5, f64::MAX);
    assert_eq!(
        weight(&hopeless, &penalty(f64::MAX)),
        Ok(0),
        "no NaN, no overflow"
    );
}

#[test]
fn reports_without_requests_or_utilization_are_errors() {
    let fault = |report: &OrcaLoadReport| weight(report, &penalty(1.0)).unwrap_err().to_string();
    for qps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(
            fault(&report(qps, 0.5, 0.0)),
            "QPS must be positive",
            "{qps}"
        );
    }
    for utilization in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let reason = fault(&report(10.0, utilization, 0.0));
        assert_eq!(reason, "Utilization must be positive", "{utilization}");
    }
    assert_eq!(
        fault(&report(0.0, 0.0, 0.0)),
        "QPS must be positive",
        "named first"
    );
}

#[test]
fn invalid_error_rates_are_ignored() {
    for eps in [0.0, -10.0, f64::NAN, f64::INFINITY] {
        assert_eq!(
            weight(&report(100.0, 0.5, eps), &penalty(1.0)),
            Ok(200),
            "{eps}"
        );
    }
}

#[test]
fn names_and_precedence_choose_the_utilization() {
    let named = |precedence| {
        settings(Parts {
            metric_names_for_computing_utilization: vec!["named_metrics.foo".into()],
            utilization_precedence: precedence,
            ..Parts::default()
        })
    };
    let mut report = report(100.0, 0.5, 0.0);
    report.named_metrics.insert("foo", 0.25);
    report.cpu_utilization = 0.1;
    let application_first = named(UtilizationPrecedence::ApplicationFirst);
    assert_eq!(weight(&report, &application_first), Ok(200));
    let names_first = named(UtilizationPrecedence::NamedMetricsFirst);
    assert_eq!(weight(&report, &names_first), Ok(400));
    assert_eq!(weight(&report, &settings(Parts::default())), Ok(200));
    report.application_utilization = 0.0;
    assert_eq!(weight(&report, &application_first), Ok(400));
    assert_eq!(
        weight(&report, &settings(Parts::default())),
        Ok(1000),
        "processor"
    );
}

#[test]
fn the_first_report_begins_the_blackout_and_later_ones_do_not() {
    let mut state = ClientWeight::default();
    state.on_report(7, at(5));
    state.on_report(9, at(8));
    let expected = ClientWeight {
        weight: 9,
        non_empty_since: Some(at(5)),
        last_update: Some(at(8)),
    };
    assert_eq!(state, expected);
}

#[test]
fn both_limits_are_inclusive() {
    let mut state = ClientWeight::default();
    state.on_report(42, at(100));
    let nano = Duration::from_nanos(1);
    let blackout_ends = at(110);
    let expires = at(280);
    let before = Instant::from_nanos(blackout_ends.as_nanos() - 1);
    assert_eq!(state.if_valid(BLACKOUT, EXPIRATION, before), None);
    assert_eq!(
        state.non_empty_since,
        Some(at(100)),
        "nothing is reset in a blackout"
    );
    assert_eq!(
        state.if_valid(BLACKOUT, EXPIRATION, blackout_ends),
        Some(42)
    );
    assert_eq!(state.if_valid(BLACKOUT, EXPIRATION, expires), Some(42));
    let later = expires.saturating_add(nano);
    assert_eq!(state.if_valid(BLACKOUT, EXPIRATION, later), None);
    assert_eq!(state.non_empty_since, None);
    assert_eq!(
        (state.weight, state.last_update),
        (42, Some(at(100))),
        "kept, not used"
    );
}

#[test]
fn a_report_after_expiry_begins_a_new_blackout() {
    let mut state = ClientWeight::default();
    state.on_report(42, at(0));
    let weight_at =
        |state: &mut ClientWeight, second| state.if_valid(BLACKOUT, EXPIRATION, at(second));
    assert_eq!(weight_at(&mut state, 180), Some(42));
    assert_eq!(weight_at(&mut state, 181), None, "expired");
    state.on_report(50, at(200));
    assert_eq!(weight_at(&mut state, 209), None, "blackout again");
    assert_eq!(weight_at(&mut state, 210), Some(50));
}

#[test]
fn a_report_before_expiry_begins_no_blackout() {
    let mut state = ClientWeight::default();
    state.on_report(42, at(0));
    state.on_report(43, at(181));
    assert_eq!(state.if_valid(BLACKOUT, EXPIRATION, at(181)), Some(43));
}

#[test]
fn blackout_is_checked_before_expiry() {
    // A weight that is old and still in its blackout is not reset, although it has expired too.
    let long = Duration::from_secs(1000);
    let mut state = ClientWeight::default();
    state.on_report(42, at(0));
    assert_eq!(state.if_valid(long, EXPIRATION, at(999)), None);
    assert_eq!(state.non_empty_since, Some(at(0)));
    assert_eq!(state.if_valid(long, EXPIRATION, at(1000)), None);
    assert_eq!(state.non_empty_since, None);
}

#[test]
fn periods_beyond_the_end_of_time_are_harmless() {
    let mut young = ClientWeight::default();
    young.on_report(42, at(0));
    assert_eq!(
        young.if_valid(BLACKOUT, EXPIRATION, at(5)),
        None,
        "5 s is less than 10 s"
    );
    assert_eq!(
        young.if_valid(Duration::ZERO, Duration::MAX, at(9_999)),
        Some(42)
    );
    assert_eq!(
        young.if_valid(Duration::MAX, Duration::ZERO, at(9_999)),
        None
    );
    assert_eq!(young.non_empty_since, Some(at(0)));
    assert_eq!(
        young.if_valid(Duration::ZERO, Duration::ZERO, at(0)),
        Some(42)
    );
    assert_eq!(young.if_valid(Duration::ZERO, Duration::ZERO, at(1)), None);
}

#[test]
fn a_missing_update_counts_as_expired() {
    let mut odd = ClientWeight {
        weight: 3,
        non_empty_since: Some(at(1)),
        last_update: None,
    };
    assert_eq!(odd.if_valid(BLACKOUT, EXPIRATION, at(60)), None);
    assert_eq!(odd.non_empty_since, None);
    assert_eq!(
        ClientWeight::default().if_valid(Duration::ZERO, EXPIRATION, at(60)),
        None
    );
}

#[test]
fn the_default_weight_is_the_median() {
    for (weights, median) in [
        (vec![], 1),
        (vec![7], 7),
        (vec![0], 0),
        (vec![5, 42], 23),
        (vec![42, 5], 23),
        (vec![30, 10, 20], 20),
        (vec![4, 1, 3, 2], 2),
        (vec![9, 9, 1, 9], 9),
        (vec![u32::MAX, u32::MAX - 2], u32::MAX - 1),
        (vec![u32::MAX, u32::MAX], u32::MAX),
    ] {
        assert_eq!(default_weight(&mut weights.clone()), median, "{weights:?}");
    }
}

proptest! {
    #[test]
    fn the_median_is_that_of_the_sorted_list(weights in vec(any::<u32>(), 1..20)) {
        let mut sorted = weights.clone();
        sorted.sort_unstable();
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let expected = (u64::from(lower) + u64::from(upper)) / 2;
        prop_assert_eq!(u64::from(default_weight(&mut weights.clone())), expected);
    }
}

/// Hosts of one priority: the slot with the reported weight, and the weight in force.
struct Hosts(Vec<(OrcaWeightSlot, AtomicU32)>);

impl Hosts {
    /// Creates hosts: `None` never reported; a weight was reported from second 5 to second 10.
    fn new(weights: &[Option<u32>]) -> Self {
        let slot = |weight: Option<u32>| match weight {
            Some(weight) => OrcaWeightSlot::from(ClientWeight {
                weight,
                non_empty_since: Some(at(5)),
                last_update: Some(at(10)),
            }),
            None => OrcaWeightSlot::default(),
        };
        let hosts = weights
            .iter()
            .map(|&weight| (slot(weight), AtomicU32::new(1)));
        Self(hosts.collect())
    }

    fn update(&self, updater: &mut WeightUpdater, now: Instant) -> (Vec<u32>, bool) {
        let hosts = self.0.iter().map(|(slot, weight)| (slot, weight));
        let changed = updater.update(hosts, &settings(Parts::default()), now);
        let weights = self
            .0
            .iter()
            .map(|(_, weight)| weight.load(Ordering::Relaxed));
        (weights.collect(), changed)
    }
}

#[test]
fn hosts_without_a_weight_get_the_median() {
    let update =
        |weights: &[Option<u32>]| Hosts::new(weights).update(&mut WeightUpdater::default(), at(30));
    let some = [Some(40), Some(41), Some(42)];
    assert_eq!(update(&some), (vec![40, 41, 42], true));
    assert_eq!(update(&[Some(42), None, None]), (vec![42; 3], true));
    assert_eq!(update(&[Some(5), Some(42), None]), (vec![5, 42, 23], true));
    let four = [Some(10), Some(20), Some(30), None];
    assert_eq!(update(&four), (vec![10, 20, 30, 20], true));
    assert_eq!(update(&[None, None]), (vec![1, 1], false));
    assert_eq!(update(&[]), (vec![], false));
}

#[test]
fn an_update_without_changes_returns_false() {
    let hosts = Hosts::new(&[Some(5), None]);
    let mut updater = WeightUpdater::default();
    assert_eq!(hosts.update(&mut updater, at(30)), (vec![5, 5], true));
    assert_eq!(hosts.update(&mut updater, at(31)), (vec![5, 5], false));
    assert_eq!(
        hosts.update(&mut updater, at(190)),
        (vec![5, 5], false),
        "not yet expired"
    );
    assert_eq!(hosts.update(&mut updater, at(191)), (vec![1, 1], true));
    assert_eq!(hosts.0[0].0.load().non_empty_since, None);
    assert_eq!(hosts.update(&mut updater, at(192)), (vec![1, 1], false));
}

#[test]
fn a_weight_of_zero_is_set_to_one_and_differs_every_time() {
    let hosts = Hosts::new(&[Some(0), Some(0), Some(4), None]);
    let mut updater = WeightUpdater::default();
    for second in 30..33 {
        let found = hosts.update(&mut updater, at(second));
        // The median of 0, 0, 4 is 0 as well.
        assert_eq!(found, (vec![1, 1, 4, 1], true));
    }
}

#[test]
fn weights_in_blackout_are_not_in_the_median() {
    let hosts = Hosts::new(&[Some(10), Some(30)]);
    let fresh = report(50.0, 1.0, 0.0);
    let (slot, _) = &hosts.0[1];
    // The second weight expires after 190 s; a report at 200 s makes it valid again at 210 s.
    let mut updater = WeightUpdater::default();
    let still = report(10.0, 1.0, 0.0);
    hosts.0[0]
        .0
        .observe(&still, &settings(Parts::default()), at(190))
        .unwrap();
    assert_eq!(hosts.update(&mut updater, at(195)), (vec![10, 10], true));
    slot.observe(&fresh, &settings(Parts::default()), at(200))
        .unwrap();
    assert_eq!(hosts.update(&mut updater, at(209)), (vec![10, 10], false));
    assert_eq!(hosts.update(&mut updater, at(210)), (vec![10, 50], true));
}

#[test]
fn one_updater_serves_priorities_of_any_size() {
    let mut updater = WeightUpdater::default();
    let large = Hosts::new(&[Some(9); 20]);
    assert_eq!(large.update(&mut updater, at(30)), (vec![9; 20], true));
    let small = Hosts::new(&[None, Some(3)]);
    assert_eq!(
        small.update(&mut updater, at(30)),
        (vec![3, 3], true),
        "no leftovers"
    );
}
