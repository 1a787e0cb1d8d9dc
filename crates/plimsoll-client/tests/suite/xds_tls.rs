//! TLS to the management server: a bootstrap with `channel_creds` of type `tls`, and a server
//! behind rustls.
#![cfg(all(feature = "tls-ring", feature = "xds"))]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::support::management::Management;
use crate::support::resources::whole;
use crate::support::{Backend, get, within};
use plimsoll_client::{Client, XdsOptions, XdsState};
use plimsoll_testing::Authority;
use plimsoll_testing::tasks::wait_for;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.collect::<Result<_, _>>().unwrap()
}

/// A TLS terminator in front of `server`; requires a client certificate of `authority`.
async fn tls_terminator(authority: &Authority, names: &[&str], server: SocketAddr) -> SocketAddr {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&authority.pem));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (certificate, key) = authority.issue(names);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            certificates(&certificate),
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await?;
                let mut inside = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    address
}

/// Writes a certificate of `authority`, its key and the CA to `folder`, and returns `channel_creds`
/// with these files.
fn credentials(folder: &Path, authority: &Authority) -> Value {
    let (certificate, key) = authority.issue(&[]);
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    json!({"type": "tls", "config": {
        "ca_certificate_file": write("ca.pem", &authority.pem),
        "certificate_file": write("certificate.pem", &certificate),
        "private_key_file": write("key.pem", &key),
        "refresh_interval": "600s",
    }})
}

fn client(server: SocketAddr, channel_creds: &[Value]) -> Client {
    let bootstrap = json!({
        "xds_servers": [{"server_uri": server.to_string(), "channel_creds": channel_creds}],
        "node": {"id": "n1", "cluster": "fleet", "locality": {"zone": "a"}},
    });
    let options = XdsOptions::from_bootstrap(&bootstrap.to_string()).unwrap();
    Client::builder().xds(options).build().unwrap()
}

const LOOPBACK: &[&str] = &["127.0.0.1"];

/// Error of the discovery stream.
async fn stream_error(client: &Client) -> String {
    wait_for("a rejection", async || {
        match client.xds_status().unwrap().state {
            XdsState::Disconnected { message } => Some(message),
            _ => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_valid_server_certificate_is_accepted() {
    let backend = Backend::start().await;
    let server = Management::start(&whole("orders", &[("a", &[backend.address])]));
    let authority = Authority::new();
    let address = tls_terminator(&authority, LOOPBACK, server.address).await;
    let folder = tempfile::tempdir().unwrap();
    // The first supported type is used (gRFC A27).
    let credentials = credentials(folder.path(), &authority);
    let client = client(address, &[json!({"type": "google_default"}), credentials]);
    let mut orders = within(client.target("xds:///orders")).await.unwrap();
    let (status, body) = get(&mut orders, "/").await.unwrap();
    assert_eq!((status, body), (200, backend.address.to_string()));
    // Load reports use TLS, too. Requests count from the server's first LRS response.
    wait_for("a report", async || {
        get(&mut orders, "/").await.unwrap();
        (server.reported("orders").issued > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn other_authorities_and_names_are_rejected() {
    let server = Management::start(&[]);
    let (ours, theirs) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let credentials = [credentials(folder.path(), &ours)];
    let stranger = tls_terminator(&theirs, LOOPBACK, server.address).await;
    let message = stream_error(&client(stranger, &credentials)).await;
    assert!(message.contains("invalid peer certificate"), "{message}");
    let other = tls_terminator(&ours, &["control.test"], server.address).await;
    let message = stream_error(&client(other, &credentials)).await;
    assert!(message.contains("not valid for name"), "{message}");
    // Files are read for every connection, so a missing one is an error of the stream.
    std::fs::remove_file(folder.path().join("ca.pem")).unwrap();
    let message = stream_error(&client(other, &credentials)).await;
    assert!(message.contains("ca.pem"), "{message}");
}
