//! Connection limits and lifetimes, pending requests, connect backoff and additional addresses.

use std::time::Duration;

use crate::support::actor::{Actor, get, request};
use crate::support::{
    assigned, bound_socket, client, endpoints, http2, refused_address, round_robin, with_extras,
};
use http::Method;
use http_body_util::BodyExt as _;
use plimsoll_client::{Client, Cluster, ErrorKind, RequestOptions, RetryPolicy, UpstreamOptions};
use plimsoll_core::model::health::HealthSignal;
use plimsoll_testing::tasks::wait_until;
use tower_service::Service as _;

#[tokio::test]
async fn pending_requests_share_the_allowed_connections() {
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
    wait_until("the first arrives", async || actor.requests() == 1).await;
    let mut order = Vec::new();
    for (number, waiting) in waiting.into_iter().enumerate() {
        wait_until("the next arrives", async || {
            actor.requests() == number as u64 + 1
        })
        .await;
        actor.seen.go.notify_one();
        order.push(waiting.await.unwrap());
    }
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!(actor.connections(), 1);
}

/// More idle connections than the first queue of a pool holds.
#[tokio::test]
async fn many_idle_connections_are_reused() {
    let actor = Actor::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_connections = 40;
    let client = client(&[actor.address], options);
    let mut service = client.service("orders").unwrap();
    for round in 1..=2 {
        let calls = (0..40).map(|_| {
            let call = service.call(request(Method::GET, "/wait"));
            tokio::spawn(async move { call.await.unwrap().into_body().collect().await.unwrap() })
        });
        let calls: Vec<_> = calls.collect();
        wait_until("all arrive", async || actor.requests() == 40 * round).await;
        for call in calls {
            wait_until("the call ends", async || {
                actor.seen.go.notify_one();
                call.is_finished()
            })
            .await;
            call.await.unwrap();
        }
    }
    assert_eq!(actor.connections(), 40);
}

