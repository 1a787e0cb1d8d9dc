//! TLS clients of the proxy, which trust the authority of a test.

use std::sync::Arc;

use plimsoll_testing::Authority;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Proxy;

/// A connector that trusts an authority, without a client certificate.
pub(crate) fn connector(authority: &Authority, alpn: &[&str]) -> TlsConnector {
    connector_as(authority, alpn, None)
}

/// A connector that presents a certificate and its key.
pub(crate) fn connector_as(
    authority: &Authority,
    alpn: &[&str],
    own: Option<&(String, String)>,
) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    roots.add(certificate(&authority.pem)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![certificate(chain)], key)
                .unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

pub(crate) async fn connect(
    proxy: &Proxy,
    connector: &TlsConnector,
    name: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(proxy.address()).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    connector.connect(name, stream).await
}
