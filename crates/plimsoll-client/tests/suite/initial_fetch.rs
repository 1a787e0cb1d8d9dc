//! A management server that is absent at the start, or does not answer: nothing hangs, requests get
//! the fallback cluster or an error with the state of the server.
#![cfg(all(feature = "tonic", feature = "xds"))]

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::actor::Actor;
use crate::support::held_time::HeldTime;
use crate::support::management::{Management, xds_options};
use crate::support::resources::{assignment, cluster, listener, routes, whole};
use crate::support::silent::Silent;
use crate::support::{Backend, assigned, endpoints, get, refused_address, round_robin, within};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use plimsoll_client::{
    Channel, Client, ClientBuilder, Error, ErrorKind, RequestOptions, ResponseBody, Side,
    UpstreamOptions, Variant, XdsOptions,
};
use plimsoll_testing::tasks::{wait_for, wait_until};
use plimsoll_xds::yaml::parse_upstream_cluster;
use tokio::task::JoinSet;
use tonic::Code;
use tower_layer::Layer as _;
use tower_service::Service as _;

const TARGET: &str = "xds:///orders";
const SHORT: Duration = Duration::from_millis(200);

fn builder(server: SocketAddr) -> ClientBuilder {
    Client::builder()
        .xds(xds_options(server, Variant::Sotw))
        .initial_fetch_timeout(SHORT)
}

/// A cluster of the program whose endpoints come from the management server.
fn eds(name: &str) -> ClientBuilder {
    let text =
        format!("{{name: {name}, type: EDS, eds_cluster_config: {{eds_config: {{ads: {{}}}}}}}}");
    Client::builder().cluster(parse_upstream_cluster(&text).unwrap())
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    let request = Request::post(format!("http://orders{path}"));
    request.body(Empty::new()).unwrap()
}

/// Asserts that the error names the missing routes and the server with its state.
fn assert_no_routes(error: &Error, server: SocketAddr, state: &str) {
    let text = format!("{error:#}");
    let start = format!(
        "listener \"orders\": no routes within 200ms; management server http://{server} ({state}"
    );
    assert!(text.starts_with(&start), "{text}\n{start}");
    assert_eq!(error.side(), Side::ManagementServer);
    assert!(error.is_unsent());
}

#[tokio::test]
async fn every_silent_server_is_an_error_that_names_it() {
    for (server, state) in [
        (
            Silent::refusing(),
            "disconnected: tcp connect error: Connection refused",
        ),
        (Silent::never_accepting(), "connecting"),
        (
            Silent::never_answering().await,
            "connected, no resources received",
        ),
    ] {
        let mut options = xds_options(server.address, Variant::Delta);
        options = options.connect_timeout(Duration::from_secs(600));
        let client = builder(server.address).xds(options).build().unwrap();
        let mut target = client.target_lazy(TARGET).unwrap();
        wait_until("the state is known", async || {
            let known = format!("{:?}", client.xds_status().unwrap().state);
            known.to_lowercase().starts_with(&state[..9])
        })
        .await;
        let error = within(get(&mut target, "/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Discovery);
        assert_no_routes(&error, server.address, state);
        // The time for the initial fetch has passed: no request waits any longer.
        let error = within(get(&mut target, "/")).await.unwrap_err();
        assert_no_routes(&error, server.address, state);
        let error = within(client.target(TARGET)).await.unwrap_err();
        assert_no_routes(&error, server.address, state);

        let mut channel = Channel::from(target);
        let status = within(channel.call(request("/"))).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), format!("{error:#}"));
        let error = within(client.ready()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("listener \"orders\": "), "{text}");
        assert!(text.contains(&server.address.to_string()), "{text}");
    }
}

