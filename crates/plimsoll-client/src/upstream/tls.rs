//! TLS to upstream hosts: client certificate, and verification of the server certificate.
//!
//! Verifies what Envoy verifies: nothing without a trusted CA, only the chain with one, and names
//! only where the settings ask for them. `connect` opens the socket.

use std::sync::Arc;

use plimsoll_xds::string_match::StringPattern;
use plimsoll_xds::upstream::{
    CertificatePair, DataSource, HttpVersion, SanMatcher, SanType, TrustedCa, UpstreamOptions,
    UpstreamTls,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::BoxError;
use crate::upstream::connect::DialTarget;

pub(crate) mod provider;

/// Limit of the size of certificate files; bundles of all public authorities have 250 KB.
const MAX_FILE_SIZE: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
#[error("{field}: {source}")]
pub(crate) struct TlsConfigError {
    field: String,
    source: BoxError,
}

impl TlsConfigError {
    fn new(field: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self {
            field: field.into(),
            source: source.into(),
        }
    }
}

pub(crate) struct Tls {
    http1: TlsConnector,
    http2: TlsConnector,
    sni: String,
    auto_host_sni: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("sni", &self.sni)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads certificates and keys. The error names the setting.
    pub(crate) fn try_new(
        tls: &UpstreamTls,
        options: &UpstreamOptions,
    ) -> Result<Self, TlsConfigError> {
        Self::with_provider(tls, options, provider::provider()?)
    }

    fn with_provider(
        tls: &UpstreamTls,
        options: &UpstreamOptions,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TlsConfigError> {
        let verifier = Arc::new(Verifier::try_new(tls, options, &provider)?);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::new("tls", error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &tls.certificate {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let (chain, key) = read_pair(pair)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| TlsConfigError::new("tls_certificates", error))?
            }
        };
        let mut connector = |protocol: &str| {
            let configured = tls.alpn.iter().map(|name| name.as_bytes().to_vec());
            config.alpn_protocols = configured.collect();
            if tls.alpn.is_empty() {
                config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            }
            TlsConnector::from(Arc::new(config.clone()))
        };
        Ok(Self {
            http1: connector("http/1.1"),
            http2: connector("h2"),
            sni: tls.sni.clone(),
            auto_host_sni: tls.auto_host_sni,
        })
    }

    pub(crate) async fn handshake(
        &self,
        stream: TcpStream,
        target: &DialTarget,
        version: HttpVersion,
    ) -> Result<TlsStream<TcpStream>, BoxError> {
        let name = self.server_name(target)?;
        let connector = match version {
            HttpVersion::Http1 => &self.http1,
            HttpVersion::Http2 => &self.http2,
        };
        Ok(connector.connect(name, stream).await?)
    }

    /// Returns the TLS server name: the request's host (`auto_sni`), the endpoint's host name
    /// (`auto_host_sni`) or the configured SNI; otherwise the IP address, for which no SNI is sent.
    fn server_name(&self, target: &DialTarget) -> Result<ServerName<'static>, BoxError> {
        let name = match &target.server_name {
            Some(name) => name,
            None if self.auto_host_sni && !target.hostname.is_empty() => &*target.hostname,
            None => self.sni.as_str(),
        };
        if name.is_empty() {
            let address = target.addresses.first().ok_or("the host has no address")?;
            return Ok(ServerName::from(address.ip()));
        }
        let invalid = |_| format!("{name:?} is not a valid TLS server name");
        Ok(ServerName::try_from(name.to_owned()).map_err(invalid)?)
    }
}

/// Reads the certificates and keys that the settings name, to refuse unusable ones early.
pub(crate) fn check_files(tls: &UpstreamTls) -> Result<(), TlsConfigError> {
    if matches!(tls.ca, TrustedCa::Pem(_)) {
        roots(&tls.ca)?;
    }
    tls.certificate.as_ref().map(read_pair).transpose()?;
    Ok(())
}

