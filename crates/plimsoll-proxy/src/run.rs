//! [`Proxy`]: reads the configuration, opens the sockets and serves until it is stopped.
//!
//! A single task owns all mutable state. It waits at startup until the resources that requests need
//! are known (`initialization`), then applies edits of the bootstrap file and updates of the
//! management server. An invalid edit is rejected as a whole and the running configuration stays in
//! use. The client's writer task runs on the runtime of [`Proxy::run`]; requests run on the worker
//! threads.

use std::error::Error;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use plimsoll_client::{
    Client, ListenerCompiler, LoadReporting, RouteCompiler, Subscriptions, XdsOptions,
};
use plimsoll_core::log_line;
use plimsoll_core::model::load_report::Node;
use plimsoll_serve::{AdminOptions, FileSource, Files, error_chain, serve_until_replaced};
use plimsoll_xds::ads::Variant;
use plimsoll_xds::upstream::UpstreamOptions;
use plimsoll_xds::yaml::ConfigError;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::accept::{Drain, WorkerThread};
use crate::admin::{self, Admin};
use crate::clusters::{StaticClusters, subscriptions};
use crate::config::{ListenerConfig, ProxyConfig};
use crate::context::Context;
use crate::handover::{Handover, HandoverRequest, Predecessor};
use crate::initialization::{INITIAL_FETCH_TIMEOUT, POLL_INTERVAL, awaited};
use crate::lds::{self, DynamicListener};
use crate::listener::ListenerRuntime;
use crate::listener_manager::{ListenerManager, PreparedListener, listener_error};
use crate::log_lines;
use crate::overload;
use crate::router::RouteTable;
use crate::source::{self, FileError, Loaded, Overrides};
use crate::state::{Origin, State};
use crate::worker::Worker;

/// Reasons why a proxy cannot start.
pub type RunError = plimsoll_serve::RunError<ConfigError>;

/// Command-line options of a proxy.
#[derive(Clone)]
pub struct Options {
    /// Bootstrap file; may be empty if `overrides` has a whole configuration.
    pub config: PathBuf,
    /// Settings of the command line, which take precedence over the file.
    pub overrides: Overrides,
    pub workers: usize,
    /// Limit of the time that active requests get to finish during shutdown.
    pub drain_time: Duration,
    /// Changes the log filter of the process; `None` if the logger does not support that.
    pub logging: Option<SetLogging>,
    /// Listening sockets that the service manager has passed to the process (socket activation).
    pub sockets: Arc<[StdListener]>,
    /// Number of restarts before this process. If it is not 0, the process with the same admin
    /// address hands over its sockets, and drains once this one accepts connections.
    pub restart_epoch: u32,
    /// Limit of the time that startup waits for resources of the management server.
    pub initial_fetch_timeout: Duration,
}

/// Replaces the log filter; takes directives as in `RUST_LOG`.
pub type SetLogging = Arc<dyn Fn(&str) -> Result<(), Box<dyn Error>> + Send + Sync>;

impl Options {
    /// Options for a bootstrap file, with one worker, a drain time of 30 s and Envoy's 15 s for
    /// the first resources.
    pub fn new(config: impl Into<PathBuf>) -> Self {
        Self {
            config: config.into(),
            overrides: Overrides::default(),
            workers: 1,
            drain_time: Duration::from_secs(30),
            logging: None,
            sockets: Arc::default(),
            restart_epoch: 0,
            initial_fetch_timeout: INITIAL_FETCH_TIMEOUT,
        }
    }
}

/// Addresses that the proxy listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub listeners: Vec<(String, SocketAddr)>,
    pub admin: Option<SocketAddr>,
}

/// Validates a bootstrap: parses it and opens certificates, keys and access logs. `path` may be
/// empty if `overrides` has a whole configuration.
pub fn check(path: &std::path::Path, overrides: &Overrides) -> Result<Arc<ProxyConfig>, RunError> {
    let loaded = source::load(path, overrides, &mut Files::default())?;
    let sinks = crate::access_log::Sinks::default();
    for listener in &loaded.config.listeners {
        ListenerRuntime::new(Arc::clone(listener), &sinks, None)
            .map_err(|error| listener_error(listener, error))?;
    }
    Ok(loaded.config)
}

