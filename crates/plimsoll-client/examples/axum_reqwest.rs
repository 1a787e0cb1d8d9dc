//! A front end on axum whose handlers call a cluster with reqwest's requests and responses.
//!
//! Run it with `cargo run -p plimsoll-client --features reqwest --example axum_reqwest` and, after
//! `--`, the address to listen on and the addresses of one server per zone.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Router, routing::get};
use plimsoll_client::{Client, Cluster, Policy, ReqwestService};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
struct App {
    client: Client,
    http: reqwest::Client,
    orders: ReqwestService,
}

async fn latest(State(app): State<App>) -> Result<String, (StatusCode, String)> {
    let text = async {
        let request = app.http.get("http://orders/").build()?;
        let response = app.orders.send(request).await?;
        Ok::<_, BoxError>(response.error_for_status()?.text().await?)
    };
    text.await
        .map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))
}

/// Says where requests go, and why.
async fn why(State(app): State<App>) -> Result<String, (StatusCode, String)> {
    let explained = app.client.explain("orders").await;
    explained
        .map(|explained| format!("{}\n", explained.reason))
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, a, b, c] = arguments.as_slice() else {
        return Err("usage: axum_reqwest LISTEN A B C".into());
    };
    let orders = Cluster::new("orders")
        .zone("zone-a", [a])
        .zone("zone-b", [b])
        .zone("zone-c", [c])
        .policy(Policy::zone_aware().measured().min_cluster_size(1));
    let client = Client::builder()
        .zone("zone-a")
        .demand([("zone-a", 50), ("zone-b", 25), ("zone-c", 25)])
        .cluster(orders)
        .build()?;
    let app = App {
        http: reqwest::Client::new(),
        orders: client.service("orders")?.into(),
        client,
    };
    let router = Router::new()
        .route("/", get(latest))
        .route("/why", get(why))
        .with_state(app);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    axum::serve(listener, router).await?;
    Ok(())
}
