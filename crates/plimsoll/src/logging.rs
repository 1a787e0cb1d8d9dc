//! Logging of long-running commands: to standard error, as text or JSON, filtered by `RUST_LOG`.

mod escape;
mod repeats;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use plimsoll_proxy::SetLogging;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use escape::Escaping;
use repeats::RepeatLimit;

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
    let ansi = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_writer(move || Escaping::new(io::stderr(), ansi))
        .with_ansi(ansi);
    match format {
        LogFormat::Text => {
            let lines = lines.with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.finish().with(RepeatLimit::default()).try_init();
            Arc::new(move |text| Ok(handle.reload(EnvFilter::try_new(text)?)?))
        }
        LogFormat::Json => {
            let lines = lines.json().with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.finish().with(RepeatLimit::default()).try_init();
            Arc::new(move |text| Ok(handle.reload(EnvFilter::try_new(text)?)?))
        }
    }
}
