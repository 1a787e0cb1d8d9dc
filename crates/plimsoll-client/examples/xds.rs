//! Requests to `xds:///name`: clusters, endpoints and routes come from a management server.
//!
//! Run it with `cargo run -p plimsoll-client --example xds -- xds:///orders`. The server is the one
//! of gRPC's bootstrap in `GRPC_XDS_BOOTSTRAP`; `plimsoll bootstrap grpc` prints one.
#![expect(clippy::print_stdout, reason = "an example")]

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::{Client, XdsOptions};
use tower_service::Service as _;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let target = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "xds:///orders".to_owned());
    let client = Client::builder().xds(XdsOptions::from_env()?).try_build()?;
    // Returns once there are routes; fails if the server does not have the target.
    let mut service = client.target(&target).await?;
    for _ in 0..4 {
        let request = Request::get("/").body(Empty::<bytes::Bytes>::new())?;
        let response = service.call(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        println!("{status} {}", String::from_utf8_lossy(&body));
    }
    for cluster in client.cluster_names() {
        let explained = client.explain(&cluster).await?;
        println!(
            "{cluster}: {:?}, {:?}",
            explained.state, explained.fractions
        );
    }
    Ok(())
}
