//! Do no harm: whatever way hosts fail, no more requests fail by measured demand than by host
//! counts, and Envoy's own preconditions are told apart from the policy.

use crate::support::{events, report, rig, utilization};
use plimsoll_sim::report::ZonesIgnored;
use plimsoll_sim::scenario::HumanDuration;
use plimsoll_sim::{Policy, ScenarioParts};

/// When hosts begin to fail.
const FAILS_AT: u64 = 40;
const REPORT_INTERVAL: u64 = 2;
/// From when on requests are compared: two load reports later.
const MEASURED_FROM: u64 = FAILS_AT + 2 * REPORT_INTERVAL;
/// Where requests fail by a timeout, the first ones have run into theirs.
const TIMED_OUT: u64 = 60;

fn dead_zone(data_plane: &str, fail: &[String]) -> ScenarioParts {
    let mut parts = rig([40.0, 35.0, 25.0], 0.5);
    parts.duration = Some(HumanDuration::from_secs(150));
    parts.measure_from = Some(HumanDuration::from_secs(MEASURED_FROM));
    parts.control_plane.report_interval = Some(HumanDuration::from_secs(REPORT_INTERVAL));
    parts.balancer.data_plane = Some(data_plane.into());
    let tables = fail
        .iter()
        .map(|fail| format!("[[event]]\nat = \"{FAILS_AT}s\"\nfail = {{ {fail} }}\n"));
    parts.event = events(&tables.collect::<String>());
    parts
}

/// Returns the failed share by host counts, and by measured demand.
fn failed(parts: &ScenarioParts) -> [f64; 2] {
    let report = report(parts, &[Policy::ZoneAwareHosts, Policy::LrsByReporter]);
    [0, 1].map(|row: usize| report.policies[row].metrics.measured_failure_share)
}

/// Ways to die, and what host counts make of zone b at least (35 % of the demand) with stock
/// Envoys. Runs have fixed seeds, so they never differ.
const WAYS: [(&str, f64); 9] = [
    ("how = \"refuse\"", 0.34),
    ("how = \"unreachable\"", 0.34),
    ("how = \"hang\"", 0.34),
    ("how = \"error\"", 0.34),
    ("how = \"slow\"", 0.25),
    ("how = \"refuse\", hosts = 2", 0.17),
    ("how = \"error\", share = \"50%\"", 0.17),
    ("how = \"refuse\", every = \"16s\"", 0.15),
    ("how = \"error\", every = \"60s\"", 0.15),
];

#[test]
fn measured_demand_fails_no_more_requests_than_host_counts() {
    for (way, at_least) in WAYS {
        for data_plane in ["envoy", "plimsoll"] {
            for zones in [&["b"][..], &["c"], &["a"], &["b", "c"]] {
                let fail: Vec<String> = zones
                    .iter()
                    .map(|zone| format!("zone = \"{zone}\", {way}"))
                    .collect();
                let mut parts = dead_zone(data_plane, &fail);
                if !way.contains("refuse") && !way.contains("error") {
                    parts.measure_from = Some(HumanDuration::from_secs(TIMED_OUT));
                }
                let [counts, measured] = failed(&parts);
                let case = format!("{data_plane}, {fail:?}: {counts:.3} and {measured:.3}");
                assert!(measured <= counts + 0.01, "{case}");
                // A test in which nothing fails shows nothing.
                if zones == ["b"] && data_plane == "envoy" {
                    assert!(counts >= at_least, "{case}");
                }
            }
        }
    }
}

