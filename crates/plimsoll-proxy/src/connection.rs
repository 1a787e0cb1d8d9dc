//! [`Connection`]: state and timeouts of one downstream connection. Timeouts are checked on the
//! worker's tick, so that a request does not have to register timers. `listener` serves the
//! connection; its IO goes through `monitored_io`, which records reads and writes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use http::{HeaderValue, Version};
use tokio::sync::Notify;

use crate::config::{HttpOptions, OverloadAction};
use crate::connection_limit::ConnectionPermit;
use crate::listener::Listener;
use crate::message_scan::Scanned;
use crate::stats::HttpStats;
use crate::stream_timeouts::StreamTimeouts;
use crate::worker::{Worker, to_ticks};

pub(crate) struct Connection {
    pub(crate) worker: Arc<Worker>,
    pub(crate) listener: Arc<Listener>,
    /// Index of the filter chain.
    pub(crate) chain: usize,
    pub(crate) stats: Arc<HttpStats>,
    pub(crate) peer: SocketAddr,
    /// Address of the client without the port.
    pub(crate) peer_ip: HeaderValue,
    pub(crate) scheme: &'static str,
    /// Limits of the current HTTP/1.1 request. HTTP/2 streams have their own.
    pub(crate) stream: StreamTimeouts,
    /// `x-forwarded-client-cert` of a client that presented a certificate.
    client_cert: OnceLock<HeaderValue>,
    /// Port that the client connected to; set only if `Host` is compared with it.
    local_port: AtomicU16,
    created_at: u32,
    http2: AtomicBool,
    active_requests: AtomicU32,
    phase: AtomicU8,
    /// Tick of the last change of `phase`.
    phase_started: AtomicU32,
    /// Tick of the last read or write.
    last_activity: AtomicU32,
    drain_level: AtomicU8,
    /// Tick at which `start_drain` was called.
    drain_started: AtomicU32,
    /// Ticks that the connection stays open without a request after that.
    drain_grace: AtomicU32,
    /// Tick at which the level became [`DrainLevel::Drain`].
    drained_at: AtomicU32,
    /// Tick since which the socket accepts no more bytes; 0 if it does.
    write_blocked_at: AtomicU32,
    /// Whether bytes behind the current HTTP/1.1 request head have been read.
    has_read_ahead: AtomicBool,
    /// Whether to look for the end of the socket although hyper does not read.
    probe_requested: AtomicBool,
    /// Requests that were begun.
    requests: AtomicU32,
    /// Number of the first HTTP/1.1 request that `MessageScan` refuses.
    first_malformed: AtomicU32,
    is_tunnel: AtomicBool,
    /// Whether request headers did not arrive within `request_headers_timeout`.
    header_timed_out: AtomicBool,
    /// Wakes the task that serves the connection when `drain_level` changes.
    notify: Notify,
    _permit: ConnectionPermit,
}

/// Phase: no request is active, and no byte of the next one has arrived.
const IDLE: u8 = 0;
/// Phase: the headers of a request have arrived in part.
const HEADER: u8 = 1;
const BUSY: u8 = 2;

/// Time that an idle connection stays open after the start of a drain.
pub(crate) const DRAIN_GRACE: Duration = Duration::from_secs(1);
/// Ticks after which a drained connection without requests is closed: a client that does not read
/// the rest of its responses, or does not answer GOAWAY, must not keep it open.
const DRAIN_TIMEOUT: u32 = 300;
/// Ticks between two probes of a socket that hyper does not read.
const PROBE_INTERVAL: u32 = 10;

