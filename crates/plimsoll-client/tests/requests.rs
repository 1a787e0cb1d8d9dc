//! Requests through a client with fixed endpoints, to real servers on loopback.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::net::SocketAddr;

use plimsoll_client::{Client, ErrorKind, UpstreamOptions};
use plimsoll_core::model::locality::Locality;
use support::{Backend, endpoints, get, http2, refused_address, round_robin};

async fn client(addresses: &[SocketAddr], options: UpstreamOptions) -> Client {
    let assignment = endpoints("orders", &[("a", addresses)]);
    Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster_with_endpoints(round_robin("orders"), assignment, options)
        .seed(7)
        .try_build()
        .unwrap()
}

#[tokio::test]
async fn round_robin_works_over_http1_and_http2() {
    for options in [UpstreamOptions::default(), http2()] {
        let backends = [Backend::start().await, Backend::start().await];
        let addresses = [backends[0].address, backends[1].address];
        let client = client(&addresses, options).await;
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
    let client = client(&addresses, UpstreamOptions::default()).await;
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
        let client = client(&[dead, alive.address], options).await;
        let mut service = client.service("orders").unwrap();
        for _ in 0..6 {
            let (_, body) = get(&mut service, "/").await.unwrap();
            assert_eq!(body, alive.address.to_string());
        }
    }
}

#[tokio::test]
async fn errors_name_the_cluster_without_hosts() {
    let client = client(&[], UpstreamOptions::default()).await;
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
    let client = client(&[one], UpstreamOptions::default()).await;
    let mut service = client.service("orders").unwrap();
    assert_eq!(get(&mut service, "/").await.unwrap().1, one.to_string());
    client
        .update_endpoints(endpoints("orders", &[("a", &[two])]))
        .await
        .unwrap();
    assert_eq!(get(&mut service, "/").await.unwrap().1, two.to_string());
    client
        .set_cluster(round_robin("users"), http2())
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
    let client = client(&[one, two], UpstreamOptions::default()).await;
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

#[tokio::test]
async fn the_circuit_breaker_opens_at_max_requests() {
    let backend = Backend::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_requests = 0;
    let client = client(&[backend.address], options).await;
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
