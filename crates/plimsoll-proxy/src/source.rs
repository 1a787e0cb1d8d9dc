//! Loads the bootstrap file and watches it and its certificates for changes.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_serve::Files;
use plimsoll_xds::yaml::{ConfigError, Document};

use crate::config::ProxyConfig;
use crate::tls;

/// A configuration error and the file that has it.
pub type FileError = plimsoll_serve::FileError<ConfigError>;

/// A parsed bootstrap file, with its JSON and the time at which it was loaded.
#[derive(Debug)]
pub struct Loaded {
    pub config: Arc<ProxyConfig>,
    /// The bootstrap file as JSON, for `/config_dump`.
    pub json: serde_json::Value,
    pub last_updated: SystemTime,
}

/// Loads the bootstrap file. Certificates are watched for changes, but not read here.
pub fn load(path: &Path, files: &mut Files) -> Result<Loaded, FileError> {
    let file = files.read(path)?;
    let config = ProxyConfig::parse(&file.text).map_err(|error| file.error(error))?;
    let document = Document::parse(&file.text).map_err(|error| file.error(error))?;
    let listeners = config.listeners.iter();
    let certificates = listeners.filter_map(|listener| listener.tls.as_ref());
    for path in certificates.flat_map(tls::files) {
        files.watch(path);
    }
    Ok(Loaded {
        config: Arc::new(config),
        json: document.json(),
        last_updated: SystemTime::now(),
    })
}
