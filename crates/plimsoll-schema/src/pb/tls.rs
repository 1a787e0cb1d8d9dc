//! `envoy.extensions.transport_sockets.tls.v3` and string matchers.

use bytes::Bytes;
use plimsoll_core::model::transport::SanType;
use plimsoll_schema_derive::Described;
use prost::Message;

use super::ConfigSourceMessage;
use super::enums::{TlsProtocol, TrustChainVerification};

/// `UpstreamTlsContext`: TLS of connections to hosts.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext")]
pub struct UpstreamTlsMessage {
    /// Certificates, validation of hosts and ALPN protocols.
    #[prost(message, optional, tag = "1")]
    pub common_tls_context: Option<CommonTlsMessage>,
    /// Server name (SNI) sent in the TLS handshake.
    #[prost(string, tag = "2")]
    pub sni: String,
    /// Allow renegotiation that the host initiates (TLS 1.2).
    #[prost(bool, tag = "3")]
    #[schema(unread = "unused")]
    pub allow_renegotiation: bool,
    /// Sessions to keep for resumption. Default 1.
    #[prost(message, optional, tag = "4")]
    #[schema(unread = "unused")]
    pub max_session_keys: Option<u32>,
    /// Whether the key usage of RSA certificates is enforced. Default false.
    #[prost(message, optional, tag = "5")]
    #[schema(unread = "unused")]
    pub enforce_rsa_key_usage: Option<bool>,
    /// Use the host name of the endpoint as SNI.
    #[prost(bool, tag = "6")]
    pub auto_host_sni: bool,
    /// Require that the host's certificate is valid for the SNI.
    #[prost(bool, tag = "7")]
    pub auto_sni_san_validation: bool,
}

/// `DownstreamTlsContext`: TLS of connections from clients.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext")]
#[schema(
    unused = "6 session_timeout, 7 disable_stateless_session_resumption, 8 ocsp_staple_policy, \
          9 full_scan_certs_on_sni_mismatch, 10 disable_stateful_session_resumption, \
          11 prefer_client_ciphers"
)]
#[schema(changes_request = "3 require_sni, 4 session_ticket_keys, \
          5 session_ticket_keys_sds_secret_config")]
pub struct DownstreamTlsMessage {
    /// Certificate and key, ALPN protocols, and `validation_context.trusted_ca`, the authorities of
    /// client certificates, without which none are requested. Certificates, keys and authorities
    /// have a `filename` or an `inline_string`. Must be set.
    #[prost(message, optional, tag = "1")]
    pub common_tls_context: Option<CommonTlsMessage>,
    /// Reject clients that present no certificate; needs `trusted_ca`. Default false.
    #[prost(message, optional, tag = "2")]
    pub require_client_certificate: Option<bool>,
}

/// `raw_buffer.v3.RawBuffer`: connections in plain text.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer")]
pub struct RawBufferMessage {}

/// `CommonTlsContext`: certificates and ALPN protocols.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext")]
#[schema(unused = "15 key_log")]
#[schema(changes_request = "9 tls_certificate_certificate_provider, \
          10 validation_context_certificate_provider, \
          11 tls_certificate_certificate_provider_instance, \
          12 validation_context_certificate_provider_instance, 13 custom_handshaker, \
          16 custom_tls_certificate_selector")]
pub struct CommonTlsMessage {
    /// TLS versions, cipher suites and curves.
    #[prost(message, optional, tag = "1")]
    #[schema(unread = "changes_request")]
    pub tls_params: Option<TlsParametersMessage>,
    /// Certificate: of a listener exactly one; of a cluster at most one, for mutual TLS.
    #[prost(message, repeated, tag = "2")]
    pub tls_certificates: Vec<TlsCertificateMessage>,
    /// How certificates of the other side are verified; in a listener only `trusted_ca`.
    #[prost(message, optional, tag = "3")]
    pub validation_context: Option<ValidationMessage>,
    /// ALPN protocols by preference. Default those of the HTTP version, or of `codec_type`.
    #[prost(string, repeated, tag = "4")]
    pub alpn_protocols: Vec<String>,
    /// Client certificates by the names of secrets (SDS), instead of `tls_certificates`.
    #[prost(message, repeated, tag = "6")]
    #[schema(unread = "changes_request")]
    pub tls_certificate_sds_secret_configs: Vec<SdsSecretConfigMessage>,
    /// Verification of hosts by the name of a secret (SDS), instead of `validation_context`.
    #[prost(message, optional, tag = "7")]
    #[schema(unread = "changes_request")]
    pub validation_context_sds_secret_config: Option<SdsSecretConfigMessage>,
    /// Verification of hosts by a secret, completed by settings written here.
    #[prost(message, optional, tag = "8")]
    #[schema(unread = "changes_request")]
    pub combined_validation_context: Option<CombinedValidationMessage>,
    /// Client certificate from a certificate provider of the bootstrap file, for gRPC clients.
    #[prost(message, optional, tag = "14")]
    #[schema(unread = "changes_request")]
    pub tls_certificate_provider_instance: Option<CertificateProviderMessage>,
}

