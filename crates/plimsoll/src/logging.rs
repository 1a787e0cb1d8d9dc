//! Logging of long-running commands: to standard error, as text or JSON, filtered by `RUST_LOG`.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use plimsoll_proxy::SetLogging;
use tracing_subscriber::EnvFilter;

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people to read.
    Text,
    /// One JSON object per line.
    Json,
}

/// Installs the log subscriber unless one is installed already. `default` is the filter if
/// `RUST_LOG` is not set. Returns a function that changes the filter of the running process.
pub(crate) fn start(format: LogFormat, default: &str) -> SetLogging {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => {
            let lines = lines.with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.try_init();
            Arc::new(move |text| Ok(handle.reload(EnvFilter::try_new(text)?)?))
        }
        LogFormat::Json => {
            let lines = lines.json().with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.try_init();
            Arc::new(move |text| Ok(handle.reload(EnvFilter::try_new(text)?)?))
        }
    }
}
