//! Tests of scenario files: checked scenarios, or errors with the path of the field.

use super::*;
use crate::testing::three_zones;

const MINIMAL: &str = "
[traffic]
mean_utilization = 0.5
[[zone]]
name = \"a\"
demand = 3
hosts = [{ count = 2, capacity = 10 }]
[[zone]]
name = \"b\"
count = 12
demand = 1
proxies = 4
hosts = [{ count = 1, capacity = 10 }, { count = 1, capacity = 40, weight = 4 }]
";

/// Returns the error without its line and column.
fn error_of(text: &str) -> String {
    Scenario::parse(text).unwrap_err().field.to_string()
}

/// Returns the error of the minimal scenario with a replacement.
fn error_after(from: &str, to: &str) -> String {
    assert!(MINIMAL.contains(from), "{from}");
    error_of(&MINIMAL.replacen(from, to, 1))
}

/// Returns the error of the minimal scenario with an addition.
fn error_with(more: &str) -> String {
    error_of(&format!("{MINIMAL}\n{more}"))
}

#[test]
fn a_minimal_scenario_gets_defaults() {
    let scenario = Scenario::parse(MINIMAL).unwrap();
    assert_eq!(scenario.zones.len(), 13);
    assert_eq!((scenario.host_count(), scenario.proxy_count()), (26, 49));
    assert_eq!(scenario.zones[1].name, "b01");
    assert_eq!(scenario.zones[12].locality, Locality::zone_only("b12"));
    assert_eq!(
        scenario.traffic.requests_per_second,
        0.5 * (20.0 + 12.0 * 50.0)
    );
    assert!((scenario.zones[0].share - 0.2).abs() < 1e-12);
    assert_eq!((scenario.seed, scenario.duration), (1, 120 * num::SECOND));
    assert_eq!(scenario.measure_from, 60 * num::SECOND);
    // Without a target, those that ignore it are the same as others.
    let all = Policy::ALL.iter().copied();
    let distinct: Vec<Policy> = all.filter(|one| one.with_level().is_none()).collect();
    assert_eq!(scenario.policies(), distinct);
    let with_target = "[control_plane]\ntarget_utilization = 0.8\n";
    let with_target = Scenario::parse(&format!("{with_target}{MINIMAL}"));
    assert_eq!(with_target.unwrap().policies(), Policy::ALL);
    assert_eq!(scenario.reports.out_of_band_period, None);
}

#[test]
fn toml_errors_name_the_field_and_the_line() {
    let error = error_with("[host]\nservres = 3\n");
    assert!(
        error.starts_with("host.servres: unknown field `servres`"),
        "{error}"
    );
    let text = format!("{MINIMAL}\n[host]\nservres = 3\n");
    let located = Scenario::parse(&text).unwrap_err().to_string();
    assert!(located.ends_with("(at 16:1)"), "{located}");
    let error = error_with("[[event]]\nat = \"soon\"\n");
    assert!(
        error.starts_with("event[0].at: \"soon\" is not a duration"),
        "{error}"
    );
    assert!(error_after("demand = 3", "demand = \"much\"").starts_with("zone[0].demand: "));
    let located = Scenario::parse("title = ").unwrap_err().to_string();
    assert!(located.contains("(at 1:"), "{located}");
}

#[test]
fn shares_may_be_percentages_and_numbers_above_one_are_explained() {
    let mean = |text: &str| {
        let text = MINIMAL.replacen("mean_utilization = 0.5", text, 1);
        Scenario::parse(&text).map(|scenario| scenario.traffic.requests_per_second)
    };
    assert_eq!(
        mean("mean_utilization = \"50%\""),
        mean("mean_utilization = 0.5")
    );
    assert_eq!(
        mean("mean_utilization = 60").unwrap_err().to_string(),
        "traffic.mean_utilization: 60 times the capacity is too much; write 0.6 or \"60%\" \
         (at 3:1)"
    );
    let error = mean("mean_utilization = \"much\"").unwrap_err().to_string();
    assert!(
        error.contains("write for example 0.6 or \"60%\""),
        "{error}"
    );
    let error = error_with("[reports]\nnoise = 5\n");
    assert!(
        error.contains("5 is more than all; write 0.05 or \"5%\""),
        "{error}"
    );
}

#[test]
fn an_event_after_the_end_and_an_empty_file_are_refused() {
    let error = error_with("[[event]]\nat = \"5m\"\nlose_zone = { zone = \"a\" }\n");
    assert!(
        error.starts_with("event[0].at: 5 min is not before the end of the run, 2 min"),
        "{error}"
    );
    assert_eq!(error_of("\n"), "the file is empty");
    let error = error_with("[[event]]\nat = 90\nlose_zone = { zone = \"a\" }\n");
    assert!(
        error.starts_with("event[0].at: \"90\" has no unit"),
        "{error}"
    );
}

