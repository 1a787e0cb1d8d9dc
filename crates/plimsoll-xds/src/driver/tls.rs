//! [`connect_tls`]: opens a TLS connection to a server, for implementations of
//! [`Connector`](super::Connector). The caller decides about certificates.

use std::io;
use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::connector::{Connecting, Socket};

const HTTPS_PORT: u16 = 443;

/// Connects to the host and port of `uri`, by default port 443. The certificate must be valid for
/// `server_name`, by default the host. An error of `config` is the result.
pub fn connect_tls(
    uri: &Uri,
    server_name: Option<&str>,
    config: io::Result<Arc<ClientConfig>>,
) -> Connecting {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let name = server_name.unwrap_or(host).to_owned();
    let address = (host.to_owned(), uri.port_u16().unwrap_or(HTTPS_PORT));
    Box::pin(async move {
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let connector = TlsConnector::from(config?);
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let encrypted = connector.connect(name, stream).await?;
        Ok(Box::new(encrypted) as Box<dyn Socket>)
    })
}
