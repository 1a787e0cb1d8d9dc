//! The discovery stream of a client: [`Subscriber`] runs it and tells the cluster manager.
//!
//! What is needed is decided by `dependencies`, the protocol is plimsoll-xds's. Ends with the
//! client: it holds no strong end of the manager's channel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use plimsoll_xds::ads::client::{Client, ClientEvent, ClientSettings};
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::driver::Servers;
use plimsoll_xds::driver::ads_client::{self, AdsClientChannels, AdsClientEvent, AdsCommand};
use plimsoll_xds::lrs::EdsNames;
use plimsoll_xds::route::RouteConfiguration;
use plimsoll_xds::wire;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::dependencies::{Change, Dependencies, Roots, RouteUser, check};
use super::load_reporting;
use super::{Following, LoadReporting, XdsOptions, XdsState, XdsStatus};
use crate::cluster_manager::Update;
use crate::error::{Error, ErrorKind};

/// Events that may wait for the subscriber.
const QUEUE: usize = 64;

/// How long a target may be without routes before that is an error: longer than the server has time
/// to say that it does not exist.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a cluster outlives the routes that named it, for those who follow routes by name: they
/// put new ones in force a moment later than we hand them on.
const LINGER: Duration = Duration::from_secs(5);

/// Routes that are in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// By target.
    pub(crate) targets: BTreeMap<Arc<str>, Arc<RouteConfiguration>>,
    /// By their own name, for followers.
    pub(crate) followed: BTreeMap<Arc<str>, Arc<RouteConfiguration>>,
}

/// What the subscriber is asked for.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// One more listener.
    Listener(Arc<str>),
    /// These, instead of those before.
    Following(Following),
}

/// What a client keeps of its subscriber.
#[derive(Clone, Debug)]
pub(crate) struct XdsHandle {
    /// What else is wanted.
    pub(crate) wanted: mpsc::Sender<Wanted>,
    pub(crate) routes: Arc<ArcSwap<Routes>>,
    pub(crate) status: watch::Receiver<XdsStatus>,
    /// Changes whenever routes do.
    pub(crate) routed: watch::Receiver<u64>,
    listener_template: Arc<str>,
}

impl XdsHandle {
    /// Name of the listener of a target.
    pub(crate) fn listener_name(&self, target: &str) -> Arc<str> {
        self.listener_template.replace("%s", target).into()
    }

