//! Tests of scenario files: resulting assignments, and errors with their paths.

use plimsoll_core::explain::StateName;
use plimsoll_core::locality_picking::zone_aware::Reason;
use plimsoll_core::model::health::HealthStatus;

use super::*;

/// Returns a scenario in which `lines` replace the default lines with the same key.
fn scenario(lines: &[&str]) -> String {
    let defaults = [
        "own_locality: a",
        "fleet: {localities: [{locality: a, hosts: 3}, {locality: b, hosts: 5}]}",
        "upstream: {localities: [{locality: a, hosts: 3}, {locality: b, hosts: 5}]}",
        "cluster: {name: orders}",
    ];
    let key = |line: &str| line.split(':').next().map(str::to_owned);
    let kept = defaults
        .iter()
        .filter(|old| !lines.iter().any(|new| key(new) == key(old)));
    kept.chain(lines).map(|line| format!("{line}\n")).collect()
}

fn accepted(lines: &[&str]) -> Scenario {
    let text = scenario(lines);
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn assert_rejected(lines: &[&str], path: &str, reason: &str) {
    let text = scenario(lines);
    let error = Scenario::parse(&text).expect_err(&text);
    assert_eq!(error.path(), path, "{error}\n{text}");
    assert!(error.reason().contains(reason), "{error}\n{text}");
}

fn upstream(entry: &str) -> String {
    format!("upstream: {{localities: [{{locality: b, hosts: 9}}, {{locality: a, {entry}}}]}}")
}

fn fleet(entry: &str) -> String {
    format!("fleet: {{localities: [{{locality: b, hosts: 9}}, {{locality: a, {entry}}}]}}")
}

#[test]
fn hosts_get_distinct_addresses_and_their_health() {
    let line = upstream("hosts: 7, degraded: 1, draining: 2, healthy: 3");
    let scenario = accepted(&[&line]);
    let a = &scenario.upstream.endpoints()[0];
    let health: Vec<_> = a
        .lb_endpoints
        .iter()
        .map(|endpoint| endpoint.health_status)
        .collect();
    use HealthStatus::{Degraded, Draining, Healthy, Unhealthy};
    assert_eq!(
        health,
        [
            Healthy, Healthy, Healthy, Degraded, Draining, Draining, Unhealthy
        ]
    );
    let fleet = scenario.fleet.as_ref().unwrap();
    let assignments = [fleet, &scenario.upstream].into_iter();
    let entries = assignments.flat_map(ClusterLoadAssignment::endpoints);
    let mut addresses: Vec<_> = entries
        .flat_map(|entry| &entry.lb_endpoints)
        .map(|endpoint| endpoint.address)
        .collect();
    let hosts = addresses.len();
    addresses.sort();
    addresses.dedup();
    assert_eq!((addresses.len(), hosts), (24, 24));
    assert_eq!(addresses[0].to_string(), "10.0.0.1:8080");
}

#[test]
fn hosts_are_healthy_by_default() {
    let healthy = |entry: &str| {
        let scenario = accepted(&[&upstream(entry)]);
        let endpoints = scenario.upstream.endpoints()[0].lb_endpoints.clone();
        endpoints
            .iter()
            .filter(|e| e.health_status == HealthStatus::Healthy)
            .count()
    };
    assert_eq!(healthy("hosts: 7"), 7);
    assert_eq!(healthy("hosts: 7, degraded: 1, draining: 2"), 4);
    assert_eq!(healthy("hosts: 7, healthy: 0"), 0);
    assert_eq!(healthy("hosts: 0"), 0);
}

#[test]
fn weights_are_one_number_or_one_per_host() {
    let weights = |entry: &str| -> Vec<Option<u32>> {
        let scenario = accepted(&[&upstream(entry)]);
        let endpoints = &scenario.upstream.endpoints()[0].lb_endpoints;
        endpoints
            .iter()
            .map(|endpoint| endpoint.load_balancing_weight)
            .collect()
    };
    assert_eq!(weights("hosts: 2"), [None, None]);
    assert_eq!(weights("hosts: 2, weights: 7"), [Some(7), Some(7)]);
    assert_eq!(
        weights("hosts: 3, healthy: 2, weights: [1, 5]"),
        [Some(1), Some(5), None]
    );
    assert_eq!(
        weights("hosts: 2, healthy: 1, weights: [1, 5]"),
        [Some(1), Some(5)]
    );
}

#[test]
fn localities_are_triples_or_zones() {
    let scenario = accepted(&[
        "own_locality: {region: eu, zone: a, subZone: r1}",
        "upstream: {localities: [{locality: {region: eu, zone: a, sub_zone: r1}, hosts: 3}, \
         {locality: b, priority: 1, hosts: 4, load_balancing_weight: 9}], \
         overprovisioning_factor: 200, weighted_priority_health: true}",
    ]);
    assert_eq!(scenario.own_locality, Locality::new("eu", "a", "r1"));
    let endpoints = scenario.upstream.endpoints();
    assert_eq!(endpoints[0].locality, Locality::new("eu", "a", "r1"));
    assert_eq!(endpoints[1].locality, Locality::zone_only("b"));
    assert_eq!(
        (endpoints[1].priority, endpoints[1].load_balancing_weight),
        (1, 9)
    );
    assert_eq!(scenario.upstream.overprovisioning_factor(), 200);
    assert!(scenario.upstream.weighted_priority_health());
}

#[test]
fn the_balancer_makes_the_decision() {
    let explanation = accepted(&[]).explain();
    assert_eq!(explanation.state, StateName::LocalityDirect);
    assert_eq!(explanation.cluster, "orders");
    let runtime = "runtime: {upstream.zone_routing.min_cluster_size: 9}";
    let explanation = accepted(&[runtime]).explain();
    assert_eq!(explanation.reason_code, Some(Reason::UpstreamTooSmall));
    // Health checks of the cluster do not override the health in the scenario.
    let explanation = accepted(&["cluster: {name: orders, health_checks: [{}]}"]).explain();
    assert_eq!(explanation.localities[0].healthy, 3);
    let empty = accepted(&["upstream: {localities: []}"]).explain();
    assert_eq!(empty.state, StateName::NoLocalityRouting);
}

/// Returns a cluster with load_aware_locality; `fields` are fields of its message, in flow style.
fn load_aware(fields: &str) -> String {
    let url = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let policy = |message: &str, fields: &str| {
        format!(
            "{{policies: [{{typed_extension_config: {{name: x, typed_config: \
             {{\"@type\": {url}.{message}{fields}}}}}}}]}}"
        )
    };
    let child = policy("round_robin.v3.RoundRobin", "");
    let fields = format!(", {fields} endpoint_picking_policy: {child}");
    let parent = policy("load_aware_locality.v3.LoadAwareLocality", &fields);
    format!("cluster: {{name: orders, load_balancing_policy: {parent}}}")
}

/// Returns the utilization and traffic share of each locality.
fn utilizations(lines: &[&str]) -> Vec<(Option<f64>, f64)> {
    let explanation = accepted(lines).explain();
    let rows = explanation.localities.iter();
    rows.map(|row| (row.utilization, row.expected_share))
        .collect()
}

#[test]
fn numbers_are_read_as_people_write_them() {
    let percent = "upstream: {localities: [{locality: a, hosts: 4, utilization: 60%}, \
                   {locality: b, hosts: 2}]}";
    assert_eq!(utilizations(&[percent, &load_aware("")])[0].0, Some(0.6));
    let hot = |utilization: &str| upstream(&format!("hosts: 2, utilization: {utilization}"));
    let path = "upstream.localities[1].utilization";
    assert_rejected(&[&hot("60")], path, "write 0.6 or \"60%\"");
    assert_rejected(&[&hot("-1")], path, "-1 is outside 0 to 1");
    assert_rejected(&[&hot("hot")], path, "\"hot\" is not a share such as 0.6");
    let shares = |a: &str, b: &str| {
        format!(
            "fleet: {{localities: [{{locality: a, hosts: 1, observed_traffic_fraction: {a}}}, \
             {{locality: b, hosts: 1, observed_traffic_fraction: {b}}}]}}"
        )
    };
    let fractions = |a: &str, b: &str| {
        let explanation = accepted(&[&shares(a, b)]).explain();
        let rows = explanation.localities.iter();
        rows.map(|row| row.observed_traffic_fraction_bp)
            .collect::<Vec<_>>()
    };
    assert_eq!(fractions("55%", "4500"), [Some(5500), Some(4500)]);
    assert_rejected(
        &[&shares("90%", "54%")],
        "fleet.localities[1].observed_traffic_fraction",
        "the shares of demand up to here are 144.00 %, more than all of it",
    );
    accepted(&["fractions_age: 2m"]);
    assert_rejected(&["fractions_age: 5"], "fractions_age", "5 has no unit");
}

#[test]
fn healthy_hosts_report_before_the_first_update_of_weights() {
    let hot = "upstream: {localities: [{locality: a, hosts: 4, healthy: 2, utilization: 0.75}, \
               {locality: b, hosts: 2, utilization: 0.5}]}";
    let expected = [(Some(0.75), 0.5 / 1.5), (Some(0.5), 1.0 / 1.5)];
    assert_eq!(utilizations(&[hot, &load_aware("")]), expected);
    // Other policies ignore load reports.
    let [a, b] = utilizations(&[hot])[..] else {
        panic!("two localities")
    };
    assert_eq!((a.0, b.0), (None, None));
    // A locality without load reports counts as idle; so does one that reports 0, as in Envoy.
    for unreported in ["", ", utilization: 0"] {
        let line = format!(
            "upstream: {{localities: [{{locality: a, hosts: 1, utilization: 0.5}}, \
             {{locality: b, hosts: 1{unreported}}}]}}"
        );
        let expected = [(Some(0.5), 0.5 / 1.5), (None, 1.0 / 1.5)];
        assert_eq!(utilizations(&[&line, &load_aware("")]), expected);
    }
    // Two entries of one locality: its utilization is the mean over the hosts of both.
    let split = "upstream: {localities: [{locality: a, hosts: 1, utilization: 0.25}, \
                 {locality: a, hosts: 1, utilization: 0.75}, {locality: b, hosts: 2}]}";
    assert_eq!(utilizations(&[split, &load_aware("")])[0].0, Some(0.5));
}

#[test]
fn load_reports_do_not_change_the_age_of_fractions() {
    let lines = [
        "fractions_age: 20s",
        "fleet: {localities: [{locality: a, hosts: 3, observed_traffic_fraction: 10000}]}",
        &load_aware("weight_update_period: 5s,"),
    ];
    let explanation = accepted(&lines).explain();
    assert_eq!(explanation.fractions.age_ms, Some(20_000));
    assert_eq!(explanation.reason_code, Some(Reason::LoadAwareLocality));
}

#[test]
fn the_number_of_hosts_is_limited() {
    let explanation = accepted(&[&upstream("hosts: 100000")]).explain();
    assert_eq!(explanation.localities[0].healthy, 100_000);
    let path = "upstream.localities[1].hosts";
    assert_rejected(
        &[&upstream("hosts: 999984")],
        path,
        "more than 1000000 hosts",
    );
    assert_rejected(
        &[&upstream("hosts: 18446744073709551615")],
        path,
        "more than 1000000 hosts",
    );
}

/// Each row: the YAML entry of zone a, the end of the error path, a part of the error.
#[test]
fn invalid_hosts_are_rejected_with_their_field() {
    for (entry, field, reason) in [
        (
            "hosts: 3, healthy: 4",
            "healthy",
            "4 is more than the 3 hosts",
        ),
        ("hosts: 3, weights: 0", "weights", "at least 1"),
        ("hosts: 3, weights: [1, 0, 1]", "weights[1]", "at least 1"),
        (
            "hosts: 3, weights: [1, 2]",
            "weights",
            "2 weights for 3 healthy hosts",
        ),
        (
            "hosts: 3, weights: [1, 2, -1]",
            "weights[2]",
            "-1 is not a whole number",
        ),
        (
            "hosts: 3, weights: 4294967296",
            "weights",
            "4294967296 is not a whole number",
        ),
        (
            "hosts: 3, weights: heavy",
            "weights",
            "one weight or a list",
        ),
        ("hosts: .nan", "hosts", "not a whole number"),
        ("hosts: -1", "hosts", "not a whole number"),
        (
            "hosts: 3, helthy: 1",
            "helthy",
            "unknown field, did you mean healthy?",
        ),
        ("healthy: 1", "hosts", "must be set"),
    ] {
        let both = [("upstream", upstream(entry)), ("fleet", fleet(entry))];
        for (block, line) in both {
            assert_rejected(&[&line], &format!("{block}.localities[1].{field}"), reason);
        }
    }
    for (entry, field, reason) in [
        (
            "hosts: 3, degraded: 2, draining: 2",
            "hosts",
            "less than degraded + draining = 4",
        ),
        (
            "hosts: 3, degraded: 1, healthy: 3",
            "healthy",
            "3 is more than the 2 hosts",
        ),
        ("hosts: 3, priority: 129", "priority", "above 128"),
        (
            "hosts: 3, load_balancing_weight: 0",
            "load_balancing_weight",
            "at least 1",
        ),
        (
            "hosts: 3, utilization: 1.1",
            "utilization",
            "1.1 is outside 0 to 1",
        ),
        ("hosts: 3, utilization: -0.1", "utilization", "outside"),
        ("hosts: 3, utilization: .nan", "utilization", "not a share"),
        ("hosts: 3, utilization: high", "utilization", "not a share"),
        (
            "hosts: 3, observed_traffic_fraction: 1",
            "observed_traffic_fraction",
            "unknown field",
        ),
    ] {
        assert_rejected(
            &[&upstream(entry)],
            &format!("upstream.localities[1].{field}"),
            reason,
        );
    }
    for (entry, field, reason) in [
        (
            "hosts: 3, observed_traffic_fraction: 10001",
            "observed_traffic_fraction",
            "up to here are 100.01 %",
        ),
        (
            "hosts: 3, observed_traffic_fraction: 0.5",
            "observed_traffic_fraction",
            "0.5 is not",
        ),
        (
            "hosts: 3, observed_traffic_fraction: .nan",
            "observed_traffic_fraction",
            "not a share",
        ),
        (
            "hosts: 3, metadata_traffic_fraction: 10001",
            "metadata_traffic_fraction",
            "above 10000",
        ),
        (
            "hosts: 3, metadata_traffic_fraction: .nan",
            "metadata_traffic_fraction",
            "NaN",
        ),
        (
            "hosts: 3, metadata_traffic_fraction: 0.5",
            "metadata_traffic_fraction",
            "0.5",
        ),
        ("hosts: 3, priority: 1", "priority", "unknown field"),
        ("hosts: 3, utilization: 0.5", "utilization", "unknown field"),
    ] {
        assert_rejected(
            &[&fleet(entry)],
            &format!("fleet.localities[1].{field}"),
            reason,
        );
    }
}

/// Each row: a line of the scenario, the error path, a part of the error.
#[test]
fn invalid_scenarios_are_rejected_with_their_field() {
    for (line, path, reason) in [
        (
            "own_locality: {region: eu}",
            "own_locality.zone",
            "must not be empty",
        ),
        (
            "own_locality: {zone: ''}",
            "own_locality.zone",
            "must not be empty",
        ),
        ("own_locality: ''", "own_locality.zone", "must not be empty"),
        (
            "own_locality: 7",
            "own_locality",
            "a zone or {region, zone, sub_zone}",
        ),
        (
            "own_locality: {zone: a, rack: 1}",
            "own_locality.rack",
            "unknown field",
        ),
        ("fleet:", "fleet", "has no value"),
        ("fleet: {}", "fleet.localities", "must be set"),
        ("upstream: []", "upstream", "invalid type"),
        (
            "upstream: {localities: [], overprovisioning_factor: 0}",
            "upstream.overprovisioning_factor",
            "above 0",
        ),
        (
            "upstream: {localities: [{locality: {zone: ''}, hosts: 1}]}",
            "upstream.localities[0].locality.zone",
            "must not be empty",
        ),
        ("fractions_age: 5", "fractions_age", "has no unit"),
        ("fractions_age: -5s", "fractions_age", "is not a duration"),
        (
            "runtime: {upstream.zone_routing.enabled: x}",
            "runtime.upstream.zone_routing.enabled",
            "not a whole number",
        ),
        (
            "runtime: {zone_routing: 1}",
            "runtime.zone_routing",
            "unknown field",
        ),
        ("cluster: {name: ''}", "cluster.name", "must not be empty"),
        (
            "cluster: {name: a, lb_policy: FASTEST}",
            "cluster.lb_policy",
            "unknown value FASTEST",
        ),
        (
            "cluster: {name: a, common_lb_config: {healthy_panic_threshold: {value: .nan}}}",
            "cluster.common_lb_config.healthy_panic_threshold.value",
            "NaN",
        ),
        ("clsuter: {}", "clsuter", "did you mean cluster?"),
    ] {
        assert_rejected(&[line], path, reason);
    }
    let twice = scenario(&[]) + "cluster: {name: again}\n";
    let error = Scenario::parse(&twice).unwrap_err();
    assert_eq!(error.to_string(), "cluster: duplicate key (at 5:1)");
    let error = Scenario::parse("title: x\n").unwrap_err();
    assert_eq!(error.to_string(), "own_locality: must be set");
}

#[test]
fn overflowing_sums_of_weights_are_rejected() {
    let line = upstream("hosts: 2, weights: 4294967295");
    assert_rejected(
        &[&line],
        "upstream.localities[a].weights",
        "does not fit 32 bits",
    );
    let text = "upstream: {localities: [\
                {locality: a, hosts: 1, load_balancing_weight: 4294967295}, \
                {locality: b, hosts: 1, load_balancing_weight: 1}]}";
    let path = "upstream.localities[b].load_balancing_weight";
    assert_rejected(&[text], path, "does not fit 32 bits");
}

const SUBSETS: &str = "
own_locality: a
fleet: {localities: [{locality: a, hosts: 2}, {locality: b, hosts: 2}]}
upstream:
  localities:
  - {locality: a, hosts: 9, metadata: {version: stable}}
  - {locality: a, hosts: 1, metadata: {version: canary}}
  - {locality: b, hosts: 7, metadata: {version: stable}}
  - {locality: b, hosts: 3, metadata: {version: canary}}
cluster:
  name: orders
  lb_subset_config: {subset_selectors: [{keys: [version]}]}
  common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}
