//! Out-of-band load reports from hosts with and without the service.
#![cfg(feature = "xds")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::management::{Management, node};
use crate::support::resources::{assignment, listener, routes};
use crate::support::{assigned, endpoints, get, within};
use bytes::{BufMut as _, Bytes, BytesMut};
use plimsoll_client::{Client, UpstreamOptions, XdsOptions};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_testing::tasks::{wait_to_see, wait_until};
use plimsoll_xds::ads::CLUSTER;
use plimsoll_xds::orca::encode_message;
use plimsoll_xds::orca::oob::{PATH, parse_request};
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::upstream::Http2Message;
use plimsoll_xds::wire::{ClusterOut, LocalityDelivery, encode_cluster};
use plimsoll_xds::yaml::parse_cluster;
use tokio::net::TcpListener;

/// A host that serves requests and, if `utilization` is above 0, streams it as reports.
struct Reporter {
    address: SocketAddr,
    served: Arc<AtomicU64>,
    streams: Arc<AtomicU64>,
    /// Interval requested by the last stream.
    authority: Arc<Mutex<String>>,
}

impl Reporter {
    async fn start(utilization: f64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(listener, utilization)
    }

    fn serve(listener: TcpListener, utilization: f64) -> Self {
        let address = listener.local_addr().unwrap();
        let (served, streams, authority) = (Arc::default(), Arc::default(), Arc::default());
        let reporter = Self {
            address,
            served: Arc::clone(&served),
            streams: Arc::clone(&streams),
            authority: Arc::clone(&authority),
        };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (served, streams) = (Arc::clone(&served), Arc::clone(&streams));
                let authority = Arc::clone(&authority);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        if request.uri().path() == PATH {
                            streams.fetch_add(1, Ordering::Relaxed);
                            let requested = request.uri().authority().unwrap();
                            *authority.lock().unwrap() = requested.to_string();
                            tokio::spawn(report(request, respond, utilization));
                        } else {
                            served.fetch_add(1, Ordering::Relaxed);
                            answer(respond);
                        }
                    }
                });
            }
        });
        reporter
    }
}

fn answer(mut respond: h2::server::SendResponse<Bytes>) {
    let response = http::Response::new(());
    respond.send_response(response, true).unwrap();
}

async fn report(
    mut request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    utilization: f64,
) {
    let response = http::Response::builder().header("content-type", "application/grpc");
    if utilization == 0.0 {
        let response = response.header("grpc-status", "12").body(()).unwrap();
        respond.send_response(response, true).unwrap();
        return;
    }
    let body = request.body_mut().data().await.unwrap().unwrap();
    let period = parse_request(&body[5..]).unwrap().unwrap();
    let mut stream = respond
        .send_response(response.body(()).unwrap(), false)
        .unwrap();
    let message = encode_message(&OrcaLoadReport {
        application_utilization: utilization,
        rps_fractional: 100.0,
        ..OrcaLoadReport::default()
    });
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(&message);
    let frame = frame.freeze();
    while stream.send_data(frame.clone(), false).is_ok() {
        tokio::time::sleep(period).await;
    }
}

const CONFIG: &str = "
name: orders
load_balancing_policy:
  policies:
  - typed_extension_config:
      name: csw
      typed_config:
        '@type': \
type.googleapis.com/envoy.extensions.load_balancing_policies.\
client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin
        enable_oob_load_report: true
        oob_reporting_period: 0.02s
        blackout_period: 0s
        weight_update_period: 0.1s
";

