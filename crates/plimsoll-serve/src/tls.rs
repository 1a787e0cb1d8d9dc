//! TLS of listeners, and of connections to other servers: certificates and keys as rustls
//! configurations, and [`WatchedTls`], which loads them again when their files change.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use plimsoll_core::log_line;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::task::JoinHandle;

use crate::expiry::{CertificateUse, Expiry};
use crate::{FileError, FileSource, log_lines};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where a certificate, a key or a list of certificates comes from, in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PemSource {
    File(PathBuf),
    Inline(String),
}

/// Certificates of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsSettings {
    pub certificate: PemSource,
    pub key: PemSource,
    /// Certificate authorities of clients; without them no client certificate is requested.
    pub client_ca: Option<PemSource>,
    pub require_client_certificate: bool,
    pub alpn: Vec<String>,
}

/// Certificates for connections to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsSettings {
    /// Certificate authorities of the server.
    pub ca: PemSource,
    /// Certificate and key to present.
    pub certificate: Option<(PemSource, PemSource)>,
    pub alpn: Vec<String>,
}

/// Reason why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct TlsError {
    /// Path of the certificate or key file, or `inline_string`.
    file: String,
    problem: &'static str,
    source: Option<BoxError>,
}

impl TlsError {
    fn caused<E: Into<BoxError>>(pem: &PemSource, problem: &'static str) -> impl Fn(E) -> Self {
        move |source| Self {
            source: Some(source.into()),
            ..Self::new(pem, problem)
        }
    }

    fn new(pem: &PemSource, problem: &'static str) -> Self {
        let file = match pem {
            PemSource::Inline(_) => "inline_string".to_owned(),
            PemSource::File(path) => path.display().to_string(),
        };
        Self {
            file,
            problem,
            source: None,
        }
    }
}

impl PemSource {
    fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::Inline(_) => None,
        }
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::Inline(text) => Ok(text.as_bytes().to_vec()),
            Self::File(path) => {
                std::fs::read(path).map_err(TlsError::caused(self, "cannot be read"))
            }
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain = CertificateDer::pem_slice_iter(&self.read()?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(TlsError::caused(self, "invalid certificate"))?;
        if chain.is_empty() {
            return Err(TlsError::new(self, "no certificate"));
        }
        Ok(chain)
    }

    /// Returns until when the certificates can be used; `None` if they cannot be read.
    fn expiry(&self, usage: CertificateUse) -> Option<Expiry> {
        let file = self.path().map_or_else(
            || "inline_string".to_owned(),
            |path| path.display().to_string(),
        );
        Expiry::of(&self.certificates().ok()?, usage, file)
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.read()?)
            .map_err(TlsError::caused(self, "invalid private key"))
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let added = roots.add(certificate);
            added.map_err(TlsError::caused(self, "invalid CA certificate"))?;
        }
        Ok(roots)
    }
}

impl ServerTlsSettings {
    /// Returns the files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ]
        .into_iter()
        .flatten()
        .filter_map(PemSource::path)
    }

    /// Returns until when the certificates can be used.
    pub fn expiries(&self) -> Vec<Expiry> {
        let own = self.certificate.expiry(CertificateUse::Own);
        let ca = self.client_ca.as_ref();
        let ca = ca.and_then(|ca| ca.expiry(CertificateUse::Authorities));
        own.into_iter().chain(ca).collect()
    }
}

impl ClientTlsSettings {
    /// Returns the files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let pair = self
            .certificate
            .iter()
            .flat_map(|(chain, key)| [chain, key]);
        let sources = [&self.ca].into_iter().chain(pair);
        sources.filter_map(PemSource::path)
    }

    /// Returns until when the certificates can be used.
    pub fn expiries(&self) -> Vec<Expiry> {
        let pair = self.certificate.as_ref();
        let own = pair.and_then(|(chain, _)| chain.expiry(CertificateUse::Own));
        let ca = self.ca.expiry(CertificateUse::Authorities);
        own.into_iter().chain(ca).collect()
    }
}

/// TLS configuration of a listener, with the certificate that it presents.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub config: Arc<ServerConfig>,
    pub certificate: CertificateDer<'static>,
    /// Until when its certificates can be used.
    pub expiries: Vec<Expiry>,
}

