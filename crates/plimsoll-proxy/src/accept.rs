//! The thread of a worker: accepts connections, ticks, and ends when it is told to.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

use crate::connection::{Connection, Order};
use crate::listener::{self, Listener};
use crate::stats::HttpStats;
use crate::worker::{TICK, Worker};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// What all workers share.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// Connections now.
    pub(crate) connections: AtomicU64,
    /// Connections at most; `u64::MAX` is no limit.
    pub(crate) max_connections: AtomicU64,
}

/// What a worker is told.
pub(crate) enum Command {
    /// Accept on one more socket.
    Listen(String, Arc<Listener>, StdListener),
    /// Accept no more for the listener of this name; let its connections finish.
    Unlisten(String),
    /// Accept no more, finish within this time, and end.
    Drain(Duration),
}

/// A worker's thread.
pub(crate) struct WorkerThread {
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts a thread.
    pub(crate) fn start(worker: Worker, limits: Arc<Limits>) -> io::Result<Self> {
        let (commands, received) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let name = format!("worker-{}", worker.index);
        let acceptor = Acceptor {
            worker: Arc::new(worker),
            limits,
            connections: Mutex::default(),
        };
        let work = move || runtime.block_on(Arc::new(acceptor).run(received));
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Self {
            commands,
            thread: Some(thread),
        })
    }

    /// Tells the worker something; a thread that has ended hears nothing.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// The thread, to be waited for.
    pub(crate) const fn take_thread(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }
}

struct Acceptor {
    worker: Arc<Worker>,
    limits: Arc<Limits>,
    connections: Mutex<Vec<Weak<Connection>>>,
}

impl Acceptor {
    async fn run(self: Arc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut accepting: BTreeMap<String, Accepting> = BTreeMap::new();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(),
                command = commands.recv() => match command {
                    None => break Duration::ZERO,
                    Some(Command::Drain(limit)) => break limit,
                    Some(Command::Listen(name, listener, socket)) => {
                        match Accepting::start(&self, listener, socket) {
                            Ok(started) => drop(accepting.insert(name, started)),
                            Err(error) => tracing::error!(%name, %error, "cannot listen"),
                        }
                    }
                    Some(Command::Unlisten(name)) => {
                        if let Some(stopped) = accepting.remove(&name) {
                            let listener = Arc::clone(&stopped.listener);
                            stopped.stop().await;
                            self.mark(|one| Arc::ptr_eq(&one.listener, &listener));
                        }
                    }
                },
            }
        };
        for (_, stopped) in accepting {
            stopped.stop().await;
        }
        self.mark(|_| true);
        let deadline = Instant::now() + limit;
        while self.alive() > 0 && Instant::now() < deadline {
            ticks.tick().await;
            self.tick();
        }
        self.each(|connection| connection.order(Order::Close));
        // The tasks hear of it when they are polled once more.
        tokio::task::yield_now().await;
    }

    fn mark(&self, which: impl Fn(&Connection) -> bool) {
        self.each(|connection| {
            if which(connection) {
                connection.mark();
            }
        });
    }

    fn tick(&self) {
        let now = self.worker.tick();
        self.each(|connection| {
            connection.check(now, &connection.listener.runtime().config.http);
        });
    }

    fn each(&self, mut deed: impl FnMut(&Connection)) {
        let mut connections = self.connections();
        connections.retain(|connection| match connection.upgrade() {
            Some(connection) => {
                deed(&connection);
                true
            }
            None => false,
        });
    }

    fn alive(&self) -> usize {
        let connections = self.connections();
        connections
            .iter()
            .filter(|connection| connection.strong_count() > 0)
            .count()
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Connection>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, unless there are too many.
    fn admit(
        self: &Arc<Self>,
        (stream, peer): (TcpStream, SocketAddr),
        listener: &Arc<Listener>,
        stats: &Arc<HttpStats>,
    ) -> Option<Arc<Connection>> {
        let limits = Arc::clone(&self.limits);
        let before = limits.connections.fetch_add(1, Ordering::Relaxed);
        let admitted = Admitted(limits);
        if before >= self.limits.max_connections.load(Ordering::Relaxed) {
            stats.downstream_cx_overload_reject.inc();
            return None;
        }
        // Small responses must not wait for more to send.
        let _ = stream.set_nodelay(true);
        let secure = listener.runtime().config.tls.is_some();
        let connection = Arc::new(Connection::new(
            Arc::clone(&self.worker),
            Arc::clone(listener),
            Arc::clone(stats),
            peer,
            secure,
        ));
        self.connections().push(Arc::downgrade(&connection));
        let serving = Arc::clone(&connection);
        tokio::spawn(async move {
            listener::serve(stream, serving).await;
            drop(admitted);
        });
        Some(connection)
    }
}

/// Counts a connection until it is dropped.
struct Admitted(Arc<Limits>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A task that accepts on one socket.
struct Accepting {
    listener: Arc<Listener>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Accepting {
    fn start(
        acceptor: &Arc<Acceptor>,
        listener: Arc<Listener>,
        socket: StdListener,
    ) -> io::Result<Self> {
        let socket = TcpListener::from_std(socket)?;
        let (stop, stopped) = oneshot::channel();
        let stats = listener.new_stats();
        let work = accept(
            Arc::clone(acceptor),
            Arc::clone(&listener),
            stats,
            (socket, stopped),
        );
        Ok(Self {
            listener,
            stop,
            task: tokio::spawn(work),
        })
    }

    /// Accepts what is waiting, then no more.
    async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

async fn accept(
    acceptor: Arc<Acceptor>,
    listener: Arc<Listener>,
    stats: Arc<HttpStats>,
    (socket, mut stopped): (TcpListener, oneshot::Receiver<()>),
) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = &mut stopped => break,
        };
        match accepted {
            Ok(accepted) => drop(acceptor.admit(accepted, &listener, &stats)),
            Err(error) => {
                // Out of file descriptors, mostly: others may be closed meanwhile.
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    // Clients whose connection waits in the queue would be cut off.
    while let Ok(Ok(accepted)) =
        tokio::time::timeout(Duration::from_millis(5), socket.accept()).await
    {
        if let Some(connection) = acceptor.admit(accepted, &listener, &stats) {
            connection.mark();
        }
    }
}

/// A listening socket that others may share the address of.
pub(crate) fn bind(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