#[tokio::test]
async fn endpoints_that_never_come_are_an_error_of_services_and_layers() {
    let server = refused_address();
    let client = eds("orders")
        .xds(xds_options(server, Variant::Sotw))
        .initial_fetch_timeout(SHORT)
        .build()
        .unwrap();
    let assert_no_endpoints = |error: &Error| {
        let text = error.to_string();
        let start = format!(
            "cluster orders: no endpoints within 200ms; management server http://{server} (disc"
        );
        assert!(text.starts_with(&start), "{text}");
        assert_eq!(error.kind(), ErrorKind::Discovery);
        assert_eq!(error.side(), Side::ManagementServer);
        assert_eq!(error.cluster(), Some("orders"));
    };
    let mut service = client.service("orders").unwrap();
    assert_no_endpoints(&within(get(&mut service, "/")).await.unwrap_err());
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut balanced = client.layer("orders").unwrap().layer(http);
    assert_no_endpoints(&within(balanced.call(request("/"))).await.unwrap_err());
    let mut channel = Channel::from(service);
    let status = within(channel.call(request("/"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("no endpoints within 200ms"),
        "{status}"
    );
    let error = within(client.ready()).await.unwrap_err();
    assert!(
        error.to_string().contains("cluster orders: no endpoints"),
        "{error}"
    );
}

#[tokio::test]
async fn without_a_server_the_error_says_how_to_set_one() {
    let client = Client::builder()
        .initial_fetch_timeout(SHORT)
        .build()
        .unwrap();
    let text = "{name: orders, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}";
    let orders = parse_upstream_cluster(text).unwrap();
    client.set_cluster(orders).await.unwrap();
    let mut service = client.service("orders").unwrap();
    let error = within(get(&mut service, "/")).await.unwrap_err();
    assert!(error.to_string().contains("ClientBuilder::xds"), "{error}");
    let error = client.target_lazy(TARGET).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let unknown = Client::builder().fallback_cluster("static").build();
    let error = unknown.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no cluster \"static\" was added"),
        "{error}"
    );
}

#[tokio::test]
async fn the_timeout_of_a_request_ends_its_wait() {
    let server = Silent::never_answering().await;
    let options = RequestOptions::new().timeout(Duration::from_millis(50));
    let client = builder(server.address)
        .initial_fetch_timeout(Duration::ZERO)
        .build()
        .unwrap();
    let mut target = client.target_lazy(TARGET).unwrap();
    let mut timed = request("/");
    timed.extensions_mut().insert(options.clone());
    let error = within(target.call(timed)).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(error.side(), Side::ManagementServer);
    let text = format!(
        "no routes within 50ms; management server http://{}",
        server.address
    );
    assert!(error.to_string().contains(&text), "{error}");

    let mut timed = request("/");
    let value = "50m".parse().unwrap();
    timed.headers_mut().insert("grpc-timeout", value);
    let status = within(Channel::from(target).call(timed)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);

    let client = eds("orders")
        .xds(xds_options(server.address, Variant::Sotw))
        .initial_fetch_timeout(Duration::ZERO)
        .build()
        .unwrap();
    let mut service = client.service("orders").unwrap().with_defaults(options);
    let error = within(get(&mut service, "/")).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(error.side(), Side::ManagementServer);
    let text = "cluster orders: no response within 50ms; no endpoints yet; management server";
    assert!(error.to_string().starts_with(text), "{error}");
}

#[tokio::test]
async fn the_fallback_cluster_serves_until_the_server_answers() {
    let (local, remote) = (Backend::start().await, Backend::start().await);
    let resources = whole("orders", &[("a", &[remote.address])]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut server = Management::start(&resources);
        server.kill();
        let client = Client::builder()
            .xds(xds_options(server.address, variant))
            .cluster(assigned(
                round_robin("static"),
                endpoints("static", &[("a", &[local.address])]),
                UpstreamOptions::default(),
            ))
            .initial_fetch_timeout(SHORT)
            .fallback_cluster("static")
            .build()
            .unwrap();
        let mut target = within(client.target(TARGET)).await.unwrap();
        let sent_to = async |target: &mut _| within(get(target, "/")).await.unwrap().1;
        assert_eq!(sent_to(&mut target).await, local.address.to_string());
        let mut channel = Channel::from(target.clone());
        let response = within(channel.call(request("/"))).await.unwrap();
        response.into_body().collect().await.unwrap();
        server.restart();
        wait_until("the routes take over", async || {
            sent_to(&mut target).await == remote.address.to_string()
        })
        .await;
        within(client.ready()).await.unwrap();
    }
}

