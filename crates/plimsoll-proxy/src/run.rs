//! [`Proxy`]: reads the configuration, opens the sockets and serves until it is stopped.
//!
//! A single task owns all mutable state and applies edits of the bootstrap file. An invalid edit is
//! rejected as a whole and the running configuration stays in use. The client's writer task runs on
//! the runtime of [`Proxy::run`]; requests run on the worker threads.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use plimsoll_client::{Client, LoadReporting, RouteCompiler, XdsOptions};
use plimsoll_core::log_line;
use plimsoll_core::model::load_report::Node;
use plimsoll_serve::{AdminOptions, FileSource, Files, error_chain, serve};
use plimsoll_xds::ads::Variant;
use plimsoll_xds::upstream::UpstreamOptions;
use plimsoll_xds::yaml::ConfigError;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::accept::{Command, WorkerThread, bind};
use crate::admin::{self, Admin};
use crate::clusters::{StaticClusters, subscriptions};
use crate::config::{ListenerConfig, ProxyConfig, RouteSource};
use crate::context::Context;
use crate::listener::{Listener, ListenerError, ListenerRuntime};
use crate::log_lines;
use crate::router::RouteTable;
use crate::source::{self, FileError, Loaded};
use crate::state::{RunningListener, State};
use crate::worker::Worker;

/// Reasons why a proxy cannot start.
pub type RunError = plimsoll_serve::RunError<ConfigError>;

/// Command-line options of a proxy.
#[derive(Clone)]
pub struct Options {
    pub config: PathBuf,
    pub workers: usize,
    /// Limit of the time that active requests get to finish during shutdown.
    pub drain_time: Duration,
    /// Changes the log filter of the process; `None` if the logger does not support that.
    pub logging: Option<SetLogging>,
}

/// Replaces the log filter; takes directives as in `RUST_LOG`.
pub type SetLogging = Arc<dyn Fn(&str) -> Result<(), Box<dyn Error>> + Send + Sync>;

/// Addresses that the proxy listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub listeners: Vec<(String, SocketAddr)>,
    pub admin: Option<SocketAddr>,
}

/// Validates a bootstrap file: parses it and opens certificates, keys and access logs.
pub fn check(path: &std::path::Path) -> Result<Arc<ProxyConfig>, RunError> {
    let loaded = source::load(path, &mut Files::default())?;
    let sinks = crate::access_log::Sinks::default();
    for listener in &loaded.config.listeners {
        ListenerRuntime::new(Arc::clone(listener), &sinks)
            .map_err(|error| listener_error(listener, error))?;
    }
    Ok(loaded.config)
}

