//! [`Connection`]: one client's connection: what is going on there, and when it must end.
//!
//! Timeouts are looked after by the worker's tick, not by timers: a request costs no timer at all.
//! Serving is in `listener`; the io of a connection passes through [`Watched`] to see whether
//! anything moves.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Version};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use tokio::sync::Notify;

use crate::config::HttpOptions;
use crate::head_scan::HeadScan;
use crate::listener::Listener;
use crate::stats::HttpStats;
use crate::worker::{Worker, in_ticks};

/// One client's connection.
pub(crate) struct Connection {
    pub(crate) worker: Arc<Worker>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) stats: Arc<HttpStats>,
    pub(crate) peer: SocketAddr,
    /// The client's address without its port.
    pub(crate) peer_ip: HeaderValue,
    pub(crate) scheme: &'static str,
    /// Tick of its birth.
    born: u32,
    http2: AtomicBool,
    /// Requests now.
    active: AtomicU32,
    phase: AtomicU8,
    /// Tick of the last change of phase.
    since: AtomicU32,
    /// Tick at which something moved.
    moved: AtomicU32,
    order: AtomicU8,
    /// Tick at which it was marked.
    marked: AtomicU32,
    /// The request whose header came last says its length twice.
    ambiguous: AtomicBool,
    /// A header took too long.
    expired: AtomicBool,
    /// Tells the task that serves it that there is an order.
    notify: Notify,
}

/// Nothing was said since the last request.
const IDLE: u8 = 0;
/// A header has begun.
const HEADER: u8 = 1;
/// Requests are on it.
const BUSY: u8 = 2;

/// Ticks that an idle connection is given to hear that it should end.
const GRACE: u32 = 10;

/// What a connection is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Order {
    /// Go on.
    Serve = 0,
    /// Say with the next response that it is the last; without one, end after [`GRACE`]. Ending an
    /// idle connection at once would cross the next request of its client.
    Mark = 1,
    /// Finish what is there, then end.
    Drain = 2,
    /// End.
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
        stats: Arc<HttpStats>,
        peer: SocketAddr,
        secure: bool,
    ) -> Self {
        let ip = peer.ip().to_canonical().to_string();
        let now = worker.now();
        stats.downstream_cx_total.inc();
        stats.downstream_cx_active.inc();
        Self {
            worker,
            listener,
            stats,
            peer,
            peer_ip: HeaderValue::try_from(ip).unwrap_or(HeaderValue::from_static("unknown")),
            scheme: if secure { "https" } else { "http" },
            born: now,
            http2: false.into(),
            active: 0.into(),
            phase: IDLE.into(),
            since: now.into(),
            moved: now.into(),
            order: AtomicU8::new(Order::Serve as u8),
            marked: now.into(),
            ambiguous: false.into(),
            expired: false.into(),
            notify: Notify::new(),
        }
    }

    /// Which protocol is spoken.
    pub(crate) fn speaks(&self, http2: bool) {
        self.http2.store(http2, Ordering::Relaxed);
        match http2 {
            true => self.stats.downstream_cx_http2_total.inc(),
            false => self.stats.downstream_cx_http1_total.inc(),
        }
    }

    pub(crate) fn request_begins(&self, version: Version) {
        self.stats.downstream_rq_total.inc();
        self.stats.downstream_rq_active.inc();
        match version {
            Version::HTTP_2 => self.stats.downstream_rq_http2_total.inc(),
            _ => self.stats.downstream_rq_http1_total.inc(),
        }
        self.active.fetch_add(1, Ordering::Relaxed);
        self.phase.store(BUSY, Ordering::Relaxed);
    }

    pub(crate) fn request_ends(&self, status: u16) {
        self.stats.downstream_rq_active.dec();
        match status {
            0 => self.stats.downstream_rq_rx_reset.inc(),
            status => self.stats.response(status),
        }
        if self.active.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.since.store(self.worker.now(), Ordering::Relaxed);
            self.phase.store(IDLE, Ordering::Relaxed);
        }
    }

    /// Bytes came; whether they begin a header.
    fn moves(&self) -> bool {
        let now = self.worker.now();
        self.moved.store(now, Ordering::Relaxed);
        let begins = self.phase.load(Ordering::Relaxed) == IDLE;
        if begins {
            self.since.store(now, Ordering::Relaxed);
            self.phase.store(HEADER, Ordering::Relaxed);
        }
        begins
    }

    /// Whether the request that came last says its length twice.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.ambiguous.load(Ordering::Relaxed)
    }

    /// Whether it is to end because a header took too long.
    pub(crate) fn has_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    /// Looks after timeouts.
    pub(crate) fn check(&self, now: u32, options: &HttpOptions) {
        let over = |since: u32, limit: Option<std::time::Duration>| {
            limit.is_some_and(|limit| now.wrapping_sub(since) > in_ticks(limit))
        };
        let since = self.since.load(Ordering::Relaxed);
        let http2 = self.is_http2();
        match self.phase.load(Ordering::Relaxed) {
            BUSY => {
                let moved = self.moved.load(Ordering::Relaxed);
                if over(moved, options.stream_idle_timeout) {
                    self.stats.downstream_rq_idle_timeout.inc();
                    self.order(Order::Close);
                }
            }
            // Pings and settings are no header.
            HEADER if !http2 => {
                if over(since, options.request_headers_timeout) {
                    self.stats.downstream_rq_header_timeout.inc();
                    self.expired.store(true, Ordering::Relaxed);
                    self.order(Order::Close);
                }
            }
            _ => {
                if over(since, options.idle_timeout) {
                    self.stats.downstream_cx_idle_timeout.inc();
                    self.order(Order::Drain);
                }
            }
        }
        if self.ordered() == Order::Mark && self.phase.load(Ordering::Relaxed) == IDLE {
            let marked = self.marked.load(Ordering::Relaxed);
            if now.wrapping_sub(since).min(now.wrapping_sub(marked)) > GRACE {
                self.order(Order::Drain);
            }
        }
        if over(self.born, options.max_connection_duration) && self.ordered() == Order::Serve {
            self.stats.downstream_cx_max_duration_reached.inc();
            self.order(Order::Drain);
        }
    }

    /// It should end soon.
    pub(crate) fn mark(&self) {
        self.stats.downstream_cx_drain_close.inc();
        self.marked.store(self.worker.now(), Ordering::Relaxed);
        self.order(Order::Mark);
    }

    /// Whether the next response should say that it is the last: HTTP/1.1 only, HTTP/2 has a frame
    /// for that.
    pub(crate) fn is_last(&self) -> bool {
        self.ordered() != Order::Serve && !self.is_http2()
    }

    /// Whether it speaks HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.http2.load(Ordering::Relaxed)
    }

    /// Gives an order, unless a harder one was given already.
    pub(crate) fn order(&self, order: Order) {
        if self.order.fetch_max(order as u8, Ordering::Relaxed) < order as u8 {
            self.notify.notify_one();
        }
    }

    /// The order in force.
    pub(crate) fn ordered(&self) -> Order {
        match self.order.load(Ordering::Relaxed) {
            0 => Order::Serve,
            1 => Order::Mark,
            2 => Order::Drain,
            _ => Order::Close,
        }
    }

    /// Waits for an order.
    pub(crate) async fn next_order(&self) -> Order {
        self.notify.notified().await;
        self.ordered()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stats.downstream_cx_active.dec();
    }
}

