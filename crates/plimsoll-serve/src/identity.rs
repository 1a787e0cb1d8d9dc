//! [`PeerIdentity`]: the names in a client's certificate.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;
use x509_parser::parse_x509_certificate;

/// Subject alternative names of a verified certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// URIs, such as the SPIFFE ID of a workload.
    pub uris: Vec<String>,
    pub dns_names: Vec<String>,
}

impl PeerIdentity {
    /// Reads the names of a chain whose first certificate is the client's.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let certificate = EndEntityCert::try_from(chain.first()?).ok()?;
        Some(Self {
            uris: certificate.valid_uri_names().map(str::to_owned).collect(),
            dns_names: certificate.valid_dns_names().map(str::to_owned).collect(),
        })
    }
}

/// Returns when the first certificate of a chain expires (`notAfter`).
pub(crate) fn expires(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let (_, certificate) = parse_x509_certificate(chain.first()?).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[test]
    fn uris_and_dns_names_of_the_first_certificate_are_read() {
        let certificate = |names: &[&str], uri: Option<&str>| -> CertificateDer<'static> {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            let uri = uri.map(|uri| SanType::URI(uri.try_into().unwrap()));
            params.subject_alt_names.extend(uri);
            let key = KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().into()
        };
        let first = certificate(&["a.example", "b.example"], Some("spiffe://td/gateway"));
        let second = certificate(&["ca.example"], None);
        let identity = PeerIdentity::of(&[first, second]).unwrap();
        assert_eq!(identity.uris, ["spiffe://td/gateway"]);
        assert_eq!(identity.dns_names, ["a.example", "b.example"]);
        assert_eq!(PeerIdentity::of(&[]), None);
        assert_eq!(expires(&[vec![1, 2, 3].into()]), None);
        assert_eq!(PeerIdentity::of(&[vec![1, 2, 3].into()]), None);
    }

    #[test]
    fn a_certificate_expires_at_its_not_after() {
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        // 2031-02-03T00:00:00Z
        let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(1_927_843_200);
        assert_eq!(expires(&[certificate.into()]), Some(expected));
    }
}
