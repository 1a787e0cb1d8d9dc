//! Tests of accepted connections over loopback, with and without TLS.

use std::sync::Arc;

use plimsoll_testing::Authority;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::*;
use crate::tls::tests::sources;
use crate::tls::{
    ClientTlsSettings, PemSource, ServerTlsSettings, client_tls, server_tls_without_resumption,
};

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 10,
    per_peer: 10,
};

struct Server {
    incoming: Incoming,
    address: SocketAddr,
    stats: Arc<ConnectionStats>,
}

async fn start(handshake_timeout: Duration, tls: Option<ServerTlsSettings>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = tls.map(|settings| {
        let load = move || server_tls_without_resumption(&settings);
        Arc::new(WatchedTls::start("test", Vec::new(), load).unwrap())
    });
    let options = IncomingOptions {
        name: "test",
        limits: LIMITS,
        handshake_timeout,
        tls,
    };
    let stats = Arc::new(ConnectionStats::default());
    Server {
        incoming: Incoming::start(listener, options, Arc::clone(&stats)),
        address,
        stats,
    }
}

fn mutual(ca: &Authority) -> ServerTlsSettings {
    let (certificate, key) = sources(&ca.issue(&["localhost", "spiffe://td/control"]));
    ServerTlsSettings {
        certificate,
        key,
        client_ca: Some(PemSource::Inline(ca.pem.clone())),
        require_client_certificate: true,
        alpn: vec!["h2".to_owned()],
    }
}

async fn connect(
    address: SocketAddr,
    ca: &Authority,
    pair: Option<&(String, String)>,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let settings = ClientTlsSettings {
        ca: PemSource::Inline(ca.pem.clone()),
        certificate: pair.map(sources),
        alpn: vec!["h2".to_owned()],
    };
    let connector = TlsConnector::from(client_tls(&settings).unwrap());
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await?;
    // In TLS 1.3 the server's verdict on the client's certificate arrives with its first bytes.
    stream.write_all(b"hello").await?;
    Ok(stream)
}

fn refused(stats: &ConnectionStats, reason: &str) -> u64 {
    let refused = stats.refused();
    refused.iter().find(|(name, _)| *name == reason).unwrap().1
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate() {
    let ca = Authority::new();
    let mut server = start(Duration::from_secs(30), Some(mutual(&ca))).await;
    let pair = ca.issue(&["localhost", "spiffe://td/gateway"]);
    let mut client = connect(server.address, &ca, Some(&pair)).await.unwrap();
    let mut accepted = server.incoming.next().await;
    let identity = accepted.identity.clone().unwrap();
    assert_eq!(identity.uris, ["spiffe://td/gateway"]);
    assert_eq!(identity.dns_names, ["localhost"]);
    let mut text = [0; 5];
    accepted.stream.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"hello");
    accepted.stream.write_all(b"you").await.unwrap();
    accepted.stream.flush().await.unwrap();
    let mut text = [0; 3];
    client.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"you");
    assert_eq!(server.stats.open(), 1);
    drop(accepted);
    assert_eq!(server.stats.open(), 0);
}

#[tokio::test]
async fn clients_of_another_authority_or_without_certificate_are_refused() {
    let (ca, other) = (Authority::new(), Authority::new());
    let server = start(Duration::from_secs(30), Some(mutual(&ca))).await;
    let foreign = other.issue(&["localhost", "spiffe://td/gateway"]);
    for pair in [None, Some(&foreign)] {
        let mut buffer = [0; 1];
        let read = match connect(server.address, &ca, pair).await {
            Ok(mut client) => client.read(&mut buffer).await,
            Err(error) => Err(error),
        };
        assert!(read.is_err(), "{read:?}");
    }
    while refused(&server.stats, "handshake_failed") < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.stats.open(), 0);
}

#[tokio::test]
async fn a_silent_client_is_disconnected_and_delays_nobody() {
    let ca = Authority::new();
    let mut server = start(Duration::from_millis(200), Some(mutual(&ca))).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let pair = ca.issue(&["localhost", "spiffe://td/gateway"]);
    let _client = connect(server.address, &ca, Some(&pair)).await.unwrap();
    assert!(server.incoming.next().await.identity.is_some());
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    while refused(&server.stats, "handshake_timeout") < 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn plain_connections_have_no_identity_and_close_ends_the_listener() {
    let mut server = start(Duration::from_secs(30), None).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let accepted = server.incoming.next().await;
    assert_eq!(accepted.identity, None);
    assert_eq!(accepted.peer, client.local_addr().unwrap());
    assert!(accepted.stream.tcp().nodelay().unwrap());
    drop(accepted);
    assert_eq!(client.read(&mut [0; 1]).await.unwrap_or(0), 0);
    server.incoming.close().await;
    assert!(TcpStream::connect(server.address).await.is_err());
}