/// Builds the client, connected to the management server of the file if there is one.
fn client(config: &ProxyConfig, workers: usize) -> Result<Client, plimsoll_client::Error> {
    let locality = config.node.locality.clone();
    // One pool per worker, and one for the thread that exports spans.
    let builder = Client::builder()
        .locality(locality.clone())
        .pools(workers + 1);
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
    options = options.all_clusters(xds.clusters);
    options = options.compile_routes(RouteCompiler::new(RouteTable::try_from));
    if xds.listeners {
        options = options.compile_listeners(ListenerCompiler::new(DynamicListener::decode));
    }
    if xds.delta {
        options = options.variant(Variant::Delta);
    }
    // The client subscribes only after `update_clusters` has passed the clusters of the file.
    if let Some(fleet) = subscriptions(config, &[]).local_cluster_name {
        options = options.local_cluster_name(fleet);
    }
    if xds.report_load {
        options = options.load_reporting(LoadReporting::Always);
    }
    if let Some((first, longest)) = xds.back_off {
        options = options.backoff(first, longest);
    }
    builder.xds(options).build()
}

/// A proxy whose sockets are bound.
pub struct Proxy {
    options: Options,
    source: FileSource<Loaded, ConfigError>,
    /// Configuration at startup, to find edited fields that need a restart.
    initial_config: Arc<ProxyConfig>,
    state: Arc<State>,
    clusters: StaticClusters,
    updates: Option<watch::Receiver<u64>>,
    listeners: ListenerManager,
    /// Listeners of the management server that were passed to `listeners`.
    dynamic: Vec<Arc<ListenerConfig>>,
    subscribed: Subscriptions,
    /// Listeners of the file until startup has what requests need.
    prepared: Vec<PreparedListener>,
    admin: Option<TcpListener>,
    /// The process that this one replaces, until this one accepts connections.
    predecessor: Option<Predecessor>,
    /// Where the next process asks for the sockets.
    handover: Option<Handover>,
}

impl Proxy {
    /// Reads the bootstrap file, binds the sockets and starts the worker threads. Without a
    /// management server the proxy accepts connections when this returns.
    pub async fn start(options: Options) -> Result<Self, RunError> {
        let overrides = options.overrides.clone();
        let path = options.config.clone();
        let mut source = FileSource::new(path, move |path: &_, files: &mut _| {
            source::load(path, &overrides, files)
        });
        let loaded = source.load()?;
        let workers = options.workers.max(1);
        let client = client(&loaded.config, workers)
            .map_err(|error| RunError::Failed("cannot start the client".into(), error.into()))?;
        let epoch = options.restart_epoch;
        let state = Arc::new(State::new(client.clone(), workers, loaded, epoch));
        let threads = start_workers(&state)?;
        let sockets = Arc::clone(&options.sockets);
        let (predecessor, handed_over) = match state.loaded().config.admin {
            Some(admin) if epoch > 0 => predecessor(admin).await,
            _ => (None, Vec::new()),
        };
        let mut proxy = Self {
            options,
            source,
            initial_config: Arc::clone(&state.loaded().config),
            updates: client.routes_changed(),
            clusters: StaticClusters::new(client),
            listeners: ListenerManager::new(Arc::clone(&state), threads, sockets, handed_over),
            dynamic: Vec::new(),
            subscribed: Subscriptions::default(),
            prepared: Vec::new(),
            admin: None,
            predecessor,
            handover: None,
            state,
        };
        let config = proxy.config();
        proxy.prepared = proxy.listeners.prepare(&config.listeners, Origin::File)?;
        // While a predecessor runs, it has the admin address.
        if proxy.predecessor.is_none() {
            proxy.bind_admin()?;
        }
        proxy.update_clusters().await;
        if config.xds.is_none() {
            proxy.set_live();
        }
        Ok(proxy)
    }

    fn bind_admin(&mut self) -> Result<(), RunError> {
        if let Some(address) = self.config().admin {
            self.admin = Some(plimsoll_serve::bind_shared(address, &self.options.sockets)?);
            // The port is known; nobody can ask for an unknown one.
            if address.port() != 0 {
                self.bind_handover(address);
            }
        }
        Ok(())
    }

    /// Fails if another process shares the admin address: that one hands over its sockets.
    fn bind_handover(&mut self, admin: SocketAddr) {
        match Handover::bind(admin) {
            Ok(handover) => self.handover = Some(handover),
            Err(error) => log_line!(log_lines::HANDOVER_UNAVAILABLE, %error),
        }
    }

    /// Returns the addresses of the listeners in the file and of the admin interface.
    pub fn bound(&self) -> Bound {
        let prepared = self.prepared.iter().map(PreparedListener::name_and_address);
        let running = self.state.listeners().into_iter();
        let admin = self.admin.as_ref();
        Bound {
            listeners: running
                .map(|one| (one.name, one.address))
                .chain(prepared)
                .collect(),
            admin: match admin {
                Some(listener) => listener.local_addr().ok(),
                None => self.config().admin,
            },
        }
    }

