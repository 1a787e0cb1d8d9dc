//! Hosts that speak another protocol than their cluster says: errors ask for the setting.
#![cfg(any(feature = "tls-ring", feature = "tls-aws-lc-rs"))]

use std::net::SocketAddr;

use crate::support::{Backend, within};
use plimsoll_client::{Client, Cluster, Error, ErrorKind, Request, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A server that answers the first bytes of each connection with `answer`, and closes it.
async fn answers(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut first = [0; 1024];
            drop(stream.read(&mut first).await);
            drop(stream.write_all(answer).await);
        }
    });
    address
}

async fn error_of(address: SocketAddr, set: impl FnOnce(Cluster) -> Cluster) -> Error {
    let orders = set(Cluster::new("orders").endpoints([address]));
    let client = Client::builder().cluster(orders).build().unwrap();
    let request = Request::get("/").body(()).unwrap();
    let sent = client.service("orders").unwrap().send(request);
    within(sent).await.unwrap_err()
}

#[tokio::test]
async fn errors_ask_for_the_setting_that_is_probably_wrong() {
    // A fatal alert of TLS 1.2, the first frame of HTTP/2, and what HTTP/1.1 says to a bad request.
    let tls = answers(&[0x15, 3, 3, 0, 2, 2, 10]).await;
    let silent_tls = answers(&[]).await;
    let http2 = answers(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    let http1 = answers(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let backend = Backend::start().await;
    let plain = backend.address;

    let error = error_of(plain, |cluster| {
        cluster.tls(Tls::dangerous_without_verification())
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Connect);
    let text = format!("cannot connect to {plain} of cluster orders; does the host speak TLS");
    assert!(error.to_string().starts_with(&text), "{error:#}");

    for (address, needed) in [(tls, "Cluster::tls"), (silent_tls, "Cluster::tls")] {
        let error = error_of(address, |cluster| cluster).await;
        assert!(error.to_string().contains(needed), "{error:#}");
        assert_eq!(error.address(), Some(address));
    }
    let error = error_of(http2, |cluster| cluster).await;
    assert!(error.to_string().contains("Cluster::http2"), "{error:#}");
    let error = error_of(http1, Cluster::http2).await;
    assert!(error.to_string().contains("speak HTTP/2"), "{error:#}");
    // A connection that is closed for no such reason gets no hint.
    let error = error_of(silent_tls, Cluster::http2).await;
    assert!(!error.to_string().contains('?'), "{error:#}");
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_refused_at_once() {
    let build = |tls: Tls| {
        let orders = Cluster::new("orders").endpoints(["10.0.0.1:443"]).tls(tls);
        let built = Client::builder().cluster(orders).build();
        built.map(drop).map_err(|error| error.to_string())
    };
    let missing = build(Tls::with_ca_file("/no/such/ca.pem")).unwrap_err();
    let start = "clusters[orders].tls.trusted_ca: /no/such/ca.pem: ";
    assert!(missing.starts_with(start), "{missing}");
    let empty = build(Tls::with_ca_pem("not a certificate")).unwrap_err();
    assert!(
        empty.contains("trusted_ca: contains no certificate"),
        "{empty}"
    );
    let pair = Tls::dangerous_without_verification().client_certificate("/no/chain", "/no/key");
    let missing = build(pair).unwrap_err();
    assert!(
        missing.contains("certificate_chain: /no/chain: "),
        "{missing}"
    );
    assert_eq!(build(Tls::dangerous_without_verification()), Ok(()));
}
