//! `x-forwarded-client-cert` (XFCC): the header by which Envoy tells an upstream who the client is,
//! built once per connection from the certificates of the TLS handshake.

mod subject;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_xds::pb::enums::ForwardClientCertDetails;
use plimsoll_xds::pb::listener::SetCurrentClientCertDetailsMessage;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::headers;
use crate::request_policy;

const XFCC: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

/// Removes, keeps or sets XFCC of a request. `own` describes the client's certificate; `None` if
/// the client has none.
pub(crate) fn apply(
    headers: &mut HeaderMap,
    forward: ForwardClientCertDetails,
    own: Option<&HeaderValue>,
) {
    match (forward, own) {
        (ForwardClientCertDetails::AlwaysForwardOnly, _)
        | (ForwardClientCertDetails::ForwardOnly, Some(_)) => {}
        (ForwardClientCertDetails::SanitizeSet, Some(own)) => {
            drop(headers.insert(XFCC, own.clone()));
        }
        (ForwardClientCertDetails::AppendForward, Some(own)) => {
            headers.append(XFCC, own.clone());
            if let Some(joined) = request_policy::join(headers, &XFCC, b",") {
                headers.insert(XFCC, joined);
            }
        }
        (ForwardClientCertDetails::Sanitize, _) | (_, None) => {
            headers::remove_all(headers, |name| *name == XFCC);
        }
    }
}

