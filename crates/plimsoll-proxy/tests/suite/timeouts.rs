//! Time limits of requests, also while flow control or the socket blocks them, and of tunnels.

use crate::support::backend::{Backend, reply};
use crate::support::client::{self, Raw};
use crate::support::{Proxy, TIMEOUT, config_with, counter, wait_until};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Routes with different limits to one cluster; `/other` has none and is fast.
const ROUTES: &str = "\
- match: {path: /other}
  direct_response: {status: 200}
- match: {prefix: /timeout}
  route: {cluster: a, timeout: 0.3s}
- match: {prefix: /idle}
  route: {cluster: a, timeout: 0s, idle_timeout: 0.3s}
- match: {prefix: /duration}
  route: {cluster: a, timeout: 0s, max_stream_duration: {max_stream_duration: 0.3s}}
- match: {prefix: /}
  route: {cluster: a, timeout: 0s}
";

/// Answers `big` paths with 64 MiB, more than sockets buffer, `trickle` with an endless body,
/// `echo` with the body of the request, and nothing else at all.
async fn backend() -> Backend {
    Backend::start(|request| async move {
        let path = request.uri().path().to_owned();
        if path.ends_with("big") {
            return reply(200, vec![b'x'; 64 << 20]);
        }
        if path.ends_with("trickle") {
            let frames =
                crate::support::frames([Ok(http_body::Frame::data(Bytes::from_static(b"a")))]);
            let endless = StreamBody::new(Endless(frames)).boxed_unsync();
            return http::Response::new(endless);
        }
        if path.ends_with("echo") {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            return reply(200, body);
        }
        std::future::pending().await
    })
    .await
}

/// A stream that stays open after its last item.
struct Endless<S>(S);

impl<S: futures_core::Stream + Unpin> futures_core::Stream for Endless<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        match std::pin::Pin::new(&mut self.0).poll_next(cx) {
            std::task::Poll::Ready(Some(item)) => std::task::Poll::Ready(Some(item)),
            _ => std::task::Poll::Pending,
        }
    }
}

async fn start(manager: &str, backend: &Backend) -> Proxy {
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    Proxy::start(&config_with(manager, ROUTES, clusters)).await
}

/// Opens an HTTP/2 connection whose streams have a window of `window` bytes.
async fn http2(proxy: &Proxy, window: u32) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://h{path}")).body(()).unwrap()
}

async fn active_requests(proxy: &Proxy, backend: &Backend) -> u64 {
    let page = client::get(proxy.admin(), "/clusters").await.body;
    let prefix = format!("a::{}::rq_active::", backend.address);
    let line = page.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap().parse().unwrap()
}

async fn upstream_is_free(proxy: &Proxy, backend: &Backend) {
    wait_until("no request is active upstream", || async {
        active_requests(proxy, backend).await == 0
    })
    .await;
}

/// Reads a response whose window is never opened: it must be reset. Others on the connection are
/// still served.
async fn blocked_stream_is_reset(proxy: &Proxy, path: &str) {
    let mut sender = http2(proxy, 0).await.ready().await.unwrap();
    // On a busy machine the limit may pass before the response begins: then it is a local reply.
    let mut body = loop {
        let (future, _) = sender.send_request(get(path), true).unwrap();
        let begun = tokio::time::timeout(TIMEOUT, future).await.unwrap();
        let response = begun.unwrap();
        if response.status() == 200 {
            break response.into_body();
        }
        sender = sender.ready().await.unwrap();
    };
    let frame = tokio::time::timeout(TIMEOUT, body.data()).await;
    let error = frame.expect("an end in time").unwrap().unwrap_err();
    assert!(error.is_reset(), "{error:?}");
    let mut sender = sender.ready().await.unwrap();
    let (response, _) = sender.send_request(get("/other"), true).unwrap();
    assert_eq!(
        response.await.unwrap().status(),
        200,
        "the connection lives"
    );
}