/// Loads the certificates of a listener.
pub fn server_tls(settings: &ServerTlsSettings) -> Result<ServerTls, TlsError> {
    let chain = settings.certificate.certificates()?;
    let key = settings.key.private_key()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = TlsError::caused(&settings.certificate, "unusable certificate or key");
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(&unusable)?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(ca.roots()?);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            if !settings.require_client_certificate {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build();
            let unverifiable = TlsError::caused(ca, "cannot verify client certificates");
            builder.with_client_cert_verifier(verifier.map_err(unverifiable)?)
        }
    };
    let certificate = (chain.first().cloned())
        .ok_or_else(|| TlsError::new(&settings.certificate, "no certificate"))?;
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = protocols(&settings.alpn);
    Ok(ServerTls {
        config: Arc::new(config),
        certificate,
        expiries: settings.expiries(),
    })
}

/// Loads the certificates of a listener whose clients are identified by their certificates. A
/// resumed session would carry a certificate that was verified earlier and may have expired since.
pub fn server_tls_without_resumption(settings: &ServerTlsSettings) -> Result<ServerTls, TlsError> {
    let mut tls = server_tls(settings)?;
    let config = Arc::make_mut(&mut tls.config);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(tls)
}

/// Loads the certificates for connections to a server.
pub fn client_tls(settings: &ClientTlsSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let unusable = TlsError::caused(&settings.ca, "unusable certificates");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(&unusable)?
        .with_root_certificates(settings.ca.roots()?);
    let mut config = match &settings.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain.certificates()?, key.private_key()?)
            .map_err(TlsError::caused(chain, "unusable certificate or key"))?,
    };
    config.alpn_protocols = protocols(&settings.alpn);
    Ok(Arc::new(config))
}

fn protocols(names: &[String]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// Certificates that are loaded again when their files change; a change that cannot be used is
/// logged and counted, and the last usable certificates stay in force. New connections use the
/// new certificates, open connections are not affected.
#[derive(Debug)]
pub struct WatchedTls<T> {
    current: Arc<ArcSwap<T>>,
    reloads: Arc<TlsReloads>,
    /// `None` if there are no files to watch.
    task: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct TlsReloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl<T: Send + Sync + 'static> WatchedTls<T> {
    /// Loads the certificates and starts to watch `files`. `name` says in log lines what the
    /// certificates are for.
    pub fn start(
        name: &'static str,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let Some(first) = files.first().cloned() else {
            return Ok(Self {
                current: Arc::new(ArcSwap::from_pointee(load()?)),
                reloads: Arc::default(),
                task: None,
            });
        };
        let mut source = FileSource::new(first, move |_, watched| {
            for file in &files {
                watched.watch(file);
            }
            load().map_err(FileError::from)
        });
        let loaded = source.load().map_err(|error| error.error)?;
        let current = Arc::new(ArcSwap::from_pointee(loaded));
        let reloads = Arc::new(TlsReloads::default());
        let task = reload(name, source, Arc::clone(&current), Arc::clone(&reloads));
        Ok(Self {
            current,
            reloads,
            task: Some(tokio::spawn(task)),
        })
    }

    /// Returns the certificates in force.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Returns the numbers of changes that took effect and of changes that could not be used.
    pub fn reloads(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.reloads.succeeded), count(&self.reloads.failed))
    }
}

impl<T> Drop for WatchedTls<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn reload<T>(
    name: &'static str,
    mut source: FileSource<T, TlsError>,
    current: Arc<ArcSwap<T>>,
    reloads: Arc<TlsReloads>,
) {
    loop {
        match source.poll().await {
            None => {}
            Some(Ok(tls)) => {
                current.store(Arc::new(tls));
                reloads.succeeded.fetch_add(1, Ordering::Relaxed);
                log_line!(log_lines::CERTIFICATES_RELOADED, of = name);
            }
            Some(Err(error)) => {
                reloads.failed.fetch_add(1, Ordering::Relaxed);
                let error = crate::error_chain(&error.error);
                log_line!(log_lines::CERTIFICATES_REJECTED, of = name, %error);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
