//! [`Tls`]: TLS to the hosts of a cluster. Unlike Envoy's default, certificates are verified.

use plimsoll_xds::upstream::{CertificatePair, DataSource, TrustedCa, UpstreamTls};

/// TLS settings of a cluster, for [`Cluster::tls`](crate::Cluster::tls).
///
/// The certificate of a host must be issued by a trusted authority for the name that is asked for
/// (SNI): [`Self::server_name`], or else the endpoint's host name, which is its DNS name. For
/// Envoy's settings, pass an [`UpstreamTls`] instead.
///
/// ```
/// use plimsoll_client::{Cluster, Tls};
///
/// let tls = Tls::with_ca_file("/etc/tls/ca.pem").server_name("orders.internal");
/// let cluster = Cluster::new("orders").zone("zone-a", ["10.0.0.1:443"]).tls(tls);
/// # cluster.build()?;
/// # Ok::<(), plimsoll_client::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tls(UpstreamTls);

impl Tls {
    /// Trusts the certificate authorities of the system.
    pub fn with_system_roots() -> Self {
        Self::trusting(TrustedCa::System)
    }

    /// Trusts the certificate authorities in a PEM file.
    pub fn with_ca_file(path: impl Into<String>) -> Self {
        Self::trusting(TrustedCa::Pem(DataSource::Filename(path.into())))
    }

    /// Trusts the certificate authorities in `pem`.
    pub fn with_ca_pem(pem: impl Into<bytes::Bytes>) -> Self {
        Self::trusting(TrustedCa::Pem(DataSource::Inline(pem.into())))
    }

    /// Accepts any certificate, as Envoy does without a validation context. Anyone who can redirect
    /// traffic can read it.
    pub fn dangerous_without_verification() -> Self {
        Self(UpstreamTls::default())
    }

    fn trusting(ca: TrustedCa) -> Self {
        let mut tls = Self(UpstreamTls::default());
        tls.0.ca = ca;
        tls.0.auto_host_sni = true;
        tls.0.auto_sni_san_validation = true;
        tls
    }

    /// Sets the server name to ask for, and to find in the certificate.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.0.sni = name.into();
        self.0.auto_host_sni = false;
        self
    }

    /// Presents a certificate from PEM files, which are read again for new connections.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate_chain: impl Into<String>,
        private_key: impl Into<String>,
    ) -> Self {
        self.0.certificate = Some(CertificatePair {
            certificate_chain: DataSource::Filename(certificate_chain.into()),
            private_key: DataSource::Filename(private_key.into()),
        });
        self
    }
}

impl From<Tls> for UpstreamTls {
    fn from(tls: Tls) -> Self {
        tls.0
    }
}
