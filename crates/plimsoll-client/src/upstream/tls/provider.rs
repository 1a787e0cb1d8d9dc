//! Choice of the cryptography that rustls uses.
//!
//! The provider that the program has installed for the process comes first; then ring and
//! aws-lc-rs, if their features are enabled. Features are additive, so a dependency may enable
//! both: ring comes first because it is the default.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use super::TlsConfigError;

/// Returns the provider for new connections; fails if there is none.
pub(crate) fn provider() -> Result<Arc<CryptoProvider>, TlsConfigError> {
    let installed = CryptoProvider::get_default().cloned();
    installed.or_else(compiled_in).ok_or_else(|| {
        let reason = "no cryptography provider: enable the feature tls-ring or tls-aws-lc-rs, or \
                      call rustls::crypto::CryptoProvider::install_default at start";
        TlsConfigError::new("tls", reason)
    })
}

/// Returns the provider of the enabled features.
#[cfg(feature = "tls-ring")]
fn compiled_in() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::ring::default_provider()))
}

/// Returns the provider of the enabled features.
#[cfg(all(feature = "tls-aws-lc-rs", not(feature = "tls-ring")))]
fn compiled_in() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// Returns the provider of the enabled features: none.
#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc-rs")))]
const fn compiled_in() -> Option<Arc<CryptoProvider>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Installed providers are tested in `tests/tls_provider.rs`: they are for the whole process.
    #[test]
    fn ring_is_used_first_and_without_a_provider_the_features_are_named() {
        let found = provider().map(|provider| format!("{:?}", provider.key_provider));
        if cfg!(feature = "tls-ring") {
            assert_eq!(found.unwrap(), "Ring");
        } else if cfg!(feature = "tls-aws-lc-rs") {
            assert_eq!(found.unwrap(), "AwsLcRs");
        } else {
            let error = found.unwrap_err().to_string();
            assert!(error.contains("enable the feature tls-ring"), "{error}");
        }
    }
}