/// A fifth of the requests to a zone is no failing zone, but demand would spill a good part of all
/// requests into it.
#[test]
fn a_dead_host_of_five_fails_no_more_requests_than_by_host_counts() {
    for how in ["refuse", "error"] {
        for data_plane in ["envoy", "plimsoll"] {
            let fail = [format!("zone = \"b\", how = \"{how}\", hosts = 1")];
            let mut parts = rig([60.0, 20.0, 20.0], 0.5);
            parts.event = dead_zone(data_plane, &fail).event;
            parts
                .zone
                .iter_mut()
                .for_each(|zone| zone.hosts[0].count = 5);
            parts.duration = Some(HumanDuration::from_secs(150));
            parts.measure_from = Some(HumanDuration::from_secs(MEASURED_FROM));
            parts.control_plane.report_interval = Some(HumanDuration::from_secs(REPORT_INTERVAL));
            parts.balancer.data_plane = Some(data_plane.into());
            let [counts, measured] = failed(&parts);
            let case = format!("{data_plane}, {how}: {counts:.3} and {measured:.3}");
            // Plimsoll retries refused connections at another host.
            assert!(counts > 0.03 || data_plane == "plimsoll", "{case}");
            assert!(measured <= counts + 0.01, "{case}");
        }
    }
}

/// Hosts that answer errors at once report next to no load, and attract requests. The seed promises
/// weights by host count without reports: a third of the requests for each zone.
#[test]
fn policies_that_follow_reports_fail_no_more_requests_than_weights_by_host_count() {
    let policies = [Policy::Headroom, Policy::Convergent, Policy::Hybrid];
    for how in ["error", "refuse", "hang"] {
        for zone in ["b", "c"] {
            let fail = [format!("zone = \"{zone}\", how = \"{how}\"")];
            let mut parts = dead_zone("plimsoll", &fail);
            parts.measure_from = Some(HumanDuration::from_secs(TIMED_OUT));
            let report = report(&parts, &policies);
            for (policy, row) in policies.iter().zip(&report.policies) {
                let failed = row.metrics.measured_failure_share;
                assert!(failed <= 0.35, "{policy:?}, {fail:?}: {failed:.3}");
            }
        }
    }
}

/// The hot zone fails: three fifths of the requests are its own, and stay there by default.
#[test]
fn a_hot_zone_that_fails_does_not_keep_its_requests() {
    for how in ["error", "refuse", "hang"] {
        let fail = [format!("zone = \"a\", how = \"{how}\"")];
        let mut parts = rig([60.0, 20.0, 20.0], 0.5);
        parts.event = dead_zone("plimsoll", &fail).event;
        parts.duration = Some(HumanDuration::from_secs(150));
        parts.measure_from = Some(HumanDuration::from_secs(TIMED_OUT));
        let policies = [Policy::Headroom, Policy::Convergent, Policy::Hybrid];
        let report = report(&parts, &policies);
        for (policy, row) in policies.iter().zip(&report.policies) {
            let failed = row.metrics.measured_failure_share;
            assert!(failed <= 0.35, "{policy:?}, {how}: {failed:.3}");
        }
    }
}

/// A dead host of five is no failing zone. Its zone answers less, so that the hosts report less
/// load: policies that follow reports must not send it more than weights by host count do, which
/// fail a fifteenth of all requests here.
#[test]
fn a_dead_host_of_five_fails_no_more_requests_than_weights_by_host_count() {
    let policies = [
        Policy::None,
        Policy::Headroom,
        Policy::Convergent,
        Policy::Hybrid,
    ];
    for how in ["error", "hang", "refuse"] {
        for (data_plane, utilization) in [("plimsoll", 0.5), ("plimsoll", 0.7), ("envoy", 0.5)] {
            let fail = [format!("zone = \"b\", how = \"{how}\", hosts = 1")];
            let mut parts = rig([60.0, 20.0, 20.0], utilization);
            parts.event = dead_zone(data_plane, &fail).event;
            parts
                .zone
                .iter_mut()
                .for_each(|zone| zone.hosts[0].count = 5);
            parts.duration = Some(HumanDuration::from_secs(150));
            parts.measure_from = Some(HumanDuration::from_secs(TIMED_OUT));
            parts.balancer.data_plane = Some(data_plane.into());
            let report = report(&parts, &policies);
            let failed = |row: usize| report.policies[row].metrics.measured_failure_share;
            let by_count = failed(0);
            assert!(by_count > 0.06 || (data_plane, how) == ("plimsoll", "refuse"));
            for (row, policy) in policies.iter().enumerate() {
                let case = format!(
                    "{policy:?}, {data_plane} at {utilization}, {how}: {:.3}, count {by_count:.3}",
                    failed(row)
                );
                assert!(failed(row) <= by_count + 0.01, "{case}");
            }
        }
    }
}

