//! [`State`]: state that the main task, the workers and the admin interface share.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use plimsoll_client::Client;
use plimsoll_serve::{CancellationToken, Reloads};
use tokio::sync::watch;

use crate::access_log::Sinks;
use crate::config::ListenerConfig;
use crate::connection_limit::ConnectionLimit;
use crate::initialization::Awaited;
use crate::listener::Listener;
use crate::overload::Overload;
use crate::source::Loaded;
use crate::trace::Exporters;

/// Shared state of a running proxy. Only the task of `run` modifies it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) client: Client,
    pub(crate) workers: usize,
    pub(crate) sinks: Sinks,
    pub(crate) exporters: Exporters,
    pub(crate) reloads: Reloads,
    pub(crate) started: Instant,
    loaded: ArcSwap<Loaded>,
    listeners: Mutex<Vec<RunningListener>>,
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    pub(crate) overload: Arc<Overload>,
    pub(crate) route_epoch: Arc<AtomicU64>,
    /// Canceled to stop the proxy, which then drains.
    pub(crate) stopping: CancellationToken,
    pub(crate) live: watch::Sender<bool>,
    awaited: Mutex<Vec<Awaited>>,
    /// Number of restarts before this process (`--restart-epoch`).
    pub(crate) restart_epoch: u32,
    seeds: RandomState,
}

/// A listener that is active.
#[derive(Clone, Debug)]
pub(crate) struct RunningListener {
    pub(crate) name: String,
    /// Address in the configuration; its port may be 0.
    pub(crate) configured: SocketAddr,
    pub(crate) address: SocketAddr,
    pub(crate) listener: Arc<Listener>,
    pub(crate) origin: Origin,
}

impl RunningListener {
    /// Whether the sockets of this listener have the address that `config` asks for. With port 0
    /// any port will do, so the listener of the same name keeps its port.
    pub(crate) fn has_address_of(&self, config: &ListenerConfig) -> bool {
        let fixed = config.address.port() != 0 || self.name == config.name;
        self.configured == config.address && fixed
    }
}

/// Where the configuration of a listener comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File,
    Lds,
}

/// Lifecycle of the process, as in Envoy's `ServerInfo.State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Clusters or endpoints of the management server are awaited.
    PreInitializing,
    /// Listeners or routes of the management server are awaited.
    Initializing,
    Live,
    Draining,
}

impl Phase {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::PreInitializing => "PRE_INITIALIZING",
            Self::Initializing => "INITIALIZING",
            Self::Live => "LIVE",
            Self::Draining => "DRAINING",
        }
    }
}

impl State {
    pub(crate) fn new(client: Client, workers: usize, loaded: Loaded, restart_epoch: u32) -> Self {
        let exporters = Exporters::new(client.clone(), workers, &loaded.config.node);
        let state = Self {
            client,
            workers,
            sinks: Sinks::default(),
            exporters,
            reloads: Reloads::default(),
            started: Instant::now(),
            loaded: ArcSwap::from_pointee(loaded),
            listeners: Mutex::default(),
            connection_limit: Arc::default(),
            overload: Arc::new(Overload::new(workers)),
            route_epoch: Arc::default(),
            stopping: CancellationToken::new(),
            live: watch::Sender::new(false),
            awaited: Mutex::default(),
            restart_epoch,
            seeds: RandomState::new(),
        };
        state.apply_connection_limit();
        state
    }

    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    pub(crate) fn replace_config(&self, loaded: Loaded) {
        self.loaded.store(Arc::new(loaded));
        self.apply_connection_limit();
    }

    fn apply_connection_limit(&self) {
        self.connection_limit
            .set(self.loaded().config.max_connections);
    }

    pub(crate) fn listeners(&self) -> Vec<RunningListener> {
        self.lock_listeners().clone()
    }

    /// Adds a listener; returns the one of the same name that it replaces.
    pub(crate) fn add_listener(&self, new: RunningListener) -> Option<RunningListener> {
        let mut current = self.lock_listeners();
        let Some(same) = current.iter_mut().find(|one| one.name == new.name) else {
            current.push(new);
            return None;
        };
        let is_new = !Arc::ptr_eq(&same.listener, &new.listener);
        let replaced = std::mem::replace(same, new);
        is_new.then_some(replaced)
    }

    pub(crate) fn remove_listener(&self, listener: &Arc<Listener>) {
        self.lock_listeners()
            .retain(|one| !Arc::ptr_eq(&one.listener, listener));
    }

    pub(crate) fn is_active(&self, listener: &Arc<Listener>) -> bool {
        let current = self.lock_listeners();
        current
            .iter()
            .any(|one| Arc::ptr_eq(&one.listener, listener))
    }

    /// Keeps the listeners for which `stays` returns true; returns the others.
    pub(crate) fn retain_listeners(
        &self,
        stays: impl Fn(&RunningListener) -> bool,
    ) -> Vec<RunningListener> {
        let mut current = self.lock_listeners();
        let (kept, removed) = std::mem::take(&mut *current).into_iter().partition(stays);
        *current = kept;
        removed
    }

