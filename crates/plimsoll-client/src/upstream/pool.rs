//! [`Pool`]: connection pool of one upstream host, one per worker; and [`HttpConnection`], an open
//! connection that requests are sent on.
//!
//! Idle HTTP/1.1 connections sit in a lock-free queue; HTTP/2 connections are shared through an
//! `ArcSwap`ped list. `endpoint` decides when to dial; this module stores and hands out.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use futures_util::future::Either;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_core::log_line;
use plimsoll_core::time::Instant;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::upstream::{HttpVersion, UpstreamOptions};
use tokio::task::AbortHandle;

use crate::error::BoxError;
use crate::log_lines;
use crate::request::body::RequestBody;
use crate::upstream::connect::Transport;
use crate::upstream::connection::{ConnectionState, Socket};
use crate::upstream::dials::Dials;
use crate::upstream::waiting::{Place, WaitQueue};

/// Idle HTTP/1.1 connections kept per pool; further ones are closed.
const MAX_IDLE: usize = 1024;
/// Size of the queue that most pools get along with. A queue occupies its memory at once, for every
/// worker and host that was ever used: 1.3 KB here, 40 KB with [`MAX_IDLE`].
const FEW_IDLE: usize = 32;
/// Idle connections that a request looks at. With `auto_sni` they may be for many server names.
const MAX_SCAN: usize = 64;
/// Limit of HTTP/2 response headers, as in Envoy.
const MAX_HEADER_LIST: u32 = 60 << 10;
/// Limit of the bytes that are read from an HTTP/1.1 host at once: a client that does not read
/// makes the proxy keep as many.
const MAX_READ: usize = 64 << 10;
/// Default concurrent streams per HTTP/2 connection, as in Envoy.
const MAX_CONCURRENT_STREAMS: u32 = 1024;

type SendResult = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>;

#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) state: Arc<ConnectionState>,
    sender: HttpSender,
}

#[derive(Debug)]
enum HttpSender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

impl HttpConnection {
    /// Performs the HTTP handshake and spawns the connection task. The task ends when the last
    /// sender is dropped, the socket closes, or `tasks` is aborted.
    pub(crate) async fn open(
        socket: Box<dyn Transport>,
        state: Arc<ConnectionState>,
        options: &UpstreamOptions,
        tasks: &Arc<Tasks>,
    ) -> Result<Self, BoxError> {
        let http2 = options.http_version == HttpVersion::Http2;
        let socket = TokioIo::new(Socket::new(socket, Arc::clone(&state), http2));
        let sender = match options.http_version {
            HttpVersion::Http1 => {
                let mut builder = http1::Builder::new();
                builder.max_buf_size(MAX_READ);
                let (sender, task) = builder.handshake(socket).await?;
                tasks.spawn(run(task.with_upgrades()));
                HttpSender::Http1(sender)
            }
            HttpVersion::Http2 => {
                let executor = Spawner::new(Arc::clone(tasks));
                let builder = http2_builder(options, executor);
                let (sender, task) = builder.handshake(socket).await?;
                tasks.spawn(run(task));
                HttpSender::Http2(sender)
            }
        };
        Ok(Self { state, sender })
    }

    /// Sends a request. The error returns the request if it was not sent.
    pub(crate) fn try_send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = SendResult> + use<> {
        match &mut self.sender {
            HttpSender::Http1(sender) => Either::Left(sender.try_send_request(request)),
            HttpSender::Http2(sender) => Either::Right(sender.try_send_request(request)),
        }
    }

    /// Returns another handle to an HTTP/2 connection; `None` for HTTP/1.1.
    pub(crate) fn share(&self) -> Option<Self> {
        let HttpSender::Http2(sender) = &self.sender else {
            return None;
        };
        Some(Self {
            state: Arc::clone(&self.state),
            sender: HttpSender::Http2(sender.clone()),
        })
    }

    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.sender, HttpSender::Http2(_))
    }

    pub(crate) fn is_ready(&self) -> bool {
        match &self.sender {
            HttpSender::Http1(sender) => sender.is_ready(),
            HttpSender::Http2(sender) => sender.is_ready(),
        }
    }

    /// Waits until a request can be sent; `None` if the connection closes first.
    pub(crate) async fn ready(mut self) -> Option<Self> {
        let ready = match &mut self.sender {
            HttpSender::Http1(sender) => sender.ready().await,
            HttpSender::Http2(sender) => sender.ready().await,
        };
        ready.is_ok().then_some(self)
    }

    pub(crate) fn is_usable(
        &self,
        server_name: Option<&Arc<str>>,
        options: &UpstreamOptions,
        now: Instant,
    ) -> bool {
        self.state.server_name.as_ref() == server_name
            && self.is_ready()
            && !self.state.is_expired(options, now)
    }
}

