//! [`Connection`]: what is known of one connection, as long as its socket is open; and [`Limits`],
//! what all connections of a cluster share.
//!
//! Dialling lives in `connect`, keeping and lending connections in `endpoint`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crossbeam_queue::SegQueue;
use plimsoll_core::host::Host;
use plimsoll_core::time::Instant;
use plimsoll_xds::upstream::{CircuitBreakers, UpstreamOptions};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::body::Account;
use crate::stats::ClusterStats;

/// What all connections of a cluster share.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    connections: AtomicU64,
    pending: AtomicU64,
    /// Somebody may dial now.
    pub(crate) freed: Notify,
    pub(crate) stats: Arc<ClusterStats>,
    /// Errors in a row that make a host suspect; 0 is never.
    suspect_after: AtomicU32,
    suspects: SegQueue<SocketAddr>,
    suspicion: Arc<Notify>,
}

/// One connection of a cluster, from before it is dialled until it is closed.
#[derive(Debug)]
pub(crate) struct Slot {
    limits: Arc<Limits>,
    host: Arc<AtomicU32>,
}

/// One request that waits for a connection.
#[derive(Debug)]
pub(crate) struct Pending<'a>(&'a Limits);

impl Limits {
    /// No connections yet. `suspicion` is notified when there is a suspect.
    pub(crate) fn new(suspicion: Arc<Notify>) -> Self {
        Self {
            suspicion,
            ..Self::default()
        }
    }

    /// So many errors in a row make a host suspect.
    pub(crate) fn suspect_after(&self, errors: Option<u32>) {
        self.suspect_after
            .store(errors.unwrap_or(0), Ordering::Relaxed);
    }

    /// A request to `host` ended with an error.
    pub(crate) fn handle_error(&self, host: &Host) {
        let limit = self.suspect_after.load(Ordering::Relaxed);
        if limit > 0 && host.consecutive_errors() >= limit {
            self.suspects.push(host.address());
            self.suspicion.notify_one();
        }
    }

    /// A host with too many errors in a row.
    pub(crate) fn next_suspect(&self) -> Option<SocketAddr> {
        self.suspects.pop()
    }

    /// The right to open one more connection to a host that has `host` of them. Every host may have
    /// one, whatever the breaker says (as in Envoy: else a cluster with many hosts could not use
    /// the last of them).
    pub(crate) fn connect(
        self: &Arc<Self>,
        host: &Arc<AtomicU32>,
        breakers: &CircuitBreakers,
    ) -> Option<Slot> {
        let others = self.connections.fetch_add(1, Ordering::Relaxed);
        let own = host.fetch_add(1, Ordering::Relaxed);
        if own == 0 || others < u64::from(breakers.max_connections) {
            return Some(Slot {
                limits: Arc::clone(self),
                host: Arc::clone(host),
            });
        }
        // Taken back in silence: nothing became free that those who wait could use.
        host.fetch_sub(1, Ordering::Relaxed);
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.stats.upstream_cx_overflow.increment();
        None
    }

    /// One more request waits for a connection, if it may.
    pub(crate) fn wait(&self, breakers: &CircuitBreakers) -> Option<Pending<'_>> {
        let others = self.pending.fetch_add(1, Ordering::Relaxed);
        let pending = Pending(self);
        (others < u64::from(breakers.max_pending_requests)).then_some(pending)
    }

    /// Connections that are open or being dialled.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests that wait for a connection.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.host.fetch_sub(1, Ordering::Relaxed);
        self.limits.connections.fetch_sub(1, Ordering::Relaxed);
        if self.limits.pending() > 0 {
            self.limits.freed.notify_one();
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Server name that TLS was asked for, where requests decide it.
    pub(crate) server_name: Option<Arc<str>>,
    opened_at: Instant,
    /// Requests so far.
    requests: AtomicU32,
    /// Requests at the moment, of HTTP/2.
    streams: AtomicU32,
    /// When it was last given back, in nanoseconds.
    used_at: AtomicU64,
    /// The request that became a tunnel, until the socket is closed. Nobody waits for this lock:
    /// it is taken once by the request and once by the end of the socket.
    tunnel: Mutex<Option<Box<Account>>>,
    _slot: Slot,
}

