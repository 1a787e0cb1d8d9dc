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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
pub(crate) struct TransportSocket {
    /// Only a name.
    name: String,
    /// The settings, by their `@type`.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct UpstreamTlsContext {
    /// Certificates and protocols.
    common_tls_context: CommonTlsContext,
    /// Server name that is asked for.
    sni: String,
    /// It is the hostname of the endpoint instead.
    auto_host_sni: bool,
    /// The certificate must be for the name that is asked for.
    auto_sni_san_validation: bool,
    // How many sessions are kept for resumption changes how long a handshake takes.
    /// Without effect.
    max_session_keys: Option<Uint<u32>>,
}

/// `CommonTlsContext`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct CommonTlsContext {
    /// The client's own certificate: one at most.
    tls_certificates: Vec<TlsCertificate>,
    /// What the certificate of a host must be.
    validation_context: Option<CertificateValidationContext>,
    /// Protocols that are offered. Default those of the HTTP version.
    alpn_protocols: Vec<String>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TlsCertificate {
    /// The certificate, PEM.
    certificate_chain: DataSourceYaml,
    /// Its key, PEM.
    private_key: DataSourceYaml,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct CertificateValidationContext {
    /// Who must have signed, PEM; without it and `system_root_certs` anybody.
    trusted_ca: Option<DataSourceYaml>,
    /// The system's list.
    system_root_certs: Option<Empty>,
    /// Names, one of which the certificate must have.
    match_typed_subject_alt_names: Vec<SubjectAltNameMatcher>,
    /// Deprecated: the same for any kind of name.
    match_subject_alt_names: Vec<StringMatcherYaml>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct SubjectAltNameMatcher {
    /// Kind of name.
    san_type: Named<SanType>,
    /// The name.
    matcher: StringMatcherYaml,
}

/// `StringMatcher`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct StringMatcherYaml {
    /// It is this.
    exact: Option<String>,
    /// It begins so.
    prefix: Option<String>,
    /// It ends so.
    suffix: Option<String>,
    /// It has this in it.
    contains: Option<String>,
    /// All of it matches.
    safe_regex: Option<RegexMatcher>,
    /// Upper and lower case are the same.
    ignore_case: bool,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "present so that they are known fields")]
struct RegexMatcher {
    // The only engine there is.
    /// Without effect: there is one engine.
    google_re2: Option<Empty>,
    /// The expression, in the syntax of RE2.
    regex: String,
}

/// `DataSource`.
#[derive(Clone, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct DataSourceYaml {
    /// A file, which is watched.
    filename: Option<String>,
    /// Bytes in base64.
    inline_bytes: Option<String>,
    /// The text itself.
    inline_string: Option<String>,
    /// A variable that holds it.
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

#[cfg(feature = "schema")]
impl schemars::JsonSchema for TypedConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TransportSocketTypedConfig".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        use super::super::schema::typed;
        let tls = typed::<UpstreamTlsContext>(generator, "UpstreamTlsContext", TLS);
        let raw_buffer = typed::<Empty>(generator, "RawBuffer", RAW_BUFFER);
        schemars::json_schema!({ "oneOf": [tls, raw_buffer] })
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
