//! [`Authority`]: certificate authority for tests.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// A certificate authority for tests. Certificates come with their private key, both in PEM.
#[derive(Debug)]
pub struct Authority {
    /// CA certificate in PEM.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority with a key of its own.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        Self::named("test CA")
    }

    /// Creates an authority with a common name, by which OpenSSL and etcd tell two apart.
    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Issues a certificate for DNS names, addresses and URIs.
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        self.sign(params(names))
    }

    /// Issues a certificate that is valid from 2020 to the end of a year.
    pub fn issue_until(&self, names: &[&str], last_year: i32) -> (String, String) {
        let mut params = params(names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        self.sign(params)
    }

    /// Signs a certificate with a new key.
    pub fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let (uris, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
    let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    let uris = uris
        .into_iter()
        .map(|uri| SanType::URI(uri.try_into().unwrap()));
    params.subject_alt_names.extend(uris);
    params
}
