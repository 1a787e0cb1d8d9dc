//! Connections: how many there are, how long they live, who waits for them, and hosts that cannot
//! be reached.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "support/actor.rs"]
mod actor;
mod support;

use std::net::SocketAddr;
use std::time::Duration;

use actor::{Actor, eventually, get, request};
use http::Method;
use http_body_util::BodyExt as _;
use plimsoll_client::{Client, ErrorKind, RequestOptions, RetryPolicy, UpstreamOptions};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::model::locality::Locality;
use support::{endpoints, http2, nobody, round_robin};
use tower_service::Service as _;

fn client(addresses: &[SocketAddr], options: UpstreamOptions) -> Client {
    let assignment = endpoints("orders", &[("a", addresses)]);
    Client::builder()
        .locality(Locality::zone_only("a"))
        .cluster(round_robin("orders"), assignment, options)
        .seed(7)
        .build()
}

#[tokio::test]
async fn waiters_take_turns_on_the_connections_that_may_be_open() {
    let actor = Actor::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_connections = 1;
    let client = client(&[actor.address], options);
    let mut service = client.service("orders").unwrap();
    let mut waiting = Vec::new();
    for number in 0..4 {
        let call = service.call(request(Method::GET, "/wait"));
        waiting.push(tokio::spawn(async move {
            let response = call.await.unwrap();
            response.into_body().collect().await.unwrap();
            number
        }));
        tokio::task::yield_now().await;
    }
    eventually("the first arrives", async || actor.requests() == 1).await;
    let mut order = Vec::new();
    for (number, waiting) in waiting.into_iter().enumerate() {
        eventually("the next arrives", async || {
            actor.requests() == number as u64 + 1
        })
        .await;
        actor.seen.go.notify_one();
        order.push(waiting.await.unwrap());
    }
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!(actor.connections(), 1);
}

#[tokio::test]
async fn too_many_waiters_are_turned_away_and_counted_as_dropped() {
    let actor = Actor::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_connections = 1;
    options.circuit_breakers.max_pending_requests = 1;
    let client = client(&[actor.address], options);
    let mut service = client.service("orders").unwrap();
    get(&mut service, "/").await.unwrap();
    let first = tokio::spawn(service.call(request(Method::GET, "/wait")));
    eventually("it arrives", async || actor.requests() == 2).await;
    let second = tokio::spawn(service.call(request(Method::GET, "/")));
    // On this one thread the second call now runs until it waits.
    tokio::task::yield_now().await;
    let third = service.call(request(Method::GET, "/")).await.unwrap_err();
    assert_eq!(third.kind(), ErrorKind::Overflow);
    actor.seen.go.notify_one();
    for call in [first, second] {
        let response = call.await.unwrap().unwrap();
        response.into_body().collect().await.unwrap();
    }
    let stats = client.drain_load_stats(false).await.unwrap();
    assert_eq!(stats[0].total_dropped_requests, 1);
    assert_eq!(stats[0].localities[0].stats.total_error_requests, 0);
}

