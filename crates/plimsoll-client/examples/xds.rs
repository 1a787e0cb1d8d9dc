//! Requests to `xds:///name`: clusters, endpoints and routes come from a management server.
//!
//! Run it with `cargo run -p plimsoll-client --example xds -- xds:///orders`. The server is the one
//! of gRPC's bootstrap in `GRPC_XDS_BOOTSTRAP`; `plimsoll bootstrap grpc` prints one.
#![expect(clippy::print_stdout, reason = "an example")]

use plimsoll_client::{Client, Request};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let target = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "xds:///orders".to_owned());
    let client = Client::from_env()?;
    // Returns once there are routes; fails if the server does not have the target.
    let service = client.target(&target).await?;
    for _ in 0..4 {
        let response = service.send(Request::get("/").body(())?).await?;
        let status = response.status();
        println!("{status} {}", response.into_body().text().await?);
    }
    for cluster in client.cluster_names() {
        let explained = client.explain(&cluster).await?;
        println!(
            "{cluster}: {:?}, {:?}",
            explained.state, explained.fractions
        );
    }
    // Reports the last requests to the server.
    client.shutdown().await?;
    Ok(())
}