/// Certificate verifier that checks exactly what the cluster's validation context asks for.
#[derive(Debug)]
struct Verifier {
    /// `None` accepts certificates of any issuer.
    roots: Option<RootCertStore>,
    server_name: bool,
    alt_names: Vec<SanMatcher>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn try_new(
        tls: &UpstreamTls,
        options: &UpstreamOptions,
        provider: &CryptoProvider,
    ) -> Result<Self, TlsConfigError> {
        let email = |matcher: &SanMatcher| matcher.san_type == Some(SanType::Email);
        if tls.match_subject_alt_names.iter().any(email) {
            return Err(TlsConfigError::new(
                "match_typed_subject_alt_names",
                "email addresses are not supported",
            ));
        }
        Ok(Self {
            roots: roots(&tls.ca)?,
            server_name: tls.auto_sni_san_validation || options.auto_san_validation,
            alt_names: tls.match_subject_alt_names.clone(),
            algorithms: provider.signature_verification_algorithms,
        })
    }

    fn has_alt_name(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
            return false;
        };
        let mut matchers = self.alt_names.iter();
        matchers.any(|matcher| has_name(&certificate, matcher))
    }
}

fn has_name(certificate: &webpki::EndEntityCert<'_>, wanted: &SanMatcher) -> bool {
    let is = |kind| wanted.san_type.is_none_or(|wanted| wanted == kind);
    // An exact matcher also honors wildcard certificates, and compares IP addresses as such.
    if let StringPattern::Exact(name) = &wanted.matcher.pattern
        && let Ok(name) = ServerName::try_from(name.as_str())
    {
        let kind = match name {
            ServerName::IpAddress(_) => SanType::IpAddress,
            _ => SanType::Dns,
        };
        if is(kind) && certificate.verify_is_valid_for_subject_name(&name).is_ok() {
            return true;
        }
    }
    let matches = |name: &str| wanted.matcher.matches(name.as_bytes());
    (is(SanType::Dns) && certificate.valid_dns_names().any(matches))
        || (is(SanType::Uri) && certificate.valid_uri_names().any(matches))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if let Some(roots) = &self.roots {
            let all = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                all,
            )?;
        }
        if self.server_name {
            verify_server_name(&certificate, server_name)?;
        }
        if !self.alt_names.is_empty() && !self.has_alt_name(end_entity) {
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn roots(ca: &TrustedCa) -> Result<Option<RootCertStore>, TlsConfigError> {
    let invalid = |error: BoxError| TlsConfigError::new("trusted_ca", error);
    let mut roots = RootCertStore::empty();
    match ca {
        TrustedCa::Unverified => return Ok(None),
        TrustedCa::System => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
        TrustedCa::Pem(source) => {
            for certificate in certificates("trusted_ca", source)? {
                roots
                    .add(certificate)
                    .map_err(|error| invalid(error.into()))?;
            }
        }
    }
    if roots.is_empty() {
        return Err(invalid("contains no certificate".into()));
    }
    Ok(Some(roots))
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_pair(pair: &CertificatePair) -> Result<Pair, TlsConfigError> {
    let chain = certificates("certificate_chain", &pair.certificate_chain)?;
    let key = read("private_key", &pair.private_key)?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| TlsConfigError::new("private_key", error))?;
    Ok((chain, key))
}

fn certificates(
    field: &str,
    source: &DataSource,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let text = read(field, source)?;
    CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsConfigError::new(field, error))
}

fn read(field: &str, source: &DataSource) -> Result<Vec<u8>, TlsConfigError> {
    match source {
        DataSource::Inline(bytes) => Ok(bytes.to_vec()),
        DataSource::Filename(path) => {
            read_file(path).map_err(|error| TlsConfigError::new(format!("{field}: {path}"), error))
        }
        DataSource::EnvironmentVariable(name) => match std::env::var(name) {
            Ok(text) => Ok(text.into_bytes()),
            Err(error) => Err(TlsConfigError::new(format!("{field}: {name}"), error)),
        },
    }
}

/// Reads a regular file of limited size: a management server could name a device or a FIFO, which
/// would fill the memory or block.
fn read_file(path: &str) -> std::io::Result<Vec<u8>> {
    let invalid = |reason: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(invalid("is not a regular file".to_owned()));
    }
    if metadata.len() > MAX_FILE_SIZE {
        return Err(invalid(format!("has more than {MAX_FILE_SIZE} bytes")));
    }
    std::fs::read(path)
}

#[cfg(test)]
#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc-rs"))]
mod tests;
