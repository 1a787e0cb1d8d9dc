//! What a proxy at the edge does with external requests: first bytes, host, path, headers.

use std::sync::Arc;

use crate::support::backend::Backend;
use crate::support::client::{self, Raw, send_http2};
use crate::support::tls;
use crate::support::{Proxy, config_with, counter, route_all_to, wait_until};
use http::{Request, Version};
use http_body_util::BodyExt as _;
use plimsoll_testing::Authority;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

async fn proxy(manager: &str, backend: &Backend) -> Proxy {
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    Proxy::start(&config_with(manager, &route_all_to("a"), clusters)).await
}

/// Sends a GET request over HTTP/2 with further headers; returns status and echo.
async fn get_http2(proxy: &Proxy, uri: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::get(uri).version(Version::HTTP_2);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let empty = http_body_util::Empty::new().boxed_unsync();
    let mut sender = client::http2(proxy.address()).await;
    let response = send_http2(&mut sender, request.body(empty).unwrap()).await;
    (response.head.status().as_u16(), response.body)
}

async fn connections_are_gone(proxy: &Proxy) {
    wait_until("all connections are closed", || async {
        counter(proxy, "http.front.downstream_cx_active").await == 0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_within_the_preface_is_noticed() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &backend).await;
    for start in ["P", "PRI * HTTP/2", ""] {
        let mut raw = Raw::connect(proxy.address()).await;
        raw.send(start).await;
        raw.0.shutdown().await.unwrap();
        assert_eq!(raw.rest().await, "", "{start:?}");
    }
    connections_are_gone(&proxy).await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn an_incomplete_preface_times_out() {
    let backend = Backend::echo("a").await;
    let manager = "request_headers_timeout: 0.3s";
    let proxy = proxy(manager, &backend).await;
    let mut slow = Raw::connect(proxy.address()).await;
    slow.send("PRI").await;
    assert_eq!(slow.rest().await, "");
    connections_are_gone(&proxy).await;
    // One byte at a time is decided by the first byte that differs.
    let mut raw = Raw::connect(proxy.address()).await;
    for byte in b"PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n" {
        raw.send([*byte]).await;
    }
    assert_eq!(raw.response().await.status, 200);
    assert_eq!(get_http2(&proxy, "http://h/", &[]).await.0, 200);
    proxy.shut_down().await;
}

#[tokio::test]
async fn authority_and_host_are_one() {
    let backend = Backend::echo("a").await;
    let routes = "- match: {prefix: /}\n  route: {cluster: a}\n  request_headers_to_add: \
                  [{header: {key: x-routed, value: '%REQ(:AUTHORITY)%'}}]\n";
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let proxy = Proxy::start(&config_with("", routes, clusters)).await;
    let absolute = "GET http://public.example/x HTTP/1.1\r\nhost: internal.example\r\n\r\n";
    let response = client::send(proxy.address(), absolute).await;
    assert!(!response.body.contains("internal.example"), "{response:?}");
    assert!(
        response.body.contains("\nhost: public.example\n"),
        "{response:?}"
    );
    assert!(
        response.body.contains("\nx-routed: public.example\n"),
        "{response:?}"
    );
    let uri = "http://public.example/x";
    let (status, _) = get_http2(&proxy, uri, &[("host", "internal.example")]).await;
    assert_eq!(status, 400);
    let (status, echo) = get_http2(&proxy, uri, &[]).await;
    assert_eq!(status, 200);
    assert!(echo.contains("\nhost: public.example\n"), "{echo}");
    for odd in [
        "GET http://public.example@internal.example/ HTTP/1.1\r\nhost: h\r\n\r\n",
        // Without `host`, the name of the cluster would be sent upstream.
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        assert_eq!(
            client::send(proxy.address(), odd).await.status,
            400,
            "{odd}"
        );
    }
    let old = "GET / HTTP/1.0\r\nhost: h\r\n\r\n";
    assert_eq!(client::send(proxy.address(), old).await.status, 200);
    proxy.shut_down().await;
}

const FORGED: &str = "GET /secret HTTP/1.1\r\nhost: h\r\n\
    x-forwarded-client-cert: URI=spiffe://td/ns/admin\r\nx-envoy-internal: true\r\n\
    x-envoy-retry-on: 5xx\r\nx-envoy-original-path: /innocent\r\n\
    x-envoy-external-address: 6.6.6.6\r\nx-forwarded-for: 6.6.6.6\r\n\
    x-forwarded-for: 203.0.113.9\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn forged_headers_of_external_requests_are_removed() {
    let backend = Backend::echo("a").await;
    let plain = proxy("", &backend).await;
    let response = client::send(plain.address(), FORGED).await;
    for removed in [
        "x-forwarded-client-cert",
        "x-envoy-internal",
        "x-envoy-retry-on",
    ] {
        assert!(!response.body.contains(removed), "{response:?}");
    }
    plain.shut_down().await;
    let edge = proxy("use_remote_address: true", &backend).await;
    let response = client::send(edge.address(), FORGED).await;
    for removed in [
        "client-cert",
        "x-envoy-internal",
        "x-envoy-retry-on",
        "innocent",
    ] {
        assert!(!response.body.contains(removed), "{response:?}");
    }
    let expected = "\nx-forwarded-for: 6.6.6.6,203.0.113.9,127.0.0.1\n";
    assert!(response.body.contains(expected), "{response:?}");
    let expected = "\nx-envoy-external-address: 127.0.0.1\n";
    assert!(response.body.contains(expected), "{response:?}");
    edge.shut_down().await;
    let trusting = proxy("forward_client_cert_details: ALWAYS_FORWARD_ONLY", &backend).await;
    let response = client::send(trusting.address(), FORGED).await;
    let expected = "\nx-forwarded-client-cert: URI=spiffe://td/ns/admin\n";
    assert!(response.body.contains(expected), "{response:?}");
    trusting.shut_down().await;
}

#[tokio::test]
async fn the_certificate_of_a_client_is_forwarded() {
    let backend = Backend::echo("a").await;
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (chain, key) = authority.issue(&["edge.test", "spiffe://td/edge"]);
    let socket = format!(
        "    - transport_socket:\n        typed_config:\n          '@type': type.googleapis.com/\
         envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext\n          \
         common_tls_context:\n            tls_certificates:\n            \
         - certificate_chain: {{filename: {}}}\n              \
         private_key: {{filename: {}}}\n            \
         validation_context: {{trusted_ca: {{filename: {}}}}}\n      \
         filters:\n",
        write("chain.pem", &chain),
        write("key.pem", &key),
        write("ca.pem", &authority.pem),
    );
    let manager = "forward_client_cert_details: SANITIZE_SET\n\
                   set_current_client_cert_details: {uri: true, dns: true}";
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let config = config_with(manager, &route_all_to("a"), clusters);
    let proxy = Proxy::start(&config.replace("    - filters:\n", &socket)).await;
    let own = authority.issue(&["shop.test", "spiffe://td/ns/shop"]);
    for (own, expected) in [(Some(&own), true), (None, false)] {
        let connector = tls::connector_as(&authority, &["http/1.1"], own);
        let mut stream = tls::connect(&proxy, &connector, "edge.test").await.unwrap();
        stream.write_all(FORGED.as_bytes()).await.unwrap();
        let mut text = String::new();
        // The client does not care how the proxy closes TLS.
        let _ = tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut text).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(!text.contains("spiffe://td/ns/admin"), "{text}");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("x-forwarded-client-cert: "));
        assert_eq!(line.is_some(), expected, "{text}");
        if let Some(line) = line {
            assert!(line.starts_with("By=spiffe://td/edge;Hash="), "{line}");
            assert!(
                line.ends_with(";URI=spiffe://td/ns/shop;DNS=shop.test"),
                "{line}"
            );
        }
    }
    proxy.shut_down().await;
}

