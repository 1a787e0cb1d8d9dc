//! The cryptography of TLS is the program's choice: a provider that it installs for the process.
//!
//! In a file of its own because the installed provider is that of the whole process. Providers of
//! the features are tested in `src/upstream/tls`.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "this program uses a part")]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_client::{Client, Cluster, Tls};
use plimsoll_testing::Authority;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CipherSuite, ServerConfig};
use support::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Only this suite is in the installed provider; no provider of a feature would choose it.
const SUITE: CipherSuite = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;

/// A server that responds with the cipher suite of the connection.
async fn suite_server(authority: &Authority) -> SocketAddr {
    let (certificate, key) = authority.issue(&["127.0.0.1"]);
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap();
        let body = format!("{:?}", suite.suite());
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(response.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        // Keeps the connection open until the client closes it.
        drop(stream.read_u8().await);
    });
    address
}

#[tokio::test]
async fn an_installed_provider_is_used() {
    let mut installed = ring::default_provider();
    installed
        .cipher_suites
        .retain(|suite| suite.suite() == SUITE);
    CryptoProvider::install_default(installed).unwrap();
    let authority = Authority::new();
    let address = suite_server(&authority).await;
    let tls = Tls::with_ca_pem(authority.pem.clone());
    let orders = Cluster::new("orders").zone("a", [address]).tls(tls);
    let client = Client::builder().cluster(orders).build().unwrap();
    let mut service = client.service("orders").unwrap();
    let (_, suite) = get(&mut service, "/").await.unwrap();
    assert_eq!(suite, format!("{SUITE:?}"));
}