#[tokio::test]
async fn the_fallback_cluster_serves_clusters_without_endpoints() {
    let (local, remote) = (Backend::start().await, Backend::start().await);
    let mut resources = whole("orders", &[("a", &[remote.address])]);
    let endpoints_made = resources.pop().unwrap();
    let server = Management::start(&resources);
    let client = builder(server.address)
        .cluster(assigned(
            round_robin("static"),
            endpoints("static", &[("a", &[local.address])]),
            UpstreamOptions::default(),
        ))
        .fallback_cluster("static")
        .build()
        .unwrap();
    let mut target = client.target_lazy(TARGET).unwrap();
    let (_, host) = within(get(&mut target, "/")).await.unwrap();
    assert_eq!(host, local.address.to_string());
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let layer = wait_for("the cluster", async || client.layer("orders").ok()).await;
    let mut balanced = layer.layer(http);
    let response = within(balanced.call(request("/"))).await.unwrap();
    assert_eq!(response.into_body().host(), local.address);
    resources.push(endpoints_made);
    server.set(&resources);
    wait_until("the endpoints take over", async || {
        get(&mut target, "/").await.unwrap().1 == remote.address.to_string()
    })
    .await;
    // Requests to the fallback cluster have all ended.
    let stats = client.drain_load_stats(false).await.unwrap();
    let zones = stats.iter().flat_map(|stats| &stats.localities);
    let in_flight = zones.map(|zone| zone.stats.total_requests_in_progress);
    assert_eq!(in_flight.sum::<u64>(), 0);
}

#[tokio::test]
async fn resources_without_endpoints_are_named() {
    let without_eds = [
        listener("orders", "r"),
        routes("r", "orders"),
        cluster("orders", "lb_policy: ROUND_ROBIN"),
    ];
    for variant in [Variant::Sotw, Variant::Delta] {
        let server = Management::start(&without_eds);
        let options = xds_options(server.address, variant);
        let client = builder(server.address).xds(options).build().unwrap();
        let mut target = client.target_lazy(TARGET).unwrap();
        let start = format!(
            "cluster orders: no endpoints within 200ms; management server http://{} (connected)",
            server.address
        );
        // On a slow machine, the routes too may arrive after the time for the initial fetch.
        wait_until("the endpoints are missing", async || {
            let error = get(&mut target, "/").await.unwrap_err();
            error.to_string() == start
        })
        .await;
        let error = within(client.ready()).await.unwrap_err();
        assert!(error.to_string().contains("cluster orders: "), "{error}");
        // Endpoints that arrive late are used.
        let backend = Backend::start().await;
        let mut all = without_eds.to_vec();
        all.push(assignment("orders", &[("a", &[backend.address])]));
        server.set(&all);
        wait_until("the endpoints are used", async || {
            get(&mut target, "/").await.is_ok()
        })
        .await;
        within(client.ready()).await.unwrap();
    }
}

#[tokio::test]
async fn a_late_answer_serves_the_requests_that_wait() {
    let backend = Backend::start().await;
    let mut server = Management::start(&whole("orders", &[("a", &[backend.address])]));
    server.kill();
    let client = builder(server.address)
        .initial_fetch_timeout(Duration::ZERO)
        .build()
        .unwrap();
    let target = client.target_lazy(TARGET).unwrap();
    let (mut one, mut channel) = (target.clone(), Channel::from(target));
    let waiting = tokio::spawn(async move { get(&mut one, "/").await });
    let called = tokio::spawn(channel.call(request("/")));
    let ready = tokio::spawn({
        let client = client.clone();
        async move { client.ready().await }
    });
    wait_until("the outage is known", async || {
        let state = client.xds_status().unwrap().state;
        matches!(state, plimsoll_client::XdsState::Disconnected { .. })
    })
    .await;
    assert!(!waiting.is_finished() && !called.is_finished() && !ready.is_finished());
    server.restart();
    assert_eq!(within(waiting).await.unwrap().unwrap().0, 200);
    assert_eq!(within(called).await.unwrap().unwrap().status(), 200);
    within(ready).await.unwrap().unwrap();
}

/// Requests per second, and how late the control plane is.
const RATE: u32 = 240;
const LATE: u32 = 8;

/// The calls that waited are more than `max_requests`, by default 1,024, allows at once.
#[tokio::test(start_paused = true)]
async fn a_control_plane_that_comes_late_loses_no_call() {
    let backend = Backend::start().await;
    let mut server = Management::start(&whole("orders", &[("a", &[backend.address])]));
    server.kill();
    let time = HeldTime::start();
    let client = Client::builder()
        .xds(xds_options(server.address, Variant::Sotw))
        .build()
        .unwrap();
    let mut target = client.target_lazy(TARGET).unwrap();
    let mut start = || {
        let mut call = request("/");
        let options = RequestOptions::new().timeout(Duration::from_secs(12));
        call.extensions_mut().insert(options);
        tokio::spawn(read(target.call(call)))
    };
    let tick = || tokio::time::advance(Duration::from_secs(1) / RATE);
    let mut calls = Vec::new();
    for _ in 0..RATE * LATE {
        calls.push(start());
        tick().await;
    }
    assert_eq!(backend.seen(), 0);
    server.restart();
    pass_back_off().await;
    let has_hosts = || {
        let snapshot = client.snapshot("orders");
        snapshot.is_some_and(|snapshot| snapshot.hosts().count() > 0)
    };
    time.until("endpoints arrive", has_hosts).await;
    for _ in 0..RATE {
        calls.push(start());
        tick().await;
    }
    let sent = calls.len() as u64;
    for call in calls {
        within(call).await.unwrap();
    }
    assert_eq!(backend.seen(), sent);
    let stats = client.stats();
    let overflow = stats.get("orders", "upstream_rq_pending_overflow");
    assert_eq!(overflow, Some(0));
    assert_eq!(stats.get("orders", "upstream_rq_active"), Some(0));
}

