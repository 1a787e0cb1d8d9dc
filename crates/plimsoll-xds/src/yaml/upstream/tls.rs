//! `transport_socket` from files: TLS, or plain text.

use std::fmt;

use plimsoll_core::units::FieldError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::super::proto_json::{Empty, Named, ProtoEnum, Uint};
use crate::string_match::{SafeRegex, StringMatcher, StringPattern};
use crate::upstream::{CertificatePair, DataSource, SanMatcher, SanType, TrustedCa, UpstreamTls};

const TLS: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const RAW_BUFFER: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer";

/// `TransportSocket`; `name` is only a name.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
pub(crate) struct TransportSocket {
    name: String,
    typed_config: TypedConfig,
}

/// `typed_config`, by its `@type`.
#[derive(Clone, Debug)]
enum TypedConfig {
    RawBuffer,
    Tls(Box<UpstreamTlsContext>),
}

/// `UpstreamTlsContext`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UpstreamTlsContext {
    common_tls_context: CommonTlsContext,
    sni: String,
    auto_host_sni: bool,
    auto_sni_san_validation: bool,
    // How many sessions are kept for resumption changes how long a handshake takes.
    max_session_keys: Option<Uint<u32>>,
}

/// `CommonTlsContext`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CommonTlsContext {
    tls_certificates: Vec<TlsCertificate>,
    validation_context: Option<CertificateValidationContext>,
    alpn_protocols: Vec<String>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsCertificate {
    certificate_chain: DataSourceYaml,
    private_key: DataSourceYaml,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CertificateValidationContext {
    trusted_ca: Option<DataSourceYaml>,
    system_root_certs: Option<Empty>,
    match_typed_subject_alt_names: Vec<SubjectAltNameMatcher>,
    match_subject_alt_names: Vec<StringMatcherYaml>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SubjectAltNameMatcher {
    san_type: Named<SanType>,
    matcher: StringMatcherYaml,
}

/// `StringMatcher`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StringMatcherYaml {
    exact: Option<String>,
    prefix: Option<String>,
    suffix: Option<String>,
    contains: Option<String>,
    safe_regex: Option<RegexMatcher>,
    ignore_case: bool,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
struct RegexMatcher {
    // The only engine there is.
    google_re2: Option<Empty>,
    regex: String,
}

/// `DataSource`.
#[derive(Clone, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DataSourceYaml {
    filename: Option<String>,
    inline_bytes: Option<String>,
    inline_string: Option<String>,
    environment_variable: Option<String>,
}

/// Keys may stand inline: nothing is shown.
impl fmt::Debug for DataSourceYaml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataSource")
    }
}

impl ProtoEnum for SanType {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("EMAIL", 1, Self::Email),
        ("DNS", 2, Self::Dns),
        ("URI", 3, Self::Uri),
        ("IP_ADDRESS", 4, Self::IpAddress),
    ];
}

impl TransportSocket {
    /// TLS, if it is; the path of an error starts inside the message.
    pub(crate) fn checked(self) -> Result<Option<UpstreamTls>, FieldError> {
        match self.typed_config {
            TypedConfig::RawBuffer => Ok(None),
            TypedConfig::Tls(context) => context
                .checked()
                .map(Some)
                .map_err(|error| error.under("typed_config")),
        }
    }
}

impl UpstreamTlsContext {
    fn checked(self) -> Result<UpstreamTls, FieldError> {
        let common = self.common_tls_context;
        let under = |error: FieldError| error.under("common_tls_context");
        let certificate = certificate(common.tls_certificates).map_err(under)?;
        let validation = common.validation_context.unwrap_or_default();
        let (ca, match_subject_alt_names) = validation
            .checked()
            .map_err(|error| under(error.under("validation_context")))?;
        Ok(UpstreamTls {
            sni: self.sni,
            auto_host_sni: self.auto_host_sni,
            auto_sni_san_validation: self.auto_sni_san_validation,
            ca,
            certificate,
            alpn: common.alpn_protocols,
            match_subject_alt_names,
        })
    }
}

fn certificate(list: Vec<TlsCertificate>) -> Result<Option<CertificatePair>, FieldError> {
    if list.len() > 1 {
        let reason = "a client has at most one certificate";
        return Err(FieldError::new("tls_certificates[1]", reason));
    }
    let Some(pair) = list.into_iter().next() else {
        return Ok(None);
    };
    let under = |error: FieldError, field: &str| error.under(field).under("tls_certificates[0]");
    Ok(Some(CertificatePair {
        certificate_chain: pair
            .certificate_chain
            .checked()
            .map_err(|error| under(error, "certificate_chain"))?,
        private_key: pair
            .private_key
            .checked()
            .map_err(|error| under(error, "private_key"))?,
    }))
}

