//! [`RelayConnector`]: connections to other servers with TLS: the relayed one, etcd, a collector of
//! metrics. Certificates are loaded again
//! when their files change; open connections are not affected.

use std::io;
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use plimsoll_serve::{TlsError, WatchedTls, client_tls};
use plimsoll_xds::driver::{Connecting, Connector, Socket};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::{Service, service_fn};

use crate::config::RelayTls;

/// Dials with certificates that are loaded again when their files change.
#[derive(Debug)]
pub(crate) struct RelayConnector {
    tls: WatchedTls<Arc<ClientConfig>>,
    settings: Arc<RelayTls>,
}

impl RelayConnector {
    /// Loads the certificates and starts to watch their files.
    pub(crate) fn start(name: &'static str, settings: Arc<RelayTls>) -> Result<Self, TlsError> {
        let files = settings.settings.files().cloned().collect();
        let loaded = Arc::clone(&settings);
        let load = move || client_tls(&loaded.settings);
        Ok(Self {
            tls: WatchedTls::start(name, files, load)?,
            settings,
        })
    }

    pub(crate) fn check(settings: &RelayTls) -> Result<(), TlsError> {
        client_tls(&settings.settings).map(drop)
    }

    pub(crate) fn settings(&self) -> &Arc<RelayTls> {
        &self.settings
    }

    /// Numbers of changes of the files that took effect and that could not be used.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        self.tls.reloads()
    }
}

/// Returns what a gRPC channel dials with. The URI of its endpoint must have the scheme `http`:
/// channels refuse to leave TLS to others else.
pub(crate) fn dialer(
    connector: Arc<RelayConnector>,
) -> impl Service<
    Uri,
    Response = TokioIo<Box<dyn Socket>>,
    Error = io::Error,
    Future = impl Future<Output = io::Result<TokioIo<Box<dyn Socket>>>> + Send,
> + Clone
+ Send
+ 'static {
    service_fn(move |uri: Uri| {
        let connecting = connector.connect(&uri);
        async move { connecting.await.map(TokioIo::new) }
    })
}

impl Connector for RelayConnector {
    fn connect(&self, uri: &Uri) -> Connecting {
        let host = uri
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let server_name = self.settings.server_name.as_ref();
        let name = server_name.unwrap_or(&host).clone();
        let config = Arc::clone(&*self.tls.current());
        Box::pin(async move {
            let name = ServerName::try_from(name).map_err(io::Error::other)?;
            let stream = TcpStream::connect((&*host, port)).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(config);
            let stream = connector.connect(name, stream).await?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    fn scheme(&self) -> Scheme {
        Scheme::HTTPS
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use plimsoll_serve::{ClientTlsSettings, PemSource};

    use super::*;

    /// Waits in simulated time until the files were loaded this often.
    async fn wait_for(connector: &RelayConnector, reloads: (u64, u64)) {
        let waiting = async {
            while connector.reloads() != reloads {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(3600), waiting).await;
        waited.expect("the files are loaded again");
    }

    #[tokio::test(start_paused = true)]
    async fn certificates_are_checked_and_their_changes_counted() {
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.crt");
        let settings = RelayTls {
            settings: ClientTlsSettings {
                ca: PemSource::File(ca.clone()),
                certificate: None,
                alpn: vec!["h2".to_owned()],
            },
            server_name: None,
        };
        assert!(RelayConnector::check(&settings).is_err(), "no file");
        let names = vec!["a.test".to_owned()];
        let issued = rcgen::generate_simple_self_signed(names).unwrap();
        fs::write(&ca, issued.cert.pem()).unwrap();
        assert!(RelayConnector::check(&settings).is_ok());
        let connector = RelayConnector::start("test", Arc::new(settings)).unwrap();
        assert_eq!(connector.reloads(), (0, 0));
        fs::write(&ca, "no certificate").unwrap();
        wait_for(&connector, (0, 1)).await;
        fs::write(&ca, "another text").unwrap();
        wait_for(&connector, (0, 2)).await;
        fs::write(&ca, issued.cert.pem()).unwrap();
        wait_for(&connector, (1, 2)).await;
    }
}
