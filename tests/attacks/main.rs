//! Attacks on `plimsoll control` by a scripted client on loopback, which has nothing but a TCP
//! connection: the process keeps answering, its memory stays bounded, and the fractions of honest
//! proxies do not move. docs/control.md has the limits.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod drills;
mod edits;
mod exposed;
mod floods;
mod subscriptions;
mod support;
mod tls;
mod writer;

use std::sync::Arc;

use plimsoll_testing::tasks::{wait_to_see, wait_until};
use plimsoll_xds::driver::{
    DELTA_AGGREGATED_RESOURCES, STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS,
};
use support::{Control, HonestFleet, Peer, field, node, number, text, zone};

/// Bytes of a message just below the limit of 4 MiB.
const FULL: usize = (4 << 20) - (64 << 10);

/// Sends messages on streams of a new connection until `streams` have ended or responded.
async fn flood(
    control: &Control,
    path: &'static str,
    streams: usize,
    message: &[u8],
) -> Vec<String> {
    let mut ends = Vec::new();
    let mut peer = Peer::connect(control.xds).await;
    for _ in 0..streams {
        let mut stream = peer.open(path).await;
        stream.send(message).await;
        ends.push(stream.end().await);
    }
    ends
}

/// Runs an attack beside an honest fleet, and checks that nobody noticed.
async fn survive<F: Future<Output = ()>>(attack: impl FnOnce(Arc<Control>) -> F) {
    survive_within(support::steady(), attack).await;
}

