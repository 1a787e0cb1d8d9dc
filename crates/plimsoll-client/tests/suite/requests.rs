//! Requests through a client with fixed endpoints, to real servers on loopback.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use plimsoll_client::settings::EndpointLoadMetricsFormat;
use plimsoll_client::{Client, Cluster, ErrorKind, Side, UpstreamOptions};
use plimsoll_testing::tasks::wait_until;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::support::actor::Actor;
use crate::support::{Backend, client, endpoints, get, http2, refused_address, round_robin};

#[tokio::test]
async fn round_robin_works_over_http1_and_http2() {
    for options in [UpstreamOptions::default(), http2()] {
        let backends = [Backend::start().await, Backend::start().await];
        let addresses = [backends[0].address, backends[1].address];
        let client = client(&addresses, options);
        let mut service = client.service("orders").unwrap();
        for _ in 0..10 {
            let (status, body) = get(&mut service, "/").await.unwrap();
            assert_eq!(status, 200);
            assert!(addresses.iter().any(|address| address.to_string() == body));
        }
        assert_eq!((backends[0].seen(), backends[1].seen()), (5, 5));
    }
}

#[tokio::test]
async fn short_lived_services_balance_together() {
    let backends = [Backend::start().await, Backend::start().await];
    let addresses = [backends[0].address, backends[1].address];
    let client = client(&addresses, UpstreamOptions::default());
    for _ in 0..10 {
        let mut service = client.service("orders").unwrap();
        get(&mut service, "/").await.unwrap();
    }
    assert_eq!((backends[0].seen(), backends[1].seen()), (5, 5));
}

#[tokio::test]
async fn a_refused_connection_is_retried_on_another_host() {
    let alive = Backend::start().await;
    let dead = refused_address();
    for options in [UpstreamOptions::default(), http2()] {
        let client = client(&[dead, alive.address], options);
        let mut service = client.service("orders").unwrap();
        for _ in 0..6 {
            let (_, body) = get(&mut service, "/").await.unwrap();
            assert_eq!(body, alive.address.to_string());
        }
    }
}

/// A caller that writes `https` must not find its request in plain text on the network.
#[tokio::test]
async fn https_to_a_cluster_without_tls_is_refused() {
    for options in [UpstreamOptions::default(), http2()] {
        let backend = Backend::start().await;
        let client = client(&[backend.address], options);
        let mut service = client.service("orders").unwrap().clone();
        let request = |uri: &str| Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
        let refused = service.call(request("https://orders.example/secret")).await;
        let error = refused.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the scheme of the request is https, but cluster orders has no TLS: \
             set Cluster::tls, or transport_socket of the cluster"
        );
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(error.side(), Side::Configuration);
        assert_eq!(error.cluster(), Some("orders"));
        assert_eq!(client.stats().get("orders", "upstream_cx_total"), Some(0));
        // What a proxy forwards came with the scheme of another connection.
        let mut forwarding = service.clone().ignore_scheme().clone();
        let response = forwarding.call(request("https://orders.example/")).await;
        assert_eq!(response.unwrap().status(), 200);
        assert_eq!(backend.seen(), 1);
    }
}