#[tokio::test]
async fn max_pending_requests_rejects_and_counts_as_dropped() {
    let actor = Actor::start().await;
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_connections = 1;
    options.circuit_breakers.max_pending_requests = 1;
    let client = client(&[actor.address], options);
    let mut service = client.service("orders").unwrap();
    get(&mut service, "/").await.unwrap();
    let first = tokio::spawn(service.call(request(Method::GET, "/wait")));
    wait_until("it arrives", async || actor.requests() == 2).await;
    let second = tokio::spawn(service.call(request(Method::GET, "/")));
    // On a single thread, this runs the second call until it waits.
    tokio::task::yield_now().await;
    let third = service.call(request(Method::GET, "/")).await.unwrap_err();
    assert_eq!(third.kind(), ErrorKind::Overflow);
    assert_eq!(
        third.to_string(),
        "circuit breaker max_pending_requests of cluster orders is open: 1 of 1; \
         raise it with Cluster::max_pending_requests"
    );
    assert_eq!(third.address(), Some(actor.address));
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
    wait_until("it arrives", async || actor.requests() == 1).await;
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
async fn connections_close_after_max_requests_per_connection() {
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
async fn idle_and_aged_connections_are_closed() {
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
        wait_until("it is closed", async || actor.open() == 0).await;
        get(&mut service, "/").await.unwrap();
        assert_eq!(actor.connections(), 2);
    }
}

#[tokio::test]
async fn preconnect_dials_hosts_before_the_first_request() {
    let actors = [Actor::start().await, Actor::start().await];
    let addresses = [actors[0].address, actors[1].address];
    let client = Client::builder()
        .cluster(assigned(
            round_robin("orders"),
            endpoints("orders", &[("a", &addresses)]),
            UpstreamOptions::default(),
        ))
        .preconnect(true)
        .build()
        .unwrap();
    for actor in &actors {
        wait_until("it is dialed", async || actor.connections() == 1).await;
    }
    let mut service = client.service("orders").unwrap();
    wait_until("connections are used", async || {
        get(&mut service, "/").await.unwrap();
        actors.iter().all(|actor| actor.requests() > 0)
    })
    .await;
    assert!(actors.iter().all(|actor| actor.connections() == 1));
}

#[tokio::test]
async fn a_host_in_backoff_is_skipped_without_a_retry() {
    let alive = Actor::start().await;
    let dead = refused_address();
    for options in [UpstreamOptions::default(), http2()] {
        let client = client(&[dead, alive.address], options);
        let mut service = client.service("orders").unwrap();
        for _ in 0..2 {
            get(&mut service, "/").await.unwrap();
        }
        let once = RequestOptions::new().retry(RetryPolicy::new().num_retries(0));
        let mut service = client.service("orders").unwrap().with_defaults(once);
        for _ in 0..6 {
            get(&mut service, "/").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_host_in_backoff_is_used_if_there_is_no_other() {
    let socket = bound_socket();
    let address = socket.local_addr().unwrap();
    let client = client(&[address], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    for _ in 0..2 {
        let call = service.call(request(Method::GET, "/"));
        assert_eq!(call.await.unwrap_err().kind(), ErrorKind::Connect);
    }
    let actor = Actor::start_on(socket.listen(16).unwrap());
    get(&mut service, "/").await.unwrap();
    assert_eq!(actor.requests(), 1);
}

#[tokio::test]
async fn connections_to_an_unhealthy_host_are_closed_if_configured() {
    for mut options in [UpstreamOptions::default(), http2()] {
        let actor = Actor::start().await;
        options.close_connections_on_host_health_failure = true;
        let client = client(&[actor.address], options);
        let mut service = client.service("orders").unwrap();
        let hanging = tokio::spawn(service.call(request(Method::GET, "/hang")));
        wait_until("it arrives", async || actor.requests() == 1).await;
        client
            .update_health("orders", actor.address, HealthSignal::OutlierEjected)
            .await
            .unwrap();
        let error = hanging.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transport);
        wait_until("it is closed", async || actor.open() == 0).await;
    }
}

#[tokio::test]
async fn connections_of_other_hosts_and_without_the_setting_stay() {
    for (closes, signal) in [
        (false, HealthSignal::ActiveCheckFailed),
        (true, HealthSignal::ActiveCheckPassed),
        (true, HealthSignal::ActiveCheckDegraded),
    ] {
        let actor = Actor::start().await;
        let options = UpstreamOptions {
            close_connections_on_host_health_failure: closes,
            ..UpstreamOptions::default()
        };
        let client = client(&[actor.address], options);
        let mut service = client.service("orders").unwrap();
        get(&mut service, "/").await.unwrap();
        let updated = client.update_health("orders", actor.address, signal).await;
        updated.unwrap();
        client.explain("orders").await.unwrap();
        // The only host serves even if it is unhealthy.
        get(&mut service, "/").await.unwrap();
        let counts = (actor.requests(), actor.connections(), actor.open());
        assert_eq!(counts, (2, 1, 1), "{signal:?}");
    }
}

#[tokio::test]
async fn closed_idle_connections_fail_no_request() {
    for options in [UpstreamOptions::default(), http2()] {
        let actor = Actor::start().await;
        let client = client(&[actor.address], options);
        let mut service = client.service("orders").unwrap();
        for _ in 0..5 {
            get(&mut service, "/").await.unwrap();
            actor.kill_connections();
            wait_until("it is closed", async || actor.open() == 0).await;
            // The client notices when it next polls the socket.
            tokio::task::yield_now().await;
        }
        let stats = client.drain_load_stats(false).await.unwrap();
        let stats = &stats[0].localities[0].stats;
        let counts = (stats.total_issued_requests, stats.total_successful_requests);
        assert_eq!(counts, (5, 5));
    }
}

#[tokio::test]
async fn additional_addresses_of_a_host_are_dialed() {
    let actor = Actor::start().await;
    let dead = refused_address();
    let client = client(&[dead], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    assert!(get(&mut service, "/").await.is_err());
    let extras = plimsoll_client::EndpointExtras {
        additional_addresses: vec![actor.address],
        ..Default::default()
    };
    let endpoints = with_extras("orders", [(dead, extras)]);
    client.update_endpoints(endpoints).await.unwrap();
    get(&mut service, "/").await.unwrap();
    assert_eq!(actor.requests(), 1);
}

#[tokio::test]
async fn additional_addresses_in_a_file_are_dialed() {
    let alive = Actor::start().await;
    let dead = refused_address();
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
    let client = Client::builder().cluster(cluster).build().unwrap();
    let mut service = client.service("orders").unwrap();
    get(&mut service, "/").await.unwrap();
    assert_eq!(alive.requests(), 1);
}

#[tokio::test]
async fn a_host_that_moves_to_another_zone_keeps_its_connections() {
    let (actor, other) = (Actor::start().await, Actor::start().await);
    let client = client(&[actor.address], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    get(&mut service, "/").await.unwrap();
    for zones in [
        [("b", &[actor.address][..]), ("c", &[][..])],
        [("b", &[actor.address, other.address]), ("c", &[])],
        [("b", &[other.address]), ("c", &[actor.address])],
    ] {
        client
            .update_endpoints(endpoints("orders", &zones))
            .await
            .unwrap();
        for _ in 0..4 {
            get(&mut service, "/").await.unwrap();
        }
    }
    assert!(actor.requests() >= 5);
    assert_eq!((actor.connections(), other.connections()), (1, 1));
}

#[tokio::test]
async fn only_hosts_with_changed_connection_settings_are_redialed() {
    let actors = [Actor::start().await, Actor::start().await];
    let addresses = [actors[0].address, actors[1].address];
    let client = client(&addresses, UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    let mut expect = async |connections: [u64; 2]| {
        for _ in 0..4 {
            get(&mut service, "/").await.unwrap();
        }
        assert_eq!(actors.each_ref().map(Actor::connections), connections);
    };
    expect([1, 1]).await;
    let checked_as = plimsoll_client::EndpointExtras {
        health_check_hostname: "checks".into(),
        ..Default::default()
    };
    let reached_at = plimsoll_client::EndpointExtras {
        additional_addresses: vec![refused_address()],
        ..Default::default()
    };
    let other = plimsoll_client::EndpointExtras::default();
    for (first, connections) in [(checked_as, [1, 1]), (reached_at, [2, 1])] {
        let extras = [(addresses[0], first), (addresses[1], other.clone())];
        let endpoints = with_extras("orders", extras);
        client.update_endpoints(endpoints).await.unwrap();
        expect(connections).await;
    }
    // Changed connection settings: all hosts are redialed.
    let config = round_robin("orders");
    client
        .set_cluster(Cluster::from(config).options(http2()))
        .await
        .unwrap();
    expect([3, 2]).await;
    let status = client.cluster_statuses().await.unwrap();
    let total = |address| {
        let mut hosts = status[0].hosts.iter();
        let host = hosts.find(|host| host.host.address() == address);
        host.map(|host| host.connections.total)
    };
    assert_eq!(addresses.map(total), [Some(3), Some(2)], "counts go on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_succeed_while_hosts_change() {
    let actors = [Actor::start().await, Actor::start().await];
    let addresses = [actors[0].address, actors[1].address];
    let client = client(&addresses, UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    let requests = tokio::spawn(async move {
        for _ in 0..500 {
            get(&mut service, "/").await.unwrap();
        }
    });
    let shapes = [&addresses[..1], &addresses[1..], &addresses[..]];
    for shape in shapes.iter().cycle() {
        if requests.is_finished() {
            break;
        }
        let endpoints = endpoints("orders", &[("a", *shape)]);
        client.update_endpoints(endpoints).await.unwrap();
    }
    requests.await.unwrap();
}