/// Builds the client, connected to the management server of the file if there is one.
fn client(config: &ProxyConfig, workers: usize) -> Result<Client, plimsoll_client::Error> {
    let locality = config.node.locality.clone();
    let builder = Client::builder().locality(locality.clone()).pools(workers);
    let Some(xds) = &config.xds else {
        return builder.try_build();
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
    options.compile_routes = Some(RouteCompiler::new(RouteTable::try_from));
    if xds.delta {
        options.variant = Variant::Delta;
    }
    // The client subscribes only after `update_clusters` has passed the clusters of the file.
    if let Some(fleet) = subscriptions(config).local_cluster_name {
        options.local_cluster_name = fleet;
    }
    if xds.report_load {
        options.load_reporting = LoadReporting::Always;
    }
    if let Some(back_off) = xds.back_off {
        options.server.backoff = back_off;
    }
    builder.xds(options).try_build()
}

/// A proxy whose listening sockets are open.
pub struct Proxy {
    options: Options,
    source: FileSource<Loaded, ConfigError>,
    /// Configuration at startup, to find edited fields that need a restart.
    initial_config: Arc<ProxyConfig>,
    state: Arc<State>,
    clusters: StaticClusters,
    routes_changed: Option<watch::Receiver<u64>>,
    threads: Vec<WorkerThread>,
    admin: Option<TcpListener>,
}

impl Proxy {
    /// Reads the bootstrap file, opens the sockets and starts the worker threads.
    pub async fn start(options: Options) -> Result<Self, RunError> {
        let mut source = FileSource::new(&options.config, source::load);
        let loaded = source.load()?;
        let workers = options.workers.max(1);
        let client = client(&loaded.config, workers)
            .map_err(|error| RunError::Failed("cannot start the client".into(), error.into()))?;
        let mut proxy = Self {
            options,
            source,
            initial_config: Arc::clone(&loaded.config),
            state: Arc::new(State::new(client.clone(), workers, loaded)),
            routes_changed: client.routes_changed(),
            clusters: StaticClusters::new(client),
            threads: Vec::new(),
            admin: None,
        };
        proxy.start_workers()?;
        proxy.update_clusters().await;
        if let Some(address) = proxy.config().admin {
            proxy.admin = Some(plimsoll_serve::bind(address).await?.0);
        }
        Ok(proxy)
    }

    fn start_workers(&mut self) -> Result<(), RunError> {
        // Open all files and sockets first, so that an error leaves no worker running.
        let prepared = self.prepare(&self.config())?;
        for index in 0..self.state.workers {
            let routes = Arc::clone(&self.state.route_epoch);
            let client = self.state.client.clone();
            let worker = Worker::new(index, client, routes, self.state.seed(index));
            let thread = WorkerThread::start(worker, Arc::clone(&self.state.connection_limit))
                .map_err(|error| {
                    RunError::Failed("cannot start a worker thread".to_owned(), error.into())
                })?;
            self.threads.push(thread);
        }
        self.activate(prepared);
        Ok(())
    }

    /// Returns the addresses that the proxy listens on.
    pub fn bound(&self) -> Bound {
        let admin = self.admin.as_ref();
        let listeners = self.state.listeners().into_iter();
        Bound {
            listeners: listeners.map(|one| (one.name, one.address)).collect(),
            admin: admin.and_then(|listener| listener.local_addr().ok()),
        }
    }

    /// Returns a handle for the dashboard and other embedders to observe and stop the proxy.
    pub fn context(&self) -> Context {
        Context {
            state: Arc::clone(&self.state),
        }
    }

    /// Serves until `Context::stopping` is canceled, then drains. A message on `reload` (sent for
    /// SIGHUP) reloads the file even if its size and modification time are unchanged.
    pub async fn run(mut self, admin: AdminOptions, mut reload: mpsc::Receiver<()>) {
        let admin = self.admin.take().map(|listener| {
            let pages = Admin {
                state: Arc::clone(&self.state),
                logging: self.options.logging.clone(),
            };
            let router = admin::router().into_router(pages, admin);
            // Never shut down this listener: the admin interface stays available during the drain.
            tokio::spawn(serve(listener, router, std::future::pending()))
        });
        self.state.set_live();
        loop {
            let routes_changed =
                OptionFuture::from(self.routes_changed.as_mut().map(watch::Receiver::changed));
            let edited = tokio::select! {
                () = self.state.stopping.cancelled() => break,
                Some(()) = reload.recv() => Some(self.source.load()),
                Some(Ok(())) = routes_changed => None,
                edited = self.source.poll() => edited,
            };
            self.update(edited).await;
        }
        let limit = self.options.drain_time;
        self.drain(limit).await;
        if let Some(admin) = admin {
            admin.abort();
        }
    }

    fn config(&self) -> Arc<ProxyConfig> {
        Arc::clone(&self.state.loaded().config)
    }

    async fn update_clusters(&mut self) {
        let config = self.config();
        let fleet = config.local_cluster_name.as_deref();
        if let Err(error) = self.clusters.set_all(&config.clusters, fleet).await {
            log_line!(log_lines::CLUSTERS_NOT_APPLIED, %error);
        }
        if config.xds.is_some()
            && let Err(error) = self.state.client.subscribe(subscriptions(&config)).await
        {
            log_line!(log_lines::SUBSCRIPTION_FAILED, %error);
        }
    }

    /// Activates routes that the management server has changed.
    fn update_routes(&self) {
        for running in self.state.listeners() {
            let config = Arc::clone(&running.listener.runtime().config);
            let RouteSource::Rds(name) = &config.routes else {
                continue;
            };
            let newest = self.state.client.compiled_routes(name);
            let in_force = Arc::clone(&running.listener.runtime().routes);
            if let Some(table) = newest.filter(|table| !Arc::ptr_eq(table, &in_force)) {
                log_line!(log_lines::ROUTES_APPLIED, listener = running.name, routes = %name);
                running.listener.replace_routes(table);
                self.state.advance_route_epoch();
            }
        }
    }

    /// Applies changed routes of the management server and, if the file was edited, the edit.
    async fn update(&mut self, edited: Option<Result<Loaded, FileError>>) {
        self.update_routes();
        if let Err(error) = self.clusters.remove_unused().await {
            log_line!(log_lines::CLUSTERS_NOT_REMOVED, %error);
        }
        if let Some(edited) = edited {
            let outcome = self.apply(edited.map_err(RunError::from)).await;
            self.state
                .reloads
                .record(outcome.map_err(|error| error_chain(&error)));
        }
    }

    /// Activates an edited bootstrap file. Returns the fields whose changes need a restart.
    async fn apply(
        &mut self,
        edited: Result<Loaded, RunError>,
    ) -> Result<Vec<&'static str>, RunError> {
        let loaded = edited?;
        let prepared = self.prepare(&loaded.config)?;
        let restart_needed = restart_needed(&self.initial_config, &loaded.config);
        self.state.replace_config(loaded);
        // Make before break: clusters are added before the routes to them, and removed after.
        self.update_clusters().await;
        self.activate(prepared);
        self.state.advance_route_epoch();
        let config = self.config();
        self.clusters.retain(&config.clusters);
        Ok(restart_needed)
    }

    /// Opens the files and sockets of a configuration without using them yet.
    fn prepare(&self, config: &ProxyConfig) -> Result<Vec<PreparedListener>, RunError> {
        let mut prepared = Vec::new();
        for listener in &config.listeners {
            let mut runtime = ListenerRuntime::new(Arc::clone(listener), &self.state.sinks)
                .map_err(|error| listener_error(listener, error))?;
            if let RouteSource::Rds(name) = &listener.routes
                && let Some(table) = self.state.client.compiled_routes(name)
            {
                runtime.routes = table;
            }
            let same = self
                .state
                .listeners()
                .into_iter()
                .find(|one| one.name == listener.name && one.configured == listener.address);
            let sockets = match same {
                Some(running) => Sockets::Existing(running.listener, running.address),
                None => Sockets::New(self.bind(listener.address)?),
            };
            prepared.push(PreparedListener { runtime, sockets });
        }
        Ok(prepared)
    }

    fn bind(&self, address: SocketAddr) -> Result<Vec<std::net::TcpListener>, RunError> {
        let failed = |error| RunError::Bind(address, error);
        let first = bind(address).map_err(failed)?;
        let bound = first.local_addr().map_err(failed)?;
        let mut sockets = vec![first];
        while sockets.len() < self.state.workers {
            sockets.push(bind(bound).map_err(failed)?);
        }
        Ok(sockets)
    }

    fn activate(&self, prepared: Vec<PreparedListener>) {
        let mut running = Vec::new();
        for PreparedListener { runtime, sockets } in prepared {
            let config = Arc::clone(&runtime.config);
            let (listener, address) = match sockets {
                Sockets::Existing(listener, address) => {
                    listener.replace(runtime);
                    (listener, address)
                }
                Sockets::New(sockets) => {
                    let listener = Arc::new(Listener::new(runtime));
                    let address = sockets.first().and_then(|socket| socket.local_addr().ok());
                    for (thread, socket) in self.threads.iter().zip(sockets) {
                        let listener = Arc::clone(&listener);
                        thread.send(Command::Listen(config.name.clone(), listener, socket));
                    }
                    (listener, address.unwrap_or(config.address))
                }
            };
            running.push(RunningListener {
                name: config.name.clone(),
                configured: config.address,
                address,
                listener,
            });
        }
        for removed in self.state.replace_listeners(running) {
            for thread in &self.threads {
                thread.send(Command::Unlisten(removed.name.clone()));
            }
        }
    }

    /// Waits at most `limit` for active requests, then joins the worker threads.
    async fn drain(mut self, limit: Duration) {
        for thread in &self.threads {
            thread.send(Command::Drain(limit));
        }
        let threads: Vec<_> = self
            .threads
            .iter_mut()
            .filter_map(WorkerThread::take_handle)
            .collect();
        let joining = tokio::task::spawn_blocking(move || {
            for thread in threads {
                let _ = thread.join();
            }
        });
        let _ = joining.await;
    }
}