/// `CommonTlsContext.CombinedCertificateValidationContext`: a secret and settings that complete it.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.\
            CombinedCertificateValidationContext")]
#[schema(changes_request = "3 validation_context_certificate_provider, \
          4 validation_context_certificate_provider_instance")]
pub struct CombinedValidationMessage {
    /// Settings that complete the secret.
    #[prost(message, optional, tag = "1")]
    pub default_validation_context: Option<ValidationMessage>,
    /// Secret with certificate authorities.
    #[prost(message, optional, tag = "2")]
    pub validation_context_sds_secret_config: Option<SdsSecretConfigMessage>,
}

/// `SdsSecretConfig`: a secret by its name.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig")]
pub struct SdsSecretConfigMessage {
    /// Name of the secret. Must be set.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Source of the secret. Default the static secrets of the bootstrap file.
    #[prost(message, optional, tag = "2")]
    pub sds_config: Option<ConfigSourceMessage>,
}

/// `CertificateProviderPluginInstance`: a certificate provider of the bootstrap file (gRFC A29).
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.CertificateProviderPluginInstance")]
pub struct CertificateProviderMessage {
    /// Name of the provider in the bootstrap file.
    #[prost(string, tag = "1")]
    pub instance_name: String,
    /// Name of the certificate.
    #[prost(string, tag = "2")]
    pub certificate_name: String,
}

/// `TlsParameters`: versions and algorithms of TLS.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.TlsParameters")]
#[schema(changes_request = "6 compliance_policies")]
pub struct TlsParametersMessage {
    /// Lowest version. Default `TLSv1_2`.
    #[prost(int32, tag = "1")]
    #[schema(values = TlsProtocol)]
    pub tls_minimum_protocol_version: i32,
    /// Highest version. Default `TLSv1_2`.
    #[prost(int32, tag = "2")]
    #[schema(values = TlsProtocol)]
    pub tls_maximum_protocol_version: i32,
    /// Cipher suites up to TLS 1.2.
    #[prost(string, repeated, tag = "3")]
    pub cipher_suites: Vec<String>,
    /// Elliptic curves of the key exchange, the preferred one first.
    #[prost(string, repeated, tag = "4")]
    pub ecdh_curves: Vec<String>,
    /// Signature algorithms that the handshake may use, the preferred one first.
    #[prost(string, repeated, tag = "5")]
    pub signature_algorithms: Vec<String>,
}

/// `TlsCertificate`: a certificate and its private key.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.TlsCertificate")]
#[schema(unused = "4 ocsp_staple, 5 signed_certificate_timestamp")]
#[schema(changes_request = "6 private_key_provider, 8 pkcs12, 9 tls_params")]
pub struct TlsCertificateMessage {
    /// Certificate chain in PEM format. Must be set.
    #[prost(message, optional, tag = "1")]
    pub certificate_chain: Option<DataSourceMessage>,
    /// Private key of the certificate in PEM format. Must be set.
    #[prost(message, optional, tag = "2")]
    #[schema(secret)]
    pub private_key: Option<DataSourceMessage>,
    /// Password of the private key.
    #[prost(message, optional, tag = "3")]
    #[schema(secret, unread = "changes_request")]
    pub password: Option<DataSourceMessage>,
    /// Directory whose moves reload the files.
    #[prost(message, optional, tag = "7")]
    #[schema(unread = "unused")]
    pub watched_directory: Option<WatchedDirectoryMessage>,
}