#[tokio::test]
async fn cookies_of_http2_reach_http1_as_one_line() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("", &backend).await;
    let cookies = [("cookie", "a=1"), ("cookie", "b=2")];
    let (_, echo) = get_http2(&proxy, "http://h/", &cookies).await;
    assert!(echo.contains("\ncookie: a=1; b=2\n"), "{echo}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn paths_and_names_are_normalized_before_routing() {
    let backend = Backend::echo("a").await;
    let manager = "normalize_path: true\nmerge_slashes: true\n\
        path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT\nstrip_matching_host_port: true\n\
        common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST}";
    let routes = "- match: {prefix: /admin}\n  direct_response: {status: 403}\n\
        - match: {prefix: /}\n  route: {cluster: a}\n";
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let proxy = Proxy::start(&config_with(manager, routes, clusters)).await;
    for path in [
        "/x/../admin",
        "//admin",
        "/%61dmin",
        "/x/%2e%2e/admin",
        "/\\admin",
        "/./admin",
    ] {
        assert_eq!(
            client::get(proxy.address(), path).await.status,
            403,
            "{path}"
        );
        let (status, _) = get_http2(&proxy, &format!("http://h{path}"), &[]).await;
        assert_eq!(status, 403, "{path}");
    }
    let response = client::get(proxy.address(), "/x%2F..%2fadmin?q=%2F").await;
    assert_eq!(response.status, 307);
    assert!(
        response.head.contains("location: /admin?q=%2f\r\n"),
        "{response:?}"
    );
    assert_eq!(client::get(proxy.address(), "/a%00").await.status, 400);
    let response = client::get(proxy.address(), "/a/./b//c?d=..//").await;
    assert!(response.body.contains("GET /a/b/c?d=..// "), "{response:?}");
    let underscore = "GET / HTTP/1.1\r\nhost: h\r\nx_admin: 1\r\n\r\n";
    assert_eq!(client::send(proxy.address(), underscore).await.status, 400);
    let port = proxy.address().port();
    let ported = format!("GET / HTTP/1.1\r\nhost: shop.example:{port}\r\n\r\n");
    let response = client::send(proxy.address(), &ported).await;
    assert!(
        response.body.contains("\nhost: shop.example\n"),
        "{response:?}"
    );
    proxy.shut_down().await;
}

