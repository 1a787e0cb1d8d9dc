//! Several filter chains on one listener: selection by server name and protocol, certificates,
//! statistics, reloads.

use crate::support::chains::{INSPECTOR, answer, chain, config, socket, tls};
use crate::support::client::{self, Raw, send_http2};
use crate::support::tls::connector;
use crate::support::{Proxy, TIMEOUT, counter, wait_until};
use http::Request;
use http_body_util::BodyExt as _;
use plimsoll_proxy::config::ProxyConfig;
use plimsoll_testing::Authority;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";

/// Sends a request over TLS; returns the response, or `None` if there is no handshake.
async fn over_tls(proxy: &Proxy, authority: &Authority, name: &str) -> Option<String> {
    let connector = connector(authority, &["http/1.1"]);
    let connecting = crate::support::tls::connect(proxy, &connector, name);
    let connected = tokio::time::timeout(TIMEOUT, connecting).await;
    let mut stream = connected.expect("a handshake in time").ok()?;
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let reading = stream.read_to_end(&mut text);
    let _ = tokio::time::timeout(TIMEOUT, reading).await.unwrap();
    Some(String::from_utf8_lossy(&text).into_owned())
}

async fn answered_by(proxy: &Proxy, authority: &Authority, name: &str) -> Option<String> {
    let response = over_tls(proxy, authority, name).await?;
    let (_, prefix) = response.split_once("\r\n\r\nby ")?;
    Some(prefix.to_owned())
}

/// Chains for `a.test`, for other names below `test`, and for plain text.
fn three_chains(authority: &Authority) -> [String; 3] {
    let exact = tls(&authority.issue(&["a.test"]));
    let wildcard = tls(&authority.issue(&["b.test"]));
    [
        chain("server_names: [a.test]", &answer("exact"), &exact),
        chain("server_names: ['*.test']", &answer("wildcard"), &wildcard),
        chain("transport_protocol: raw_buffer", &answer("plain"), ""),
    ]
}