/// Hosts that answer errors at once keep the response times that they had, and a hot zone would go
/// on spilling into them.
#[test]
fn observed_load_fails_no_more_requests_than_host_counts() {
    let policies = [Policy::ZoneAwareHosts, Policy::ObservedLoad];
    let (hot, mild) = ([60.0, 20.0, 20.0], [40.0, 35.0, 25.0]);
    for (demand, utilization) in [(hot, 0.5), (hot, 0.8), (mild, 0.5)] {
        for (way, _) in WAYS {
            for zones in [&["b"][..], &["c"], &["a"], &["b", "c"]] {
                let fail: Vec<String> = zones
                    .iter()
                    .map(|zone| format!("zone = \"{zone}\", {way}"))
                    .collect();
                let mut parts = dead_zone("plimsoll", &fail);
                parts.zone = rig(demand, utilization).zone;
                parts.traffic.mean_utilization = Some(utilization);
                parts.measure_from = Some(HumanDuration::from_secs(TIMED_OUT));
                let report = report(&parts, &policies);
                let failed = |row: usize| report.policies[row].metrics.measured_failure_share;
                let [counts, observed] = [failed(0), failed(1)];
                let case =
                    format!("{demand:?} at {utilization}, {fail:?}: {counts:.3} and {observed:.3}");
                assert!(observed <= counts + 0.01, "{case}");
            }
        }
    }
}

#[test]
fn outlier_detection_and_health_checks_end_the_failures() {
    for how in ["refuse", "unreachable", "error", "hang"] {
        let fail = [format!("zone = \"c\", how = \"{how}\"")];
        let mut parts = dead_zone("envoy", &fail);
        parts.measure_from = Some(HumanDuration::from_secs(FAILS_AT + 30));
        // An ejected host that is tried again fails requests for as long as a timeout.
        parts.network.connect_timeout = Some(HumanDuration::from_secs(1));
        parts.network.request_timeout = Some(HumanDuration::from_secs(1));
        parts.host.health_checks = true;
        for share in failed(&parts) {
            assert!(share <= 0.02, "{how} with health checks: {share}");
        }
        parts.host.health_checks = false;
        let detection = plimsoll_sim::scenario::parts::OutlierDetectionParts {
            max_ejection_percent: Some(100),
            ..Default::default()
        };
        parts.outlier_detection = Some(detection);
        for share in failed(&parts) {
            assert!(share <= 0.02, "{how} with outlier detection: {share}");
        }
    }
}

/// The hot zone refuses what it cannot serve. That is no reason to stop: only measured demand
/// relieves it.
#[test]
fn an_overloaded_zone_is_relieved() {
    for data_plane in ["envoy", "plimsoll"] {
        let mut parts = rig([60.0, 20.0, 20.0], 0.8);
        parts.balancer.data_plane = Some(data_plane.into());
        parts.measure_from = Some(HumanDuration::from_secs(60));
        let [counts, measured] = failed(&parts);
        assert!(counts > 0.15, "{data_plane}: {counts}");
        assert!(measured < 0.01, "{data_plane}: {measured}");
    }
}

#[test]
fn traffic_is_level_again_after_a_failure() {
    let fail = ["zone = \"c\", how = \"refuse\", for = \"20s\"".to_owned()];
    for data_plane in ["envoy", "plimsoll"] {
        let report = report(&dead_zone(data_plane, &fail), &[Policy::LrsByReporter]);
        let hot = |second| utilization(&report, Policy::LrsByReporter, "a", second);
        assert!(hot(39) < 0.54, "{}", hot(39));
        assert!(hot(140) < 0.54, "{data_plane}: {}", hot(140));
    }
}

