//! The layer over another HTTP client: hyper-util's, with its own connections.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use plimsoll_client::{Client, UpstreamOptions};
use support::{Backend, endpoints, refused_address, round_robin};
use tower_layer::Layer as _;
use tower_service::Service as _;

#[tokio::test]
async fn requests_of_another_http_client_are_balanced_and_counted() {
    let backends = [Backend::start().await, Backend::start().await];
    let addresses = [backends[0].address, backends[1].address, refused_address()];
    let client = Client::builder()
        .cluster_with_endpoints(
            round_robin("orders"),
            endpoints("orders", &[("a", &addresses)]),
            UpstreamOptions::default(),
        )
        .seed(7)
        .try_build()
        .unwrap();
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut balanced = client.layer("orders").unwrap().layer(http);
    let (mut good, mut bad) = (0, 0);
    for path in ["/", "/503", "/", "/", "/", "/"] {
        let request = Request::get(format!("http://orders.example{path}"));
        let response = balanced.call(request.body(Empty::new()).unwrap()).await;
        match response {
            Ok(response) => {
                good += 1;
                response.into_body().collect().await.unwrap();
            }
            // Connections are refused; retries are up to the inner client.
            Err(_) => bad += 1,
        }
    }
    assert_eq!((good, bad), (4, 2));
    assert_eq!((backends[0].seen(), backends[1].seen()), (2, 2));
    let stats = client.drain_load_stats(false).await.unwrap();
    let stats = &stats[0].localities[0].stats;
    let counted = (
        stats.total_issued_requests,
        stats.total_requests_in_progress,
    );
    assert_eq!(counted, (6, 0));
    assert_eq!(
        stats.total_successful_requests + stats.total_error_requests,
        6
    );
    assert!(client.layer("nowhere").is_err());
}
