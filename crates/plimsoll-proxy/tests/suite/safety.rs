//! Attacks and protocol violations of HTTP/1.1 clients. HTTP/2 is in `safety_http2.rs`.

use std::sync::atomic::Ordering;

use crate::support::backend::Backend;
use crate::support::client::{self, Raw};
use crate::support::{Proxy, config_with, route_all_to, wait_until};

async fn proxy(manager: &str, backend: &Backend) -> Proxy {
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    Proxy::start(&config_with(manager, &route_all_to("a"), clusters)).await
}

/// Checks that other requests are still served.
async fn still_serves(proxy: &Proxy) {
    assert_eq!(client::get(proxy.address(), "/other").await.status, 200);
}

#[tokio::test]
async fn malformed_and_ambiguous_requests_are_rejected_and_the_connection_closed() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &backend).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n";
    for (what, request) in [
        (
            "two lengths",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        ),
        (
            "a list of lengths",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1, 2\r\n\r\nab",
        ),
        (
            "a signed length",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: +1\r\n\r\na",
        ),
        (
            "a huge length",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999999999999999\r\n\r\na",
        ),
        (
            "an unknown coding",
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: xchunked\r\n\r\n",
        ),
        (
            "a coding before chunked",
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "codings on two lines",
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: identity\r\n\
             transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "chunked before the end",
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked, gzip\r\n\r\n",
        ),
        (
            "chunks in HTTP/1.0",
            "POST / HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a space before the colon",
            "GET / HTTP/1.1\r\nhost : h\r\n\r\n",
        ),
        (
            "a folded line",
            "GET / HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n",
        ),
        (
            "a zero byte",
            "GET / HTTP/1.1\r\nhost: h\r\nx: a\0b\r\n\r\n",
        ),
        (
            "a bare carriage return",
            "GET / HTTP/1.1\r\nhost: h\r\nx: a\rx-injected: 1\r\n\r\n",
        ),
        (
            "a space in the name",
            "GET / HTTP/1.1\r\nhost: h\r\nx y: 1\r\n\r\n",
        ),
        ("no host", "GET / HTTP/1.1\r\n\r\n"),
        ("two hosts", "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"),
        (
            "a host with pipes",
            "GET / HTTP/1.1\r\nhost: outbound|33000||svc.ns\r\n\r\n",
        ),
        (
            "a host with a backslash",
            "GET / HTTP/1.1\r\nhost: a\\b\r\n\r\n",
        ),
        (
            "a host with quotes",
            "GET / HTTP/1.1\r\nhost: \"a\"\r\n\r\n",
        ),
        ("a host with a path", "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n"),
        (
            "a space in the target",
            "GET /a b HTTP/1.1\r\nhost: h\r\n\r\n",
        ),
        ("a fragment", "GET /a#b HTTP/1.1\r\nhost: h\r\n\r\n"),
        ("an authority", "GET h:80 HTTP/1.1\r\nhost: h\r\n\r\n"),
        ("an asterisk", "GET * HTTP/1.1\r\nhost: h\r\n\r\n"),
        (
            "letters as port",
            "GET http://h:x/ HTTP/1.1\r\nhost: h\r\n\r\n",
        ),
        (
            "an invalid chunk size",
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
        ),
        ("no HTTP", "hello\r\n\r\n"),
        ("another version", "GET / HTTP/3.0\r\nhost: h\r\n\r\n"),
    ] {
        let mut raw = Raw::connect(proxy.address()).await;
        raw.send(format!("{request}{smuggled}")).await;
        let text = raw.rest().await;
        let coding = ["a coding before chunked", "codings on two lines"].contains(&what);
        let expected = format!("HTTP/1.1 {} ", if coding { 501 } else { 400 });
        assert!(text.starts_with(&expected), "{what}: {text:?}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "{what}: {text:?}");
    }
    assert_eq!(backend.count(), 0, "no request reaches the backend");
    still_serves(&proxy).await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn content_length_with_transfer_encoding_is_rejected_and_the_connection_closed() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &backend).await;
    for headers in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: CHUNKED\r\nx: y\r\ncontent-length: 0\r\n",
    ] {
        // As the first request of a connection, and after another one.
        for before in [0, 1] {
            let mut raw = Raw::connect(proxy.address()).await;
            for _ in 0..before {
                raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
                assert_eq!(raw.response().await.status, 200);
            }
            let seen = backend.count();
            let smuggled = "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n";
            raw.send(format!(
                "POST / HTTP/1.1\r\nhost: h\r\n{headers}\r\n0\r\n\r\n{smuggled}"
            ))
            .await;
            let text = raw.rest().await;
            assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
            assert!(!text.contains("HTTP/1.1 200"), "{text}");
            assert_eq!(backend.count(), seen, "{headers}");
        }
    }
    // `transfer-encoding` alone is accepted.
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
        .await;
    assert_eq!(raw.response().await.status, 200);
    still_serves(&proxy).await;
    proxy.shut_down().await;
}