/// What restarts knows nothing: host counts decide until demand is measured again, or proxies have
/// been told.
#[test]
fn demand_is_followed_again_after_a_restart() {
    let restarts = [
        (
            "envoy",
            "control_plane_outage = { for = \"5s\", forgets = true }",
        ),
        ("plimsoll", "restart_proxies = { zone = \"a\" }"),
    ];
    for (data_plane, restart) in restarts {
        let mut parts = dead_zone(data_plane, &[]);
        parts.zone = rig([60.0, 20.0, 20.0], 0.5).zone;
        parts.event = events(&format!("[[event]]\nat = \"60s\"\n{restart}\n"));
        let report = report(&parts, &[Policy::LrsByReporter]);
        let hot = |second| utilization(&report, Policy::LrsByReporter, "a", second);
        assert!(hot(59) < 0.54, "{data_plane}: {}", hot(59));
        let highest = (60..75).map(hot).fold(0.0, f64::max);
        assert!(highest > 0.55, "{data_plane}: {highest}");
        assert!(hot(140) < 0.54, "{data_plane}: {}", hot(140));
    }
}

/// The network between two zones fails, and both zones work.
#[test]
fn a_link_that_is_cut_fails_no_more_requests_than_by_host_counts() {
    for data_plane in ["envoy", "plimsoll"] {
        for how in ["hang", "error", "refuse"] {
            let fail = format!("zone = \"b\", from = \"a\", how = \"{how}\"");
            let mut parts = dead_zone(data_plane, &[fail]);
            parts.zone = rig([50.0, 20.0, 30.0], 0.5).zone;
            parts.measure_from = Some(HumanDuration::from_secs(TIMED_OUT));
            let [counts, measured] = failed(&parts);
            assert!(counts < 0.001, "host counts keep all local: {counts}");
            assert!(measured <= 0.01, "{data_plane}, {how}: {measured}");
        }
    }
}

/// Half of ten hosts are unhealthy: five are fewer than Envoy's minimum of six.
#[test]
fn the_report_says_when_zones_were_ignored_and_why() {
    let mut parts = rig([75.0, 25.0, 0.0], 0.3);
    parts.zone.truncate(2);
    parts
        .zone
        .iter_mut()
        .for_each(|zone| zone.hosts[0].count = 5);
    parts.host.detection = Some(HumanDuration::from_secs(1));
    let half = "unhealthy = { zone = \"a\", hosts = 3, for = \"30s\" }";
    let other = "unhealthy = { zone = \"b\", hosts = 2, for = \"30s\" }";
    parts.event = events(&format!(
        "[[event]]\nat = \"93s\"\n{half}\n[[event]]\nat = \"93s\"\n{other}\n"
    ));
    parts.duration = Some(HumanDuration::from_secs(140));
    let policies = [Policy::ZoneAwareHosts, Policy::LrsByReporter, Policy::None];
    let report = report(&parts, &policies);
    let expected = ZonesIgnored {
        at: vec!["a".into(), "b".into()],
        from_s: 94.0,
        until_s: Some(124.0),
        reason: "the upstream cluster has 5 healthy hosts, min_cluster_size is 6".into(),
    };
    assert_eq!(report.policies[0].zones_ignored, [expected]);
    let text = "zone_aware_hosts ignored zones from 94 s to 124 s (proxies of a, b):\n  \
                the upstream cluster has 5 healthy hosts, min_cluster_size is 6\n";
    assert!(report.table().contains(text), "{}", report.table());
    // What the control plane sends has no such minimum, unless the scenario does.
    assert_eq!(report.policies[1].zones_ignored, []);
    assert_eq!(report.policies[2].zones_ignored, [], "it has no zones");
    parts.balancer.min_cluster_size = Some(6);
    let written = crate::support::report(&parts, &[Policy::LrsByReporter]);
    assert_eq!(written.policies[0].zones_ignored.len(), 1);
}
