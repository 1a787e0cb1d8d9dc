//! The control plane on addresses that other machines reach: who may connect and what is shown.
//!
//! Clients connect to an address of this machine beyond loopback: the peer then has that address,
//! and the control plane cannot tell it from another machine. Nothing leaves the machine.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use plimsoll_testing::Authority;
use plimsoll_testing::tasks::wait_until;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{Control, TIMEOUT};
use super::tls::{connect, issue, write};

const TOKEN: &str = "0123456789abcdef-token";

/// An address of this machine that is not loopback: the source of packets to another machine. A
/// datagram socket sends nothing when it connects.
fn own_address() -> IpAddr {
    let source = |bind: &str, remote: &str| {
        let socket = UdpSocket::bind(bind).ok()?;
        socket.connect(remote).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_loopback()).then_some(address)
    };
    let address =
        source("0.0.0.0:0", "192.0.2.1:9").or_else(|| source("[::]:0", "[2001:db8::1]:9"));
    address.expect("this test needs a network interface beside loopback, with a route")
}

/// The wildcard address of the family of [`own_address`].
fn wildcard() -> &'static str {
    if own_address().is_ipv4() {
        "0.0.0.0:0"
    } else {
        "'[::]:0'"
    }
}

/// The address of a listener as other machines reach it.
fn exposed(listener: SocketAddr) -> SocketAddr {
    SocketAddr::new(own_address(), listener.port())
}

