//! Requests through a proxy: protocols, headers, routes, failures.

use crate::support::backend::{Backend, reply};
use crate::support::client::{self, Raw, send_http2};
use crate::support::{HTTP2, Proxy, config, config_with, route_all_to, wait_until};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};

fn empty(uri: &str) -> Request<client::ClientBody> {
    let body = http_body_util::Empty::new().boxed_unsync();
    Request::get(uri).body(body).unwrap()
}

#[tokio::test]
async fn http1_to_http1() {
    let backend = Backend::echo("a").await;
    let config = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&config).await;
    let mut raw = Raw::connect(proxy.address()).await;
    for round in 0..3 {
        raw.send(format!(
            "POST /p?round={round} HTTP/1.1\r\nhost: example\r\ncontent-length: 5\r\n\
             connection: x-secret\r\nx-secret: 1\r\nx-kept: 2\r\n\r\nhello"
        ))
        .await;
        let response = raw.response().await;
        assert_eq!(response.status, 200);
        assert!(
            response
                .body
                .contains(&format!("POST /p?round={round} HTTP/1.1\n")),
            "{response:?}"
        );
        assert!(response.body.contains("host: example\n"), "{response:?}");
        assert!(response.body.contains("x-kept: 2\n") && !response.body.contains("x-secret"));
        assert!(
            response.body.contains("x-forwarded-proto: http\n"),
            "{response:?}"
        );
        assert!(response.body.contains("x-request-id: "), "{response:?}");
        assert!(response.body.ends_with("\nhello"), "{response:?}");
    }
    assert_eq!(backend.count(), 3);
    proxy.shut_down().await;
}

/// For hosts that report their load only when asked.
#[tokio::test]
async fn requests_ask_for_load_reports_if_their_cluster_says_so() {
    let backend = Backend::echo("a").await;
    let routes = "- match: {prefix: /asks}\n  route: {cluster: asks}\n\
                  - match: {prefix: /}\n  route: {cluster: plain}\n";
    let hosts = [backend.address];
    let asks = "plimsoll: {endpoint_load_metrics_format: JSON}\n";
    let config = config(routes, &[("asks", &hosts, asks), ("plain", &hosts, "")]);
    let proxy = Proxy::start(&config).await;
    let header = "endpoint-load-metrics-format: ";
    let plain = client::get(proxy.address(), "/plain").await;
    assert!(!plain.body.contains(header), "{plain:?}");
    let asked = client::get(proxy.address(), "/asks").await;
    assert!(asked.body.contains(&format!("{header}JSON\n")), "{asked:?}");
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send(format!(
        "GET /asks HTTP/1.1\r\nhost: a\r\n{header}BIN\r\n\r\n"
    ))
    .await;
    let kept = raw.response().await;
    assert!(kept.body.contains(&format!("{header}BIN\n")), "{kept:?}");
    assert!(!kept.body.contains("JSON"), "{kept:?}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn every_protocol_to_every_protocol() {
    let backend = Backend::echo("a").await;
    let routes = "- match: {prefix: /1}\n  route: {cluster: one}\n\
                  - match: {prefix: /2}\n  route: {cluster: two}\n";
    let hosts = [backend.address];
    let config = config(routes, &[("one", &hosts, ""), ("two", &hosts, HTTP2)]);
    let proxy = Proxy::start(&config).await;
    let mut http2 = client::http2(proxy.address()).await;
    for (path, version) in [("/1/x", "HTTP/1.1"), ("/2/x", "HTTP/2.0")] {
        let response = client::get(proxy.address(), path).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert!(response.body.contains(version), "{response:?}");
        // TLS may have ended in front of this proxy, so hosts without TLS get both schemes.
        for scheme in ["http", "https"] {
            let uri = format!("{scheme}://host.test{path}");
            let response = send_http2(&mut http2, empty(&uri)).await;
            assert_eq!(response.head.status(), 200, "{response:?}");
            assert!(
                response.body.contains(version) && response.body.contains("host.test"),
                "{response:?}"
            );
        }
    }
    proxy.shut_down().await;
}

/// Responds with two data frames and trailers, after reading the request.
async fn with_trailers(
    request: Request<hyper::body::Incoming>,
) -> Response<crate::support::backend::AnyBody> {
    let collected = request.into_body().collect().await.unwrap();
    let seen = collected
        .trailers()
        .and_then(|trailers| trailers.get("x-sum").cloned());
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.insert("x-seen", seen.unwrap_or(HeaderValue::from_static("none")));
    let frames = [
        Frame::data(Bytes::from_static(b"one ")),
        Frame::data(Bytes::from_static(b"two")),
        Frame::trailers(trailers),
    ]
    .map(Ok::<_, std::convert::Infallible>);
    let body = StreamBody::new(crate::support::frames(frames)).boxed_unsync();
    Response::builder()
        .header("trailer", "grpc-status, x-seen")
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap()
}

#[tokio::test]
async fn trailers_are_forwarded_both_ways_over_http2() {
    let backend = Backend::start(with_trailers).await;
    let config = config(&route_all_to("a"), &[("a", &[backend.address], HTTP2)]);
    let proxy = Proxy::start(&config).await;
    let mut http2 = client::http2(proxy.address()).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("42"));
    let frames = [
        Frame::data(Bytes::from_static(b"x")),
        Frame::trailers(trailers),
    ]
    .map(Ok::<_, std::convert::Infallible>);
    let request = Request::post("http://h/svc/Method")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(crate::support::frames(frames)).boxed_unsync())
        .unwrap();
    let response = send_http2(&mut http2, request).await;
    assert_eq!(response.body, "one two");
    assert_eq!(response.trailers["grpc-status"], "0");
    assert_eq!(response.trailers["x-seen"], "42");
    proxy.shut_down().await;
}

