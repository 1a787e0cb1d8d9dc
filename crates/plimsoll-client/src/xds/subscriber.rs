//! [`Subscriber`]: task that runs the discovery stream and updates the cluster manager.
//!
//! `dependencies` decides what to subscribe to; `plimsoll_xds::ads` implements the protocol. The
//! task ends with the client: it holds only a weak sender to the cluster manager.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use plimsoll_core::log_line;
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{CLUSTER, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::driver::Servers;
use plimsoll_xds::driver::ads_client::{self, AdsClientChannels, AdsClientEvent, AdsCommand};
use plimsoll_xds::lrs::EdsNames;
use plimsoll_xds::route::RouteConfiguration;
use plimsoll_xds::wire;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::decode::{Compilers, Decoded, Routes, decode};
use super::dependencies::{
    Change, Dependencies, Key, NOT_RECEIVED, Roots, RouteConsumer, VersionedListener,
};
use super::load_reporting::LoadReporter;
use super::{LoadReporting, Subscriptions, XdsOptions, XdsState, XdsStatus};
use crate::cluster::initial_fetch::{InitialFetch, until};
use crate::cluster::manager::Update;
use crate::error::{Error, ErrorKind};
use crate::log_lines;

const QUEUE_CAPACITY: usize = 64;

/// How long a removed cluster stays: programs that subscribe to routes by name may still use it.
const CLUSTER_REMOVAL_DELAY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveRoutes {
    pub(crate) targets: BTreeMap<Arc<str>, Arc<RouteConfiguration>>,
    pub(crate) subscribed: BTreeMap<Arc<str>, Routes>,
    pub(crate) listeners: BTreeMap<Arc<str>, VersionedListener>,
}

#[derive(Debug)]
pub(crate) enum SubscribeCommand {
    Replace(Subscriptions),
    /// Asks for subscriptions that have neither arrived nor are known not to exist.
    Pending(oneshot::Sender<BTreeSet<Key>>),
    /// Reports load a last time, replies, and ends the streams.
    End(oneshot::Sender<()>),
}

/// Listeners of targets, each with the time when requests stop waiting for its first routes.
pub(crate) type Targets = BTreeMap<Arc<str>, Option<Instant>>;

#[derive(Clone, Debug)]
pub(crate) struct XdsHandle {
    pub(crate) commands: mpsc::Sender<SubscribeCommand>,
    pub(crate) targets: watch::Sender<Targets>,
    pub(crate) routes: Arc<ArcSwap<ActiveRoutes>>,
    pub(crate) status: watch::Receiver<XdsStatus>,
    pub(crate) routed: watch::Receiver<u64>,
    pub(crate) roots: Arc<Roots>,
    pub(crate) initial_fetch: Arc<InitialFetch>,
    /// When to stop waiting for the clusters that the program names.
    pub(crate) started_until: Option<Instant>,
    listener_template: Arc<str>,
}

impl XdsHandle {
    pub(crate) fn listener_name(&self, target: &str) -> Arc<str> {
        self.listener_template.replace("%s", target).into()
    }

    /// Subscribes to a listener. Idempotent: the time for its initial fetch starts only once.
    pub(crate) fn add_target(&self, listener: &Arc<str>) {
        self.targets.send_if_modified(|targets| {
            let known = targets.contains_key(listener);
            if !known {
                let deadline = self.initial_fetch.deadline();
                targets.insert(Arc::clone(listener), deadline);
            }
            !known
        });
    }

    /// Waits for the first routes of a listener, until its initial fetch has timed out.
    pub(crate) async fn wait_for_routes(&self, listener: &str) -> Result<(), Error> {
        let (mut routed, mut status) = (self.routed.clone(), self.status.clone());
        let waiting = async {
            loop {
                if self.routes.load().targets.contains_key(listener) {
                    return Ok(());
                }
                let problem = problem_of(&status.borrow_and_update(), LISTENER, listener)
                    .filter(|problem| problem != NOT_RECEIVED);
                if let Some(problem) = problem {
                    return Err(self.no_routes(listener, &problem));
                }
                let changed = tokio::select! {
                    changed = routed.changed() => changed,
                    changed = status.changed() => changed,
                };
                changed.map_err(|_| self.initial_fetch.lifecycle.error())?;
            }
        };
        until(self.deadline(listener), waiting)
            .await
            .unwrap_or_else(|| {
                let missing = self.initial_fetch.missing("routes");
                Err(self.no_routes(listener, &missing))
            })
    }

    /// When requests stop waiting for the routes of a target; `None` is never.
    pub(crate) fn deadline(&self, listener: &str) -> Option<Instant> {
        self.targets.borrow().get(listener).copied().flatten()
    }

    fn no_routes(&self, listener: &str, problem: &str) -> Error {
        let state = self.initial_fetch.server_state();
        let message = format!("listener {listener:?}: {problem}; {state}");
        Error::new(ErrorKind::Discovery, message)
    }
}

/// Name of a target in log lines about the initial fetch.
pub(crate) fn waiting(listener: &str) -> String {
    format!("listener {listener}")
}

/// Why the management server does not have a resource.
pub(crate) fn problem_of(status: &XdsStatus, type_url: &str, name: &str) -> Option<String> {
    let key = (type_url.into(), name.into());
    status.problems.get(&key).cloned()
}

/// State of the server at `uri`, for errors.
fn server_state(uri: &str, state: &XdsState, is_silent: bool) -> String {
    match state {
        XdsState::Connecting => format!("{uri} (connecting)"),
        XdsState::Connected if is_silent => format!("{uri} (connected, no resources received)"),
        XdsState::Connected => format!("{uri} (connected)"),
        XdsState::Disconnected { message } => format!("{uri} (disconnected: {message})"),
    }
}

/// Sleeps until `when`; never resolves if it is `None`.
async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

struct Subscriber {
    options: XdsOptions,
    servers: Servers,
    dependencies: Dependencies,
    updates: mpsc::WeakSender<Update>,
    routes: Arc<ArcSwap<ActiveRoutes>>,
    routed: watch::Sender<u64>,
    status: watch::Sender<XdsStatus>,
    eds_names: watch::Sender<EdsNames>,
    /// The server of the current stream has sent nothing yet.
    is_silent: bool,
    reporter: Option<LoadReporter>,
    subscribes_routes: bool,
    pending_removals: BTreeMap<Arc<str>, Instant>,
    initial_fetch: Arc<InitialFetch>,
}

/// The program's side of the subscriber; closed when the client is dropped.
struct Inputs {
    commands: mpsc::Receiver<SubscribeCommand>,
    targets: watch::Receiver<Targets>,
    fleet_needed: watch::Receiver<bool>,
}

/// The program's own clusters, with the name of the assignment if their endpoints come from EDS.
pub(crate) type OwnClusters = BTreeMap<Arc<str>, Option<Arc<str>>>;

/// Spawns the subscriber. Must be called within a tokio runtime.
pub(crate) fn start(
    options: XdsOptions,
    updates: &mpsc::Sender<Update>,
    fleet_needed: watch::Receiver<bool>,
    own_clusters: OwnClusters,
    initial_fetch: Arc<InitialFetch>,
) -> XdsHandle {
    let roots = Roots {
        subscriptions: Subscriptions {
            own_clusters,
            ..Subscriptions::default()
        },
        clusters: options.clusters.iter().cloned().collect(),
        all_clusters: options.all_clusters,
        all_listeners: options.compile_listeners.is_some(),
        local_cluster_name: Arc::clone(&options.local_cluster_name),
        ..Roots::default()
    };
    let (commands, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let (status, status_reader) = watch::channel(XdsStatus::default());
    let (routed, routed_reader) = watch::channel(0);
    let (targets, targets_reader) = watch::channel(Targets::new());
    let routes = Arc::<ArcSwap<ActiveRoutes>>::default();
    let listener_template = options.listener_template.as_str().into();
    let subscriber = Subscriber {
        servers: Servers::new(options.server.clone(), options.fallback.iter().cloned()),
        dependencies: Dependencies::new(roots.clone()),
        updates: updates.downgrade(),
        routes: Arc::clone(&routes),
        routed,
        status,
        eds_names: watch::channel(EdsNames::new()).0,
        is_silent: true,
        reporter: None,
        subscribes_routes: false,
        pending_removals: BTreeMap::new(),
        initial_fetch: Arc::clone(&initial_fetch),
        options,
    };
    subscriber.set_state(XdsState::Connecting);
    let inputs = Inputs {
        commands: receiver,
        targets: targets_reader,
        fleet_needed,
    };
    tokio::spawn(subscriber.run(inputs));
    XdsHandle {
        commands,
        targets,
        routes,
        status: status_reader,
        routed: routed_reader,
        roots: Arc::new(roots),
        started_until: initial_fetch.deadline(),
        initial_fetch,
        listener_template,
    }
}

impl Subscriber {
    async fn run(mut self, inputs: Inputs) {
        let Inputs {
            mut commands,
            mut targets,
            mut fleet_needed,
        } = inputs;
        // Check once at the start: the program's own clusters may need the fleet already.
        fleet_needed.mark_changed();
        let (events, mut ads_events) = mpsc::channel(QUEUE_CAPACITY);
        let (ads_commands, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let driver = self.spawn_driver(AdsClientChannels {
            events,
            commands: receiver,
        });
        if self.options.load_reporting == LoadReporting::Always {
            self.report_load();
        }
        loop {
            if self.forward(&ads_commands).await.is_none() {
                break;
            }
            tokio::select! {
                command = commands.recv() => match command {
                    // The client was dropped.
                    None => break,
                    Some(SubscribeCommand::End(done)) => {
                        if let Some(reporter) = self.reporter.take() {
                            reporter.end().await;
                        }
                        // The receiver may have been dropped.
                        let _ = done.send(());
                        break;
                    }
                    Some(command) => self.handle_command(command),
                },
                // Closed only together with the client.
                Ok(()) = targets.changed() => {
                    let listeners: Vec<_> = targets.borrow_and_update().keys().cloned().collect();
                    self.dependencies.add_listeners(listeners);
                }
                // Closed only together with the client.
                Ok(()) = fleet_needed.changed() => {
                    let needed = *fleet_needed.borrow_and_update();
                    self.dependencies.set_fleet_needed(needed);
                }
                () = sleep_until(self.pending_removals.values().min().copied()) => {
                    if self.remove_due().await.is_none() {
                        break;
                    }
                }
                event = ads_events.recv() => match event {
                    None => break,
                    Some(event) => self.handle_event(event),
                },
            }
        }
        driver.abort();
    }

    fn spawn_driver(&self, channels: AdsClientChannels<Decoded>) -> JoinHandle<()> {
        let info = self.options.node_info();
        let node = NodeMessage {
            raw: wire::encode_node(&info),
            info,
        };
        let client = Client::new(
            self.options.variant,
            node,
            wire::resource_name,
            self.client_settings(),
        );
        let compilers = Compilers {
            routes: self.options.compile_routes.clone(),
            listeners: self.options.compile_listeners.clone(),
        };
        let decode = move |type_url: &str, name: &str, body: &Bytes| {
            decode(type_url, name, body, &compilers)
        };
        let servers = self.servers.clone();
        tokio::spawn(ads_client::run(servers, client, decode, channels))
    }

    /// A resource counts as nonexistent after the time for its initial fetch.
    fn client_settings(&self) -> ClientSettings {
        let mut settings = ClientSettings::default();
        settings.does_not_exist_after = self.initial_fetch.timeout.unwrap_or(Duration::MAX);
        settings
    }

    fn set_state(&self, state: XdsState) {
        let server = &self.servers.current().uri;
        self.initial_fetch
            .set_server_state(server_state(server, &state, self.is_silent));
        self.status.send_modify(|status| {
            status.server.clone_from(server);
            status.state = state;
        });
    }

    fn handle_command(&mut self, command: SubscribeCommand) {
        match command {
            SubscribeCommand::Replace(subscriptions) => self.subscribe(subscriptions),
            // Ends the task, in `run`.
            SubscribeCommand::End(_) => {}
            SubscribeCommand::Pending(reply) => {
                // The receiver may have been dropped.
                let _ = reply.send(self.dependencies.pending());
            }
        }
    }

    fn subscribe(&mut self, subscriptions: Subscriptions) {
        self.subscribes_routes |= !subscriptions.routes.is_empty();
        self.status.send_modify(|status| {
            status
                .routes
                .retain(|name, _| subscriptions.routes.contains(name));
            for name in &subscriptions.routes {
                status.routes.entry(Arc::clone(name)).or_default();
            }
        });
        for (cluster, eds_name) in &subscriptions.own_clusters {
            self.record_eds_name(cluster, eds_name.as_deref());
        }
        // The program removes its own clusters itself.
        self.pending_removals
            .retain(|name, _| !subscriptions.own_clusters.contains_key(name));
        self.dependencies.subscribe(subscriptions);
    }

    async fn remove_due(&mut self) -> Option<()> {
        let now = Instant::now();
        let due: Vec<Arc<str>> = (self.pending_removals.iter())
            .filter(|(_, when)| **when <= now)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in due {
            self.pending_removals.remove(&name);
            let updates = self.updates.upgrade()?;
            updates.send(Update::Remove(name)).await.ok()?;
        }
        Some(())
    }

    fn handle_event(&mut self, event: AdsClientEvent<Decoded>) {
        match event {
            AdsClientEvent::Connected => {
                self.is_silent = true;
                self.set_state(XdsState::Connected);
            }
            AdsClientEvent::Disconnected { message, .. } => {
                self.set_state(XdsState::Disconnected { message });
            }
            AdsClientEvent::Resource(event) => {
                // A timeout of the client's own is no sign of the server.
                let is_answer = !matches!(event, ClientEvent::DoesNotExist { .. });
                if is_answer && std::mem::replace(&mut self.is_silent, false) {
                    self.set_state(XdsState::Connected);
                }
                self.count(&event);
                self.report_ignored(&event);
                self.dependencies.handle(event);
            }
        }
    }

    fn count(&self, event: &ClientEvent<Decoded>) {
        match event {
            ClientEvent::Rejected {
                type_url, reason, ..
            } => {
                log_line!(log_lines::RESPONSE_REJECTED, %type_url, error = %reason);
                self.status.send_modify(|status| {
                    status.rejected += 1;
                    status.last_rejection = Some(reason.clone());
                    if **type_url == *ROUTE_CONFIGURATION {
                        let routes = status.routes.values_mut();
                        routes.for_each(|route| route.update_rejected += 1);
                    }
                });
            }
            ClientEvent::Updated { type_url, resource } if **type_url == *ROUTE_CONFIGURATION => {
                self.status.send_if_modified(|status| {
                    let route = status.routes.get_mut(&resource.name);
                    route.is_some_and(|route| {
                        route.update_success += 1;
                        route.version = Arc::clone(&resource.version);
                        true
                    })
                });
            }
            ClientEvent::Complete { type_url } if **type_url == *CLUSTER => {
                self.status
                    .send_modify(|status| status.clusters_complete = true);
                self.initial_fetch.changed.notify_waiters();
            }
            _ => {}
        }
    }

    /// Records, and logs once per version, the fields of a resource that have no effect.
    fn report_ignored(&self, event: &ClientEvent<Decoded>) {
        match event {
            ClientEvent::Updated { type_url, resource } => {
                let (name, version) = (&resource.name, &resource.version);
                let paths = &resource.body.ignored;
                let key = (Arc::clone(type_url), Arc::clone(name));
                self.status.send_if_modified(|status| {
                    let before = status.ignored_fields.len();
                    let is_new = status.record_ignored(key, version, paths);
                    if is_new {
                        let fields = paths.join(", ");
                        log_line!(log_lines::FIELDS_IGNORED, %type_url, %name, %version, fields);
                    }
                    is_new || status.ignored_fields.len() != before
                });
            }
            ClientEvent::Removed { type_url, name }
            | ClientEvent::DoesNotExist { type_url, name, .. } => {
                let key = (Arc::clone(type_url), Arc::clone(name));
                self.status
                    .send_if_modified(|status| status.ignored_fields.remove(&key).is_some());
            }
            _ => {}
        }
    }

    fn count_reload(&self, name: &str) {
        self.status.send_if_modified(|status| {
            let route = status.routes.get_mut(name);
            route.is_some_and(|route| {
                route.config_reload += 1;
                // Only the newest version is ever published.
                let version = Arc::clone(&route.version);
                route.in_force = Some((version, SystemTime::now()));
                true
            })
        });
    }

    /// Sends subscription changes to the server, applies others; `None` if the client was dropped.
    async fn forward(&mut self, commands: &mpsc::Sender<AdsCommand>) -> Option<()> {
        while let Some(command) = self.dependencies.poll_command() {
            commands.send(command).await.ok()?;
        }
        while let Some(change) = self.dependencies.poll_change() {
            self.apply(change).await?;
        }
        Some(())
    }

    async fn apply(&mut self, change: Change) -> Option<()> {
        let update = match change {
            Change::Cluster(cluster) => {
                self.pending_removals.remove(cluster.config.name());
                self.record_eds_name(cluster.config.name(), cluster.eds_name());
                if cluster.options.lrs && self.options.load_reporting != LoadReporting::Never {
                    self.report_load();
                }
                Update::Discovered(cluster)
            }
            Change::Removed(name) if self.subscribes_routes => {
                self.pending_removals
                    .insert(name, Instant::now() + CLUSTER_REMOVAL_DELAY);
                return Some(());
            }
            Change::Removed(name) => Update::Remove(name),
            Change::Endpoints(cluster, endpoints) => Update::Endpoints(cluster, endpoints),
            Change::Fleet(assignment) => Update::Originating(assignment),
            Change::Routes(user, routes) => {
                self.flush().await?;
                let mut next = ActiveRoutes::clone(&self.routes.load());
                match user {
                    RouteConsumer::Target(target) => {
                        self.initial_fetch.handle_arrival(&waiting(&target));
                        next.targets.insert(target, routes.configuration);
                    }
                    RouteConsumer::Subscription(name) => {
                        self.count_reload(&name);
                        next.subscribed.insert(name, routes);
                    }
                }
                self.routes.store(Arc::new(next));
                self.routed.send_modify(|generation| *generation += 1);
                self.initial_fetch.changed.notify_waiters();
                return Some(());
            }
            Change::Listeners(listeners) => {
                let mut next = ActiveRoutes::clone(&self.routes.load());
                next.listeners = listeners;
                self.routes.store(Arc::new(next));
                self.routed.send_modify(|generation| *generation += 1);
                return Some(());
            }
            Change::Problem(key, problem) => {
                self.set_problem(key, problem);
                return Some(());
            }
        };
        self.updates.upgrade()?.send(update).await.ok()
    }

    /// Waits until clusters are published, before routes that name them are.
    async fn flush(&self) -> Option<()> {
        let (reply, done) = oneshot::channel();
        let updates = self.updates.upgrade()?;
        updates.send(Update::Flush(reply)).await.ok()?;
        done.await.ok()
    }

    fn set_problem(&self, key: Key, problem: Option<String>) {
        self.status.send_if_modified(|status| match problem {
            None => status.problems.remove(&key).is_some(),
            Some(problem) => {
                let (type_url, name) = &key;
                log_line!(log_lines::RESOURCE_MISSING, %type_url, %name, error = problem);
                status.problems.insert(key, problem);
                true
            }
        });
        self.initial_fetch.changed.notify_waiters();
    }

    fn record_eds_name(&self, name: &Arc<str>, eds_name: Option<&str>) {
        let differs = |eds_name: &&str| **eds_name != **name;
        let eds_name = eds_name.filter(differs).map(Arc::from);
        self.eds_names.send_modify(|names| {
            match eds_name {
                Some(eds_name) => names.insert(Arc::clone(name), eds_name),
                None => names.remove(name),
            };
        });
    }

    fn report_load(&mut self) {
        if self.reporter.is_some() {
            return;
        }
        if self.options.node.id.is_empty() {
            log_line!(log_lines::NODE_ID_EMPTY);
        }
        self.reporter = Some(LoadReporter::start(
            self.servers.clone(),
            self.options.node_info(),
            self.eds_names.subscribe(),
            self.updates.clone(),
        ));
    }
}

#[cfg(test)]
mod tests;
