//! Names that clients invent: subscriptions to them, and reports about them.

use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::driver::{
    DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS,
};

use super::support::{ASSIGNMENTS, Control, Peer, Stream, field, node, number, text};
use super::survive;

/// Most names of a request.
const NAMES: usize = 32_768;

/// That many long names, in a field of a request.
fn names(number: u8, kind: &str) -> Vec<u8> {
    let name = |index| text(number, &format!("{kind}-{index:0>90}"));
    (0..NAMES).flat_map(name).collect()
}

/// Subscribes to invented names of this many invented types. Returns the status of the stream if it
/// ends before.
async fn subscribe(peer: &mut Peer, id: &str, types: usize) -> (Stream, Option<String>) {
    let mut stream = peer.open(DELTA_AGGREGATED_RESOURCES).await;
    let hello = field(1, &node(id, "edge", "zone-a"));
    let names = names(3, "invented");
    for index in 0..types {
        let type_url = text(2, &format!("type.googleapis.com/invented.{index}"));
        stream.send(&[&hello[..], &type_url, &names].concat()).await;
        if let Some(end) = stream.response_if_any().await {
            return (stream, end);
        }
    }
    (stream, None)
}

async fn limit_exceeded(control: &Control) -> f64 {
    control
        .metric("limit_exceeded_total{limit=\"subscription_bytes\"}")
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_names_of_one_stream_are_limited() {
    survive(async |control| {
        // A gigabyte for each stream.
        for index in 0..2 {
            let mut peer = Peer::connect(control.xds).await;
            let id = format!("inventor-{index}");
            let (mut stream, end) = subscribe(&mut peer, &id, 31).await;
            let end = match end {
                Some(end) => end,
                None => stream.end().await,
            };
            assert!(
                end.starts_with("8: subscribed names without resources: more than"),
                "{end}"
            );
        }
        wait_until("both streams are counted", async || {
            limit_exceeded(&control).await >= 2.0
        })
        .await;
        control
            .wait_for_log("request refused: a limit is exceeded")
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_names_of_all_streams_together_are_limited() {
    survive(async |control| {
        // An honest client with names that do not exist yet, as one that waits for a service.
        let mut honest = Peer::connect_from([127, 0, 0, 2], control.xds).await;
        let mut waiting = honest.open(DELTA_AGGREGATED_RESOURCES).await;
        let hello = field(1, &node("honest", "edge", "zone-a"));
        let later = text(3, "next-service");
        let hello = [&hello[..], &text(2, ASSIGNMENTS), &later].concat();
        waiting.send(&hello).await;
        waiting.response().await;
        // Two types for each stream are less than one may have; all together have 300 MB.
        let mut held = Vec::new();
        for index in 0..25 {
            let mut peer = Peer::connect(control.xds).await;
            // Every other one does not read, so that its handler does not run when it is ended.
            let (stream, _) = subscribe(&mut peer, &format!("inventor-{index}"), 2).await;
            if index % 2 == 0 {
                peer.stop_reading();
            }
            held.push((stream, peer));
        }
        wait_until("streams are ended", async || {
            limit_exceeded(&control).await > 10.0
        })
        .await;
        waiting.drain().await;
        assert_eq!(waiting.response_if_any().await, None, "it may go on");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_all_names_again_and_again_delays_nobody() {
    survive(async |control| {
        // Comparing each name with all others took seconds, while all streams waited.
        let kinds = ["one", "two"].map(|kind| names(3, kind));
        let mut peer = Peer::connect(control.xds).await;
        let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
        let hello = field(2, &node("fickle", "edge", "zone-a"));
        let hello = [hello, text(4, ASSIGNMENTS)].concat();
        for round in 0..10 {
            stream.send(&[&hello[..], &kinds[round % 2]].concat()).await;
        }
        // Names of this request are answered when those before have been handled.
        stream
            .send(&[&hello[..], &text(3, "orders")].concat())
            .await;
        stream.response().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_clusters_of_load_reports_are_not_remembered() {
    survive(async |control| {
        // 4,096 names of a kilobyte for each of 200 streams, and then reports without any.
        let interval = field(4, &number(1, 1));
        let stats = |index| {
            let name = text(1, &format!("{index:0>1000}"));
            field(2, &[&name[..], &interval].concat())
        };
        let stats: Vec<u8> = (0..4000).flat_map(stats).collect();
        let mut held = Vec::new();
        for index in 0..200 {
            let mut peer = Peer::connect(control.xds).await;
            let mut stream = peer.open(STREAM_LOAD_STATS).await;
            let id = format!("inventor-{index}");
            let hello = field(1, &node(&id, "edge", "zone-a"));
            stream.send(&hello).await;
            stream.response().await;
            stream.send(&[&hello[..], &stats].concat()).await;
            for _ in 0..20 {
                stream.send(&hello).await;
            }
            held.push((stream, peer));
        }
    })
    .await;
}
