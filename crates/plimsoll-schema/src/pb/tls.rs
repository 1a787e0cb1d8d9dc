//! `envoy.extensions.transport_sockets.tls.v3` and string matchers.

use bytes::Bytes;
use plimsoll_core::model::transport::SanType;
use plimsoll_schema_derive::Described;
use prost::Message;

/// `UpstreamTlsContext`: TLS of connections to hosts.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext")]
#[schema(unused = "3 allow_renegotiation, 4 max_session_keys, 5 enforce_rsa_key_usage")]
pub struct UpstreamTlsMessage {
    /// Certificates, validation of hosts and ALPN protocols.
    #[prost(message, optional, tag = "1")]
    pub common_tls_context: Option<CommonTlsMessage>,
    /// Server name (SNI) sent in the TLS handshake.
    #[prost(string, tag = "2")]
    pub sni: String,
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
    #[prost(message, optional, tag = "1")]
    pub common_tls_context: Option<CommonTlsMessage>,
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
#[schema(
    changes_request = "1 tls_params, 6 tls_certificate_sds_secret_configs, \
          7 validation_context_sds_secret_config, 8 combined_validation_context, \
          9 tls_certificate_certificate_provider, 10 validation_context_certificate_provider, \
          11 tls_certificate_certificate_provider_instance, \
          12 validation_context_certificate_provider_instance, 13 custom_handshaker, \
          14 tls_certificate_provider_instance, 16 custom_tls_certificate_selector"
)]
pub struct CommonTlsMessage {
    /// Client certificate for mutual TLS; at most one.
    #[prost(message, repeated, tag = "2")]
    pub tls_certificates: Vec<TlsCertificateMessage>,
    /// How certificates of hosts are verified.
    #[prost(message, optional, tag = "3")]
    pub validation_context: Option<ValidationMessage>,
    /// ALPN protocols to offer. Default those of the HTTP version.
    #[prost(string, repeated, tag = "4")]
    pub alpn_protocols: Vec<String>,
}

/// `TlsCertificate`: a certificate and its private key.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.TlsCertificate")]
#[schema(unused = "4 ocsp_staple, 5 signed_certificate_timestamp, 7 watched_directory")]
#[schema(changes_request = "3 password, 6 private_key_provider, 8 pkcs12, 9 tls_params")]
pub struct TlsCertificateMessage {
    /// Certificate chain in PEM format. Must be set.
    #[prost(message, optional, tag = "1")]
    pub certificate_chain: Option<DataSourceMessage>,
    /// Private key of the certificate in PEM format. Must be set.
    #[prost(message, optional, tag = "2")]
    #[schema(secret)]
    pub private_key: Option<DataSourceMessage>,
}

/// `CertificateValidationContext`: verification of host certificates.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext")]
#[schema(unused = "11 watched_directory, 14 only_verify_leaf_cert_crl, \
          18 suppress_client_ca_list")]
#[schema(
    changes_request = "6 require_signed_certificate_timestamp?, 2 verify_certificate_hash, \
          3 verify_certificate_spki, 7 crl, 8 allow_expired_certificate, \
          10 trust_chain_verification, 12 custom_validator_config, \
          13 ca_certificate_provider_instance, 16 max_verify_depth"
)]
pub struct ValidationMessage {
    /// Certificate authorities in PEM format; without this and `system_root_certs`, certificates
    /// are not verified.
    #[prost(message, optional, tag = "1")]
    pub trusted_ca: Option<DataSourceMessage>,
    /// Deprecated: subject alternative names of any type, one of which the certificate must have.
    #[prost(message, repeated, tag = "9")]
    pub match_subject_alt_names: Vec<StringMatcherMessage>,
    /// Subject alternative names, one of which the certificate must have.
    #[prost(message, repeated, tag = "15")]
    pub match_typed_subject_alt_names: Vec<SanMatcherMessage>,
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
#[schema(harmless = "5 watched_directory")]
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