/// As above, with hosts that take their time: calls that waited hold all of `max_requests`, while
/// others still wait and new ones come. None of them is beyond what the limit and the deadline
/// allow.
#[tokio::test(start_paused = true)]
async fn a_late_control_plane_and_slow_hosts_lose_no_call() {
    const LIMIT: u64 = 1024;
    /// Responses for each call that starts, so that the calls that waited get theirs, too.
    const SERVED: u64 = 4;
    let actor = Actor::start().await;
    let mut server = Management::start(&[assignment("orders", &[("a", &[actor.address])])]);
    server.kill();
    let time = HeldTime::start();
    let text = "{name: orders, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}, \
                http2_protocol_options: {}}";
    let client = Client::builder()
        .cluster(parse_upstream_cluster(text).unwrap())
        .xds(xds_options(server.address, Variant::Sotw))
        .build()
        .unwrap();
    let service = client.service("orders").unwrap();
    let options = RequestOptions::new().timeout(Duration::from_secs(12));
    let mut service = service.with_defaults(options);
    let mut start = || tokio::spawn(read(service.call(request("/wait"))));
    let tick = || tokio::time::advance(Duration::from_secs(1) / RATE);
    let mut calls = Vec::new();
    for _ in 0..RATE * LATE {
        calls.push(start());
        tick().await;
    }
    server.restart();
    pass_back_off().await;
    let stat = |name| client.stats().get("orders", name).unwrap();
    let active = || stat("upstream_rq_active");
    time.until("calls that waited fill the limit", || active() == LIMIT)
        .await;
    // No time passes while a host has a call to answer, or the answer is on its way.
    let good = || actor.seen.good.load(Ordering::Relaxed);
    let mut served = 0;
    for _ in 0..3 * RATE {
        calls.push(start());
        for _ in 0..SERVED.min(calls.len() as u64 - served) {
            time.until("a host has a call", || actor.requests() > good())
                .await;
            actor.seen.go.notify_one();
            served += 1;
            time.until("it answers", || good() == served).await;
        }
        assert!(active() <= LIMIT);
        tick().await;
    }
    assert_eq!(served, calls.len() as u64);
    for call in calls {
        within(call).await.unwrap();
    }
    assert_eq!((actor.requests(), active()), (served, 0));
    assert_eq!(stat("upstream_rq_pending_overflow"), 0);
    let stats = client.drain_load_stats(false).await.unwrap();
    assert_eq!(stats[0].total_dropped_requests, 0);
}