/// Pipelined requests are not scanned for both headers; hyper handles them.
#[tokio::test]
async fn transfer_encoding_wins_in_pipelined_requests() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &backend).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send(
        "GET / HTTP/1.1\r\nhost: h\r\n\r\nPOST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\
         transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
    )
    .await;
    let text = raw.rest().await;
    assert!(
        !text.contains("/smuggled") && !text.contains("content-length: 4"),
        "{text}"
    );
    assert!(backend.count() <= 2);
    still_serves(&proxy).await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn invalid_chunks_abort_the_request() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &backend).await;
    for chunks in [
        "zz\r\nabc\r\n0\r\n\r\n",
        "-1\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3;\nabc\r\n0\r\n\r\n",
    ] {
        let mut raw = Raw::connect(proxy.address()).await;
        raw.send(format!(
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{chunks}\
             GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"
        ))
        .await;
        let text = raw.rest().await;
        assert!(!text.starts_with("HTTP/1.1 200"), "{chunks:?}: {text}");
        assert!(!text.contains("/smuggled"), "{chunks:?}: {text}");
    }
    still_serves(&proxy).await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn header_size_and_count_are_limited() {
    let backend = Backend::echo("a").await;
    let manager =
        "max_request_headers_kb: 8\ncommon_http_protocol_options: {max_headers_count: 20}";
    let proxy = proxy(manager, &backend).await;
    let large = format!(
        "GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n",
        "a".repeat(9 << 10)
    );
    let many: String = (0..30).map(|n| format!("x-{n}: 1\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nhost: h\r\n{many}\r\n");
    for request in [large, many] {
        let response = client::send(proxy.address(), &request).await;
        assert_eq!(response.status, 431, "{response:?}");
    }
    let fits = format!(
        "GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n",
        "a".repeat(7 << 10)
    );
    assert_eq!(client::send(proxy.address(), &fits).await.status, 200);
    assert_eq!(backend.count(), 1);
    proxy.shut_down().await;
}

#[tokio::test]
async fn slow_headers_time_out() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("request_headers_timeout: 0.3s", &backend).await;
    let mut slow = Raw::connect(proxy.address()).await;
    slow.send("GET / HTTP/1.1\r\nhost: h\r\nx: ").await;
    let mut idle = Raw::connect(proxy.address()).await;
    let reply = slow.rest().await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    assert!(reply.ends_with("connection: close\r\n\r\n"), "{reply}");
    // A new connection without any bytes has not started a header.
    idle.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(idle.response().await.status, 200);
    // Neither has a reused one, until the first byte of the next request.
    idle.send("GET / HT").await;
    assert!(idle.rest().await.starts_with("HTTP/1.1 408 "));
    still_serves(&proxy).await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let backend = Backend::echo("a").await;
    let proxy = proxy(
        "common_http_protocol_options: {idle_timeout: 0.2s}",
        &backend,
    )
    .await;
    let mut silent = Raw::connect(proxy.address()).await;
    let mut served = Raw::connect(proxy.address()).await;
    served.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(served.response().await.status, 200);
    assert_eq!(silent.rest().await, "");
    assert_eq!(served.rest().await, "");
    proxy.shut_down().await;
}

