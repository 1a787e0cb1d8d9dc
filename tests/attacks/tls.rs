//! Listeners and the relay with TLS, over sockets: who has the right certificate is served, anybody
//! else is not.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use plimsoll_serve::{ClientTlsSettings, PemSource, client_tls};
use plimsoll_testing::Authority;
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::driver::STREAM_AGGREGATED_RESOURCES;
use plimsoll_xds::wire::decode_discovery_response;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::support::{Control, Peer, exchange, field, node, text};

const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Issues a certificate for `localhost` with a URI.
pub(super) fn issue(authority: &Authority, uri: &str) -> (String, String) {
    authority.issue(&["localhost", uri])
}

/// Writes `NAME.pem`, `NAME.key` and `ca.pem`.
pub(super) fn write(authority: &Authority, directory: &Path, name: &str, uri: &str) {
    let (certificate, key) = issue(authority, uri);
    fs::write(directory.join(format!("{name}.pem")), certificate).unwrap();
    fs::write(directory.join(format!("{name}.key")), key).unwrap();
    fs::write(directory.join("ca.pem"), &authority.pem).unwrap();
}

/// Connects to a listener, and trusts an authority.
pub(super) async fn connect(
    authority: &Authority,
    address: SocketAddr,
    certificate: Option<(String, String)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_alpn(authority, address, certificate, "http/1.1").await
}

/// Opens a connection of HTTP/2 with the certificate of a node.
async fn tls_peer(authority: &Authority, address: SocketAddr, uri: &str) -> Peer {
    let certificate = Some(issue(authority, uri));
    let socket = connect_alpn(authority, address, certificate, "h2").await;
    Peer::handshake(socket.unwrap(), &h2::client::Builder::new()).await
}

async fn connect_alpn(
    authority: &Authority,
    address: SocketAddr,
    certificate: Option<(String, String)>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let inline = |(chain, key)| (PemSource::Inline(chain), PemSource::Inline(key));
    let config = client_tls(&ClientTlsSettings {
        ca: PemSource::Inline(authority.pem.clone()),
        certificate: certificate.map(inline),
        alpn: vec![protocol.to_owned()],
    });
    let connector = TlsConnector::from(Arc::clone(&config.unwrap()));
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, socket).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_api_is_served_with_tls_and_with_new_certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    let config = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n\
        admin_tls: {certificate: admin.pem, private_key: admin.key, client_ca: ca.pem}\n\
        admin_identities: [{uri: 'spiffe://td/operator'}]\n";
    let mut directory = std::path::PathBuf::new();
    let control = Control::start_with(config, |path| {
        write(&authority, path, "admin", "spiffe://td/control");
        path.clone_into(&mut directory);
    });
    let ready =
        async |socket| exchange(socket, control.admin, "GET", "/readyz", String::new()).await;
    for certificate in [None, Some(issue(&authority, "spiffe://td/operator"))] {
        let socket = connect(&authority, control.admin, certificate)
            .await
            .unwrap();
        assert_eq!(ready(socket).await, (200, "ready\n".to_owned()));
    }
    // A client trusts one authority only, and the server likewise.
    assert!(connect(&other, control.admin, None).await.is_err());
    let stranger = issue(&other, "spiffe://td/operator");
    if let Ok(socket) = connect(&authority, control.admin, Some(stranger)).await {
        // With TLS 1.3 the client learns with its first read that it was refused.
        assert!(response(socket, control.admin).await.is_empty());
    }
    let plain = TcpStream::connect(control.admin).await.unwrap();
    assert!(!response(plain, control.admin).await.contains("200 OK"));
    control.wait_for_log("TLS handshake failed").await;

    // Certificates of another authority take effect without a restart.
    write(&other, &directory, "admin", "spiffe://td/control");
    wait_until("the new certificate", async || {
        connect(&other, control.admin, None).await.is_ok()
    })
    .await;
    let socket = connect(&other, control.admin, None).await.unwrap();
    assert_eq!(ready(socket).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_tls_handshake_is_closed_counted_and_logged() {
    let authority = Authority::new();
    let config = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n\
        tls: {certificate: xds.pem, private_key: xds.key}\nlimits: {handshake_timeout: 0.2s}\n";
    let control = Control::start_with(config, |path| {
        write(&authority, path, "xds", "spiffe://td/control");
    });
    let mut silent = TcpStream::connect(control.xds).await.unwrap();
    let mut read = Vec::new();
    // The server closes it, perhaps with a reset.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut read).await;
    assert!(read.is_empty(), "{read:?}");
    control
        .wait_for_metric("connections_refused_total{listener=\"xds\",reason=\"handshake_timeout\"}")
        .await;
    control
        .wait_for_log("connection closed: handshake or first request timed out")
        .await;
}

/// Sends a request; returns what was received until the connection ended.
async fn response(
    mut socket: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    address: SocketAddr,
) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut received = Vec::new();
    if socket.write_all(request.as_bytes()).await.is_ok() {
        // Refused connections end with an error.
        let _ = socket.read_to_end(&mut received).await;
    }
    String::from_utf8_lossy(&received).into_owned()
}