/// Like [`survive`], with an attack that may move the fractions of honest proxies within bounds.
async fn survive_within<F: Future<Output = ()>>(
    bounds: support::Bounds,
    attack: impl FnOnce(Arc<Control>) -> F,
) {
    let control = Arc::new(Control::start());
    let fleet = HonestFleet::start(control.xds);
    control.wait_for_fractions().await;
    let watch = control.watch(bounds);
    attack(Arc::clone(&control)).await;
    watch.stop().check();
    control.wait_for_fractions().await;
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_with_a_hundred_thousand_localities_is_refused() {
    survive(async |control| {
        // Each is distinct: comparing each with all others took the writer minutes.
        let mut stats = text(1, "orders");
        for index in 0..100_000 {
            let locality = field(1, &text(2, &format!("z{index}")));
            stats.extend(field(2, &[locality, number(8, 1)].concat()));
        }
        let report = [field(1, &node("liar", "edge", "zone-a")), field(2, &stats)].concat();
        let ends = flood(&control, STREAM_LOAD_STATS, 4, &report).await;
        for end in ends {
            assert!(end.contains("more than 1000 entries"), "{end}");
        }
        let name = "limit_exceeded_total{limit=\"localities_per_cluster\"}";
        control
            .wait_for_value(name, "at least 4", |value| value >= 4.0)
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_client_features_and_statistics_take_no_memory() {
    survive(async |control| {
        // Two bytes on the wire are an empty string or message, which takes dozens in memory.
        let features = text(10, "").repeat(FULL / 2);
        let hello = field(1, &[node("fat", "edge", "zone-a"), features].concat());
        for end in flood(&control, STREAM_LOAD_STATS, 8, &hello).await {
            assert!(
                end.contains("node.client_features: more than 64 entries"),
                "{end}"
            );
        }
        let stats = [
            field(1, &node("fat", "edge", "zone-a")),
            text(2, "").repeat(FULL / 2),
        ]
        .concat();
        for end in flood(&control, STREAM_LOAD_STATS, 8, &stats).await {
            assert!(
                end.contains("cluster_stats: more than 4096 entries"),
                "{end}"
            );
        }
        let names = [
            field(1, &node("fat", "edge", "zone-a")),
            text(3, "").repeat(FULL / 2),
        ]
        .concat();
        for end in flood(&control, DELTA_AGGREGATED_RESOURCES, 8, &names).await {
            assert!(
                end.contains("resource_names_subscribe: more than 32768 entries"),
                "{end}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_strings_of_a_node_are_refused_by_name() {
    survive(async |control| {
        let long = "x".repeat(FULL);
        for (message, name) in [
            (node(&long, "edge", "zone-a"), "node.id"),
            (node("1", &long, "zone-a"), "node.cluster"),
            (node("1", "edge", &long), "node.locality.zone"),
        ] {
            for end in flood(&control, STREAM_LOAD_STATS, 4, &field(1, &message)).await {
                assert!(end.starts_with(&format!("3: {name}: ")), "{end}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_longer_than_the_limit_is_refused_by_its_length() {
    survive(async |control| {
        let mut peer = Peer::connect(control.xds).await;
        for path in [STREAM_LOAD_STATS, DELTA_AGGREGATED_RESOURCES] {
            let mut stream = peer.open(path).await;
            stream.send_part(&[10; 100], (4 << 20) + 1).await;
            let end = stream.end().await;
            assert_eq!(end, "8: message of 4194305 bytes; the limit is 4194304");
        }
        let name = "limit_exceeded_total{limit=\"max_message_size\"}";
        control
            .wait_for_value(name, "2", |value| value == 2.0)
            .await;
        control.wait_for_log("limit=\"max_message_size\"").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleets_beyond_the_limit_are_refused_and_names_are_forgotten() {
    survive(async |control| {
        // The process of the test has 20 fleets: nodes that have left make room for others.
        let mut peer = Peer::connect(control.xds).await;
        for index in 0..200 {
            let mut stream = peer.open(STREAM_LOAD_STATS).await;
            let name = format!("fleet-{index}-{}", "x".repeat(200));
            stream.send(&field(1, &node("1", &name, "zone-a"))).await;
            stream.response().await;
        }
        let mut open = Vec::new();
        let mut refused = None;
        for index in 0..40 {
            let mut stream = peer.open(STREAM_LOAD_STATS).await;
            stream
                .send(&field(1, &node("1", &format!("held-{index}"), "zone-a")))
                .await;
            match stream.response_or_end().await {
                None => open.push(stream),
                Some(end) => refused = Some(end),
            }
        }
        let refused = refused.expect("not all fit");
        assert!(
            refused.contains("20 fleets are connected (limits.fleets)"),
            "{refused}"
        );
        assert!(control.metric("fleets").await <= 20.0);
        drop(open);
    })
    .await;
}

/// Encodes a load report about `orders` with an interval in seconds.
fn load_report(id: &str, place: &str, requests: u64, seconds: u64) -> Vec<u8> {
    let locality = field(1, &zone("zone-a"));
    let entry = field(2, &[locality, number(8, requests)].concat());
    let interval = field(4, &number(1, seconds));
    let stats = [text(1, "orders"), entry, interval].concat();
    [field(1, &node(id, "edge", place)), field(2, &stats)].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_report_does_not_move_demand() {
    // One of the liars counts, with twenty times the median, which is rounded up by a sixteenth.
    let lie = 20.0 * HonestFleet::MEDIAN * 17.0 / 16.0;
    let bounds = support::beside_liar("zone-b", lie / (HonestFleet::DEMAND + lie));
    survive_within(bounds, async |control| {
        // An hour's interval used to count for three, a zone that exists nowhere for all demand.
        let mut peer = Peer::connect(control.xds).await;
        let mut streams = Vec::new();
        for message in [
            load_report("evil-1", "zone-evil", 1_000_000, 1),
            load_report("evil-2", "zone-c", u64::MAX, 3600),
        ] {
            let mut stream = peer.open(STREAM_LOAD_STATS).await;
            stream.send(&message).await;
            stream.response().await;
            streams.push(stream);
        }
        control
            .wait_for_metric("load_reports_ignored_total{reason=\"unknown_zone\"}")
            .await;
        control
            .wait_for_metric("load_reports_ignored_total{reason=\"implausible_rate\"}")
            .await;
        // Plausible for one process, but a hundred thousand times what its peers have.
        let mut stream = peer.open(STREAM_LOAD_STATS).await;
        stream
            .send(&load_report("evil-3", "zone-b", 3_600_000_000, 3600))
            .await;
        stream.response().await;
        control.wait_for_metric("nodes_capped_total").await;
        // It did have an effect, so that the watch has something to see.
        wait_until("its demand counts", async || {
            support::fraction(&control.fleets().await, "zone-b") > 5000
        })
        .await;
        // It has most of the demand of its zone.
        let name = "dominated_zones{fleet=\"edge\"}";
        control
            .wait_for_value(name, "1", |value| value == 1.0)
            .await;
        let zones = control.fleets().await.to_string();
        assert!(!zones.contains("zone-evil"), "{zones}");
        drop(stream);
        drop(streams);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_id_of_an_honest_proxy_cannot_be_used_from_another_address() {
    survive(async |control| {
        // Reports under the id of a proxy in zone-a used to move its demand to zone-c.
        let mut peer = Peer::connect_from([127, 0, 0, 2], control.xds).await;
        for index in 0..3 {
            let mut stream = peer.open(STREAM_LOAD_STATS).await;
            let report = load_report(&format!("zone-a-{index}"), "zone-c", 1, 1);
            stream.send(&report).await;
            let end = stream.end().await;
            assert!(end.starts_with("6: node.id: "), "{end}");
            assert!(!end.contains("127.0.0.1"), "{end}");
        }
        control
            .wait_for_value("duplicate_nodes_total", "3", |value| value == 3.0)
            .await;
        control
            .wait_for_log("used from 127.0.0.2 while connected from 127.0.0.1")
            .await;
        let fleets = async || control.fleets().await;
        wait_to_see("only honest proxies report", fleets, |fleets| {
            support::reporters(fleets) == 11
                && (support::fraction(fleets, "zone-a") - 6000).abs() <= 50
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_id_of_a_proxy_with_another_kind_of_stream_cannot_be_used_from_another_address() {
    survive(async |control| {
        // A load reporting stream under the id of a proxy that has discovery only used to move it.
        let mut victim = Peer::connect(control.xds).await;
        let mut discovery = victim.open(STREAM_AGGREGATED_RESOURCES).await;
        let hello = [
            field(2, &node("quiet", "edge", "zone-a")),
            text(3, "orders"),
            text(4, support::ASSIGNMENTS),
        ]
        .concat();
        discovery.send(&hello).await;
        discovery.response().await;
        let mut thief = Peer::connect_from([127, 0, 0, 2], control.xds).await;
        let mut stream = thief.open(STREAM_LOAD_STATS).await;
        stream.send(&load_report("quiet", "zone-c", 1, 1)).await;
        let end = stream.end().await;
        assert!(end.starts_with("6: node.id: "), "{end}");
        control
            .wait_for_value("duplicate_nodes_total", "1", |value| value == 1.0)
            .await;
        let nodes = control.get("/api/v1/nodes?id=quiet").await;
        assert!(
            nodes.contains("zone-a") && !nodes.contains("zone-c"),
            "{nodes}"
        );
        // The proxy itself may report.
        let mut own = victim.open(STREAM_LOAD_STATS).await;
        own.send(&field(1, &node("quiet", "edge", "zone-a"))).await;
        own.response().await;
        drop((discovery, own));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zeros_are_forgotten_although_the_stream_of_the_idle_node_stays_open() {
    survive(async |control| {
        let reporters = async || support::reporters(&control.fleets().await);
        let mut peer = Peer::connect(control.xds).await;
        let mut held = Vec::new();
        for index in 0..20 {
            let mut stream = peer.open(STREAM_LOAD_STATS).await;
            let id = format!("idle-{index}");
            stream.send(&load_report(&id, "zone-c", 0, 1)).await;
            stream.response().await;
            held.push(stream);
        }
        wait_until("idle nodes count", async || reporters().await == 31).await;
        // The process of the test believes zeros for 2 s.
        wait_until("idle nodes expire", async || reporters().await == 11).await;
        for stream in &mut held {
            assert_eq!(stream.response_if_any().await, None, "it is open");
        }
        // The stream is still good for a node that has something to say.
        held[0].send(&load_report("idle-0", "zone-c", 0, 1)).await;
        wait_until("a report counts again", async || reporters().await == 12).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fake_zones_are_limited_and_not_told_to_honest_proxies() {
    survive(async |control| {
        let mut peer = Peer::connect(control.xds).await;
        let mut open = Vec::new();
        let mut refused = 0;
        for index in 0..90 {
            let mut stream = peer.open(DELTA_AGGREGATED_RESOURCES).await;
            let name = format!("fake-{index}");
            let hello = field(1, &node(&name, "edge", &name));
            let subscribe = [
                hello,
                text(2, support::ASSIGNMENTS),
                text(3, "local_cluster"),
            ]
            .concat();
            stream.send(&subscribe).await;
            match stream.response_or_end().await {
                None => open.push(stream),
                Some(end) => {
                    assert!(end.contains("limits.zones_per_fleet"), "{end}");
                    refused += 1;
                }
            }
        }
        assert_eq!((open.len(), refused), (64, 26));
        let fleets = control.fleets().await.to_string();
        assert!(!fleets.contains("fake-"), "{fleets}");
        let metrics = control.get("/metrics").await;
        assert!(!metrics.contains("fake-"), "one series for all of them");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_what_if_about_thousands_of_zones_is_refused_and_a_large_one_delays_nobody() {
    survive(async |control| {
        let zones = |count: usize| {
            let entry = |index| format!("\"z{index}\": {}", 1 + index % 7);
            (0..count).map(entry).collect::<Vec<_>>().join(",")
        };
        let ask = |count| {
            let (hosts, demand) = (zones(count), zones(count));
            format!("{{\"cluster\": \"orders\", \"hosts\": {{{hosts}}}, \"demand\": {{{demand}}}}}")
        };
        let (status, body) = control.post("/api/v1/what-if", ask(8000)).await;
        assert_eq!(status, 400, "{body}");
        assert!(
            body.contains("8000 zones exceed the limit of 256"),
            "{body}"
        );
        let name = "limit_exceeded_total{limit=\"what_if_zones\"}";
        control
            .wait_for_value(name, "1", |value| value == 1.0)
            .await;
        control.wait_for_log("limit=\"what_if_zones\"").await;
        let (status, body) = control.post("/api/v1/what-if", ask(256)).await;
        assert_eq!(status, 200, "{body}");
    })
    .await;
}