/// Lets the back-off of the discovery stream pass, several times: it may begin only after the first
/// step, when the last dial to the server that was away has failed.
async fn pass_back_off() {
    for _ in 0..10 {
        tokio::time::advance(Duration::from_millis(60)).await;
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
}

async fn read(call: impl Future<Output = Result<Response<ResponseBody>, Error>>) {
    let response = call.await.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.unwrap();
}

/// A cluster that waits for its endpoints, with up to `max_requests` at a time.
async fn limited_cluster(builder: ClientBuilder, max_requests: u32) -> Client {
    let client = builder.build().unwrap();
    let limit = format!("{{thresholds: [{{max_requests: {max_requests}}}]}}");
    let eds = "type: EDS, eds_cluster_config: {eds_config: {ads: {}}}";
    let text = format!("{{name: orders, {eds}, circuit_breakers: {limit}}}");
    let orders = parse_upstream_cluster(&text).unwrap();
    client.set_cluster(orders).await.unwrap();
    client
}

#[tokio::test]
async fn calls_that_waited_for_discovery_are_released_as_others_end() {
    const LIMIT: u64 = 64;
    let actor = Actor::start().await;
    let client = limited_cluster(Client::builder(), 64).await;
    let mut service = client.service("orders").unwrap();
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let mut balanced = client.layer("orders").unwrap().layer(http);
    let mut waiting: Vec<_> = (0..1_000)
        .flat_map(|_| [service.call(request("/")), balanced.call(request("/"))])
        .collect();
    for call in &mut waiting {
        assert!(call.now_or_never().is_none(), "it waits");
    }
    // One that is held from now on, without being polled.
    let held = waiting.swap_remove(0);
    let assignment = endpoints("orders", &[("a", &[actor.address])]);
    client.update_endpoints(assignment).await.unwrap();
    let active = || client.stats().get("orders", "upstream_rq_active").unwrap();
    let mut running: JoinSet<()> = waiting.into_iter().map(read).collect();
    let mut most = 0;
    while let Some(ended) = running.join_next().await {
        most = active().max(most);
        ended.unwrap();
    }
    assert!(most <= LIMIT, "{most}");
    assert!(most > 1);
    assert_eq!(within(held).await.unwrap().status(), 200);
    assert_eq!(actor.requests(), 2_000);
    let stats = client.drain_load_stats(false).await.unwrap();
    assert_eq!(stats[0].total_dropped_requests, 0);
}

#[tokio::test]
async fn named_clusters_are_part_of_readiness() {
    let backend = Backend::start().await;
    let server = Management::start(&whole("orders", &[("a", &[backend.address])]));
    let with = |names: &[&str], all: bool| {
        let options: XdsOptions = xds_options(server.address, Variant::Sotw)
            .clusters(names.iter().copied())
            .all_clusters(all);
        let builder = Client::builder().xds(options);
        builder
            .initial_fetch_timeout(Duration::ZERO)
            .build()
            .unwrap()
    };
    let client = with(&["orders"], false);
    within(client.ready()).await.unwrap();
    get(&mut client.service("orders").unwrap(), "/")
        .await
        .unwrap();
    let client = with(&[], true);
    within(client.ready()).await.unwrap();
    get(&mut client.service("orders").unwrap(), "/")
        .await
        .unwrap();
    let client = with(&["orders", "order"], false);
    let error = within(client.ready()).await.unwrap_err();
    assert!(error.to_string().contains("cluster order: "), "{error}");
    assert!(!error.to_string().contains("cluster orders: "), "{error}");
}

#[tokio::test]
async fn dropped_requests_leak_nothing() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let server = Silent::never_answering().await;
    let before = metrics.num_alive_tasks();
    let client = eds("users")
        .xds(xds_options(server.address, Variant::Sotw))
        .initial_fetch_timeout(Duration::ZERO)
        .build()
        .unwrap();
    let target = client.target_lazy(TARGET).unwrap();
    for _ in 0..50 {
        let (mut target, mut users) = (target.clone(), client.service("users").unwrap());
        let mut channel = Channel::from(target.clone());
        tokio::select! {
            biased;
            _ = get(&mut target, "/") => panic!("answered"),
            _ = get(&mut users, "/") => panic!("answered"),
            _ = channel.call(request("/")) => panic!("answered"),
            _ = client.ready() => panic!("ready"),
            _ = client.target(TARGET) => panic!("routed"),
            () = tokio::task::yield_now() => {}
        }
    }
    let stats = client.stats();
    let active = stats.iter().find(|stat| stat.name == "upstream_rq_active");
    assert_eq!(active.map(|stat| stat.value), Some(0));
    drop((client, target));
    wait_until("all tasks end", async || {
        metrics.num_alive_tasks() <= before
    })
    .await;
}

/// Runs itself in a child process, because the bootstrap is an environment variable.
#[tokio::test]
async fn channel_lazy_returns_at_once_and_its_calls_fail_with_the_reason() {
    const VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";
    if std::env::var_os(VARIABLE).is_none() {
        let server = refused_address();
        let bootstrap = format!(
            r#"{{"xds_servers": [{{"server_uri": "{server}", "channel_creds": [{{"type":
            "insecure"}}]}}], "node": {{"id": "n"}}}}"#
        );
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "initial_fetch::channel_lazy_returns_at_once_and_its_calls_fail_with_the_reason";
        child.args(["--exact", name]).env(VARIABLE, bootstrap);
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
        return;
    }
    let mut channel = plimsoll_client::channel_lazy(TARGET).unwrap();
    let mut timed = request("/");
    let timeout = "50m".parse().unwrap();
    timed.headers_mut().insert("grpc-timeout", timeout);
    let status = within(channel.call(timed)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(
        status
            .message()
            .contains("management server http://127.0.0.1:"),
        "{status}"
    );
}
