//! Logs of long-running commands: to standard error, as text or JSON, filtered by `RUST_LOG`.

use std::io::{self, IsTerminal as _};

use plimsoll_proxy::SetLogging;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging; a second call changes nothing.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // An error means that somebody else has already started it.
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}

/// The same for commands whose output is for people to look at: errors only, unless `RUST_LOG` says
/// otherwise.
pub(crate) fn start_quiet() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter);
    // An error means that somebody else has already started it.
    let _ = lines
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
}

/// The same, and a way to change the filter while the process runs.
pub(crate) fn start_adjustable(format: LogFormat) -> SetLogging {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // An error means that somebody else has already started it.
    match format {
        LogFormat::Text => {
            let lines = lines.with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.try_init();
            SetLogging::new(move |text| Ok(handle.reload(directives(text)?)?))
        }
        LogFormat::Json => {
            let lines = lines.json().with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            let _ = lines.try_init();
            SetLogging::new(move |text| Ok(handle.reload(directives(text)?)?))
        }
    }
}

fn directives(text: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    EnvFilter::try_new(text)
}
