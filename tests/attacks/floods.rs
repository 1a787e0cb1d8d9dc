//! Floods: many connections, streams and frames that are each harmless.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::driver::{
    DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{ASSIGNMENTS, Control, HonestFleet, Peer, field, node, number, text};
use super::survive;

const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_messages_of_all_streams_together_are_limited() {
    survive(async |control| {
        // Four times what the process of the test allows, in messages that never end.
        let (connections, streams, bytes) = (2, 64, 256 << 10);
        let part = vec![10; bytes];
        let mut held = Vec::new();
        for connection in 0..connections {
            let mut peer = Peer::connect(control.xds).await;
            for index in 0..streams {
                let id = format!("half-{connection}-{index}");
                let mut stream = peer.open(STREAM_LOAD_STATS).await;
                stream.send(&field(1, &node(&id, "edge", "zone-a"))).await;
                stream.response().await;
                stream.send_part(&part, 4 << 20).await;
                held.push(stream);
            }
            // Dropping it would end the streams.
            std::mem::forget(peer);
        }
        control
            .wait_for_metric("limit_exceeded_total{limit=\"unfinished_bytes\"}")
            .await;
        control
            .wait_for_log("request refused: a limit is exceeded")
            .await;
        let mut refused = 0;
        for stream in &mut held {
            if let Some(Some(end)) = stream.response_if_any().await {
                assert!(end.contains("unfinished messages of all streams"), "{end}");
                refused += 1;
            }
        }
        assert!(refused > 64, "{refused} of {}", held.len());
        assert!(refused < held.len(), "some fit");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_messages_of_clients_that_do_not_read_are_freed() {
    survive(async |control| {
        // 640 MiB, of which the process of the test allows eight. Without a window no response can
        // be sent, and the transport does not run the handler that holds the message.
        let part = vec![10; (4 << 20) - 100];
        let mut held = Vec::new();
        for connection in 0..160 {
            let mut peer = Peer::connect(control.xds).await;
            let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
            let hello = field(2, &node(&format!("deaf-{connection}"), "edge", "zone-a"));
            stream.send(&[hello, text(4, CLUSTERS)].concat()).await;
            stream.response().await;
            stream.send_part(&part, 4 << 20).await;
            peer.stop_reading();
            held.push((stream, peer));
        }
        control
            .wait_for_metric("limit_exceeded_total{limit=\"unfinished_bytes\"}")
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_many_small_unfinished_messages_does_not_push_out_others() {
    survive(async |control| {
        let mut honest = Peer::connect_from([127, 0, 0, 2], control.xds).await;
        let mut whole = honest.open(STREAM_LOAD_STATS).await;
        let part = vec![10; 60_000];
        whole.send_part(&part, 60_002).await;
        // Fourteen megabytes in smaller pieces, of which the process of the test allows eight.
        let mut held = Vec::new();
        for _ in 0..20 {
            let mut peer = Peer::connect(control.xds).await;
            for _ in 0..90 {
                let mut stream = peer.open(STREAM_LOAD_STATS).await;
                stream.send_part(&part[..8000], 4 << 20).await;
                held.push(stream);
            }
            std::mem::forget(peer);
        }
        control
            .wait_for_metric("limit_exceeded_total{limit=\"unfinished_bytes\"}")
            .await;
        assert_eq!(whole.response_if_any().await, None, "it may go on");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_all_connections_together_are_limited() {
    survive(async |control| {
        // The process of the test has 2,000, of which loopback may have three quarters and the
        // honest fleet uses eleven.
        let most = 1500;
        // Connections open theirs at the same time: a stream without a message ends after 30 s.
        let xds = control.xds;
        let open = || async move {
            let mut peer = Peer::connect(xds).await;
            let mut streams = Vec::new();
            for _ in 0..90 {
                streams.push(peer.open(STREAM_AGGREGATED_RESOURCES).await);
            }
            (peer, streams)
        };
        let opening: Vec<_> = (0..25).map(|_| tokio::spawn(open())).collect();
        let mut peers = Vec::new();
        let mut streams = Vec::new();
        for task in opening {
            let (peer, opened) = task.await.unwrap();
            peers.push(peer);
            streams.extend(opened);
        }
        let mut ends = BTreeMap::<_, usize>::new();
        for stream in &mut streams {
            // On a slow machine the first ones have ended, because they sent no message.
            if let Some(Some(end)) = stream.response_if_any().await {
                *ends.entry(end).or_default() += 1;
            }
        }
        let end = "8: 1500 streams are open from 127.0.0.1";
        let refused = ends.get(end).copied().unwrap_or_default();
        assert!((1..=25 * 90 - (most - 11)).contains(&refused), "{ends:?}");
        control
            .wait_for_metric("limit_exceeded_total{limit=\"streams_per_peer\"}")
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_hold_bounded_memory() {
    survive(async |control| {
        // With a window of zero the server can send nothing, so it reads nothing either.
        let mut settings = h2::client::Builder::new();
        settings.initial_window_size(0);
        let mut peers = Vec::new();
        for connection in 0..300 {
            let mut peer = Peer::connect_with(control.xds, &settings).await;
            for index in 0..3 {
                let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
                let id = format!("deaf-{connection}-{index}");
                let request = [field(2, &node(&id, "edge", "zone-a")), text(4, CLUSTERS)].concat();
                stream.send_what_fits(&request.repeat(2000)).await;
                peers.push((stream, None));
            }
            peers.last_mut().unwrap().1 = Some(peer);
        }
        control.get("/api/v1/nodes").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_that_nobody_reads_share_their_resources() {
    // An assignment of more than half a megabyte, for each of 1,200 streams.
    let hosts: Vec<_> = (0..20_000)
        .map(|index| format!("'10.1.{}.{}:8080'", index / 250, index % 250))
        .collect();
    let hosts = hosts.join(", ");
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nservices:\n- cluster: {{name: orders}}\n  \
         endpoints:\n  - {{locality: {{zone: zone-a}}, lb_endpoints: [{hosts}]}}\n"
    );
    let control = Arc::new(Control::start_with(&config, |_| ()));
    // Nobody reports load: there are no fractions.
    let watch = control.watch(["zone-a", "zone-b", "zone-c"].map(|zone| (zone, -1..=-1)));
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(200);
    let mut held = Vec::new();
    for connection in 0..15 {
        let mut peer = Peer::connect_with(control.xds, &settings).await;
        for index in 0..80 {
            let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
            let id = format!("deaf-{connection}-{index}");
            let hello = field(2, &node(&id, "edge", "zone-a"));
            let request = [hello, text(4, ASSIGNMENTS), text(3, "orders")].concat();
            stream.send(&request).await;
            // What has arrived is not released, so the window stays closed.
            wait_until("a response begins", async || {
                stream.response_if_any().await.is_some()
            })
            .await;
            held.push(stream);
        }
        std::mem::forget(peer);
    }
    watch.stop().check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_closed() {
    survive(async |control| {
        let mut silent = Vec::new();
        for index in 0..300 {
            let mut socket = TcpStream::connect(control.xds).await.unwrap();
            // Nothing, a part of the preface, or a connection without a request.
            let sent: &[u8] = [&b""[..], b"PRI * HT", PREFACE][index % 3];
            socket.write_all(sent).await.unwrap();
            silent.push(socket);
        }
        for socket in &mut silent {
            let mut read = Vec::new();
            // The server closes it, perhaps with a reset.
            let _ = socket.read_to_end(&mut read).await;
        }
        let name = "connections_refused_total{listener=\"xds\",reason=\"handshake_timeout\"}";
        control
            .wait_for_value(name, "at least 300", |value| value >= 300.0)
            .await;
        control
            .wait_for_log("connection closed: handshake or first request timed out")
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_descriptors_neither_spins_nor_stays_deaf() {
    // Half of these for xDS, and more than the other half for the admin connections it allows and
    // the files that it needs itself: so few that the limits of connections do not protect it.
    let control = Control::start_with_files(100);
    let mut held = Vec::new();
    for address in [control.xds, control.admin] {
        for _ in 0..100 {
            held.push(TcpStream::connect(address).await.unwrap());
        }
    }
    let (begun, before) = (Instant::now(), control.cpu());
    // Each of the two listeners logs it once per second. It takes 0.01 s of CPU in this time; if it
    // tried again at once, it would take as much as there is.
    wait_until("it has failed for a while", async || {
        control.log().matches("cannot accept a connection").count() >= 4
    })
    .await;
    let (elapsed, cpu) = (begun.elapsed(), control.cpu() - before);
    assert!(cpu < elapsed / 2, "{cpu:?} of CPU in {elapsed:?}");
    drop(held);
    // Until it has noticed the end of the connections, they count toward its limit.
    wait_until("the connections are closed", async || {
        control.metric("connections{listener=\"xds\"}").await < 1.0
    })
    .await;
    let fleet = HonestFleet::start(control.xds);
    control.wait_for_fractions().await;
    fleet.stop();
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Sends frames after the preface until the server closes the connection or all are sent. Reads
/// what the server sends meanwhile.
async fn send_frames(address: SocketAddr, frames: Vec<u8>) {
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = socket.into_split();
    let reading = tokio::spawn(async move {
        let mut sink = vec![0; 1 << 16];
        while reader.read(&mut sink).await.is_ok_and(|read| read > 0) {}
    });
    // The server may close the connection in between.
    let _ = writer.write_all(&[PREFACE, &frames].concat()).await;
    drop(writer);
    reading.await.unwrap();
}

/// Headers of a request to ADS, without an end.
fn headers(stream: u32, flags: u8) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (index, value) in [(1, "control"), (4, STREAM_AGGREGATED_RESOURCES)] {
        block.push(index);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend_from_slice(value.as_bytes());
    }
    frame(1, flags, stream, &block)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_delay_nobody() {
    const END_HEADERS: u8 = 4;
    survive(async |control| {
        let streams = || (0..20_000).map(|index| 2 * index + 1);
        let floods = [
            // Rapid reset (CVE-2023-44487).
            streams()
                .flat_map(|id| [headers(id, END_HEADERS), frame(3, 0, id, &[0, 0, 0, 8])].concat())
                .collect(),
            // Continuation flood (CVE-2024-27316).
            [headers(1, 0), frame(9, 0, 1, &[0x40; 1000]).repeat(10_000)].concat(),
            // PING, SETTINGS, empty DATA, PRIORITY, window updates.
            frame(6, 0, 0, &[7; 8]).repeat(200_000),
            frame(4, 0, 0, &[0, 3, 0, 0, 0, 9]).repeat(100_000),
            [headers(1, END_HEADERS), frame(0, 0, 1, &[]).repeat(200_000)].concat(),
            streams()
                .flat_map(|id| frame(2, 0, id, &[0, 0, 0, 0, 9]))
                .collect(),
            frame(8, 0, 0, &[0, 0, 0, 1]).repeat(200_000),
            // More streams than allowed, none of which says who it is.
            streams().flat_map(|id| headers(id, END_HEADERS)).collect(),
        ];
        for frames in floods {
            let attackers = (0..4).map(|_| tokio::spawn(send_frames(control.xds, frames.clone())));
            for attacker in attackers.collect::<Vec<_>>() {
                attacker.await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_nacks_and_changing_subscriptions_are_answered_within_bounds() {
    survive(async |control| {
        let mut peer = Peer::connect(control.xds).await;
        let nagger = node("nagger", "edge", "zone-a");
        let hello = field(2, &nagger);
        let mut nacks = peer.open(STREAM_AGGREGATED_RESOURCES).await;
        nacks.send(&[hello, text(4, CLUSTERS)].concat()).await;
        let response = nacks.message().await;
        let response = plimsoll_xds::wire::decode_discovery_response(response).unwrap();
        let reason = field(6, &[number(1, 3), text(2, &"no ".repeat(1000))].concat());
        let nack = [text(4, CLUSTERS), text(5, &response.nonce), reason].concat();
        for _ in 0..5000 {
            nacks.send(&nack).await;
        }
        let mut changes = peer.open(DELTA_AGGREGATED_RESOURCES).await;
        let hello = field(1, &nagger);
        changes.send(&[hello, text(2, ASSIGNMENTS)].concat()).await;
        for round in 0..200 {
            let names: Vec<u8> = (0..200)
                .flat_map(|index| text(3, &format!("name-{round}-{index}")))
                .collect();
            let gone: Vec<u8> = (0..200)
                .flat_map(|index| text(4, &format!("name-{round}-{index}")))
                .collect();
            changes.send(&[text(2, ASSIGNMENTS), names].concat()).await;
            changes.send(&[text(2, ASSIGNMENTS), gone].concat()).await;
            changes.drain().await;
        }
        wait_until("the NACKs are counted", async || {
            control
                .metric("discovery_nacks_total{type=\"Cluster\"}")
                .await
                >= 1.0
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_numbers_in_reports_do_not_count() {
    survive(async |control| {
        let report = |id: &str, interval: &[u8], fields: &[u8]| {
            let locality = field(1, &text(2, "zone-b"));
            let entry = field(2, &[&locality[..], fields].concat());
            let stats = [text(1, "orders"), entry, field(4, interval)].concat();
            [field(1, &node(id, "edge", "zone-b")), field(2, &stats)].concat()
        };
        let intervals = [
            number(1, 0),
            number(1, u64::MAX),
            number(1, i64::MAX.unsigned_abs()),
            number(2, 1),
            [number(1, 1), number(2, u64::MAX)].concat(),
        ];
        let requests = [
            number(8, u64::MAX),
            [number(8, 1), number(2, u64::MAX), number(4, u64::MAX)].concat(),
        ];
        let mut peer = Peer::connect(control.xds).await;
        let mut streams = Vec::new();
        for (index, interval) in intervals.iter().enumerate() {
            for (kind, requests) in requests.iter().enumerate() {
                let mut stream = peer.open(STREAM_LOAD_STATS).await;
                let id = format!("odd-{index}-{kind}");
                stream.send(&report(&id, interval, requests)).await;
                // It may be refused or ignored.
                stream.response_or_end().await;
                streams.push(stream);
            }
        }
        control.wait_for_fractions().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deeply_nested_metadata_of_a_node_is_not_decoded() {
    survive(async |control| {
        // A struct in a struct in a struct: node.metadata, fields, value, struct_value.
        let mut value = Vec::new();
        for _ in 0..20_000 {
            let entry = [text(1, "a"), field(2, &field(5, &value))].concat();
            value = field(1, &entry);
            if value.len() > 3 << 20 {
                break;
            }
        }
        let hello = field(
            1,
            &[node("deep", "edge", "zone-a"), field(3, &value)].concat(),
        );
        let mut peer = Peer::connect(control.xds).await;
        let mut stream = peer.open(STREAM_LOAD_STATS).await;
        stream.send(&hello).await;
        stream.response_or_end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_of_the_admin_api_do_not_lock_others_out() {
    survive(async |control| {
        let mut slow = Vec::new();
        for index in 0..120 {
            let mut socket = TcpStream::connect(control.admin).await.unwrap();
            // Half a request, or a subscription whose events nobody reads.
            let sent = if index % 2 == 0 {
                "GET /readyz HTTP/1.1\r\nhost: x".to_owned()
            } else {
                let host = control.admin;
                format!("GET /dashboard/events HTTP/1.1\r\nhost: {host}\r\n\r\n")
            };
            socket.write_all(sent.as_bytes()).await.unwrap();
            slow.push(socket);
        }
        control.wait_for_fractions().await;
    })
    .await;
}
