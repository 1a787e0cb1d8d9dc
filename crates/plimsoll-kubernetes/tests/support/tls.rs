//! TLS in front of the scripted API server: certificates of a test authority, and a listener that
//! ends TLS and passes bytes on.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Certificate authority of a test.
pub struct Authority {
    pub pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

/// Certificate and private key of a server, in PEM format.
pub struct ServerCertificate {
    certificate: String,
    key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let subject = &mut params.distinguished_name;
        subject.push(rcgen::DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// Issues a certificate for a name or an address, valid until the end of a year.
    pub fn issue(&self, name: &str, last_year: i32) -> ServerCertificate {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        ServerCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A listener that ends TLS; closed with its connections when dropped.
pub struct TlsFront {
    pub address: SocketAddr,
    target: SocketAddr,
    running: JoinHandle<()>,
}

impl TlsFront {
    pub async fn start(target: SocketAddr, certificate: &ServerCertificate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            target,
            running: tokio::spawn(serve(listener, target, acceptor(certificate))),
        }
    }

    /// Closes all connections and serves another certificate on the same address.
    pub async fn restart(&mut self, certificate: &ServerCertificate) {
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

fn acceptor(certificate: &ServerCertificate) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
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
