//! TLS of listeners: loads certificates and keys into a rustls configuration. When one of these
//! files changes, `run` rebuilds the listener's configuration.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::{Codec, PemSource, TlsConfig};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reason why a certificate or key of a listener cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub(crate) struct TlsError {
    /// Path of the certificate or key file, or `inline_string`.
    file: String,
    problem: &'static str,
    source: Option<BoxError>,
}

impl TlsError {
    fn caused<E: Into<BoxError>>(pem: &PemSource, problem: &'static str) -> impl Fn(E) -> Self {
        move |source| Self {
            source: Some(source.into()),
            ..Self::new(pem, problem)
        }
    }

    fn new(pem: &PemSource, problem: &'static str) -> Self {
        let file = match pem {
            PemSource::Inline(_) => "inline_string".to_owned(),
            PemSource::File(path) => path.display().to_string(),
        };
        Self {
            file,
            problem,
            source: None,
        }
    }
}

/// TLS configuration of a listener, with the certificate that it presents.
pub(crate) struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificate: CertificateDer<'static>,
}

pub(crate) fn server_tls(config: &TlsConfig, codec: Codec) -> Result<ServerTls, TlsError> {
    let chain = certificates(&config.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&config.key)?)
        .map_err(TlsError::caused(&config.key, "invalid private key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = TlsError::caused(&config.certificate, "unusable certificate or key");
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(&unusable)?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                let added = roots.add(certificate);
                added.map_err(TlsError::caused(ca, "invalid CA certificate"))?;
            }
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            if !config.require_client_certificate {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build();
            let unverifiable = TlsError::caused(ca, "cannot verify client certificates");
            builder.with_client_cert_verifier(verifier.map_err(unverifiable)?)
        }
    };
    let certificate = (chain.first().cloned())
        .ok_or_else(|| TlsError::new(&config.certificate, "no certificate"))?;
    let server = builder.with_single_cert(chain, key);
    let mut server = server.map_err(unusable)?;
    server.alpn_protocols = alpn(config, codec);
    Ok(ServerTls {
        config: Arc::new(server),
        certificate,
    })
}

fn alpn(config: &TlsConfig, codec: Codec) -> Vec<Vec<u8>> {
    if !config.alpn.is_empty() {
        let configured = config.alpn.iter();
        return configured.map(|name| name.as_bytes().to_vec()).collect();
    }
    match codec {
        Codec::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Codec::Http1 => vec![b"http/1.1".to_vec()],
        Codec::Http2 => vec![b"h2".to_vec()],
    }
}

pub(crate) fn files(config: &TlsConfig) -> impl Iterator<Item = &PathBuf> {
    let sources = [
        Some(&config.certificate),
        Some(&config.key),
        config.client_ca.as_ref(),
    ];
    sources
        .into_iter()
        .flatten()
        .filter_map(|source| match source {
            PemSource::File(path) => Some(path),
            PemSource::Inline(_) => None,
        })
}

fn certificates(pem: &PemSource) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(&read(pem)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(TlsError::caused(pem, "invalid certificate"))?;
    if chain.is_empty() {
        return Err(TlsError::new(pem, "no certificate"));
    }
    Ok(chain)
}

fn read(pem: &PemSource) -> Result<Vec<u8>, TlsError> {
    match pem {
        PemSource::Inline(text) => Ok(text.as_bytes().to_vec()),
        PemSource::File(path) => fs::read(path).map_err(TlsError::caused(pem, "cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(alpn: &[&str]) -> TlsConfig {
        TlsConfig {
            certificate: PemSource::File("chain.pem".into()),
            key: PemSource::Inline(String::new()),
            alpn: alpn.iter().map(|name| (*name).to_owned()).collect(),
            client_ca: Some(PemSource::File("ca.pem".into())),
            require_client_certificate: false,
        }
    }

    #[test]
    fn protocols_are_those_configured_or_else_those_of_the_codec() {
        let names = |config: &TlsConfig, codec| {
            let names = alpn(config, codec).into_iter();
            let names: Vec<String> = names.map(|name| String::from_utf8(name).unwrap()).collect();
            names.join(" ")
        };
        let unset = config(&[]);
        assert_eq!(names(&unset, Codec::Auto), "h2 http/1.1");
        assert_eq!(names(&unset, Codec::Http1), "http/1.1");
        assert_eq!(names(&unset, Codec::Http2), "h2");
        let set = config(&["http/1.1", "x"]);
        assert_eq!(names(&set, Codec::Auto), "http/1.1 x");
    }

    #[test]
    fn files_of_certificates_are_listed() {
        let listed: Vec<PathBuf> = files(&config(&[])).cloned().collect();
        assert_eq!(listed, [PathBuf::from("chain.pem"), "ca.pem".into()]);
    }

    #[test]
    fn missing_files_and_empty_texts_are_errors_that_name_them() {
        let missing = PemSource::File("/nonexistent/chain.pem".into());
        let error = read(&missing).unwrap_err();
        assert!(std::error::Error::source(&error).is_some());
        assert!(
            error.to_string().contains("/nonexistent/chain.pem"),
            "{error}"
        );
        assert!(certificates(&PemSource::Inline(String::new())).is_err());
        assert_eq!(read(&PemSource::Inline("a".to_owned())).unwrap(), b"a");
    }
}
