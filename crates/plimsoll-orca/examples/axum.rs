//! An axum backend that reports its load in responses and out of band.
//!
//! Run it with `cargo run -p plimsoll-orca --example axum`, then try:
//!
//! * `curl -i localhost:8080/` shows the header `endpoint-load-metrics: TEXT …`;
//! * `curl -i localhost:8080/search` also shows the cost of the request, as JSON;
//! * Envoy can stream `/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics` from the same port.

use axum::{Extension, Router, routing::get};
use plimsoll_orca::{OpenRcaService, OrcaLayer, OrcaRecorder};

async fn search(Extension(orca): Extension<OrcaRecorder>) -> Result<String, String> {
    let rows = 1_250.0;
    orca.set_request_cost("rows", rows)
        .map_err(|error| error.to_string())?;
    Ok(format!("{rows} rows read\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layer = OrcaLayer::builder().concurrency_limit(200).build()?;
    let orca = layer.handle();
    orca.set_named_metric("build", 42.0)?;

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/search", get(search))
        .route_service(OpenRcaService::PATH, orca.open_rca_service())
        .layer(layer);
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, app).await?;
    Ok(())
}
