//! [`Control`]: reads the configuration, opens the sockets and serves until it is stopped.
//!
//! If an edit of the files is invalid, the edit is rejected as a whole and the running
//! configuration stays in use; the reason is in the log and on the admin API.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_serve::{AdminOptions, CancellationToken, FileSource, Reloads, bind};
use plimsoll_xds::driver::{ServerOptions, serve};
use plimsoll_xds::yaml::ConfigError;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};

use crate::config::ControlConfig;
use crate::server::{Discovery, Handle, LoadReporting, Writer, start};
use crate::{admin, log_lines, source};

/// Reasons why a control plane cannot start or has to stop.
pub type RunError = plimsoll_serve::RunError<ConfigError>;

/// Command-line options of a control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub config: PathBuf,
    /// Overrides the field `listen` of the configuration file.
    pub listen: Option<SocketAddr>,
    /// Overrides the field `admin` of the configuration file.
    pub admin: Option<SocketAddr>,
}

/// Addresses that the control plane listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub xds: SocketAddr,
    pub admin: Option<SocketAddr>,
}

/// State for request handlers of the admin API. The control plane only exits once every [`Handle`]
/// is dropped: a task that keeps a context must drop it when `stopping` is cancelled.
#[derive(Clone, Debug)]
pub struct Context {
    pub handle: Handle,
    pub reloads: Arc<Reloads>,
    pub bound: Bound,
    /// Canceling this token stops the control plane.
    pub stopping: CancellationToken,
    /// Notifying it reloads the files at once, also if they did not change.
    pub reload: Arc<Notify>,
    /// One permit: explanations are computed one at a time.
    pub(crate) explaining: Arc<Semaphore>,
}

impl Context {
    /// Creates the context of a control plane that has not been reloaded yet.
    pub fn new(handle: Handle, bound: Bound) -> Self {
        Self {
            handle,
            reloads: Arc::default(),
            bound,
            stopping: CancellationToken::new(),
            reload: Arc::default(),
            explaining: Arc::new(Semaphore::new(1)),
        }
    }
}

/// A control plane whose sockets are open.
#[derive(Debug)]
pub struct Control {
    options: Options,
    source: FileSource<ControlConfig, ConfigError>,
    config: Arc<ControlConfig>,
    xds: TcpListener,
    admin: Option<TcpListener>,
    writer: Writer,
    context: Context,
}

impl Control {
    /// Reads the files and opens the sockets.
    pub async fn start(options: Options) -> Result<Self, RunError> {
        let mut source = FileSource::new(&options.config, source::load);
        let config = Arc::new(options.override_addresses(source.load()?));
        let (xds, address) = bind(config.listen).await?;
        let admin = match config.admin {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let (admin, admin_address) = admin.unzip();
        let (writer, handle) = start(Arc::clone(&config));
        let bound = Bound {
            xds: address,
            admin: admin_address,
        };
        let context = Context::new(handle, bound);
        Ok(Self {
            options,
            source,
            config,
            xds,
            admin,
            writer,
            context,
        })
    }

    /// Returns the context, for the dashboard and for stopping the control plane.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Serves ADS, LRS and the admin API until `Context::stopping` is canceled. Returns an error if
    /// the writer panics: without it nothing works, and a new process starts clean.
    pub async fn run(self, admin: AdminOptions) -> Result<(), RunError> {
        let Self { xds, context, .. } = self;
        let Context {
            handle, stopping, ..
        } = context.clone();
        let mut writer = tokio::spawn(self.writer.run());
        let mut options = ServerOptions::default();
        options.requests = self.config.limits.requests;
        let edits = tokio::spawn(apply_edits(
            self.source,
            self.options,
            self.config,
            context.clone(),
        ));
        let admin = self.admin.map(|listener| {
            let router = admin::router().into_router(context, admin);
            let stopped = stopping.clone().cancelled_owned();
            tokio::spawn(plimsoll_serve::serve(listener, router, stopped))
        });
        let (ads, lrs) = (Discovery::new(handle.clone()), LoadReporting::new(handle));
        let stopped = stopping.clone().cancelled_owned();
        let served = tokio::select! {
            served = serve(xds, ads, lrs, options, stopped) => served,
            // The writer only returns once all handles are dropped, which `serve` prevents.
            ended = &mut writer => {
                stopping.cancel();
                log_line!(log_lines::WRITER_PANICKED);
                let error: Box<dyn Error + Send + Sync> = match ended {
                    Err(panic) => panic.into(),
                    Ok(()) => "it returned".into(),
                };
                return Err(RunError::Failed("the writer has ended".to_owned(), error));
            }
        };
        stopping.cancel();
        let _ = edits.await;
        if let Some(admin) = admin {
            let _ = admin.await;
        }
        // The writer exits because the last handle has been dropped.
        let _ = writer.await;
        served
            .map_err(|error| RunError::Failed("cannot serve ADS and LRS".to_owned(), error.into()))
    }
}

impl Options {
    fn override_addresses(&self, mut config: ControlConfig) -> ControlConfig {
        config.listen = self.listen.unwrap_or(config.listen);
        config.admin = self.admin.or(config.admin);
        config
    }
}

async fn apply_edits(
    mut source: FileSource<ControlConfig, ConfigError>,
    options: Options,
    initial: Arc<ControlConfig>,
    context: Context,
) {
    loop {
        let edited = tokio::select! {
            () = context.stopping.cancelled() => return,
            edited = source.poll() => edited,
            () = context.reload.notified() => Some(source.load()),
        };
        let outcome = match edited {
            None => continue,
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(config)) => {
                let config = options.override_addresses(config);
                let restart_needed = restart_needed(&initial, &config);
                if context.handle.apply(Arc::new(config)).await.is_err() {
                    return;
                }
                Ok(restart_needed)
            }
        };
        context.reloads.record(outcome);
    }
}

