//! [`Pool`]: the open connections to one host that belong to one runtime, and [`Channel`], what
//! requests are put onto.
//!
//! Lock-free: idle HTTP/1.1 connections are a queue, those of HTTP/2 a published list. Who opens
//! connections and when is decided in `endpoint`.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use crossbeam_queue::{ArrayQueue, SegQueue};
use futures_util::future::Either;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_core::time::Instant;
use plimsoll_xds::upstream::{HttpVersion, UpstreamOptions};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::AbortHandle;

use crate::body::RequestBody;
use crate::connect::Transport;
use crate::connection::{Connection, Socket};
use crate::error::BoxError;

/// Idle HTTP/1.1 connections that are kept per host and pool.
const IDLE: usize = 1024;
/// Requests at a time on one HTTP/2 connection, unless the options say otherwise. Envoy's default.
const MAX_CONCURRENT_STREAMS: u32 = 1024;

/// A response; or an error, perhaps with the request that was not sent.
type Answer = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) connection: Arc<Connection>,
    sender: Sender,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

impl Channel {
    /// Says hello on a socket and starts what runs it. That ends with the last sender, with the
    /// socket, or when `tasks` are aborted.
    pub(crate) async fn open(
        socket: Box<dyn Transport>,
        connection: Arc<Connection>,
        options: &UpstreamOptions,
        tasks: &Arc<Tasks>,
    ) -> Result<Self, BoxError> {
        let socket = TokioIo::new(Socket::new(socket, Arc::clone(&connection)));
        let sender = match options.http_version {
            HttpVersion::Http1 => {
                let (sender, task) = http1::handshake(socket).await?;
                tasks.spawn(run(task.with_upgrades()));
                Sender::Http1(sender)
            }
            HttpVersion::Http2 => {
                let executor = Spawner::new(Arc::clone(tasks));
                let builder = http2_builder(options, executor);
                let (sender, task) = builder.handshake(socket).await?;
                tasks.spawn(run(task));
                Sender::Http2(sender)
            }
        };
        Ok(Self { connection, sender })
    }

    /// Sends a request; an error may hand it back.
    pub(crate) fn try_send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Answer> + use<> {
        match &mut self.sender {
            Sender::Http1(sender) => Either::Left(sender.try_send_request(request)),
            Sender::Http2(sender) => Either::Right(sender.try_send_request(request)),
        }
    }

    /// Another handle to the same connection, where it takes several requests at a time.
    pub(crate) fn share(&self) -> Option<Self> {
        let Sender::Http2(sender) = &self.sender else {
            return None;
        };
        Some(Self {
            connection: Arc::clone(&self.connection),
            sender: Sender::Http2(sender.clone()),
        })
    }

    /// Whether it takes several requests at a time.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Whether a request can be sent now.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        }
    }

    /// Waits until a request can be sent; `None` if the connection ends instead.
    pub(crate) async fn ready(mut self) -> Option<Self> {
        let ready = match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        };
        ready.is_ok().then_some(self)
    }

    /// Whether a request for that server name may be sent on it.
    pub(crate) fn is_usable(
        &self,
        name: Option<&Arc<str>>,
        options: &UpstreamOptions,
        now: Instant,
    ) -> bool {
        self.connection.server_name.as_ref() == name
            && self.is_ready()
            && !self.connection.is_spent(options, now)
    }
}

/// What runs the connections to one host. Locked when one opens and when all are closed, never by a
/// request.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<Vec<AbortHandle>>);

impl Tasks {
    /// Ends all connections, and with them the requests on them.
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

/// Spawns what an HTTP/2 connection consists of. The first is the socket, without which the others
/// end: it alone is kept in mind, so that requests cost nothing more.
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

fn http2_builder(options: &UpstreamOptions, executor: Spawner) -> http2::Builder<Spawner> {
    let settings = &options.http2;
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(settings.initial_stream_window_size)
        .initial_connection_window_size(settings.initial_connection_window_size)
        .keep_alive_interval(settings.keepalive_interval);
    if let Some(timeout) = settings.keepalive_timeout {
        builder.keep_alive_timeout(timeout);
    }
    builder
}

async fn run(task: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = task.await {
        tracing::debug!(%error, "connection ended");
    }
}

/// The open connections to one host that belong to one runtime.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: ArcSwap<Vec<Channel>>,
    /// Held while dialling HTTP/2, so that a burst makes one connection.
    pub(crate) dialling: AsyncMutex<()>,
    idle: ArrayQueue<Channel>,
    /// Those who wait for an HTTP/1.1 connection, in order.
    waiting: SegQueue<oneshot::Sender<Channel>>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            shared: ArcSwap::default(),
            dialling: AsyncMutex::new(()),
            idle: ArrayQueue::new(IDLE),
            waiting: SegQueue::new(),
        }
    }
}