    /// Returns a handle for the dashboard and other embedders to observe and stop the proxy.
    pub fn context(&self) -> Context {
        Context {
            state: Arc::clone(&self.state),
        }
    }

    /// Serves until `Context::stopping` is canceled, then drains. A message on `reload` (sent for
    /// SIGHUP) reloads the file at once.
    pub async fn run(mut self, admin: AdminOptions, mut reload: mpsc::Receiver<()>) {
        let pages = Admin {
            state: Arc::clone(&self.state),
            logging: self.options.logging.clone(),
        };
        let router = admin::router().into_router(pages, admin);
        let mut admin = self.serve_admin(&router);
        let monitoring = tokio::spawn(overload::run(Arc::clone(&self.state)));
        self.initialize().await;
        if let Some(predecessor) = self.predecessor.take() {
            self.take_over(predecessor).await;
            admin = self.serve_admin(&router);
        }
        let drain = loop {
            let updated = OptionFuture::from(self.updates.as_mut().map(watch::Receiver::changed));
            let asked = OptionFuture::from(self.handover.as_mut().map(Handover::next));
            let edited = tokio::select! {
                () = self.state.stopping.cancelled() => {
                    break Drain::for_shutdown(self.options.drain_time);
                }
                Some(asked) = asked => match asked {
                    HandoverRequest::Drain => {
                        self.state.stopping.cancel();
                        break Drain::for_successor(self.options.drain_time);
                    }
                    HandoverRequest::Sockets => {
                        self.send_sockets().await;
                        continue;
                    }
                },
                Some(()) = reload.recv() => Some(self.source.load()),
                Some(Ok(())) = updated => None,
                edited = self.source.poll() => edited,
            };
            self.update(edited).await;
        };
        if let Some(handover) = self.handover.take() {
            handover.finish().await;
        }
        self.listeners.drain(drain).await;
        monitoring.abort();
        self.state.exporters.shut_down().await;
        if let Some(admin) = admin {
            admin.abort();
        }
    }

    /// Serves the admin interface, also during the drain unless another process has its address.
    fn serve_admin(&mut self, router: &axum::Router) -> Option<tokio::task::JoinHandle<()>> {
        let listener = self.admin.take()?;
        let stopped = self.state.stopping.clone().cancelled_owned();
        let router = router.clone();
        Some(tokio::spawn(serve_until_replaced(
            listener, router, stopped,
        )))
    }

    /// Lets the previous process drain, then opens the admin address.
    async fn take_over(&mut self, predecessor: Predecessor) {
        if let Err(error) = predecessor.drain().await {
            log_line!(log_lines::TAKEOVER_FAILED, %error);
        }
        if let Err(error) = self.bind_admin() {
            let error = error_chain(&error);
            log_line!(log_lines::ADMIN_BIND_FAILED, %error);
        }
    }

    /// Hands the listening sockets to the next process, which shares them with this one until it
    /// accepts connections.
    async fn send_sockets(&mut self) {
        let sockets = self.listeners.sockets();
        if let Some(handover) = &mut self.handover {
            match handover.send(&sockets).await {
                Ok(()) => log_line!(log_lines::SOCKETS_SENT, sockets = sockets.len()),
                Err(error) => log_line!(log_lines::SOCKETS_NOT_SENT, %error),
            }
        }
    }