#[tokio::test]
async fn the_route_timeout_holds_while_flow_control_blocks() {
    let backend = backend().await;
    let proxy = start("", &backend).await;
    blocked_stream_is_reset(&proxy, "/timeout/big").await;
    upstream_is_free(&proxy, &backend).await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn idle_and_duration_limits_hold_while_flow_control_blocks() {
    let backend = backend().await;
    let proxy = start("", &backend).await;
    blocked_stream_is_reset(&proxy, "/idle/big").await;
    blocked_stream_is_reset(&proxy, "/duration/big").await;
    upstream_is_free(&proxy, &backend).await;
    for name in ["rq_idle_timeout", "rq_max_duration_reached"] {
        let name = format!("http.front.downstream_{name}");
        assert!(counter(&proxy, &name).await >= 1, "{name}");
    }
    proxy.shut_down().await;
    let proxy = start("stream_idle_timeout: 0.3s", &backend).await;
    blocked_stream_is_reset(&proxy, "/big").await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn pings_do_not_keep_a_stream_alive() {
    let backend = backend().await;
    let proxy = start("stream_idle_timeout: 0.3s", &backend).await;
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (sender, mut connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    let pinging =
        tokio::spawn(async move { while pings.ping(h2::Ping::opaque()).await.is_ok() {} });
    let mut sender = sender.ready().await.unwrap();
    let (response, _) = sender.send_request(get("/big"), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let frame = tokio::time::timeout(TIMEOUT, body.data()).await;
    assert!(frame.expect("an end in time").unwrap().is_err());
    pinging.abort();
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_cut_off() {
    let backend = backend().await;
    let proxy = start("stream_idle_timeout: 0.3s", &backend).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET /big HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        .await;
    wait_until("the response is sent", || async { backend.count() == 1 }).await;
    upstream_is_free(&proxy, &backend).await;
    let text = raw.rest().await;
    assert!(text.len() < 64 << 20, "{} bytes", text.len());
    assert_eq!(client::get(proxy.address(), "/other").await.status, 200);
    proxy.shut_down().await;
}

#[tokio::test]
async fn requests_without_a_response_get_408_or_504() {
    let backend = backend().await;
    let proxy = start("request_timeout: 0.5s", &backend).await;
    let address = proxy.address();
    for (path, status, body) in [
        ("/idle", 504, "stream timeout"),
        ("/duration", 408, "downstream duration timeout"),
        ("/timeout", 504, "upstream request timeout"),
    ] {
        let response = client::get(address, path).await;
        let found = (response.status, response.body.as_str());
        assert_eq!(found, (status, body), "{path}");
    }
    let unfinished = "POST /idle HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\na";
    let response = client::send(address, unfinished).await;
    assert_eq!(
        (response.status, response.body.as_str()),
        (408, "stream timeout")
    );
    let unfinished = "POST /never HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\na";
    let response = client::send(address, unfinished).await;
    assert_eq!(
        (response.status, response.body.as_str()),
        (408, "request timeout")
    );
    assert_eq!(counter(&proxy, "http.front.downstream_rq_timeout").await, 1);
    upstream_is_free(&proxy, &backend).await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn http2_uploads_that_do_not_end_get_408() {
    let backend = backend().await;
    let proxy = start("request_timeout: 0.3s", &backend).await;
    let mut sender = http2(&proxy, 65_535).await.ready().await.unwrap();
    let (response, mut upload) = sender.send_request(get("/never"), false).unwrap();
    upload.send_data(Bytes::from_static(b"a"), false).unwrap();
    let response = tokio::time::timeout(TIMEOUT, response).await.unwrap();
    assert_eq!(response.unwrap().status(), 408);
    upstream_is_free(&proxy, &backend).await;
    proxy.shut_down().await;
}

/// A response that has started is cut off by the route's timeout.
#[tokio::test]
async fn the_route_timeout_ends_a_response_in_progress() {
    let backend = backend().await;
    let proxy = start("", &backend).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET /timeout/trickle HTTP/1.1\r\nhost: h\r\n\r\n")
        .await;
    let text = raw.rest().await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.ends_with("\r\n1\r\na\r\n"), "no last chunk: {text:?}");
    upstream_is_free(&proxy, &backend).await;
    proxy.shut_down().await;
}

/// As in Envoy, the timeout of a route begins when the request has been received.
#[tokio::test]
async fn the_route_timeout_does_not_count_the_upload() {
    let backend = backend().await;
    let proxy = start("", &backend).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("POST /timeout/echo HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\na")
        .await;
    for piece in ["b", "c"] {
        // Takes as long as the timeout.
        assert_eq!(client::get(proxy.address(), "/timeout").await.status, 504);
        raw.send(piece).await;
    }
    let response = raw.response().await;
    assert_eq!((response.status, response.body.as_str()), (200, "abc"));
    proxy.shut_down().await;
}

const UPGRADES: &str = "upgrade_configs: [{upgrade_type: websocket}]";

/// A backend that accepts upgrades and echoes what it gets.
async fn tunnel_backend() -> Backend {
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

async fn open_tunnel(proxy: &Proxy, path: &str) -> Raw {
    let mut raw = Raw::connect(proxy.address()).await;
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    raw.send(head).await;
    assert_eq!(raw.response().await.status, 101);
    raw
}

async fn echo(raw: &mut Raw) {
    raw.0.write_all(b"ping").await.unwrap();
    let mut echoed = [0; 4];
    raw.0.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"ping");
}

#[tokio::test]
async fn tunnels_count_as_connections() {
    let backend = tunnel_backend().await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let limit = "overload_manager: {resource_monitors: [{name: cx, typed_config: {'@type': \
                 type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.\
                 DownstreamConnectionsConfig, max_active_downstream_connections: 2}}]}\n";
    let config = config_with(UPGRADES, ROUTES, clusters);
    let proxy = Proxy::start(&format!("{limit}{config}")).await;
    let mut tunnels = [
        open_tunnel(&proxy, "/").await,
        open_tunnel(&proxy, "/").await,
    ];
    let mut third = Raw::connect(proxy.address()).await;
    assert_eq!(third.rest().await, "", "rejected by the connection limit");
    for tunnel in &mut tunnels {
        echo(tunnel).await;
    }
    proxy.stop();
    for tunnel in &mut tunnels {
        echo(tunnel).await;
    }
    drop(tunnels);
    proxy.shut_down().await;
}

#[tokio::test]
async fn idle_tunnels_are_closed_and_active_ones_are_not() {
    let backend = tunnel_backend().await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let proxy = Proxy::start(&config_with(UPGRADES, ROUTES, clusters)).await;
    let mut active = open_tunnel(&proxy, "/").await;
    // The route's timeout of 0.3 s does not limit a tunnel.
    let mut timed = open_tunnel(&proxy, "/timeout").await;
    let mut idle = open_tunnel(&proxy, "/idle").await;
    assert_eq!(idle.rest().await, "");
    let mut second = open_tunnel(&proxy, "/duration").await;
    assert_eq!(second.rest().await, "");
    echo(&mut active).await;
    echo(&mut timed).await;
    assert_eq!(
        counter(&proxy, "http.front.downstream_rq_idle_timeout").await,
        1
    );
    assert_eq!(
        counter(&proxy, "http.front.downstream_cx_upgrades_active").await,
        2
    );
    drop((active, timed));
    proxy.shut_down().await;
}

#[tokio::test]
async fn tunnels_are_closed_at_the_end_of_the_drain_time() {
    let backend = tunnel_backend().await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let config = config_with(UPGRADES, ROUTES, clusters);
    let drain_time = std::time::Duration::from_millis(300);
    let proxy = Proxy::start_with(&config, 1, drain_time).await;
    let mut tunnel = open_tunnel(&proxy, "/").await;
    proxy.stop();
    assert_eq!(tunnel.rest().await, "");
    proxy.shut_down().await;
}
