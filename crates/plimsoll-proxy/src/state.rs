//! [`State`]: what the admin pages look at and `run` changes.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use plimsoll_client::Client;

use crate::accept::Limits;
use crate::access_log::Sinks;
use crate::config::ProxyConfig;
use crate::listener::Listener;
use crate::source::Loaded;

/// What the admin pages look at.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) client: Client,
    pub(crate) workers: usize,
    pub(crate) sinks: Sinks,
    pub(crate) reloads: Reloads,
    pub(crate) started: Instant,
    loaded: ArcSwap<Loaded>,
    running: Mutex<Vec<Running>>,
    limits: Arc<Limits>,
    route_epoch: Arc<AtomicU64>,
    phase: AtomicU8,
    seeds: RandomState,
}

/// A listener with open sockets.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    /// As the file says, perhaps with port 0.
    pub(crate) configured: SocketAddr,
    pub(crate) address: SocketAddr,
    pub(crate) listener: Arc<Listener>,
}

/// Where in its life the proxy is, in Envoy's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not listening yet.
    Initializing,
    /// Serving.
    Live,
    /// Ending.
    Draining,
}

impl Phase {
    /// As Envoy says it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Initializing => "INITIALIZING",
            Self::Live => "LIVE",
            Self::Draining => "DRAINING",
        }
    }
}

impl State {
    pub(crate) fn new(client: Client, workers: usize, loaded: Loaded<ProxyConfig>) -> Self {
        let state = Self {
            client,
            workers,
            sinks: Sinks::default(),
            reloads: Reloads::default(),
            started: Instant::now(),
            loaded: ArcSwap::from_pointee(shared(loaded)),
            running: Mutex::default(),
            limits: Arc::default(),
            route_epoch: Arc::default(),
            phase: AtomicU8::new(0),
            seeds: RandomState::new(),
        };
        state.limit();
        state
    }

    /// The configuration in force.
    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// Another configuration.
    pub(crate) fn load(&self, loaded: Loaded<ProxyConfig>) {
        self.loaded.store(Arc::new(shared(loaded)));
        self.limit();
    }

    fn limit(&self) {
        let limit = self.loaded().config.max_connections.unwrap_or(u64::MAX);
        self.limits.max_connections.store(limit, Ordering::Relaxed);
    }

    /// Listeners with open sockets.
    pub(crate) fn running(&self) -> Vec<Running> {
        self.lock_running().clone()
    }

    /// Other listeners; those that were there and are not any more.
    pub(crate) fn replace_running(&self, running: Vec<Running>) -> Vec<Running> {
        let mut current = self.lock_running();
        let mut gone = std::mem::replace(&mut *current, running);
        gone.retain(|one| {
            !current
                .iter()
                .any(|new| Arc::ptr_eq(&new.listener, &one.listener))
        });
        gone
    }

    fn lock_running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits)
    }

    pub(crate) fn route_epoch(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.route_epoch)
    }

    /// Other routes are in force: services of the old ones can go.
    pub(crate) fn new_route_epoch(&self) {
        self.route_epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Where the draws of a worker start.
    pub(crate) fn seed(&self, worker: usize) -> u64 {
        self.seeds.hash_one(worker)
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Initializing,
            1 => Phase::Live,
            _ => Phase::Draining,
        }
    }

    pub(crate) fn live(&self) {
        self.phase.store(1, Ordering::Relaxed);
    }

    pub(crate) fn draining(&self) {
        self.phase.store(2, Ordering::Relaxed);
    }
}

fn shared(loaded: Loaded<ProxyConfig>) -> Loaded {
    Loaded {
        config: Arc::new(loaded.config),
        json: loaded.json,
        last_updated: loaded.last_updated,
    }
}

/// What became of the last edits.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Reloads {
    pub(crate) fn succeeded(&self) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        *self.lock() = None;
    }

    pub(crate) fn failed(&self, error: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *self.lock() = Some(error);
    }

    /// Edits in force, edits refused, and why the newest was.
    pub(crate) fn counts(&self) -> (u64, u64, Option<String>) {
        let counts = (&self.succeeded, &self.failed);
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(counts.0), load(counts.1), self.lock().clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