#[tokio::test]
async fn errors_name_the_cluster_without_hosts() {
    let client = client::<std::net::SocketAddr>(&[], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    let error = get(&mut service, "/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoHost);
    let error = client.service("order").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownCluster);
    assert!(error.to_string().contains("orders"), "{error}");
}

#[tokio::test]
async fn endpoints_and_clusters_change_while_requests_run() {
    let backends = [Backend::start().await, Backend::start().await];
    let [one, two] = [backends[0].address, backends[1].address];
    let client = client(&[one], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    assert_eq!(get(&mut service, "/").await.unwrap().1, one.to_string());
    client
        .update_endpoints(endpoints("orders", &[("a", &[two])]))
        .await
        .unwrap();
    assert_eq!(get(&mut service, "/").await.unwrap().1, two.to_string());
    client
        .set_cluster(Cluster::from(round_robin("users")).options(http2()))
        .await
        .unwrap();
    client
        .update_endpoints(endpoints("users", &[("a", &[one])]))
        .await
        .unwrap();
    let mut users = client.service("users").unwrap();
    assert_eq!(get(&mut users, "/").await.unwrap().1, one.to_string());
    client.remove_cluster("orders").await.unwrap();
    assert!(client.service("orders").is_err());
    // Existing services keep using the last snapshot.
    assert_eq!(get(&mut service, "/").await.unwrap().1, two.to_string());
}

#[tokio::test]
async fn counts_of_removed_hosts_and_clusters_are_reported() {
    let backends = [Backend::start().await, Backend::start().await];
    let [one, two] = [backends[0].address, backends[1].address];
    let client = client(&[one, two], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    for path in ["/", "/", "/503", "/"] {
        get(&mut service, path).await.unwrap();
    }
    let assignment = endpoints("orders", &[("b", &[two])]);
    client.update_endpoints(assignment).await.unwrap();
    get(&mut service, "/").await.unwrap();
    client.remove_cluster("orders").await.unwrap();
    let stats = client.drain_load_stats(false).await.unwrap();
    let localities = stats.iter().flat_map(|cluster| &cluster.localities);
    let counts = localities.map(|locality| &locality.stats);
    let sums = counts.fold((0, 0, 0), |sums, locality| {
        (
            sums.0 + locality.total_issued_requests,
            sums.1 + locality.total_successful_requests,
            sums.2 + locality.total_error_requests,
        )
    });
    assert_eq!(sums, (5, 4, 1));
    assert_eq!(backends[0].seen() + backends[1].seen(), 5);
    assert!(client.drain_load_stats(false).await.unwrap().is_empty());
}

#[test]
fn after_its_runtime_ended_a_client_says_so() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let built_on = runtime();
    let client = built_on.block_on(async {
        let orders = Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let client = Client::builder().cluster(orders).build().unwrap();
        client.ready().await.unwrap();
        client
    });
    drop(built_on);
    runtime().block_on(async {
        let mut service = client.service("orders").unwrap();
        let results = [
            client.ready().await,
            client.explain("orders").await.map(drop),
            get(&mut service, "/").await.map(drop),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed);
            let text = "the runtime that the client was built on has ended";
            assert_eq!(error.to_string(), text);
        }
    });
}

/// Endpoints of a service that is in use are updated, although the client was dropped.
#[tokio::test]
async fn a_client_lives_as_long_as_its_services() {
    let (gone, backend) = (refused_address(), Backend::start().await);
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    let client = client(&[gone], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    drop(client);
    let now = endpoints("orders", &[("a", &[backend.address])]);
    service.client().update_endpoints(now).await.unwrap();
    assert_eq!(get(&mut service, "/").await.unwrap().0, 200);
    drop(service);
    wait_until("the tasks of the client end", async || {
        tasks.num_alive_tasks() <= before
    })
    .await;
}

#[tokio::test]
async fn requests_ask_for_load_reports_if_their_cluster_says_so() {
    let actor = Actor::start().await;
    let orders = |format: Option<EndpointLoadMetricsFormat>| {
        let cluster = Cluster::new("orders").endpoints([actor.address]);
        match format {
            Some(format) => cluster.endpoint_load_metrics_format(format),
            None => cluster,
        }
    };
    let request = |own: Option<&str>| {
        let request = Request::get("http://orders/asked");
        let request = match own {
            Some(own) => request.header("endpoint-load-metrics-format", own),
            None => request,
        };
        request.body(Empty::<Bytes>::new()).unwrap()
    };
    for (format, own, expected) in [
        (None, None, ""),
        (None, Some("JSON"), "JSON"),
        (Some(EndpointLoadMetricsFormat::Text), None, "TEXT"),
        (Some(EndpointLoadMetricsFormat::Json), None, "JSON"),
        (Some(EndpointLoadMetricsFormat::Bin), None, "BIN"),
        (Some(EndpointLoadMetricsFormat::Bin), Some("TEXT"), "TEXT"),
    ] {
        let client = Client::builder().cluster(orders(format)).build().unwrap();
        let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let mut service = client.service("orders").unwrap();
        let mut balanced = client.layer("orders").unwrap().layer(http);
        for call in [service.call(request(own)), balanced.call(request(own))] {
            let body = call.await.unwrap().into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes(), expected, "{format:?} {own:?}");
        }
    }
}

#[tokio::test]
async fn the_circuit_breaker_opens_at_max_requests() {
    let backend = Backend::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_requests = 0;
    let client = client(&[backend.address], options);
    let mut service = client.service("orders").unwrap();
    let error = get(&mut service, "/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overflow);
    assert_eq!(
        error.to_string(),
        "circuit breaker max_requests of cluster orders is open: 0 of 0; \
         raise it with Cluster::max_requests"
    );
    assert_eq!(error.cluster(), Some("orders"));
    assert_eq!(backend.seen(), 0);
}
