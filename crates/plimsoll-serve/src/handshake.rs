//! [`HandshakeFailure`]: why a TLS handshake failed, in few words that are the same every time, for
//! metrics and advice.

use std::io;
use std::net::IpAddr;

use rustls::{CertificateError, Error};
use tokio::time::Instant;

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client's certificate has expired.
    CertificateExpired,
    /// No authority that is trusted has signed the client's certificate.
    UnknownIssuer,
    /// The client's certificate cannot be used for another reason.
    CertificateInvalid,
    /// The client presents no certificate.
    NoCertificate,
    /// The client does not speak TLS.
    NotTls,
    /// The client ended the handshake: usually it does not trust the certificate of this side.
    RefusedByClient,
    /// The connection broke, or the two have no protocol in common.
    Other,
}

/// The latest failure at a listener.
#[derive(Clone, Debug)]
pub struct FailedHandshake {
    pub at: Instant,
    pub peer: IpAddr,
    pub failure: HandshakeFailure,
    /// What the TLS library says.
    pub error: String,
}

impl HandshakeFailure {
    /// Every failure in the order of `index`, for metrics.
    pub const ALL: [Self; 7] = [
        Self::CertificateExpired,
        Self::UnknownIssuer,
        Self::CertificateInvalid,
        Self::NoCertificate,
        Self::NotTls,
        Self::RefusedByClient,
        Self::Other,
    ];

    /// Returns the name for metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::CertificateExpired => "certificate_expired",
            Self::UnknownIssuer => "unknown_issuer",
            Self::CertificateInvalid => "certificate_invalid",
            Self::NoCertificate => "no_certificate",
            Self::NotTls => "not_tls",
            Self::RefusedByClient => "refused_by_client",
            Self::Other => "other",
        }
    }

    pub(crate) fn of(error: &io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        match cause {
            Some(Error::InvalidCertificate(invalid)) => match invalid {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Self::CertificateExpired
                }
                CertificateError::UnknownIssuer => Self::UnknownIssuer,
                _ => Self::CertificateInvalid,
            },
            Some(Error::NoCertificatesPresented) => Self::NoCertificate,
            Some(Error::InvalidMessage(_)) => Self::NotTls,
            Some(Error::AlertReceived(_)) => Self::RefusedByClient,
            _ => Self::Other,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, InvalidMessage};

    use super::*;

    #[test]
    fn failures_have_stable_names() {
        let of = |error: Error| HandshakeFailure::of(&io::Error::other(error)).label();
        let invalid = |error| of(Error::InvalidCertificate(error));
        assert_eq!(invalid(CertificateError::Expired), "certificate_expired");
        assert_eq!(invalid(CertificateError::UnknownIssuer), "unknown_issuer");
        assert_eq!(
            invalid(CertificateError::BadSignature),
            "certificate_invalid"
        );
        assert_eq!(of(Error::NoCertificatesPresented), "no_certificate");
        assert_eq!(of(InvalidMessage::InvalidContentType.into()), "not_tls");
        let alert = Error::AlertReceived(AlertDescription::UnknownCA);
        assert_eq!(of(alert), "refused_by_client");
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(HandshakeFailure::of(&broken), HandshakeFailure::Other);
        for (index, failure) in HandshakeFailure::ALL.into_iter().enumerate() {
            assert_eq!(failure.index(), index);
        }
    }
}
