//! Requests of reqwest: as a tower service, and through a middleware for some hosts.
#![cfg(all(feature = "reqwest-middleware", feature = "xds"))]

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::actor::Actor;
use crate::support::management::{Management, xds_options};
use crate::support::resources::whole;
use crate::support::{assigned, endpoints, refused_address, round_robin, within};
use plimsoll_client::{
    BalancedMiddleware, Client, Error, ErrorKind, RequestOptions, ReqwestService, RetryOn,
    RetryPolicy, UpstreamOptions, Variant,
};
use plimsoll_testing::tasks::wait_until;
use reqwest_middleware::ClientWithMiddleware;
use tower_service::Service as _;

fn client(addresses: &[SocketAddr]) -> Client {
    Client::builder()
        .cluster(assigned(
            round_robin("orders"),
            endpoints("orders", &[("a", addresses)]),
            UpstreamOptions::default(),
        ))
        .seed(7)
        .build()
        .unwrap()
}

fn service(client: &Client) -> ReqwestService {
    client.service("orders").unwrap().into()
}

fn get(path: &str) -> reqwest::Request {
    let url = format!("http://orders.example{path}");
    reqwest::Request::new(reqwest::Method::GET, url.parse().unwrap())
}

/// A reqwest client that balances the host `orders.example`.
fn with_middleware(client: &Client) -> ClientWithMiddleware {
    let balanced = BalancedMiddleware::default().host("Orders.Example", service(client));
    let http = reqwest_middleware::ClientBuilder::new(reqwest::Client::new());
    http.with(balanced).build()
}

/// Requests of the cluster that are issued, in progress and failed.
async fn counts(client: &Client) -> (u64, u64, u64) {
    let stats = client.drain_load_stats(false).await.unwrap();
    let zones = stats.iter().flat_map(|stats| &stats.localities);
    zones.fold((0, 0, 0), |(issued, active, failed), zone| {
        (
            issued + zone.stats.total_issued_requests,
            active + zone.stats.total_requests_in_progress,
            failed + zone.stats.total_error_requests,
        )
    })
}

#[tokio::test]
async fn requests_are_shared_between_hosts_and_counted() {
    let actors = [Actor::start().await, Actor::start().await];
    let client = client(&[actors[0].address, actors[1].address]);
    let mut orders = service(&client);
    for _ in 0..10 {
        let response = orders.call(get("/form")).await.unwrap();
        assert_eq!(response.url().as_str(), "http://orders.example/form");
        let text = response.text().await.unwrap();
        assert_eq!(text, "HTTP/1.1 /form orders.example");
    }
    let http = with_middleware(&client);
    for _ in 0..10 {
        let response = http.get("http://orders.example/503").send().await.unwrap();
        assert_eq!(response.status(), 503);
        response.bytes().await.unwrap();
    }
    assert_eq!((actors[0].requests(), actors[1].requests()), (10, 10));
    assert_eq!(counts(&client).await, (20, 0, 10));
}

#[tokio::test]
async fn requests_to_other_hosts_pass_through_the_middleware() {
    let (actor, other) = (Actor::start().await, Actor::start().await);
    let client = client(&[actor.address]);
    let http = with_middleware(&client);
    let url = format!("http://{}/form", other.address);
    let text = http.get(url).send().await.unwrap().text().await.unwrap();
    assert!(text.ends_with(&other.address.to_string()), "{text}");
    assert_eq!((actor.requests(), other.requests()), (0, 1));
    assert_eq!(counts(&client).await, (0, 0, 0));
}

