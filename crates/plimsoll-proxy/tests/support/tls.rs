//! A certificate authority and TLS clients.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Proxy;

pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate,
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Issues a certificate; returns it and its key in PEM format.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        self.issue_with_uri(name, None)
    }

    pub(crate) fn issue_with_uri(&self, name: &str, uri: Option<&str>) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        if let Some(uri) = uri {
            let uri = rcgen::SanType::URI(uri.try_into().unwrap());
            params.subject_alt_names.push(uri);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A connector without a client certificate.
    pub(crate) fn connector(&self, alpn: &[&str]) -> TlsConnector {
        self.connector_as(alpn, None)
    }

    /// A connector that presents a certificate and its key.
    pub(crate) fn connector_as(
        &self,
        alpn: &[&str],
        own: Option<&(String, String)>,
    ) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        roots.add(certificate(&self.pem())).unwrap();
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
