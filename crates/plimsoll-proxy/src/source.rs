//! The file on disk: reading it and noticing that it, or a certificate it names, changed.
//!
//! Changes are found by looking at length and time of modification: notifications of the kernel
//! miss mounted volumes and the symbolic links that Kubernetes swaps.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_xds::yaml::{ConfigError, Document};

use crate::config::ProxyConfig;
use crate::tls;

/// The largest file that is read: a mistake should not eat the memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A configuration and the text it came from.
#[derive(Debug)]
pub struct Loaded<C = Arc<ProxyConfig>> {
    /// What it means.
    pub config: C,
    /// What it says, for pages.
    pub json: serde_json::Value,
    /// When it was read.
    pub last_updated: SystemTime,
}

/// The file.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
}

/// How the files looked; equal when nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, u64, Option<SystemTime>)>);

/// What was wrong, and in which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub file: String,
    /// What was wrong.
    pub error: ConfigError,
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.file, self.error)
    }
}

impl std::error::Error for FileError {}

impl FileSource {
    /// A source that reads `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads the file. The fingerprint was taken before, so that a change in between is seen by the
    /// next look.
    pub fn load(&self) -> Result<(Loaded<ProxyConfig>, Fingerprint), FileError> {
        let own = vec![look(&self.path)];
        let failed = |error| FileError {
            file: self.path.display().to_string(),
            error,
        };
        let text = read(&self.path).map_err(|reason| failed(ConfigError::new("", reason)))?;
        let config = ProxyConfig::parse(&text).map_err(failed)?;
        let document = Document::parse(&text).map_err(failed)?;
        let json = document.json();
        let mut fingerprint = Fingerprint(own);
        fingerprint
            .0
            .extend(certificates(&config).map(|path| look(path)));
        let loaded = Loaded {
            config,
            json,
            last_updated: SystemTime::now(),
        };
        Ok((loaded, fingerprint))
    }

    /// How the files look now; certificates are those of `config`.
    pub fn fingerprint(&self, config: &ProxyConfig) -> Fingerprint {
        let mut files = vec![look(&self.path)];
        files.extend(certificates(config).map(|path| look(path)));
        Fingerprint(files)
    }
}

fn certificates(config: &ProxyConfig) -> impl Iterator<Item = &PathBuf> {
    let tls = config
        .listeners
        .iter()
        .filter_map(|listener| listener.tls.as_ref());
    tls.flat_map(tls::files)
}

/// What cannot be read looks like an empty file.
fn look(path: &Path) -> (PathBuf, u64, Option<SystemTime>) {
    let metadata = fs::metadata(path).ok();
    let length = metadata.as_ref().map_or(0, fs::Metadata::len);
    let modified = metadata.and_then(|metadata| metadata.modified().ok());
    (path.to_owned(), length, modified)
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error| format!("cannot be read: {error}");
    let metadata = fs::metadata(path).map_err(cannot)?;
    if metadata.len() > MAX_FILE_BYTES {
        return Err(format!(
            "{} bytes are more than {MAX_FILE_BYTES}",
            metadata.len()
        ));
    }
    fs::read_to_string(path).map_err(cannot)
}
