//! [`Acceptor`]: accepts connections within limits, and waits when the operating system has no
//! descriptors left instead of trying in a loop. `incoming` adds TLS; the admin server and the
//! control plane serve what both accept.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::log_line;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::handshake::{FailedHandshake, HandshakeFailure};
use crate::log_lines;

/// Pause after an error of `accept`. Out of descriptors, the next attempt would fail as well.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Shortest time between two log lines about connections that are refused or cannot be accepted.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Limits of open connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub connections: usize,
    /// Connections of one peer: an IPv4 address or an IPv6 network of 64 bits. Loopback has no such
    /// limit, because all clients of a local proxy come from there.
    pub per_peer: usize,
}

/// Counters of a listener.
#[derive(Debug, Default)]
pub struct ConnectionStats {
    open: AtomicU64,
    accept_errors: AtomicU64,
    over_limit: AtomicU64,
    over_peer_limit: AtomicU64,
    handshake_timeouts: AtomicU64,
    /// One for each cause, in the order of [`HandshakeFailure::index`].
    handshake_failures: [AtomicU64; HandshakeFailure::ALL.len()],
    last_failed_handshake: watch::Sender<Option<FailedHandshake>>,
    handshake_timeout_log: Mutex<LogLimit>,
}

impl ConnectionStats {
    /// Returns the number of open connections.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns how often the operating system refused to accept a connection.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Returns the connections that were closed before they were served, by reason.
    pub fn refused(&self) -> [(&'static str, u64); 4] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("limit", count(&self.over_limit)),
            ("peer_limit", count(&self.over_peer_limit)),
            ("handshake_timeout", count(&self.handshake_timeouts)),
            (
                "handshake_failed",
                self.handshake_failures.iter().map(count).sum(),
            ),
        ]
    }

    /// Counts and logs a connection that was closed because its first request took too long.
    pub fn record_handshake_timeout(&self, listener: &'static str, peer: SocketAddr) {
        self.handshake_timeouts.fetch_add(1, Ordering::Relaxed);
        let log = self.handshake_timeout_log.lock();
        let mut log = log.unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = log.allow(Instant::now()) {
            log_line!(log_lines::HANDSHAKE_TIMEOUT, listener, %peer, suppressed);
        }
    }

    pub(crate) fn record_over_limit(&self) {
        self.over_limit.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the TLS handshakes that failed, by reason.
    pub fn failed_handshakes(&self) -> impl Iterator<Item = (HandshakeFailure, u64)> {
        let count = |failure: HandshakeFailure| {
            let counter = &self.handshake_failures[failure.index()];
            (failure, counter.load(Ordering::Relaxed))
        };
        HandshakeFailure::ALL.into_iter().map(count)
    }

    /// Returns the latest TLS handshake that failed, and those that follow. One that comes sooner
    /// than the reader looks replaces the one before.
    pub fn watch_failed_handshakes(&self) -> watch::Receiver<Option<FailedHandshake>> {
        self.last_failed_handshake.subscribe()
    }

    pub(crate) fn record_handshake_failure(&self, failed: FailedHandshake) {
        self.handshake_failures[failed.failure.index()].fetch_add(1, Ordering::Relaxed);
        self.last_failed_handshake.send_replace(Some(failed));
    }
}

/// Accepts the connections of one listener.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    /// Name of the listener in log lines.
    name: &'static str,
    limits: ConnectionLimits,
    stats: Arc<ConnectionStats>,
    peers: Arc<Peers>,
    retry: AcceptRetry,
    refusal_log: LogLimit,
}

/// Pauses and log lines after errors of `accept`, of one listener.
#[derive(Debug)]
pub struct AcceptRetry {
    /// Name of the listener in log lines.
    listener: String,
    /// Set after an error. A field, so that a canceled `wait` does not shorten the pause.
    retry_at: Option<Instant>,
    log: LogLimit,
}

impl AcceptRetry {
    /// Creates the state of a listener without errors.
    pub fn new(listener: impl Into<String>) -> Self {
        Self {
            listener: listener.into(),
            retry_at: None,
            log: LogLimit::default(),
        }
    }

