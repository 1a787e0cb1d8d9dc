//! Futures of requests that a program holds without polling them, as `select!` and streams do: no
//! other request to the host may depend on them.

#[cfg(feature = "tonic")]
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::Method;
use http_body_util::BodyExt as _;
#[cfg(feature = "tonic")]
use plimsoll_client::Channel;
use plimsoll_client::{Client, ErrorKind, RequestOptions, RetryPolicy, UpstreamOptions};
use plimsoll_testing::tasks::wait_until;
use tower_service::Service as _;

use crate::support::actor::{Actor, get, request};
#[cfg(feature = "tonic")]
use crate::support::held_time::HeldTime;
use crate::support::silent::Silent;
use crate::support::{assigned, endpoints, http2, round_robin, within};

fn client(address: SocketAddr, options: UpstreamOptions) -> Client {
    let assignment = endpoints("orders", &[("a", &[address])]);
    Client::builder()
        .cluster(assigned(round_robin("orders"), assignment, options))
        .build()
        .unwrap()
}

/// HTTP/1.1 with one connection.
fn one_connection() -> UpstreamOptions {
    let mut options = UpstreamOptions::default();
    options.circuit_breakers.max_connections = 1;
    options
}

fn without_retries() -> RequestOptions {
    RequestOptions::new().retry(RetryPolicy::new().num_retries(0))
}

#[tokio::test]
async fn a_held_call_that_dials_blocks_no_other_call() {
    for options in [http2(), one_connection()] {
        let actor = Actor::start().await;
        let client = client(actor.address, options);
        let mut service = client.service("orders").unwrap();
        let mut held = service.call(request(Method::GET, "/"));
        assert!((&mut held).now_or_never().is_none(), "it dials");
        for _ in 0..3 {
            within(get(&mut service, "/")).await.unwrap();
        }
        assert_eq!((actor.requests(), actor.connections()), (3, 1));
        // The call goes on when it is polled again.
        assert_eq!(within(held).await.unwrap().status(), 200);
        assert_eq!(actor.connections(), 1);
    }
}

/// With retries, too: the same request does not dial a silent host again.
#[tokio::test]
async fn calls_fail_with_the_dial_that_a_held_call_has_started() {
    let silent = Silent::never_accepting();
    for (mut options, retry) in [
        (http2(), without_retries()),
        (http2(), RequestOptions::default()),
        (one_connection(), without_retries()),
        (one_connection(), RequestOptions::default()),
    ] {
        options.connect_timeout = Duration::from_millis(200);
        let client = client(silent.address, options);
        let service = client.service("orders").unwrap();
        let mut service = service.with_defaults(retry);
        let mut held = service.call(request(Method::GET, "/"));
        assert!((&mut held).now_or_never().is_none(), "it dials");
        for _ in 0..2 {
            let call = service.call(request(Method::GET, "/"));
            let error = within(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Connect);
            let text = format!("{error:#}");
            assert!(
                text.ends_with(": connect timeout of 200ms elapsed"),
                "{text}"
            );
        }
        let error = within(held).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
    }
}

/// However many calls wait for the one permit, and whatever server name they have: the k-th does
/// not dial for k times as long.
#[tokio::test]
async fn calls_that_wait_for_one_permit_fail_with_one_dial() {
    let silent = Silent::never_accepting();
    let mut one_http2 = http2();
    one_http2.circuit_breakers.max_connections = 1;
    for mut options in [one_http2, one_connection()] {
        options.connect_timeout = Duration::from_millis(400);
        let client = client(silent.address, options);
        let service = client.service("orders").unwrap();
        let mut service = service.with_defaults(without_retries());
        let calls = (0..4).map(|_| service.call(request(Method::GET, "/")));
        for error in within(futures_util::future::join_all(calls)).await {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Connect);
        }
        let dialed = client.stats().get("orders", "upstream_cx_total");
        assert_eq!(dialed, Some(1));
    }
}