/// What is said to those whose header took too long.
const TIMED_OUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\
                           connection: close\r\n\r\n";

/// How much of a header is looked at in one step.
const LOOK: usize = 4096;

thread_local! {
    /// Where bytes of headers are looked at; for one read at a time.
    static SCRATCH: RefCell<[u8; LOOK]> = const { RefCell::new([0; LOOK]) };
}

/// The io of a connection, seen moving.
pub(crate) struct Watched<T> {
    io: T,
    connection: Arc<Connection>,
    scan: HeadScan,
}

impl<T> Watched<T> {
    pub(crate) fn new(io: T, connection: Arc<Connection>) -> Self {
        Self {
            io,
            connection,
            scan: HeadScan::default(),
        }
    }
}

impl<T: Read + Unpin> Watched<T> {
    /// Reads bytes of a header, and looks at them.
    fn read_header(
        &mut self,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let room = buf.remaining().min(LOOK);
            let mut read = ReadBuf::new(&mut scratch[..room]);
            ready!(Pin::new(&mut self.io).poll_read(cx, read.unfilled()))?;
            if self.connection.moves() {
                self.scan = HeadScan::default();
            }
            let ambiguous = self.scan.scan(read.filled());
            self.connection
                .ambiguous
                .store(ambiguous, Ordering::Relaxed);
            buf.put_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }
}

impl<T: Read + Write + Unpin> Read for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.connection.has_expired() {
            // Nobody else writes: there is no request yet. Whoever does not take it gets nothing.
            let _ = Pin::new(&mut self.io).poll_write(cx, TIMED_OUT);
            let _ = Pin::new(&mut self.io).poll_flush(cx);
            return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
        }
        let busy = self.connection.phase.load(Ordering::Relaxed) == BUSY;
        if !busy && !self.connection.is_http2() {
            return self.read_header(cx, buf);
        }
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.connection.moves();
        }
        read
    }
}

impl<T: Write + Unpin> Write for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        if written.is_ready() {
            let now = self.connection.worker.now();
            self.connection.moved.store(now, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        if written.is_ready() {
            let now = self.connection.worker.now();
            self.connection.moved.store(now, Ordering::Relaxed);
        }
        written
    }
}