    /// Waits for the end of the pause after the last error. Cancel safe.
    pub async fn wait(&mut self) {
        if let Some(retry_at) = self.retry_at {
            tokio::time::sleep_until(retry_at).await;
            self.retry_at = None;
        }
    }

    /// Begins a pause, and logs the error unless another one was logged within a second.
    pub fn failed(&mut self, error: &io::Error) {
        let now = Instant::now();
        self.retry_at = Some(now + ACCEPT_RETRY);
        if let Some(suppressed) = self.log.allow(now) {
            let listener = &self.listener;
            log_line!(log_lines::ACCEPT_FAILED, listener, %error, suppressed);
        }
    }
}

/// Open connections by peer.
type Peers = Mutex<HashMap<IpAddr, usize>>;

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    peer: IpAddr,
    peers: Arc<Peers>,
    stats: Arc<ConnectionStats>,
}

impl Acceptor {
    pub(crate) fn new(
        listener: TcpListener,
        name: &'static str,
        limits: ConnectionLimits,
        stats: Arc<ConnectionStats>,
    ) -> Self {
        Self {
            listener,
            name,
            limits,
            stats,
            peers: Arc::default(),
            retry: AcceptRetry::new(name),
            refusal_log: LogLimit::default(),
        }
    }

    /// Returns the next connection within the limits. Cancel safe.
    pub(crate) async fn accept(&mut self) -> (TcpStream, SocketAddr, ConnectionPermit) {
        loop {
            self.retry.wait().await;
            match self.listener.accept().await {
                Ok((stream, peer)) => match self.permit(peer.ip()) {
                    Ok(permit) => return (stream, peer, permit),
                    Err(reason) => self.log_refusal(peer, reason),
                },
                Err(error) => {
                    self.stats.accept_errors.fetch_add(1, Ordering::Relaxed);
                    self.retry.failed(&error);
                }
            }
        }
    }

    fn log_refusal(&mut self, peer: SocketAddr, reason: &'static str) {
        if let Some(suppressed) = self.refusal_log.allow(Instant::now()) {
            let listener = self.name;
            log_line!(log_lines::CONNECTION_REFUSED, listener, %peer, reason, suppressed);
        }
    }

