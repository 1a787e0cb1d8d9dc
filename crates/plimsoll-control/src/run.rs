//! [`run`]: a whole control plane on its sockets, until it is told to stop.
//!
//! Wires the parts: file, writer, discovery and load reporting, admin API. A bad edit of the file
//! keeps what is in force and says why, in the log and on the admin API.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use plimsoll_xds::driver::{HttpGuard, ServerOptions, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin::{self, Reloads};
use crate::config::{ControlConfig, FileError};
use crate::server::{Discovery, Handle, LoadReporting, start};
use crate::source::{FileSource, Fingerprint};

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The main file.
    pub config: PathBuf,
    /// Instead of `listen` of the file.
    pub listen: Option<SocketAddr>,
    /// Instead of `admin` of the file.
    pub admin: Option<SocketAddr>,
    /// Further names of the admin address.
    pub admin_hosts: Vec<String>,
}

/// Where the control plane listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// ADS and LRS.
    pub xds: SocketAddr,
    /// The admin API.
    pub admin: Option<SocketAddr>,
}

/// Why it could not start or had to end.
#[derive(Debug)]
pub enum RunError {
    /// The first reading of the file failed.
    Config(FileError),
    /// An address could not be bound.
    Bind(SocketAddr, io::Error),
    /// A listening socket failed.
    Serve(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Bind(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Serve(error) => write!(f, "serving failed: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

/// What further pages of the admin API may look at. Their way to the writer must be gone when
/// `stopping` has no sender any more, or the control plane could not end.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The way to the writer.
    pub handle: Handle,
    /// What became of edits.
    pub reloads: Arc<Reloads>,
    /// Where it listens.
    pub bound: Bound,
    /// Its sender is dropped when the control plane is to end.
    pub stopping: watch::Receiver<()>,
}

/// Makes further pages of the admin API, `/` among them.
pub type Pages = Box<dyn FnOnce(Inside) -> Router + Send>;

/// Runs until `shutdown` is done. `ready` hears where it listens.
pub async fn run(
    options: Options,
    ready: impl FnOnce(Bound),
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    run_with(options, None, ready, shutdown).await
}

/// The same with further pages of the admin API.
pub async fn run_with(
    options: Options,
    pages: Option<Pages>,
    ready: impl FnOnce(Bound),
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let source = FileSource::new(&options.config);
    let (config, fingerprint) = source.load().map_err(RunError::Config)?;
    let admin_hosts = options.admin_hosts.clone();
    let config = Arc::new(options.override_addresses(config));
    let xds = bind(config.listen).await?;
    let admin_listener = match config.admin {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let local = |listener: &TcpListener, asked| listener.local_addr().unwrap_or(asked);
    let bound = Bound {
        xds: local(&xds, config.listen),
        admin: admin_listener
            .as_ref()
            .zip(config.admin)
            .map(|(listener, asked)| local(listener, asked)),
    };
    let (writer, handle) = start(Arc::clone(&config));
    let writer = tokio::spawn(writer.run());
    let reloads = Arc::new(Reloads::default());
    let (stop, stopping) = watch::channel(());
    let watching = tokio::spawn(watch_files(
        (source, options, Arc::clone(&config), fingerprint),
        handle.clone(),
        Arc::clone(&reloads),
        stopping.clone(),
    ));
    let admin = admin_listener.map(|listener| {
        let inside = Inside {
            handle: handle.clone(),
            reloads: Arc::clone(&reloads),
            bound,
            stopping: stopping.clone(),
        };
        let pages = pages.map(|pages| pages(inside));
        let admin = admin::Admin::new(handle.clone(), reloads, bound)
            .with_pages(pages)
            .with_guard(HttpGuard::new(&admin_hosts));
        tokio::spawn(admin::serve(listener, admin, stopped(stopping.clone())))
    });
    ready(bound);
    let signal = async move {
        shutdown.await;
        drop(stop);
    };
    let handlers = (Discovery::new(handle.clone()), LoadReporting::new(handle));
    let served = serve(xds, handlers, ServerOptions::default(), signal).await;
    let _ = watching.await;
    if let Some(admin) = admin {
        let _ = admin.await;
    }
    // The last handle is gone: the writer ends by itself.
    let _ = writer.await;
    served.map_err(|error| RunError::Serve(error.to_string()))
}

impl Options {
    fn override_addresses(&self, mut config: ControlConfig) -> ControlConfig {
        config.listen = self.listen.unwrap_or(config.listen);
        config.admin = self.admin.or(config.admin);
        config
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, RunError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| RunError::Bind(address, error))
}

async fn stopped(mut stopping: watch::Receiver<()>) {
    // The sender never sends: it is dropped.
    while stopping.changed().await.is_ok() {}
}

async fn watch_files(
    (source, options, started, mut last): (FileSource, Options, Arc<ControlConfig>, Fingerprint),
    handle: Handle,
    reloads: Arc<Reloads>,
    stopping: watch::Receiver<()>,
) {
    let mut stopping = std::pin::pin!(stopped(stopping));
    loop {
        tokio::select! {
            () = &mut stopping => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let now = source.fingerprint();
        if now == last {
            continue;
        }
        last = now;
        match source.load() {
            Ok((config, fingerprint)) => {
                last = fingerprint;
                let config = options.override_addresses(config);
                let restart_needed = restart_needed(&started, &config);
                if !restart_needed.is_empty() {
                    let fields = restart_needed.join(", ");
                    tracing::warn!(%fields, "these edits take effect at the next start");
                }
                reloads.succeeded(restart_needed);
                if handle.apply(Arc::new(config)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::error!(%error, "the new configuration is refused, the old one stays");
                reloads.failed(error.to_string());
            }
        }
    }
}

/// Fields that an edit changed but that are read at the start only.
fn restart_needed(started: &ControlConfig, edited: &ControlConfig) -> Vec<&'static str> {
    let (old, new) = (&started.planner, &edited.planner);
    let fields = [
        ("listen", started.listen != edited.listen),
        ("admin", started.admin != edited.admin),
        ("demand.smoothing_time_constant", old.tau() != new.tau()),
        (
            "demand.missed_intervals",
            old.missed_intervals() != new.missed_intervals(),
        ),
        (
            "demand.material_change_bp",
            old.material_change_bp() != new.material_change_bp(),
        ),
    ];
    let changed = fields.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::File;

    fn config(text: &str) -> ControlConfig {
        let file = File {
            name: "control.yaml".to_owned(),
            text: text.to_owned(),
        };
        ControlConfig::parse(&file, &[]).unwrap()
    }

    #[test]
    fn edits_that_need_a_restart_are_named() {
        let started = config("{}");
        let edited = config("{load_reporting: {interval: 5s}, services: [{cluster: {name: a}}]}");
        assert_eq!(restart_needed(&started, &edited), [""; 0]);
        let edited = config("{demand: {heartbeat: 5s}}");
        assert_eq!(restart_needed(&started, &edited), [""; 0]);
        let edited = config("{listen: '127.0.0.1:1', demand: {missed_intervals: 5}}");
        assert_eq!(
            restart_needed(&started, &edited),
            ["listen", "demand.missed_intervals"]
        );
    }
}
