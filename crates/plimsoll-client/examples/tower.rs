//! The client as a tower service with endpoints from the program, without a control plane.
//!
//! Run it with `cargo run -p plimsoll-client --example tower -- 127.0.0.1:8080 127.0.0.1:8081` and
//! the addresses of your own servers.
#![expect(clippy::print_stdout, reason = "an example")]

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::{Client, RequestOptions, UpstreamOptions};
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::yaml::parse_cluster;
use tower_service::Service as _;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let addresses: Vec<SocketAddr> = std::env::args()
        .skip(1)
        .map(|address| address.parse())
        .collect::<Result<_, _>>()?;
    // Policies are written as in Envoy.
    let cluster = parse_cluster("name: orders\nlb_policy: LEAST_REQUEST")?;
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(cluster, endpoints(&addresses)?, UpstreamOptions::default())
        .build();
    // A service belongs to one task; its clones share connections and balancing.
    let mut orders = client.service("orders")?.with_defaults(RequestOptions {
        timeout: Some(Duration::from_secs(2)),
        ..RequestOptions::default()
    });
    for _ in 0..4 {
        let request = Request::get("http://orders/").body(Empty::<bytes::Bytes>::new())?;
        let response = orders.call(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        println!("{status} {}", String::from_utf8_lossy(&body));
    }
    // Endpoints may change at any time; requests in flight finish on their hosts.
    client.update_endpoints(endpoints(&addresses)?).await?;
    println!("{:?}", client.explain("orders").await?.state);
    Ok(())
}

fn endpoints(addresses: &[SocketAddr]) -> Result<ClusterLoadAssignment, BoxError> {
    let zone = LocalityParts {
        locality: Locality::zone_only("a"),
        lb_endpoints: addresses.iter().copied().map(LbEndpoint::new).collect(),
        ..Default::default()
    };
    Ok(ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: "orders".into(),
        endpoints: vec![zone],
        ..Default::default()
    })?)
}
