//! Tests of the report, and a small report for the tests of its formats.

use super::*;
use crate::scenario::ScenarioParts;
use crate::testing::three_zones;

/// Returns a report with two policies, one of them with a failed check.
pub(crate) fn report() -> Report {
    let mut parts = three_zones();
    let given: ScenarioParts = toml::from_str(
        "policies = [\"zone_aware_hosts\", \"optimum\"]\n\
         [[expect]]\npolicy = \"zone_aware_hosts\"\nat_most = { settled_s = 30 }\n\
         [[event]]\nat = \"20s\"\ndemand = { zone = \"b\", factor = 1.1, for = \"5s\" }\n",
    )
    .unwrap();
    (parts.policies, parts.expect, parts.event) = (given.policies, given.expect, given.event);
    parts.description = "Host counts know nothing of <demand>.".into();
    let scenario = Scenario::try_new(parts).unwrap();
    crate::run(&scenario, |_| {}).unwrap()
}

#[test]
fn one_failed_check_fails_the_report() {
    let mut report = report();
    assert!(!report.passed());
    report.checks.retain(|check| check.passed);
    assert!(report.passed());
}

#[test]
fn the_json_form_has_stable_names() {
    let json = serde_json::to_value(report()).unwrap();
    assert_eq!(json["facts"]["hosts"], 12);
    assert_eq!(json["policies"][0]["policy"], "zone_aware_hosts");
    assert_eq!(json["policies"][0]["metrics"]["zones"][0]["zone"], "a");
    assert!(json["policies"][0]["metrics"]["settled_s"].is_null());
    assert_eq!(json["checks"][0]["passed"], true);
}

#[test]
fn notes_list_simplifications() {
    let mut parts = three_zones();
    parts.scale.requests_per_sample = Some(5);
    parts.scale.balancers_per_zone = Some(2);
    parts.zone[0].proxies = Some(10);
    parts.host.service = Some("instant".into());
    parts.traffic.arrivals = Some("poisson".into());
    let facts = RunInfo::new(&Scenario::try_new(parts).unwrap());
    let notes = facts.notes.join("\n");
    for part in [
        "represents 5",
        "4 balancers represent 12",
        "at once",
        "Poisson",
    ] {
        assert!(notes.contains(part), "{part} is missing: {notes}");
    }
    assert_eq!(
        facts.summary(),
        "3 zones, 12 hosts, 12 proxies, 216 requests/s, 40 s simulated, seed 1"
    );
}

#[test]
fn events_are_listed_in_order() {
    let events = report().facts.events;
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], (20.0, "demand of b × 1.1".into()));
    assert_eq!(events[1], (25.0, "end of: demand of b × 1.1".into()));
}
