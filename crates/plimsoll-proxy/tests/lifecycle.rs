//! A proxy over time: reloads, certificates, draining, restarts, hosts that come and go.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests and their helpers")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use support::backend::{Backend, response};
use support::client::{self, Raw, exchange};
use support::load::Load;
use support::{PATIENCE, Proxy, config, config_with, eventually, everything};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

async fn page(proxy: &Proxy, path: &str) -> String {
    let answer = client::get(proxy.admin(), path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
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
async fn a_good_edit_takes_effect_and_a_bad_one_says_why() {
    let (a, b) = (Backend::echo("a").await, Backend::echo("b").await);
    let with = |cluster: &str, hosts: &[_]| config(&everything(cluster), &[(cluster, hosts, "")]);
    let proxy = Proxy::start(&with("one", &[a.address])).await;
    let mut kept = Raw::connect(proxy.address()).await;
    let request = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    kept.send(request).await;
    assert!(kept.answer().await.body.starts_with("backend: a\n"));
    // Without being told.
    support::replace(&proxy.file, "static_resources: {listners: []}");
    eventually("the bad edit is seen", || async {
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
        kept.answer().await.body.starts_with("backend: a\n"),
        "the old one stays"
    );
    proxy.edit(&with("two", &[b.address])).await;
    eventually("the good edit is in force", || async {
        counter(&proxy, "config.reload_success").await == 1
    })
    .await;
    // On the connection that was there before.
    kept.send(request).await;
    assert!(kept.answer().await.body.starts_with("backend: b\n"));
    assert!(!page(&proxy, "/server_info").await.contains("listners"));
    assert!(
        page(&proxy, "/config_dump")
            .await
            .contains("\"cluster\":\"two\"")
    );
    assert!(page(&proxy, "/explain?cluster=two").await.contains("two"));
    eventually("what no route names is taken away", || async {
        !page(&proxy, "/clusters").await.starts_with("one::")
    })
    .await;
    proxy.ended().await;
}

#[tokio::test]
async fn listeners_come_and_go() {
    let a = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[a.address], "")];
    let before = config(&everything("a"), clusters);
    let proxy = Proxy::start(&before).await;
    let address = proxy.address();
    proxy
        .edit(&before.replace("name: front", "name: other"))
        .await;
    eventually("another listener", || async {
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
    proxy.ended().await;
}

struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate,
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    /// Certificate and key, PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn connector(&self, alpn: &[&str]) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        let pem = self.certificate.pem();
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

async fn tls(
    proxy: &Proxy,
    connector: &TlsConnector,
    name: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(proxy.address()).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    connector.connect(name, stream).await
}

#[tokio::test]
async fn tls_with_alpn_and_a_certificate_that_is_replaced() {
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
    let plain = config(&everything("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&plain.replace("    - filters:\n", &socket)).await;
    let over2 = authority.connector(&["h2"]);
    let stream = tls(&proxy, &over2, "first.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut http2 = client::http2_over(stream).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("https://first.test/x").body(empty).unwrap();
    let whole = exchange(&mut http2, request).await;
    assert!(
        whole.body.contains("x-forwarded-proto: https\n"),
        "{whole:?}"
    );
    let over1 = authority.connector(&["http/1.1"]);
    let stream = tls(&proxy, &over1, "first.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    write("second.test");
    eventually("the new certificate is used", || async {
        tls(&proxy, &over1, "second.test").await.is_ok()
    })
    .await;
    // What is no certificate leaves the old one in force.
    support::replace(&chain, "nonsense");
    eventually("the bad certificate is seen", || async {
        counter(&proxy, "config.reload_failure").await > 0
    })
    .await;
    assert!(tls(&proxy, &over1, "second.test").await.is_ok());
    proxy.ended().await;
}

#[tokio::test]
async fn a_request_in_flight_is_finished_and_new_ones_are_turned_away() {
    let release = Arc::new(tokio::sync::Notify::new());
    let held = Arc::clone(&release);
    let backend = Backend::start(move |_| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            response(200, "late")
        }
    })
    .await;
    let mut proxy = Proxy::start(&config(&everything("a"), &[("a", &[backend.address], "")])).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let mut http2 = client::http2(proxy.address()).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("http://h/").body(empty).unwrap();
    let second = tokio::spawn(async move { exchange(&mut http2, request).await });
    eventually("both requests are there", || async { backend.count() == 2 }).await;
    let address = proxy.address();
    proxy.stop();
    eventually("nobody listens", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    release.notify_one();
    release.notify_one();
    let answer = raw.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "late"));
    assert_eq!(raw.rest().await, "", "the connection is closed behind it");
    assert_eq!(second.await.unwrap().body, "late");
    proxy.ended().await;
}

#[tokio::test]
async fn what_does_not_finish_is_cut_off_at_the_deadline() {
    let backend = Backend::start(|_| async {
        std::future::pending::<()>().await;
        response(200, "")
    })
    .await;
    let config = config(&everything("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start_with(&config, 1, Duration::from_millis(200)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    eventually("the request is there", || async { backend.count() == 1 }).await;
    proxy.ended().await;
    assert_eq!(raw.rest().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_no_request() {
    let backend = Backend::echo("a").await;
    let text = config(&everything("a"), &[("a", &[backend.address], "")]);
    let old = Proxy::start_with(&text, 2, PATIENCE).await;
    let load = Load::start(old.address(), 4);
    load.more(50).await;
    let port = format!("port_value: {}}}", old.address().port());
    let text = text.replacen("port_value: 0}", "port_value: 00}", 1);
    let text = text
        .replacen("port_value: 0}", &port, 1)
        .replace("00}", "0}");
    let new = Proxy::start_with(&text, 2, PATIENCE).await;
    assert_eq!(new.address(), old.address());
    load.more(50).await;
    old.ended().await;
    load.more(50).await;
    assert!(counter(&new, "http.front.downstream_rq_total").await > 0);
    assert_eq!(load.end().await, [""; 0]);
    new.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_and_routes_come_and_go_without_a_failure() {
    let backends = [
        Backend::echo("a").await,
        Backend::echo("b").await,
        Backend::echo("c").await,
    ];
    let [a, b, c] = backends.each_ref().map(|backend| backend.address);
    let with = |hosts: &[_], cluster: &str| config(&everything(cluster), &[(cluster, hosts, "")]);
    let proxy = Proxy::start_with(&with(&[a, b, c], "one"), 2, PATIENCE).await;
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
        eventually("the edit is in force", || async {
            counter(&proxy, "config.reload_success").await > round
        })
        .await;
        load.more(20).await;
    }
    assert_eq!(load.end().await, [""; 0]);
    assert_eq!(counter(&proxy, "http.front.downstream_rq_5xx").await, 0);
    proxy.ended().await;
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
    proxy.ended().await;
}

#[tokio::test]
async fn clusters_are_counted_on_both_pages() {
    let backend = Backend::echo("a").await;
    let hosts = [backend.address];
    let proxy = Proxy::start(&config(&everything("orders"), &[("orders", &hosts, "")])).await;
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
    proxy.ended().await;
}

#[tokio::test]
async fn admin_pages_speak_envoys_words() {
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
    // A page of the web may neither end it nor read what it says.
    let quit =
        "POST /quitquitquit HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\r\n";
    assert_eq!(client::send(proxy.admin(), quit).await.status, 403);
    let rebound = "GET /config_dump HTTP/1.1\r\nhost: rebound.evil.example\r\n\r\n";
    assert_eq!(client::send(proxy.admin(), rebound).await.status, 403);
    assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    let quit = client::send(proxy.admin(), &post("/quitquitquit")).await;
    assert_eq!((quit.status, quit.body.as_str()), (200, "OK\n"));
    let address = proxy.address();
    eventually("nobody listens", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    proxy.ended().await;
}