#[tokio::test]
async fn server_names_select_certificate_routes_and_statistics() {
    let authority = Authority::new();
    let proxy = Proxy::start(&config(&three_chains(&authority), INSPECTOR)).await;
    let by = |name| answered_by(&proxy, &authority, name);
    // The client verifies that the certificate has the name.
    assert_eq!(by("a.test").await.unwrap(), "exact");
    assert_eq!(by("b.test").await.unwrap(), "wildcard");
    assert_eq!(by("other").await, None, "the connection is closed");
    let plain = client::get(proxy.address(), "/").await;
    assert!(plain.body.ends_with("by plain"), "{plain:?}");
    let mut http2 = client::http2(proxy.address()).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("http://h/").body(empty).unwrap();
    assert_eq!(send_http2(&mut http2, request).await.body, "by plain");
    for (prefix, connections, over_tls) in [("exact", 1, 1), ("wildcard", 1, 1), ("plain", 2, 0)] {
        let of = |name: &str| format!("http.{prefix}.downstream_{name}");
        assert_eq!(counter(&proxy, &of("cx_total")).await, connections);
        assert_eq!(counter(&proxy, &of("cx_ssl_total")).await, over_tls);
        wait_until("the requests are counted", || async {
            counter(&proxy, &of("rq_2xx")).await == connections
        })
        .await;
    }
    let address = proxy.address().to_string().replace(':', "_");
    let unmatched = format!("listener.{address}.no_filter_chain_match");
    wait_until("the unmatched connection is counted", || async {
        counter(&proxy, &unmatched).await == 1
    })
    .await;
    let page = client::get(proxy.admin(), "/stats/prometheus").await.body;
    let line = format!(
        "plimsoll_listener_no_filter_chain_match{{plimsoll_listener_address=\"{address}\"}} 1\n"
    );
    assert!(page.contains(&line), "{page}");
    let listeners = client::get(proxy.admin(), "/listeners").await.body;
    assert_eq!(listeners, format!("front::{}\n", proxy.address()));
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_default_chain_serves_connections_that_match_no_other() {
    let authority = Authority::new();
    let default = chain("", &answer("default"), &tls(&authority.issue(&["b.test"])));
    let more = format!("default_filter_chain: {default}");
    let proxy = Proxy::start(&config(&three_chains(&authority)[..1], &more)).await;
    let by = |name| answered_by(&proxy, &authority, name);
    assert_eq!(by("a.test").await.unwrap(), "exact");
    assert_eq!(by("b.test").await.unwrap(), "default");
    let mut plain = Raw::connect(proxy.address()).await;
    plain.send(REQUEST).await;
    let rest = plain.rest().await;
    assert!(!rest.contains("HTTP/1.1"), "{rest}");
    wait_until("the failed handshake is counted", || async {
        counter(&proxy, "http.default.downstream_cx_ssl_fail").await == 1
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn application_protocols_select_the_chain() {
    let authority = Authority::new();
    let socket = tls(&authority.issue(&["a.test"]));
    let proxy = Proxy::start(&config(
        &[
            chain("application_protocols: [h2]", &answer("two"), &socket),
            chain("", &answer("any"), &socket),
        ],
        "",
    ))
    .await;
    assert_eq!(
        answered_by(&proxy, &authority, "a.test").await.unwrap(),
        "any"
    );
    let connector = connector(&authority, &["http/1.1", "h2"]);
    let stream = crate::support::tls::connect(&proxy, &connector, "a.test").await;
    let mut http2 = client::http2_over(stream.unwrap()).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("https://a.test/").body(empty).unwrap();
    assert_eq!(send_http2(&mut http2, request).await.body, "by two");
    proxy.shut_down().await;
}

/// Passes a stream on byte by byte, so that the `ClientHello` arrives in many pieces.
async fn in_pieces(proxy: &Proxy) -> TcpStream {
    let relay = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(relay.local_addr().unwrap())
        .await
        .unwrap();
    let (mut accepted, _) = relay.accept().await.unwrap();
    let mut server = TcpStream::connect(proxy.address()).await.unwrap();
    server.set_nodelay(true).unwrap();
    tokio::spawn(async move {
        let (mut from_client, mut to_client) = accepted.split();
        let (mut from_server, mut to_server) = server.split();
        let forward = async {
            while let Ok(byte) = from_client.read_u8().await {
                to_server.write_all(&[byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let back = tokio::io::copy(&mut from_server, &mut to_client);
        let _ = tokio::join!(forward, back);
    });
    client
}

#[tokio::test]
async fn a_client_hello_may_arrive_in_pieces() {
    let authority = Authority::new();
    let proxy = Proxy::start(&config(&three_chains(&authority), INSPECTOR)).await;
    let connector = connector(&authority, &[]);
    let name = ServerName::try_from("b.test").unwrap();
    let mut stream = connector
        .connect(name, in_pieces(&proxy).await)
        .await
        .unwrap();
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let reading = stream.read_to_end(&mut text);
    let _ = tokio::time::timeout(TIMEOUT, reading).await.unwrap();
    assert!(text.ends_with(b"by wildcard"));
    proxy.shut_down().await;
}

#[tokio::test]
async fn an_invalid_client_hello_is_no_tls() {
    let authority = Authority::new();
    let chains = three_chains(&authority);
    let hello = b"\x16\x03\x01\x00\x05nonse".as_slice();
    for (used, counted) in [
        (&chains[..], "http.plain.downstream_cx_protocol_error"),
        (&chains[..2], "no_filter_chain_match"),
    ] {
        let proxy = Proxy::start(&config(used, "")).await;
        let mut raw = Raw::connect(proxy.address()).await;
        raw.send(hello).await;
        raw.rest().await;
        let line = format!("{counted}: 1");
        wait_until(&line, || async {
            let page = client::get(proxy.admin(), "/stats").await.body;
            page.lines().any(|found| found.ends_with(&line))
        })
        .await;
        proxy.shut_down().await;
    }
}

#[tokio::test]
async fn editing_one_chain_drains_the_listener_and_certificates_of_all_are_watched() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let write = |name: &str| {
        let (certificate, key) = authority.issue(&[name]);
        crate::support::replace(&file("key.pem"), &key);
        crate::support::replace(&file("chain.pem"), &certificate);
    };
    write("b.test");
    let from_files = socket(
        &format!("filename: {}", file("chain.pem").display()),
        &format!("filename: {}", file("key.pem").display()),
    );
    let inline = authority.issue(&["a.test"]);
    let with = |second: &str| {
        let names = "server_names: [b.test, c.test]";
        let chains = [
            chain("server_names: [a.test]", &answer("first"), &tls(&inline)),
            chain(names, &answer(second), &from_files),
            chain("", &answer("plain"), ""),
        ];
        config(&chains, INSPECTOR)
    };
    let proxy = Proxy::start(&with("second")).await;
    let by = |name| answered_by(&proxy, &authority, name);
    assert_eq!(by("b.test").await.unwrap(), "second");
    write("c.test");
    wait_until(
        "the certificate of the second chain is reloaded",
        || async { by("c.test").await.is_some() },
    )
    .await;
    let mut kept = Raw::connect(proxy.address()).await;
    kept.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(!kept.response().await.head.contains("connection: close"));
    proxy.edit(&with("edited")).await;
    wait_until("the second chain is edited", || async {
        by("c.test").await.as_deref() == Some("edited")
    })
    .await;
    kept.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let last = kept.response().await;
    assert!(last.head.contains("connection: close"), "{last:?}");
    // Counters of chains that stay are kept.
    assert_eq!(counter(&proxy, "http.plain.downstream_rq_total").await, 2);
    let dump = client::get(proxy.admin(), "/config_dump").await.body;
    let secret = inline.1.lines().nth(1).unwrap();
    assert!(
        dump.contains("[redacted]") && !dump.contains(secret),
        "{dump}"
    );
    let routes: serde_json::Value = serde_json::from_str(
        &client::get(proxy.admin(), "/config_dump?resource=static_route_configs")
            .await
            .body,
    )
    .unwrap();
    assert_eq!(routes["configs"].as_array().unwrap().len(), 3, "{routes}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_silent_connection_does_not_hold_up_a_drain() {
    let authority = Authority::new();
    let proxy = Proxy::start_with(&config(&three_chains(&authority), ""), 1, TIMEOUT * 2).await;
    let mut silent = Raw::connect(proxy.address()).await;
    // The connection has been accepted when a later one has been served.
    client::get(proxy.address(), "/").await;
    proxy.stop();
    assert_eq!(silent.rest().await, "");
    proxy.ended().await;
}

fn rejection(chains: &[String], more: &str) -> String {
    ProxyConfig::parse(&config(chains, more))
        .unwrap_err()
        .to_string()
}

#[test]
fn chains_for_the_same_connections_and_unsupported_criteria_are_rejected() {
    let listener = "static_resources.listeners[0].";
    let with = |criteria: &str| chain(criteria, &answer("x"), "");
    for (chains, more, expected) in [
        (
            vec![with(""), with("")],
            "",
            "filter_chains[1].filter_chain_match: matches the same connections as filter_chains[0]",
        ),
        (
            vec![with("server_names: [a, b]"), with("server_names: [B]")],
            "",
            "filter_chains[1].filter_chain_match: matches the same connections as filter_chains[0]",
        ),
        (
            vec![with("server_names: ['a.*']")],
            "",
            "filter_chains[0].filter_chain_match.server_names[0]: ",
        ),
        (
            vec![with("transport_protocol: quic")],
            "",
            "filter_chains[0].filter_chain_match.transport_protocol: \"quic\" is not supported",
        ),
        (
            vec![with("source_ports: [1]")],
            "",
            "filter_chains[0].filter_chain_match.source_ports: is not supported and would change",
        ),
        (vec![], "", "filter_chains: must not be empty"),
        (
            vec![with("")],
            "listener_filters: [{name: p, typed_config: {'@type': x/y.ProxyProtocol}}]",
            "listener_filters[0].typed_config.@type: ",
        ),
    ] {
        let error = rejection(&chains, more);
        assert!(error.contains(&format!("{listener}{expected}")), "{error}");
    }
    let default = format!("default_filter_chain: {}", with("server_names: [a]"));
    let error = rejection(&[with("")], &default);
    assert!(
        error.contains("default_filter_chain.filter_chain_match: must be empty"),
        "{error}"
    );
    let rds = crate::support::chains::from_rds("x", "r");
    let error = rejection(&[with("server_names: [a]"), chain("", &rds, "")], "");
    let path = "filter_chains[1].filters[0].typed_config.rds: requires dynamic_resources";
    assert!(error.contains(path), "{error}");
}
