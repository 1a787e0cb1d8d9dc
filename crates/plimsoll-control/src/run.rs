//! [`Control`]: reads the configuration, opens the sockets and serves until it is stopped.
//!
//! If an edit of the files is invalid, the edit is rejected as a whole and the running
//! configuration stays in use; the reason is in the log and on the admin API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_serve::{AdminOptions, CancellationToken, FileSource, Reloads, bind};
use plimsoll_xds::driver::{ServerOptions, serve};
use plimsoll_xds::yaml::ConfigError;
use tokio::net::TcpListener;

use crate::config::ControlConfig;
use crate::server::{Discovery, Handle, LoadReporting, Writer, start};
use crate::{admin, source};

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
        let context = Context {
            handle,
            reloads: Arc::default(),
            bound: Bound {
                xds: address,
                admin: admin_address,
            },
            stopping: CancellationToken::new(),
        };
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

    /// Serves ADS, LRS and the admin API until `Context::stopping` is canceled.
    pub async fn run(self, admin: AdminOptions) -> Result<(), RunError> {
        let Self { xds, context, .. } = self;
        let Context {
            handle, stopping, ..
        } = context.clone();
        let writer = tokio::spawn(self.writer.run());
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
        let served = serve(xds, ads, lrs, ServerOptions::default(), stopped).await;
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
    }
}