/// How far the graceful close of a connection has progressed. Levels only increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum DrainLevel {
    Serve = 0,
    /// Announce the close with the next response; without a request, drain after a grace period.
    /// Closing an idle connection at once would race with the client's next request.
    Announce = 1,
    /// Finish active requests, then close the connection.
    Drain = 2,
    Close = 3,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(
        worker: Arc<Worker>,
        listener: Arc<Listener>,
        chain: usize,
        peer: SocketAddr,
        permit: ConnectionPermit,
    ) -> Self {
        let runtime = listener.runtime();
        let secure = runtime.chain(chain).is_secure();
        let stats = Arc::clone(runtime.chain(chain).stats(worker.index));
        let ip = peer.ip().to_canonical().to_string();
        let now = worker.now();
        stats.downstream_cx_total.increment();
        stats.downstream_cx_active.increment();
        Self {
            worker,
            listener,
            chain,
            stats,
            peer,
            peer_ip: HeaderValue::try_from(ip).unwrap_or(HeaderValue::from_static("unknown")),
            scheme: if secure { "https" } else { "http" },
            stream: StreamTimeouts::default(),
            client_cert: OnceLock::new(),
            local_port: 0.into(),
            created_at: now,
            http2: false.into(),
            active_requests: 0.into(),
            phase: IDLE.into(),
            phase_started: now.into(),
            last_activity: now.into(),
            drain_level: AtomicU8::new(DrainLevel::Serve as u8),
            drain_started: now.into(),
            drain_grace: 0.into(),
            drained_at: now.into(),
            write_blocked_at: 0.into(),
            has_read_ahead: false.into(),
            probe_requested: false.into(),
            requests: 0.into(),
            first_malformed: u32::MAX.into(),
            is_tunnel: false.into(),
            header_timed_out: false.into(),
            notify: Notify::new(),
            _permit: permit,
        }
    }

    pub(crate) fn set_protocol(&self, http2: bool) {
        self.http2.store(http2, Ordering::Relaxed);
        if http2 {
            self.stats.downstream_cx_http2_total.increment();
        } else {
            self.stats.downstream_cx_http1_total.increment();
        }
    }

    pub(crate) fn set_client_cert(&self, description: HeaderValue) {
        // A connection has one handshake, so that the value is set only once.
        let _ = self.client_cert.set(description);
    }

    pub(crate) fn client_cert(&self) -> Option<&HeaderValue> {
        self.client_cert.get()
    }

    pub(crate) fn set_local_port(&self, port: u16) {
        self.local_port.store(port, Ordering::Relaxed);
    }

    pub(crate) fn local_port(&self) -> u16 {
        self.local_port.load(Ordering::Relaxed)
    }

    pub(crate) fn request_started(&self, version: Version) {
        self.stats.downstream_rq_total.increment();
        self.stats.downstream_rq_active.increment();
        match version {
            Version::HTTP_2 => self.stats.downstream_rq_http2_total.increment(),
            _ => self.stats.downstream_rq_http1_total.increment(),
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.active_requests.fetch_add(1, Ordering::Relaxed);
        self.phase.store(BUSY, Ordering::Relaxed);
    }

    pub(crate) fn request_finished(&self, status: u16) {
        self.stats.downstream_rq_active.decrement();
        match status {
            0 => self.stats.downstream_rq_rx_reset.increment(),
            status => self.stats.response(status),
        }
        if self.active_requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.phase_started
                .store(self.worker.now(), Ordering::Relaxed);
            self.phase.store(IDLE, Ordering::Relaxed);
        }
    }

    /// The current request became a tunnel, whose ends may close one after the other.
    pub(crate) fn became_tunnel(&self) {
        self.stream.became_tunnel();
        self.is_tunnel.store(true, Ordering::Relaxed);
        self.has_read_ahead.store(false, Ordering::Relaxed);
    }

    /// Records that bytes were read. Returns whether they start the headers of a new request.
    pub(crate) fn record_read(&self) -> bool {
        let now = self.worker.now();
        self.last_activity.store(now, Ordering::Relaxed);
        let starts_header = self.phase.load(Ordering::Relaxed) == IDLE;
        if starts_header {
            self.phase_started.store(now, Ordering::Relaxed);
            self.phase.store(HEADER, Ordering::Relaxed);
        }
        starts_header
    }

    /// Records the result of the scan of HTTP/1.1 bytes. `starts_head` and `busy` are how the
    /// connection was when they were read.
    pub(crate) fn record_scan(&self, scanned: Scanned, starts_head: bool, busy: bool) {
        if let Some(first) = scanned.first_malformed {
            self.first_malformed.store(first, Ordering::Relaxed);
        }
        if !busy && (starts_head || scanned.reads_ahead) {
            self.has_read_ahead
                .store(scanned.reads_ahead, Ordering::Relaxed);
        }
    }

    /// Whether the latest HTTP/1.1 request is one that `MessageScan` refuses.
    pub(crate) fn has_malformed_head(&self) -> bool {
        let first = self.first_malformed.load(Ordering::Relaxed);
        !self.is_http2() && self.requests.load(Ordering::Relaxed) >= first
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.is_tunnel.load(Ordering::Relaxed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == BUSY
    }

    /// Whether to look for the end of the socket now. True once per request for it.
    pub(crate) fn take_probe_request(&self) -> bool {
        self.probe_requested.load(Ordering::Relaxed)
            && self.probe_requested.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn header_timed_out(&self) -> bool {
        self.header_timed_out.load(Ordering::Relaxed)
    }

    /// Closes or drains the connection if one of its timeouts has expired.
    pub(crate) fn check_timeouts(&self, now: u32, options: &HttpOptions) {
        let elapsed = |start: u32, limit: Option<Duration>| {
            limit.is_some_and(|limit| now.wrapping_sub(start) > to_ticks(limit))
        };
        let phase_started = self.phase_started.load(Ordering::Relaxed);
        let http2 = self.is_http2();
        match self.phase.load(Ordering::Relaxed) {
            // The worker checks the limits of HTTP/2 streams.
            BUSY if http2 => {}
            BUSY => self.check_request(now),
            // HTTP/1.1 only: on HTTP/2, bytes outside of requests are PING and SETTINGS frames.
            HEADER if !http2 => {
                if elapsed(phase_started, options.request_headers_timeout) {
                    self.header_timed_out.store(true, Ordering::Relaxed);
                    if self.raise(DrainLevel::Close) {
                        self.stats.downstream_rq_header_timeout.increment();
                    }
                }
            }
            _ => {
                let overload = &self.worker.overload;
                let limit = if overload.is_active(OverloadAction::CloseIdleConnections) {
                    Some(DRAIN_GRACE)
                } else {
                    options.idle_timeout
                };
                if elapsed(phase_started, limit) && self.raise(DrainLevel::Drain) {
                    self.stats.downstream_cx_idle_timeout.increment();
                }
            }
        }
        self.check_writes(now, options);
        if self.drain_level() == DrainLevel::Announce && self.phase.load(Ordering::Relaxed) == IDLE
        {
            let drain_started = self.drain_started.load(Ordering::Relaxed);
            if now
                .wrapping_sub(phase_started)
                .min(now.wrapping_sub(drain_started))
                > self.drain_grace.load(Ordering::Relaxed)
            {
                self.raise(DrainLevel::Drain);
            }
        }
        if elapsed(self.created_at, options.max_connection_duration)
            && self.drain_level() == DrainLevel::Serve
        {
            self.stats.downstream_cx_max_duration_reached.increment();
            self.raise(DrainLevel::Drain);
        }
    }

    /// Checks the limits of the current HTTP/1.1 request.
    fn check_request(&self, now: u32) {
        let last_activity = self.last_activity.load(Ordering::Relaxed);
        if self.stream.check(now, last_activity) {
            self.raise(DrainLevel::Close);
        } else if now.is_multiple_of(PROBE_INTERVAL) && self.has_read_ahead.load(Ordering::Relaxed)
        {
            self.probe_requested.store(true, Ordering::Relaxed);
            self.notify.notify_one();
        }
    }

    /// Closes a connection whose client does not read what remains to be written. While an HTTP/1.1
    /// request is active, its own limits apply.
    fn check_writes(&self, now: u32, options: &HttpOptions) {
        let busy = self.phase.load(Ordering::Relaxed) == BUSY;
        let blocked = self.write_blocked_at.load(Ordering::Relaxed);
        let limit = options.stream_idle_timeout.map_or(u32::MAX, to_ticks);
        if blocked != 0
            && (!busy || self.is_http2())
            && now.wrapping_sub(blocked) > limit
            && self.raise(DrainLevel::Close)
        {
            self.stats.downstream_rq_idle_timeout.increment();
        }
        let drained_at = self.drained_at.load(Ordering::Relaxed);
        if self.drain_level() == DrainLevel::Drain
            && !busy
            && now.wrapping_sub(drained_at) > DRAIN_TIMEOUT
        {
            self.raise(DrainLevel::Close);
        }
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked_at.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn record_write<T>(&self, written: &Poll<T>) {
        let now = self.worker.now();
        if written.is_ready() {
            self.last_activity.store(now, Ordering::Relaxed);
            self.write_blocked_at.store(0, Ordering::Relaxed);
        } else if !self.is_write_blocked() {
            self.write_blocked_at.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Closes the connection with its next response, or when it has been idle for `grace`.
    pub(crate) fn start_drain(&self, grace: Duration) {
        self.stats.downstream_cx_drain_close.increment();
        self.drain_grace.store(to_ticks(grace), Ordering::Relaxed);
        self.drain_started
            .store(self.worker.now(), Ordering::Relaxed);
        self.raise(DrainLevel::Announce);
    }

    /// Closes the connection with the response to the request that begins, if it may have no other.
    pub(crate) fn limit_reuse(&self, options: &HttpOptions) {
        if self.drain_level() != DrainLevel::Serve {
            return;
        }
        let begun = self.requests.load(Ordering::Relaxed).saturating_add(1);
        let overload = &self.worker.overload;
        if options
            .max_requests_per_connection
            .is_some_and(|max| begun >= max)
        {
            self.stats.downstream_cx_max_requests_reached.increment();
        } else if overload.is_active(OverloadAction::DisableHttpKeepalive) {
            self.stats
                .downstream_cx_overload_disable_keepalive
                .increment();
        } else {
            return;
        }
        self.start_drain(DRAIN_GRACE);
    }

    /// Whether to add `connection: close` to the next response. HTTP/1.1 only: HTTP/2 sends GOAWAY.
    pub(crate) fn announces_close(&self) -> bool {
        self.drain_level() != DrainLevel::Serve && !self.is_http2()
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.http2.load(Ordering::Relaxed)
    }

    /// Raises the drain level. Returns false if the current level is as high or higher.
    pub(crate) fn raise(&self, level: DrainLevel) -> bool {
        if self.drain_level.fetch_max(level as u8, Ordering::Relaxed) >= level as u8 {
            return false;
        }
        if level == DrainLevel::Drain {
            self.drained_at.store(self.worker.now(), Ordering::Relaxed);
        }
        self.notify.notify_one();
        true
    }

    pub(crate) fn drain_level(&self) -> DrainLevel {
        match self.drain_level.load(Ordering::Relaxed) {
            0 => DrainLevel::Serve,
            1 => DrainLevel::Announce,
            2 => DrainLevel::Drain,
            _ => DrainLevel::Close,
        }
    }

    pub(crate) async fn drain_level_changed(&self) -> DrainLevel {
        self.notify.notified().await;
        self.drain_level()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stats.downstream_cx_active.decrement();
    }
}

#[cfg(test)]
pub(crate) mod tests;