/// A gRPC call that dials and is not polled for 30 s. Calls to a host that answers get their
/// response while no time passes; calls to a silent host fail within `connect_timeout`.
#[cfg(feature = "tonic")]
#[tokio::test(start_paused = true)]
async fn grpc_calls_pass_a_call_by_that_is_held_for_30_s() {
    let (silent, actor) = (Silent::never_accepting(), Actor::start().await);
    let _time = HeldTime::start();
    for address in [actor.address, silent.address] {
        let timeout = http2().connect_timeout;
        let client = client(address, http2());
        let mut channel = Channel::from(client.service("orders").unwrap());
        let mut held = Box::pin(channel.call(request(Method::POST, "/grpc")));
        assert!((&mut held).now_or_never().is_none(), "it dials");
        let mut running: VecDeque<(tokio::time::Instant, _)> = VecDeque::new();
        for second in 0..30_u32 {
            let started = tokio::time::Instant::now();
            let call = tokio::spawn(channel.call(request(Method::POST, "/grpc")));
            if address == actor.address {
                assert_eq!(within(call).await.unwrap().unwrap().status(), 200);
            } else {
                running.push_back((started, call));
            }
            // The dial starts before time passes.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            // Timers have a resolution of one millisecond.
            tokio::time::advance(Duration::from_millis(1001)).await;
            while running
                .front()
                .is_some_and(|(started, _)| started.elapsed() >= timeout)
            {
                let (started, call) = running.pop_front().unwrap();
                let status = within(call).await.unwrap().unwrap_err();
                assert_eq!(status.code(), tonic::Code::Unavailable);
                let waited = started.elapsed();
                assert!(
                    waited <= timeout + Duration::from_millis(10),
                    "{waited:?} at {second} s"
                );
            }
        }
        drop(held);
    }
}

#[tokio::test]
async fn a_free_connection_passes_held_calls_by() {
    let actor = Actor::start().await;
    let client = client(actor.address, one_connection());
    let mut service = client.service("orders").unwrap();
    let mut first = tokio::spawn(service.call(request(Method::GET, "/wait")));
    wait_until("it arrives", async || actor.requests() == 1).await;
    let mut held: Vec<_> = (0..2)
        .map(|_| service.call(request(Method::GET, "/")))
        .collect();
    for call in &mut held {
        assert!(call.now_or_never().is_none(), "it waits");
    }
    let last = tokio::spawn(service.call(request(Method::GET, "/")));
    tokio::task::yield_now().await;
    actor.seen.go.notify_one();
    let response = within(&mut first).await.unwrap().unwrap();
    response.into_body().collect().await.unwrap();
    let response = within(last).await.unwrap().unwrap();
    response.into_body().collect().await.unwrap();
    for call in held {
        let response = within(call).await.unwrap();
        response.into_body().collect().await.unwrap();
    }
    assert_eq!((actor.requests(), actor.connections()), (4, 1));
}

/// A connection that closes leaves its permit to a call that may be held, too.
#[tokio::test]
async fn a_released_permit_passes_held_calls_by() {
    let actor = Actor::start().await;
    let client = client(actor.address, one_connection());
    let mut service = client.service("orders").unwrap();
    let first = tokio::spawn(service.call(request(Method::GET, "/hang")));
    wait_until("it arrives", async || actor.requests() == 1).await;
    let mut held = service.call(request(Method::GET, "/"));
    assert!((&mut held).now_or_never().is_none(), "it waits");
    let last = tokio::spawn(service.call(request(Method::GET, "/")));
    tokio::task::yield_now().await;
    actor.kill_connections();
    assert!(within(first).await.unwrap().is_err());
    let response = within(last).await.unwrap().unwrap();
    response.into_body().collect().await.unwrap();
    assert_eq!(within(held).await.unwrap().status(), 200);
}

/// The pool is shared by runtimes, and one of them is not running.
#[tokio::test]
async fn a_dial_of_a_stopped_runtime_delays_others_by_one_connect_timeout() {
    let mut one_http2 = http2();
    one_http2.circuit_breakers.max_connections = 1;
    for options in [http2(), one_http2, one_connection()] {
        others_are_delayed_by_one_connect_timeout(options).await;
    }
}

async fn others_are_delayed_by_one_connect_timeout(mut options: UpstreamOptions) {
    let actor = Actor::start().await;
    // In real time, because two runtimes have no clock in common that a test could hold. Long
    // enough for a dial on a busy machine, which takes less than a millisecond of CPU.
    options.connect_timeout = Duration::from_secs(2);
    let client = client(actor.address, options);
    let mut service = client.service("orders").unwrap();
    let mut held = service.call(request(Method::GET, "/"));
    let stopped = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let dials = runtime.block_on(async { (&mut held).now_or_never().is_none() });
        (runtime, held, dials)
    });
    let (runtime, held, dials) = stopped.join().unwrap();
    assert!(dials);
    for _ in 0..2 {
        within(get(&mut service, "/")).await.unwrap();
    }
    drop(held);
    runtime.shutdown_background();
}