#[tokio::test]
async fn weights_follow_reports_and_hosts_without_the_service_are_not_asked_again() {
    let reporters = [
        Reporter::start(0.9).await,
        Reporter::start(0.1).await,
        Reporter::start(0.0).await,
    ];
    let addresses: Vec<_> = reporters.iter().map(|reporter| reporter.address).collect();
    let options = UpstreamOptions {
        http_version: plimsoll_client::HttpVersion::Http2,
        ..UpstreamOptions::default()
    };
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(
            parse_cluster(CONFIG).unwrap(),
            endpoints("orders", &[("a", &addresses)]),
            options,
        ))
        .seed(7)
        .build()
        .unwrap();
    let mut service = client.service("orders").unwrap();
    let served = |index: usize| reporters[index].served.load(Ordering::Relaxed);
    let busy_and_idle = async || {
        let before = [served(0), served(1)];
        for _ in 0..60 {
            get(&mut service, "/").await.unwrap();
        }
        [served(0) - before[0], served(1) - before[1]]
    };
    wait_to_see("weights follow the reports", busy_and_idle, |seen| {
        let [busy, idle] = seen;
        *idle > 5 * busy
    })
    .await;
    let streams = |index: usize| reporters[index].streams.load(Ordering::Relaxed);
    assert_eq!([streams(0), streams(1), streams(2)], [1, 1, 1]);
}

const LOAD_AWARE: &str = "
name: orders
load_balancing_policy:
  policies:
  - typed_extension_config:
      name: load_aware
      typed_config:
        '@type': \
type.googleapis.com/envoy.extensions.load_balancing_policies.\
load_aware_locality.v3.LoadAwareLocality
        weight_update_period: 0.1s
        smoothing_time_constant: 0.1s
        remote_probe_fraction: 0
        enable_oob_load_report: true
        oob_reporting_period: 0.02s
        oob_reporting_config: {port_value: PORT, authority: orca.example}
        endpoint_picking_policy:
          policies:
          - typed_extension_config:
              name: round_robin
              typed_config:
                '@type': \
type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
";

/// The same port on two addresses.
async fn sidecars() -> [TcpListener; 2] {
    loop {
        let one = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = one.local_addr().unwrap().port();
        if let Ok(two) = TcpListener::bind(("127.0.0.2", port)).await {
            return [one, two];
        }
    }
}

/// Field 10 of `LoadAwareLocality` by xDS: sidecars at another port report for hosts that do not.
#[tokio::test]
async fn load_aware_localities_follow_reports_of_a_sidecar() {
    let [one, two] = sidecars().await;
    let port = one.local_addr().unwrap().port();
    let sidecars = [Reporter::serve(one, 0.9), Reporter::serve(two, 0.1)];
    let near = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let [near, far] = [near, far].map(|listener| Reporter::serve(listener, 0.0));

    let config = parse_cluster(&LOAD_AWARE.replace("PORT", &port.to_string())).unwrap();
    let mut out = ClusterOut::new(&config, LocalityDelivery::AsConfigured);
    let settings = ClusterMessage {
        http2_protocol_options: Some(Http2Message::default()),
        ..ClusterMessage::default()
    };
    out.settings = Some(&settings);
    let server = Management::start(&[
        listener("orders", "orders"),
        routes("orders", "orders"),
        (CLUSTER, "orders".to_owned(), encode_cluster(&out)),
        assignment("orders", &[("a", &[near.address]), ("b", &[far.address])]),
    ]);
    let options = XdsOptions::new(format!("http://{}", server.address), node());
    let client = Client::builder().xds(options).seed(7).build().unwrap();
    let mut service = within(client.target("xds:///orders")).await.unwrap();

    let served = |reporter: &Reporter| reporter.served.load(Ordering::Relaxed);
    wait_until("most requests leave the busy zone", async || {
        let before = [served(&near), served(&far)];
        for _ in 0..60 {
            get(&mut service, "/").await.unwrap();
        }
        served(&far) - before[1] > 3 * (served(&near) - before[0])
    })
    .await;
    for sidecar in &sidecars {
        assert_eq!(*sidecar.authority.lock().unwrap(), "orca.example");
    }
    let streams = |reporter: &Reporter| reporter.streams.load(Ordering::Relaxed);
    assert_eq!(
        (streams(&near), streams(&far)),
        (0, 0),
        "requested at another port"
    );
    let stats = client.stats();
    let received = stats
        .iter()
        .find(|stat| stat.name == "lb_orca_oob.reports_received");
    assert!(received.unwrap().value > 0);
}
