//! [`Control`]: reads the configuration, opens the sockets and serves until it is stopped.
//!
//! `edits` applies edits of the files.

mod edits;

use std::error::Error;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use plimsoll_core::log_line;
use plimsoll_core::units::FieldError;
use plimsoll_serve::{
    AdminAccess, AdminListener, AdminOptions, Administrators, CancellationToken, ConnectionStats,
    FileError, FileSource, Incoming, IncomingOptions, Reloads, ServerTls, ServerTlsSettings,
    TlsError, WatchedTls, bind, server_tls_without_resumption,
};
use plimsoll_xds::driver::{Clock, ServerOptions, serve};
use plimsoll_xds::yaml::ConfigError;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinHandle};

use crate::audit::Audit;
use crate::certificates;
use crate::config::{ControlConfig, IncomingLimits, Insecure, Limits, Otlp};
use crate::evacuation::{StateFile, guard};
use crate::load_line::ShareCache;
use crate::reload::{ReloadRequest, ReloadRequests};
use crate::server::{self, Handle, LoadReporting, Writer, start_with};
#[cfg(feature = "etcd")]
use crate::store::EtcdStore;
use crate::store::ReplicaIdentity;
use crate::supervisor::Supervisor;
use crate::tls_dialer::TlsDialer;
use crate::transport::{LISTENER, XdsIncoming};
use crate::{admin, handshakes, log_lines, otlp, source};
use edits::Edits;

/// Descriptors that are kept for the admin API, files and connections to a relayed server, so that
/// the process can be observed when all connections are in use.
const RESERVED_FILES: u64 = 256;

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
    /// Overrides the field `read_only` of the configuration file.
    pub read_only: Option<SocketAddr>,
    /// Name of this replica; by default the name of the host and random digits.
    pub replica_id: Option<String>,
    /// Where to keep what a restart must not forget; `None` keeps it in memory.
    pub state_directory: Option<PathBuf>,
}

/// Addresses that the control plane listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub xds: SocketAddr,
    pub admin: Option<SocketAddr>,
    /// Address of the admin API for reading only.
    pub read_only: Option<SocketAddr>,
}

/// Connections and certificates of the listeners, for metrics.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    pub(crate) xds: Arc<ConnectionStats>,
    pub(crate) admin: Arc<ConnectionStats>,
    pub(crate) read_only: Arc<ConnectionStats>,
    pub(crate) xds_tls: Option<Arc<WatchedTls<ServerTls>>>,
    pub(crate) admin_tls: Option<Arc<WatchedTls<ServerTls>>>,
    pub insecure: Insecure,
    /// Requests to the admin API use TLS.
    pub admin_uses_tls: bool,
}

/// State for request handlers of the admin API. The control plane only exits once every [`Handle`]
/// is dropped: a task that keeps a context must drop it when `stopping` is cancelled.
#[derive(Clone, Debug)]
pub struct Context {
    pub handle: Handle,
    pub reloads: Arc<Reloads>,
    pub bound: Bound,
    pub listeners: Listeners,
    /// Canceling this token stops the control plane.
    pub stopping: CancellationToken,
    /// Reloads the files at once, also if they did not change.
    pub reload: ReloadRequests,
    /// One permit: explanations are computed one at a time.
    pub(crate) explaining: Arc<Semaphore>,
    /// Routing shares of load lines.
    pub(crate) shares: ShareCache,
}

