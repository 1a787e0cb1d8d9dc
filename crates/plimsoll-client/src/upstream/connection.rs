//! [`ConnectionState`], the bookkeeping of one connection, and [`ConnectionLimits`], the counters
//! and circuit breakers that all connections of a cluster share.
//!
//! `connect` dials; `endpoint` and `pool` store connections and hand them out.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwapOption;
use crossbeam_queue::SegQueue;
use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::host::Host;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::orca::EndpointLoadMetricsFormat;
use plimsoll_core::time::Instant;
use plimsoll_xds::upstream::{CircuitBreakers, UpstreamOptions};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::cluster::backlog::Backlog;
use crate::metrics::stats::ClusterStats;
use crate::request::body::RequestTracker;
use crate::upstream::dial_permits::DialPermits;
use crate::upstream::response_scan::ResponseScan;

static LOAD_METRICS_FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
const FORMATS: [EndpointLoadMetricsFormat; 3] = [
    EndpointLoadMetricsFormat::Text,
    EndpointLoadMetricsFormat::Json,
    EndpointLoadMetricsFormat::Bin,
];

/// Connection and pending-request counts of a cluster, checked against its circuit breakers.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimits {
    connections: AtomicU64,
    pending: AtomicU64,
    /// Notified when a connection closes while requests are pending.
    pub(crate) permit_released: Notify,
    pub(crate) stats: Arc<ClusterStats>,
    pub(crate) dialing: DialPermits,
    /// Calls that waited for discovery and are released as requests end.
    pub(crate) backlog: Backlog,
    /// Whether the management server has sent the cluster, for errors that name a setting.
    pub(crate) added_via_api: AtomicBool,
    /// Format in which requests ask for load reports: its place in [`FORMATS`], counted from 1; 0
    /// if they do not ask. Apart from `config`, because every request reads it.
    load_metrics_format: AtomicUsize,
    /// Settings to interpret load reports with. Unset for probes and out-of-band streams.
    pub(crate) config: ArcSwapOption<ClusterConfig>,
    /// Consecutive-error threshold of outlier detection; 0 disables it.
    consecutive_error_threshold: AtomicU32,
    outlier_candidates: SegQueue<SocketAddr>,
    outlier_notify: Arc<Notify>,
}

/// Permit for one connection, held from before it is dialed until it is closed.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    host: Arc<AtomicU32>,
}

#[derive(Debug)]
pub(crate) struct PendingPermit<'a>(&'a ConnectionLimits);

impl ConnectionLimits {
    pub(crate) fn new(outlier_notify: Arc<Notify>) -> Self {
        Self {
            outlier_notify,
            ..Self::default()
        }
    }

    pub(crate) fn set_config(&self, config: Arc<ClusterConfig>) {
        let format = config.endpoint_load_metrics_format();
        let index = FORMATS.iter().position(|known| Some(*known) == format);
        let place = index.map_or(0, |index| index + 1);
        self.load_metrics_format.store(place, Ordering::Relaxed);
        self.config.store(Some(config));
    }

    /// Asks the host for a load report, if the cluster says so and the request does not.
    #[inline]
    pub(crate) fn ask_for_load_report(&self, headers: &mut HeaderMap) {
        let place = self.load_metrics_format.load(Ordering::Relaxed);
        if let Some(format) = place.checked_sub(1).and_then(|index| FORMATS.get(index)) {
            let value = HeaderValue::from_static(format.header_value());
            headers.entry(&LOAD_METRICS_FORMAT).or_insert(value);
        }
    }

    pub(crate) fn consecutive_error_threshold(&self, errors: Option<u32>) {
        self.consecutive_error_threshold
            .store(errors.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn handle_error(&self, host: &Host) {
        let limit = self.consecutive_error_threshold.load(Ordering::Relaxed);
        if limit > 0 && host.consecutive_errors() >= limit {
            self.outlier_candidates.push(host.address());
            self.outlier_notify.notify_one();
        }
    }

    pub(crate) fn next_outlier_candidate(&self) -> Option<SocketAddr> {
        self.outlier_candidates.pop()
    }

    /// Acquires a permit for one more connection to a host that has `host` connections. Every host
    /// may have one connection whatever `max_connections` says, as in Envoy: otherwise a cluster
    /// with more than `max_connections` hosts could not use all of them.
    pub(crate) fn try_acquire_connection(
        self: &Arc<Self>,
        host: &Arc<AtomicU32>,
        breakers: &CircuitBreakers,
    ) -> Option<ConnectionPermit> {
        let others = self.connections.fetch_add(1, Ordering::Relaxed);
        let own = host.fetch_add(1, Ordering::Relaxed);
        if own == 0 || others < u64::from(breakers.max_connections) {
            return Some(ConnectionPermit {
                limits: Arc::clone(self),
                host: Arc::clone(host),
            });
        }
        // Undo without notifying waiters: no permit was released.
        host.fetch_sub(1, Ordering::Relaxed);
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.stats.upstream_cx_overflow.increment();
        None
    }

    /// Acquires a permit to wait for a connection, if `max_pending_requests` allows it.
    pub(crate) fn try_acquire_pending(
        &self,
        breakers: &CircuitBreakers,
    ) -> Option<PendingPermit<'_>> {
        let others = self.pending.fetch_add(1, Ordering::Relaxed);
        let pending = PendingPermit(self);
        (others < u64::from(breakers.max_pending_requests)).then_some(pending)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }
}

impl ConnectionPermit {
    /// Whether it is for the host with this number of connections.
    pub(crate) fn is_of_host(&self, host: &Arc<AtomicU32>) -> bool {
        Arc::ptr_eq(&self.host, host)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.host.fetch_sub(1, Ordering::Relaxed);
        self.limits.connections.fetch_sub(1, Ordering::Relaxed);
        if self.limits.pending() > 0 {
            self.limits.permit_released.notify_one();
        }
    }
}

impl Drop for PendingPermit<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
        self.0.backlog.notify();
    }
}