#[tokio::test]
async fn request_body_size_is_limited() {
    let backend = Backend::echo("a").await;
    let filters = "http_filters:\n\
        - typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.\
        Buffer, max_request_bytes: 10}\n\
        - typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.\
        Router}";
    let proxy = proxy(filters, &backend).await;
    let declared = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 11\r\n\r\nhello world";
    assert_eq!(client::send(proxy.address(), declared).await.status, 413);
    assert_eq!(backend.count(), 0);
    let chunked = "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n\
                  b\r\nhello world\r\n0\r\n\r\n";
    assert_eq!(client::send(proxy.address(), chunked).await.status, 413);
    let fits = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nhello worl";
    assert_eq!(client::send(proxy.address(), fits).await.status, 200);
    proxy.shut_down().await;
}

#[tokio::test]
async fn connections_are_limited() {
    let backend = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let limit = "overload_manager: {resource_monitors: [{name: cx, typed_config: {'@type': \
                 type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.\
                 DownstreamConnectionsConfig, max_active_downstream_connections: 2}}]}\n";
    let config = format!(
        "{limit}{}",
        crate::support::config(&route_all_to("a"), clusters)
    );
    let proxy = Proxy::start(&config).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut raw = Raw::connect(proxy.address()).await;
        raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(raw.response().await.status, 200);
        kept.push(raw);
    }
    let mut third = Raw::connect(proxy.address()).await;
    assert_eq!(third.rest().await, "", "rejected by the connection limit");
    drop(kept.pop());
    wait_until("connections are accepted again", || async {
        let mut raw = Raw::connect(proxy.address()).await;
        let _ = tokio::io::AsyncWriteExt::write_all(
            &mut raw.0,
            b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        )
        .await;
        raw.rest().await.starts_with("HTTP/1.1 200")
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_disconnected_client_cancels_the_upstream_request() {
    let (dropped, mut canceled) = tokio::sync::mpsc::unbounded_channel::<()>();
    let backend = Backend::start(move |_| {
        let dropped = dropped.clone();
        async move {
            // Dropped when the request is canceled.
            let _guard = NotifyOnDrop(dropped);
            std::future::pending::<()>().await;
            crate::support::backend::reply(200, "")
        }
    })
    .await;
    let proxy = proxy("", &backend).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    wait_until("the request has arrived", || async {
        backend.requests.load(Ordering::SeqCst) == 1
    })
    .await;
    drop(raw);
    let canceled = tokio::time::timeout(crate::support::TIMEOUT, canceled.recv()).await;
    assert!(canceled.is_ok(), "the upstream request is canceled");
    proxy.shut_down().await;
}

struct NotifyOnDrop(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Others see the requests behind such trailers, so that one which vanishes here would shift all
/// responses of a connection that a proxy in front shares.
#[tokio::test]
async fn a_bare_lf_in_trailers_is_refused() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &backend).await;
    let before = "GET /zero HTTP/1.1\r\nhost: h\r\n\r\n";
    let attack = "POST /one HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n\
                  0\r\nX: y\n\r\nGET /two HTTP/1.1\r\nhost: h\r\n\r\n\
                  GET /three HTTP/1.1\r\nhost: h\r\n\r\n";
    for pipelined in ["", before] {
        let mut raw = Raw::connect(proxy.address()).await;
        raw.send(format!("{pipelined}{attack}")).await;
        let responses = raw.rest().await;
        let expected = if pipelined.is_empty() { 1 } else { 2 };
        assert_eq!(
            responses.matches("HTTP/1.1 ").count(),
            expected,
            "{responses}"
        );
        assert_eq!(responses.matches("HTTP/1.1 400").count(), 1, "{responses}");
    }
    // Without anything behind it that hyper could find wrong.
    let mut raw = Raw::connect(proxy.address()).await;
    let head = &attack[..attack.find("0\r\n").unwrap()];
    raw.send(format!("{head}0\r\n\n")).await;
    let responses = raw.rest().await;
    assert!(responses.starts_with("HTTP/1.1 400"), "{responses}");
    // In pieces, so that the trailers come while the body is read.
    let mut raw = Raw::connect(proxy.address()).await;
    let end = attack.find("0\r\n").unwrap();
    let seen = backend.count();
    raw.send(&attack[..end]).await;
    wait_until("the request is forwarded", || async {
        backend.count() > seen
    })
    .await;
    raw.send(&attack[end..]).await;
    let responses = raw.rest().await;
    assert!(responses.starts_with("HTTP/1.1 400"), "{responses}");
    assert_eq!(responses.matches("HTTP/1.1 ").count(), 1, "{responses}");
    still_serves(&proxy).await;
    proxy.shut_down().await;
}

/// It would wait for more trailers until the next timeout.
#[tokio::test]
async fn a_bare_lf_in_trailers_of_a_response_ends_it() {
    let backend = crate::support::backend::raw(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\n\r\n",
    )
    .await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend], "")];
    let proxy = Proxy::start(&config_with("", &route_all_to("a"), clusters)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let response = raw.rest().await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(!response.contains("\r\n0\r\n"), "not complete: {response}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_response_that_cannot_be_parsed_is_a_protocol_error_of_the_upstream() {
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        "FTP/1.1 200 OK\r\n\r\n",
    ] {
        let backend = crate::support::backend::raw(response).await;
        let clusters: &[(&str, &[_], &str)] = &[("a", &[backend], "")];
        let proxy = Proxy::start(&config_with("", &route_all_to("a"), clusters)).await;
        let reply = client::get(proxy.address(), "/").await;
        assert_eq!(reply.status, 502, "{response}");
        assert!(
            reply.body.ends_with("reset reason: protocol error"),
            "{}",
            reply.body
        );
        proxy.shut_down().await;
    }
}

