//! Decoding of `transport_socket`: TLS or plaintext.

use plimsoll_core::units::FieldError;

use super::super::matcher::{data_source, string_matcher};
use super::super::named;
use crate::upstream::{CertificatePair, SanMatcher, TrustedCa, UpstreamTls};
use plimsoll_schema::pb::tls::{
    CommonTlsMessage, DataSourceMessage, TlsCertificateMessage, UpstreamTlsMessage,
    ValidationMessage,
};
use plimsoll_schema::pb::under;
use plimsoll_schema::pb::upstream::TransportSocketMessage;

const TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const RAW_BUFFER: &str = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer";

/// Decodes the TLS settings, `None` for plaintext; error paths start inside the message.
pub(super) fn upstream_tls(
    message: &TransportSocketMessage,
) -> Result<Option<UpstreamTls>, FieldError> {
    let Some(any) = &message.typed_config else {
        return Err(FieldError::new("typed_config", "must be set"));
    };
    match any.type_name() {
        RAW_BUFFER => Ok(None),
        TLS => {
            let context = any.unpack().and_then(context);
            context
                .map(Some)
                .map_err(|error| error.under("typed_config"))
        }
        _ => {
            let reason = format!("{:?} is not supported", any.type_url);
            Err(FieldError::new("typed_config.@type", reason))
        }
    }
}

fn context(message: UpstreamTlsMessage) -> Result<UpstreamTls, FieldError> {
    let common = message.common_tls_context.unwrap_or_default();
    let common = common_context(common).map_err(|error| error.under("common_tls_context"))?;
    Ok(UpstreamTls {
        sni: message.sni,
        auto_host_sni: message.auto_host_sni,
        auto_sni_san_validation: message.auto_sni_san_validation,
        ..common
    })
}

fn common_context(message: CommonTlsMessage) -> Result<UpstreamTls, FieldError> {
    if message.tls_certificates.len() > 1 {
        return Err(FieldError::new(
            "tls_certificates[1]",
            "a client has at most one certificate",
        ));
    }
    let pair = message.tls_certificates.into_iter().next();
    let certificate = under(pair.map(certificate), "tls_certificates[0]")?;
    let validation = validation(message.validation_context.unwrap_or_default());
    let (ca, sans) = validation.map_err(|error| error.under("validation_context"))?;
    Ok(UpstreamTls {
        ca,
        certificate,
        alpn: message.alpn_protocols,
        match_subject_alt_names: sans,
        ..Default::default()
    })
}

fn certificate(message: TlsCertificateMessage) -> Result<CertificatePair, FieldError> {
    let required = |source: Option<DataSourceMessage>, field: &str| {
        data_source(source.unwrap_or_default()).map_err(|error| error.under(field))
    };
    Ok(CertificatePair {
        certificate_chain: required(message.certificate_chain, "certificate_chain")?,
        private_key: required(message.private_key, "private_key")?,
    })
}

fn validation(message: ValidationMessage) -> Result<(TrustedCa, Vec<SanMatcher>), FieldError> {
    let pem = under(message.trusted_ca.map(data_source), "trusted_ca")?;
    let ca = match (pem, message.system_root_certs) {
        (Some(pem), _) => TrustedCa::Pem(pem),
        (None, Some(())) => TrustedCa::System,
        (None, None) => TrustedCa::Unverified,
    };
    let mut sans = Vec::new();
    for (index, san) in message
        .match_typed_subject_alt_names
        .into_iter()
        .enumerate()
    {
        let under =
            |error: FieldError| error.under(&format!("match_typed_subject_alt_names[{index}]"));
        let matcher = string_matcher(san.matcher.unwrap_or_default());
        sans.push(SanMatcher {
            san_type: Some(named(san.san_type, "san_type").map_err(under)?),
            matcher: matcher.map_err(|error| under(error.under("matcher")))?,
        });
    }
    for (index, matcher) in message.match_subject_alt_names.into_iter().enumerate() {
        let path = format!("match_subject_alt_names[{index}]");
        sans.push(SanMatcher {
            san_type: None,
            matcher: string_matcher(matcher).map_err(|error| error.under(&path))?,
        });
    }
    if ca == TrustedCa::Unverified && !sans.is_empty() {
        let reason = "must be set where names are checked";
        return Err(FieldError::new("trusted_ca", reason));
    }
    Ok((ca, sans))
}
