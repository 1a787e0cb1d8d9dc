//! What a client does with nothing but a list of endpoints.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::{Client, Cluster, UpstreamOptions};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::client_side_weighted_round_robin::ClientSideWeightedRoundRobin;
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tower_service::Service as _;

/// A server that reports its load with each response.
async fn reporting_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let report = r#"JSON {"cpu_utilization": 0.25, "rps_fractional": 100}"#;
        let response = format!(
            "HTTP/1.1 200 OK\r\nendpoint-load-metrics: {report}\r\ncontent-length: 2\r\n\r\nok"
        );
        stream.write_all(response.as_bytes()).await.unwrap();
        drop(stream.read_u8().await);
    });
    address
}

fn config(endpoint_policy: EndpointPolicy) -> ClusterConfig {
    ClusterConfig::try_new(ClusterConfigParts {
        name: "orders".into(),
        endpoint_policy,
        ..Default::default()
    })
    .unwrap()
}

fn endpoints(address: SocketAddr) -> ClusterLoadAssignment {
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: "orders".into(),
        endpoints: vec![LocalityParts {
            lb_endpoints: vec![LbEndpoint::new(address)],
            ..Default::default()
        }],
        ..Default::default()
    })
    .unwrap()
}

#[tokio::test]
async fn requests_are_sent_counted_and_weighed_by_load_reports() {
    let address = reporting_server().await;
    let policy =
        EndpointPolicy::ClientSideWeightedRoundRobin(ClientSideWeightedRoundRobin::default());
    let client = Client::builder()
        .cluster(
            Cluster::from(config(policy))
                .options(UpstreamOptions::default())
                .assignment(endpoints(address)),
        )
        .build()
        .unwrap();
    let mut orders = client.service("orders").unwrap();
    let request = http::Request::get("/").body(Empty::<Bytes>::new()).unwrap();
    let response = orders.call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "ok");
    let stats = client.stats();
    assert_eq!(stats.get("orders", "upstream_rq_total"), Some(1));
    assert_eq!(stats.get("orders", "orca_report_errors"), Some(0));
    let snapshot = client.snapshot("orders").unwrap();
    let host = snapshot.hosts().next().unwrap();
    // Requests per second ÷ utilization.
    assert_eq!(host.orca_weight(), Some(400));
}