#[tokio::test]
async fn connections_of_one_address_are_limited() {
    let backend = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let limit = "overload_manager: {resource_monitors: [{name: cx, typed_config: {'@type': \
                 type.googleapis.com/plimsoll.resource_monitors.v1.ConnectionsPerAddressConfig, \
                 max_active_downstream_connections: 1}}]}\n";
    let config = format!(
        "{limit}{}",
        crate::support::config(&route_all_to("a"), clusters)
    );
    let proxy = Proxy::start(&config).await;
    let mut first = Raw::connect(proxy.address()).await;
    first.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(first.response().await.status, 200);
    let mut second = Raw::connect(proxy.address()).await;
    assert_eq!(second.rest().await, "", "rejected by the limit");
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Raw(socket.connect(proxy.address()).await.unwrap());
    other.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(other.response().await.status, 200, "another address");
    proxy.shut_down().await;
}

/// Many servers merge trailers into headers.
#[tokio::test]
async fn trailers_cannot_pose_as_headers_of_the_proxy() {
    let backend = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let manager = "headers_with_underscores_action: DROP_HEADER\n";
    let routes = route_all_to("a");
    let manager = format!("common_http_protocol_options: {{{}}}\n", manager.trim_end());
    let proxy = Proxy::start(&config_with(&manager, &routes, clusters)).await;
    let names = [
        "x-forwarded-client-cert",
        "x-forwarded-for",
        "x-envoy-internal",
        "connection",
        "host",
        "x_forwarded_for",
        "x-sum",
    ];
    let fields: String = names
        .iter()
        .map(|name| format!("{name}: forged\r\n"))
        .collect();
    let reply = client::send(
        proxy.address(),
        &format!(
            "POST / HTTP/1.1\r\nhost: h\r\nte: trailers\r\ntrailer: {}\r\n\
             transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n{fields}\r\n",
            names.join(", ")
        ),
    )
    .await;
    let trailers = reply
        .body
        .lines()
        .filter(|line| line.starts_with("trailer "));
    assert_eq!(trailers.collect::<Vec<_>>(), ["trailer x-sum: forged"]);
    proxy.shut_down().await;
}
