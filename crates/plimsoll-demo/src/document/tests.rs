//! Tests of the demo's dashboard document, without sockets.

use std::time::Duration;

use plimsoll_admin::state::NodeState;
use plimsoll_core::model::locality::Locality;
use serde_json::json;

use super::*;
use crate::counters::{Counters, Window};
use crate::setting::{Policy, Setting};

/// Status after two seconds in which zone-a sent twice as many requests to itself as to zone-b.
fn status(setting: Setting, last: Action) -> Status {
    let (counters, mut window) = (Counters::default(), Window::default());
    window.push(counters.sample(), Duration::ZERO);
    for _ in 0..100 {
        counters.received(0, 0);
        counters.received(0, 0);
        counters.received(0, 1);
    }
    window.push(counters.sample(), Duration::from_secs(2));
    Status {
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
        locality: Locality::zone_only(name),
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

fn no_explanations() -> [Option<Value>; 3] {
    [const { None }; 3]
}

#[test]
fn with_a_control_plane_traffic_comes_from_its_document() {
    let action = Action::Route(Policy::Convergent);
    let status = status(Setting::OPENING.after(action), action);
    let explained = json!({
        "locality_policy": "load_aware_locality",
        "state": "LoadAwareLocality",
        "reason": "because",
        "localities": [{ "own": true, "expected_share": 0.5 }, { "own": false }],
    });
    let explained = [Some(explained), None, None];
    let page = document(base(), true, &status, Vec::new(), &explained);
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
    let pressed: Vec<&str> = page
        .actions
        .iter()
        .filter(|one| one.pressed)
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(pressed, ["convergent", "traffic-a"]);
    let offered = |name: &str| page.actions.iter().any(|one| one.name == name);
    assert!(offered("kill-zone") && offered("stop-control") && offered("surge"));
    assert!(!offered("restore-zone") && !offered("start-control") && !offered("calm"));
    assert_eq!(page.notices[0].text, action.hint());
}

#[test]
fn without_a_control_plane_traffic_comes_from_the_backends() {
    let action = Action::Control(false);
    let status = status(Setting::OPENING.after(action), action);
    let page = document(base(), false, &status, Vec::new(), &no_explanations());
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
        "the panels stay and show the reason"
    );
    assert_eq!(cluster.zones[0].healthy_hosts, 4);
    assert_eq!(cluster.zones[0].capacity_share, Some(0.333));
    assert_eq!(page.notices[1].severity, Severity::Warning);
}

#[test]
fn losing_a_zone_raises_the_fair_share_of_the_others() {
    let action = Action::Lose(true);
    let status = status(Setting::OPENING.after(action), action);
    assert_eq!((status.load(2), status.line(0)), (None, 75.0));
    let page = document(base(), false, &status, Vec::new(), &no_explanations());
    assert_eq!(page.clusters[0].zones[2].load, None);
}