#[tokio::test]
async fn http2_headers_are_counted_and_streams_limited_at_the_edge() {
    let backend = Backend::echo("a").await;
    let proxy = proxy("use_remote_address: true", &backend).await;
    let names: Vec<String> = (0..120).map(|n| format!("x-{n}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(get_http2(&proxy, "http://h/", &many).await.0, 431);
    assert_eq!(get_http2(&proxy, "http://h/", &many[..50]).await.0, 200);
    let stream = tokio::net::TcpStream::connect(proxy.address())
        .await
        .unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://h/").body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    assert_eq!(sender.current_max_send_streams(), 100);
    drop::<h2::client::SendRequest<bytes::Bytes>>(sender);
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_pipelined_byte_does_not_hide_that_the_client_left() {
    let backend = Backend::start(|_| std::future::pending()).await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let routes = "- match: {prefix: /}\n  route: {cluster: a, timeout: 0s}\n";
    let proxy = Proxy::start(&config_with("", routes, clusters)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\nG").await;
    wait_until("the request has arrived", || async { backend.count() == 1 }).await;
    drop(raw);
    wait_until("the request is canceled", || async {
        counter(&proxy, "http.front.downstream_rq_active").await == 0
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn responses_have_the_time_that_the_upstream_took() {
    let backend = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let name = "x-envoy-upstream-service-time: ";
    for suppressed in [false, true] {
        let filters = format!(
            "http_filters:\n- typed_config: {{'@type': type.googleapis.com/envoy.extensions.\
             filters.http.router.v3.Router, suppress_envoy_headers: {suppressed}}}"
        );
        let config = config_with(&filters, &route_all_to("a"), clusters);
        let proxy = Proxy::start(&config).await;
        let post = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\na";
        for request in ["GET / HTTP/1.1\r\nhost: h\r\n\r\n", post] {
            let head = client::send(proxy.address(), request).await.head;
            let time = head.lines().find_map(|line| line.strip_prefix(name));
            let time = time.map(|time| time.parse::<u32>().unwrap());
            assert_eq!(time.is_none(), suppressed, "{head}");
        }
        proxy.shut_down().await;
    }
}

/// A health check filter for `/healthz` and a rate limit of two requests per hour.
const FILTERS: &str = "http_filters:
- typed_config:
    '@type': type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck
    pass_through_mode: false
    headers: [{name: ':path', string_match: {exact: /healthz}}]
- typed_config:
    '@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
    stat_prefix: limit
    token_bucket: {max_tokens: 2, tokens_per_fill: 2, fill_interval: 3600s}
    filter_enabled: {default_value: {numerator: 100}}
    filter_enforced: {default_value: {numerator: 100, denominator: HUNDRED}}
- typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}";

#[tokio::test]
async fn requests_are_limited_and_health_checks_are_not() {
    let backend = Backend::echo("a").await;
    let proxy = proxy(FILTERS, &backend).await;
    let mut kept = Raw::connect(proxy.address()).await;
    for expected in [200, 200, 429, 429] {
        let response = client::get(proxy.address(), "/").await;
        assert_eq!(response.status, expected);
        kept.send("GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(kept.response().await.status, 200);
    }
    assert_eq!(
        client::get(proxy.address(), "/").await.body,
        "local_rate_limited"
    );
    assert_eq!(counter(&proxy, "http.front.rate_limited").await, 3);
    assert_eq!(backend.count(), 2);
    proxy.stop();
    let fails = async {
        loop {
            kept.send("GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await;
            match kept.response().await.status {
                200 => {}
                status => break status,
            }
        }
    };
    let status = tokio::time::timeout(crate::support::TIMEOUT, fails).await;
    assert_eq!(status.expect("the drain begins in time"), 503);
    drop(kept);
    proxy.shut_down().await;
}

#[tokio::test]
async fn large_response_headers_of_http2_hosts_are_accepted() {
    let backend = Backend::start(|_| async {
        let mut response = crate::support::backend::reply(200, "");
        for _ in 0..20 {
            let cookie = "a".repeat(1 << 10).try_into().unwrap();
            response.headers_mut().append("set-cookie", cookie);
        }
        response
    })
    .await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], crate::support::HTTP2)];
    let proxy = Proxy::start(&config_with("", &route_all_to("a"), clusters)).await;
    let response = client::get(proxy.address(), "/").await;
    assert_eq!(response.status, 200);
    assert_eq!(response.head.matches("set-cookie").count(), 20);
    proxy.shut_down().await;
}

/// A probe for the end of the socket must not lose pipelined bytes.
#[tokio::test]
async fn pipelined_requests_behind_a_slow_one_are_answered() {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let backend = Backend::start(move |request| {
        let gate = Arc::clone(&opened);
        async move {
            if request.uri().path() == "/slow" {
                drop(gate.acquire().await.unwrap());
            }
            crate::support::backend::reply(200, request.uri().path().to_owned())
        }
    })
    .await;
    let proxy = proxy("", &backend).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\nGET /se")
        .await;
    wait_until("the request has arrived", || async { backend.count() == 1 }).await;
    raw.send("cond HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        .await;
    // A probe reads what is left in the socket.
    probed(&proxy).await;
    gate.add_permits(1);
    let text = raw.rest().await;
    assert!(text.contains("\r\n\r\n/slow"), "{text}");
    assert!(text.ends_with("\r\n\r\n/second"), "{text}");
    proxy.shut_down().await;
}

/// Waits until pipelined requests were probed, which is seen on another connection whose client
/// leaves.
async fn probed(proxy: &Proxy) {
    let active = async || counter(proxy, "http.front.downstream_rq_active").await;
    let before = active().await;
    let mut other = Raw::connect(proxy.address()).await;
    other.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\nG").await;
    wait_until("another request is active", || async {
        active().await == before + 1
    })
    .await;
    drop(other);
    wait_until("its end is seen by a probe", || async {
        active().await == before
    })
    .await;
}