impl Context {
    /// Creates the context of a control plane that has not been reloaded yet, and whose files
    /// nobody watches.
    pub fn new(handle: Handle, bound: Bound) -> Self {
        Self {
            handle,
            reloads: Arc::default(),
            bound,
            listeners: Listeners::default(),
            stopping: CancellationToken::new(),
            reload: ReloadRequests::channel().0,
            explaining: Arc::new(Semaphore::new(1)),
            shares: ShareCache::default(),
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
    read_only: Option<TcpListener>,
    writer: Writer,
    context: Context,
    reloads: mpsc::Receiver<ReloadRequest>,
    #[cfg(feature = "etcd")]
    store: Option<EtcdStore>,
}

impl Control {
    /// Reads the files and opens the sockets.
    pub async fn start(options: Options) -> Result<Self, RunError> {
        let mut source = FileSource::new(&options.config, source::load);
        let config = Arc::new(options.override_addresses(source.load()?));
        config.check_exposure().map_err(invalid)?;
        config.check_addresses(|_| true).map_err(invalid)?;
        let (xds, address) = bind(config.addresses.listen).await?;
        let (admin, admin_address) = bind_optional(config.addresses.admin).await?;
        let (read_only, read_only_address) = bind_optional(config.addresses.read_only).await?;
        let listeners = Listeners::start(&config).map_err(unusable)?;
        let replica = config.store.as_ref().map(|_| options.replica());
        let (writer, handle) = start_with(Arc::clone(&config), replica.as_ref(), options.audit()?);
        #[cfg(feature = "etcd")]
        let store = store(&config, replica, address, &handle).map_err(unusable)?;
        set_relay_connector(&handle, &config).map_err(unusable)?;
        listeners.watch_certificates(&handle);
        adopt_orders(&handle, &config).await?;
        let bound = Bound {
            xds: address,
            admin: admin_address,
            read_only: read_only_address,
        };
        let (reload, reloads) = ReloadRequests::channel();
        let context = Context {
            listeners,
            reload,
            ..Context::new(handle, bound)
        };
        Ok(Self {
            options,
            source,
            config,
            xds,
            admin,
            read_only,
            writer,
            context,
            reloads,
            #[cfg(feature = "etcd")]
            store,
        })
    }

    /// Returns the context, for the dashboard and for stopping the control plane.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Serves ADS, LRS and the admin API until `Context::stopping` is canceled. Returns an error if
    /// the writer or another task ends that is needed: a new process starts clean.
    pub async fn run(self, admin: AdminOptions) -> Result<(), RunError> {
        let Self { xds, context, .. } = self;
        let Context {
            handle,
            stopping,
            listeners,
            ..
        } = context.clone();
        let mut writer = tokio::spawn(self.writer.run());
        let options = server_options(&self.config.operation.limits);
        let limits = within_files(self.config.operation.limits.incoming, open_files_limit());
        let edits = Edits::new(self.options, &self.config, context.clone());
        let supervisor = handle.supervisor().clone();
        let edits = supervisor.spawn("files", edits.apply_all(self.source, self.reloads));
        let zones = supervisor.spawn("zones", guard(context.clone(), StateFile::of(&self.config)));
        #[cfg(feature = "etcd")]
        let store = self
            .store
            .map(|store| supervisor.spawn("store", store.run(stopping.clone())));
        #[cfg(not(feature = "etcd"))]
        let store = None;
        let read_only = read_only(&admin);
        let restricted = AdminOptions {
            access: AdminAccess::Restricted,
            administrators: handle.administrators(),
            ..admin
        };
        let router = |options| admin::router().into_router(context.clone(), options);
        let admin = [
            self.admin.map(|socket| {
                let (tls, stats) = (listeners.admin_tls.clone(), Arc::clone(&listeners.admin));
                let listener = AdminListener { socket, tls, stats };
                serve_admin(listener, router(restricted), &stopping)
            }),
            self.read_only.map(|socket| {
                let (tls, stats) = (None, Arc::clone(&listeners.read_only));
                let listener = AdminListener { socket, tls, stats };
                serve_admin(listener, router(read_only), &stopping)
            }),
        ];
        start_export(&context, self.config.operation.otlp.clone())?;
        tell_of_connections(&handle, &listeners, &stopping);
        drop(context);
        let ads = server::Discovery::new(handle.clone());
        let lrs = LoadReporting::new(handle);
        let stopped = stopping.clone().cancelled_owned();
        let incoming = listeners.xds_incoming(xds, limits);
        tokio::select! {
            () = serve(incoming, ads, lrs, options, stopped) => (),
            // The writer only returns once all handles are dropped, which `serve` prevents.
            ended = &mut writer => {
                stopping.cancel();
                return Err(writer_ended(ended));
            }
            task = ended_early(&supervisor, &stopping) => {
                stopping.cancel();
                return Err(task_ended(task));
            }
        }
        stopping.cancel();
        let tasks = [Some(edits), Some(zones), store].into_iter().chain(admin);
        for task in tasks.flatten() {
            let _ = task.await;
        }
        // The writer exits because the last handle has been dropped.
        let _ = writer.await;
        Ok(())
    }
}

/// Tells of certificates that end, and of TLS handshakes that fail.
fn tell_of_connections(handle: &Handle, listeners: &Listeners, stopping: &CancellationToken) {
    let warn = certificates::warn_of_ends(handle.clone(), stopping.clone());
    handle.supervisor().spawn("certificates", warn);
    for stats in [&listeners.xds, &listeners.admin] {
        let tell = handshakes::tell(Arc::clone(stats), handle.clone(), stopping.clone());
        tokio::spawn(tell);
    }
}

/// Takes over the orders of the state file, before any proxy connects: the writer takes messages in
/// order.
async fn adopt_orders(handle: &Handle, config: &ControlConfig) -> Result<(), RunError> {
    let Some(file) = StateFile::of(config) else {
        return Ok(());
    };
    let orders = file.load().map_err(|error| {
        let what = format!("evacuation.state_file {}", file.path().display());
        RunError::Failed(what, error.into())
    })?;
    let adopted = handle.adopt_orders(orders).await;
    adopted.map_err(|stopped| RunError::Failed("cannot start".to_owned(), stopped.into()))
}

/// The same pages for an address where nothing can be changed.
fn read_only(admin: &AdminOptions) -> AdminOptions {
    AdminOptions {
        pages: admin.pages.clone(),
        listed: admin.listed.clone(),
        hosts: admin.hosts.clone(),
        token: None,
        administrators: Administrators::default(),
        access: AdminAccess::ReadOnly,
    }
}

fn server_options(limits: &Limits) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.requests = limits.requests;
    options.max_streams = limits.streams;
    options.max_streams_per_peer = limits.streams_per_peer;
    options.unfinished_bytes = limits.unfinished_bytes;
    options.message_timeout = limits.message_timeout;
    options.subscription_bytes = limits.subscription_bytes;
    let ads = &mut options.ads;
    ads.names_per_type = limits.requests.names;
    ads.name_length = limits.requests.name_bytes;
    ads.subscription_bytes = ads.subscription_bytes.min(limits.subscription_bytes);
    options
}

fn writer_ended(ended: Result<(), JoinError>) -> RunError {
    log_line!(log_lines::WRITER_PANICKED);
    let error: Box<dyn Error + Send + Sync> = match ended {
        Err(panic) => panic.into(),
        Ok(()) => "it returned".into(),
    };
    RunError::Failed("the writer has ended".to_owned(), error)
}

/// Resolves with the name of a task that ends before the control plane is told to.
async fn ended_early(supervisor: &Supervisor, stopping: &CancellationToken) -> &'static str {
    let task = supervisor.ended().await;
    if stopping.is_cancelled() {
        std::future::pending::<()>().await;
    }
    task
}

