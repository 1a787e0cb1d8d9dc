//! TLS settings of connections to endpoints.
//!
//! Certificates are referenced, not loaded: the data plane reads the files.

use bytes::Bytes;
use plimsoll_core::model::transport::SanType;

use crate::string_match::StringMatcher;

/// TLS client settings (`UpstreamTlsContext`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTls {
    /// Server name; empty sends none.
    pub sni: String,
    pub auto_host_sni: bool,
    pub auto_sni_san_validation: bool,
    pub ca: TrustedCa,
    pub certificate: Option<CertificatePair>,
    pub alpn: Vec<String>,
    /// Alternative names of which one must match; empty matches all.
    pub match_subject_alt_names: Vec<SanMatcher>,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Certificate authorities that endpoints are verified against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrustedCa {
    /// Neither `trusted_ca` nor `system_root_certs`: as in Envoy, certificates are not verified.
    #[default]
    Unverified,
    System,
    /// `trusted_ca`: certificates in PEM.
    Pem(DataSource),
}

/// Certificate chain and private key in PEM (`TlsCertificate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePair {
    pub certificate_chain: DataSource,
    pub private_key: DataSource,
}

/// Source of bytes (`DataSource`).
#[derive(Clone, PartialEq, Eq)]
pub enum DataSource {
    Filename(String),
    Inline(Bytes),
    EnvironmentVariable(String),
}

/// Never shows inline bytes, which may be a private key.
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

/// Alternative name condition (`SubjectAltNameMatcher`).
#[derive(Clone, Debug, PartialEq)]
pub struct SanMatcher {
    /// `None` matches any type.
    pub san_type: Option<SanType>,
    pub matcher: StringMatcher,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_keys_are_not_shown() {
        let key = DataSource::Inline(Bytes::from_static(b"secret"));
        assert_eq!(format!("{key:?}"), "Inline(6 bytes)");
        let file = DataSource::Filename("ca.pem".into());
        assert_eq!(format!("{file:?}"), "Filename(\"ca.pem\")");
    }

    #[test]
    fn certificates_are_not_verified_by_default() {
        assert_eq!(UpstreamTls::default().ca, TrustedCa::Unverified);
    }
}