/// Connection tasks of one host. Locked when connections open or are closed, never by a request.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<Vec<AbortHandle>>);

impl Tasks {
    pub(crate) fn abort(&self) {
        for task in self.lock().drain(..) {
            task.abort();
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(task).abort_handle();
        let mut tasks = self.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Executor of one HTTP/2 connection. Only its first task, which owns the socket, is registered in
/// `tasks`: the stream tasks end with it, so a request takes no lock.
#[derive(Clone)]
struct Spawner {
    tasks: Arc<Tasks>,
    spawned: Arc<AtomicBool>,
}

impl Spawner {
    fn new(tasks: Arc<Tasks>) -> Self {
        Self {
            tasks,
            spawned: Arc::default(),
        }
    }
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        if self.spawned.load(Ordering::Relaxed) {
            tokio::spawn(future);
        } else {
            self.spawned.store(true, Ordering::Relaxed);
            self.tasks.spawn(future);
        }
    }
}

/// Returns the settings of an HTTP/2 connection to a host; `executor` runs its tasks.
pub(crate) fn http2_builder<E: Clone>(options: &UpstreamOptions, executor: E) -> http2::Builder<E> {
    let settings = &options.http2;
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(settings.initial_stream_window_size)
        .initial_connection_window_size(settings.initial_connection_window_size)
        .max_header_list_size(MAX_HEADER_LIST)
        .keep_alive_interval(settings.keepalive_interval);
    if let Some(timeout) = settings.keepalive_timeout {
        builder.keep_alive_timeout(timeout);
    }
    builder
}

/// Runs a connection until it ends.
pub(crate) async fn run(task: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = task.await {
        log_line!(log_lines::UPSTREAM_CONNECTION_CLOSED, %error);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    shared: ArcSwap<Vec<HttpConnection>>,
    pub(crate) dials: Dials,
    /// Allocated on first use, as most hosts of a large cluster are never used.
    idle: OnceLock<ArrayQueue<HttpConnection>>,
    /// Allocated when `idle` is full.
    more_idle: OnceLock<ArrayQueue<HttpConnection>>,
    queue: WaitQueue,
}

impl Pool {
    pub(crate) fn checkout(
        &self,
        server_name: Option<&Arc<str>>,
        options: &UpstreamOptions,
        now: Instant,
    ) -> Option<HttpConnection> {
        match options.http_version {
            HttpVersion::Http1 => self.checkout_idle(server_name, options, now),
            HttpVersion::Http2 => {
                let limit = options
                    .http2
                    .max_concurrent_streams
                    .unwrap_or(MAX_CONCURRENT_STREAMS);
                let has_room = |connection: &&HttpConnection| {
                    connection.state.streams() < limit
                        && connection.is_usable(server_name, options, now)
                };
                self.shared.load().iter().find(has_room)?.share()
            }
        }
    }

    /// Checks out an HTTP/2 connection even if it has reached its stream limit.
    pub(crate) fn checkout_full(&self, server_name: Option<&Arc<str>>) -> Option<HttpConnection> {
        let fits = |connection: &&HttpConnection| {
            connection.state.server_name.as_ref() == server_name && connection.is_ready()
        };
        self.shared.load().iter().find(fits)?.share()
    }

    /// Waits for the next connection that becomes free.
    pub(crate) fn enqueue(&self) -> Waiter<'_> {
        Waiter {
            pool: self,
            place: self.queue.enqueue(),
        }
    }

    /// Waits outside the queue, for a connection that is being dialed.
    pub(crate) fn wait_for_dial(&self) -> Waiter<'_> {
        Waiter {
            pool: self,
            place: Arc::default(),
        }
    }

    /// Returns a connection to the pool, or hands it to the oldest waiter.
    pub(crate) fn put(&self, connection: HttpConnection) {
        if connection.is_shared() {
            self.put_shared(&connection);
            return;
        }
        self.put_idle(connection);
        self.take_back_unclaimed();
    }

    /// Hands a new connection to the request that it was dialed for.
    pub(crate) fn put_for(&self, place: &Arc<Place>, connection: HttpConnection) {
        let now = Clock::system().now();
        if let Some(unused) = self.queue.hand_to(place, connection, now) {
            self.put(unused);
        }
    }

    /// Takes connections back that waiters were handed and did not use in time.
    pub(crate) fn take_back_unclaimed(&self) {
        let now = || Clock::system().now();
        while let Some(connection) = self.queue.take_unclaimed(now) {
            self.put_idle(connection);
        }
    }

    /// No wakeup is lost: a waiter checks the idle queue after it has joined, and this checks for
    /// waiters after pushing.
    fn put_idle(&self, mut connection: HttpConnection) {
        while !self.queue.is_empty() {
            match self.queue.hand(connection, Clock::system().now()) {
                None => return,
                Some(unused) => connection = unused,
            }
        }
        self.push_idle(connection);
        if !self.queue.is_empty()
            && let Some(idle) = self.pop_idle()
        {
            self.put_idle(idle);
        }
    }

    /// Adds an HTTP/2 connection to the list and removes closed ones.
    fn put_shared(&self, connection: &HttpConnection) {
        self.shared.rcu(|current| {
            let live = current.iter().filter(|other| other.is_ready());
            live.filter_map(HttpConnection::share)
                .chain(connection.share())
                .collect::<Vec<_>>()
        });
    }

    pub(crate) fn clear(&self) {
        self.shared.store(Arc::default());
        while self.pop_idle().is_some() {}
    }

    /// Drops connections that must not be reused. They close when their last request has ended.
    pub(crate) fn remove_expired(&self, options: &UpstreamOptions, now: Instant) {
        let usable = |connection: &HttpConnection| {
            connection.is_usable(connection.state.server_name.as_ref(), options, now)
        };
        let shared = self.shared.load();
        if !shared.iter().all(usable) {
            self.shared.rcu(|current| {
                let live = current.iter().filter(|connection| usable(connection));
                live.filter_map(HttpConnection::share).collect::<Vec<_>>()
            });
        }
        for _ in 0..self.idle_count() {
            match self.pop_idle() {
                Some(connection) if usable(&connection) => self.put(connection),
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Drops, and so closes, the connection if the pool is full.
    fn push_idle(&self, connection: HttpConnection) {
        let idle = self.idle.get_or_init(|| ArrayQueue::new(FEW_IDLE));
        if let Err(connection) = idle.push(connection) {
            let more = || ArrayQueue::new(MAX_IDLE - FEW_IDLE);
            drop(self.more_idle.get_or_init(more).push(connection));
        }
    }

    fn pop_idle(&self) -> Option<HttpConnection> {
        let more = || self.more_idle.get()?.pop();
        self.idle.get()?.pop().or_else(more)
    }

    fn idle_count(&self) -> usize {
        let queues = [self.idle.get(), self.more_idle.get()];
        queues.into_iter().flatten().map(ArrayQueue::len).sum()
    }

    fn checkout_idle(
        &self,
        server_name: Option<&Arc<str>>,
        options: &UpstreamOptions,
        now: Instant,
    ) -> Option<HttpConnection> {
        for _ in 0..=self.idle_count().min(MAX_SCAN) {
            let connection = self.pop_idle()?;
            if connection.is_usable(server_name, options, now) {
                return Some(connection);
            }
            // Put a ready connection for another server name back; dropping any other closes it.
            if connection.state.server_name.as_ref() != server_name && connection.is_ready() {
                self.push_idle(connection);
            }
        }
        None
    }
}

/// A request that waits for a connection. One that it was handed and did not use is put back.
pub(crate) struct Waiter<'a> {
    pool: &'a Pool,
    place: Arc<Place>,
}

impl Waiter<'_> {
    pub(crate) const fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Waits for a connection; `None` if it was taken back before this was polled.
    pub(crate) async fn connection(&self) -> Option<HttpConnection> {
        self.place.changed().await;
        self.place.take()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.place.leave() {
            self.pool.put(connection);
        }
    }
}

#[cfg(test)]
mod tests;
