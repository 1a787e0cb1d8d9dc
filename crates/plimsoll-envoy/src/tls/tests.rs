//! Tests of TLS settings and of handshakes with a server that requires client certificates.

use std::net::SocketAddr;

use plimsoll_testing::Authority;
use plimsoll_xds::upstream::CertificatePair;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const SERVER: &str = "control.test";

fn inline(text: &str) -> DataSource {
    DataSource::Inline(text.to_owned().into_bytes().into())
}

/// Starts a server that requires certificates of `authority` and answers one byte.
async fn serve(authority: &Authority) -> SocketAddr {
    let (chain, key) = authority.issue(&[SERVER]);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&inline(&authority.pem)).unwrap() {
        roots.add(certificate).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            certificates(&inline(&chain)).unwrap(),
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            if let Ok(mut stream) = acceptor.accept(socket).await {
                let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
                assert_eq!(protocol.as_deref(), Some(&b"h2"[..]));
                let _ = stream.write_all(b"!").await;
            }
        }
    });
    address
}

/// Connects with these settings and reads the server's byte.
async fn connect(to: SocketAddr, tls: UpstreamTls) -> io::Result<u8> {
    let uri = format!("http://{to}").parse().unwrap();
    let mut socket = TlsConnector::try_new(tls).unwrap().connect(&uri).await?;
    // With TLS 1.3, a server refuses the client's certificate after the handshake.
    socket.read_u8().await
}

fn settings(authority: &Authority, client: Option<(String, String)>) -> UpstreamTls {
    UpstreamTls {
        ca: TrustedCa::Pem(inline(&authority.pem)),
        certificate: client.map(|(chain, key)| CertificatePair {
            certificate_chain: inline(&chain),
            private_key: inline(&key),
        }),
        sni: SERVER.to_owned(),
        ..UpstreamTls::default()
    }
}

#[tokio::test]
async fn both_sides_are_verified() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = serve(&authority).await;
    let own = || Some(authority.issue(&["gateway"]));
    let connected = connect(server, settings(&authority, own())).await;
    assert_eq!(connected.unwrap(), b'!');
    let refused = [
        ("another CA of the server", settings(&other, own())),
        ("no client certificate", settings(&authority, None)),
        (
            "a client certificate of another CA",
            settings(&authority, Some(other.issue(&["gateway"]))),
        ),
        (
            "another name of the server",
            UpstreamTls {
                sni: "other.test".to_owned(),
                ..settings(&authority, own())
            },
        ),
    ];
    for (why, tls) in refused {
        assert!(connect(server, tls).await.is_err(), "{why}");
    }
}

#[test]
fn the_server_is_always_verified() {
    let error = TlsConnector::try_new(UpstreamTls::default()).unwrap_err();
    assert!(error.to_string().contains("trusted_ca"), "{error}");
}

#[test]
fn errors_name_the_file() {
    let tls = UpstreamTls {
        ca: TrustedCa::Pem(DataSource::Filename("no-such-file.pem".to_owned())),
        ..UpstreamTls::default()
    };
    let error = TlsConnector::try_new(tls).unwrap().config().unwrap_err();
    assert!(error.to_string().contains("no-such-file.pem"), "{error}");
    let inline = UpstreamTls {
        ca: TrustedCa::Pem(inline("no certificate")),
        ..UpstreamTls::default()
    };
    assert!(TlsConnector::try_new(inline).unwrap().config().is_ok());
}
