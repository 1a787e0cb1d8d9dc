//! Tests of `plimsoll sim`: formats of the report, overrides, errors with their path, exit codes.
//! The simulation itself is tested in plimsoll-sim.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SCENARIO: &str = r#"
title = "Three quarters in one zone"
duration = "20s"
policies = ["zone_aware_hosts", "zone_aware_weights", "optimum"]

[traffic]
mean_utilization = 0.5

[[zone]]
name = "a"
demand = 75
hosts = [{ count = 4, capacity = 30 }]

[[zone]]
name = "b"
demand = 25
hosts = [{ count = 4, capacity = 30 }]
"#;

/// Runs `plimsoll sim - ARGS` with a scenario on its standard input.
fn sim(scenario: &str, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sim", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A process that rejects its arguments does not read its input.
    let _ = child.stdin.take().unwrap().write_all(scenario.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn the_table_has_one_row_per_policy_and_no_progress_bar() {
    let output = sim(SCENARIO, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let table = text(&output.stdout);
    assert!(
        table.starts_with("Three quarters in one zone\n2 zones, 8 hosts"),
        "{table}"
    );
    for policy in ["zone_aware_hosts ", "zone_aware_weights ", "optimum "] {
        let rows = table.lines().filter(|line| line.starts_with(policy));
        assert_eq!(rows.count(), 2, "one in each block, {policy}:\n{table}");
    }
    assert!(!table.contains('\u{1b}'));
}

#[test]
fn all_formats_are_written_deterministically() {
    let (html, csv) = (file("sim.html"), file("sim.csv"));
    let write = || {
        let args = [
            "--html",
            html.to_str().unwrap(),
            "--csv",
            csv.to_str().unwrap(),
            "--json",
        ];
        let output = sim(SCENARIO, &args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let files = [&html, &csv].map(|path| std::fs::read_to_string(path).unwrap());
        (text(&output.stdout), files)
    };
    let (json, [page, rows]) = write();
    assert_eq!((json.clone(), [page.clone(), rows.clone()]), write());
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("id=\"report\""));
    assert!(rows.starts_with("policy,time_s,zone,"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["facts"]["title"], "Three quarters in one zone");
    let ratio = json["policies"][0]["metrics"]["max_over_mean_5s_avg"]
        .as_f64()
        .unwrap();
    assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
}

#[test]
fn seed_duration_and_policies_can_be_overridden() {
    let args = [
        "--seed",
        "9",
        "--duration",
        "15s",
        "--policy",
        "none,optimum",
        "--json",
    ];
    let output = sim(SCENARIO, &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["facts"]["seed"], &json["facts"]["duration_s"]),
        (&9.into(), &15.0.into())
    );
    let names: Vec<&Value> = json["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["policy"])
        .collect();
    assert_eq!(names, ["none", "optimum"]);
}

#[test]
fn recorded_demand_takes_the_place_of_the_scenarios() {
    let directory = plimsoll_testing::scratch("sim", "recorded");
    let path = directory.join("day.csv");
    std::fs::write(&path, "time,a,b\n0,10,30\n600,10,30\n").unwrap();
    let file = path.to_str().unwrap();
    let args = [
        "--from-metrics",
        file,
        "--speed",
        "20",
        "--scale",
        "2",
        "--json",
    ];
    let output = sim(SCENARIO, &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["facts"]["duration_s"], 30.0);
    assert_eq!(json["facts"]["requests_per_second"], 80.0);
    let zones = &json["policies"][0]["metrics"]["zones"];
    let demand = [0, 1].map(|zone| zones[zone]["demand_rps"].as_f64().unwrap().round());
    assert_eq!(demand, [20.0, 60.0]);

    std::fs::write(&path, "time,a\n0,10\n600,10\n").unwrap();
    let output = sim(SCENARIO, &["--from-metrics", file]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(
        error.contains("day.csv: zones[b]: has no curve; there are a"),
        "{error}"
    );
    // It would change nothing.
    assert_eq!(sim(SCENARIO, &["--speed", "2"]).status.code(), Some(2));
}

#[test]
fn an_unmet_expectation_exits_with_1() {
    let expect = "[[expect]]\npolicy = \"zone_aware_hosts\"\nat_most = { settled_s = 30 }\n";
    let output = sim(&format!("{SCENARIO}\n{expect}"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(
        table.contains("FAIL zone_aware_hosts: settled_s at most 30"),
        "{table}"
    );
}

#[test]
fn invalid_input_exits_with_2_and_names_the_field() {
    let broken = SCENARIO.replace("demand = 25", "demnad = 25");
    let wrong = SCENARIO.replace("capacity = 30", "capacity = -30");
    for (scenario, args, hint) in [
        (
            broken.as_str(),
            &[][..],
            "standard input: zone[1].demnad: unknown field",
        ),
        (
            wrong.as_str(),
            &[],
            "standard input: zone[0].hosts[0].capacity: -30 must be above 0",
        ),
        (SCENARIO, &["--duration", "soon"], "\"1.5s\""),
        (
            SCENARIO,
            &["--duration", "1s"],
            "duration: must be at least 10s",
        ),
        (SCENARIO, &["--policy", "best"], "unknown policy"),
        (
            SCENARIO,
            &["--html", "/no/such/directory/x.html"],
            "cannot write /no/such/directory/x.html",
        ),
    ] {
        let output = sim(scenario, args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            text(&output.stdout)
        );
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(
            text(&output.stderr).contains(hint),
            "{hint}: {}",
            text(&output.stderr)
        );
    }
    let missing = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sim", "no-such-file.toml"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).starts_with("error: no-such-file.toml: "));
}

#[test]
fn help_lists_every_policy_and_table() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["sim", "--help"])
        .output()
        .unwrap();
    let help = text(&output.stdout);
    for policy in plimsoll_sim::Policy::ALL {
        assert!(help.contains(policy.name()), "{policy:?}");
    }
    for part in [
        "Examples:",
        "--html",
        "--csv",
        "--seed",
        "[traffic]",
        "[[zone]]",
        "[[event]]",
        "[[expect]]",
        "Exit codes:",
    ] {
        assert!(help.contains(part), "{part} is missing:\n{help}");
    }
}

#[test]
fn a_broken_pipe_is_not_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let scenario = file("sim-pipe.toml");
    std::fs::write(&scenario, SCENARIO).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("sim")
        .arg(&scenario)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), "")
    );
}

/// The simulator and the control plane send the same settings for a service that wrote nothing
/// about demand, and for one with `load_aware_locality`.
#[test]
fn policies_have_the_settings_that_the_control_plane_sends() {
    use plimsoll_control::config::{ConfigFile, ControlConfig};
    use plimsoll_control::delivery::{NodeClass, steered_config, steering};
    use plimsoll_sim::{Policy, Scenario};

    let child = "typed_extension_config: {name: r, typed_config: {'@type': \
                 type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin}}";
    let convergent = format!(
        ", load_balancing_policy: {{policies: [{{typed_extension_config: {{name: l, typed_config: \
         {{'@type': type.googleapis.com/envoy.extensions.load_balancing_policies.\
         load_aware_locality.v3.LoadAwareLocality, endpoint_picking_policy: {{policies: [{{{child}\
         }}]}}, spill_controller: CONVERGENT}}}}}}]}}"
    );
    let endpoints = "endpoints: [{locality: {zone: a}, lb_endpoints: ['10.0.0.1:80']}]";
    for (policy, cluster, data_plane, class) in [
        (Policy::LrsByReporter, "", "plimsoll", NodeClass::Plimsoll),
        (Policy::LrsByReporter, "", "envoy", NodeClass::Envoy),
        (
            Policy::Hybrid,
            &*convergent,
            "plimsoll",
            NodeClass::Plimsoll,
        ),
    ] {
        let text = format!("services: [{{cluster: {{name: orders{cluster}}}, {endpoints}}}]");
        let name = "test".to_owned();
        let config = ControlConfig::parse(&ConfigFile { name, text }, &[]).unwrap();
        let service = &config.services["orders"];
        let sent = steered_config(service, steering(service, class));
        let scenario = format!("{SCENARIO}\n[balancer]\ndata_plane = \"{data_plane}\"\n");
        let simulated = policy.cluster_config(&Scenario::parse(&scenario).unwrap());
        assert_eq!(simulated.unwrap(), sent, "{policy:?} at {data_plane}");
    }
}
