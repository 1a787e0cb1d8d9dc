//! A drill for every alert: the thing happens to a control plane, and the rules of
//! `deploy/prometheus` fire on what it serves at `/metrics`.
//!
//! Those of `PlimsollWriterBehind`, `PlimsollZoneAboveTarget` and `PlimsollCapacityFrozen` are
//! tests of plimsoll-control: from outside, the queue of the writer cannot be kept full.
//! `documented` checks that no alert is left out.

mod relayed;

use std::process::Command;

use plimsoll_testing::tasks::{wait_to_see, wait_until};
use plimsoll_testing::{Drill, free_address, plimsoll};
use plimsoll_xds::driver::{STREAM_AGGREGATED_RESOURCES, STREAM_LOAD_STATS};
use plimsoll_xds::wire::decode_discovery_response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{
    ASSIGNMENTS, Control, HonestFleet, Peer, Stream, field, node, number, text, zone,
};

const HEAD: &str = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n\
    load_reporting: {interval: 0.2s}\ndemand: {smoothing_time_constant: 0.1s}\n";

/// A service with a host in each of three zones.
fn orders(fields: &str) -> String {
    format!(
        "services:\n- cluster: {{name: orders}}\n  {fields}\n  endpoints:\n  \
         - {{locality: {{zone: zone-a}}, lb_endpoints: ['10.0.0.1:80']}}\n  \
         - {{locality: {{zone: zone-b}}, lb_endpoints: ['10.0.1.1:80']}}\n  \
         - {{locality: {{zone: zone-c}}, lb_endpoints: ['10.0.2.1:80']}}\n"
    )
}

fn start(service: &str) -> Control {
    Control::start_with(&format!("{HEAD}{}", orders(service)), |_| ())
}

async fn page(control: &Control) -> String {
    control.get("/metrics").await
}

/// A drill whose failure is in force now.
async fn during(before: String, control: &Control) -> Drill {
    Drill {
        before: Some(before),
        during: vec![page(control).await],
    }
}

/// A discovery stream that subscribes to the assignment of `orders`.
async fn subscribe(peer: &mut Peer, id: &str, place: &str) -> Stream {
    let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
    let parts = [
        field(2, &node(id, "edge", place)),
        text(3, "orders"),
        text(4, ASSIGNMENTS),
    ];
    stream.send(&parts.concat()).await;
    stream
}

/// A load report about requests of a zone to its own hosts, some of which fail.
fn report(id: &str, place: &str, issued: u64, failed: u64) -> Vec<u8> {
    report_about(id, place, &[(place, issued, failed)])
}

/// A load report about requests to zones: how many, and how many of them fail.
fn report_about(id: &str, place: &str, to: &[(&str, u64, u64)]) -> Vec<u8> {
    let entry = |(upstream, issued, failed): &(&str, u64, u64)| {
        let parts = [
            field(1, &zone(upstream)),
            number(2, issued - failed),
            number(4, *failed),
            number(8, *issued),
        ];
        field(2, &parts.concat())
    };
    let entries: Vec<u8> = to.iter().flat_map(entry).collect();
    let stats = [text(1, "orders"), entries, field(4, &number(1, 1))];
    [
        field(1, &node(id, "edge", place)),
        field(2, &stats.concat()),
    ]
    .concat()
}

