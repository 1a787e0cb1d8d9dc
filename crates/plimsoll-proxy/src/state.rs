//! [`State`]: state that the main task, the workers and the admin interface share.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use plimsoll_client::Client;
use plimsoll_serve::{CancellationToken, Reloads};

use crate::accept::ConnectionLimit;
use crate::access_log::Sinks;
use crate::listener::Listener;
use crate::source::Loaded;

/// Shared state of a running proxy. Only the task of `run` modifies it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) client: Client,
    pub(crate) workers: usize,
    pub(crate) sinks: Sinks,
    pub(crate) reloads: Reloads,
    pub(crate) started: Instant,
    loaded: ArcSwap<Loaded>,
    listeners: Mutex<Vec<RunningListener>>,
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    pub(crate) route_epoch: Arc<AtomicU64>,
    /// Canceled to stop the proxy, which then drains.
    pub(crate) stopping: CancellationToken,
    live: AtomicBool,
    seeds: RandomState,
}

#[derive(Clone, Debug)]
pub(crate) struct RunningListener {
    pub(crate) name: String,
    /// Address of the listener in the file; its port may be 0.
    pub(crate) configured: SocketAddr,
    pub(crate) address: SocketAddr,
    pub(crate) listener: Arc<Listener>,
}

/// Lifecycle of the process, as in Envoy's `ServerInfo.State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Initializing,
    Live,
    Draining,
}

impl Phase {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "INITIALIZING",
            Self::Live => "LIVE",
            Self::Draining => "DRAINING",
        }
    }
}

impl State {
    pub(crate) fn new(client: Client, workers: usize, loaded: Loaded) -> Self {
        let state = Self {
            client,
            workers,
            sinks: Sinks::default(),
            reloads: Reloads::default(),
            started: Instant::now(),
            loaded: ArcSwap::from_pointee(loaded),
            listeners: Mutex::default(),
            connection_limit: Arc::default(),
            route_epoch: Arc::default(),
            stopping: CancellationToken::new(),
            live: AtomicBool::new(false),
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
        let limit = self.loaded().config.max_connections.unwrap_or(u64::MAX);
        self.connection_limit.max.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn listeners(&self) -> Vec<RunningListener> {
        self.lock_listeners().clone()
    }

    /// Replaces the set of listeners; returns those that were removed.
    pub(crate) fn replace_listeners(
        &self,
        listeners: Vec<RunningListener>,
    ) -> Vec<RunningListener> {
        let mut current = self.lock_listeners();
        let mut removed = std::mem::replace(&mut *current, listeners);
        removed.retain(|one| {
            !current
                .iter()
                .any(|new| Arc::ptr_eq(&new.listener, &one.listener))
        });
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
        } else if self.live.load(Ordering::Relaxed) {
            Phase::Live
        } else {
            Phase::Initializing
        }
    }

    pub(crate) fn set_live(&self) {
        self.live.store(true, Ordering::Relaxed);
    }
}
