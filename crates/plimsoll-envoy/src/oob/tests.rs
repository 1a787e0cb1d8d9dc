//! Tests of out-of-band streams against a host that reports its load over HTTP/2.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_testing::wait_until;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::grpc_frame::frame;
use plimsoll_xds::orca::encode_message;
use plimsoll_xds::orca::oob::PATH;

use super::*;
use crate::cluster::Cluster;
use crate::config::ModuleConfig;
use crate::host_sets::assignment;
use crate::host_sets::tests::{Fake, FakeHost};

/// A host that accepts streams and sends one report on each; counts the streams. It closes the
/// first `lost` connections after their report.
fn serve(utilization: f64, lost: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let streams = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&streams);
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let number = counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(report(socket, utilization, number < lost));
            }
        });
    });
    (address, streams)
}

async fn report(socket: TcpStream, utilization: f64, closes: bool) {
    let mut connection = h2::server::handshake(socket).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), PATH);
        let head = http::Response::builder().header("content-type", "application/grpc");
        let mut body = respond
            .send_response(head.body(()).unwrap(), false)
            .unwrap();
        let report = OrcaLoadReport {
            application_utilization: utilization,
            ..OrcaLoadReport::default()
        };
        let message = frame(&encode_message(&report));
        body.send_data(message, false).unwrap();
        if closes {
            connection.graceful_shutdown();
        }
        // Keeps the stream open as long as the connection.
        std::mem::forget(body);
    }
}

fn cluster(hosts: &[SocketAddr]) -> Cluster {
    let text = "cluster: {load_balancing_policy: {policies: [{typed_extension_config: {name: x, \
                typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                load_balancing_policies.load_aware_locality.v3.LoadAwareLocality, \
                enable_oob_load_report: true, oob_reporting_period: 1s, endpoint_picking_policy: \
                {policies: [{typed_extension_config: {name: y, typed_config: {'@type': \
                type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.\
                RoundRobin}}}]}}}}]}}";
    let config = ModuleConfig::parse(text)
        .unwrap()
        .cluster("orders")
        .unwrap();
    let now = Clock::system().now();
    let cluster = Cluster::new(config, Locality::zone_only("a"), None, now);
    set_hosts(&cluster, hosts);
    cluster
}

fn set_hosts(cluster: &Cluster, hosts: &[SocketAddr]) {
    let hosts = hosts
        .iter()
        .map(|host| FakeHost::new("a", &host.to_string()));
    let fake = Fake {
        priorities: vec![hosts.collect()],
        weights: Vec::new(),
    };
    let now = Clock::system().now();
    cluster.handle_hosts(assignment(&fake, "orders").unwrap(), now);
}

fn utilizations(cluster: &Cluster) -> Vec<Option<f64>> {
    let snapshot = cluster.snapshot();
    let hosts = snapshot.hosts();
    hosts
        .map(|host| host.utilization().map(|(value, _)| value))
        .collect()
}

#[test]
fn hosts_report_their_load_on_streams_of_their_own() {
    let (first, _) = serve(0.25, 0);
    let (second, streams) = serve(0.75, 0);
    let cluster = cluster(&[first]);
    cluster.start_oob().unwrap();
    wait_until("the first host has reported", || {
        utilizations(&cluster) == [Some(0.25)]
    });
    assert_eq!(streams.load(Ordering::Relaxed), 0);
    // The streams follow the hosts.
    set_hosts(&cluster, &[second]);
    wait_until("the second host has reported", || {
        utilizations(&cluster) == [Some(0.75)]
    });
}

/// Threads of this process that run streams.
fn stream_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may have ended.
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "plimsoll-oob").count()
}

#[test]
fn one_thread_runs_the_streams_of_all_clusters() {
    let hosts: Vec<_> = [0.1, 0.2, 0.3, 0.4].map(|load| serve(load, 0)).into();
    let mut clusters: Vec<_> = hosts.iter().map(|(host, _)| cluster(&[*host])).collect();
    for cluster in &clusters {
        cluster.start_oob().unwrap();
    }
    wait_until("all hosts have reported", || {
        let reported = clusters.iter().flat_map(utilizations);
        reported.eq([0.1, 0.2, 0.3, 0.4].map(Some))
    });
    assert_eq!(stream_threads(), 1);
    wait_until("the session is counted", || {
        let stats = clusters[0].oob_stats();
        stats.active_sessions == 1 && stats.reports_received >= 1
    });
    // The streams of one cluster end with it, those of the others stay.
    drop(clusters.remove(0));
    let (next, _) = serve(0.9, 0);
    set_hosts(&clusters[0], &[next]);
    wait_until("the other clusters still follow their hosts", || {
        utilizations(&clusters[0]) == [Some(0.9)]
    });
}

#[test]
fn a_lost_stream_is_opened_again() {
    let (host, streams) = serve(0.5, 1);
    let cluster = cluster(&[host]);
    cluster.start_oob().unwrap();
    wait_until("the host has two streams one after the other", || {
        streams.load(Ordering::Relaxed) >= 2
    });
    assert_eq!(utilizations(&cluster), [Some(0.5)]);
}

#[test]
fn policies_without_out_of_band_reports_start_no_streams() {
    let config = ModuleConfig::parse("{}")
        .unwrap()
        .cluster("orders")
        .unwrap();
    assert!(config.oob_reporting().is_none());
    let (host, streams) = serve(0.5, 0);
    let cluster = Cluster::new(
        config,
        Locality::zone_only("a"),
        None,
        Clock::system().now(),
    );
    set_hosts(&cluster, &[host]);
    cluster.start_oob().unwrap();
    assert_eq!(streams.load(Ordering::Relaxed), 0);
}