fn task_ended(task: &'static str) -> RunError {
    log_line!(log_lines::TASK_ENDED, task);
    RunError::Failed(
        format!("the task {task:?} has ended"),
        "it panicked or returned".into(),
    )
}

/// Creates the task that connects replicas, if the configuration has a store.
#[cfg(feature = "etcd")]
fn store(
    config: &ControlConfig,
    replica: Option<ReplicaIdentity>,
    listen: SocketAddr,
    handle: &Handle,
) -> Result<Option<EtcdStore>, TlsError> {
    let stats = handle.store_stats().cloned();
    let (Some(settings), Some(replica), Some(stats)) = (&config.store, replica, stats) else {
        return Ok(None);
    };
    let listen = listen.to_string();
    EtcdStore::new(settings.clone(), replica, listen, handle.clone(), stats).map(Some)
}

/// Exports metrics, if the configuration has a collector.
fn start_export(context: &Context, otlp: Option<Otlp>) -> Result<(), RunError> {
    let Some(otlp) = otlp else {
        return Ok(());
    };
    otlp::start(context.clone(), otlp).map_err(|error| match error {
        otlp::StartError::Tls(error) => unusable(error),
        otlp::StartError::Thread(error) => {
            RunError::Failed("cannot export metrics".to_owned(), error.into())
        }
    })
}

fn serve_admin(
    listener: AdminListener,
    router: Router,
    stopping: &CancellationToken,
) -> JoinHandle<()> {
    let stopped = stopping.clone().cancelled_owned();
    tokio::spawn(plimsoll_serve::serve(listener, router, stopped))
}

