//! TLS settings of a listener: Envoy's `DownstreamTlsContext`.

use plimsoll_core::units::FieldError;
use plimsoll_serve::{PemSource, ServerTlsSettings};
use plimsoll_xds::pb::listener::DownstreamTransportSocketMessage;
use plimsoll_xds::pb::tls::{
    CommonTlsMessage, DataSourceMessage, DownstreamTlsMessage, ValidationMessage,
};
use plimsoll_xds::pb::{refuse_set, under};

use super::extension::typed_config;

/// Converts the transport socket of a filter chain; error paths are relative to the message.
pub(super) fn tls(
    message: DownstreamTransportSocketMessage,
) -> Result<ServerTlsSettings, FieldError> {
    let message: DownstreamTlsMessage = typed_config(message.typed_config)?;
    let is_required = message.require_client_certificate.unwrap_or(false);
    let common = message.common_tls_context.unwrap_or_default();
    let settings = common_context(common).map_err(|error| error.under("common_tls_context"));
    let settings = settings.map_err(|error| error.under("typed_config"))?;
    if is_required && settings.client_ca.is_none() {
        let path = "typed_config.require_client_certificate";
        let reason = "requires common_tls_context.validation_context.trusted_ca";
        return Err(FieldError::new(path, reason));
    }
    Ok(ServerTlsSettings {
        require_client_certificate: is_required,
        ..settings
    })
}

fn common_context(message: CommonTlsMessage) -> Result<ServerTlsSettings, FieldError> {
    let mut certificates = message.tls_certificates.into_iter();
    let (Some(pair), None) = (certificates.next(), certificates.next()) else {
        let reason = "must have exactly one entry";
        return Err(FieldError::new("tls_certificates", reason));
    };
    let client_ca = under(
        message.validation_context.map(trusted_ca),
        "validation_context",
    )?;
    let pem = |source, field: &str| {
        pem_source(source).map_err(|error| error.under(&format!("tls_certificates[0].{field}")))
    };
    Ok(ServerTlsSettings {
        certificate: pem(pair.certificate_chain, "certificate_chain")?,
        key: pem(pair.private_key, "private_key")?,
        alpn: message.alpn_protocols,
        client_ca,
        require_client_certificate: false,
    })
}

/// Returns the authorities of client certificates, whose names are not checked.
fn trusted_ca(message: ValidationMessage) -> Result<PemSource, FieldError> {
    refuse_set(&[
        (
            "match_subject_alt_names",
            !message.match_subject_alt_names.is_empty(),
        ),
        (
            "match_typed_subject_alt_names",
            !message.match_typed_subject_alt_names.is_empty(),
        ),
        ("system_root_certs", message.system_root_certs.is_some()),
    ])?;
    pem_source(message.trusted_ca).map_err(|error| error.under("trusted_ca"))
}

fn pem_source(message: Option<DataSourceMessage>) -> Result<PemSource, FieldError> {
    let message = message.unwrap_or_default();
    let is_other = message.inline_bytes.is_some() || message.environment_variable.is_some();
    match (message.filename, message.inline_string) {
        (Some(path), None) if !is_other => Ok(PemSource::File(path.into())),
        (None, Some(text)) if !is_other => Ok(PemSource::Inline(text)),
        _ => {
            let reason = "must have exactly one of filename and inline_string";
            Err(FieldError::new("", reason))
        }
    }
}
