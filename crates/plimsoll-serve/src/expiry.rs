//! [`Expiry`]: until when the certificates of a file can be used.

use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// What the certificates of a file are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateUse {
    /// A certificate with its chain, to present to the other side.
    Own,
    /// Authorities that sign the certificates of the other side.
    Authorities,
}

/// Until when the certificates of a file can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    pub usage: CertificateUse,
    /// Path of the file, or `inline_string`.
    pub file: String,
    pub unix_seconds: i64,
}

impl CertificateUse {
    /// Returns the name for metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Own => "certificate",
            Self::Authorities => "ca",
        }
    }
}

impl Expiry {
    /// Reads when certificates expire: a chain with its first member, and authorities with the
    /// last, because the old one stays in the file while a new one is rolled out. Returns `None`
    /// if nothing can be read.
    pub(crate) fn of(
        certificates: &[CertificateDer<'_>],
        usage: CertificateUse,
        file: String,
    ) -> Option<Self> {
        let ends = certificates.iter().filter_map(|certificate| {
            let (_, parsed) = parse_x509_certificate(certificate).ok()?;
            Some(parsed.validity().not_after.timestamp())
        });
        let unix_seconds = match usage {
            CertificateUse::Own => ends.min(),
            CertificateUse::Authorities => ends.max(),
        }?;
        Some(Self {
            usage,
            file,
            unix_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn until(year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().into()
    }

    #[test]
    fn a_chain_ends_with_its_first_member_and_authorities_with_the_last() {
        let certificates = [until(2031), until(2030), until(2032)];
        let end = |usage| {
            let expiry = Expiry::of(&certificates, usage, "a.pem".to_owned()).unwrap();
            assert_eq!((expiry.usage, expiry.file.as_str()), (usage, "a.pem"));
            expiry.unix_seconds
        };
        assert_eq!(end(CertificateUse::Own), 1_893_456_000);
        assert_eq!(end(CertificateUse::Authorities), 1_956_528_000);
        let broken = [CertificateDer::from(vec![1, 2, 3])];
        assert_eq!(
            Expiry::of(&broken, CertificateUse::Own, String::new()),
            None
        );
    }
}
