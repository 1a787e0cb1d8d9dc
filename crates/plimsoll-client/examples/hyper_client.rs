//! hyper-util's client, which keeps its own connections, with hosts picked by a layer.
//!
//! Run it with `cargo run -p plimsoll-client --example hyper_client -- ADDRESS...`.
#![expect(clippy::print_stdout, reason = "an example")]

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use plimsoll_client::{Client, Cluster, Policy};
use tower_layer::Layer as _;
use tower_service::Service as _;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let orders = Cluster::new("orders")
        .zone("zone-a", &addresses)
        .policy(Policy::least_request());
    let client = Client::builder().zone("zone-a").cluster(orders).build()?;

    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut balanced = client.layer("orders")?.layer(http);
    for _ in 0..4 {
        let request = Request::get("http://orders/").body(Empty::new())?;
        let response = balanced.call(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        print!("{status} {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}
