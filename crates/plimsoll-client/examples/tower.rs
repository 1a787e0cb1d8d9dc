//! The client as a tower service with endpoints from the program, without a control plane.
//!
//! Run it with `cargo run -p plimsoll-client --example tower -- 127.0.0.1:8080 127.0.0.1:8081` and
//! the addresses of your own servers.
#![expect(clippy::print_stdout, reason = "an example")]

use std::time::Duration;

use plimsoll_client::{Client, Cluster, Policy, Request, RequestBody, RequestOptions};
use tower_service::Service as _;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let orders = Cluster::new("orders")
        .zone("a", &addresses)
        .policy(Policy::least_request())
        .connect_timeout(Duration::from_secs(1));
    let client = Client::builder().zone("a").cluster(orders).build()?;
    // A service belongs to one task; its clones share connections and balancing.
    let options = RequestOptions::new().timeout(Duration::from_secs(2));
    let mut orders = client.service("orders")?.with_defaults(options);
    for _ in 0..4 {
        let request = Request::get("http://orders/").body(RequestBody::empty())?;
        let response = orders.call(request).await?;
        let status = response.status();
        println!("{status} {}", response.into_body().text().await?);
    }
    // Endpoints may change at any time; requests in flight finish on their hosts.
    let moved = Cluster::new("orders").zone("b", &addresses);
    client.update_endpoints(moved.build_endpoints()?).await?;
    println!("{:?}", client.explain("orders").await?.state);
    Ok(())
}
