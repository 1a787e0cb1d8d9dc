//! `plimsoll demo` from outside: routing by host counts overloads the hot zone, measured demand and
//! measured load level it, a control plane that is gone costs no request, and it ends cleanly.
//!
//! Buttons are pressed over HTTP and the JSON lines are read until what they should show is shown;
//! nothing is said about how long that takes. Everything listens on ports that the system chooses.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "demo/process.rs"]
mod process;

use process::{Demo, load, loads};
use serde_json::Value;

/// The hot zone has 60 % of the demand and a third of the capacity.
fn zone_a_is_far_above_its_line(line: &Value) -> bool {
    load(line, 0) > 1.5 && load(line, 1) < 0.8 && load(line, 2) < 0.8
}

fn all_zones_are_at_their_line(line: &Value) -> bool {
    loads(line).iter().all(|load| (0.94..1.06).contains(load))
}

#[test]
fn measured_demand_levels_what_host_counts_do_not_and_a_dead_control_plane_costs_nothing() {
    let mut demo = Demo::start(&["--json"]);
    demo.wait("host counts overload zone-a", |line| {
        line["policy"] == "HEALTHY_HOSTS_NUM" && zone_a_is_far_above_its_line(line)
    });
    let refused = demo.pressed_from_the_web("lrs-reported-rate");
    assert!(refused.contains("403"), "{refused}");
    demo.press("lrs-reported-rate");
    let level = demo.wait("measured demand levels the zones", |line| {
        line["policy"] == "LRS_REPORTED_RATE" && all_zones_are_at_their_line(line)
    });
    let crossing = level["cross_zone_share"].as_f64().unwrap();
    assert!(
        (0.2..0.35).contains(&crossing),
        "0.267 has to leave, not {crossing}"
    );
    demo.page_agrees();

    let before = demo.press("stop-control");
    assert_eq!(before["control_plane"], false);
    let served = before["served"].as_u64().unwrap();
    let after = demo.wait("hundreds of requests without a control plane", |line| {
        line["served"].as_u64().unwrap() > served + 500
    });
    assert_eq!(after["failed"], before["failed"], "{after}");
    assert_eq!(after["control_plane"], false);
    demo.page_agrees();
    demo.press("start-control");
    let back = demo.wait("level again, with a control plane", |line| {
        line["control_plane"] == true && all_zones_are_at_their_line(line)
    });
    assert_eq!(back["failed"], before["failed"], "{back}");
    demo.interrupt();
}

#[test]
fn measured_load_levels_the_zones_and_follows_a_zone_that_dies() {
    let mut demo = Demo::start(&["--json", "--seed", "7"]);
    demo.press("convergent");
    demo.wait("measured load levels the zones", |line| {
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
fn the_walk_shows_every_step_and_ends_by_itself() {
    let mut demo = Demo::start(&["--json", "--auto", "--duration", "24"]);
    let lines = demo.finish();
    let events = lines.iter().filter(|line| line["type"] == "event");
    let actions: Vec<&str> = events
        .map(|line| line["action"].as_str().unwrap())
        .collect();
    let walk = [
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
    assert_eq!(actions, walk);
    let looks = lines.iter().filter_map(|line| line["look"].as_str());
    assert!(looks.into_iter().all(|look| look.starts_with("Look at ")));
}

#[test]
fn without_a_terminal_lines_follow_each_other_and_have_no_codes() {
    let text = Demo::text(&["--duration", "6"]);
    assert!(text.starts_with("dashboard on http://127.0.0.1:"), "{text}");
    assert!(text.contains("HEALTHY_HOSTS_NUM"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, error) = Demo::refused(&["--admin", &address]);
    assert_eq!(code, Some(2));
    assert!(error.contains(&address), "{error}");
}
