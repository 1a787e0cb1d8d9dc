//! A tonic client with unary and streaming calls to hosts in two zones, without a control plane.
//!
//! Run it with `cargo run -p plimsoll-client --example greetings`. With a control plane, use
//! `let channel = plimsoll_client::channel("xds:///greeter").await?;`
#![expect(clippy::print_stdout, reason = "an example")]

use std::net::SocketAddr;

use plimsoll_client::{Channel, Client};
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::yaml::parse_upstream_cluster;

mod greeter;

use greeter::GreeterClient;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let ((local, _local), (remote, _remote)) = (greeter::serve().await?, greeter::serve().await?);
    let channel = connect(local, remote)?;
    // Generated clients work as with any other channel; clones are cheap.
    let mut greeter = GreeterClient::new(channel);
    for _ in 0..4 {
        println!("{}", greeter.say("world").await?);
    }
    let mut letters = greeter.spell("world").await?;
    while let Some(letter) = letters.message().await? {
        println!("{letter}");
    }
    Ok(())
}

/// Opens a channel to a cluster in Envoy's format: HTTP/2, hosts in two zones.
fn connect(local: SocketAddr, remote: SocketAddr) -> Result<Channel, BoxError> {
    let host = |address: SocketAddr| {
        let (ip, port) = (address.ip(), address.port());
        format!("endpoint: {{address: {{socket_address: {{address: {ip}, port_value: {port}}}}}}}")
    };
    let cluster = parse_upstream_cluster(&format!(
        "name: greeter
type: STATIC
lb_policy: ROUND_ROBIN
http2_protocol_options: {{}}
load_assignment:
  cluster_name: greeter
  endpoints:
  - locality: {{zone: a}}
    lb_endpoints: [{{{}}}]
  - locality: {{zone: b}}
    lb_endpoints: [{{{}}}]
",
        host(local),
        host(remote)
    ))?;
    let client = Client::builder()
        .locality(Locality::zone_only("a"))
        .upstream(cluster)
        .build();
    Ok(client.service("greeter")?.into())
}
