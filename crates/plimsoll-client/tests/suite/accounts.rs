//! Request counts match what backends received, however requests end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::actor::{Actor, get, request};
use crate::support::{client, endpoints, http2};
use bytes::Bytes;
use http::{Method, Request};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper_util::rt::TokioIo;
use plimsoll_client::{Client, ClusterService, ErrorKind, RequestBody, UpstreamOptions};
use plimsoll_testing::tasks::wait_until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_stream::wrappers::ReceiverStream;
use tower_service::Service as _;

/// Issued, succeeded, failed, in progress, dropped.
type Counts = (u64, u64, u64, u64, u64);

async fn drain(client: &Client) -> Counts {
    let clusters = client.drain_load_stats(false).await.unwrap();
    let mut sum = Counts::default();
    for cluster in clusters {
        sum.4 += cluster.total_dropped_requests;
        for locality in cluster.localities {
            sum.0 += locality.stats.total_issued_requests;
            sum.1 += locality.stats.total_successful_requests;
            sum.2 += locality.stats.total_error_requests;
            sum.3 += locality.stats.total_requests_in_progress;
        }
    }
    sum
}

fn both() -> [UpstreamOptions; 2] {
    [UpstreamOptions::default(), http2()]
}

#[tokio::test]
async fn responses_without_a_body_end_at_once_and_reuse_their_connection() {
    for options in both() {
        let actor = Actor::start().await;
        let client = client(&[&actor], options);
        let mut service = client.service("orders").unwrap();
        for (method, path) in [
            (Method::HEAD, "/200"),
            (Method::GET, "/204"),
            (Method::GET, "/304"),
            (Method::HEAD, "/503"),
        ] {
            let response = service.call(request(method, path)).await.unwrap();
            // The empty body is not read.
            drop(response);
        }
        assert_eq!(drain(&client).await, (4, 3, 1, 0, 0));
        assert_eq!((actor.requests(), actor.connections()), (4, 1));
    }
}