    /// Until there are routes for `target`, or the server has said that there are none.
    pub(crate) async fn wait_for_routes(&self, target: &str) -> Result<(), Error> {
        let (mut routed, mut status) = (self.routed.clone(), self.status.clone());
        let waiting = async {
            loop {
                if self.routes.load().targets.contains_key(target) {
                    return Ok(());
                }
                let problem = problem_of(&status.borrow_and_update(), target);
                if let Some(problem) = problem {
                    return Err(Error::new(ErrorKind::Discovery, problem));
                }
                let changed = tokio::select! {
                    changed = routed.changed() => changed,
                    changed = status.changed() => changed,
                };
                changed.map_err(|_| Error::new(ErrorKind::Closed, "the client is shut down"))?;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(done) => done,
            Err(_) => {
                let state = &self.status.borrow().state;
                let message = format!("no routes for {target:?} within {PATIENCE:?}: {state:?}");
                Err(Error::new(ErrorKind::Discovery, message))
            }
        }
    }
}

/// Until then; for ever without a time.
async fn due(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

fn problem_of(status: &XdsStatus, target: &str) -> Option<String> {
    let key = (LISTENER.into(), target.into());
    let problem = status.problems.get(&key)?;
    Some(format!("listener {target:?}: {problem}"))
}

struct Subscriber {
    options: XdsOptions,
    servers: Servers,
    dependencies: Dependencies,
    updates: mpsc::WeakSender<Update>,
    routes: Arc<ArcSwap<Routes>>,
    routed: watch::Sender<u64>,
    status: watch::Sender<XdsStatus>,
    eds_names: watch::Sender<EdsNames>,
    reports_load: bool,
    /// Somebody follows routes by name.
    followed: bool,
    /// Clusters that are about to be removed, and when.
    leaving: BTreeMap<Arc<str>, Instant>,
}

/// Starts to subscribe; needs a tokio runtime around it.
pub(crate) fn start(
    options: XdsOptions,
    updates: &mpsc::Sender<Update>,
    fleet_wanted: watch::Receiver<bool>,
) -> XdsHandle {
    let roots = Roots {
        clusters: options.clusters.iter().cloned().collect(),
        all_clusters: options.all_clusters,
        local_cluster_name: Arc::clone(&options.local_cluster_name),
        ..Roots::default()
    };
    let (wanted, news) = mpsc::channel(QUEUE);
    let (status, status_reader) = watch::channel(XdsStatus::default());
    let (routed, routed_reader) = watch::channel(0);
    let routes = Arc::<ArcSwap<Routes>>::default();
    let listener_template = options.listener_template.as_str().into();
    let subscriber = Subscriber {
        servers: Servers::new(options.server.clone(), options.fallback.iter().cloned()),
        dependencies: Dependencies::new(roots),
        updates: updates.downgrade(),
        routes: Arc::clone(&routes),
        routed,
        status,
        eds_names: watch::channel(EdsNames::new()).0,
        reports_load: false,
        followed: false,
        leaving: BTreeMap::new(),
        options,
    };
    tokio::spawn(subscriber.run(news, fleet_wanted));
    XdsHandle {
        wanted,
        routes,
        status: status_reader,
        routed: routed_reader,
        listener_template,
    }
}

impl Subscriber {
    /// Works until the client is gone.
    async fn run(
        mut self,
        mut news: mpsc::Receiver<Wanted>,
        mut fleet_wanted: watch::Receiver<bool>,
    ) {
        // Clusters of the program may be there already.
        fleet_wanted.mark_changed();
        let info = self.options.node_info();
        let node = NodeMessage {
            raw: wire::encode_node(&info),
            info,
        };
        let client = Client::new(
            self.options.variant,
            node,
            wire::resource_name,
            ClientSettings::default(),
        );
        let (events, mut happened) = mpsc::channel(QUEUE);
        let (commands, wanted) = mpsc::channel(QUEUE);
        let channels = AdsClientChannels {
            events,
            commands: wanted,
        };
        let servers = self.servers.clone();
        let routes = self.options.route_check.clone();
        let check = move |type_url: &str, name: &str, body: &Bytes| {
            check(type_url, name, body)?;
            match &routes {
                Some(routes) if type_url == ROUTE_CONFIGURATION => routes.check(body),
                _ => Ok(()),
            }
        };
        let driver = tokio::spawn(ads_client::run(servers, client, check, channels));
        if self.options.load_reporting == LoadReporting::Always {
            self.report_load();
        }
        loop {
            if self.settle(&commands).await.is_none() {
                break;
            }
            tokio::select! {
                news = news.recv() => match news {
                    // The client and all its channels are gone.
                    None => break,
                    Some(Wanted::Listener(name)) => self.dependencies.add_listener(name),
                    Some(Wanted::Following(following)) => self.follow(following),
                },
                // The cluster manager, which knows, is gone when the client is.
                Ok(()) = fleet_wanted.changed() => {
                    let wanted = *fleet_wanted.borrow_and_update();
                    self.dependencies.want_fleet(wanted);
                }
                () = due(self.leaving.values().min().copied()) => {
                    if self.remove_due().await.is_none() {
                        break;
                    }
                }
                event = happened.recv() => match event {
                    None => break,
                    Some(event) => self.handle_event(event),
                },
            }
        }
        driver.abort();
    }

    fn follow(&mut self, following: Following) {
        self.followed |= !following.routes.is_empty();
        self.status.send_modify(|status| {
            status
                .routes
                .retain(|name, _| following.routes.contains(name));
            for name in &following.routes {
                status.routes.entry(Arc::clone(name)).or_default();
            }
        });
        for (cluster, eds_name) in &following.own_clusters {
            self.name_for_reports(cluster, eds_name.as_deref());
        }
        // Clusters of the program's own are its business.
        self.leaving
            .retain(|name, _| !following.own_clusters.contains_key(name));
        self.dependencies.follow(following);
    }

    /// Removes clusters whose time is up.
    async fn remove_due(&mut self) -> Option<()> {
        let now = Instant::now();
        let due = self.leaving.iter().filter(|(_, when)| **when <= now);
        let due: Vec<Arc<str>> = due.map(|(name, _)| Arc::clone(name)).collect();
        for name in due {
            self.leaving.remove(&name);
            let updates = self.updates.upgrade()?;
            updates.send(Update::Remove(name)).await.ok()?;
        }
        Some(())
    }

    fn handle_event(&mut self, event: AdsClientEvent) {
        match event {
            AdsClientEvent::Connected => {
                let server = &self.servers.current().uri;
                self.status.send_modify(|status| {
                    status.state = XdsState::Connected;
                    status.server.clone_from(server);
                });
            }
            AdsClientEvent::Disconnected { message, .. } => {
                let state = XdsState::Disconnected { message };
                self.status.send_modify(|status| status.state = state);
            }
            AdsClientEvent::Resource(event) => {
                self.count(&event);
                self.report_ignored(&event);
                self.dependencies.handle(event);
            }
        }
    }

    fn count(&self, event: &ClientEvent) {
        match event {
            ClientEvent::Rejected {
                type_url, reason, ..
            } => {
                tracing::warn!(%type_url, error = %reason, "refused what the server sent");
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
            _ => {}
        }
    }

    /// Says which fields of an accepted resource have no effect, once per version.
    fn report_ignored(&self, event: &ClientEvent) {
        match event {
            ClientEvent::Updated { type_url, resource } => {
                let (name, version) = (&resource.name, &resource.version);
                let paths = wire::ignored_fields(type_url, &resource.body);
                let key = (Arc::clone(type_url), Arc::clone(name));
                self.status.send_if_modified(|status| {
                    let before = status.ignored_fields.len();
                    let news = status.note_ignored(key, version, paths.clone());
                    if news {
                        let fields = paths.join(", ");
                        tracing::warn!(
                            %type_url, %name, %version, fields,
                            "fields of a resource have no effect here"
                        );
                    }
                    news || status.ignored_fields.len() != before
                });
            }
            ClientEvent::Removed { type_url, name }
            | ClientEvent::DoesNotExist { type_url, name } => {
                let key = (Arc::clone(type_url), Arc::clone(name));
                self.status
                    .send_if_modified(|status| status.ignored_fields.remove(&key).is_some());
            }
            _ => {}
        }
    }

    /// Other routes are in force for those who follow them.
    fn count_reload(&self, name: &str) {
        self.status.send_if_modified(|status| {
            let route = status.routes.get_mut(name);
            route.is_some_and(|route| {
                route.config_reload += 1;
                // Routes are handed on as the newest ones, or not at all.
                let version = Arc::clone(&route.version);
                route.in_force = Some((version, SystemTime::now()));
                true
            })
        });
    }

    /// Passes on what is new. `None` when the client is gone.
    async fn settle(&mut self, commands: &mpsc::Sender<AdsCommand>) -> Option<()> {
        while let Some(command) = self.dependencies.poll_command() {
            commands.send(command).await.ok()?;
        }
        while let Some(change) = self.dependencies.poll_change() {
            self.tell(change).await?;
        }
        Some(())
    }

    async fn tell(&mut self, change: Change) -> Option<()> {
        let update = match change {
            Change::Cluster(cluster) => {
                self.leaving.remove(cluster.config.name());
                self.name_for_reports(cluster.config.name(), cluster.eds_name());
                if cluster.options.lrs && self.options.load_reporting != LoadReporting::Never {
                    self.report_load();
                }
                Update::Discovered(cluster)
            }
            Change::Removed(name) if self.followed => {
                self.leaving.insert(name, Instant::now() + LINGER);
                return Some(());
            }
            Change::Removed(name) => Update::Remove(name),
            Change::Assignment(cluster, assigned) => {
                let extras = Arc::unwrap_or_clone(assigned.extras);
                let update = Update::Extras(Arc::clone(&cluster), extras);
                self.updates.upgrade()?.send(update).await.ok()?;
                Update::Assignment(cluster, assigned.assignment)
            }
            Change::Fleet(assignment) => Update::Originating(assignment),
            Change::Routes(user, routes) => {
                self.flush().await?;
                let mut next = Routes::clone(&self.routes.load());
                match user {
                    RouteUser::Target(target) => next.targets.insert(target, routes),
                    RouteUser::Follower(name) => {
                        self.count_reload(&name);
                        next.followed.insert(name, routes)
                    }
                };
                self.routes.store(Arc::new(next));
                self.routed.send_modify(|generation| *generation += 1);
                return Some(());
            }
            Change::Problem(key, problem) => {
                self.note(key, problem);
                return Some(());
            }
        };
        self.updates.upgrade()?.send(update).await.ok()
    }

    /// Waits until clusters are in force: routes name them.
    async fn flush(&self) -> Option<()> {
        let (reply, done) = tokio::sync::oneshot::channel();
        let updates = self.updates.upgrade()?;
        updates.send(Update::Flush(reply)).await.ok()?;
        done.await.ok()
    }

    fn note(&self, key: super::dependencies::Key, problem: Option<String>) {
        self.status.send_if_modified(|status| match problem {
            None => status.problems.remove(&key).is_some(),
            Some(problem) => {
                let (type_url, name) = &key;
                tracing::warn!(%type_url, %name, error = problem, "a resource is missing");
                status.problems.insert(key, problem);
                true
            }
        });
    }

    /// Load reports have the name in EDS beside that of the cluster, where they differ.
    fn name_for_reports(&self, name: &Arc<str>, eds_name: Option<&str>) {
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
        if std::mem::replace(&mut self.reports_load, true) {
            return;
        }
        if self.options.node.id.is_empty() {
            tracing::warn!("node.id is empty; plimsoll control ignores load reports without it");
        }
        tokio::spawn(load_reporting::run(
            self.servers.clone(),
            self.options.node_info(),
            self.eds_names.subscribe(),
            self.updates.clone(),
        ));
    }
}