/// Returns the fields that differ in `edited` but take effect at a restart only.
fn restart_needed(started: &ControlConfig, edited: &ControlConfig) -> Vec<&'static str> {
    let (old, new) = (&started.planner, &edited.planner);
    let fields = [
        ("listen", started.listen != edited.listen),
        ("admin", started.admin != edited.admin),
        (
            "demand.max_times_median",
            old.max_times_median() != new.max_times_median(),
        ),
        (
            "limits",
            started.limits.requests != edited.limits.requests
                || started.limits.queue_bytes != edited.limits.queue_bytes,
        ),
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
    fields
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(field, _)| field)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;

    fn config(text: &str) -> ControlConfig {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: text.to_owned(),
        };
        ControlConfig::parse(&file, &[]).unwrap()
    }

    fn options(directory: &std::path::Path, text: &str) -> Options {
        let file = directory.join("control.yaml");
        std::fs::write(&file, text).unwrap();
        Options {
            config: file,
            listen: Some(([127, 0, 0, 1], 0).into()),
            admin: Some(([127, 0, 0, 1], 0).into()),
        }
    }

    #[tokio::test]
    async fn a_panic_of_the_writer_ends_the_run_with_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let control = Control::start(options(directory.path(), "{}"))
            .await
            .unwrap();
        let context = control.context().clone();
        let running = tokio::spawn(control.run(AdminOptions::default()));
        let asked = context
            .handle
            .inspect(|_, _| -> () { panic!("injected by a test") });
        assert!(asked.await.is_err());
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the writer has ended");
        assert!(context.stopping.is_cancelled());
    }

    #[tokio::test]
    async fn a_reload_on_request_reads_the_files_again() {
        let directory = tempfile::tempdir().unwrap();
        let control = Control::start(options(directory.path(), "{}"))
            .await
            .unwrap();
        let context = control.context().clone();
        let running = tokio::spawn(control.run(AdminOptions::default()));
        context.reload.notify_one();
        let reloaded = async {
            while context.reloads.counts().succeeded == 0 {
                tokio::task::yield_now().await;
            }
        };
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(30), reloaded);
        waiting.await.expect("the files are read");
        context.stopping.cancel();
        drop(context);
        running.await.unwrap().unwrap();
    }

    #[test]
    fn fields_that_need_a_restart_are_listed() {
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
        let edited =
            config("{limits: {nodes: 5, fleets: 5, zones_per_fleet: 5, what_if_zones: 5}}");
        assert_eq!(restart_needed(&started, &edited), [""; 0]);
        for limit in ["queue_bytes: 65536", "names: 5"] {
            let edited = config(&format!("{{limits: {{{limit}}}}}"));
            assert_eq!(restart_needed(&started, &edited), ["limits"]);
        }
        let edited = config("{demand: {max_times_median: 5}}");
        assert_eq!(
            restart_needed(&started, &edited),
            ["demand.max_times_median"]
        );
    }
}
