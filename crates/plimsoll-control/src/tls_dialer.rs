//! [`TlsDialer`]: connections to other servers with TLS: the relayed one, etcd, a collector of
//! metrics. Certificates are loaded again when their files change; open connections are not
//! affected.

use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use plimsoll_serve::{Expiry, TlsError, WatchedTls, client_tls};
use plimsoll_xds::driver::{Connecting, Connector, connect_tls};
use rustls::ClientConfig;

use crate::config::RelayTls;

/// Dials with certificates that are loaded again when their files change.
#[derive(Debug)]
pub(crate) struct TlsDialer {
    /// With the times at which the certificates end.
    tls: WatchedTls<(Arc<ClientConfig>, Vec<Expiry>)>,
    settings: Arc<RelayTls>,
}

impl TlsDialer {
    /// Loads the certificates and starts to watch their files.
    pub(crate) fn start(name: &'static str, settings: Arc<RelayTls>) -> Result<Self, TlsError> {
        let files = settings.settings.files().cloned().collect();
        let loaded = Arc::clone(&settings);
        let load = move || {
            let config = client_tls(&loaded.settings)?;
            Ok((config, loaded.settings.expiries()))
        };
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

    /// Returns until when the certificates can be used.
    pub(crate) fn expiries(&self) -> Vec<Expiry> {
        self.tls.current().1.clone()
    }

    /// Numbers of changes of the files that took effect and that could not be used.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        self.tls.reloads()
    }
}

impl Connector for TlsDialer {
    fn connect(&self, uri: &Uri) -> Connecting {
        let config = Arc::clone(&self.tls.current().0);
        connect_tls(uri, self.settings.server_name.as_deref(), Ok(config))
    }

    fn scheme(&self) -> Scheme {
        Scheme::HTTPS
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plimsoll_serve::{ClientTlsSettings, PemSource};
    use plimsoll_testing::tasks::wait_until;

    use super::*;

    async fn wait_for(connector: &TlsDialer, reloads: (u64, u64)) {
        wait_until("the files are loaded again", async || {
            connector.reloads() == reloads
        })
        .await;
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
        assert!(TlsDialer::check(&settings).is_err(), "no file");
        let names = vec!["a.test".to_owned()];
        let issued = rcgen::generate_simple_self_signed(names).unwrap();
        fs::write(&ca, issued.cert.pem()).unwrap();
        assert!(TlsDialer::check(&settings).is_ok());
        let connector = TlsDialer::start("test", Arc::new(settings)).unwrap();
        assert_eq!(connector.reloads(), (0, 0));
        fs::write(&ca, "no certificate").unwrap();
        wait_for(&connector, (0, 1)).await;
        fs::write(&ca, "another text").unwrap();
        wait_for(&connector, (0, 2)).await;
        fs::write(&ca, issued.cert.pem()).unwrap();
        wait_for(&connector, (1, 2)).await;
    }
}