";

#[test]
fn a_subset_is_explained_by_its_own_hosts() {
    let whole = Scenario::parse(SUBSETS).unwrap().explain();
    assert_eq!(whole.state, StateName::LocalityDirect);
    let subsets = whole.subsets.unwrap();
    let names: Vec<_> = subsets
        .subsets
        .iter()
        .map(|subset| subset.metadata.as_str())
        .collect();
    assert_eq!(names, [r#"version="canary""#, r#"version="stable""#]);
    let canary = format!("{SUBSETS}subset: {{version: canary}}\n");
    let canary = Scenario::parse(&canary).unwrap().explain();
    assert_eq!(canary.state, StateName::LocalityResidual);
    assert_eq!(canary.local_percent_to_route_bp, Some(5000));
    let hosts: Vec<u64> = canary.localities.iter().map(|row| row.hosts).collect();
    assert_eq!(hosts, [1, 3]);
}

#[test]
fn an_unknown_subset_is_rejected_with_the_known_ones() {
    let unknown = format!("{SUBSETS}subset: {{version: 9}}\n");
    let error = Scenario::parse(&unknown).unwrap_err().to_string();
    assert!(
        error.starts_with(
            r#"subset: unknown subset version=9, expected one of version="canary"; version="#
        ),
        "{error}"
    );
}