#[tokio::test]
async fn grpc_requests_end_with_their_trailers() {
    let actor = Actor::start().await;
    let client = client(&[&actor], http2());
    let mut service = client.service("orders").unwrap();
    for (status, only) in [("0", false), ("13", false), ("0", true), ("5", true)] {
        let mut request = request(Method::POST, "/grpc");
        let headers = request.headers_mut();
        headers.insert("want", status.parse().unwrap());
        if only {
            headers.insert("trailers-only", "yes".parse().unwrap());
        }
        let response = service.call(request).await.unwrap();
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(drain(&client).await, (4, 2, 2, 0, 0));
}

async fn say(service: &mut ClusterService, header: &str, value: &str) {
    let mut request = request(Method::GET, "/say");
    let name: http::HeaderName = format!("say-{header}").parse().unwrap();
    request.headers_mut().insert(name, value.parse().unwrap());
    let response = service.call(request).await.unwrap();
    response.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn grpc_web_is_counted_by_its_http_status() {
    let actor = Actor::start().await;
    let client = client(&[&actor], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    // gRPC-Web has its trailers in the body, so a missing grpc-status is not an error.
    say(&mut service, "content-type", "application/grpc-web+proto").await;
    assert_eq!(drain(&client).await, (1, 1, 0, 0, 0));
    say(&mut service, "content-type", "application/grpc+proto").await;
    assert_eq!(drain(&client).await, (1, 0, 1, 0, 0));
}

#[tokio::test]
async fn malformed_load_reports_are_counted() {
    let actor = Actor::start().await;
    let client = client(&[&actor], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    let broken = || {
        let stats = client.stats();
        let found = stats.iter().find(|stat| stat.name == "orca_report_errors");
        found.unwrap().value
    };
    for (report, expected) in [
        ("TEXT cpu_utilization=0.5", 0),
        ("TEXT cpu_utilization=much", 1),
        ("JSON {", 2),
    ] {
        say(&mut service, "endpoint-load-metrics", report).await;
        assert_eq!(broken(), expected, "{report}");
    }
    say(&mut service, "endpoint-load-metrics-bin", "no base64!").await;
    assert_eq!(broken(), 3);
}

#[tokio::test]
async fn an_upgraded_request_lasts_until_its_tunnel_closes() {
    let actor = Actor::start().await;
    let client = client(&[&actor], UpstreamOptions::default());
    let mut service = client.service("orders").unwrap();
    let mut upgrade = request(Method::GET, "/upgrade");
    let headers = upgrade.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "echo".parse().unwrap());
    let response = service.call(upgrade).await.unwrap();
    assert_eq!(response.status(), 101);
    let upgraded = hyper::upgrade::on(response).await.unwrap();
    let mut stream = TokioIo::new(upgraded);
    stream.write_all(b"hello").await.unwrap();
    let mut said = [0; 5];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hello");
    assert_eq!(drain(&client).await, (1, 0, 0, 1, 0));
    // Other requests open their own connection.
    get(&mut service, "/").await.unwrap();
    assert_eq!(actor.connections(), 2);
    drop(stream);
    assert_eq!(drain(&client).await, (1, 2, 0, 0, 0));
}

#[tokio::test]
async fn a_response_may_precede_the_end_of_the_request() {
    for options in both() {
        let actor = Actor::start().await;
        let client = client(&[&actor], options);
        let mut service = client.service("orders").unwrap();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let body = StreamBody::new(ReceiverStream::new(receiver));
        let early = Request::post("http://backend/early")
            .body(RequestBody::new(body))
            .unwrap();
        let response = service.call(early).await.unwrap();
        let read = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(read, "early");
        assert_eq!(drain(&client).await, (1, 1, 0, 0, 0));
        // Sending the rest of the request body is harmless.
        let frame = Frame::data(Bytes::from_static(b"late"));
        let _ = sender.send(Ok::<_, std::io::Error>(frame)).await;
        drop(sender);
        assert_eq!(get(&mut service, "/").await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn an_unread_body_does_not_block_other_requests() {
    for options in both() {
        let version = options.http_version;
        let actor = Actor::start().await;
        let client = client(&[&actor], options);
        let mut service = client.service("orders").unwrap();
        let response = service
            .call(request(Method::GET, "/endless"))
            .await
            .unwrap();
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(drain(&client).await, (1, 0, 0, 1, 0));
        drop(body);
        assert_eq!(drain(&client).await, (0, 1, 0, 0, 0));
        assert_eq!(get(&mut service, "/").await.unwrap().0, 200);
        let connections = match version {
            plimsoll_client::HttpVersion::Http1 => 2,
            plimsoll_client::HttpVersion::Http2 => 1,
        };
        assert_eq!(actor.connections(), connections);
        wait_until("unused connections close", async || actor.open() == 1).await;
    }
}

#[tokio::test]
async fn requests_are_normalized_for_their_http_version() {
    let actor = Actor::start().await;
    let cases = [
        (
            "/form",
            None,
            "HTTP/1.1 /form orders",
            "HTTP/2.0 http://orders/form -",
        ),
        (
            "/form",
            Some("h"),
            "HTTP/1.1 /form h",
            "HTTP/2.0 http://h/form -",
        ),
        (
            "http://x:1/form",
            None,
            "HTTP/1.1 /form x:1",
            "HTTP/2.0 http://x:1/form -",
        ),
    ];
    for (uri, host, http1, http2_form) in cases {
        for (options, expected) in both().into_iter().zip([http1, http2_form]) {
            let client = client(&[&actor], options);
            let mut service = client.service("orders").unwrap();
            let mut request = Request::get(uri);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            let request = request.body(http_body_util::Empty::<Bytes>::new()).unwrap();
            let response = service.call(request).await.unwrap();
            let read = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(read, expected);
        }
    }
}

#[tokio::test]
async fn canceled_requests_count_as_errors_unless_they_were_never_sent() {
    for options in both() {
        let actor = Actor::start().await;
        let client = client(&[&actor], options);
        let mut service = client.service("orders").unwrap();
        let hanging = tokio::spawn(service.call(request(Method::GET, "/hang")));
        wait_until("it arrives", async || actor.requests() == 1).await;
        hanging.abort();
        assert!(hanging.await.unwrap_err().is_cancelled());
        assert_eq!(drain(&client).await, (1, 0, 1, 0, 0));
        assert_eq!(get(&mut service, "/").await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn http2_streams_that_a_server_has_not_processed_were_never_issued() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        while connection.accept().await.is_some() {}
    });
    let client = client(&[address], http2());
    let mut service = client.service("orders").unwrap();
    let error = service.call(request(Method::GET, "/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.is_unsent());
    assert_eq!(drain(&client).await, (0, 0, 0, 0, 0));
    server.abort();
}

/// Paths that respond with different outcomes; `/close` closes the connection without a response.
const PATHS: [&str; 6] = ["/", "/404", "/503", "/echo", "/close", "/204"];

async fn many(mut service: ClusterService, count: usize, lost: Arc<AtomicU64>) {
    for index in 0..count {
        if get(&mut service, PATHS[index % PATHS.len()]).await.is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_match_the_backends_while_hosts_change() {
    for options in both() {
        let actors = [
            Actor::start().await,
            Actor::start().await,
            Actor::start().await,
        ];
        let all: Vec<_> = actors.iter().map(|actor| actor.address).collect();
        let client = client(&actors.iter().collect::<Vec<_>>(), options);
        let lost = Arc::new(AtomicU64::new(0));
        let service = client.service("orders").unwrap();
        let callers: Vec<_> = (0..8)
            .map(|_| tokio::spawn(many(service.clone(), 60, Arc::clone(&lost))))
            .collect();
        let mut sum = Counts::default();
        for round in 0..40 {
            let removed = round % 3;
            let some: Vec<_> = (0..3)
                .filter(|index| *index != removed)
                .map(|i| all[i])
                .collect();
            let assignment = endpoints("orders", &[("a", &some)]);
            client.update_endpoints(assignment).await.unwrap();
            let part = drain(&client).await;
            sum = (
                sum.0 + part.0,
                sum.1 + part.1,
                sum.2 + part.2,
                part.3,
                sum.4 + part.4,
            );
            tokio::task::yield_now().await;
        }
        for caller in callers {
            caller.await.unwrap();
        }
        let part = drain(&client).await;
        sum = (
            sum.0 + part.0,
            sum.1 + part.1,
            sum.2 + part.2,
            part.3,
            sum.4 + part.4,
        );
        let requests: u64 = actors.iter().map(Actor::requests).sum();
        let good = |actor: &Actor| actor.seen.good.load(Ordering::Relaxed);
        let good: u64 = actors.iter().map(good).sum();
        assert_eq!(sum, (requests, good, requests - good, 0, 0));
        assert_eq!(requests, 8 * 60);
        assert_eq!(lost.load(Ordering::Relaxed), 8 * 10);
    }
}