/// Bookkeeping of one connection, alive as long as its socket.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// TLS server name, where it follows the request (`auto_sni`).
    pub(crate) server_name: Option<Arc<str>>,
    opened_at: Instant,
    requests: AtomicU32,
    streams: AtomicU32,
    last_used_at: AtomicU64,
    /// The upgraded request, in flight until the socket closes. Locked only at its start and end.
    tunnel: Mutex<Option<Box<RequestTracker>>>,
    _permit: ConnectionPermit,
}

impl ConnectionState {
    pub(crate) fn new(
        server_name: Option<Arc<str>>,
        permit: ConnectionPermit,
        now: Instant,
    ) -> Self {
        Self {
            server_name,
            opened_at: now,
            requests: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            last_used_at: AtomicU64::new(now.as_nanos()),
            tunnel: Mutex::new(None),
            _permit: permit,
        }
    }

    pub(crate) fn begin_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the connection serves its first request.
    pub(crate) fn is_first_request(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 1
    }

    pub(crate) fn end_request(&self, now: Instant) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
        self.last_used_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn streams(&self) -> u32 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Whether the connection exceeded its maximum number of requests, age or idle time.
    pub(crate) fn is_expired(&self, options: &UpstreamOptions, now: Instant) -> bool {
        let exhausted = options
            .max_requests_per_connection
            .is_some_and(|max| self.requests.load(Ordering::Relaxed) >= max);
        let age = now.saturating_duration_since(self.opened_at);
        let last_used_at = Instant::from_nanos(self.last_used_at.load(Ordering::Relaxed));
        let idle = now.saturating_duration_since(last_used_at);
        exhausted
            || options
                .max_connection_duration
                .is_some_and(|max| age >= max)
            || (self.streams() == 0 && options.idle_timeout.is_some_and(|max| idle >= max))
    }

    /// Keeps the request of `tracker` in flight until the socket closes.
    pub(crate) fn become_tunnel(&self, tracker: Box<RequestTracker>) {
        *self.lock() = Some(tracker);
    }

