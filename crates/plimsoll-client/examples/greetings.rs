//! A tonic client with unary and streaming calls to hosts in two zones, without a control plane.
//!
//! Run it with `cargo run -p plimsoll-client --example greetings`. With a control plane, use
//! `let channel = plimsoll_client::channel("xds:///greeter").await?;`
#![expect(clippy::print_stdout, reason = "an example")]

use std::net::SocketAddr;

use plimsoll_client::{Channel, Client, Cluster};

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

/// Opens a channel to a cluster with hosts in two zones.
fn connect(local: SocketAddr, remote: SocketAddr) -> Result<Channel, BoxError> {
    let greeter = Cluster::new("greeter")
        .zone("a", [local])
        .zone("b", [remote])
        .http2();
    let client = Client::builder().zone("a").cluster(greeter).build()?;
    Ok(client.service("greeter")?.into())
}
