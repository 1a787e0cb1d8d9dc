//! [`Authority`]: certificate authority for tests, here and in `src/upstream/tls`.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

/// A certificate authority for tests.
pub(crate) struct Authority {
    /// CA certificate in PEM.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Signs a certificate for these names; returns it with its key.
    pub(crate) fn sign(&self, names: &[SanType]) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names.to_vec();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