/// `WatchedDirectory`: a directory whose moves reload files.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.WatchedDirectory")]
pub struct WatchedDirectoryMessage {
    /// Path of the directory. Must be set.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// `CertificateValidationContext`: verification of host certificates.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext")]
#[schema(unused = "18 suppress_client_ca_list")]
#[schema(changes_request = "6 require_signed_certificate_timestamp?, 12 custom_validator_config")]
pub struct ValidationMessage {
    /// Certificate authorities in PEM format; without this and `system_root_certs`, certificates
    /// are not verified.
    #[prost(message, optional, tag = "1")]
    pub trusted_ca: Option<DataSourceMessage>,
    /// SHA-256 hashes of certificates, in hex, one of which the certificate must have.
    #[prost(string, repeated, tag = "2")]
    #[schema(unread = "changes_request")]
    pub verify_certificate_hash: Vec<String>,
    /// SHA-256 hashes of public keys, in base64, one of which the certificate must have.
    #[prost(string, repeated, tag = "3")]
    #[schema(unread = "changes_request")]
    pub verify_certificate_spki: Vec<String>,
    /// Certificate revocation list in PEM format.
    #[prost(message, optional, tag = "7")]
    #[schema(unread = "changes_request")]
    pub crl: Option<DataSourceMessage>,
    /// Accept certificates that are not valid at this time.
    #[prost(bool, tag = "8")]
    #[schema(unread = "changes_request")]
    pub allow_expired_certificate: bool,
    /// Deprecated: subject alternative names of any type, one of which the certificate must have.
    #[prost(message, repeated, tag = "9")]
    pub match_subject_alt_names: Vec<StringMatcherMessage>,
    /// Whether certificates must be signed by a trusted authority. Default
    /// `VERIFY_TRUST_CHAIN`.
    #[prost(int32, tag = "10")]
    #[schema(values = TrustChainVerification, unread = "changes_request")]
    pub trust_chain_verification: i32,
    /// Directory whose moves reload the files.
    #[prost(message, optional, tag = "11")]
    #[schema(unread = "unused")]
    pub watched_directory: Option<WatchedDirectoryMessage>,
    /// Certificate authorities from a certificate provider of the bootstrap file, for gRPC clients.
    #[prost(message, optional, tag = "13")]
    #[schema(unread = "changes_request")]
    pub ca_certificate_provider_instance: Option<CertificateProviderMessage>,
    /// Check only the certificate of the host against `crl`.
    #[prost(bool, tag = "14")]
    #[schema(unread = "unused")]
    pub only_verify_leaf_cert_crl: bool,
    /// Subject alternative names, one of which the certificate must have.
    #[prost(message, repeated, tag = "15")]
    pub match_typed_subject_alt_names: Vec<SanMatcherMessage>,
    /// Maximum number of intermediate certificates.
    #[prost(message, optional, tag = "16")]
    #[schema(unread = "changes_request")]
    pub max_verify_depth: Option<u32>,
    /// Trust the certificate authorities of the operating system.
    #[prost(message, optional, tag = "17")]
    pub system_root_certs: Option<()>,
}

/// `SubjectAltNameMatcher`: matches one name of a certificate.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.SubjectAltNameMatcher")]
#[schema(changes_request = "3 oid")]
pub struct SanMatcherMessage {
    /// Type of the subject alternative name.
    #[prost(int32, tag = "1")]
    #[schema(values = SanType)]
    pub san_type: i32,
    /// Text that the name must match.
    #[prost(message, optional, tag = "2")]
    pub matcher: Option<StringMatcherMessage>,
}

/// `envoy.config.core.v3.DataSource`: text or bytes from a file, inline or from the environment.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.core.v3.DataSource")]
pub struct DataSourceMessage {
    /// Path of a file, reloaded when it changes.
    #[prost(string, optional, tag = "1")]
    pub filename: Option<String>,
    /// Inline bytes, in base64.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub inline_bytes: Option<Bytes>,
    /// Inline text, used as it is.
    #[prost(string, optional, tag = "3")]
    pub inline_string: Option<String>,
    /// Name of an environment variable with the content.
    #[prost(string, optional, tag = "4")]
    pub environment_variable: Option<String>,
    /// Directory whose moves reload `filename`.
    #[prost(message, optional, tag = "5")]
    #[schema(unread = "harmless")]
    pub watched_directory: Option<WatchedDirectoryMessage>,
}

/// `envoy.type.matcher.v3.StringMatcher`: matches a text; set one pattern.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.matcher.v3.StringMatcher")]
pub struct StringMatcherMessage {
    /// The text equals this value.
    #[prost(string, optional, tag = "1")]
    pub exact: Option<String>,
    /// The text starts with this value.
    #[prost(string, optional, tag = "2")]
    pub prefix: Option<String>,
    /// The text ends with this value.
    #[prost(string, optional, tag = "3")]
    pub suffix: Option<String>,
    /// The whole text matches this regular expression.
    #[prost(message, optional, tag = "5")]
    pub safe_regex: Option<RegexMessage>,
    /// Ignore upper and lower case when comparing.
    #[prost(bool, tag = "6")]
    pub ignore_case: bool,
    /// The text contains this value.
    #[prost(string, optional, tag = "7")]
    pub contains: Option<String>,
}

/// `envoy.type.matcher.v3.RegexMatcher`: a regular expression.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.matcher.v3.RegexMatcher")]
#[schema(harmless = "1 google_re2")]
pub struct RegexMessage {
    /// Regular expression in RE2 syntax. Must be set.
    #[prost(string, tag = "2")]
    pub regex: String,
}