    /// Waits for the resources of the management server that requests need, then accepts
    /// connections. Returns without accepting any if the proxy is stopped.
    async fn initialize(&mut self) {
        let deadline = Instant::now() + self.options.initial_fetch_timeout;
        while !*self.state.live.borrow() {
            // Listeners of the management server may refer to routes.
            self.update_subscriptions().await;
            let awaited = awaited(&self.state.client).await;
            let names: Vec<String> = awaited.iter().map(ToString::to_string).collect();
            let done = awaited.is_empty();
            self.state.set_awaited(awaited);
            if done || Instant::now() >= deadline {
                if !done {
                    let awaited = names.join(", ");
                    log_line!(log_lines::INITIALIZATION_TIMED_OUT, awaited);
                }
                self.set_live();
                return;
            }
            tokio::select! {
                () = self.state.stopping.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Accepts connections from now on.
    fn set_live(&mut self) {
        let prepared = std::mem::take(&mut self.prepared);
        self.listeners.activate(prepared, Origin::File, true);
        self.update_dynamic_listeners(true);
        self.listeners.forget_handed_over();
        self.state.set_live();
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
        self.subscribed = Subscriptions::default();
        self.update_subscriptions().await;
    }

    /// Subscribes to the routes of all listeners, those of the management server included.
    async fn update_subscriptions(&mut self) {
        let config = self.config();
        if config.xds.is_none() {
            return;
        }
        let dynamic = lds::listeners(&self.state.client);
        let wanted = subscriptions(&config, &dynamic);
        if wanted == self.subscribed {
            return;
        }
        match self.state.client.subscribe(wanted.clone()).await {
            Ok(()) => self.subscribed = wanted,
            Err(error) => log_line!(log_lines::SUBSCRIPTION_FAILED, %error),
        }
    }

    /// Activates routes that the management server has changed.
    fn update_routes(&self) {
        for running in self.state.listeners() {
            let runtime = running.listener.runtime();
            for (index, chain) in runtime.chains().iter().enumerate() {
                let Some(name) = chain.config().rds_name() else {
                    continue;
                };
                let newest = self.state.client.compiled_routes(name);
                if let Some(table) = newest.filter(|table| !Arc::ptr_eq(table, &chain.routes)) {
                    log_line!(log_lines::ROUTES_APPLIED, listener = running.name, routes = %name);
                    running.listener.replace_routes(index, table);
                    self.state.advance_route_epoch();
                }
            }
        }
    }

    /// Passes changed listeners of the management server on, or all of them if `force` is set.
    fn update_dynamic_listeners(&mut self, force: bool) {
        let wanted = lds::listeners(&self.state.client);
        let same = wanted.len() == self.dynamic.len()
            && wanted
                .iter()
                .zip(&self.dynamic)
                .all(|(new, old)| Arc::ptr_eq(new, old));
        if force || !same || self.listeners.dynamic_files_changed() {
            self.listeners.set_dynamic(&wanted);
            self.dynamic = wanted;
        }
    }

    /// Applies changed resources of the management server and, if the file was edited, the edit.
    async fn update(&mut self, edited: Option<Result<Loaded, FileError>>) {
        self.update_subscriptions().await;
        self.update_dynamic_listeners(false);
        self.update_routes();
        self.listeners.activate_warmed();
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
        let prepared = self
            .listeners
            .prepare(&loaded.config.listeners, Origin::File)?;
        let restart_needed = restart_needed(&self.initial_config, &loaded.config);
        self.state.replace_config(loaded);
        // Make before break: clusters are added before the routes to them, and removed after.
        self.update_clusters().await;
        self.listeners.activate(prepared, Origin::File, false);
        self.state.advance_route_epoch();
        let config = self.config();
        self.clusters.retain(&config.clusters);
        Ok(restart_needed)
    }
}

/// Gets the sockets of the process that this one replaces. Without it, this one opens its own.
async fn predecessor(admin: SocketAddr) -> (Option<Predecessor>, Vec<StdListener>) {
    match Predecessor::connect(admin).await {
        Ok((predecessor, sockets)) => {
            log_line!(log_lines::SOCKETS_RECEIVED, sockets = sockets.len());
            (Some(predecessor), sockets)
        }
        Err(error) => {
            log_line!(log_lines::NO_PREDECESSOR, %admin, %error);
            (None, Vec::new())
        }
    }
}

fn start_workers(state: &Arc<State>) -> Result<Vec<WorkerThread>, RunError> {
    (0..state.workers)
        .map(|index| {
            let routes = Arc::clone(&state.route_epoch);
            let mut worker = Worker::new(index, state.client.clone(), routes, state.seed(index));
            worker.overload = Arc::clone(&state.overload);
            WorkerThread::start(worker, Arc::clone(&state.connection_limit)).map_err(|error| {
                RunError::Failed("cannot start a worker thread".to_owned(), error.into())
            })
        })
        .collect()
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
        let mut proxy = Proxy::start(Options::new(&file)).await.unwrap();
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
        proxy.listeners.drain(Drain::default()).await;
    }

    #[test]
    fn fields_that_need_a_restart_are_listed() {
        let config = |text: &str| ProxyConfig::parse(text).unwrap();
        let started = config("node: {id: a}");
        assert_eq!(restart_needed(&started, &config("node: {id: a}")), [""; 0]);
        assert_eq!(restart_needed(&started, &config("node: {id: b}")), ["node"]);
        let admin = "node: {id: a}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}";
        assert_eq!(restart_needed(&started, &config(admin)), ["admin"]);
        let fleet = config(
            "node: {id: a}
cluster_manager: {local_cluster_name: fleet}
static_resources:
  clusters: [{name: fleet, type: STATIC, load_assignment: {cluster_name: fleet}}]",
        );
        let name = "cluster_manager.local_cluster_name";
        assert_eq!(restart_needed(&fleet, &started), [name]);
        // Adding or renaming it needs no restart.
        assert_eq!(restart_needed(&started, &fleet), [""; 0]);
        assert_eq!(restart_needed(&fleet, &fleet), [""; 0]);
    }
}