#[tokio::test]
async fn trailers_are_forwarded_both_ways_over_http1() {
    let backend = Backend::start(with_trailers).await;
    let config = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&config).await;
    let response = client::send(
        proxy.address(),
        "POST / HTTP/1.1\r\nhost: h\r\nte: trailers\r\ntrailer: x-sum\r\n\
         transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx-sum: 42\r\n\r\n",
    )
    .await;
    assert_eq!(response.status, 200);
    assert!(
        response.body.contains("one ") && response.body.contains("two"),
        "{response:?}"
    );
    assert!(response.body.contains("grpc-status: 0\r\n"), "{response:?}");
    assert!(response.body.contains("x-seen: 42\r\n"), "{response:?}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_get_request_can_have_a_body() {
    let backend = Backend::echo("a").await;
    let config = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&config).await;
    let get = "GET / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let response = client::send(proxy.address(), get).await;
    assert!(response.body.ends_with("\n\nx"), "{response:?}");
    assert!(response.body.contains("\ntransfer-encoding: chunked\n"));
    // A body of known length stays as it is, and a request without a body gets none.
    let get = "GET / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx";
    let response = client::send(proxy.address(), get).await;
    assert!(response.body.ends_with("\n\nx"), "{response:?}");
    assert!(response.body.contains("\ncontent-length: 1\n"));
    assert!(!response.body.contains("transfer-encoding"));
    let response = client::get(proxy.address(), "/").await;
    assert!(!response.body.contains("transfer-encoding"));
    proxy.shut_down().await;
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let backend = Backend::echo("a").await;
    let config = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&config).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
        .await;
    assert_eq!(raw.response().await.status, 100);
    raw.send("hi").await;
    let response = raw.response().await;
    assert!(
        response.body.ends_with("\nhi") && !response.body.contains("expect"),
        "{response:?}"
    );
    proxy.shut_down().await;
}

