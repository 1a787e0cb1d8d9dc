//! The layer over another HTTP client: hyper-util's, with its own connections.

use crate::support::actor::Actor;
use crate::support::{Backend, client, refused_address};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use plimsoll_client::{Client, UpstreamOptions};
use plimsoll_core::stats::TextFormat;
use plimsoll_testing::tasks::wait_until;
use tower_layer::Layer as _;
use tower_service::Service as _;

#[tokio::test]
async fn requests_of_another_http_client_are_balanced_and_counted() {
    let backends = [Backend::start().await, Backend::start().await];
    let addresses = [backends[0].address, backends[1].address, refused_address()];
    let client = client(&addresses, UpstreamOptions::default());
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

#[tokio::test]
async fn a_layer_counts_like_a_service() {
    let actor = Actor::start().await;
    let client = || client(&[actor.address], UpstreamOptions::default());
    let (own, other) = (client(), client());
    let mut service = own.service("orders").unwrap();
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut balanced = other.layer("orders").unwrap().layer(http);
    for path in ["/", "/404", "/503", "/close", "/"] {
        let request = || {
            let request = Request::get(format!("http://orders.example{path}"));
            request.body(Empty::<Bytes>::new()).unwrap()
        };
        for response in [
            service
                .call(request())
                .await
                .map(|response| response.into_body().boxed()),
            balanced
                .call(request())
                .await
                .map(|response| response.into_body().boxed()),
        ] {
            match response {
                Ok(body) => drop(body.collect().await.unwrap()),
                Err(_) => assert_eq!(path, "/close"),
            }
        }
    }
    // Connections and retries are those of the inner client.
    let requests = |client: &Client| {
        let stats = client.stats();
        let requests = stats
            .iter()
            .filter(|stat| stat.name.starts_with("upstream_rq_"));
        let own = requests.filter(|stat| !stat.name.starts_with("upstream_rq_pending"));
        let counted: Vec<_> = own
            .map(|stat| (stat.name.to_string(), stat.value))
            .collect();
        counted
    };
    let counted = requests(&own);
    assert_eq!(requests(&other), counted);
    assert!(
        counted.contains(&("upstream_rq_total".to_owned(), 5)),
        "{counted:?}"
    );
    let lines = |client: &Client, name: &str| -> Vec<String> {
        let text = client.metric_families().text(TextFormat::OpenMetrics);
        let found = text.lines().filter(|line| line.contains(name));
        found.map(str::to_owned).collect()
    };
    for (name, total) in [
        ("upstream_rq_time_milliseconds_count", 4),
        // Two of 200, one each of 404 and 503.
        ("upstream_rq_completed_total{", 4),
    ] {
        let counted = lines(&other, name);
        assert_eq!(counted, lines(&own, name));
        let values = counted.iter().filter_map(|line| line.rsplit(' ').next());
        let sum: u64 = values.map(|value| value.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, total, "{counted:?}");
    }
}

#[tokio::test]
async fn dropped_requests_and_bodies_of_another_http_client_end() {
    let actor = Actor::start().await;
    let client = client(&[actor.address], UpstreamOptions::default());
    let active = || {
        let snapshot = client.snapshot("orders").unwrap();
        let hosts = snapshot.hosts();
        hosts.map(|host| host.active_requests()).sum::<u64>()
    };
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut balanced = client.layer("orders").unwrap().layer(http);
    let request = |path: &str| {
        let request = Request::get(format!("http://orders.example{path}"));
        request.body(Empty::new()).unwrap()
    };
    tokio::select! {
        _ = balanced.call(request("/hang")) => panic!("answered"),
        () = wait_until("it is in flight", async || actor.requests() == 1 && active() == 1) => {}
    }
    assert_eq!(active(), 0);
    let response = balanced.call(request("/endless")).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(active(), 1, "in flight until the body ends");
    drop(body);
    assert_eq!(active(), 0);
}
