//! Tests of `plimsoll demo`: routing by host counts overloads the busy zone, measured demand and
//! measured load even out the zones, requests succeed without a control plane, and it exits
//! cleanly.
//!
//! Actions are triggered over HTTP, and JSON lines are read until they show the expected state; no
//! time is asserted. Everything listens on free ports.

use serde_json::Value;

use crate::support::demo::{Demo, load, loads};

/// The busy zone has 60 % of the demand and a third of the capacity.
fn zone_a_is_far_above_its_line(line: &Value) -> bool {
    load(line, 0) > 1.5 && load(line, 1) < 0.8 && load(line, 2) < 0.8
}

fn all_zones_are_at_their_line(line: &Value) -> bool {
    loads(line).iter().all(|load| (0.94..1.06).contains(load))
}

#[test]
fn measured_demand_evens_out_zones_and_requests_survive_a_control_plane_outage() {
    let mut demo = Demo::start(&["--json"]);
    demo.wait("host counts overload zone-a", |line| {
        line["policy"] == "HEALTHY_HOSTS_NUM" && zone_a_is_far_above_its_line(line)
    });
    let status = demo.post_from_another_origin("lrs-reported-rate");
    assert!(status.contains("403"), "{status}");
    demo.press("lrs-reported-rate");
    let crosses_as_needed = |line: &Value| {
        let share = line["cross_zone_share"].as_f64();
        share.is_some_and(|share| (0.2..0.35).contains(&share))
    };
    demo.wait("zones are even, and 26.7 % of the requests cross", |line| {
        line["policy"] == "LRS_REPORTED_RATE"
            && all_zones_are_at_their_line(line)
            && crosses_as_needed(line)
    });
    demo.assert_dashboard_agrees();

    let before = demo.press("stop-control");
    assert_eq!(before["control_plane"], false);
    let served = before["served"].as_u64().unwrap();
    let after = demo.wait("hundreds of requests without a control plane", |line| {
        line["served"].as_u64().unwrap() > served + 500
    });
    assert_eq!(after["failed"], before["failed"], "{after}");
    assert_eq!(after["control_plane"], false);
    demo.assert_dashboard_agrees();
    demo.press("start-control");
    let back = demo.wait("level again, with a control plane", |line| {
        line["control_plane"] == true && all_zones_are_at_their_line(line)
    });
    assert_eq!(back["failed"], before["failed"], "{back}");
    demo.interrupt();
}

#[test]
fn measured_load_evens_out_zones_and_adapts_to_a_lost_zone() {
    let mut demo = Demo::start(&["--json", "--seed", "7"]);
    demo.press("convergent");
    demo.wait("measured load evens out the zones", |line| {
        line["policy"] == "CONVERGENT" && all_zones_are_at_their_line(line)
    });
    demo.press("kill-zone");
    demo.wait("the others share what zone-c served", |line| {
        line["zones"][2]["healthy_backends"] == 0
            && line["zones"][2]["served_requests_per_second"] == 0.0
            && (load(line, 0) - load(line, 1)).abs() < 0.12
    });
    demo.press("restore-zone");
    demo.wait("zone-c serves again", |line| load(line, 2) > 0.5);
    demo.interrupt();
}

#[test]
fn auto_runs_every_step_and_exits() {
    let mut demo = Demo::start(&["--json", "--auto", "--duration", "24"]);
    let lines = demo.finish();
    let events = lines.iter().filter(|line| line["type"] == "event");
    let actions: Vec<&str> = events
        .map(|line| line["action"].as_str().unwrap())
        .collect();
    let expected = [
        "host-counts",
        "lrs-reported-rate",
        "traffic-b",
        "kill-zone",
        "restore-zone",
        "stop-control",
        "start-control",
        "headroom",
        "convergent",
        "surge",
        "traffic-a",
        "host-counts",
    ];
    assert_eq!(actions, expected);
    let hints = lines.iter().filter_map(|line| line["look"].as_str());
    assert!(hints.into_iter().all(|hint| hint.starts_with("Watch ")));
}

#[test]
fn without_a_terminal_output_is_plain_lines() {
    let text = Demo::text(&["--duration", "6"]);
    assert!(text.starts_with("dashboard on http://127.0.0.1:"), "{text}");
    assert!(text.contains("HEALTHY_HOSTS_NUM"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (code, error) = Demo::failure(&["--admin", &address]);
    assert_eq!(code, Some(2));
    assert!(error.contains(&address), "{error}");
}
