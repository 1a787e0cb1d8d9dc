//! [`ReloadingTls`]: TLS settings of a cluster, read again when one of their files changes.
//!
//! Files are checked with a dial, at most once a second. If they cannot be used, the last usable
//! settings stay in force, and the next dial after a second tries again.

use std::fs::Metadata;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_core::log_line;
use plimsoll_xds::upstream::{DataSource, TrustedCa, UpstreamOptions, UpstreamTls};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::BoxError;
use crate::log_lines;
use crate::upstream::tls::{Tls, TlsConfigError};

/// Minimum time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ReloadingTls {
    settings: Arc<(UpstreamTls, UpstreamOptions)>,
    files: Vec<String>,
    loaded: Mutex<Option<Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    stamps: Vec<Stamp>,
    checked_at: Instant,
    /// The last settings that could be used.
    tls: Option<Arc<Tls>>,
    error: Option<Arc<TlsConfigError>>,
}

/// Identifies a version of a file; `None` if it does not exist.
type Stamp = Option<(SystemTime, u64)>;

impl ReloadingTls {
    pub(crate) fn new(tls: &UpstreamTls, options: &UpstreamOptions) -> Self {
        let pair = tls.certificate.as_ref();
        let pair = pair.map(|pair| [&pair.certificate_chain, &pair.private_key]);
        let ca = match &tls.ca {
            TrustedCa::Pem(source) => Some(source),
            TrustedCa::Unverified | TrustedCa::System => None,
        };
        let sources = pair.into_iter().flatten().chain(ca);
        let files = sources.filter_map(|source| match source {
            DataSource::Filename(path) => Some(path.clone()),
            DataSource::Inline(_) | DataSource::EnvironmentVariable(_) => None,
        });
        Self {
            files: files.collect(),
            settings: Arc::new((tls.clone(), options.clone())),
            loaded: Mutex::new(None),
        }
    }

    /// Returns the settings in force, after reading files that have changed.
    pub(crate) async fn current(&self) -> Result<Arc<Tls>, BoxError> {
        let mut loaded = self.loaded.lock().await;
        let due =
            (loaded.as_ref()).is_none_or(|loaded| loaded.checked_at.elapsed() >= CHECK_INTERVAL);
        if due {
            let stamps: Vec<Stamp> = self.files.iter().map(|path| stamp(path)).collect();
            let unchanged = (loaded.as_mut())
                .filter(|loaded| loaded.error.is_none() && loaded.stamps == stamps);
            match unchanged {
                Some(loaded) => loaded.checked_at = Instant::now(),
                None => *loaded = Some(self.load(stamps, loaded.take()).await?),
            }
        }
        let (tls, error) = match &*loaded {
            Some(loaded) => (loaded.tls.clone(), loaded.error.clone()),
            None => (None, None),
        };
        match (tls, error) {
            (Some(tls), _) => Ok(tls),
            (None, Some(error)) => Err(error.into()),
            (None, None) => Err("TLS settings are not loaded".into()),
        }
    }

    /// Reads the files on a thread that may block.
    async fn load(&self, stamps: Vec<Stamp>, before: Option<Loaded>) -> Result<Loaded, BoxError> {
        let settings = Arc::clone(&self.settings);
        let reading = move || Tls::try_new(&settings.0, &settings.1);
        let read = tokio::task::spawn_blocking(reading).await?;
        let (tls, error) = match read {
            Ok(tls) => (Some(Arc::new(tls)), None),
            Err(error) => {
                let kept = before.and_then(|before| before.tls);
                if kept.is_some() {
                    log_line!(log_lines::UPSTREAM_CERTIFICATES_REJECTED, %error);
                }
                (kept, Some(Arc::new(error)))
            }
        };
        Ok(Loaded {
            stamps,
            checked_at: Instant::now(),
            tls,
            error,
        })
    }
}

fn stamp(path: &str) -> Stamp {
    let metadata: Metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc-rs"))]
mod tests;
