//! Worker threads: accept connections, check their timeouts on a tick, and drain on shutdown.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_core::log_line;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

use crate::connection::{Connection, DrainLevel};
use crate::listener::{self, Listener};
use crate::log_lines;
use crate::stats::HttpStats;
use crate::worker::{TICK, Worker};

/// Length of the queue of connections that the kernel has established but nobody has accepted.
const BACKLOG: i32 = 4096;

/// Limit of downstream connections, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimit {
    pub(crate) active: AtomicU64,
    /// Limit of open connections; `u64::MAX` means unlimited.
    pub(crate) max: AtomicU64,
}

pub(crate) enum Command {
    Listen(String, Arc<Listener>, StdListener),
    /// Stops accepting for the named listener and drains its connections.
    Unlisten(String),
    /// Stops accepting on all listeners, drains for at most this time, then exits.
    Drain(Duration),
}

pub(crate) struct WorkerThread {
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    pub(crate) fn start(worker: Worker, limit: Arc<ConnectionLimit>) -> io::Result<Self> {
        let (commands, received) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let name = format!("worker-{}", worker.index);
        let acceptor = Acceptor {
            worker: Arc::new(worker),
            limit,
            connections: Mutex::default(),
        };
        let work = move || runtime.block_on(Arc::new(acceptor).run(received));
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Self {
            commands,
            thread: Some(thread),
        })
    }

    /// Sends a command to the worker thread; does nothing if the thread has exited.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    pub(crate) const fn take_handle(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }
}

struct Acceptor {
    worker: Arc<Worker>,
    limit: Arc<ConnectionLimit>,
    connections: Mutex<Vec<Weak<Connection>>>,
}

impl Acceptor {
    async fn run(self: Arc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut accepting: BTreeMap<String, AcceptTask> = BTreeMap::new();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(),
                command = commands.recv() => match command {
                    None => break Duration::ZERO,
                    Some(Command::Drain(limit)) => break limit,
                    Some(Command::Listen(name, listener, socket)) => {
                        match AcceptTask::start(&self, listener, socket) {
                            Ok(started) => drop(accepting.insert(name, started)),
                            Err(error) => log_line!(log_lines::BIND_FAILED, %name, %error),
                        }
                    }
                    Some(Command::Unlisten(name)) => {
                        if let Some(stopped) = accepting.remove(&name) {
                            let listener = Arc::clone(&stopped.listener);
                            stopped.stop().await;
                            self.start_drain(|one| Arc::ptr_eq(&one.listener, &listener));
                        }
                    }
                },
            }
        };
        for (_, stopped) in accepting {
            stopped.stop().await;
        }
        self.start_drain(|_| true);
        let deadline = Instant::now() + limit;
        while self.open_connections() > 0 && Instant::now() < deadline {
            ticks.tick().await;
            self.tick();
        }
        self.for_each_connection(|connection| {
            connection.raise(DrainLevel::Close);
        });
        // Let the connection tasks run once more, so that they see the raised drain level.
        tokio::task::yield_now().await;
    }

    fn start_drain(&self, which: impl Fn(&Connection) -> bool) {
        self.for_each_connection(|connection| {
            if which(connection) {
                connection.start_drain();
            }
        });
    }

    fn tick(&self) {
        let now = self.worker.tick();
        self.for_each_connection(|connection| {
            connection.check_timeouts(now, &connection.listener.runtime().config.http);
        });
    }

    fn for_each_connection(&self, mut visit: impl FnMut(&Connection)) {
        let mut connections = self.connections();
        connections.retain(|connection| match connection.upgrade() {
            Some(connection) => {
                visit(&connection);
                true
            }
            None => false,
        });
    }

    fn open_connections(&self) -> usize {
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

    /// Serves an accepted connection; drops it if the connection limit is reached.
    fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        listener: &Arc<Listener>,
        stats: &Arc<HttpStats>,
    ) -> Option<Arc<Connection>> {
        let before = self.limit.active.fetch_add(1, Ordering::Relaxed);
        let permit = ConnectionPermit(Arc::clone(&self.limit));
        if before >= self.limit.max.load(Ordering::Relaxed) {
            stats.downstream_cx_overload_reject.increment();
            return None;
        }
        // Disable Nagle's algorithm: small responses must not wait for more data.
        let _ = stream.set_nodelay(true);
        let connection = Arc::new(Connection::new(
            Arc::clone(&self.worker),
            Arc::clone(listener),
            Arc::clone(stats),
            peer,
            permit,
        ));
        self.connections().push(Arc::downgrade(&connection));
        let serving = Arc::clone(&connection);
        tokio::spawn(listener::serve(stream, serving));
        Some(connection)
    }
}

/// Holds one slot of the connection limit until the connection, or the tunnel that it became, ends.
pub(crate) struct ConnectionPermit(Arc<ConnectionLimit>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

struct AcceptTask {
    listener: Arc<Listener>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl AcceptTask {
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
            socket,
            stopped,
        );
        Ok(Self {
            listener,
            stop,
            task: tokio::spawn(work),
        })
    }

    /// Accepts the connections that are already in the accept queue, then stops.
    async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

async fn accept(
    acceptor: Arc<Acceptor>,
    listener: Arc<Listener>,
    stats: Arc<HttpStats>,
    socket: TcpListener,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = &mut stopped => break,
        };
        match accepted {
            Ok((stream, peer)) => drop(acceptor.admit(stream, peer, &listener, &stats)),
            Err(error) => {
                // Most likely out of file descriptors: wait for other connections to close.
                log_line!(log_lines::ACCEPT_FAILED, %error);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    // Accept the rest: closing the socket would reset connections in the accept queue.
    while let Ok(Ok((stream, peer))) =
        tokio::time::timeout(Duration::from_millis(5), socket.accept()).await
    {
        if let Some(connection) = acceptor.admit(stream, peer, &listener, &stats) {
            connection.start_drain();
        }
    }
}

/// Binds and listens with `SO_REUSEPORT`, so that every worker can have a socket of its own.
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