    /// Counts a connection, or returns the limit that it would exceed.
    fn permit(&self, address: IpAddr) -> Result<ConnectionPermit, &'static str> {
        let peer = peer_of(address);
        let mut peers = lock(&self.peers);
        let open = peers.get(&peer).copied().unwrap_or_default();
        if self.stats.open() >= self.limits.connections as u64 {
            self.stats.over_limit.fetch_add(1, Ordering::Relaxed);
            return Err("limit of connections");
        }
        if open >= self.limits.per_peer && !peer.is_loopback() {
            self.stats.over_peer_limit.fetch_add(1, Ordering::Relaxed);
            return Err("limit of connections per peer");
        }
        peers.insert(peer, open + 1);
        self.stats.open.fetch_add(1, Ordering::Relaxed);
        Ok(ConnectionPermit {
            peer,
            peers: Arc::clone(&self.peers),
            stats: Arc::clone(&self.stats),
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.stats.open.fetch_sub(1, Ordering::Relaxed);
        let mut peers = lock(&self.peers);
        if let Some(open) = peers.get_mut(&self.peer) {
            *open -= 1;
            if *open == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

fn lock(peers: &Peers) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the address that connections are counted by. A host often has a whole IPv6 network of
/// 64 bits to choose its addresses from.
pub fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// Limits log lines that a peer can cause, by default to one a second.
#[derive(Debug)]
pub struct LogLimit {
    /// Lines in an interval.
    burst: u32,
    written: u32,
    next: Option<Instant>,
    suppressed: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::with_burst(1)
    }
}

impl LogLimit {
    /// Allows `burst` lines a second.
    pub const fn with_burst(burst: u32) -> Self {
        Self {
            burst,
            written: 0,
            next: None,
            suppressed: 0,
        }
    }

    /// Returns how many lines were suppressed since the last one if another may be written now.
    pub fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + LOG_INTERVAL);
            self.written = 0;
        }
        if self.written >= self.burst {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn acceptor(connections: usize, per_peer: usize) -> Acceptor {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let limits = ConnectionLimits {
            connections,
            per_peer,
        };
        Acceptor::new(listener, "test", limits, Arc::default())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn refused(acceptor: &Acceptor, reason: &str) -> u64 {
        let refused = acceptor.stats.refused();
        refused.iter().find(|(name, _)| *name == reason).unwrap().1
    }

    #[tokio::test]
    async fn connections_are_limited_in_all_and_per_peer() {
        let acceptor = acceptor(3, 2).await;
        let first = acceptor.permit(ip("10.0.0.1")).unwrap();
        let _second = acceptor.permit(ip("10.0.0.1")).unwrap();
        assert!(acceptor.permit(ip("10.0.0.1")).is_err());
        assert_eq!(refused(&acceptor, "peer_limit"), 1);
        let third = acceptor.permit(ip("10.0.0.2")).unwrap();
        assert_eq!(acceptor.stats.open(), 3);
        assert!(acceptor.permit(ip("10.0.0.3")).is_err());
        assert_eq!(refused(&acceptor, "limit"), 1);
        assert_eq!(refused(&acceptor, "peer_limit"), 1);
        drop(third);
        drop(first);
        assert!(acceptor.permit(ip("10.0.0.1")).is_ok());
        // Nothing is remembered of peers without connections.
        assert_eq!(lock(&acceptor.peers).len(), 1);
        assert_eq!(acceptor.stats.open(), 1);
    }

    #[tokio::test]
    async fn loopback_has_the_limit_of_all_connections_only() {
        let acceptor = acceptor(3, 1).await;
        let local: Vec<_> = ["127.0.0.1", "127.0.0.1", "::ffff:127.0.0.1"]
            .map(|address| acceptor.permit(ip(address)).unwrap())
            .into();
        assert!(acceptor.permit(ip("127.0.0.1")).is_err());
        drop(local);
        assert!(lock(&acceptor.peers).is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        assert_eq!(
            peer_of(ip("2001:db8:1:2:3:4:5:6")),
            peer_of(ip("2001:db8:1:2::1"))
        );
        assert_ne!(
            peer_of(ip("2001:db8:1:2::1")),
            peer_of(ip("2001:db8:1:3::1"))
        );
        assert_eq!(peer_of(ip("::1")), ip("::1"));
        assert_eq!(peer_of(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_pauses_the_next_attempt_even_if_it_is_canceled() {
        let mut acceptor = acceptor(1, 1).await;
        acceptor
            .retry
            .failed(&io::Error::other("too many open files"));
        let paused_at = Instant::now();
        for _ in 0..4 {
            let canceled = Duration::from_millis(10);
            let accepted = tokio::time::timeout(canceled, acceptor.accept()).await;
            assert!(accepted.is_err());
        }
        // The next attempt begins at the end of the pause and not later.
        assert_eq!(acceptor.retry.retry_at, Some(paused_at + ACCEPT_RETRY));
        let address = acceptor.listener.local_addr().unwrap();
        let connecting = tokio::spawn(TcpStream::connect(address));
        let (_stream, peer, _permit) = acceptor.accept().await;
        assert!(peer.ip().is_loopback());
        assert_eq!(acceptor.retry.retry_at, None);
        connecting.await.unwrap().unwrap();
    }

    #[test]
    fn log_lines_are_limited_to_one_a_second() {
        let mut limit = LogLimit::default();
        let start = Instant::now();
        assert_eq!(limit.allow(start), Some(0));
        assert_eq!(limit.allow(start), None);
        assert_eq!(limit.allow(start + LOG_INTERVAL / 2), None);
        assert_eq!(limit.allow(start + LOG_INTERVAL), Some(2));
        assert_eq!(limit.allow(start + LOG_INTERVAL * 3), Some(0));
        let mut limit = LogLimit::with_burst(2);
        assert_eq!(limit.allow(start), Some(0));
        assert_eq!(limit.allow(start), Some(0));
        assert_eq!(limit.allow(start), None);
        assert_eq!(limit.allow(start + LOG_INTERVAL), Some(1));
    }
}