#[tokio::test]
async fn routes_rewrite_redirect_and_respond_directly() {
    let backend = Backend::echo("a").await;
    let routes = "\
- match: {prefix: /old/}
  redirect: {https_redirect: true, prefix_rewrite: /new/, response_code: FOUND}
- match: {path: /here}
  direct_response: {status: 202, body: {inline_string: accepted}}
  response_headers_to_add: [{header: {key: x-own, value: 'yes'}}]
- match: {prefix: /api, headers: [{name: ':method', exact_match: PUT}]}
  route: {cluster: a, prefix_rewrite: /v2, host_rewrite_literal: inner, \
append_x_forwarded_host: true}
  request_headers_to_add: [{header: {key: x-added, value: '1'}}]
  request_headers_to_remove: [x-gone]
";
    let proxy = Proxy::start(&config(routes, &[("a", &[backend.address], "")])).await;
    let response = client::get(proxy.address(), "/old/x?q").await;
    assert_eq!(response.status, 302);
    assert!(
        response.head.contains("location: https://test/new/x?q\r\n"),
        "{response:?}"
    );
    let response = client::get(proxy.address(), "/here").await;
    assert_eq!((response.status, response.body.as_str()), (202, "accepted"));
    assert!(response.head.contains("x-own: yes\r\n"), "{response:?}");
    let put = "PUT /api/x?q=1 HTTP/1.1\r\nhost: outer\r\nx-gone: 1\r\n\r\n";
    let response = client::send(proxy.address(), put).await;
    assert!(
        response.body.contains("PUT /v2/x?q=1 HTTP/1.1\n"),
        "{response:?}"
    );
    assert!(response.body.contains("host: inner\n"), "{response:?}");
    assert!(
        response.body.contains("x-forwarded-host: outer\n"),
        "{response:?}"
    );
    assert!(response.body.contains("x-added: 1\n") && !response.body.contains("x-gone"));
    assert_eq!(client::get(proxy.address(), "/api/x").await.status, 404);
    proxy.shut_down().await;
}

#[tokio::test]
async fn weighted_clusters_split_requests() {
    let (a, b) = (Backend::echo("a").await, Backend::echo("b").await);
    let routes = "- match: {prefix: /}\n  route: {weighted_clusters: {clusters: \
                  [{name: a, weight: 3}, {name: b, weight: 1}]}}\n";
    let config = config(routes, &[("a", &[a.address], ""), ("b", &[b.address], "")]);
    let proxy = Proxy::start(&config).await;
    let mut raw = Raw::connect(proxy.address()).await;
    for _ in 0..400 {
        raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(raw.response().await.status, 200);
    }
    assert_eq!(a.count() + b.count(), 400);
    // Bounds of more than ten standard deviations.
    assert!((200..395).contains(&a.count()), "{}", a.count());
    proxy.shut_down().await;
}

#[tokio::test]
async fn failures_have_the_same_status_as_in_envoy() {
    let slow = Backend::start(|_| async {
        std::future::pending::<()>().await;
        reply(200, "")
    })
    .await;
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let routes = "\
- match: {prefix: /slow}
  route: {cluster: slow, timeout: 0.05s}
- match: {prefix: /gone}
  route: {cluster: gone}
- match: {prefix: /empty}
  route: {cluster: empty}
- match: {prefix: /unknown}
  route: {cluster: missing}
";
    let clusters: &[(&str, &[_], &str)] = &[
        ("slow", &[slow.address], ""),
        ("gone", &[gone], ""),
        ("empty", &[], ""),
    ];
    let proxy = Proxy::start(&config(routes, clusters)).await;
    for (path, status, body) in [
        ("/slow", 504, "upstream request timeout"),
        ("/gone", 503, "upstream connect error"),
        ("/empty", 503, "no healthy upstream"),
        ("/unknown", 503, ""),
        ("/none", 404, ""),
    ] {
        let response = client::get(proxy.address(), path).await;
        assert_eq!(response.status, status, "{path}: {response:?}");
        assert!(response.body.starts_with(body), "{path}: {response:?}");
    }
    // gRPC clients get a gRPC status.
    let mut http2 = client::http2(proxy.address()).await;
    let request = Request::post("http://h/empty/Method")
        .header("content-type", "application/grpc")
        .body(Full::new(Bytes::new()).boxed_unsync())
        .unwrap();
    let response = send_http2(&mut http2, request).await;
    assert_eq!(response.head.status(), 200);
    assert_eq!(response.head.headers()["grpc-status"], "14");
    proxy.shut_down().await;
}

/// A backend that accepts every upgrade and echoes the bytes of the tunnel.
async fn tunnels() -> Backend {
    Backend::start(|mut request| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let (mut read, mut write) = tokio::io::split(&mut io);
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        let mut switched = reply(101, "");
        let headers = switched.headers_mut();
        headers.insert("connection", HeaderValue::from_static("upgrade"));
        headers.insert("upgrade", HeaderValue::from_static("websocket"));
        switched
    })
    .await
}

