//! `envoy.extensions.transport_sockets.tls.v3` and string matchers.

use bytes::Bytes;
use prost::Message;

/// `UpstreamTlsContext`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UpstreamTlsMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) common_tls_context: Option<CommonTlsMessage>,
    #[prost(string, tag = "2")]
    pub(crate) sni: String,
    #[prost(bool, tag = "6")]
    pub(crate) auto_host_sni: bool,
    #[prost(bool, tag = "7")]
    pub(crate) auto_sni_san_validation: bool,
}

/// `CommonTlsContext`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommonTlsMessage {
    #[prost(message, repeated, tag = "2")]
    pub(crate) tls_certificates: Vec<TlsCertificateMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) validation_context: Option<ValidationMessage>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) alpn_protocols: Vec<String>,
}

/// `TlsCertificate`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TlsCertificateMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) certificate_chain: Option<DataSourceMessage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) private_key: Option<DataSourceMessage>,
}

/// `CertificateValidationContext`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ValidationMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) trusted_ca: Option<DataSourceMessage>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) match_subject_alt_names: Vec<StringMatcherMessage>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) match_typed_subject_alt_names: Vec<SanMatcherMessage>,
    #[prost(message, optional, tag = "17")]
    pub(crate) system_root_certs: Option<()>,
}

/// `SubjectAltNameMatcher`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SanMatcherMessage {
    #[prost(int32, tag = "1")]
    pub(crate) san_type: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) matcher: Option<StringMatcherMessage>,
}

/// `envoy.config.core.v3.DataSource`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DataSourceMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) filename: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) inline_bytes: Option<Bytes>,
    #[prost(string, optional, tag = "3")]
    pub(crate) inline_string: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(crate) environment_variable: Option<String>,
}

/// `envoy.type.matcher.v3.StringMatcher`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StringMatcherMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) exact: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) prefix: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) suffix: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub(crate) safe_regex: Option<RegexMessage>,
    #[prost(bool, tag = "6")]
    pub(crate) ignore_case: bool,
    #[prost(string, optional, tag = "7")]
    pub(crate) contains: Option<String>,
}

/// `envoy.type.matcher.v3.RegexMatcher`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RegexMessage {
    #[prost(string, tag = "2")]
    pub(crate) regex: String,
}
