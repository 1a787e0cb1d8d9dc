//! TLS of listeners: ALPN protocols by codec. plimsoll-serve loads certificates and keys; when one
//! of their files changes, `run` rebuilds the listener's configuration.

use plimsoll_serve::{ServerTls, ServerTlsSettings, TlsError};
use plimsoll_xds::pb::enums::CodecType;

/// Loads the certificates of a listener. Clients may resume sessions.
pub(crate) fn server_tls(
    settings: &ServerTlsSettings,
    codec: CodecType,
) -> Result<ServerTls, TlsError> {
    plimsoll_serve::server_tls(&ServerTlsSettings {
        alpn: protocols(settings, codec),
        ..settings.clone()
    })
}

/// Returns the configured ALPN protocols, or else those that the codec supports.
fn protocols(settings: &ServerTlsSettings, codec: CodecType) -> Vec<String> {
    if !settings.alpn.is_empty() {
        return settings.alpn.clone();
    }
    let supported: &[&str] = match codec {
        CodecType::Auto => &["h2", "http/1.1"],
        CodecType::Http1 => &["http/1.1"],
        CodecType::Http2 => &["h2"],
    };
    supported.iter().map(|&name| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_serve::PemSource;

    use super::*;

    fn settings(alpn: &[&str]) -> ServerTlsSettings {
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        ServerTlsSettings {
            certificate: PemSource::Inline(key.cert.pem()),
            key: PemSource::Inline(key.signing_key.serialize_pem()),
            alpn: alpn.iter().map(|name| (*name).to_owned()).collect(),
            client_ca: None,
            require_client_certificate: false,
        }
    }

    #[test]
    fn protocols_are_those_configured_or_else_those_of_the_codec() {
        let names = |settings: &ServerTlsSettings, codec| {
            let tls = server_tls(settings, codec).unwrap();
            let names = tls.config.alpn_protocols.iter();
            let names: Vec<&str> = names.map(|name| str::from_utf8(name).unwrap()).collect();
            names.join(" ")
        };
        let unset = settings(&[]);
        assert_eq!(names(&unset, CodecType::Auto), "h2 http/1.1");
        assert_eq!(names(&unset, CodecType::Http1), "http/1.1");
        assert_eq!(names(&unset, CodecType::Http2), "h2");
        let set = settings(&["http/1.1", "x"]);
        assert_eq!(names(&set, CodecType::Auto), "http/1.1 x");
    }

    #[test]
    fn sessions_can_be_resumed() {
        let tls = server_tls(&settings(&[]), CodecType::Auto).unwrap();
        assert!(tls.config.send_tls13_tickets > 0);
        assert!(tls.config.session_storage.can_cache());
    }
}
