//! Tests that full documents and patches lead to the same document.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::state::{ClusterState, NodeState};

fn node(id: &str, rate: f64) -> NodeState {
    NodeState {
        id: id.to_owned(),
        requests_per_second: Some(rate),
        ..Default::default()
    }
}

fn state(taken: u64, nodes: &[(&str, f64)]) -> DashboardState {
    DashboardState {
        title: "t".to_owned(),
        taken_unix_ms: taken,
        clusters: vec![ClusterState {
            cluster: "orders".to_owned(),
            ..Default::default()
        }],
        nodes: Some(nodes.iter().map(|(id, rate)| node(id, *rate)).collect()),
        ..Default::default()
    }
}

/// Parses an event into its name, sequence number and data.
fn parse(event: &Bytes) -> (String, u64, Value) {
    let text = std::str::from_utf8(event).unwrap();
    let mut lines = text.lines();
    let mut field = |name: &str| {
        let line = lines.next().unwrap();
        line.strip_prefix(name).unwrap().to_owned()
    };
    let parsed = (
        field("event: "),
        field("id: ").parse().unwrap(),
        serde_json::from_str(&field("data: ")).unwrap(),
    );
    assert!(text.ends_with("\n\n"), "{text}");
    assert_eq!(lines.next(), Some(""));
    parsed
}

#[test]
fn a_full_event_is_the_document() {
    let mut state = state(7, &[("1", 1.0)]);
    state.subtitle = "a \"quoted\"\nline".to_owned();
    let frame = Frame::new(&state, None);
    let (name, sequence, data) = parse(&frame.event_since(None));
    assert_eq!((name.as_str(), sequence), ("full", 1));
    assert_eq!(data, serde_json::to_value(&state).unwrap());
}

#[test]
fn unchanged_nodes_are_not_sent_again() {
    let first = Frame::new(&state(1, &[("1", 1.0), ("2", 2.0), ("3", 3.0)]), None);
    let second = Frame::new(&state(2, &[("1", 1.0), ("2", 5.0)]), Some(&first));
    let (name, sequence, data) = parse(&second.event_since(Some(1)));
    assert_eq!((name.as_str(), sequence), ("patch", 2));
    assert_eq!(data["taken_unix_ms"], 2);
    assert_eq!(data["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(data["nodes"][0]["requests_per_second"], 5.0);
    assert_eq!(data["nodes_gone"], json!([node("3", 3.0).key()]));
    assert_eq!(data.get("head"), None);
    assert_eq!(data.get("clusters"), None);
    let third = Frame::new(&state(3, &[("1", 1.0), ("2", 5.0)]), Some(&second));
    let (.., data) = parse(&third.event_since(Some(2)));
    assert_eq!(data, json!({ "taken_unix_ms": 3 }));
}

#[test]
fn a_viewer_that_missed_a_frame_gets_the_full_document() {
    let first = Frame::new(&state(1, &[]), None);
    let second = Frame::new(&state(2, &[]), Some(&first));
    let third = Frame::new(&state(3, &[]), Some(&second));
    let (name, ..) = parse(&third.event_since(Some(1)));
    assert_eq!(name, "full");
    let (name, ..) = parse(&third.event_since(None));
    assert_eq!(name, "full");
}

#[test]
fn nodes_may_appear_and_everything_may_change() {
    let mut before = state(1, &[]);
    before.nodes = None;
    let first = Frame::new(&before, None);
    let (.., data) = parse(&first.event_since(None));
    assert_eq!(data["nodes"], Value::Null);
    let mut after = state(2, &[("1", 1.0)]);
    after.title = "other".to_owned();
    after.clusters[0].cluster = "search".to_owned();
    let second = Frame::new(&after, Some(&first));
    let (.., data) = parse(&second.event_since(Some(1)));
    assert_eq!(data["head"]["title"], "other");
    assert_eq!(data["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(data["clusters"][0]["cluster"], "search");
    assert_eq!(data["clusters_gone"], json!([before.clusters[0].key()]));
}

/// Applies events to a document as the page does.
#[derive(Default)]
struct Viewer {
    nodes: BTreeMap<String, Value>,
}

impl Viewer {
    fn handle(&mut self, event: &Bytes) {
        let (name, _, data) = parse(event);
        if name == "full" {
            self.nodes.clear();
        }
        for node in data["nodes"].as_array().into_iter().flatten() {
            let (fleet, id) = (
                node["fleet"].as_str().unwrap(),
                node["id"].as_str().unwrap(),
            );
            self.nodes
                .insert(format!("{fleet}\u{1f}{id}"), node.clone());
        }
        for gone in data["nodes_gone"].as_array().into_iter().flatten() {
            self.nodes.remove(gone.as_str().unwrap());
        }
    }
}

#[test]
fn patches_add_up_to_the_full_document() {
    let documents: [&[(&str, f64)]; 5] = [
        &[("a", 1.0)],
        &[("a", 1.0), ("b", 2.0)],
        &[("b", 3.0), ("c", 1.0)],
        &[],
        &[("a", 9.0)],
    ];
    let mut viewer = Viewer::default();
    let mut last: Option<Frame> = None;
    for (taken, nodes) in (1..).zip(documents) {
        let frame = Frame::new(&state(taken, nodes), last.as_ref());
        viewer.handle(&frame.event_since(last.as_ref().map(Frame::sequence)));
        let mut fresh = Viewer::default();
        fresh.handle(&frame.event_since(None));
        assert_eq!(viewer.nodes, fresh.nodes);
        assert_eq!(viewer.nodes.len(), nodes.len());
        last = Some(frame);
    }
}