/// Load reporting streams of one proxy in each zone.
async fn reporters(control: &Control) -> (Peer, Vec<(&'static str, Stream)>) {
    let mut peer = Peer::connect(control.xds).await;
    let mut streams = Vec::new();
    for place in ["zone-a", "zone-b", "zone-c"] {
        let mut stream = peer.open(STREAM_LOAD_STATS).await;
        stream.send(&field(1, &node(place, "edge", place))).await;
        stream.response().await;
        streams.push((place, stream));
    }
    (peer, streams)
}

/// Lets every zone report until a metric is as wanted.
async fn report_until(
    control: &Control,
    streams: &mut [(&'static str, Stream)],
    requests: [(u64, u64); 3],
    metric: &str,
    is: impl Fn(f64) -> bool,
) {
    let mut step = async || {
        for ((place, stream), (issued, failed)) in streams.iter_mut().zip(requests) {
            stream.send(&report(place, place, issued, failed)).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        control.metric(metric).await
    };
    let deadline = std::time::Instant::now() + super::support::TIMEOUT;
    loop {
        let seen = step().await;
        if is(seen) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{metric} is {seen}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_ends_is_missed() {
    let control = start("");
    let drill = Drill {
        before: Some(page(&control).await),
        during: Vec::new(),
    };
    drill.fires("PlimsollControlDown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_that_are_refused() {
    let control = start("");
    let before = page(&control).await;
    control.write_config("services: [{cluster: {nme: orders}}]");
    control
        .wait_for_value("config_in_force", "0", |value| value == 0.0)
        .await;
    let drill = during(before, &control).await;
    drill.fires("PlimsollConfigRefused");
    drill.fires("PlimsollEditsRefused");
}

/// Makes certificates in a directory that end in some days.
fn certify(directory: &std::path::Path, days: &str) {
    let mut command = Command::new(plimsoll());
    command.current_dir(directory).args([
        "certs",
        "certs",
        "--days",
        days,
        "--server",
        "localhost",
        "--client",
        "edge=spiffe://td/fleet/edge",
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

const TLS: &str = "tls: {certificate: certs/server/tls.crt, private_key: certs/server/tls.key, \
    client_ca: certs/ca.crt}\nidentities: [{name: edge, uri: 'spiffe://td/fleet/edge', \
    fleets: [edge], zones: ['*']}]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_end_and_clients_that_are_refused() {
    let mut directory = std::path::PathBuf::new();
    let config = format!("{HEAD}{TLS}{}", orders(""));
    let control = Control::start_with(&config, |path| {
        certify(path, "2");
        path.clone_into(&mut directory);
    });
    control
        .wait_for_log("certificate expires soon, or has expired")
        .await;
    let ending = Drill {
        before: None,
        during: vec![page(&control).await],
    };
    ending.fires("PlimsollCertificateExpires");

    let before = page(&control).await;
    let mut pages = Vec::new();
    let refused = "nodes_refused_total{field=\"fleets\"}";
    for round in 1..=2 {
        for _ in 0..3 {
            let mut plain = TcpStream::connect(control.xds).await.unwrap();
            plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            // The server ends it, perhaps with a reset.
            let _ = plain.read_to_end(&mut Vec::new()).await;
        }
        let mut stranger = client(&directory, &control).await;
        let mut stream = stranger.open(STREAM_LOAD_STATS).await;
        stream.send(&field(1, &node("1", "other", "zone-a"))).await;
        let end = stream.end().await;
        assert!(end.starts_with("7: "), "{end}");
        let failed = "handshakes_failed_total{listener=\"xds\",reason=\"not_tls\"}";
        let least = f64::from(3 * round);
        control
            .wait_for_value(failed, "counted", |value| value >= least)
            .await;
        control
            .wait_for_value(refused, "counted", |value| value >= f64::from(round))
            .await;
        pages.push(page(&control).await);
    }
    let drill = Drill {
        before: Some(before),
        during: pages,
    };
    drill.fires("PlimsollHandshakesFail");
    drill.fires("PlimsollNodesRefused");
    let status = control.get("/api/v1/status").await;
    assert!(status.contains("\"certificate_expires\""), "{status}");
    let shown = control.get("/dashboard/state").await;
    for text in [
        "node refused: 1 of other",
        "TLS handshake with 127.0.0.1 failed",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }

    let before = page(&control).await;
    std::fs::write(directory.join("certs/server/tls.crt"), "half a file").unwrap();
    let failed = "certificate_reloads_total{of=\"xds\",result=\"failed\"}";
    control.wait_for_metric(failed).await;
    let drill = during(before, &control).await;
    drill.fires("PlimsollCertificateRejected");
}

/// A connection with the certificate of `edge`.
async fn client(directory: &std::path::Path, control: &Control) -> Peer {
    use plimsoll_serve::{ClientTlsSettings, PemSource, client_tls};
    let file = |name: &str| PemSource::File(directory.join("certs").join(name));
    let config = client_tls(&ClientTlsSettings {
        ca: file("ca.crt"),
        certificate: Some((file("edge/tls.crt"), file("edge/tls.key"))),
        alpn: vec!["h2".to_owned()],
    });
    let connector = tokio_rustls::TlsConnector::from(config.unwrap());
    let socket = TcpStream::connect(control.xds).await.unwrap();
    let name = tokio_rustls::rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let socket = connector.connect(name, socket).await.unwrap();
    Peer::handshake(socket, &h2::client::Builder::new()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_that_are_used_twice_and_zones_that_nobody_has() {
    let control = start("");
    let before = page(&control).await;
    let mut peer = Peer::connect(control.xds).await;
    let _first = subscribe(&mut peer, "1", "zone-a").await;
    let _second = subscribe(&mut peer, "1", "zone-a").await;
    let mut other = Peer::connect_from([127, 0, 0, 2], control.xds).await;
    let mut stream = subscribe(&mut other, "1", "zone-a").await;
    let end = stream.end().await;
    assert!(end.starts_with("6: node.id: "), "{end}");
    let _lost = subscribe(&mut peer, "2", "zone-x").await;
    control
        .wait_for_metric("nodes_in_unknown_zones{fleet=\"edge\"}")
        .await;
    // Proxies that reconnect are given twenty seconds.
    let shared = "identity_mistakes_total{kind=\"shared_id\"}";
    control.wait_for_metric(shared).await;
    let drill = during(before, &control).await;
    drill.fires("PlimsollDuplicateNodes");
    drill.fires("PlimsollNodesInUnknownZones");
    drill.fires("PlimsollSharedIds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_that_are_rejected() {
    let control = start("");
    let before = page(&control).await;
    let mut peer = Peer::connect(control.xds).await;
    let mut stream = subscribe(&mut peer, "1", "zone-a").await;
    let response = decode_discovery_response(stream.message().await).unwrap();
    let refusal = [
        text(3, "orders"),
        text(4, ASSIGNMENTS),
        text(5, &response.nonce),
        field(6, &[number(1, 3), text(2, "no such policy")].concat()),
    ];
    stream.send(&refusal.concat()).await;
    control
        .wait_for_metric("nodes_nacked{fleet=\"edge\"}")
        .await;
    during(before, &control).await.fires("PlimsollNodesRefuse");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zones_with_too_much_load_and_zones_that_fail() {
    let control = start("mode: SHADOW");
    let (_peer, mut streams) = reporters(&control).await;
    let level = [(20, 0); 3];
    let highest = "cluster_highest_load_ratio{fleet=\"edge\",cluster=\"orders\",routing=\"seen\"}";
    report_until(&control, &mut streams, level, highest, |load| {
        load > 0.9 && load < 1.1
    })
    .await;
    let before = page(&control).await;
    let hot = [(60, 0), (20, 0), (20, 0)];
    report_until(&control, &mut streams, hot, highest, |load| load > 1.5).await;
    during(before.clone(), &control)
        .await
        .fires("PlimsollZoneAboveLine");
    let failing = "cluster_failing_zones{fleet=\"edge\",cluster=\"orders\"}";
    let dead = [(60, 0), (60, 60), (60, 0)];
    report_until(&control, &mut streams, dead, failing, |zones| zones > 0.0).await;
    during(before, &control).await.fires("PlimsollZoneFails");
}

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Lets every proxy send requests to every zone, of which those that `fails` names fail, until
/// zone-b is suspected of something.
async fn suspected_of(what: &str, fails: impl Fn(&str, &str) -> bool) -> Drill {
    let control = start("mode: SHADOW");
    let before = page(&control).await;
    let (_peer, mut streams) = reporters(&control).await;
    let name = format!("zone_suspect{{locality=\"zone-b\",of=\"{what}\"}}");
    let seen = async || {
        for (place, stream) in &mut streams {
            let to = ZONES.map(|to| (to, 60, if fails(place, to) { 60 } else { 0 }));
            stream.send(&report_about(place, place, &to)).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        control.metric(&name).await
    };
    wait_to_see(&name, seen, |seen| *seen > 0.0).await;
    during(before, &control).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zones_that_are_ill() {
    let backends = suspected_of("backends", |_, to| to == "zone-b").await;
    backends.fires("PlimsollBackendsIll");
    let network = suspected_of("network", |from, _| from == "zone-b").await;
    network.fires("PlimsollNetworkIll");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_the_others_cannot_replace() {
    let control = start(
        "mode: SHADOW\n  objective: {waterfall: {target_utilization: 0.5}}\n  \
         capacity: {requests_per_second: 30}",
    );
    let before = page(&control).await;
    let (_peer, mut streams) = reporters(&control).await;
    let name = "zone_loss_utilization_ratio{cluster=\"orders\",locality=\"zone-a\"}";
    let busy = [(25, 0); 3];
    report_until(&control, &mut streams, busy, name, |ratio| ratio > 1.0).await;
    during(before, &control).await.fires("PlimsollZoneNotSpare");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demand_that_is_withheld_from_a_zone_that_fails() {
    let control = start("mode: ENFORCE");
    let before = page(&control).await;
    let (_peer, mut streams) = reporters(&control).await;
    // Zone b has little demand and spare hosts, which fail.
    let dead = [(100, 0), (10, 10), (100, 0)];
    let name = "cluster_withheld_zones{fleet=\"edge\",cluster=\"orders\",reason=\"zone_fails\"}";
    report_until(&control, &mut streams, dead, name, |zones| zones > 0.0).await;
    during(before, &control)
        .await
        .fires("PlimsollDemandWithheld");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_that_do_not_report() {
    let control = start("mode: ENFORCE");
    let before = page(&control).await;
    let mut peer = Peer::connect(control.xds).await;
    let mut open = Vec::new();
    for place in ["zone-a", "zone-b", "zone-c"] {
        open.push(subscribe(&mut peer, place, place).await);
    }
    let fallback = "cluster_on_fallback{fleet=\"edge\",cluster=\"orders\"}";
    control.wait_for_metric(fallback).await;
    let drill = during(before.clone(), &control).await;
    drill.fires("PlimsollNoReports");
    drill.fires("PlimsollOnFallback");

    // They report another service than they use.
    let (_reporting, mut streams) = reporters(&control).await;
    let unreported = "nodes_unreported{fleet=\"edge\"}";
    let ignored = "load_reports_ignored_total{reason=\"unknown_cluster\"}";
    let mut pages = Vec::new();
    for round in 1..=2 {
        let mut seen = async || {
            for (place, stream) in &mut streams {
                let other = String::from_utf8(report(place, place, 9, 0)).unwrap();
                stream
                    .send(other.replace("orders", "others").as_bytes())
                    .await;
            }
            control.metric(ignored).await
        };
        let least = f64::from(3 * round);
        while seen().await < least {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        control.wait_for_metric(unreported).await;
        pages.push(page(&control).await);
    }
    let drill = Drill {
        before: Some(before),
        during: pages,
    };
    drill.fires("PlimsollNodesUnreported");
    drill.fires("PlimsollReportsIgnored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demand_that_nobody_confirms() {
    let head = HEAD.replace("demand: {", "demand: {heartbeat: 200s, ");
    let control = Control::start_with(&format!("{head}{}", orders("mode: ENFORCE")), |_| ());
    let fleet = HonestFleet::start(control.xds);
    control.wait_for_fractions().await;
    let age = "fleet_fraction_age_seconds{fleet=\"edge\"}";
    control
        .wait_for_value(age, "some time", |age| age > 0.2 && age < 5.0)
        .await;
    let first = page(&control).await;
    let seen = control.metric(age).await;
    control
        .wait_for_value(age, "more than before", |age| age >= seen + 4.0)
        .await;
    let drill = Drill {
        before: None,
        during: vec![first, page(&control).await],
    };
    drill.fires("PlimsollFractionsOld");
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_proxy_with_most_of_the_demand_and_proxies_that_leave() {
    let control = start("");
    let fleet = HonestFleet::start(control.xds);
    control.wait_for_fractions().await;
    let before = page(&control).await;
    let (_peer, mut streams) = reporters(&control).await;
    let dominated = "dominated_zones{fleet=\"edge\"}";
    let huge = [(1, 0), (400, 0), (1, 0)];
    report_until(&control, &mut streams, huge, dominated, |zones| zones > 0.0).await;
    during(before.clone(), &control)
        .await
        .fires("PlimsollNodeDominatesZone");
    drop(streams);
    fleet.stop();
    control
        .wait_for_value("load_reporting_streams", "0", |streams| streams == 0.0)
        .await;
    let left = async || {
        let page = page(&control).await;
        let lines = page
            .lines()
            .filter(|line| line.starts_with("plimsoll_control_reporters_left"));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum::<f64>()
    };
    wait_to_see("most have left", left, |left| *left > 9.0).await;
    during(before, &control)
        .await
        .fires("PlimsollReportersLeave");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_are_exceeded() {
    let control = Control::start_with(
        &format!("{HEAD}limits: {{fleets: 1}}\n{}", orders("")),
        |_| (),
    );
    let before = page(&control).await;
    let mut peer = Peer::connect(control.xds).await;
    let _first = subscribe(&mut peer, "1", "zone-a").await;
    let name = "limit_exceeded_total{limit=\"fleets\"}";
    let mut pages = Vec::new();
    for round in 1..=2 {
        let mut stream = peer.open(STREAM_LOAD_STATS).await;
        let fleet = format!("fleet-{round}");
        stream.send(&field(1, &node("1", &fleet, "zone-a"))).await;
        let end = stream.end().await;
        assert!(end.contains("limits.fleets"), "{end}");
        let least = f64::from(round);
        control
            .wait_for_value(name, "counted", |value| value >= least)
            .await;
        pages.push(page(&control).await);
    }
    let drill = Drill {
        before: Some(before),
        during: pages,
    };
    drill.fires("PlimsollLimitExceeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relayed_server_that_is_away() {
    let nobody = free_address();
    let config = format!("{HEAD}relay: {{address: '{nobody}'}}\n");
    let control = Control::start_with(&config, |_| ());
    let before = page(&control).await;
    let mut peer = Peer::connect(control.xds).await;
    let _stream = subscribe(&mut peer, "1", "zone-a").await;
    control
        .wait_for_metric("relay_streams{state=\"lost\"}")
        .await;
    during(before, &control).await.fires("PlimsollRelayLost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relayed_server_that_sends_what_nobody_can_read() {
    let server = relayed::start().await;
    let config = format!(
        "{HEAD}relay: {{address: '{server}'}}\nservices: [{{cluster: {{name: orders}}}}]\n"
    );
    let control = Control::start_with(&config, |_| ());
    let before = page(&control).await;
    let mut peer = Peer::connect(control.xds).await;
    let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
    let hello = [
        field(2, &node("1", "edge", "zone-a")),
        text(4, relayed::CLUSTERS),
    ];
    stream.send(&hello.concat()).await;
    control.wait_for_metric("relay_unreadable_total").await;
    during(before, &control)
        .await
        .fires("PlimsollRelayUnreadable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away() {
    let nobody = free_address();
    let config = format!(
        "{HEAD}store: {{etcd: {{endpoints: ['{nobody}']}}}}\n{}",
        orders("")
    );
    let control = Control::start_with(&config, |_| ());
    let drill = Drill {
        before: None,
        during: vec![page(&control).await],
    };
    drill.fires("PlimsollStoreLost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_different_files() {
    let [client, peer] = [free_address(), free_address()];
    let data = tempfile::tempdir().unwrap();
    let mut etcd = plimsoll_testing::etcd(
        "etcd".as_ref(),
        data.path(),
        &format!("http://{client}"),
        &format!("http://{peer}"),
    );
    etcd.args(["--initial-cluster", &format!("default=http://{peer}")]);
    etcd.stderr(std::process::Stdio::null());
    let mut etcd = etcd.spawn().unwrap();
    let replica = |ramp: &str| {
        let store = format!("store: {{etcd: {{endpoints: ['{client}']}}}}\n");
        let config = format!("{HEAD}{store}{}", orders(ramp));
        Control::start_with(&config, |_| ())
    };
    let first = replica("ramp: 100");
    let same = "replicas{configuration=\"same\"}";
    first.wait_for_metric(same).await;
    let before = page(&first).await;
    let _second = replica("ramp: 10");
    wait_until("the other replica", async || {
        first.metric("replicas{configuration=\"other\"}").await > 0.0
    })
    .await;
    let drill = during(before, &first).await;
    etcd.kill().unwrap();
    etcd.wait().unwrap();
    drill.fires("PlimsollReplicasDiffer");
}