/// A control plane with mutual TLS that lets the relay's certificate be any node.
fn upstream(authority: &Authority) -> Control {
    let config = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n\
        tls: {certificate: server.pem, private_key: server.key, client_ca: ca.pem}\n\
        identities: [{name: relay, uri: 'spiffe://td/relay'}]\n\
        services: [{cluster: {name: orders}}]\n";
    Control::start_with(config, |path| {
        write(authority, path, "server", "spiffe://td/control");
    })
}

/// A relay of `upstream` with a certificate of `authority`.
fn relay(upstream: &Control, authority: &Authority, trusted: &Authority, uri: &str) -> Control {
    let port = upstream.xds.port();
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n\
         relay: {{address: 'localhost:{port}', max_connections: 2, \
           tls: {{ca: trusted.pem, certificate: relay.pem, private_key: relay.key}}}}\n"
    );
    Control::start_with(&config, |path| {
        write(authority, path, "relay", uri);
        fs::write(path.join("trusted.pem"), &trusted.pem).unwrap();
    })
}

async fn clusters(peer: &mut Peer, id: &str) -> (super::support::Stream, Option<String>) {
    let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
    let request = [field(2, &node(id, "edge", "zone-a")), text(4, CLUSTERS)].concat();
    stream.send(&request).await;
    let end = stream.response_or_end().await;
    (stream, end)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_reads_and_replaces_only_what_its_certificate_allows() {
    let authority = Authority::new();
    let config = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n\
        tls: {certificate: server.pem, private_key: server.key, client_ca: ca.pem}\n\
        identities: [{name: all, uri: 'spiffe://td/{who}', services: [orders]}]\n\
        services: [{cluster: {name: orders}}, {cluster: {name: payments}}]\n";
    let control = Control::start_with(config, |path| {
        write(&authority, path, "server", "spiffe://td/control");
    });
    let request = |fleet: &str| {
        let node = field(2, &node("1", fleet, "zone-a"));
        [node, text(4, CLUSTERS)].concat()
    };
    let mut peer = tls_peer(&authority, control.xds, "spiffe://td/one").await;
    let mut held = Vec::new();
    for fleet in ["edge", "payments"] {
        let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
        stream.send(&request(fleet)).await;
        let response = decode_discovery_response(stream.message().await).unwrap();
        assert_eq!(response.resources.len(), 1, "{fleet}: {response:?}");
        held.push(stream);
    }
    // The same address with another certificate is another peer; the same certificate is not.
    for (uri, is_refused) in [("spiffe://td/two", true), ("spiffe://td/one", false)] {
        let mut other = tls_peer(&authority, control.xds, uri).await;
        let mut stream = other.open(STREAM_AGGREGATED_RESOURCES).await;
        stream.send(&request("edge")).await;
        let end = stream.response_or_end().await;
        assert_eq!(end.is_some(), is_refused, "{end:?}");
        assert!(end.is_none_or(|end| end.starts_with("6: node.id: ")));
    }
    control.wait_for_log("spiffe://td/two").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_reaches_its_server_with_mutual_tls_and_opens_few_streams() {
    let authority = Authority::new();
    let upstream = upstream(&authority);
    let relay = relay(&upstream, &authority, &authority, "spiffe://td/relay");
    let mut peer = Peer::connect(relay.xds).await;
    let mut first = peer.open(STREAM_AGGREGATED_RESOURCES).await;
    let request = [field(2, &node("1", "edge", "zone-a")), text(4, CLUSTERS)].concat();
    first.send(&request).await;
    let response = decode_discovery_response(first.message().await).unwrap();
    assert_eq!(response.resources.len(), 1, "{response:?}");
    let (second, end) = clusters(&mut peer, "2").await;
    assert_eq!(end, None);
    let (_third, end) = clusters(&mut peer, "3").await;
    let end = end.expect("relay.max_connections is reached");
    assert!(end.starts_with("8: "), "{end}");
    relay
        .wait_for_value("relay_streams_refused_total", "1", |value| value == 1.0)
        .await;
    relay
        .wait_for_log("relayed stream refused: too many connections to the server")
        .await;
    // A stream that ends makes room.
    drop(second);
    wait_until("room", async || {
        let (_, end) = clusters(&mut peer, "4").await;
        end.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_passes_on_only_nodes_that_its_own_rules_allow() {
    let authority = Authority::new();
    let upstream = upstream(&authority);
    let port = upstream.xds.port();
    // The server trusts the relay to be any node, so the relay has to know its clients.
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n\
         tls: {{certificate: relay.pem, private_key: relay.key, client_ca: ca.pem}}\n\
         identities: [{{name: fleets, uri: 'spiffe://td/fleet/{{fleet}}', \
           fleets: ['{{fleet}}']}}]\n\
         relay: {{address: 'localhost:{port}', \
           tls: {{ca: ca.pem, certificate: relay.pem, private_key: relay.key}}}}\n"
    );
    let relay = Control::start_with(&config, |path| {
        write(&authority, path, "relay", "spiffe://td/relay");
    });
    let mut peer = tls_peer(&authority, relay.xds, "spiffe://td/fleet/edge").await;
    let (_open, end) = clusters(&mut peer, "honest").await;
    assert_eq!(end, None);
    let mut thief = tls_peer(&authority, relay.xds, "spiffe://td/fleet/other").await;
    let (_refused, end) = clusters(&mut thief, "thief").await;
    let end = end.expect("the rules refuse the node");
    assert!(end.starts_with("7: ") && end.contains("edge"), "{end}");
    relay
        .wait_for_log("node refused by the rules of identities")
        .await;
    let nodes = upstream.get("/api/v1/nodes").await;
    assert!(nodes.contains("honest"), "{nodes}");
    assert!(!nodes.contains("thief"), "{nodes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_and_its_server_refuse_each_other_without_the_right_certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    let upstream = upstream(&authority);
    // With TLS 1.3 a client is connected until it hears that its certificate was refused.
    let is_refused = async |relay: &Control| {
        wait_until("the relay is not connected", async || {
            relay.get("/readyz").await.contains("relay: 0 of ")
        })
        .await;
    };
    // A certificate of another authority: refused by the server.
    let stranger = relay(&upstream, &other, &authority, "spiffe://td/relay");
    let mut peer = Peer::connect(stranger.xds).await;
    let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
    let request = [field(2, &node("1", "edge", "zone-a")), text(4, CLUSTERS)].concat();
    stream.send(&request).await;
    upstream.wait_for_log("TLS handshake failed").await;
    is_refused(&stranger).await;
    // A server of another authority: refused by the relay.
    let careful = relay(&upstream, &authority, &other, "spiffe://td/relay");
    let mut peer = Peer::connect(careful.xds).await;
    let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
    stream.send(&request).await;
    wait_until("a failure", async || {
        let status = careful.get("/api/v1/status").await;
        status.contains("invalid peer certificate")
    })
    .await;
    is_refused(&careful).await;
    // Another identity: refused by a rule.
    let wrong = relay(&upstream, &authority, &authority, "spiffe://td/proxy");
    let mut peer = Peer::connect(wrong.xds).await;
    let mut stream = peer.open(STREAM_AGGREGATED_RESOURCES).await;
    stream.send(&request).await;
    upstream
        .wait_for_log("node refused by the rules of identities")
        .await;
    is_refused(&wrong).await;
}
