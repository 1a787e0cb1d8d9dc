//! TLS in front of the scripted API server: a listener that ends TLS and passes bytes on.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A listener that ends TLS; closed with its connections when dropped.
pub struct TlsFront {
    pub address: SocketAddr,
    target: SocketAddr,
    running: JoinHandle<()>,
}

impl TlsFront {
    pub async fn start(target: SocketAddr, certificate: &(String, String)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            target,
            running: tokio::spawn(serve(listener, target, acceptor(certificate))),
        }
    }

    /// Closes all connections and serves another certificate on the same address.
    pub async fn restart(&mut self, certificate: &(String, String)) {
        self.running.abort();
        let _ = (&mut self.running).await;
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                // Connections of before may still be closing.
                Err(_) => tokio::task::yield_now().await,
            }
        };
        self.running = tokio::spawn(serve(listener, self.target, acceptor(certificate)));
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn acceptor(certificate: &(String, String)) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_slice(certificate.0.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(certificate.1.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    Arc::new(config).into()
}

async fn serve(listener: TcpListener, target: SocketAddr, acceptor: TlsAcceptor) {
    // Dropping the set with this task closes all connections.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // A client that refuses the certificate ends the handshake.
            let Ok(mut client) = acceptor.accept(stream).await else {
                return;
            };
            let mut server = TcpStream::connect(target).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