#[test]
fn zones_and_hosts_are_checked() {
    for (from, to, expected) in [
        (
            "name = \"a\"",
            "name = \"\"",
            "zone[0].name: must not be empty",
        ),
        (
            "name = \"a\"",
            "name = \"b\"",
            "zone[1].name: \"b\" is listed twice",
        ),
        (
            "capacity = 10 }]",
            "capacity = 0 }]",
            "zone[0].hosts[0].capacity: 0 must be above 0",
        ),
        (
            "{ count = 2,",
            "{ count = 0,",
            "zone[0].hosts[0].count: must be at least 1",
        ),
        (
            "weight = 4",
            "weight = 0",
            "zone[1].hosts[1].weight: must be at least 1 when set",
        ),
        (
            "proxies = 4",
            "proxies = 0",
            "zone[1].proxies: 0 is outside 1 to 100000",
        ),
        (
            "demand = 3",
            "demand = -3",
            "zone[0].demand: -3 must be at least 0",
        ),
        (
            "count = 12",
            "count = 1000",
            "zone: there must be 1 to 1000 zones",
        ),
        (
            "mean_utilization = 0.5",
            "",
            "traffic: give either mean_utilization or \
                                        requests_per_second",
        ),
        (
            "mean_utilization = 0.5",
            "mean_utilization = nan",
            "traffic.mean_utilization: NaN must be above 0",
        ),
    ] {
        assert_eq!(error_after(from, to), expected);
    }
    assert_eq!(
        error_of("[traffic]\nrequests_per_second = 1"),
        "zone: there must be 1 to 1000 zones"
    );
}

#[test]
fn settings_are_checked() {
    for (more, expected) in [
        (
            "[host]\nservice = \"slow\"",
            "host.service: \"slow\" is not one of exponential, \
                                        constant, instant",
        ),
        (
            "[host]\nservers = 0",
            "host.servers: 0 is outside 1 to 1000",
        ),
        (
            "[host]\nqueue = -1",
            "host.queue: -1 is not a number of requests",
        ),
        (
            "[network]\nremote = \"1m\"",
            "network.remote: 60 s is outside 0 ms to 10 s",
        ),
        (
            "[reports]\nnoise = 2",
            "reports.noise: 2 is more than all; write 0.02 or \"2%\"",
        ),
        (
            "[reports]\nperiod = \"1s\"",
            "reports.period: only out_of_band reports have a period",
        ),
        (
            "[reports]\nmeter_window = \"1ms\"",
            "reports.meter_window: 1 ms is outside 100 ms to \
                                               60 s",
        ),
        (
            "[scale]\nrequests_per_sample = 0",
            "scale.requests_per_sample: must be at least 1",
        ),
        (
            "[scale]\nbalancers_per_zone = 0",
            "scale.balancers_per_zone: must be at least 1",
        ),
        (
            "[control_plane]\nstaleness_threshold = \"1s\"",
            "zone_aware.lrs_rate_config.staleness_threshold: 1s is outside 5s to 600s",
        ),
        (
            "[load_aware_locality]\nremote_probe_fraction = 1.5",
            "load_aware_locality.remote_probe_fraction: 1.5 is not a number from 0 to below 1",
        ),
    ] {
        let error = error_with(more);
        let path = expected.split(": ").next().unwrap();
        assert!(
            error.starts_with(&format!("{path}: ")),
            "{error}\n  instead of {expected}"
        );
        if !path.starts_with("load_aware") {
            assert_eq!(error, expected);
        }
    }
}

#[test]
fn policies_are_checked() {
    let error = error_of(&format!("policies = [\"none\", \"best\"]\n{MINIMAL}"));
    assert!(
        error.starts_with("policies[1]: unknown policy \"best\""),
        "{error}"
    );
    let error = error_of(&format!("policies = [\"none\", \"none\"]\n{MINIMAL}"));
    assert_eq!(error, "policies[1]: none is listed twice");
}

#[test]
fn events_have_one_effect_on_known_zones() {
    for (event, expected) in [
        ("", "event[0]: has no effect: set exactly one"),
        (
            "lose_hosts = { zone = \"a\" }\ncontrol_plane_outage = {}",
            "event[0]: has several effects: set exactly one",
        ),
        (
            "demand = { zone = \"a\", factor = -1 }",
            "event[0].demand.factor: -1 must be at least 0",
        ),
        (
            "demand = { factor = 2, over = \"9s\", for = \"5s\" }",
            "event[0].demand.over: is longer than the event itself",
        ),
        ("shares = { a = 1 }", "event[0].shares: zone b01 is missing"),
        (
            "shares = { a = 0, b = 0 }",
            "event[0].shares: no zone has any demand",
        ),
        (
            "shares = { a = 1, b = 1, b07 = 2 }",
            "event[0].shares.b07: b07 is listed twice",
        ),
        (
            "capacity = { zone = \"a\", factor = 0 }",
            "event[0].capacity.factor: 0 must be above 0",
        ),
    ] {
        assert_eq!(
            error_with(&format!("[[event]]\nat = \"1s\"\n{event}\n")),
            expected
        );
    }
    let error = error_with("[[event]]\nat = \"1s\"\nlose_zone = { zone = \"x\" }\n");
    assert!(error.starts_with("event[0].lose_zone.zone: there is no zone \"x\": a, b, b01"));
}