    fn lock_listeners(&self) -> MutexGuard<'_, Vec<RunningListener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the workers discard services that they cached for earlier routes.
    pub(crate) fn advance_route_epoch(&self) {
        self.route_epoch.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn seed(&self, worker: usize) -> u64 {
        self.seeds.hash_one(worker)
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.stopping.is_cancelled() {
            Phase::Draining
        } else if *self.live.borrow() {
            Phase::Live
        } else if self.lock_awaited().iter().any(Awaited::is_upstream) {
            Phase::PreInitializing
        } else {
            Phase::Initializing
        }
    }

    pub(crate) fn set_live(&self) {
        self.lock_awaited().clear();
        self.live.send_replace(true);
    }

    /// Resources that startup waits for.
    pub(crate) fn awaited(&self) -> Vec<Awaited> {
        self.lock_awaited().clone()
    }

    pub(crate) fn set_awaited(&self, awaited: Vec<Awaited>) {
        *self.lock_awaited() = awaited;
    }

    fn lock_awaited(&self) -> MutexGuard<'_, Vec<Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use plimsoll_xds::ads::{CLUSTER, LISTENER};

    use super::*;
    use crate::config::ProxyConfig;
    use crate::connection::tests::{listener, listener_config as config};

    fn loaded(total: Option<u64>) -> Loaded {
        let mut config = ProxyConfig::parse("static_resources: {}").unwrap();
        config.max_connections.total = total;
        Loaded {
            config: Arc::new(config),
            json: serde_json::Value::Null,
            last_updated: SystemTime::now(),
        }
    }

    fn state() -> State {
        let client = Client::builder().build().unwrap();
        State::new(client, 2, loaded(None), 0)
    }

    fn running(name: &str, port: u16, origin: Origin) -> RunningListener {
        let config = config(name, port);
        let configured = config.address;
        RunningListener {
            name: name.to_owned(),
            configured,
            address: configured,
            listener: listener(config, 1),
            origin,
        }
    }

    fn names(listeners: &[RunningListener]) -> Vec<&str> {
        listeners.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn a_free_port_is_kept_by_the_listener_of_the_same_name() {
        let fixed = running("a", 80, Origin::File);
        assert!(fixed.has_address_of(&config("a", 80)));
        assert!(fixed.has_address_of(&config("b", 80)));
        assert!(!fixed.has_address_of(&config("a", 81)));
        assert!(!fixed.has_address_of(&config("a", 0)));
        let free = running("a", 0, Origin::File);
        assert!(free.has_address_of(&config("a", 0)));
        assert!(!free.has_address_of(&config("b", 0)));
    }

    #[tokio::test]
    async fn listeners_are_replaced_by_name_and_removed_by_identity() {
        let state = state();
        let [a, b] = [("a", 1), ("b", 2)].map(|(name, port)| running(name, port, Origin::File));
        assert!(state.add_listener(a.clone()).is_none());
        assert!(state.add_listener(b.clone()).is_none());
        assert_eq!(names(&state.listeners()), ["a", "b"]);
        // The same listener with another configuration replaces none.
        assert!(state.add_listener(a.clone()).is_none());
        let moved = running("a", 3, Origin::File);
        let replaced = state.add_listener(moved.clone()).unwrap();
        assert!(Arc::ptr_eq(&replaced.listener, &a.listener));
        assert!(!state.is_active(&a.listener));
        assert!(state.is_active(&moved.listener) && state.is_active(&b.listener));
        state.remove_listener(&a.listener);
        assert_eq!(names(&state.listeners()), ["a", "b"]);
        state.remove_listener(&moved.listener);
        assert_eq!(names(&state.listeners()), ["b"]);
        state.add_listener(running("c", 4, Origin::Lds));
        let removed = state.retain_listeners(|one| one.origin == Origin::Lds);
        assert_eq!(names(&removed), ["b"]);
        assert_eq!(names(&state.listeners()), ["c"]);
    }

    #[tokio::test]
    async fn the_limit_of_connections_follows_the_configuration() {
        let state = state();
        let acquire = || state.connection_limit.acquire([127, 0, 0, 1].into());
        let _kept = acquire().unwrap();
        state.replace_config(loaded(Some(1)));
        assert!(acquire().is_err());
        state.replace_config(loaded(None));
        assert!(acquire().is_ok());
    }

    #[tokio::test]
    async fn phases_follow_each_other_as_in_envoy() {
        let state = state();
        let awaiting = |type_url| vec![Awaited::new(type_url, "x")];
        assert_eq!(state.phase(), Phase::Initializing);
        state.set_awaited(awaiting(LISTENER));
        assert_eq!(state.phase().as_str(), "INITIALIZING");
        state.set_awaited(awaiting(CLUSTER));
        assert_eq!(state.phase().as_str(), "PRE_INITIALIZING");
        assert_eq!(state.awaited(), awaiting(CLUSTER));
        state.set_live();
        assert_eq!(state.phase().as_str(), "LIVE");
        assert!(state.awaited().is_empty());
        state.stopping.cancel();
        assert_eq!(state.phase().as_str(), "DRAINING");
    }

    #[tokio::test]
    async fn workers_have_different_seeds() {
        let state = state();
        assert_eq!(state.seed(0), state.seed(0));
        assert_ne!(state.seed(0), state.seed(1));
        let before = state.route_epoch.load(Ordering::Relaxed);
        state.advance_route_epoch();
        assert_eq!(state.route_epoch.load(Ordering::Relaxed), before + 1);
    }
}
