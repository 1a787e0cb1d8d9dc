//! TLS settings of a listener: Envoy's `DownstreamTlsContext`.

use std::path::PathBuf;

use plimsoll_core::units::FieldError;
use plimsoll_serve::{PemSource, ServerTlsSettings};
use serde::Deserialize;

use super::bootstrap::expect_type;

const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";

/// TLS settings of a listener (`TransportSocket`).
#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DownstreamTransportSocket")
)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportSocketYaml {
    /// Name of the transport socket; has no effect.
    #[serde(rename = "name", default)]
    _name: String,
    /// Type and settings of the transport socket.
    typed_config: DownstreamTlsContextYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct DownstreamTlsContextYaml {
    /// Type of the transport socket, always
    /// `type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Certificates and ALPN protocols.
    common_tls_context: CommonTlsContextYaml,
    /// Reject clients that present no certificate; needs `trusted_ca`. Default false.
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
    /// Certificate and key of the listener; exactly one entry.
    tls_certificates: Vec<TlsCertificateYaml>,
    /// ALPN protocols by preference. Default those that `codec_type` supports.
    alpn_protocols: Vec<String>,
    /// How to validate client certificates. Default none are requested.
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
    /// Certificate chain in PEM format.
    certificate_chain: DataSourceYaml,
    /// Private key in PEM format.
    private_key: DataSourceYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ValidationContextYaml {
    /// Certificate authorities of client certificates, in PEM format.
    trusted_ca: DataSourceYaml,
}

/// Data in a file or inline (`DataSource`); exactly one of both.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "DownstreamDataSource")
)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DataSourceYaml {
    /// Path of a file, which is watched for changes.
    filename: Option<PathBuf>,
    /// The data itself, in this file.
    inline_string: Option<String>,
}

impl DataSourceYaml {
    /// Checks that exactly one of `filename` and `inline_string` is set.
    pub(super) fn validate(self) -> Result<PemSource, FieldError> {
        match (self.filename, self.inline_string) {
            (Some(path), None) => Ok(PemSource::File(path)),
            (None, Some(text)) => Ok(PemSource::Inline(text)),
            _ => Err(FieldError::new(
                "",
                "must have exactly one of filename and inline_string",
            )),
        }
    }
}

impl TransportSocketYaml {
    /// Validates the TLS settings; error paths are relative to this message.
    pub(super) fn validate(self) -> Result<ServerTlsSettings, FieldError> {
        let config = self.typed_config.validate();
        config.map_err(|error| error.under("typed_config"))
    }
}

impl DownstreamTlsContextYaml {
    fn validate(self) -> Result<ServerTlsSettings, FieldError> {
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
        let client_ca = common
            .validation_context
            .map(|context| context.trusted_ca.validate())
            .transpose()
            .map_err(under("validation_context.trusted_ca"))?;
        if self.require_client_certificate && client_ca.is_none() {
            let reason = "requires common_tls_context.validation_context.trusted_ca";
            return Err(FieldError::new("require_client_certificate", reason));
        }
        let certificate = pair.certificate_chain.validate();
        let key = pair.private_key.validate();
        Ok(ServerTlsSettings {
            certificate: certificate.map_err(under("tls_certificates[0].certificate_chain"))?,
            key: key.map_err(under("tls_certificates[0].private_key"))?,
            alpn: common.alpn_protocols,
            client_ca,
            require_client_certificate: self.require_client_certificate,
        })
    }
}