#[tokio::test]
async fn a_full_http2_connection_gets_company() {
    let actor = Actor::start().await;
    let mut options = http2();
    options.http2.max_concurrent_streams = Some(1);
    let client = client(&[actor.address], options);
    let mut service = client.service("orders").unwrap();
    let first = tokio::spawn(service.call(request(Method::GET, "/wait")));
    eventually("it arrives", async || actor.requests() == 1).await;
    for _ in 0..3 {
        get(&mut service, "/").await.unwrap();
    }
    assert_eq!(actor.connections(), 2);
    actor.seen.go.notify_one();
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_burst_of_http2_requests_makes_one_connection() {
    let actor = Actor::start().await;
    let client = client(&[actor.address], http2());
    let mut service = client.service("orders").unwrap();
    let calls: Vec<_> = (0..20)
        .map(|_| tokio::spawn(service.call(request(Method::GET, "/"))))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((actor.requests(), actor.connections()), (20, 1));
}

#[tokio::test]
async fn connections_end_after_so_many_requests() {
    for mut options in [UpstreamOptions::default(), http2()] {
        let actor = Actor::start().await;
        options.max_requests_per_connection = Some(2);
        let client = client(&[actor.address], options);
        let mut service = client.service("orders").unwrap();
        for _ in 0..5 {
            get(&mut service, "/").await.unwrap();
        }
        assert_eq!(actor.connections(), 3);
    }
}

#[tokio::test]
async fn idle_and_old_connections_are_closed() {
    let short = Duration::from_millis(100);
    let idle = UpstreamOptions {
        idle_timeout: Some(short),
        ..Default::default()
    };
    let old = UpstreamOptions {
        max_connection_duration: Some(short),
        ..http2()
    };
    for options in [idle, old] {
        let actor = Actor::start().await;
        let client = client(&[actor.address], options);
        let mut service = client.service("orders").unwrap();
        get(&mut service, "/").await.unwrap();
        eventually("it is closed", async || actor.open() == 0).await;
        get(&mut service, "/").await.unwrap();
        assert_eq!(actor.connections(), 2);
    }
}

#[tokio::test]
async fn hosts_are_dialled_before_the_first_request_on_demand() {
    let actors = [Actor::start().await, Actor::start().await];
    let addresses = [actors[0].address, actors[1].address];
    let client = Client::builder()
        .cluster(
            round_robin("orders"),
            endpoints("orders", &[("a", &addresses)]),
            UpstreamOptions::default(),
        )
        .preconnect(true)
        .build();
    for actor in &actors {
        eventually("it is dialled", async || actor.connections() == 1).await;
    }
    let mut service = client.service("orders").unwrap();
    eventually("connections are used", async || {
        get(&mut service, "/").await.unwrap();
        actors.iter().all(|actor| actor.requests() > 0)
    })
    .await;
    assert!(actors.iter().all(|actor| actor.connections() == 1));
}

#[tokio::test]
async fn a_host_in_back_off_is_left_alone_without_a_retry() {
    let alive = Actor::start().await;
    let dead = nobody().await;
    for options in [UpstreamOptions::default(), http2()] {
        let client = client(&[dead, alive.address], options);
        let mut service = client.service("orders").unwrap();
        for _ in 0..2 {
            get(&mut service, "/").await.unwrap();
        }
        let once = RequestOptions {
            retry: RetryPolicy {
                num_retries: 0,
                ..RetryPolicy::default()
            },
            ..RequestOptions::default()
        };
        let mut service = client.service("orders").unwrap().with_defaults(once);
        for _ in 0..6 {
            get(&mut service, "/").await.unwrap();
        }
    }
}

#[tokio::test]
async fn when_all_are_in_back_off_one_is_tried_all_the_same() {
    let address = nobody().await;
    let client = client(&[address], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    for _ in 0..2 {
        let call = service.call(request(Method::GET, "/"));
        assert_eq!(call.await.unwrap_err().kind(), ErrorKind::Connect);
    }
    let actor = Actor::start_at(address).await;
    get(&mut service, "/").await.unwrap();
    assert_eq!(actor.requests(), 1);
}

#[tokio::test]
async fn connections_to_a_failed_host_are_closed_on_demand() {
    for mut options in [UpstreamOptions::default(), http2()] {
        let actor = Actor::start().await;
        options.close_connections_on_host_health_failure = true;
        let client = client(&[actor.address], options);
        let mut service = client.service("orders").unwrap();
        let hanging = tokio::spawn(service.call(request(Method::GET, "/hang")));
        eventually("it arrives", async || actor.requests() == 1).await;
        client
            .update_health("orders", actor.address, HealthSignal::OutlierEjected)
            .await
            .unwrap();
        let error = hanging.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transport);
        eventually("it is closed", async || actor.open() == 0).await;
    }
}

#[tokio::test]
async fn connections_that_died_while_idle_cost_nothing() {
    for options in [UpstreamOptions::default(), http2()] {
        let actor = Actor::start().await;
        let client = client(&[actor.address], options);
        let mut service = client.service("orders").unwrap();
        for _ in 0..5 {
            get(&mut service, "/").await.unwrap();
            actor.kill_connections();
            eventually("it is closed", async || actor.open() == 0).await;
            // Our side notices with the next look at the socket.
            tokio::task::yield_now().await;
        }
        let stats = client.drain_load_stats(false).await.unwrap();
        let stats = &stats[0].localities[0].stats;
        let counts = (stats.total_issued_requests, stats.total_successful_requests);
        assert_eq!(counts, (5, 5));
    }
}

#[tokio::test]
async fn a_host_is_reached_at_its_other_addresses() {
    let actor = Actor::start().await;
    let dead = nobody().await;
    let client = client(&[dead], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    assert!(get(&mut service, "/").await.is_err());
    let extras = plimsoll_client::EndpointExtras {
        additional_addresses: vec![actor.address],
        ..Default::default()
    };
    client
        .update_endpoint_extras("orders", [(dead, extras)].into())
        .await
        .unwrap();
    get(&mut service, "/").await.unwrap();
    assert_eq!(actor.requests(), 1);
}

#[tokio::test]
async fn further_addresses_that_a_file_lists_are_tried() {
    let alive = Actor::start().await;
    let dead = nobody().await;
    let text = format!(
        "name: orders
type: STATIC
load_assignment:
  cluster_name: orders
  endpoints:
  - lb_endpoints:
    - endpoint:
        address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}
        additional_addresses:
        - address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}
",
        dead.port(),
        alive.address.port()
    );
    let cluster = plimsoll_xds::yaml::parse_upstream_cluster(&text).unwrap();
    let client = Client::builder().upstream(cluster).build();
    let mut service = client.service("orders").unwrap();
    get(&mut service, "/").await.unwrap();
    assert_eq!(alive.requests(), 1);
}
