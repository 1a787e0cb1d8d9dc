//! Tests of `plimsoll explain`: the shipped scenarios with their numbers, and error messages.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/explain")
}

fn explain(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("explain")
        .args(arguments)
        .current_dir(examples())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    // A process that rejects its arguments does not read its input.
    let _ = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(input.as_bytes()));
    child.wait_with_output().expect("the binary exits")
}

fn page(arguments: &[&str], input: &str) -> String {
    let output = explain(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert_eq!(errors, "");
    String::from_utf8(output.stdout).expect("text")
}

fn json_of(name: &str) -> Value {
    let page = page(&[&format!("{name}.yaml"), "--json"], "");
    serde_json::from_str(&page).expect("JSON")
}

fn names() -> Vec<String> {
    let files = std::fs::read_dir(examples()).expect("examples");
    let mut names: Vec<String> = files
        .map(|file| {
            file.expect("a file")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// Returns the rows of the localities.
fn rows(explanation: &Value) -> &Vec<Value> {
    explanation["localities"].as_array().expect("a list")
}

/// Returns `field` of every locality, in the order of the explanation.
fn column(explanation: &Value, field: &str) -> Value {
    rows(explanation)
        .iter()
        .map(|row| row[field].clone())
        .collect()
}

/// Asserts the numbers of a column, with a tolerance of 0.005.
fn assert_column(explanation: &Value, field: &str, expected: &[f64]) {
    let found: Vec<f64> = rows(explanation)
        .iter()
        .filter_map(|row| row[field].as_f64())
        .collect();
    assert_eq!(found.len(), expected.len(), "{field}: {found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() < 0.005,
            "{field}: {found} instead of {expected}"
        );
    }
}

#[test]
fn every_example_has_a_title_a_description_and_a_page() {
    let names = names();
    assert!(names.len() >= 25, "{names:?}");
    for name in &names {
        let page = page(&[&format!("{name}.yaml")], "");
        let mut lines = page.lines();
        let title = lines.next().unwrap();
        assert!(
            !title.is_empty() && !title.starts_with("Cluster"),
            "{name}: {title}"
        );
        let description: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        assert!(
            (1..=3).contains(&description.len()),
            "{name}: {description:?}"
        );
        assert!(page.contains("Localities at priority 0"), "{name}: {page}");
        for line in page.lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
        assert!(!page.contains('\u{1b}'), "{name}: color in a pipe");
    }
}

#[test]
fn every_example_has_json_with_the_promised_fields() {
    for name in names() {
        let explanation = json_of(&name);
        for field in [
            "state",
            "reason",
            "reason_code",
            "local_percent_to_route_bp",
        ] {
            assert!(explanation.get(field).is_some(), "{name}: {field}");
        }
        for row in explanation["localities"].as_array().unwrap() {
            for field in ["local_bp", "upstream_bp", "residual_bp"] {
                assert!(row[field].is_u64(), "{name}: {field}");
            }
            assert!(row["expected_share"].is_f64(), "{name}");
            assert!(
                row["load_factor"].is_f64() || row["load_factor"].is_null(),
                "{name}"
            );
        }
        let shares = column(&explanation, "expected_share");
        let sum: f64 = shares
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_f64)
            .sum();
        let fails = name == "off-upstream-panic-fails";
        assert!(
            (sum - if fails { 0.0 } else { 1.0 }).abs() < 1e-9,
            "{name}: {sum}"
        );
    }
}

/// Seed 000: HEALTHY_HOSTS_NUM under skewed demand.
#[test]
fn host_counts_overload_the_zone_with_the_demand() {
    let explanation = json_of("lrs-rate-before");
    assert_eq!(explanation["state"], "LocalityDirect");
    assert_eq!(explanation["reason_code"], Value::Null);
    assert_eq!(explanation["local_percent_to_route_bp"], 10_000);
    assert_eq!(explanation["locality_basis"], "HEALTHY_HOSTS_NUM");
    assert_eq!(explanation["fractions"]["status"], "unused");
    assert_eq!(column(&explanation, "zone"), json!(["a", "b", "c"]));
    assert_eq!(column(&explanation, "local_bp"), json!([3000, 5000, 2000]));
    assert_eq!(
        column(&explanation, "upstream_bp"),
        json!([3000, 5000, 2000])
    );
    assert_eq!(column(&explanation, "residual_bp"), json!([0, 0, 0]));
    assert_column(&explanation, "expected_share", &[1.0, 0.0, 0.0]);
    assert_column(&explanation, "load_factor", &[1.67, 0.70, 0.75]);
}

/// Seed 000: the same with LRS_REPORTED_RATE.
#[test]
fn measured_demand_brings_every_zone_to_its_load_line() {
    let explanation = json_of("lrs-rate-after");
    assert_eq!(explanation["state"], "LocalityResidual");
    assert_eq!(explanation["reason_code"], Value::Null);
    assert_eq!(explanation["local_percent_to_route_bp"], 6000);
    assert_eq!(explanation["fractions"]["status"], "fresh");
    assert_eq!(column(&explanation, "local_bp"), json!([5000, 3500, 1500]));
    assert_eq!(
        column(&explanation, "upstream_bp"),
        json!([3000, 5000, 2000])
    );
    assert_eq!(column(&explanation, "residual_bp"), json!([0, 1500, 500]));
    assert_column(&explanation, "expected_share", &[0.60, 0.30, 0.10]);
    assert_column(&explanation, "load_factor", &[1.0, 1.0, 1.0]);
    let zones = explanation["zones"].as_array().unwrap();
    let states: Vec<_> = zones
        .iter()
        .map(|zone| zone["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        ["LocalityResidual", "LocalityDirect", "LocalityDirect"]
    );
}

/// Seed 002: 40/40/20 against 25/50/25, in both forms of the configuration.
#[test]
fn the_residual_example_is_the_same_in_both_forms() {
    let explanation = json_of("zone-aware-typed");
    assert_eq!(explanation, json_of("zone-aware-legacy"));
    assert_eq!(explanation["state"], "LocalityResidual");
    assert_eq!(explanation["local_percent_to_route_bp"], 6250);
    assert_eq!(column(&explanation, "local_bp"), json!([4000, 4000, 2000]));
    assert_eq!(
        column(&explanation, "upstream_bp"),
        json!([2500, 5000, 2500])
    );
    assert_eq!(column(&explanation, "residual_bp"), json!([0, 1000, 500]));
    assert_column(&explanation, "expected_share", &[0.625, 0.25, 0.125]);
    assert_column(&explanation, "load_factor", &[1.0, 1.0, 1.0]);
    assert_eq!(explanation["fractions"]["status"], "unused");
}

/// One shipped scenario per reason: its name, the code, where requests go.
#[test]
fn every_reason_why_zone_routing_is_off_has_its_scenario() {
    for (name, reason_code, shares) in [
        ("off-not-configured", "not_configured", &[0.3, 0.5, 0.2][..]),
        ("off-no-local-cluster", "no_local_cluster", &[0.3, 0.5, 0.2]),
        (
            "off-upstream-one-locality",
            "upstream_fewer_than_2_localities",
            &[1.0, 0.0, 0.0],
        ),
        (
            "off-fleet-one-locality",
            "local_fewer_than_2_localities",
            &[0.3, 0.5, 0.2],
        ),
        (
            "off-own-locality-not-in-fleet",
            "local_cluster_has_no_host_in_own_locality",
            &[0.3, 0.5, 0.2],
        ),
        (
            "off-upstream-too-small",
            "upstream_too_small",
            &[0.4, 0.4, 0.2],
        ),
        (
            "off-stopped-by-runtime",
            "upstream_too_small",
            &[0.3, 0.5, 0.2],
        ),
    ] {
        let explanation = json_of(name);
        assert_eq!(explanation["state"], "NoLocalityRouting", "{name}");
        assert_eq!(explanation["reason_code"], reason_code, "{name}");
        assert_eq!(
            explanation["local_percent_to_route_bp"],
            Value::Null,
            "{name}"
        );
        assert_column(&explanation, "expected_share", shares);
    }
    let failed = |name: &str| -> Vec<Value> {
        let explanation = json_of(name);
        let tests = explanation["preconditions"].as_array().unwrap().clone();
        tests
            .into_iter()
            .filter(|test| test["passed"] == json!(false))
            .collect()
    };
    let tests = failed("off-stopped-by-runtime");
    assert_eq!(
        (&tests[0]["actual"], &tests[0]["required"]),
        (&json!(10), &json!(20))
    );
    assert_eq!(tests.len(), 1);
    assert!(failed("lrs-rate-after").is_empty());
}

#[test]
fn localities_are_ignored_above_priority_0() {
    let explanation = json_of("off-priority-not-zero");
    let priorities = explanation["priorities"].as_array().unwrap();
    assert_eq!(priorities[0]["reason_code"], Value::Null);
    assert_eq!(priorities[1]["reason_code"], "priority_not_zero");
    assert_eq!(priorities[1]["state"], "NoLocalityRouting");
    let loads = [
        &priorities[0]["healthy_load"],
        &priorities[1]["healthy_load"],
    ];
    assert_eq!(loads, [&json!(35), &json!(65)]);
}

/// `state` is that of the override; `zone_state` keeps that of zone-aware routing.
#[test]
fn an_override_of_zone_routing_is_the_reason() {
    for (name, shares, code, note) in [
        (
            "off-routing-enabled-zero",
            [0.3, 0.5, 0.2],
            "routing_not_enabled",
            "routing_enabled is 0 %",
        ),
        (
            "off-fleet-panic",
            [0.3, 0.5, 0.2],
            "local_cluster_in_panic",
            "the fleet itself is in panic",
        ),
        (
            "off-upstream-panic",
            [0.3, 0.5, 0.2],
            "upstream_in_panic",
            "priority 0 is in panic",
        ),
        (
            "off-upstream-panic-fails",
            [0.0, 0.0, 0.0],
            "upstream_in_panic",
            "requests fail",
        ),
        (
            "locality-weights",
            [0.27, 0.54, 0.19],
            "locality_weights",
            "weights of the assignment",
        ),
    ] {
        let explanation = json_of(name);
        let state = if name == "locality-weights" {
            "LocalityWeighted"
        } else {
            "NoLocalityRouting"
        };
        assert_eq!(explanation["state"], state, "{name}");
        assert_ne!(explanation["zone_state"], "NoLocalityRouting", "{name}");
        assert_eq!(explanation["reason_code"], code, "{name}");
        assert_eq!(
            explanation["local_percent_to_route_bp"],
            Value::Null,
            "{name}"
        );
        assert_column(&explanation, "expected_share", &shares);
        let notes = explanation["notes"].to_string();
        assert!(notes.contains(note), "{name}: {notes}");
        let page = page(&[&format!("{name}.yaml")], "");
        assert!(page.contains("overrides: Locality"), "{name}: {page}");
    }
}

/// Each row: name, status, state, kept share, local_bp.
#[test]
fn every_status_of_fractions_has_its_scenario() {
    let direct = "LocalityDirect";
    let residual = "LocalityResidual";
    for (name, status, state, kept, local_bp) in [
        (
            "fractions-partial",
            "partial",
            residual,
            6000,
            [5000, 3571, 1428],
        ),
        (
            "fractions-all-zero",
            "all_zero",
            direct,
            10_000,
            [3000, 5000, 2000],
        ),
        (
            "fractions-explicit-zero",
            "fresh",
            residual,
            6000,
            [5000, 5000, 0],
        ),
        (
            "fractions-stale",
            "stale",
            direct,
            10_000,
            [3000, 5000, 2000],
        ),
        (
            "fractions-from-metadata",
            "fresh",
            residual,
            6000,
            [5000, 3500, 1500],
        ),
        (
            "fractions-absent",
            "absent",
            direct,
            10_000,
            [3000, 5000, 2000],
        ),
        (
            "fractions-dead-band",
            "fresh",
            direct,
            10_000,
            [3080, 4950, 1970],
        ),
    ] {
        let explanation = json_of(name);
        assert_eq!(explanation["fractions"]["status"], status, "{name}");
        assert_eq!(explanation["state"], state, "{name}");
        assert_eq!(explanation["local_percent_to_route_bp"], kept, "{name}");
        assert_eq!(column(&explanation, "local_bp"), json!(local_bp), "{name}");
    }
    let stale = json_of("fractions-stale");
    assert_eq!(stale["fractions"]["age_ms"], 90_000);
    assert_eq!(stale["fractions"]["staleness_threshold_ms"], 60_000);
    assert_eq!(
        json_of("fractions-from-metadata")["fractions"]["age_ms"],
        20_000
    );
}

/// Seed 001: 0.7 against 0.35 spills by headroom; equal zones stay local but for the probe.
#[test]
fn load_aware_locality_spills_by_headroom_or_stays_local() {
    for (name, utilization, shares, load, kept) in [
        (
            "load-aware-worked-example",
            [0.7, 0.3, 0.4],
            [0.1875, 0.4375, 0.375],
            [1.5, 0.64, 0.86],
            "18.75",
        ),
        (
            "load-aware-balanced",
            [0.45, 0.45, 0.45],
            [0.97, 0.015, 0.015],
            [1.0, 1.0, 1.0],
            "97.00",
        ),
    ] {
        let explanation = json_of(name);
        assert_eq!(explanation["locality_policy"], "load_aware_locality");
        assert_eq!(explanation["endpoint_policy"], "round_robin");
        assert_eq!(explanation["reason_code"], "load_aware_locality");
        assert_eq!(explanation["state"], "LoadAwareLocality", "{name}");
        assert_eq!(explanation["local_percent_to_route_bp"], Value::Null);
        assert_column(&explanation, "utilization", &utilization);
        assert_column(&explanation, "load_factor", &load);
        for (row, share) in rows(&explanation).iter().zip(shares) {
            let found = row["expected_share"].as_f64().unwrap();
            assert!((found - share).abs() < 1e-9, "{name}: {found}");
        }
        let page = page(&[&format!("{name}.yaml")], "");
        let line = format!("LoadAwareLocality: {kept} % stays local\n");
        assert!(page.contains(&line), "{page}");
        assert!(page.contains("  utilization   share  "), "{page}");
    }
    assert_eq!(
        column(&json_of("lrs-rate-after"), "utilization"),
        json!([null, null, null])
    );
}

#[test]
fn the_other_examples_have_their_numbers() {
    let forced = json_of("force-local-zone");
    assert_eq!(forced["state"], "LocalityDirect");
    assert_column(&forced, "load_factor", &[1.6, 0.8, 0.8]);
    let weighted = json_of("locality-weights");
    assert_eq!(weighted["locality_policy"], "locality_weighted");
    let wrr = json_of("wrr-locality");
    assert_eq!(wrr["locality_policy"], "wrr_locality");
    assert_eq!(wrr["endpoint_policy"], "least_request");
    assert_column(&wrr, "expected_share", &[0.75, 0.25]);
    let big = json_of("host-weights");
    assert_eq!(column(&big, "upstream_bp"), json!([4615, 3846, 1538]));
    let empty = json_of("zone-without-hosts");
    assert_eq!(empty["local_percent_to_route_bp"], 0);
    assert_eq!(empty["localities"][0]["load_factor"], Value::Null);
    assert_column(&empty, "expected_share", &[0.0, 0.857, 0.143]);
}

#[test]
fn json_is_stable_and_in_the_order_of_the_fields() {
    let first = page(&["lrs-rate-after.yaml", "--json"], "");
    assert_eq!(first, page(&["--json", "lrs-rate-after.yaml"], ""));
    let position = |field: &str| first.find(&format!("\n  \"{field}\":")).expect(field);
    let order = [
        "cluster",
        "state",
        "reason",
        "preconditions",
        "localities",
        "zones",
        "notes",
    ];
    assert!(order.map(position).is_sorted());
}

#[test]
fn several_files_give_pages_in_order_or_a_json_array() {
    let files = ["lrs-rate-before.yaml", "lrs-rate-after.yaml"];
    let both = page(&files, "");
    let (before, after) = both.split_once(&"─".repeat(100)).unwrap();
    assert_eq!(before.trim_end(), page(&files[..1], "").trim_end());
    assert_eq!(after.trim_start(), page(&files[1..], ""));
    let array: Value = serde_json::from_str(&page(&[files[0], files[1], "--json"], "")).unwrap();
    assert_eq!(
        array,
        json!([json_of("lrs-rate-before"), json_of("lrs-rate-after")])
    );
}

#[test]
fn a_dash_reads_standard_input() {
    let text = std::fs::read_to_string(examples().join("lrs-rate-after.yaml")).unwrap();
    assert_eq!(page(&["-"], &text), page(&["lrs-rate-after.yaml"], ""));
    let invalid = explain(&["-"], "title: [\n");
    assert_eq!(invalid.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&invalid.stderr).into_owned();
    assert!(
        errors.contains("standard input: unclosed bracket '[' (at 1:8)"),
        "{errors}"
    );
}

/// Each row: text to replace in a valid scenario, its replacement, part of the error.
#[test]
fn invalid_input_exits_with_2_and_names_the_field() {
    let valid = std::fs::read_to_string(examples().join("lrs-rate-after.yaml")).unwrap();
    let zone_aware = "cluster.load_balancing_policy.policies[0].typed_extension_config.\
                      typed_config.locality_lb_config.zone_aware_lb_config";
    let fraction = "fleet.localities[0].observed_traffic_fraction";
    let rows = [
        (
            "locality_basis:",
            "locality_bases:",
            format!("{zone_aware}.locality_bases: unknown field, did you mean locality_basis?"),
        ),
        (
            "LRS_REPORTED_RATE\n",
            "LRS_RATE\n",
            format!("{zone_aware}.locality_basis: unknown value LRS_RATE, expected one of "),
        ),
        (
            "v3.RoundRobin",
            "v3.RoundRobbin",
            "typed_config.@type: unknown type ".into(),
        ),
        (
            "fraction: 5000",
            "fraction: 10001",
            format!("{fraction}: the shares of demand up to here are 100.01 %"),
        ),
        (
            "fraction: 5000",
            "fraction: .nan",
            format!("{fraction}: \".nan\" is not a share in basis points"),
        ),
        (
            "fraction: 5000",
            "fraction: -1",
            format!("{fraction}: -1 is not a whole number"),
        ),
        (
            "hosts: 5, obs",
            "hosts: 5, weights: 0, obs",
            "fleet.localities[1].weights: must be at least 1".into(),
        ),
        (
            "hosts: 3, obs",
            "hosts: x, obs",
            "fleet.localities[0].hosts: \"x\" is not a whole number".into(),
        ),
        (
            "  name: orders",
            "  name: orders\n  name: orders",
            "cluster.name: duplicate key".into(),
        ),
        (
            "own_locality:",
            "own_zone:",
            "own_zone: unknown field, expected one of ".into(),
        ),
    ];
    for (old, new, message) in rows {
        assert!(valid.contains(old), "{old}");
        let output = explain(&["-"], &valid.replacen(old, new, 1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{new}: {errors}");
        assert!(errors.starts_with("error: standard input: "), "{errors}");
        assert!(
            errors.contains(&message),
            "{new}: {errors}\nexpected {message}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn unreadable_files_and_wrong_usage_exit_with_2() {
    let missing = explain(&["no-such-file.yaml"], "");
    assert_eq!(missing.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(errors.contains("no-such-file.yaml: "), "{errors}");
    assert_eq!(explain(&[], "").status.code(), Some(2));
    assert_eq!(
        explain(&["--yaml", "lrs-rate-after.yaml"], "")
            .status
            .code(),
        Some(2)
    );
    // If one of several files is invalid, nothing is printed.
    let mixed = explain(&["lrs-rate-after.yaml", "no-such-file.yaml"], "");
    assert_eq!(mixed.status.code(), Some(2));
    assert!(mixed.stdout.is_empty());
}

#[test]
fn help_lists_the_fields_of_a_scenario() {
    let help = page(&["--help"], "");
    for word in [
        "own_locality",
        "observed_traffic_fraction",
        "utilization",
        "--json",
        "array",
        "NO_COLOR",
        "Exit",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