impl Connection {
    pub(crate) fn new(server_name: Option<Arc<str>>, slot: Slot, now: Instant) -> Self {
        Self {
            server_name,
            opened_at: now,
            requests: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            used_at: AtomicU64::new(now.as_nanos()),
            tunnel: Mutex::new(None),
            _slot: slot,
        }
    }

    /// One more request goes onto it.
    pub(crate) fn begin_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has ended.
    pub(crate) fn end_request(&self, now: Instant) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
        self.used_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Requests on it now.
    pub(crate) fn streams(&self) -> u32 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Whether it must not get another request: it has had enough of them, or is too old, or was
    /// idle for too long.
    pub(crate) fn is_spent(&self, options: &UpstreamOptions, now: Instant) -> bool {
        let enough = options.max_requests_per_connection;
        let enough = enough.is_some_and(|max| self.requests.load(Ordering::Relaxed) >= max);
        let age = now.saturating_duration_since(self.opened_at);
        let used_at = Instant::from_nanos(self.used_at.load(Ordering::Relaxed));
        let idle = now.saturating_duration_since(used_at);
        enough
            || options
                .max_connection_duration
                .is_some_and(|max| age >= max)
            || (self.streams() == 0 && options.idle_timeout.is_some_and(|max| idle >= max))
    }

    /// The request behind `account` lasts as long as the socket.
    pub(crate) fn become_tunnel(&self, account: Box<Account>) {
        *self.lock() = Some(account);
    }

    fn end_tunnel(&self) {
        let account = self.lock().take();
        if let Some(account) = account {
            account.close();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<Account>>> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket whose end is noticed, wherever it went: hyper hands it over when a request upgrades.
#[derive(Debug)]
pub(crate) struct Socket<T> {
    inner: T,
    connection: Arc<Connection>,
}

impl<T> Socket<T> {
    pub(crate) const fn new(inner: T, connection: Arc<Connection>) -> Self {
        Self { inner, connection }
    }
}

impl<T> Drop for Socket<T> {
    fn drop(&mut self) {
        self.connection.end_tunnel();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Socket<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn connection(limits: &Arc<Limits>) -> Connection {
        let host = Arc::default();
        let slot = limits.connect(&host, &CircuitBreakers::default()).unwrap();
        Connection::new(None, slot, Instant::ORIGIN)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn every_host_may_have_one_connection() {
        let limits = Arc::new(Limits::default());
        let breakers = CircuitBreakers {
            max_connections: 1,
            ..Default::default()
        };
        let hosts: [Arc<AtomicU32>; 2] = [Arc::default(), Arc::default()];
        let one = limits.connect(&hosts[0], &breakers).unwrap();
        assert!(limits.connect(&hosts[0], &breakers).is_none());
        let two = limits.connect(&hosts[1], &breakers).unwrap();
        assert_eq!(limits.connections(), 2);
        drop((one, two));
        assert_eq!(limits.connections(), 0);
        assert_eq!(limits.stats.upstream_cx_overflow.get(), 1);
    }

    #[test]
    fn so_many_may_wait() {
        let limits = Limits::default();
        let breakers = CircuitBreakers {
            max_pending_requests: 1,
            ..Default::default()
        };
        let one = limits.wait(&breakers).unwrap();
        assert!(limits.wait(&breakers).is_none());
        drop(one);
        assert!(limits.wait(&breakers).is_some());
    }

    #[test]
    fn connections_are_spent_by_requests_age_and_idleness() {
        let limits = Arc::new(Limits::default());
        let mut options = UpstreamOptions {
            idle_timeout: Some(Duration::from_secs(10)),
            ..Default::default()
        };
        let connection = connection(&limits);
        assert!(!connection.is_spent(&options, at(9)));
        assert!(connection.is_spent(&options, at(10)));
        connection.begin_request();
        assert!(!connection.is_spent(&options, at(10)), "it is in use");
        connection.end_request(at(10));
        assert!(!connection.is_spent(&options, at(19)));
        options.max_connection_duration = Some(Duration::from_secs(15));
        assert!(connection.is_spent(&options, at(15)));
        options.max_connection_duration = None;
        options.max_requests_per_connection = Some(1);
        assert!(connection.is_spent(&options, at(11)));
    }
}
