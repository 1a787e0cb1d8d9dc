//! Scenarios and helpers shared by the tests of whole runs.

use plimsoll_sim::metrics::Metrics;
use plimsoll_sim::scenario::HumanDuration;
use plimsoll_sim::scenario::parts::{EventParts, HostGroupParts, ZoneParts};
use plimsoll_sim::{Policy, Report, Scenario, ScenarioParts, run};

/// The skews of the measurements.
pub(crate) const SKEWS: [[f64; 3]; 3] =
    [[60.0, 20.0, 20.0], [50.0, 25.0, 25.0], [45.0, 35.0, 20.0]];

/// Returns the setup of the measurements: three zones, four hosts of 30 requests/s each, one proxy
/// per zone.
pub(crate) fn rig(demand: [f64; 3], mean_utilization: f64) -> ScenarioParts {
    let zone = |(name, demand): (&str, f64)| ZoneParts {
        name: name.into(),
        demand,
        hosts: vec![HostGroupParts {
            count: 4,
            capacity: 30.0,
            weight: None,
        }],
        ..Default::default()
    };
    let mut parts = ScenarioParts {
        duration: Some(HumanDuration::from_secs(120)),
        zone: ["a", "b", "c"].into_iter().zip(demand).map(zone).collect(),
        ..Default::default()
    };
    parts.traffic.mean_utilization = Some(mean_utilization);
    parts
}

/// Simulates the given policies of a scenario.
pub(crate) fn report(parts: &ScenarioParts, policies: &[Policy]) -> Report {
    let scenario = Scenario::try_new(parts.clone()).unwrap();
    run(&scenario.with_policies(policies.to_vec()), |_| {}).unwrap()
}

/// Simulates one policy; returns its metrics once all checks of the scenario have passed.
pub(crate) fn metrics(parts: &ScenarioParts, policy: Policy) -> Metrics {
    let mut report = report(parts, &[policy]);
    assert!(report.passed(), "{:?}", report.checks);
    report.policies.remove(0).metrics
}

/// Parses `[[event]]` tables from TOML.
pub(crate) fn events(text: &str) -> Vec<EventParts> {
    toml::from_str::<ScenarioParts>(text).unwrap().event
}

/// Returns the 5 s utilization of a zone at a second, from the CSV.
pub(crate) fn utilization(report: &Report, policy: Policy, zone: &str, second: u32) -> f64 {
    let key = format!("{},{second},{zone},", policy.name());
    let csv = report.csv();
    let row = csv.lines().find(|line| line.starts_with(&key)).unwrap();
    row.split(',').nth(4).unwrap().parse().unwrap()
}

/// Asserts that a value is in a range.
#[track_caller]
pub(crate) fn assert_within(what: &str, value: f64, low: f64, high: f64) {
    assert!(
        (low..=high).contains(&value),
        "{what}: {value} is outside {low} to {high}"
    );
}