async fn bind_optional(
    address: Option<SocketAddr>,
) -> Result<(Option<TcpListener>, Option<SocketAddr>), RunError> {
    let bound = match address {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    Ok(bound.unzip())
}

fn unusable(error: TlsError) -> RunError {
    RunError::Failed("cannot use a certificate".to_owned(), error.into())
}

fn invalid(error: FieldError) -> RunError {
    FileError::from(ConfigError::from(error)).into()
}

/// Reads the certificates and keys that the settings name, as a start would; returns the settings
/// whose files cannot be used.
pub(crate) fn certificate_faults(config: &ControlConfig) -> Vec<FieldError> {
    let listening = [
        ("tls", &config.addresses.tls),
        ("admin_tls", &config.addresses.admin_tls),
    ];
    let servers = listening.into_iter().filter_map(|(field, settings)| {
        let settings = settings.as_ref()?;
        Some((field, server_tls_without_resumption(settings).map(drop)))
    });
    let relay = config.relay.as_ref().and_then(|relay| relay.tls.as_ref());
    let store = config.store.as_ref().and_then(|store| store.tls.as_ref());
    let otlp = config
        .operation
        .otlp
        .as_ref()
        .and_then(|otlp| otlp.tls.as_ref());
    let dialing = [
        ("relay.tls", relay),
        ("store.etcd.tls", store),
        ("otlp.tls", otlp),
    ];
    let clients = dialing
        .into_iter()
        .filter_map(|(field, tls)| Some((field, TlsDialer::check(tls?))));
    let checked = servers.chain(clients);
    let fault = |(field, checked): (&str, Result<(), TlsError>)| {
        let reason = plimsoll_serve::error_chain(&checked.err()?);
        Some(FieldError::new(
            field,
            format!("cannot use a certificate: {reason}"),
        ))
    };
    checked.filter_map(fault).collect()
}

impl Listeners {
    /// Loads the certificates and starts to watch their files.
    fn start(config: &ControlConfig) -> Result<Self, TlsError> {
        let watch = |name, settings: &Option<ServerTlsSettings>| {
            let Some(settings) = settings.clone() else {
                return Ok(None);
            };
            let files = settings.files().cloned().collect();
            let load = move || server_tls_without_resumption(&settings);
            WatchedTls::start(name, files, load).map(|tls| Some(Arc::new(tls)))
        };
        let insecure = config.insecure_listeners();
        if insecure.xds {
            log_line!(log_lines::INSECURE, listen = %config.addresses.listen);
        }
        if insecure.store {
            log_line!(log_lines::INSECURE_STORE);
        }
        if let Some(admin) = config.addresses.admin.filter(|_| insecure.admin) {
            log_line!(log_lines::INSECURE_ADMIN, %admin);
        }
        Ok(Self {
            xds_tls: watch("xds", &config.addresses.tls)?,
            admin_tls: watch("admin", &config.addresses.admin_tls)?,
            insecure,
            admin_uses_tls: config.addresses.admin_tls.is_some(),
            ..Self::default()
        })
    }

    fn watch_certificates(&self, handle: &Handle) {
        for (of, tls) in [("xds", &self.xds_tls), ("admin", &self.admin_tls)] {
            if let Some(tls) = tls.clone() {
                let expiries = move || tls.current().expiries.clone();
                handle.certificates().watch(of, expiries);
            }
        }
    }

    fn xds_incoming(&self, listener: TcpListener, limits: IncomingLimits) -> XdsIncoming {
        let options = IncomingOptions {
            name: LISTENER,
            limits: limits.connections,
            handshake_timeout: limits.handshake_timeout,
            tls: self.xds_tls.clone(),
        };
        XdsIncoming {
            incoming: Incoming::start(listener, options, Arc::clone(&self.xds)),
            handshake_timeout: limits.handshake_timeout,
            connection_age: limits.connection_age,
            stats: Arc::clone(&self.xds),
        }
    }
}

/// Number of files that the process may open.
fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Lowers the limit of connections so that some of the files that the process may open are left.
fn within_files(mut limits: IncomingLimits, files: Option<u64>) -> IncomingLimits {
    if let Some(files) = files {
        // A process with very few files keeps half of them.
        let most = files.saturating_sub(RESERVED_FILES).max(files / 2);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        limits.connections.connections = limits.connections.connections.min(most);
    }
    limits
}

/// Sets how the relayed server is dialed; an unchanged connector stays.
fn set_relay_connector(handle: &Handle, config: &ControlConfig) -> Result<(), TlsError> {
    let tls = config.relay.as_ref().and_then(|relay| relay.tls.as_ref());
    let current = handle.upstreams().connector();
    let connector = match (tls, current) {
        (None, _) => None,
        (Some(tls), Some(current)) if current.settings() == tls => Some(current),
        (Some(tls), _) => Some(Arc::new(TlsDialer::start("relay", Arc::clone(tls))?)),
    };
    handle.upstreams().set_connector(connector);
    let upstreams = Arc::clone(handle.upstreams());
    handle.certificates().watch("relay", move || {
        let connector = upstreams.connector();
        connector.map_or_else(Vec::new, |connector| connector.expiries())
    });
    Ok(())
}

impl Options {
    fn override_addresses(&self, mut config: ControlConfig) -> ControlConfig {
        config.addresses.listen = self.listen.unwrap_or(config.addresses.listen);
        config.addresses.admin = self.admin.or(config.addresses.admin);
        config.addresses.read_only = self.read_only.or(config.addresses.read_only);
        config
    }

    fn audit(&self) -> Result<Audit, RunError> {
        let Some(directory) = &self.state_directory else {
            return Ok(Audit::default());
        };
        let failed = |error: io::Error| {
            let what = format!("cannot keep the audit in {}", directory.display());
            RunError::Failed(what, error.into())
        };
        Audit::kept_in(directory).map_err(failed)
    }

    fn replica(&self) -> ReplicaIdentity {
        let instance = RandomState::new().build_hasher().finish();
        let id = self.replica_id.clone().unwrap_or_else(|| {
            let system = rustix::system::uname();
            let host = system.nodename().to_string_lossy();
            format!("{host}-{:08x}", instance >> 32)
        });
        let clock = Clock::system();
        let now = clock.unix_origin() + Duration::from_nanos(clock.now().as_nanos());
        ReplicaIdentity {
            id: id.into(),
            instance,
            started_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests;