async fn dial(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Sends a request; returns the status.
async fn status(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
    token: Option<&str>,
) -> u16 {
    let authorization = token.map_or_else(String::new, |token| {
        format!("authorization: Bearer {token}\r\n")
    });
    let head = format!(
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: 0\r\n{authorization}\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    // A server that closes without close_notify has sent everything.
    let _ = tokio::time::timeout(TIMEOUT, socket.read_to_end(&mut response)).await;
    let response = String::from_utf8_lossy(&response);
    let status = response.split(' ').nth(1).expect("an answer");
    status.parse().unwrap()
}

fn with_token(config: &str, prepare: impl FnOnce(&std::path::Path)) -> Control {
    Control::start_with_arguments(&["--admin-token-file", "token"], config, |directory| {
        std::fs::write(directory.join("token"), TOKEN).unwrap();
        prepare(directory);
    })
}

async fn json(control: &Control, path: &str) -> Value {
    serde_json::from_str(&control.get(path).await).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_machines_need_the_token_for_everything_but_reading_pages() {
    let any = wildcard();
    let config = format!("admin: {any}\nread_only: {any}\ninsecure: true\nlisten: 127.0.0.1:0\n");
    let control = with_token(&config, |_| ());
    let admin = exposed(control.admin);
    for request in ["GET /api/v1/status", "POST /api/v1/reload", "GET /"] {
        for refused in [None, Some("0123456789abcdef-other"), Some("")] {
            assert_eq!(status(dial(admin).await, request, refused).await, 403);
        }
        assert_eq!(status(dial(admin).await, request, Some(TOKEN)).await, 200);
        let local = SocketAddr::new([127, 0, 0, 1].into(), admin.port());
        if admin.is_ipv4() {
            assert_eq!(status(dial(local).await, request, None).await, 200);
        }
    }
    let shown = json(&control, "/api/v1/status").await;
    let read_only = exposed(shown["read_only"].as_str().unwrap().parse().unwrap());
    let read = status(dial(read_only).await, "GET /api/v1/status", None).await;
    assert_eq!(read, 200);
    for token in [None, Some(TOKEN)] {
        let changed = status(dial(read_only).await, "POST /api/v1/reload", token).await;
        assert!((400..500).contains(&changed), "{changed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_of_an_administrator_is_as_good_as_the_token() {
    let authority = Authority::new();
    let any = wildcard();
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: {any}\n\
         admin_tls: {{certificate: admin.pem, private_key: admin.key, client_ca: ca.pem}}\n\
         admin_identities: [{{uri: 'spiffe://td/operator'}}]\n"
    );
    let control = with_token(&config, |path| {
        write(&authority, path, "admin", "spiffe://td/control");
    });
    let admin = exposed(control.admin);
    let ask = async |certificate, token| {
        let socket = connect(&authority, admin, certificate).await.unwrap();
        status(socket, "POST /api/v1/reload", token).await
    };
    assert_eq!(ask(None, None).await, 403);
    assert_eq!(ask(None, Some(TOKEN)).await, 200);
    let operator = issue(&authority, "spiffe://td/operator");
    assert_eq!(ask(Some(operator), None).await, 200);
    // The authority signs proxies as well.
    let proxy = || issue(&authority, "spiffe://td/gateway");
    assert_eq!(ask(Some(proxy()), None).await, 403);
    assert_eq!(ask(Some(proxy()), Some(TOKEN)).await, 200);
}

/// What the status, the metrics and the dashboard say about `insecure`.
async fn shown(control: &Control) -> (bool, f64, Vec<String>) {
    let status = json(control, "/api/v1/status").await;
    let page = json(control, "/dashboard/state").await;
    let notices = page["notices"].as_array().unwrap().iter();
    let texts = notices.map(|notice| notice["text"].as_str().unwrap().to_owned());
    let insecure = texts.filter(|text| text.contains("no TLS")).collect();
    let metric = control.metric("insecure").await;
    (status["insecure"].as_bool().unwrap(), metric, insecure)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn insecure_listeners_are_shown() {
    let any = wildcard();
    for (listen, admin, expected) in [
        ("127.0.0.1:0", "127.0.0.1:0", &[][..]),
        (any, "127.0.0.1:0", &["ADS and LRS on "]),
        ("127.0.0.1:0", any, &["the admin API on "]),
        (any, any, &["ADS and LRS on ", "the admin API on "]),
    ] {
        let config = format!("listen: {listen}\nadmin: {admin}\ninsecure: true\n");
        let control = Control::start_with(&config, |_| ());
        let (status, metric, notices) = shown(&control).await;
        assert_eq!(status, !expected.is_empty(), "{config}");
        assert_eq!(metric, f64::from(u8::from(status)), "{config}");
        assert_eq!(notices.len(), expected.len(), "{notices:?}");
        for (notice, expected) in notices.iter().zip(expected) {
            assert!(notice.starts_with(expected), "{notice}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limits_are_closed_counted_and_logged() {
    let config = format!(
        "listen: {}\nadmin: 127.0.0.1:0\ninsecure: true\n\
         limits: {{connections: 5, connections_per_peer: 3}}\n",
        wildcard()
    );
    let control = Control::start_with(&config, |_| ());
    let open = async |count: f64| {
        wait_until("connections are open", async || {
            control.metric("connections{listener=\"xds\"}").await == count
        })
        .await;
    };
    let refused = async |expected: [f64; 2]| {
        for (reason, expected) in ["peer_limit", "limit"].into_iter().zip(expected) {
            let labels = format!("{{listener=\"xds\",reason=\"{reason}\"}}");
            let name = format!("connections_refused_total{labels}");
            let what = expected.to_string();
            control
                .wait_for_value(&name, &what, |value| value == expected)
                .await;
        }
    };
    let peer = exposed(control.xds);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(dial(peer).await);
    }
    open(3.0).await;
    assert!(is_closed(dial(peer).await).await);
    refused([1.0, 0.0]).await;
    control
        .wait_for_log("connection refused: too many are open")
        .await;
    control.wait_for_log("limit of connections per peer").await;

    // Loopback is not limited by peer, but all connections together are.
    let local = if peer.is_ipv4() { "127.0.0.1" } else { "::1" };
    let local = SocketAddr::new(local.parse().unwrap(), peer.port());
    for _ in 0..2 {
        held.push(dial(local).await);
    }
    open(5.0).await;
    assert!(is_closed(dial(local).await).await);
    refused([1.0, 1.0]).await;
    // At most one line a second is written, so it may belong to a later attempt.
    wait_until("the limit of all is logged", async || {
        assert!(is_closed(dial(local).await).await);
        control.log().contains("reason=\"limit of connections\"")
    })
    .await;

    // A connection that closes makes room.
    drop(held);
    open(0.0).await;
    let _served = dial(peer).await;
    open(1.0).await;
}

/// Waits until the server closes a connection; false if it sends something.
async fn is_closed(mut socket: TcpStream) -> bool {
    let read = tokio::time::timeout(TIMEOUT, socket.read(&mut [0; 1])).await;
    !matches!(read.expect("the server closes it"), Ok(count) if count > 0)
}
