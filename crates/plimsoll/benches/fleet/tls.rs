//! Certificates of a measurement with mutual TLS: of the control plane in files, and of the
//! proxies.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

use anyhow::Context as _;
use plimsoll_serve::{ClientTlsSettings, PemSource, client_tls};
use plimsoll_testing::Authority;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Settings of the control plane; the files are in the directory of its configuration.
pub(crate) const SETTINGS: &str = "\
tls: {certificate: server.pem, private_key: server.key, client_ca: ca.pem}
identities: [{name: gateways, uri: 'spiffe://bench/gateway'}]
";

/// Byte stream of a proxy's connection.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Dials the control plane with a client certificate.
#[derive(Clone)]
pub(crate) struct Dialer(TlsConnector);

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

impl Dialer {
    /// Creates all certificates, and writes those of the control plane to a directory.
    pub(crate) fn create(directory: &Path) -> anyhow::Result<Self> {
        let authority = Authority::new();
        let (server, server_key) = authority.issue(&["localhost", "spiffe://bench/control"]);
        for (name, text) in [
            ("ca.pem", &authority.pem),
            ("server.pem", &server),
            ("server.key", &server_key),
        ] {
            fs::write(directory.join(name), text).context("cannot write a certificate")?;
        }
        let (client, client_key) = authority.issue(&["localhost", "spiffe://bench/gateway"]);
        let config = client_tls(&ClientTlsSettings {
            ca: PemSource::Inline(authority.pem),
            certificate: Some((PemSource::Inline(client), PemSource::Inline(client_key))),
            alpn: vec!["h2".to_owned()],
        })?;
        Ok(Self(TlsConnector::from(Arc::clone(&config))))
    }

    pub(crate) async fn handshake(&self, socket: TcpStream) -> anyhow::Result<Box<dyn Socket>> {
        let name = ServerName::try_from("localhost")?;
        Ok(Box::new(self.0.connect(name, socket).await?))
    }
}
