//! `Client::shutdown`: requests in flight end, the last load is reported, connections close.

use std::time::Duration;

use crate::support::actor::Actor;
#[cfg(feature = "xds")]
use crate::support::management::{Management, xds_options};
#[cfg(feature = "xds")]
use crate::support::resources::{assignment, cluster};
use crate::support::within;
use plimsoll_client::{Client, Cluster, ErrorKind, Request, ResponseFuture, Side};
#[cfg(feature = "xds")]
use plimsoll_client::{LoadReporting, Variant};
use plimsoll_testing::tasks::wait_until;

fn get(client: &Client, path: &str) -> ResponseFuture {
    let request = Request::get(path).body(()).unwrap();
    client.service("orders").unwrap().send(request)
}

async fn kind(sent: ResponseFuture) -> ErrorKind {
    within(sent).await.unwrap_err().kind()
}

#[tokio::test]
async fn requests_in_flight_end_and_new_ones_are_refused() {
    for http2 in [false, true] {
        let actor = Actor::start().await;
        let orders = Cluster::new("orders").endpoints([actor.address]);
        let orders = if http2 { orders.http2() } else { orders };
        let client = Client::builder().cluster(orders).build().unwrap();
        let waiting = tokio::spawn(get(&client, "/wait"));
        wait_until("the host has the request", async || actor.requests() == 1).await;
        let (service, other) = (client.service("orders").unwrap(), client.clone());
        let shutdown = tokio::spawn(async move { other.shutdown().await });
        wait_until("requests are refused", async || {
            client
                .ready()
                .await
                .is_err_and(|error| error.kind() == ErrorKind::Closed)
        })
        .await;
        let refused = service.send(Request::get("/").body(()).unwrap());
        assert_eq!(kind(refused).await, ErrorKind::Closed);
        assert!(!shutdown.is_finished(), "a request is in flight");
        // Its body counts, too.
        actor.seen.go.notify_one();
        let response = within(waiting).await.unwrap().unwrap();
        assert!(!shutdown.is_finished());
        response.into_body().bytes().await.unwrap();
        within(shutdown).await.unwrap().unwrap();
        wait_until("connections are closed", async || actor.open() == 0).await;
        assert_eq!(actor.requests(), 1);
        // Clones and services of earlier know, and a second call has nothing to do.
        assert_eq!(kind(get(&client, "/")).await, ErrorKind::Closed);
        assert_eq!(
            client.explain("orders").await.unwrap_err().kind(),
            ErrorKind::Closed
        );
        within(client.shutdown()).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_does_not_end_is_ended_after_the_timeout() {
    let actor = Actor::start().await;
    let orders = Cluster::new("orders").endpoints([actor.address]);
    let limit = Duration::from_millis(50);
    let builder = Client::builder().cluster(orders).shutdown_timeout(limit);
    let client = builder.build().unwrap();
    let hanging = tokio::spawn(get(&client, "/hang"));
    wait_until("the host has the request", async || actor.requests() == 1).await;
    let error = within(client.shutdown()).await.unwrap_err();
    let text = "1 requests were still in flight 50ms after shutdown began";
    assert_eq!(error.to_string(), text);
    assert_eq!(
        (error.kind(), error.side()),
        (ErrorKind::Timeout, Side::Caller)
    );
    assert!(within(hanging).await.unwrap().is_err());
    wait_until("the connection is closed", async || actor.open() == 0).await;
}

#[cfg(feature = "xds")]
#[tokio::test]
async fn requests_that_wait_for_discovery_end_at_once() {
    let server = Management::start(&[]);
    let options = xds_options(server.address, Variant::Sotw);
    let builder = Client::builder()
        .xds(options)
        .cluster(Cluster::eds("orders"));
    let client = builder.build().unwrap();
    let waiting = tokio::spawn(get(&client, "/"));
    let target = client.target_lazy("xds:///users").unwrap();
    let routed = tokio::spawn(target.send(Request::get("/").body(()).unwrap()));
    tokio::task::yield_now().await;
    within(client.shutdown()).await.unwrap();
    for waiting in [waiting, routed] {
        let error = within(waiting).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:#}");
    }
}

/// What was counted since the last report reaches the server before `shutdown` returns.
#[cfg(feature = "xds")]
#[tokio::test]
async fn the_last_load_is_reported() {
    let actor = Actor::start().await;
    let server = Management::start(&[
        cluster("orders", ""),
        assignment("orders", &[("a", &[actor.address])]),
    ]);
    let options = xds_options(server.address, Variant::Sotw)
        .clusters(["orders"])
        .load_reporting(LoadReporting::Always);
    let client = Client::builder().xds(options).build().unwrap();
    within(client.ready()).await.unwrap();
    wait_until("load is reported", async || server.reports() > 1).await;
    for requests in 1..=5 {
        let response = within(get(&client, "/")).await.unwrap();
        response.into_body().bytes().await.unwrap();
        assert_eq!(actor.requests(), requests);
    }
    within(client.shutdown()).await.unwrap();
    // The server has read the report when it ended the stream; its counters follow.
    wait_until("all requests are reported", async || {
        server.reported("orders").succeeded == 5
    })
    .await;
    let reports = server.reports();
    assert_eq!(kind(get(&client, "/")).await, ErrorKind::Closed);
    assert_eq!(server.reports(), reports, "nothing reports any more");
}
