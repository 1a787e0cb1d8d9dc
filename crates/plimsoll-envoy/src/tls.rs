//! TLS to the management server, with the settings of Envoy's `UpstreamTlsContext`.
//!
//! Files are read for every connection, so renewed certificates take effect with the next one.

use std::io;
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use plimsoll_core::units::FieldError;
use plimsoll_xds::driver::{Connecting, Connector, connect_tls};
use plimsoll_xds::upstream::{DataSource, TrustedCa, UpstreamTls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Dials a management server with TLS.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsConnector(Arc<UpstreamTls>);

impl TlsConnector {
    /// Checks the settings: the server is always verified against a given CA.
    pub fn try_new(tls: UpstreamTls) -> Result<Self, FieldError> {
        let context = |field: &str, reason: &str| {
            let path = format!("typed_config.common_tls_context.{field}");
            FieldError::new(path, reason)
        };
        if !matches!(tls.ca, TrustedCa::Pem(_)) {
            let reason = "must be set: the control plane is always verified";
            return Err(context("validation_context.trusted_ca", reason));
        }
        if !tls.match_subject_alt_names.is_empty() {
            let field = "validation_context.match_typed_subject_alt_names";
            let reason = "is not supported here: the certificate must have the name in sni";
            return Err(context(field, reason));
        }
        Ok(Self(Arc::new(tls)))
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        if let TrustedCa::Pem(source) = &self.0.ca {
            for certificate in certificates(source)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let mut config = match &self.0.certificate {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(&read(&pair.private_key)?)
                    .map_err(io::Error::other)?;
                let chain = certificates(&pair.certificate_chain)?;
                let built = builder.with_client_auth_cert(chain, key);
                built.map_err(io::Error::other)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn read(source: &DataSource) -> io::Result<Vec<u8>> {
    match source {
        DataSource::Filename(name) => std::fs::read(name)
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}"))),
        DataSource::Inline(bytes) => Ok(bytes.to_vec()),
        DataSource::EnvironmentVariable(name) => std::env::var(name)
            .map(String::into_bytes)
            .map_err(io::Error::other),
    }
}

fn certificates(source: &DataSource) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(&read(source)?)
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)
}

impl Connector for TlsConnector {
    fn connect(&self, uri: &Uri) -> Connecting {
        let server_name = Some(&*self.0.sni).filter(|sni| !sni.is_empty());
        connect_tls(uri, server_name, self.config().map(Arc::new))
    }

    fn scheme(&self) -> Scheme {
        Scheme::HTTPS
    }
}

#[cfg(test)]
mod tests;
