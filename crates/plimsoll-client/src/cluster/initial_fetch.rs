//! [`InitialFetch`]: how long requests wait for discovery, and what serves them afterwards.
//!
//! The time starts when a cluster is added or a target is subscribed to, not with each request:
//! once it has passed, requests fail or use the fallback cluster at once until resources arrive.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use plimsoll_core::log_line;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::log_lines;

/// Default of `initial_fetch_timeout`, as in Envoy.
pub(crate) const INITIAL_FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Settings and state that all clusters and targets of a client share.
#[derive(Debug)]
pub(crate) struct InitialFetch {
    /// How long requests wait; `None` is unlimited.
    pub(crate) timeout: Option<Duration>,
    fallback_name: Option<Arc<str>>,
    /// The fallback cluster, while it exists.
    fallback: ArcSwapOption<Cluster>,
    /// Name and state of the management server; unset without one.
    server: ArcSwapOption<String>,
    /// Notified when clusters, endpoints, routes or the state of the server change.
    pub(crate) changed: Notify,
    /// Clusters and listeners whose requests were sent to the fallback cluster.
    on_fallback: Mutex<BTreeSet<String>>,
}

impl InitialFetch {
    /// A timeout of zero is unlimited, as in Envoy.
    pub(crate) fn new(timeout: Duration, fallback_name: Option<Arc<str>>) -> Self {
        Self {
            timeout: (!timeout.is_zero()).then_some(timeout),
            fallback_name,
            fallback: ArcSwapOption::empty(),
            server: ArcSwapOption::empty(),
            changed: Notify::new(),
            on_fallback: Mutex::default(),
        }
    }

    /// End of a wait that starts now; `None` is never.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.timeout?)
    }

    /// Stores the fallback cluster if it is the one with the configured name.
    pub(crate) fn handle_cluster(&self, cluster: &Arc<Cluster>) {
        if self.fallback_name.as_ref() == Some(&cluster.name) {
            self.fallback.store(Some(Arc::clone(cluster)));
        }
    }

    pub(crate) fn handle_removed(&self, name: &str) {
        if self.fallback_name.as_deref() == Some(name) {
            self.fallback.store(None);
        }
    }

    /// Returns the cluster that serves requests of `waiting`, for which nothing arrived in time.
    pub(crate) fn fall_back(&self, waiting: &str) -> Option<Arc<Cluster>> {
        let fallback = self.fallback.load_full()?;
        let mut on_fallback = self.lock();
        if !on_fallback.contains(waiting) {
            on_fallback.insert(waiting.to_owned());
            let cluster = &fallback.name;
            let reason = self.server_state();
            log_line!(log_lines::FALLBACK_CLUSTER_USED, waiting, fallback = %cluster, reason);
        }
        Some(fallback)
    }

    /// Ends the use of the fallback cluster, because what `waiting` needs has arrived.
    pub(crate) fn handle_arrival(&self, waiting: &str) {
        if self.lock().remove(waiting) {
            log_line!(log_lines::FALLBACK_CLUSTER_LEFT, waiting);
        }
        self.changed.notify_waiters();
    }

    #[cfg(feature = "xds")]
    pub(crate) fn set_server_state(&self, state: String) {
        self.server.store(Some(Arc::new(state)));
        self.changed.notify_waiters();
    }

    /// Describes the management server for an error: its address, and why it sends nothing.
    pub(crate) fn server_state(&self) -> String {
        let none = || "no management server: see ClientBuilder::xds".to_owned();
        self.server().unwrap_or_else(none)
    }

    /// Like [`Self::server_state`]; `None` without a management server.
    pub(crate) fn server(&self) -> Option<String> {
        let state = self.server.load();
        state
            .as_ref()
            .map(|state| format!("management server {state}"))
    }

    /// Text such as `no endpoints within 15s`.
    pub(crate) fn missing(&self, what: &str) -> String {
        match self.timeout {
            Some(timeout) => format!("no {what} within {timeout:?}"),
            None => format!("no {what} yet"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.on_fallback
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for InitialFetch {
    fn default() -> Self {
        Self::new(INITIAL_FETCH_TIMEOUT, None)
    }
}

/// Awaits `future` until `deadline`; `None` once that has passed.
pub(crate) async fn until<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
    }
}
