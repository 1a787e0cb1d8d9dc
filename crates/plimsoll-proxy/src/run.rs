//! [`run`]: a whole proxy on its sockets, until it is told to stop.
//!
//! Wires the parts: file, client, listeners, workers, admin pages. One task owns everything that
//! may change; a bad edit of the file keeps what is in force and says why. The client's writer task
//! runs on the runtime that `run` is called on, requests on the workers' threads.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_client::{Client, LoadReporting, RouteCheck, XdsOptions};
use plimsoll_core::model::load_report::Node;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::driver::HttpGuard;
use plimsoll_xds::upstream::UpstreamOptions;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::accept::{Command, WorkerThread, bind};
use crate::admin::{self, Admin};
use crate::clusters::{ClusterSource, following};
use crate::config::{ListenerConfig, ProxyConfig, RouteSource};
use crate::inside::{AdminOptions, Inside};
use crate::listener::{Listener, ListenerRuntime};
use crate::router::RouteTable;
use crate::source::{FileError, FileSource, Fingerprint};
use crate::state::{Running, State};
use crate::worker::Worker;

/// How often files are looked at, and how old a cluster that is gone may seem alive.
const LOOK: Duration = Duration::from_millis(500);

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file.
    pub config: PathBuf,
    /// Threads that serve requests.
    pub workers: usize,
    /// How long requests may take to finish when the proxy ends.
    pub drain_time: Duration,
    /// Changes what is logged, if that is possible.
    pub logging: Option<SetLogging>,
}

/// Changes what is logged, by directives like those of `RUST_LOG`.
#[derive(Clone)]
pub struct SetLogging(Arc<Set>);

type Set = dyn Fn(&str) -> Result<(), Box<dyn std::error::Error>> + Send + Sync;

impl SetLogging {
    /// Calls `set` with directives.
    pub fn new(
        set: impl Fn(&str) -> Result<(), Box<dyn std::error::Error>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(set))
    }

    pub(crate) fn set(&self, directives: &str) -> Result<(), String> {
        (self.0)(directives).map_err(|error| error.to_string())
    }
}

impl std::fmt::Debug for SetLogging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SetLogging")
    }
}

/// Where the proxy listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Listeners by name.
    pub listeners: Vec<(String, SocketAddr)>,
    /// The admin pages.
    pub admin: Option<SocketAddr>,
}

/// Why it could not start.
#[derive(Debug)]
pub enum RunError {
    /// The first reading of the file failed.
    Config(FileError),
    /// Something that the file names cannot be opened.
    Open(String),
    /// An address could not be bound.
    Bind(SocketAddr, io::Error),
    /// A thread could not be started.
    Thread(io::Error),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Bind(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Reads a file and opens what it names, without listening.
pub fn check(path: &std::path::Path) -> Result<ProxyConfig, RunError> {
    let (loaded, _) = FileSource::new(path).load().map_err(RunError::Config)?;
    let sinks = crate::access_log::Sinks::default();
    for listener in &loaded.config.listeners {
        let without_logs = ListenerRuntime::new(Arc::clone(listener), &sinks);
        without_logs.map_err(|error| RunError::Open(at_listener(listener, &error)))?;
    }
    Ok(loaded.config)
}

/// Runs until `shutdown` is done, and drains. `reload` is for signals: a message looks at the file
/// at once, whether it seems changed or not. `ready` hears where it listens.
pub async fn run(
    options: Options,
    ready: impl FnOnce(Bound),
    reload: mpsc::Receiver<()>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    run_with(options, AdminOptions::default(), ready, reload, shutdown).await
}

/// The same, with more to say about the admin address.
pub async fn run_with(
    options: Options,
    admin: AdminOptions,
    ready: impl FnOnce(Bound),
    mut reload: mpsc::Receiver<()>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let source = FileSource::new(&options.config);
    let (loaded, fingerprint) = source.load().map_err(RunError::Config)?;
    let workers = options.workers.max(1);
    let client = client(&loaded.config, workers);
    let state = Arc::new(State::new(client.clone(), workers, loaded));
    let mut routes_changed = client.routes_changed();
    let mut proxy = Proxy::start(Arc::clone(&state), client, workers)?;
    proxy.clusters().await;
    let admin_listener = bind_admin(proxy.config().admin).await?;
    let (quit, mut quitting) = mpsc::channel(1);
    let bound = Bound {
        listeners: state
            .running()
            .iter()
            .map(|one| (one.name.clone(), one.address))
            .collect(),
        admin: admin_listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok()),
    };
    let (stop, stopping) = watch::channel(());
    let admin = admin_listener.map(|listener| {
        let pages = admin.pages.map(|pages| {
            let state = Arc::clone(&state);
            pages(Inside { state, stopping })
        });
        let guard = HttpGuard::new(&admin.hosts);
        let admin = Admin {
            state: Arc::clone(&state),
            quit: quit.clone(),
            logging: options.logging.clone(),
        };
        tokio::spawn(admin::serve(listener, admin, pages, guard))
    });
    ready(bound);
    state.live();
    let mut last = fingerprint;
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let forced = tokio::select! {
            () = &mut shutdown => break,
            _ = quitting.recv() => break,
            Some(()) = reload.recv() => true,
            () = changed(routes_changed.as_mut()) => false,
            () = tokio::time::sleep(LOOK) => false,
        };
        proxy.routes();
        proxy.look(&source, &mut last, forced).await;
    }
    state.draining();
    drop(stop);
    proxy.drain(options.drain_time).await;
    if let Some(admin) = admin {
        admin.abort();
    }
    Ok(())
}