#[test]
fn a_group_of_zones_can_be_named() {
    let text = format!("{MINIMAL}\n[[event]]\nat = \"1s\"\nlose_zone = {{ zone = \"b\" }}\n");
    let scenario = Scenario::parse(&text).unwrap();
    let EventKind::LoseZone { zones } = &scenario.events[0].kind else {
        panic!("{:?}", scenario.events);
    };
    assert_eq!(*zones, (1..13).collect::<Vec<_>>());
    assert_eq!(
        scenario.describe(&scenario.events[0].kind),
        "b01 to b12 is lost"
    );
}

#[test]
fn expectations_need_known_metrics_and_simulated_policies() {
    let policies = "policies = [\"none\"]\n";
    let expect = |body: &str| error_of(&format!("{policies}{MINIMAL}\n[[expect]]\n{body}\n"));
    let error = expect("policy = \"none\"\nat_most = { speed = 1 }");
    assert!(
        error.starts_with("expect[0].at_most.speed: unknown metric"),
        "{error}"
    );
    let error = expect("policy = \"hybrid\"\nat_most = { settled_s = 1 }");
    assert_eq!(error, "expect[0].policy: hybrid is not among the policies");
}

#[test]
fn oversized_scenarios_are_rejected_with_a_suggestion() {
    let mut parts = three_zones();
    parts.traffic.mean_utilization = None;
    parts.traffic.requests_per_second = Some(1e9);
    let error = Scenario::try_new(parts).unwrap_err().to_string();
    assert!(error.starts_with("scale.requests_per_sample: ") && error.contains("or more"));
    let mut parts = three_zones();
    parts.zone[0].proxies = Some(100_000);
    parts.zone[0].hosts[0].count = 100;
    let error = Scenario::try_new(parts.clone()).unwrap_err().to_string();
    assert!(
        error.starts_with("scale.balancers_per_zone: 100002 balancers"),
        "{error}"
    );
    parts.scale.balancers_per_zone = Some(5);
    let scenario = Scenario::try_new(parts).unwrap();
    assert_eq!(scenario.balancer_count(), 5 + 1 + 1);
    let short = scenario
        .with_duration(HumanDuration::from_secs(1))
        .unwrap_err();
    assert_eq!(short.to_string(), "duration: must be at least 10s");
}

#[test]
fn shares_of_balancers_sum_to_one_with_and_without_a_heavy_proxy() {
    for (proxies, cap, heavy) in [
        (1, None, None),
        (8, None, Some(20.0)),
        (200, Some(4), Some(7.0)),
    ] {
        let mut parts = three_zones();
        parts.zone[0].proxies = Some(proxies);
        parts.zone[0].heavy_proxy = heavy;
        parts.scale.balancers_per_zone = cap;
        let zone = Scenario::try_new(parts).unwrap().zones.remove(0);
        let sum: f64 = zone.balancers.iter().sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        if let (Some(heavy), None) = (heavy, cap) {
            assert!((zone.balancers[0] / zone.balancers[1] - heavy).abs() < 1e-9);
        }
    }
}

#[test]
fn overrides_change_one_setting() {
    let scenario = Scenario::try_new(three_zones()).unwrap();
    assert_eq!(scenario.clone().with_seed(9).seed, 9);
    let shorter = scenario
        .clone()
        .with_duration(HumanDuration::from_secs(20))
        .unwrap();
    assert_eq!(
        (shorter.duration, shorter.measure_from),
        (20 * num::SECOND, 10 * num::SECOND)
    );
    let one = scenario.with_policies(vec![Policy::Optimum]);
    assert_eq!(one.policies(), [Policy::Optimum]);
}

#[test]
fn steps_are_the_start_and_every_change_before_the_end() {
    let mut parts = three_zones();
    let given: ScenarioParts = toml::from_str(
        "[[event]]\nat = \"10s\"\nlose_hosts = { zone = \"a\", for = \"10s\" }\n\
         [[event]]\nat = \"20s\"\ncontrol_plane_outage = { for = \"1h\" }\n",
    )
    .unwrap();
    parts.event = given.event;
    let steps = Scenario::try_new(parts).unwrap().steps();
    assert_eq!(steps, [0, 10, 20].map(|second| second * num::SECOND));
}
