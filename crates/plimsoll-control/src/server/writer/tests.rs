//! Tests of a writer that is called by hand, one message after the other.

use plimsoll_xds::lrs::SUPPORTS_SEND_ALL_CLUSTERS;
use tokio::sync::oneshot;

use super::*;
use crate::delivery::NodeClass;
use crate::server::channel::Subscribed;
use crate::state::tests::driver::{config, node, parse, stats};

fn proxy(id: &str) -> Arc<NodeInfo> {
    Arc::new(node(NodeClass::Envoy, id, "a"))
}

/// Opens a discovery stream.
fn open_ads(writer: &mut Writer, node: &Arc<NodeInfo>) -> OpenedStream {
    let (reply, mut response) = oneshot::channel();
    writer.handle(Message::OpenAds {
        node: Arc::clone(node),
        returning: false,
        peer: crate::fleet::Peer::default(),
        reply,
    });
    response.try_recv().unwrap().unwrap()
}

/// Opens a load reporting stream.
fn open_lrs(writer: &mut Writer, node: &Arc<NodeInfo>) -> OpenedReporting {
    let (reply, mut response) = oneshot::channel();
    writer.handle(Message::OpenLrs {
        node: Arc::clone(node),
        peer: crate::fleet::Peer::default(),
        reply,
    });
    response.try_recv().unwrap().unwrap()
}

/// Drops a stream and lets the writer know.
fn close<T>(writer: &mut Writer, stream: T) {
    drop(stream);
    while let Ok(closed) = writer.closes.try_recv() {
        writer.close(&closed);
    }
}

#[tokio::test]
async fn views_and_patches_last_until_their_last_stream_closes() {
    let relay = "relay: {address: '127.0.0.1:1'}\nservices: [{cluster: {name: orders}}]";
    for config in [config(""), parse(relay)] {
        let (mut writer, _handle) = start(config);
        let first = open_ads(&mut writer, &proxy("1"));
        let second = open_ads(&mut writer, &proxy("2"));
        assert_eq!(writer.outputs.len(), 1);
        close(&mut writer, first);
        assert_eq!(writer.outputs.len(), 1, "one is left");
        close(&mut writer, second);
        assert_eq!(writer.outputs.len(), 0);
        let key = ViewKey::of(&proxy("1"), false);
        assert!(writer.state.output(&key).is_none());
    }
}

#[tokio::test]
async fn views_of_open_streams_change_once_per_burst() {
    let (mut writer, _handle) = start(config(""));
    let opened = open_ads(&mut writer, &proxy("1"));
    let Subscribed::Complete(mut views) = opened.subscribed else {
        panic!("there is no relay");
    };
    writer.publish();
    views.mark_unchanged();
    writer.handle(Message::Config {
        config: parse("services: [{cluster: {name: orders}}, {cluster: {name: carts}}]"),
        by: "edit".into(),
    });
    let _second = open_ads(&mut writer, &proxy("2"));
    assert!(!views.has_changed().unwrap(), "the burst has not ended");
    writer.publish();
    assert!(views.has_changed().unwrap());
}

#[tokio::test]
async fn instructions_last_until_the_last_load_reporting_stream_closes() {
    let (mut writer, _handle) = start(config(""));
    let first = open_lrs(&mut writer, &proxy("1"));
    let second = open_lrs(&mut writer, &proxy("2"));
    close(&mut writer, first);
    assert_eq!(writer.instructions.len(), 1, "one is left");
    let (instructions, guard) = second;
    drop(instructions);
    let discovery = open_ads(&mut writer, &proxy("2"));
    close(&mut writer, discovery);
    assert_eq!(writer.instructions.len(), 1, "not closed yet");
    close(&mut writer, guard);
    assert_eq!(writer.instructions.len(), 0);
}

#[tokio::test]
async fn reports_about_unknown_clusters_are_counted_if_the_node_was_asked_for_known_ones() {
    let mut asks_for_nothing = node(NodeClass::Envoy, "2", "a");
    let feature = SUPPORTS_SEND_ALL_CLUSTERS.to_owned();
    asks_for_nothing.client_features.push(feature);
    let all = parse("relay: {address: '127.0.0.1:1'}");
    for (config, node, expected) in [
        (config(""), proxy("1"), Some(2)),
        (config(""), Arc::new(asks_for_nothing), None),
        (all, proxy("1"), None),
    ] {
        let (mut writer, handle) = start(config);
        let bytes = Arc::clone(&handle.queue_bytes).try_acquire_owned();
        writer.handle(Message::Report {
            node,
            stats: ["orders", "x", "y"].map(|name| stats(name, 1)).to_vec(),
            _bytes: bytes.unwrap(),
        });
        let counted = handle.counters().values();
        let ignored = counted.get(&("load_reports_ignored_total", "unknown_cluster"));
        assert_eq!(ignored.copied(), expected);
    }
}

#[tokio::test]
async fn records_of_nodes_wait_for_the_store_unless_they_are_too_large() {
    let replica = ReplicaIdentity {
        id: "r0".into(),
        instance: 1,
        started_unix_ms: 0,
    };
    let (mut writer, handle) = start_replica(config(""), Some(&replica));
    let store = Arc::clone(handle.store_stats().unwrap());
    let _first = open_ads(&mut writer, &proxy("1"));
    writer.publish();
    assert_eq!(store.pending(), 1);
    store.changed.notified().await;
    let mut large = node(NodeClass::Envoy, "2", "a");
    large.user_agent_name = "x".repeat(1 << 20);
    let _second = open_ads(&mut writer, &Arc::new(large));
    writer.publish();
    assert_eq!(store.pending(), 1);
    let counted = handle.counters().values();
    assert_eq!(counted[&("limit_exceeded_total", "store_record")], 1);
    let (_, alone) = start(config(""));
    assert!(alone.store_stats().is_none());
}

#[tokio::test]
async fn load_reporting_streams_wake_up_only_for_other_instructions() {
    let (mut writer, _handle) = start(config(""));
    let (mut instructions, _guard) = open_lrs(&mut writer, &proxy("1"));
    writer.publish();
    instructions.mark_unchanged();
    // A reload of the same configuration rebuilds everything, and nothing differs.
    writer.configure(config(""), "edit");
    writer.publish();
    assert!(!instructions.has_changed().unwrap());
    writer.configure(parse("services: [{cluster: {name: carts}}]"), "edit");
    assert!(instructions.has_changed().unwrap(), "other settings");
    instructions.mark_unchanged();
    writer.publish();
    assert!(instructions.has_changed().unwrap(), "other traffic");
}
