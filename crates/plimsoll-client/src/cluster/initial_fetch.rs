//! [`InitialFetch`]: how long requests wait for discovery, and what serves them afterwards.
//!
//! The time starts when a cluster is added or a target is subscribed to, not with each request:
//! once it has passed, requests fail or use the fallback cluster at once until resources arrive.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use plimsoll_core::log_line;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cluster::lifecycle::Lifecycle;
use crate::log_lines;

/// Default of `initial_fetch_timeout`, as in Envoy.
pub(crate) const INITIAL_FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Settings and state that all clusters and targets of a client share.
#[derive(Debug)]
pub(crate) struct InitialFetch {
    /// How long requests wait; `None` is unlimited.
    pub(crate) timeout: Option<Duration>,
    fallback_name: Option<Arc<str>>,
    /// The fallback cluster, while it exists. Clusters own this struct, not the reverse.
    fallback: Mutex<Weak<Cluster>>,
    /// Name and state of the management server; unset without one.
    server: ArcSwapOption<String>,
    /// Notified when clusters, endpoints, routes or the state of the server change.
    pub(crate) changed: Notify,
    /// Clusters and listeners whose requests were sent to the fallback cluster.
    on_fallback: Mutex<BTreeSet<String>>,
    pub(crate) lifecycle: Lifecycle,
}

impl InitialFetch {
    /// A timeout of zero is unlimited, as in Envoy.
    pub(crate) fn new(timeout: Duration, fallback_name: Option<Arc<str>>) -> Self {
        Self {
            timeout: (!timeout.is_zero()).then_some(timeout),
            fallback_name,
            fallback: Mutex::default(),
            server: ArcSwapOption::empty(),
            changed: Notify::new(),
            on_fallback: Mutex::default(),
            lifecycle: Lifecycle::default(),
        }
    }

    /// End of a wait that starts now; `None` is never.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline_of(Instant::now())
    }

    /// End of a wait that started at `since`; `None` is never.
    pub(crate) fn deadline_of(&self, since: Instant) -> Option<Instant> {
        since.checked_add(self.timeout?)
    }

    /// Lets requests and waits fail from now on.
    pub(crate) fn handle_end_of_runtime(&self) {
        self.lifecycle.end_runtime();
        self.changed.notify_waiters();
    }

    /// Stores the fallback cluster if it is the one with the configured name.
    pub(crate) fn handle_cluster(&self, cluster: &Arc<Cluster>) {
        if self.fallback_name.as_ref() == Some(&cluster.name) {
            *lock(&self.fallback) = Arc::downgrade(cluster);
        }
    }

    pub(crate) fn handle_removed(&self, name: &str) {
        if self.fallback_name.as_deref() == Some(name) {
            *lock(&self.fallback) = Weak::new();
        }
    }

    /// Returns the cluster that serves requests of `waiting`, for which nothing arrived in time.
    pub(crate) fn fall_back(&self, waiting: &str) -> Option<Arc<Cluster>> {
        let fallback = lock(&self.fallback).upgrade()?;
        let mut on_fallback = lock(&self.on_fallback);
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
        if lock(&self.on_fallback).remove(waiting) {
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use plimsoll_testing::CapturedLogs;

    #[tokio::test(start_paused = true)]
    async fn waits_end_with_their_timeout() {
        let limited = InitialFetch::new(Duration::from_secs(3), None);
        assert_eq!(limited.missing("routes"), "no routes within 3s");
        let deadline = limited.deadline();
        assert_eq!(deadline, Some(Instant::now() + Duration::from_secs(3)));
        assert_eq!(until(deadline, std::future::ready(7)).await, Some(7));
        let never = std::future::pending::<()>;
        assert_eq!(until(deadline, never()).await, None);
        assert_eq!(Some(Instant::now()), deadline);
        let unlimited = InitialFetch::new(Duration::ZERO, None);
        assert_eq!(unlimited.missing("routes"), "no routes yet");
        assert_eq!(unlimited.deadline(), None);
        assert_eq!(until(None, std::future::ready(7)).await, Some(7));
        assert!(until(None, never()).now_or_never().is_none());
        let default = InitialFetch::default();
        assert_eq!(default.missing("endpoints"), "no endpoints within 15s");
    }

    #[cfg(feature = "xds")]
    #[tokio::test]
    async fn changes_of_the_server_wake_what_waits() {
        let fetch = InitialFetch::default();
        assert_eq!(fetch.server(), None);
        let none = "no management server: see ClientBuilder::xds";
        assert_eq!(fetch.server_state(), none);
        let changed = fetch.changed.notified();
        fetch.set_server_state("http://xds (connecting)".to_owned());
        assert!(changed.now_or_never().is_some());
        let state = "management server http://xds (connecting)";
        assert_eq!(fetch.server_state(), state);
        assert_eq!(fetch.server().as_deref(), Some(state));
        let changed = fetch.changed.notified();
        fetch.handle_arrival("cluster orders");
        assert!(changed.now_or_never().is_some());
    }

    /// One line when the fallback cluster is first used for something, one when it no longer is.
    #[tokio::test]
    async fn the_use_of_the_fallback_cluster_is_logged_once() {
        let spare = crate::Cluster::new("spare").endpoints(["127.0.0.1:1"]);
        let client = crate::Client::builder().cluster(spare).build();
        let spare = client.unwrap().find("spare").unwrap();
        let fetch = InitialFetch::new(Duration::from_secs(1), Some("spare".into()));
        assert!(fetch.fall_back("cluster orders").is_none());
        let other = InitialFetch::new(Duration::from_secs(1), Some("other".into()));
        other.handle_cluster(&spare);
        assert!(other.fall_back("cluster orders").is_none());
        fetch.handle_cluster(&spare);
        fetch.handle_removed("other");
        let lines = CapturedLogs::default();
        tracing::subscriber::with_default(lines.clone(), || {
            for _ in 0..2 {
                let fallback = fetch.fall_back("cluster orders").unwrap();
                assert!(Arc::ptr_eq(&fallback, &spare));
            }
            fetch.handle_arrival("cluster users");
            fetch.handle_arrival("cluster orders");
            fetch.handle_arrival("cluster orders");
            assert!(fetch.fall_back("cluster orders").is_some());
        });
        let lines = lines.0.lock().unwrap();
        let [used, left, again] = &lines[..] else {
            panic!("{lines:?}");
        };
        let words = "waiting=\"cluster orders\" fallback=spare reason=";
        assert!(used.1.contains(words), "{used:?}");
        assert!(left.1.contains("waiting=\"cluster orders\""), "{left:?}");
        assert_eq!(used, again);
        fetch.handle_removed("spare");
        assert!(fetch.fall_back("cluster orders").is_none());
    }
}
