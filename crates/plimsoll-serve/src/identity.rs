//! [`PeerIdentity`]: the names in a client's certificate.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

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
        assert_eq!(PeerIdentity::of(&[vec![1, 2, 3].into()]), None);
    }
}