impl CertificateValidationContext {
    fn checked(self) -> Result<(TrustedCa, Vec<SanMatcher>), FieldError> {
        let ca = match (self.trusted_ca, self.system_root_certs) {
            (Some(ca), _) => {
                TrustedCa::Pem(ca.checked().map_err(|error| error.under("trusted_ca"))?)
            }
            (None, Some(_)) => TrustedCa::System,
            (None, None) => TrustedCa::Unverified,
        };
        let mut sans = Vec::new();
        for (index, san) in self.match_typed_subject_alt_names.into_iter().enumerate() {
            let path = format!("match_typed_subject_alt_names[{index}].matcher");
            sans.push(SanMatcher {
                san_type: Some(san.san_type.0),
                matcher: san.matcher.checked().map_err(|error| error.under(&path))?,
            });
        }
        for (index, matcher) in self.match_subject_alt_names.into_iter().enumerate() {
            let path = format!("match_subject_alt_names[{index}]");
            sans.push(SanMatcher {
                san_type: None,
                matcher: matcher.checked().map_err(|error| error.under(&path))?,
            });
        }
        if ca == TrustedCa::Unverified && !sans.is_empty() {
            let reason = "must be set where names are checked";
            return Err(FieldError::new("trusted_ca", reason));
        }
        Ok((ca, sans))
    }
}

impl StringMatcherYaml {
    fn checked(self) -> Result<StringMatcher, FieldError> {
        let regex = self.safe_regex.map(|matcher| {
            let regex = SafeRegex::try_new(&matcher.regex).map(StringPattern::Regex);
            regex.map_err(|error| error.under("safe_regex.regex"))
        });
        let plain = [
            self.exact.map(StringPattern::Exact),
            self.prefix.map(StringPattern::Prefix),
            self.suffix.map(StringPattern::Suffix),
            self.contains.map(StringPattern::Contains),
            regex.transpose()?,
        ];
        let mut patterns = plain.into_iter().flatten();
        match (patterns.next(), patterns.next()) {
            (Some(pattern), None) => Ok(StringMatcher {
                pattern,
                ignore_case: self.ignore_case,
            }),
            _ => Err(FieldError::new("", "must have exactly one pattern")),
        }
    }
}

impl DataSourceYaml {
    fn checked(self) -> Result<DataSource, FieldError> {
        let bytes = self
            .inline_bytes
            .map(|text| super::base64(&text, "inline_bytes"));
        let sources = [
            self.filename.map(DataSource::Filename),
            bytes.transpose()?.map(DataSource::Inline),
            self.inline_string
                .map(|text| DataSource::Inline(text.into())),
            self.environment_variable
                .map(DataSource::EnvironmentVariable),
        ];
        let mut sources = sources.into_iter().flatten();
        match (sources.next(), sources.next()) {
            (Some(source), None) => Ok(source),
            _ => Err(FieldError::new("", "must have exactly one source")),
        }
    }
}

impl<'de> Deserialize<'de> for TypedConfig {
    /// Needs `@type` before the other fields, as `de` hands it out.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TypedConfigVisitor;

        impl<'de> Visitor<'de> for TypedConfigVisitor {
            type Value = TypedConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message with \"@type\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TypedConfig, A::Error> {
                match map.next_key::<String>()?.as_deref() {
                    Some("@type") => {}
                    _ => return Err(A::Error::missing_field("@type")),
                }
                match map.next_value::<SocketType>()? {
                    SocketType::Tls => Deserialize::deserialize(MapAccessDeserializer::new(map))
                        .map(|context| TypedConfig::Tls(Box::new(context))),
                    SocketType::RawBuffer => Empty::deserialize(MapAccessDeserializer::new(map))
                        .map(|_| TypedConfig::RawBuffer),
                }
            }
        }

        deserializer.deserialize_any(TypedConfigVisitor)
    }
}

enum SocketType {
    RawBuffer,
    Tls,
}

impl<'de> Deserialize<'de> for SocketType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            TLS => Ok(Self::Tls),
            RAW_BUFFER => Ok(Self::RawBuffer),
            other => {
                let reason = format!("{other:?} is not supported, only {TLS:?} and {RAW_BUFFER:?}");
                Err(D::Error::custom(reason))
            }
        }
    }
}