async fn bind_admin(address: Option<SocketAddr>) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let bound = TcpListener::bind(address).await;
    let bound = bound.map_err(|error| RunError::Bind(address, error))?;
    Ok(Some(bound))
}

/// Until routes of the management server changed.
async fn changed(routes: Option<&mut watch::Receiver<u64>>) {
    if let Some(routes) = routes
        && routes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The client, with the server that the file names.
fn client(config: &ProxyConfig, workers: usize) -> Client {
    let locality = config.node.locality.clone();
    let builder = Client::builder().locality(locality.clone()).pools(workers);
    let Some(xds) = &config.xds else {
        return builder.build();
    };
    let node = Node {
        id: config.node.id.as_str().into(),
        cluster: config.node.cluster.as_str().into(),
        locality,
    };
    let mut options = XdsOptions::new(xds.uri.clone(), node);
    if let Some(upstream) = &xds.tls {
        options = options.with_transport(UpstreamOptions::clone(upstream));
    }
    options.all_clusters = xds.clusters;
    options.route_check = Some(RouteCheck::new(|routes| {
        RouteTable::try_from(Arc::new(routes)).map(drop)
    }));
    if xds.delta {
        options.variant = Variant::Delta;
    }
    // Nobody is asked before the names of the file are known.
    if let Some(fleet) = following(config).local_cluster_name {
        options.local_cluster_name = fleet;
    }
    if xds.report_load {
        options.load_reporting = LoadReporting::Always;
    }
    if let Some(back_off) = xds.back_off {
        options.server.backoff = back_off;
    }
    builder.xds(options).build()
}

/// Everything that may change.
struct Proxy {
    state: Arc<State>,
    clusters: ClusterSource,
    /// Routes of the management server, by name.
    tables: BTreeMap<Arc<str>, Arc<RouteTable>>,
    threads: Vec<WorkerThread>,
}

impl Proxy {
    fn start(state: Arc<State>, client: Client, workers: usize) -> Result<Self, RunError> {
        let mut proxy = Self {
            clusters: ClusterSource::new(client.clone()),
            tables: BTreeMap::new(),
            threads: Vec::new(),
            state,
        };
        // Everything is opened before anything listens.
        let prepared = proxy.prepare(&proxy.config())?;
        for index in 0..workers {
            let (routes, limits) = (proxy.state.route_epoch(), proxy.state.limits());
            let worker = Worker::new(index, client.clone(), routes, proxy.state.seed(index));
            let thread = WorkerThread::start(worker, limits).map_err(RunError::Thread)?;
            proxy.threads.push(thread);
        }
        proxy.put_in_force(prepared);
        Ok(proxy)
    }

    fn config(&self) -> Arc<ProxyConfig> {
        Arc::clone(&self.state.loaded().config)
    }

    async fn clusters(&mut self) {
        let config = self.config();
        let fleet = config.local_cluster_name.as_deref();
        if let Err(error) = self.clusters.set_all(&config.clusters, fleet).await {
            tracing::error!(%error, "the client does not take the clusters");
        }
        if config.xds.is_some()
            && let Err(error) = self.state.client.follow(following(&config)).await
        {
            tracing::error!(%error, "the management server is not asked");
        }
    }

    /// Puts the newest routes of the management server in force.
    fn routes(&mut self) {
        for running in self.state.running() {
            let config = Arc::clone(&running.listener.runtime().config);
            let RouteSource::Rds(name) = &config.routes else {
                continue;
            };
            let newest = self.table(name);
            let in_force = Arc::clone(&running.listener.runtime().routes);
            if let Some(table) = newest.filter(|table| !Arc::ptr_eq(table, &in_force)) {
                running.listener.replace_routes(table);
                self.state.new_route_epoch();
            }
        }
    }

    /// The newest good routes of that name, if they are not in force.
    fn table(&mut self, name: &Arc<str>) -> Option<Arc<RouteTable>> {
        let newest = self.state.client.route_configuration(name)?;
        let known = self.tables.get(name);
        if let Some(known) = known.filter(|known| Arc::ptr_eq(known.configuration(), &newest)) {
            return Some(Arc::clone(known));
        }
        match RouteTable::try_from(newest) {
            Ok(table) => {
                tracing::info!(routes = %name, "new routes are in force");
                let table = Arc::new(table);
                self.tables.insert(Arc::clone(name), Arc::clone(&table));
                Some(table)
            }
            // They were refused before they came here.
            Err(error) => {
                tracing::error!(routes = %name, %error, "the routes cannot be used");
                None
            }
        }
    }

    /// Looks whether the file changed, and does what it says.
    async fn look(&mut self, source: &FileSource, last: &mut Fingerprint, forced: bool) {
        if let Err(error) = self.clusters.sweep().await {
            tracing::error!(%error, "the client does not let go of clusters");
        }
        let now = source.fingerprint(&self.config());
        if now == *last && !forced {
            return;
        }
        *last = now;
        let result = match source.load() {
            Ok((loaded, fingerprint)) => {
                *last = fingerprint;
                match self.prepare(&loaded.config) {
                    Ok(prepared) => Ok((loaded, prepared)),
                    Err(error) => Err(error.to_string()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        match result {
            Ok((loaded, prepared)) => {
                let before = self.config();
                let restart = loaded.config.admin != before.admin
                    || loaded.config.node != before.node
                    || loaded.config.xds != before.xds
                    || (loaded.config.local_cluster_name.is_none()
                        && before.local_cluster_name.is_some());
                self.state.load(loaded);
                // Clusters come before the routes that name them, and go after them.
                self.clusters().await;
                self.put_in_force(prepared);
                self.state.new_route_epoch();
                let config = self.config();
                self.clusters.retain(&config.clusters);
                tracing::info!("the new configuration is in force");
                if restart {
                    tracing::warn!(
                        "another admin, node or server, or no local cluster any more, takes \
                         effect at the next start"
                    );
                }
                self.state.reloads.succeeded();
            }
            Err(error) => {
                tracing::error!(%error, "the new configuration is refused, the old one stays");
                self.state.reloads.failed(error);
            }
        }
    }

    /// Opens files and sockets; nothing changes yet.
    fn prepare(&self, config: &ProxyConfig) -> Result<Vec<Prepared>, RunError> {
        let mut prepared = Vec::new();
        for listener in &config.listeners {
            let runtime = ListenerRuntime::new(Arc::clone(listener), &self.state.sinks);
            let mut runtime =
                runtime.map_err(|error| RunError::Open(at_listener(listener, &error)))?;
            if let RouteSource::Rds(name) = &listener.routes
                && let Some(table) = self.tables.get(name)
            {
                runtime.routes = Arc::clone(table);
            }
            let running = self.state.running();
            let same = running
                .iter()
                .find(|one| one.name == listener.name && one.configured == listener.address);
            let kind = match same {
                Some(running) => Kind::Known(Arc::clone(&running.listener), running.address),
                None => Kind::New(self.sockets(listener.address)?),
            };
            prepared.push(Prepared { runtime, kind });
        }
        Ok(prepared)
    }

    /// One socket per worker on the same address.
    fn sockets(&self, address: SocketAddr) -> Result<Vec<std::net::TcpListener>, RunError> {
        let failed = |error| RunError::Bind(address, error);
        let first = bind(address).map_err(failed)?;
        let bound = first.local_addr().map_err(failed)?;
        let mut sockets = vec![first];
        while sockets.len() < self.state.workers {
            sockets.push(bind(bound).map_err(failed)?);
        }
        Ok(sockets)
    }

    fn put_in_force(&self, prepared: Vec<Prepared>) {
        let mut running = Vec::new();
        for Prepared { runtime, kind } in prepared {
            let config = Arc::clone(&runtime.config);
            let (listener, address) = match kind {
                Kind::Known(listener, address) => {
                    listener.replace(runtime);
                    (listener, address)
                }
                Kind::New(sockets) => {
                    let listener = Arc::new(Listener::new(runtime));
                    let address = sockets.first().and_then(|socket| socket.local_addr().ok());
                    for (thread, socket) in self.threads.iter().zip(sockets) {
                        let listener = Arc::clone(&listener);
                        thread.tell(Command::Listen(config.name.clone(), listener, socket));
                    }
                    (listener, address.unwrap_or(config.address))
                }
            };
            running.push(Running {
                name: config.name.clone(),
                configured: config.address,
                address,
                listener,
            });
        }
        for gone in self.state.replace_running(running) {
            for thread in &self.threads {
                thread.tell(Command::Unlisten(gone.name.clone()));
            }
        }
    }

    /// Lets requests finish and waits for the threads.
    async fn drain(mut self, limit: Duration) {
        for thread in &self.threads {
            thread.tell(Command::Drain(limit));
        }
        let threads: Vec<_> = self
            .threads
            .iter_mut()
            .filter_map(WorkerThread::take_thread)
            .collect();
        let joining = tokio::task::spawn_blocking(move || {
            for thread in threads {
                let _ = thread.join();
            }
        });
        let _ = joining.await;
    }
}

/// A listener that is about to be put in force.
struct Prepared {
    runtime: ListenerRuntime,
    kind: Kind,
}

enum Kind {
    /// Its sockets are open already.
    Known(Arc<Listener>, SocketAddr),
    /// One for each worker.
    New(Vec<std::net::TcpListener>),
}

fn at_listener(listener: &ListenerConfig, error: &str) -> String {
    format!("listener {:?}: {error}", listener.name)
}
