//! TLS of a listener: `DownstreamTlsContext`.

use std::path::PathBuf;

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::bootstrap::expect_type;
use super::{Source, TlsConfig};

const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";

/// `TransportSocket`.
#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DownstreamTransportSocket")
)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportSocketYaml {
    /// Only a name.
    #[serde(rename = "name", default)]
    _name: String,
    /// The settings.
    typed_config: DownstreamTlsContextYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct DownstreamTlsContextYaml {
    /// `type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Certificates and protocols.
    common_tls_context: CommonTlsContextYaml,
    /// Turn clients without a certificate away.
    #[serde(default)]
    require_client_certificate: bool,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DownstreamCommonTlsContext")
)]
#[serde(default, deny_unknown_fields)]
struct CommonTlsContextYaml {
    /// Exactly one.
    tls_certificates: Vec<TlsCertificateYaml>,
    /// Protocols that are offered.
    alpn_protocols: Vec<String>,
    /// What certificates of clients must be.
    validation_context: Option<ValidationContextYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DownstreamTlsCertificate")
)]
#[serde(deny_unknown_fields)]
struct TlsCertificateYaml {
    /// The certificate, PEM.
    certificate_chain: DataSourceYaml,
    /// Its key, PEM.
    private_key: DataSourceYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ValidationContextYaml {
    /// Who must have signed, PEM.
    trusted_ca: DataSourceYaml,
}

/// `DataSource`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DownstreamDataSource")
)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DataSourceYaml {
    /// A file, which is watched.
    filename: Option<PathBuf>,
    /// The text itself.
    inline_string: Option<String>,
}

impl DataSourceYaml {
    /// One of the two.
    pub(super) fn checked(self) -> Result<Source, FieldError> {
        match (self.filename, self.inline_string) {
            (Some(path), None) => Ok(Source::File(path)),
            (None, Some(text)) => Ok(Source::Inline(text)),
            _ => Err(FieldError::new("", "must have filename or inline_string")),
        }
    }
}

impl TransportSocketYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<TlsConfig, FieldError> {
        let config = self.typed_config.checked();
        config.map_err(|error| error.under("typed_config"))
    }
}

impl DownstreamTlsContextYaml {
    fn checked(self) -> Result<TlsConfig, FieldError> {
        expect_type(&self.type_url, DOWNSTREAM_TLS)?;
        let common = self.common_tls_context;
        let under = |path: &'static str| {
            move |error: FieldError| error.under(&format!("common_tls_context.{path}"))
        };
        let mut certificates = common.tls_certificates.into_iter();
        let (Some(pair), None) = (certificates.next(), certificates.next()) else {
            let reason = "must have exactly one entry";
            return Err(FieldError::new(
                "common_tls_context.tls_certificates",
                reason,
            ));
        };
        let client_ca = common.validation_context.map(|context| {
            let ca = context.trusted_ca.checked();
            ca.map_err(under("validation_context.trusted_ca"))
        });
        let client_ca = client_ca.transpose()?;
        if self.require_client_certificate && client_ca.is_none() {
            let reason = "needs common_tls_context.validation_context.trusted_ca";
            return Err(FieldError::new("require_client_certificate", reason));
        }
        let certificate = pair.certificate_chain.checked();
        let key = pair.private_key.checked();
        Ok(TlsConfig {
            certificate: certificate.map_err(under("tls_certificates[0].certificate_chain"))?,
            key: key.map_err(under("tls_certificates[0].private_key"))?,
            alpn: common.alpn_protocols,
            client_ca,
            require_client_certificate: self.require_client_certificate,
        })
    }
}
