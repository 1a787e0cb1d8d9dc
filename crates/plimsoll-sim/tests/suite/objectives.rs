//! Bars of objectives and of learned capacity, on whole runs.

use crate::support::{events, metrics, report, rig};
use plimsoll_sim::scenario::HumanDuration;
use plimsoll_sim::{Policy, Report, Scenario, ScenarioParts, run};

/// Target of the waterfall, and how far a 5 s mean may exceed it.
const TARGET: f64 = 0.8;
const ABOVE: f64 = 0.03;
/// Second from which on zones are measured: proxies have reported, and averages have settled.
const SETTLED: u32 = 90;

/// Demand of 60/20/20 over three equal zones at several mean utilizations; ten minutes each.
fn waterfall(mean: f64) -> ScenarioParts {
    let mut parts = rig([60.0, 20.0, 20.0], mean);
    parts.duration = Some(HumanDuration::from_secs(600));
    parts.measure_from = Some(HumanDuration::from_secs(u64::from(SETTLED)));
    parts.control_plane.target_utilization = Some(TARGET);
    parts
}

/// Returns the highest utilization of a zone in a 5 s mean, once settled.
fn highest(report: &Report, policy: Policy) -> f64 {
    let csv = report.csv();
    let cells = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let own = cells.filter(|cells| cells[0] == policy.name());
    let settled = own.filter(|cells| cells[1].parse::<u32>().unwrap() >= SETTLED);
    // A zone without requests has no value.
    let values: Vec<f64> = settled.filter_map(|cells| cells[4].parse().ok()).collect();
    assert!(!values.is_empty(), "{csv}");
    values.into_iter().fold(0.0, f64::max)
}

/// The least share that has to cross: what zone a has above its bound.
fn needed(mean: f64) -> f64 {
    let bound = TARGET.max(mean) / 3.0 / mean;
    (0.6 - bound).max(0.0)
}

#[test]
fn a_waterfall_is_as_local_as_its_target_allows() {
    for mean in [0.3, 0.4, 0.5, 0.6, 0.7, 0.8] {
        let report = report(&waterfall(mean), &[Policy::LrsByReporter]);
        let row = &report.policies[0].metrics;
        let (found, needed) = (row.cross_zone_share, needed(mean));
        assert!(
            (found - needed).abs() <= 0.015,
            "{mean}: {found}, {needed} needed"
        );
        let highest = highest(&report, Policy::LrsByReporter);
        assert!(highest <= TARGET + ABOVE, "{mean}: a zone at {highest}");
        assert!(!row.oscillates, "{mean}");
    }
}

/// Requests arrive at random, and one zone is just at its target: 0.8 at a mean of 0.444.
#[test]
fn noise_at_the_target_is_no_swing() {
    let mut parts = waterfall(0.444);
    parts.traffic.arrivals = Some("poisson".to_owned());
    let row = metrics(&parts, Policy::LrsByReporter);
    assert!(!row.oscillates);
    assert!(row.cross_zone_share <= 0.015, "{}", row.cross_zone_share);
}

/// Stock Envoys, hosts of a half, one and twice the strength that nobody declared.
#[test]
fn learned_capacity_is_as_level_as_true_weights() {
    let text = include_str!("../../scenarios/heterogeneous-hosts-learned.toml");
    let parts: ScenarioParts = toml::from_str(text).unwrap();
    let scenario = Scenario::try_new(parts).unwrap();
    let report = run(&scenario, |_| {}).unwrap();
    assert!(report.passed(), "{:?}\n{}", report.checks, report.table());
    let of = |policy: Policy| {
        let found = report.policies.iter().find(|one| one.policy == policy);
        found.unwrap().metrics.max_over_mean_5s_avg
    };
    let (learned, truth) = (of(Policy::LrsByReporter), of(Policy::ZoneAwareWeights));
    assert!(
        learned <= truth + 0.03,
        "{learned}, with true weights {truth}\n{}",
        report.table()
    );
}

/// Without hosts that report nothing is learned, and host counts stay in force.
#[test]
fn without_reports_nothing_is_learned() {
    let text = include_str!("../../scenarios/heterogeneous-hosts-learned.toml");
    let silent = "[[event]]\nat = \"0s\"\nstop_reports = { for = \"360s\" }\n";
    let mut parts: ScenarioParts = toml::from_str(text).unwrap();
    parts.expect.clear();
    parts.event = events(silent);
    let silent = metrics(&parts, Policy::LrsByReporter);
    parts.event.clear();
    parts.control_plane.learned_capacity = false;
    let written = metrics(&parts, Policy::LrsByReporter);
    let difference = silent.max_over_mean_5s_avg - written.max_over_mean_5s_avg;
    assert!(difference.abs() < 0.02, "{difference}");
}