    fn end_tunnel(&self) {
        let tracker = self.lock().take();
        if let Some(tracker) = tracker {
            tracker.close();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<RequestTracker>>> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Socket that ends the connection's tunnel when dropped, even after hyper gave it to an upgrade.
#[derive(Debug)]
pub(crate) struct Socket<T> {
    inner: T,
    connection: Arc<ConnectionState>,
    /// Only HTTP/1.1 has chunked bodies.
    responses: Option<Responses>,
}

/// Scan of the responses to the newest request of an HTTP/1.1 connection.
#[derive(Debug, Default)]
struct Responses {
    scan: ResponseScan,
    /// Number of the request.
    request: u32,
}

impl<T> Socket<T> {
    pub(crate) fn new(inner: T, connection: Arc<ConnectionState>, http2: bool) -> Self {
        Self {
            inner,
            connection,
            responses: (!http2).then(Responses::default),
        }
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
        let this = &mut *self;
        if let Some(responses) = &this.responses
            && responses.scan.is_malformed()
        {
            let reason = "trailers of a response have a bare LF";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        if let Some(responses) = &mut this.responses {
            let request = this.connection.requests.load(Ordering::Relaxed);
            if responses.request != request {
                *responses = Responses {
                    request,
                    ..Responses::default()
                };
            }
            responses.scan.scan(&mut buffer.filled_mut()[before..]);
        }
        Poll::Ready(Ok(()))
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

    use plimsoll_core::host::RequestOutcome;

    use super::*;

    fn connection(limits: &Arc<ConnectionLimits>) -> ConnectionState {
        let host = Arc::default();
        let permit = limits
            .try_acquire_connection(&host, &CircuitBreakers::default())
            .unwrap();
        ConnectionState::new(None, permit, Instant::ORIGIN)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn every_host_may_have_one_connection_beyond_max_connections() {
        let limits = Arc::new(ConnectionLimits::default());
        let breakers = CircuitBreakers {
            max_connections: 1,
            ..Default::default()
        };
        let hosts: [Arc<AtomicU32>; 2] = [Arc::default(), Arc::default()];
        let one = limits.try_acquire_connection(&hosts[0], &breakers).unwrap();
        assert!(
            limits
                .try_acquire_connection(&hosts[0], &breakers)
                .is_none()
        );
        let two = limits.try_acquire_connection(&hosts[1], &breakers).unwrap();
        assert_eq!(limits.connections(), 2);
        drop((one, two));
        assert_eq!(limits.connections(), 0);
        assert_eq!(limits.stats.upstream_cx_overflow.get(), 1);
    }

    #[test]
    fn max_pending_requests_bounds_waiting_requests() {
        let limits = ConnectionLimits::default();
        let breakers = CircuitBreakers {
            max_pending_requests: 1,
            ..Default::default()
        };
        let one = limits.try_acquire_pending(&breakers).unwrap();
        assert!(limits.try_acquire_pending(&breakers).is_none());
        drop(one);
        assert!(limits.try_acquire_pending(&breakers).is_some());
    }

    #[test]
    fn connections_expire_by_request_count_age_and_idle_time() {
        let limits = Arc::new(ConnectionLimits::default());
        let mut options = UpstreamOptions {
            idle_timeout: Some(Duration::from_secs(10)),
            ..Default::default()
        };
        let connection = connection(&limits);
        assert!(!connection.is_expired(&options, at(9)));
        assert!(connection.is_expired(&options, at(10)));
        connection.begin_request();
        assert!(!connection.is_expired(&options, at(10)), "it is in use");
        connection.end_request(at(10));
        assert!(!connection.is_expired(&options, at(19)));
        options.max_connection_duration = Some(Duration::from_secs(15));
        assert!(connection.is_expired(&options, at(15)));
        options.max_connection_duration = None;
        options.max_requests_per_connection = Some(1);
        assert!(connection.is_expired(&options, at(11)));
    }

    #[test]
    fn age_and_requests_expire_at_their_limit_and_not_before() {
        let limits = Arc::new(ConnectionLimits::default());
        let connection = connection(&limits);
        let aged = UpstreamOptions {
            idle_timeout: None,
            max_connection_duration: Some(Duration::from_secs(15)),
            ..Default::default()
        };
        assert!(!connection.is_expired(&aged, at(14)));
        connection.begin_request();
        assert!(
            connection.is_expired(&aged, at(15)),
            "even while it is used"
        );
        let exhausted = UpstreamOptions {
            idle_timeout: None,
            max_requests_per_connection: Some(2),
            ..Default::default()
        };
        assert!(!connection.is_expired(&exhausted, at(100)));
        connection.begin_request();
        assert_eq!(connection.streams(), 2);
        assert!(connection.is_expired(&exhausted, at(100)));
    }

    #[tokio::test]
    async fn hosts_are_outlier_candidates_from_the_threshold_on() {
        let orders = crate::Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let client = crate::Client::builder().cluster(orders).build();
        let cluster = client.unwrap().find("orders").unwrap();
        let mut picker = cluster.checkout_picker();
        let host = picker.snapshot().routing().hosts().next().cloned().unwrap();
        let notify = Arc::new(Notify::new());
        let limits = ConnectionLimits::new(Arc::clone(&notify));
        let fail = |threshold: Option<u32>| {
            limits.consecutive_error_threshold(threshold);
            host.begin_request().finish(RequestOutcome::Error);
            limits.handle_error(&host);
            let candidate = limits.next_outlier_candidate();
            let notified = futures_util::FutureExt::now_or_never(notify.notified());
            assert_eq!(notified.is_some(), candidate.is_some());
            candidate
        };
        assert_eq!(fail(Some(3)), None);
        assert_eq!(fail(Some(3)), None);
        assert_eq!(fail(Some(3)), Some(host.address()));
        assert_eq!(fail(Some(3)), Some(host.address()), "and further ones");
        assert_eq!(fail(None), None);
        assert_eq!(fail(Some(0)), None, "0 is off");
    }

    #[tokio::test]
    async fn a_released_permit_wakes_a_request_only_if_one_waits() {
        let limits = Arc::new(ConnectionLimits::default());
        let woken = async || {
            let released = limits.permit_released.notified();
            futures_util::FutureExt::now_or_never(released).is_some()
        };
        drop(connection(&limits));
        assert!(!woken().await);
        let pending = limits.try_acquire_pending(&CircuitBreakers::default());
        assert_eq!((pending.is_some(), limits.pending()), (true, 1));
        drop(connection(&limits));
        assert!(woken().await);
        drop(pending);
        assert_eq!(limits.pending(), 0);
    }

    #[tokio::test]
    async fn a_socket_passes_bytes_on() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let limits = Arc::new(ConnectionLimits::default());
        let (mut peer, inner) = tokio::io::duplex(100);
        let mut socket = Socket::new(inner, Arc::new(connection(&limits)), false);
        assert!(socket.is_write_vectored());
        socket.write_all(b"one ").await.unwrap();
        let slices = [io::IoSlice::new(b"two "), io::IoSlice::new(b"3")];
        assert_eq!(socket.write_vectored(&slices).await.unwrap(), 5);
        peer.write_all(b"back").await.unwrap();
        socket.shutdown().await.unwrap();
        let mut text = String::new();
        peer.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "one two 3");
        let mut back = [0; 4];
        socket.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"back");
    }
}
