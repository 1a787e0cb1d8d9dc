//! The page of a scene without sockets.

use std::time::Duration;

use plimsoll_admin::state::{NodeState, Place};
use serde_json::json;

use super::super::counters::{Counters, Window};
use super::super::setting::{Policy, Setting};
use super::*;

/// Two seconds in which zone-a sends twice as much to itself as to zone-b.
fn scene(setting: Setting, last: Action) -> Scene {
    let (counters, mut window) = (Counters::default(), Window::default());
    window.push(counters.sample(), Duration::ZERO);
    for _ in 0..100 {
        counters.taken(0, 0);
        counters.taken(0, 0);
        counters.taken(0, 1);
    }
    window.push(counters.sample(), Duration::from_secs(2));
    Scene {
        setting,
        last,
        rates: window.rates(),
        totals: counters.sample(),
        utilization: [Some(0.9), Some(0.4), None],
        elapsed: Duration::from_secs(2),
    }
}

fn base() -> DashboardState {
    let zone = |name: &str| ZoneState {
        locality: Place {
            zone: name.to_owned(),
            ..Default::default()
        },
        load: Some(1.5),
        ..Default::default()
    };
    DashboardState {
        clusters: vec![ClusterState {
            zones: ZONES.iter().map(|name| zone(name)).collect(),
            flows: vec![Flow(2, 2, 7.0)],
            basis: "host_counts".to_owned(),
            ..Default::default()
        }],
        nodes: Some(vec![NodeState {
            connected: true,
            ..Default::default()
        }]),
        ..Default::default()
    }
}

fn nobody() -> [Option<Value>; 3] {
    [const { None }; 3]
}

#[test]
fn while_the_control_plane_runs_traffic_is_its_own_and_utilization_that_of_backends() {
    let action = Action::Route(Policy::Convergent);
    let scene = scene(Setting::OPENING.after(action), action);
    let explained = json!({
        "locality_policy": "load_aware_locality",
        "state": "NoLocalityRouting",
        "reason": "because",
        "localities": [{ "own": true, "expected_share": 0.5 }, { "own": false }],
    });
    let explained = [Some(explained), None, None];
    let page = document(base(), true, &scene, Vec::new(), &explained);
    let cluster = &page.clusters[0];
    assert_eq!(cluster.flows, [Flow(2, 2, 7.0)]);
    assert_eq!(cluster.basis, "utilization");
    let zone = &cluster.zones[0];
    assert_eq!((zone.load, zone.utilization), (Some(1.5), Some(0.9)));
    assert_eq!(zone.state.as_deref(), Some("LocalityResidual"));
    assert_eq!(
        (zone.reason.as_deref(), zone.kept_local_planned),
        (Some("because"), Some(0.5))
    );
    assert_eq!(cluster.zones[2].utilization, None);
    let pressed = page.actions.iter().filter(|one| one.pressed);
    let pressed: Vec<&str> = pressed.map(|one| one.name.as_str()).collect();
    assert_eq!(pressed, ["convergent", "traffic-a"]);
    let offered = |name: &str| page.actions.iter().any(|one| one.name == name);
    assert!(offered("kill-zone") && offered("stop-control") && offered("surge"));
    assert!(!offered("restore-zone") && !offered("start-control") && !offered("calm"));
    assert_eq!(page.notices[0].text, action.look());
}

#[test]
fn while_it_does_not_traffic_is_what_backends_see() {
    let action = Action::Control(false);
    let scene = scene(Setting::OPENING.after(action), action);
    let page = document(base(), false, &scene, Vec::new(), &nobody());
    let cluster = &page.clusters[0];
    assert_eq!(cluster.flows, [Flow(0, 0, 100.0), Flow(0, 1, 50.0)]);
    assert_eq!(cluster.zones[0].load, Some(2.0));
    assert_eq!(cluster.zones[0].kept_local, Some(0.667));
    assert_eq!(cluster.zones[1].line_requests_per_second, Some(50.0));
    assert_eq!(
        page.nodes.as_ref().map(|nodes| nodes[0].connected),
        Some(false)
    );
    assert!(
        page.what_if && page.explain,
        "panels stay, answers say why there is none"
    );
    assert_eq!(cluster.zones[0].healthy_hosts, 4);
    assert_eq!(cluster.zones[0].capacity_share, Some(0.333));
    assert_eq!(page.notices[1].severity, Severity::Warning);
}

#[test]
fn a_dead_zone_has_no_line_and_those_of_the_others_rise() {
    let action = Action::Lose(true);
    let scene = scene(Setting::OPENING.after(action), action);
    assert_eq!((scene.load(2), scene.line(0)), (None, 75.0));
    let page = document(base(), false, &scene, Vec::new(), &nobody());
    assert_eq!(page.clusters[0].zones[2].load, None);
}