struct PreparedListener {
    runtime: ListenerRuntime,
    sockets: Sockets,
}

enum Sockets {
    /// The listener is already running and keeps its sockets.
    Existing(Arc<Listener>, SocketAddr),
    New(Vec<std::net::TcpListener>),
}

fn listener_error(listener: &ListenerConfig, error: ListenerError) -> RunError {
    RunError::Failed(format!("listener {:?}", listener.name), error.into())
}

/// Returns the edited fields that take effect at a restart only.
fn restart_needed(started: &ProxyConfig, edited: &ProxyConfig) -> Vec<&'static str> {
    let fleet_removed = started.local_cluster_name.is_some() && edited.local_cluster_name.is_none();
    let fields = [
        ("admin", edited.admin != started.admin),
        ("node", edited.node != started.node),
        ("dynamic_resources", edited.xds != started.xds),
        ("cluster_manager.local_cluster_name", fleet_removed),
    ];
    fields
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(field, _)| field)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// Workers discard their cached services when the route epoch changes.
    #[tokio::test]
    async fn the_route_epoch_advances_with_edits_but_not_with_polls() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.yaml");
        std::fs::write(&file, "static_resources: {}").unwrap();
        let options = Options {
            config: file.clone(),
            workers: 1,
            drain_time: Duration::ZERO,
            logging: None,
        };
        let mut proxy = Proxy::start(options).await.unwrap();
        let state = Arc::clone(&proxy.state);
        let epoch = || state.route_epoch.load(Ordering::Relaxed);
        let before = (epoch(), state.client.cluster_epoch());
        for _ in 0..3 {
            proxy.update(None).await;
        }
        assert_eq!((epoch(), state.client.cluster_epoch()), before);
        let edited = proxy.source.load();
        proxy.update(Some(edited)).await;
        assert_eq!(epoch(), before.0 + 1);
        std::fs::write(&file, "static_resources: []").unwrap();
        let rejected = proxy.source.load();
        proxy.update(Some(rejected)).await;
        assert_eq!(epoch(), before.0 + 1);
        let counts = state.reloads.counts();
        assert_eq!((counts.succeeded, counts.failed), (1, 1));
        proxy.drain(Duration::ZERO).await;
    }

    #[test]
    fn fields_that_need_a_restart_are_listed() {
        let config = |text: &str| ProxyConfig::parse(text).unwrap();
        let started = config("node: {id: a}");
        assert_eq!(restart_needed(&started, &config("node: {id: a}")), [""; 0]);
        assert_eq!(restart_needed(&started, &config("node: {id: b}")), ["node"]);
    }
}
