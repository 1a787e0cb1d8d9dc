//! [`UpstreamTls`]: how endpoints prove who they are, and how we do.
//!
//! Certificates are named, not loaded: files are read by whoever connects.

use bytes::Bytes;

use crate::string_match::StringMatcher;

/// `UpstreamTlsContext`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTls {
    /// Server name that is asked for; empty is none.
    pub sni: String,
    /// The server name is the hostname of the endpoint, where it has one.
    pub auto_host_sni: bool,
    /// The certificate must be for the server name.
    pub auto_sni_san_validation: bool,
    /// Who may have signed the certificate of an endpoint.
    pub ca: TrustedCa,
    /// Our own certificate.
    pub certificate: Option<CertificatePair>,
    /// `alpn_protocols`.
    pub alpn: Vec<String>,
    /// Alternative names of which one must match; empty matches all.
    pub match_subject_alt_names: Vec<SanMatcher>,
}

/// Who may have signed the certificate of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrustedCa {
    /// Neither `trusted_ca` nor `system_root_certs`: as in Envoy, certificates are not verified.
    #[default]
    Unverified,
    /// `system_root_certs`.
    System,
    /// `trusted_ca`: certificates in PEM.
    Pem(DataSource),
}

/// `TlsCertificate`: a chain and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePair {
    /// `certificate_chain`.
    pub certificate_chain: DataSource,
    /// `private_key`.
    pub private_key: DataSource,
}

/// `DataSource`: where bytes are.
#[derive(Clone, PartialEq, Eq)]
pub enum DataSource {
    /// In this file.
    Filename(String),
    /// Here.
    Inline(Bytes),
    /// In this variable of the environment.
    EnvironmentVariable(String),
}

/// Keys may stand inline: their bytes are never shown.
impl std::fmt::Debug for DataSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Filename(name) => f.debug_tuple("Filename").field(name).finish(),
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::EnvironmentVariable(name) => {
                f.debug_tuple("EnvironmentVariable").field(name).finish()
            }
        }
    }
}

/// `SubjectAltNameMatcher`.
#[derive(Clone, Debug, PartialEq)]
pub struct SanMatcher {
    /// Which kind of name; `None` is any of them.
    pub san_type: Option<SanType>,
    /// The name.
    pub matcher: StringMatcher,
}

/// `SubjectAltNameMatcher.SanType`, the kinds we have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SanType {
    /// An email address.
    Email,
    /// A DNS name.
    Dns,
    /// A URI.
    Uri,
    /// An address.
    IpAddress,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let key = DataSource::Inline(Bytes::from_static(b"secret"));
        assert_eq!(format!("{key:?}"), "Inline(6 bytes)");
        let file = DataSource::Filename("ca.pem".into());
        assert_eq!(format!("{file:?}"), "Filename(\"ca.pem\")");
    }

    #[test]
    fn nothing_is_verified_unless_somebody_says_how() {
        assert_eq!(UpstreamTls::default().ca, TrustedCa::Unverified);
    }
}