const OPEN_TUNNEL: &str =
    "GET /chat HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";

async fn assert_echo(raw: &mut Raw) {
    raw.send("ping").await;
    let mut echoed = [0; 4];
    tokio::io::AsyncReadExt::read_exact(&mut raw.0, &mut echoed)
        .await
        .unwrap();
    assert_eq!(&echoed, b"ping");
}

#[tokio::test]
async fn websocket_upgrades_are_tunneled() {
    let backend = tunnels().await;
    let upgrades = "upgrade_configs: [{upgrade_type: websocket}]";
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let proxy = Proxy::start(&config_with(upgrades, &route_all_to("a"), clusters)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send(OPEN_TUNNEL).await;
    let response = raw.response().await;
    assert_eq!(response.status, 101);
    assert!(
        response.head.contains("upgrade: websocket\r\n"),
        "{response:?}"
    );
    assert_echo(&mut raw).await;
    drop(raw);
    let other = "GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n";
    assert_eq!(client::send(proxy.address(), other).await.status, 403);
    proxy.shut_down().await;
}

/// The response to an upgrade cannot also announce that the connection closes.
#[tokio::test]
async fn tunnels_can_be_opened_while_the_proxy_drains() {
    let backend = tunnels().await;
    let upgrades = "upgrade_configs: [{upgrade_type: websocket}]";
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let proxy = Proxy::start(&config_with(upgrades, &route_all_to("a"), clusters)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    // Not idle, so that the drain waits for the rest of the headers.
    let (first, rest) = OPEN_TUNNEL.split_at(30);
    raw.send(first).await;
    wait_until("the bytes are read", || async {
        crate::support::counter(&proxy, "http.front.downstream_cx_http1_total").await == 1
    })
    .await;
    proxy.stop();
    wait_until("the proxy drains", || async {
        tokio::net::TcpStream::connect(proxy.address())
            .await
            .is_err()
    })
    .await;
    raw.send(rest).await;
    let response = raw.response().await;
    assert_eq!(response.status, 101);
    let upgraded = response.head.contains("connection: upgrade\r\n");
    assert!(upgraded && !response.head.contains("close"), "{response:?}");
    assert_echo(&mut raw).await;
    drop(raw);
    proxy.shut_down().await;
}

#[tokio::test]
async fn header_values_can_contain_operators() {
    let backend = Backend::start(|request| async move {
        let seen = |name: &str| {
            let value = request.headers().get(name);
            value
                .map_or("none", |value| value.to_str().unwrap())
                .to_owned()
        };
        let text = format!("{}|{}|{}", seen("x-from"), seen("x-asked"), seen("x-host"));
        reply(200, text)
    })
    .await;
    let routes = "- match: {prefix: /}
  name: all
  route: {cluster: a}
  request_headers_to_add:
  - header: {key: x-from, value: '%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %PROTOCOL%'}
  - header: {key: x-asked, value: '%REQ(:METHOD)% %REQ(:PATH)% %REQ(x-none?x-tag)%'}
  - header: {key: x-host, value: '%UPSTREAM_HOST%'}
  response_headers_to_add:
  - header: {key: x-served, value: '%UPSTREAM_HOST% %UPSTREAM_CLUSTER% %ROUTE_NAME%'}
  - header: {key: x-code, value: '%RESPONSE_CODE% %REQ(x-tag)%'}
";
    let proxy = Proxy::start(&config(routes, &[("a", &[backend.address], "")])).await;
    let request = "GET /p?q HTTP/1.1\r\nhost: h\r\nx-tag: t\r\nconnection: close\r\n\r\n";
    let response = client::send(proxy.address(), request).await;
    assert_eq!(response.body, "127.0.0.1 HTTP/1.1|GET /p?q t|none");
    let served = format!("x-served: {} a all", backend.address);
    assert!(response.head.contains(&served), "{}", response.head);
    assert!(response.head.contains("x-code: 200 t"), "{}", response.head);
    proxy.shut_down().await;
}
