//! A proxy over time: reloads, certificates, draining, restarts, changes of hosts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests and their helpers")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use support::backend::{Backend, reply};
use support::client::{self, Raw, send_http2};
use support::load::Load;
use support::tls::{Authority, connect as tls};
use support::{Proxy, TIMEOUT, config, config_with, eventually, route_all_to};
use tokio::net::TcpStream;

async fn page(proxy: &Proxy, path: &str) -> String {
    let response = client::get(proxy.admin(), path).await;
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.body
}

async fn counter(proxy: &Proxy, name: &str) -> u64 {
    let page = page(proxy, "/stats").await;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn valid_edits_are_applied_and_invalid_ones_are_rejected() {
    let (a, b) = (Backend::echo("a").await, Backend::echo("b").await);
    let with = |cluster: &str, hosts: &[_]| config(&route_all_to(cluster), &[(cluster, hosts, "")]);
    let proxy = Proxy::start(&with("one", &[a.address])).await;
    let mut kept = Raw::connect(proxy.address()).await;
    let request = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    kept.send(request).await;
    assert!(kept.response().await.body.starts_with("backend: a\n"));
    // Without a signal: the file is polled.
    support::replace(&proxy.file, "static_resources: {listners: []}");
    eventually("the invalid edit is rejected", || async {
        counter(&proxy, "config.reload_failure").await == 1
    })
    .await;
    let info = page(&proxy, "/server_info").await;
    assert!(
        info.contains("static_resources.listners: unknown field"),
        "{info}"
    );
    kept.send(request).await;
    assert!(
        kept.response().await.body.starts_with("backend: a\n"),
        "the previous configuration stays active"
    );
    proxy.edit(&with("two", &[b.address])).await;
    eventually("the valid edit is applied", || async {
        counter(&proxy, "config.reload_success").await == 1
    })
    .await;
    // Also on a connection that was open before.
    kept.send(request).await;
    assert!(kept.response().await.body.starts_with("backend: b\n"));
    assert!(!page(&proxy, "/server_info").await.contains("listners"));
    assert!(
        page(&proxy, "/config_dump")
            .await
            .contains("\"cluster\":\"two\"")
    );
    assert!(page(&proxy, "/explain?cluster=two").await.contains("two"));
    eventually("unused clusters are removed", || async {
        !page(&proxy, "/clusters").await.starts_with("one::")
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn listeners_are_added_and_removed() {
    let a = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[a.address], "")];
    let before = config(&route_all_to("a"), clusters);
    let proxy = Proxy::start(&before).await;
    let address = proxy.address();
    proxy
        .edit(&before.replace("name: front", "name: other"))
        .await;
    eventually("the new listener is active", || async {
        page(&proxy, "/listeners").await.starts_with("other::")
    })
    .await;
    let line = page(&proxy, "/listeners").await;
    let other = line.trim().trim_start_matches("other::").parse().unwrap();
    assert_eq!(client::get(other, "/").await.status, 200);
    eventually("the old socket is closed", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn tls_negotiates_alpn_and_reloads_certificates() {
    let backend = Backend::echo("a").await;
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (
        folder.path().join("chain.pem"),
        folder.path().join("key.pem"),
    );
    let write = |name: &str| {
        let (certificate, secret) = authority.issue(name);
        support::replace(&key, &secret);
        support::replace(&chain, &certificate);
    };
    write("first.test");
    let socket = format!(
        "    - transport_socket:\n        typed_config:\n          '@type': type.googleapis.com/\
         envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext\n          \
         common_tls_context:\n            tls_certificates:\n            \
         - certificate_chain: {{filename: {}}}\n              private_key: {{filename: {}}}\n      \
         filters:\n",
        chain.display(),
        key.display()
    );
    let plain = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&plain.replace("    - filters:\n", &socket)).await;
    let http2_connector = authority.connector(&["h2"]);
    let stream = tls(&proxy, &http2_connector, "first.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut http2 = client::http2_over(stream).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("https://first.test/x").body(empty).unwrap();
    let response = send_http2(&mut http2, request).await;
    assert!(
        response.body.contains("x-forwarded-proto: https\n"),
        "{response:?}"
    );
    let http1_connector = authority.connector(&["http/1.1"]);
    let stream = tls(&proxy, &http1_connector, "first.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    write("second.test");
    eventually("the new certificate is used", || async {
        tls(&proxy, &http1_connector, "second.test").await.is_ok()
    })
    .await;
    // An invalid certificate is rejected and the current one stays in use.
    support::replace(&chain, "nonsense");
    eventually("the invalid certificate is rejected", || async {
        counter(&proxy, "config.reload_failure").await > 0
    })
    .await;
    assert!(tls(&proxy, &http1_connector, "second.test").await.is_ok());
    proxy.shut_down().await;
}

#[tokio::test]
async fn draining_finishes_active_requests_and_stops_accepting() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = Arc::clone(&release);
    let backend = Backend::start(move |_| {
        let released = Arc::clone(&released);
        async move {
            released.notified().await;
            reply(200, "late")
        }
    })
    .await;
    let proxy = Proxy::start(&config(
        &route_all_to("a"),
        &[("a", &[backend.address], "")],
    ))
    .await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let mut http2 = client::http2(proxy.address()).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("http://h/").body(empty).unwrap();
    let second = tokio::spawn(async move { send_http2(&mut http2, request).await });
    eventually("both requests have arrived", || async {
        backend.count() == 2
    })
    .await;
    let address = proxy.address();
    proxy.stop();
    eventually("the socket is closed", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    release.notify_one();
    release.notify_one();
    let response = raw.response().await;
    assert_eq!((response.status, response.body.as_str()), (200, "late"));
    assert_eq!(
        raw.rest().await,
        "",
        "the connection is closed after the response"
    );
    assert_eq!(second.await.unwrap().body, "late");
    proxy.shut_down().await;
}

#[tokio::test]
async fn requests_are_aborted_at_the_drain_deadline() {
    let backend = Backend::start(|_| async {
        std::future::pending::<()>().await;
        reply(200, "")
    })
    .await;
    let config = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start_with(&config, 1, Duration::from_millis(200)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually("the request has arrived", || async { backend.count() == 1 }).await;
    proxy.shut_down().await;
    assert_eq!(raw.rest().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_drops_no_requests() {
    let backend = Backend::echo("a").await;
    let text = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let old = Proxy::start_with(&text, 2, TIMEOUT).await;
    let load = Load::start(old.address(), 4);
    load.wait_for(50).await;
    let port = format!("port_value: {}}}", old.address().port());
    let text = text
        .replacen("port_value: 0}", "port_value: 00}", 1)
        .replacen("port_value: 0}", &port, 1)
        .replace("00}", "0}");
    let new = Proxy::start_with(&text, 2, TIMEOUT).await;
    assert_eq!(new.address(), old.address());
    load.wait_for(50).await;
    old.shut_down().await;
    load.wait_for(50).await;
    assert!(counter(&new, "http.front.downstream_rq_total").await > 0);
    assert_eq!(load.stop().await, [""; 0]);
    new.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_hosts_and_routes_cause_no_failures() {
    let backends = [
        Backend::echo("a").await,
        Backend::echo("b").await,
        Backend::echo("c").await,
    ];
    let [a, b, c] = backends.each_ref().map(|backend| backend.address);
    let with = |hosts: &[_], cluster: &str| config(&route_all_to(cluster), &[(cluster, hosts, "")]);
    let proxy = Proxy::start_with(&with(&[a, b, c], "one"), 2, TIMEOUT).await;
    let load = Load::start(proxy.address(), 4);
    for round in 0..12_u64 {
        let hosts: &[_] = match round % 4 {
            0 => &[a],
            1 => &[b, c],
            2 => &[c],
            _ => &[a, b, c],
        };
        let cluster = if round % 3 == 0 { "two" } else { "one" };
        proxy.edit(&with(hosts, cluster)).await;
        eventually("the edit is applied", || async {
            counter(&proxy, "config.reload_success").await > round
        })
        .await;
        load.wait_for(20).await;
    }
    assert_eq!(load.stop().await, [""; 0]);
    assert_eq!(counter(&proxy, "http.front.downstream_rq_5xx").await, 0);
    proxy.shut_down().await;
}

#[tokio::test]
async fn requests_are_logged_when_they_end() {
    let backend = Backend::echo("a").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = format!(
        "access_log: [{{typed_config: {{'@type': type.googleapis.com/envoy.extensions.\
         access_loggers.file.v3.FileAccessLog, path: {}, log_format: {{json_format: \
         {{code: '%RESPONSE_CODE%', flags: '%RESPONSE_FLAGS%', in: '%BYTES_RECEIVED%', \
         cluster: '%UPSTREAM_CLUSTER%', host: '%UPSTREAM_HOST%', \
         path: '%REQ(:PATH)%'}}}}}}}}]",
        path.display()
    );
    let routes = "- match: {prefix: /a}\n  route: {cluster: a}\n\
                  - match: {prefix: /b}\n  route: {cluster: b}\n";
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let proxy = Proxy::start(&config_with(&log, routes, clusters)).await;
    let post = "POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc";
    client::send(proxy.address(), post).await;
    client::get(proxy.address(), "/b").await;
    client::get(proxy.address(), "/c").await;
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("three lines", || async { read().lines().count() == 3 }).await;
    let host = format!("\"host\":\"{}\"", backend.address);
    assert_eq!(
        read().replace(&host, "\"host\":\"a's\""),
        "{\"cluster\":\"a\",\"code\":200,\"flags\":null,\"host\":\"a's\",\"in\":3,\"path\":\"/a\"}\n\
         {\"cluster\":\"b\",\"code\":503,\"flags\":\"NC\",\"host\":null,\"in\":0,\"path\":\"/b\"}\n\
         {\"cluster\":null,\"code\":404,\"flags\":\"NR\",\"host\":null,\"in\":0,\"path\":\"/c\"}\n"
    );
    proxy.shut_down().await;
}

#[tokio::test]
async fn cluster_statistics_are_in_both_formats() {
    let backend = Backend::echo("a").await;
    let hosts = [backend.address];
    let proxy = Proxy::start(&config(&route_all_to("orders"), &[("orders", &hosts, "")])).await;
    client::get(proxy.address(), "/").await;
    let name = "cluster.orders.upstream_rq_total";
    eventually("the request is counted", || async {
        counter(&proxy, name).await == 1
    })
    .await;
    let metrics = page(&proxy, "/stats/prometheus").await;
    let line = "plimsoll_cluster_upstream_rq_total{cluster=\"orders\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(!metrics.contains("# EOF"), "{metrics}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn the_admin_interface_is_compatible_with_envoy() {
    let proxy = Proxy::start(&config(
        "- match: {prefix: /}\n  direct_response: {status: 200}\n",
        &[],
    ))
    .await;
    client::get(proxy.address(), "/").await;
    assert_eq!(page(&proxy, "/ready").await, "LIVE\n");
    assert!(
        page(&proxy, "/server_info")
            .await
            .contains("\"state\":\"LIVE\"")
    );
    assert_eq!(counter(&proxy, "http.front.downstream_rq_2xx").await, 1);
    let metrics = page(&proxy, "/stats/prometheus").await;
    let line = "plimsoll_http_downstream_rq_2xx{plimsoll_http_conn_manager_prefix=\"front\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nhost: h\r\n\r\n");
    let logging = client::send(proxy.admin(), &post("/logging?level=debug")).await;
    assert_eq!(logging.status, 501);
    // Requests that a browser sends on behalf of other sites are rejected.
    let quit =
        "POST /quitquitquit HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\r\n";
    assert_eq!(client::send(proxy.admin(), quit).await.status, 403);
    let rebound = "GET /config_dump HTTP/1.1\r\nhost: rebound.evil.example\r\n\r\n";
    assert_eq!(client::send(proxy.admin(), rebound).await.status, 403);
    assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    let quit = client::send(proxy.admin(), &post("/quitquitquit")).await;
    assert_eq!((quit.status, quit.body.as_str()), (200, "OK\n"));
    let address = proxy.address();
    eventually("the socket is closed", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    proxy.shut_down().await;
}