/// Describes the chain that a client presented. `local` is the certificate of the listener.
pub(crate) fn describe(
    chain: &[CertificateDer<'_>],
    local: Option<&CertificateDer<'_>>,
    details: SetCurrentClientCertDetailsMessage,
) -> Option<HeaderValue> {
    let leaf = chain.first()?;
    let parsed = EndEntityCert::try_from(leaf).ok();
    let mut elements = Vec::new();
    let by = local.and_then(|local| EndEntityCert::try_from(local).ok());
    if let Some(uri) = by.as_ref().and_then(|by| by.valid_uri_names().next()) {
        elements.push(format!("By={uri}"));
    }
    elements.push(format!("Hash={}", sha256(leaf)));
    if details.cert {
        elements.push(format!("Cert=\"{}\"", url_encoded_pem(leaf)));
    }
    if details.chain {
        let chain: String = chain.iter().map(url_encoded_pem).collect();
        elements.push(format!("Chain=\"{chain}\""));
    }
    if details.subject == Some(true) {
        let subject = parsed.as_ref().map(|cert| subject::format(cert.subject()));
        elements.push(format!("Subject=\"{}\"", subject.unwrap_or_default()));
    }
    if let Some(parsed) = &parsed {
        if details.uri {
            let before = elements.len();
            elements.extend(parsed.valid_uri_names().map(|uri| format!("URI={uri}")));
            if elements.len() == before {
                // As in Envoy, the key exists even without a value.
                elements.push("URI=".to_owned());
            }
        }
        if details.dns {
            elements.extend(parsed.valid_dns_names().map(|name| format!("DNS={name}")));
        }
    }
    HeaderValue::try_from(elements.join(";")).ok()
}

/// SHA-256 in lower-case hex, by the hash of a cipher suite.
fn sha256(bytes: &[u8]) -> String {
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    let hash = suite.map(|suite| suite.common.hash_provider.hash(bytes));
    let mut text = String::with_capacity(64);
    for byte in hash.iter().flat_map(AsRef::as_ref) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn url_encoded_pem(certificate: &CertificateDer<'_>) -> String {
    let mut text = "-----BEGIN%20CERTIFICATE-----%0A".to_owned();
    for (index, char) in STANDARD.encode(certificate).chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            text.push_str("%0A");
        }
        match char {
            '+' => text.push_str("%2B"),
            '/' => text.push_str("%2F"),
            '=' => text.push_str("%3D"),
            char => text.push(char),
        }
    }
    text.push_str("%0A-----END%20CERTIFICATE-----%0A");
    text
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(uri: &str, dns: &str, name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec![dns.to_owned()]).unwrap();
        let uri = SanType::URI(uri.try_into().unwrap());
        params.subject_alt_names.push(uri);
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Example, Inc.");
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().into()
    }

    #[test]
    fn the_clients_certificate_is_described_as_in_envoy() {
        let leaf = certificate("spiffe://td/ns/shop", "shop.example", "shop");
        let local = certificate("spiffe://td/edge", "edge.example", "edge");
        let all = SetCurrentClientCertDetailsMessage {
            subject: Some(true),
            cert: true,
            chain: true,
            dns: true,
            uri: true,
        };
        let header = describe(std::slice::from_ref(&leaf), Some(&local), all).unwrap();
        let text = header.to_str().unwrap();
        let elements: Vec<&str> = text.split(';').collect();
        assert_eq!(elements[0], "By=spiffe://td/edge");
        assert_eq!(elements[1].len(), "Hash=".len() + 64);
        assert!(elements[2].starts_with("Cert=\"-----BEGIN%20CERTIFICATE-----%0AMII"));
        assert!(elements[3].ends_with("-----END%20CERTIFICATE-----%0A\""));
        assert!(elements[4].starts_with("Subject=\""), "{}", elements[4]);
        assert!(elements[4].contains("CN=shop"), "{}", elements[4]);
        assert!(elements[4].contains("O=Example\\, Inc."), "{}", elements[4]);
        assert_eq!(elements[5], "URI=spiffe://td/ns/shop");
        assert_eq!(elements[6], "DNS=shop.example");
        let least = describe(&[leaf], None, SetCurrentClientCertDetailsMessage::default()).unwrap();
        assert_eq!(least, elements[1]);
        assert_eq!(describe(&[], Some(&local), all), None);
    }

    #[test]
    fn certificates_are_pem_with_lines_of_64_characters() {
        // 96 bytes are two whole lines; the third has the rest and its padding.
        let bytes: Vec<u8> = (0..=100).map(|byte: u8| byte.wrapping_mul(251)).collect();
        let text = url_encoded_pem(&CertificateDer::from(bytes.clone()));
        let lines: Vec<&str> = text.split("%0A").collect();
        assert_eq!(lines[0], "-----BEGIN%20CERTIFICATE-----");
        assert_eq!(lines[4..], ["-----END%20CERTIFICATE-----", ""]);
        let decoded = |line: &str| {
            let line = line.replace("%2B", "+").replace("%2F", "/");
            line.replace("%3D", "=")
        };
        let body: Vec<String> = lines[1..4].iter().map(|line| decoded(line)).collect();
        let lengths: Vec<usize> = body.iter().map(String::len).collect();
        assert_eq!(lengths, [64, 64, 8]);
        assert_eq!(body.concat(), STANDARD.encode(bytes));
        assert!(!text.contains(['+', '/', '=']), "{text}");
    }

    #[test]
    fn sha256_is_that_of_the_standard() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), expected);
    }

    #[test]
    fn a_header_of_the_client_is_removed_unless_configured() {
        let forged = HeaderValue::from_static("URI=spiffe://td/admin");
        let own = HeaderValue::from_static("Hash=1");
        let apply = |forward, own: Option<&HeaderValue>| {
            let mut headers = HeaderMap::new();
            headers.insert(XFCC, forged.clone());
            apply(&mut headers, forward, own);
            let value = headers.get(XFCC);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let forged = Some("URI=spiffe://td/admin".to_owned());
        let own_only = Some("Hash=1".to_owned());
        for (forward, without, with) in [
            (ForwardClientCertDetails::Sanitize, None, None),
            (ForwardClientCertDetails::SanitizeSet, None, own_only),
            (ForwardClientCertDetails::ForwardOnly, None, forged.clone()),
            (
                ForwardClientCertDetails::AppendForward,
                None,
                Some("URI=spiffe://td/admin,Hash=1".to_owned()),
            ),
            (
                ForwardClientCertDetails::AlwaysForwardOnly,
                forged.clone(),
                forged,
            ),
        ] {
            assert_eq!(apply(forward, None), without, "{forward:?}");
            assert_eq!(apply(forward, Some(&own)), with, "{forward:?}");
        }
    }
}