#[tokio::test]
async fn urls_with_https_are_not_sent_in_plain_text() {
    let actor = Actor::start().await;
    let client = client(&[actor.address]);
    let url = "https://orders.example/form";
    let request = reqwest::Request::new(reqwest::Method::GET, url.parse().unwrap());
    let error = service(&client).call(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let error = with_middleware(&client).get(url).send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else {
        panic!("{error}");
    };
    let error = error.downcast_ref::<Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(actor.connections(), 0);
}

#[tokio::test]
async fn failed_attempts_are_retried_as_the_options_say() {
    let actors = [Actor::start().await, Actor::start().await];
    let client = client(&[actors[0].address, refused_address(), actors[1].address]);
    let mut orders = service(&client);
    for _ in 0..6 {
        assert_eq!(orders.call(get("/")).await.unwrap().status(), 200);
    }
    // Options of one request, in the extensions of the middleware.
    actors[0]
        .seen
        .unhealthy
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let http = with_middleware(&client);
    let gateway_errors = RetryPolicy::new().retry_on(RetryOn::GATEWAY_ERROR);
    let options = RequestOptions::new().retry(gateway_errors);
    for _ in 0..4 {
        let request = http.get("http://orders.example/maybe");
        let response = request.with_extension(options.clone()).send().await;
        assert_eq!(response.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    let actor = Actor::start().await;
    let client = client(&[actor.address]);
    let http = with_middleware(&client);
    let pieces = ["one ", "two ", "three"].map(Ok::<_, std::io::Error>);
    let body = reqwest::Body::wrap_stream(tokio_stream::iter(pieces));
    let request = http.post("http://orders.example/echo").body(body);
    let text = request.send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "one two three");
    let mut endless = service(&client).call(get("/endless")).await.unwrap();
    for _ in 0..3 {
        assert!(!endless.chunk().await.unwrap().unwrap().is_empty());
    }
    assert_eq!(counts(&client).await.1, 1, "in flight until the body ends");
    drop(endless);
    wait_until("it ends with the body", async || {
        counts(&client).await.1 == 0
    })
    .await;
}

#[tokio::test]
async fn errors_keep_their_kind_and_text() {
    let refused = refused_address();
    let client = client(&[refused]);
    let error = service(&client).call(get("/")).await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!(
        (error.cluster(), error.address()),
        (Some("orders"), Some(refused))
    );
    let text = format!("cannot connect to {refused} of cluster orders");
    assert_eq!(error.to_string(), text);
    let http = with_middleware(&client);
    let error = http.get("http://orders.example/").send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else {
        panic!("{error:?}");
    };
    let chain = format!("{error:#}");
    assert_eq!(chain, format!("{text}: Connection refused (os error 111)"));
    let error = error.downcast_ref::<Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::Connect);
}

#[tokio::test]
async fn a_timeout_covers_headers_and_body() {
    let actor = Actor::start().await;
    let client = client(&[actor.address]);
    let mut orders = service(&client);
    let timed = |path: &str, millis| {
        let mut request = get(path);
        *request.timeout_mut() = Some(Duration::from_millis(millis));
        request
    };
    let error = within(orders.call(timed("/hang", 50))).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    // Long enough for the headers, also on a busy machine.
    let mut endless = within(orders.call(timed("/endless", 2000))).await.unwrap();
    let late = within(async {
        loop {
            if let Err(error) = endless.chunk().await {
                return error;
            }
        }
    })
    .await;
    let mut chain = Some(&late as &dyn std::error::Error);
    while let Some(error) = chain {
        if error.downcast_ref::<Error>().is_some_and(Error::is_timeout) {
            break;
        }
        chain = error.source();
    }
    assert!(chain.is_some(), "{late:?}");
    wait_until("both have ended", async || counts(&client).await.1 == 0).await;
}

#[tokio::test]
async fn dropped_futures_leak_nothing() {
    let actor = Actor::start().await;
    let client = client(&[actor.address]);
    let http = with_middleware(&client);
    for round in 1..=10 {
        let mut orders = service(&client);
        tokio::select! {
            _ = orders.call(get("/hang")) => panic!("answered"),
            _ = http.get("http://orders.example/hang").send() => panic!("answered"),
            () = wait_until("both arrived", async || actor.requests() == 2 * round) => {}
        }
    }
    let active = || {
        let stats = client.stats();
        let gauge = stats.iter().find(|stat| stat.name == "upstream_rq_active");
        gauge.unwrap().value
    };
    assert_eq!(active(), 0);
    // HTTP/1.1 connections with a dropped request are closed.
    wait_until("connections close", async || actor.open() == 0).await;
}

#[tokio::test]
async fn targets_of_a_management_server_are_served_too() {
    let actor = Actor::start().await;
    let server = Management::start(&whole("orders", &[("a", &[actor.address])]));
    let options = xds_options(server.address, Variant::Sotw);
    let client = Client::builder().xds(options).build().unwrap();
    let target = client.target_lazy("xds:///orders").unwrap();
    let mut orders = ReqwestService::from(target);
    let response = within(orders.call(get("/early"))).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "early");
}