impl Pool {
    /// A connection that can take a request now.
    pub(crate) fn find(
        &self,
        name: Option<&Arc<str>>,
        options: &UpstreamOptions,
        now: Instant,
    ) -> Option<Channel> {
        match options.http_version {
            HttpVersion::Http1 => self.find_idle(name, options, now),
            HttpVersion::Http2 => {
                let limit = options.http2.max_concurrent_streams;
                let limit = limit.unwrap_or(MAX_CONCURRENT_STREAMS);
                let has_room = |channel: &&Channel| {
                    channel.connection.streams() < limit && channel.is_usable(name, options, now)
                };
                self.shared.load().iter().find(has_room)?.share()
            }
        }
    }

    /// A connection that all streams of are taken: better than none.
    pub(crate) fn find_full(&self, name: Option<&Arc<str>>) -> Option<Channel> {
        let fits = |channel: &&Channel| {
            channel.connection.server_name.as_ref() == name && channel.is_ready()
        };
        self.shared.load().iter().find(fits)?.share()
    }

    /// A place in the queue for HTTP/1.1 connections.
    pub(crate) fn queue(&self) -> Turn<'_> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.push(sender);
        Turn {
            pool: self,
            receiver,
        }
    }

    /// A connection can be used: by who has waited longest, or later. Who queues up looks at the
    /// idle ones afterwards, so between the two nobody is forgotten.
    pub(crate) fn keep(&self, mut channel: Channel) {
        if channel.is_shared() {
            self.keep_shared(&channel);
            return;
        }
        loop {
            while let Some(waiting) = self.waiting.pop() {
                match waiting.send(channel) {
                    Ok(()) => return,
                    Err(back) => channel = back,
                }
            }
            // More than are kept are closed.
            drop(self.idle.push(channel));
            if self.waiting.is_empty() {
                return;
            }
            let Some(idle) = self.idle.pop() else {
                return;
            };
            channel = idle;
        }
    }

    /// Adds a shared connection to the list, and takes off it those that have ended.
    fn keep_shared(&self, channel: &Channel) {
        self.shared.rcu(|known| {
            let live = known.iter().filter(|known| known.is_ready());
            let live = live.filter_map(Channel::share);
            live.chain(channel.share()).collect::<Vec<_>>()
        });
    }

    /// Lets go of all of them.
    pub(crate) fn clear(&self) {
        self.shared.store(Arc::default());
        while self.idle.pop().is_some() {}
    }

    /// Lets go of those that must not be used again. They close when their last request has ended.
    pub(crate) fn sweep(&self, options: &UpstreamOptions, now: Instant) {
        let usable = |channel: &Channel| {
            channel.is_usable(channel.connection.server_name.as_ref(), options, now)
        };
        let shared = self.shared.load();
        if !shared.iter().all(usable) {
            self.shared.rcu(|known| {
                let live = known.iter().filter(|channel| usable(channel));
                live.filter_map(Channel::share).collect::<Vec<_>>()
            });
        }
        for _ in 0..self.idle.len() {
            match self.idle.pop() {
                Some(channel) if usable(&channel) => self.keep(channel),
                Some(_) => {}
                None => return,
            }
        }
    }

    fn find_idle(
        &self,
        name: Option<&Arc<str>>,
        options: &UpstreamOptions,
        now: Instant,
    ) -> Option<Channel> {
        for _ in 0..=self.idle.len() {
            let channel = self.idle.pop()?;
            if channel.is_usable(name, options, now) {
                return Some(channel);
            }
            // One for another server name is put back; others are dropped, which closes them.
            if channel.connection.server_name.as_ref() != name && channel.is_ready() {
                drop(self.idle.push(channel));
            }
        }
        None
    }
}

/// A place in the queue. Given up, what was handed to it goes to the next.
pub(crate) struct Turn<'a> {
    pool: &'a Pool,
    receiver: oneshot::Receiver<Channel>,
}

impl Turn<'_> {
    /// Waits for a connection; `None` never comes while the pool is there.
    pub(crate) async fn come(&mut self) -> Option<Channel> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(channel) = self.receiver.try_recv() {
            self.pool.keep(channel);
        }
    }
}
