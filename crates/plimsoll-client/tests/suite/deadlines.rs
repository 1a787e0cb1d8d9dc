//! Deadlines of gRPC calls cover the whole response.
#![cfg(feature = "tonic")]

use crate::support::actor::Actor;
use crate::support::{Backend, assigned, endpoints, http2, round_robin, within};
use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::{Channel, ChannelBody, Client, Cluster};
use plimsoll_core::model::locality::Locality;
use plimsoll_testing::tasks::wait_until;
use tonic::Code;
use tower_service::Service as _;

fn client(actor: &Actor) -> Client {
    let assignment = endpoints("orders", &[("a", &[actor.address])]);
    Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(assigned(round_robin("orders"), assignment, http2()))
        .build()
        .unwrap()
}

async fn call(client: &Client, path: &str, timeout: &str) -> ChannelBody {
    let mut channel = Channel::from(client.service("orders").unwrap());
    let request = Request::post(path)
        .header("content-type", "application/grpc")
        .header("grpc-timeout", timeout)
        .body(Empty::<Bytes>::new())
        .unwrap();
    channel.call(request).await.unwrap().into_body()
}

#[tokio::test]
async fn a_stream_ends_with_its_deadline_and_counts_as_failed() {
    let actor = Actor::start().await;
    let client = client(&actor);
    let mut body = call(&client, "/endless", "100m").await;
    let late = within(async {
        loop {
            match body.frame().await.unwrap() {
                Ok(_) => {}
                Err(status) => return status,
            }
        }
    })
    .await;
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(body.frame().await.is_none());
    let mut failed = 0;
    wait_until("the failure is counted", async || {
        for stats in client.drain_load_stats(false).await.unwrap() {
            let localities = stats.localities.iter();
            failed += localities
                .map(|locality| locality.stats.total_error_requests)
                .sum::<u64>();
        }
        failed == 1
    })
    .await;
}

#[tokio::test]
async fn a_response_within_the_deadline_is_complete() {
    let actor = Actor::start().await;
    let client = client(&actor);
    let body = call(&client, "/early", "60S").await;
    let body = within(body.collect()).await.unwrap().to_bytes();
    assert_eq!(body, "early");
}

#[tokio::test]
async fn a_body_with_a_deadline_has_the_length_and_the_end_of_the_response() {
    let backend = Backend::start().await;
    let cluster = Cluster::new("orders").endpoints([backend.address.to_string()]);
    let client = Client::builder().cluster(cluster).build().unwrap();
    let body = async |path: &str| call(&client, path, "60S").await;
    let text = backend.address.to_string();
    let mut whole = body("/").await;
    assert!(!whole.is_end_stream());
    assert_eq!(whole.size_hint().exact(), u64::try_from(text.len()).ok());
    let frame = within(whole.frame()).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), text);
    assert!(whole.is_end_stream());
    let empty = body("/204").await;
    assert!(empty.is_end_stream());
    assert_eq!(empty.size_hint().exact(), Some(0));
}
