//! Worker threads: accept connections, check their timeouts on a tick, and drain on shutdown.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use plimsoll_core::log_line;
use plimsoll_serve::AcceptRetry;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

use crate::config::OverloadAction;
use crate::connection::{Connection, DRAIN_GRACE, DrainLevel};
use crate::connection_limit::{ConnectionLimit, ConnectionPermit, Refusal};
use crate::inspect;
use crate::listener::{self, Listener};
use crate::log_lines;
use crate::worker::{TICK, Worker};

/// Length of the queue of connections that the kernel has established but nobody has accepted.
const BACKLOG: i32 = 4096;

pub(crate) enum Command {
    Listen(Arc<Listener>, StdListener),
    /// Hands the socket of `old` to `new` and drains the connections of `old`.
    Replace {
        old: Arc<Listener>,
        new: Arc<Listener>,
    },
    /// Stops accepting for a listener and drains its connections.
    Unlisten(Arc<Listener>),
    /// Stops accepting on all listeners, drains, then exits.
    Drain(Drain),
}

/// Time that connections get at the end of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drain {
    /// Connections that are open after this time are cut off.
    pub(crate) limit: Duration,
    /// Connections without requests are closed after this time. Their clients may be about to send
    /// one, which would be lost.
    pub(crate) idle_grace: Duration,
}

impl Drain {
    /// Ends the process as soon as its requests have ended.
    pub(crate) const fn for_shutdown(limit: Duration) -> Self {
        let idle_grace = DRAIN_GRACE;
        Self { limit, idle_grace }
    }

    /// Leaves connections to their clients as long as possible: a successor serves new ones.
    pub(crate) fn for_successor(limit: Duration) -> Self {
        let idle_grace = limit / 2;
        Self { limit, idle_grace }
    }
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
            inspecting: AtomicUsize::new(0),
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

pub(crate) struct Acceptor {
    worker: Arc<Worker>,
    limit: Arc<ConnectionLimit>,
    connections: Mutex<Vec<Weak<Connection>>>,
    /// Accepted connections whose filter chain is not selected yet.
    inspecting: AtomicUsize,
}

impl Acceptor {
    async fn run(self: Arc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut accepting: Vec<AcceptTask> = Vec::new();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let drain = loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(),
                command = commands.recv() => match command {
                    None => break Drain::default(),
                    Some(Command::Drain(drain)) => break drain,
                    Some(command) => self.change_listeners(&mut accepting, command).await,
                },
            }
        };
        for stopped in accepting {
            stopped.listener.load().retired().cancel();
            stopped.stop().await;
        }
        self.start_drain(drain.idle_grace, |_| true);
        let deadline = Instant::now() + drain.limit;
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

    async fn change_listeners(self: &Arc<Self>, accepting: &mut Vec<AcceptTask>, command: Command) {
        match command {
            Command::Listen(listener, socket) => {
                let name = listener.runtime().config.name.clone();
                match AcceptTask::start(self, listener, socket) {
                    Ok(started) => accepting.push(started),
                    Err(error) => log_line!(log_lines::BIND_FAILED, %name, %error),
                }
            }
            Command::Replace { old, new } => {
                for task in accepting.iter().filter(|task| task.serves(&old)) {
                    task.listener.store(Arc::clone(&new));
                }
                old.retired().cancel();
                self.start_drain(DRAIN_GRACE, |one| Arc::ptr_eq(&one.listener, &old));
            }
            Command::Unlisten(listener) => {
                listener.retired().cancel();
                for stopped in accepting.extract_if(.., |task| task.serves(&listener)) {
                    stopped.stop().await;
                }
                self.start_drain(DRAIN_GRACE, |one| Arc::ptr_eq(&one.listener, &listener));
            }
            Command::Drain(_) => {}
        }
    }

    fn start_drain(&self, grace: Duration, which: impl Fn(&Connection) -> bool) {
        self.for_each_connection(|connection| {
            if which(connection) {
                connection.start_drain(grace);
            }
        });
    }

    fn tick(&self) {
        let now = self.worker.tick();
        self.for_each_connection(|connection| {
            let runtime = connection.listener.runtime();
            connection.check_timeouts(now, &runtime.chain(connection.chain).config().http);
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
        let open = connections
            .iter()
            .filter(|connection| connection.strong_count() > 0)
            .count();
        open + self.inspecting.load(Ordering::Relaxed)
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Connection>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts the next connection while the overload manager allows it. Cancel safe.
    async fn accept(&self, socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        let overload = &self.worker.overload;
        loop {
            let changed = overload.changed();
            if overload.is_active(OverloadAction::StopAcceptingConnections) {
                changed.await;
                continue;
            }
            tokio::select! {
                biased;
                () = changed => {}
                accepted = socket.accept() => return accepted,
            }
        }
    }

    /// Serves an accepted connection; drops it if a limit of connections is reached.
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, listener: &Arc<Listener>) {
        let runtime = listener.runtime();
        let overload = &self.worker.overload;
        if overload.is_active(OverloadAction::RejectIncomingConnections) {
            let stats = runtime.chain(0).stats(self.worker.index);
            stats.downstream_cx_overload_reject.increment();
            return;
        }
        let permit = match self.limit.acquire(peer.ip()) {
            Ok(permit) => permit,
            Err(refusal) => {
                // Without a filter chain, the first one counts it.
                let stats = runtime.chain(0).stats(self.worker.index);
                match refusal {
                    Refusal::Total => stats.downstream_cx_overload_reject.increment(),
                    Refusal::Address => stats.downstream_cx_address_reject.increment(),
                }
                return;
            }
        };
        // Disable Nagle's algorithm: small responses must not wait for more data.
        let _ = stream.set_nodelay(true);
        let accepted = Accepted {
            acceptor: Arc::clone(self),
            listener: Arc::clone(listener),
            peer,
            permit,
        };
        match runtime.config.selector.only() {
            Some(chain) => {
                let connection = accepted.open(chain);
                tokio::spawn(listener::serve(stream, connection));
            }
            None => {
                self.inspecting.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(inspect::serve(stream, accepted));
            }
        }
    }
}

/// An accepted connection whose filter chain is not selected yet.
pub(crate) struct Accepted {
    acceptor: Arc<Acceptor>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) peer: SocketAddr,
    permit: ConnectionPermit,
}

impl Accepted {
    /// Opens the connection with a filter chain of the listener.
    pub(crate) fn open(self, chain: usize) -> Arc<Connection> {
        let acceptor = self.acceptor;
        let is_retired = self.listener.retired().is_cancelled();
        let worker = Arc::clone(&acceptor.worker);
        let connection = Connection::new(worker, self.listener, chain, self.peer, self.permit);
        let connection = Arc::new(connection);
        acceptor.connections().push(Arc::downgrade(&connection));
        if is_retired {
            connection.start_drain(DRAIN_GRACE);
        }
        connection
    }

    /// Returns what counts the connection as open until its filter chain is selected.
    pub(crate) fn inspection(&self) -> Inspection {
        Inspection(Arc::clone(&self.acceptor))
    }
}

/// Counts a connection whose filter chain is being selected.
pub(crate) struct Inspection(Arc<Acceptor>);

impl Drop for Inspection {
    fn drop(&mut self) {
        self.0.inspecting.fetch_sub(1, Ordering::Relaxed);
    }
}

struct AcceptTask {
    /// The listener that new connections belong to.
    listener: Arc<ArcSwap<Listener>>,
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
        let listener = Arc::new(ArcSwap::new(listener));
        let work = accept(Arc::clone(acceptor), Arc::clone(&listener), socket, stopped);
        Ok(Self {
            listener,
            stop,
            task: tokio::spawn(work),
        })
    }

    fn serves(&self, listener: &Arc<Listener>) -> bool {
        Arc::ptr_eq(&self.listener.load(), listener)
    }

    /// Accepts the connections that are already in the accept queue, then stops.
    async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

async fn accept(
    acceptor: Arc<Acceptor>,
    listener: Arc<ArcSwap<Listener>>,
    socket: TcpListener,
    mut stopped: oneshot::Receiver<()>,
) {
    let name = listener.load().runtime().config.name.clone();
    let mut retry = AcceptRetry::new(name);
    loop {
        let next = async {
            retry.wait().await;
            acceptor.accept(&socket).await
        };
        let accepted = tokio::select! {
            accepted = next => accepted,
            _ = &mut stopped => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                acceptor.admit(stream, peer, &listener.load_full());
            }
            Err(error) => retry.failed(&error),
        }
    }
    // Accept the rest: closing the socket would reset connections in the accept queue.
    // The listener is retired, so that they are drained.
    let admit_last = |stream, peer| acceptor.admit(stream, peer, &listener.load_full());
    while let Ok(Ok((stream, peer))) =
        tokio::time::timeout(Duration::from_millis(5), socket.accept()).await
    {
        admit_last(stream, peer);
    }
    // The runtime may not have seen the newest ones yet: ask the kernel until it has none.
    let Ok(socket) = socket.into_std() else {
        return;
    };
    while let Ok((stream, peer)) = socket.accept() {
        let stream = stream.set_nonblocking(true).map(|()| stream);
        if let Ok(stream) = stream.and_then(TcpStream::from_std) {
            admit_last(stream, peer);
        }
    }
}

/// Binds a socket with `SO_REUSEPORT`, so that every worker can have a socket of its own and the
/// next process can take over the address. The socket gets no connections until [`listen`].
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
    Ok(socket.into())
}

/// Lets the kernel establish connections of a bound socket.
pub(crate) fn listen(socket: &StdListener) -> io::Result<()> {
    SockRef::from(socket).listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::tests::connection;

    fn acceptor(worker: &Arc<Worker>) -> Acceptor {
        Acceptor {
            worker: Arc::clone(worker),
            limit: Arc::default(),
            connections: Mutex::default(),
            inspecting: AtomicUsize::new(0),
        }
    }

    #[tokio::test]
    async fn connections_are_visited_until_they_close() {
        let [first, second] = [connection(), connection()];
        let acceptor = acceptor(&first.worker);
        assert_eq!(acceptor.open_connections(), 0);
        for connection in [&first, &second] {
            acceptor.connections().push(Arc::downgrade(connection));
        }
        assert_eq!(acceptor.open_connections(), 2);
        acceptor.start_drain(DRAIN_GRACE, |one| std::ptr::eq(one, &*first));
        assert_eq!(first.drain_level(), DrainLevel::Announce);
        assert_eq!(second.drain_level(), DrainLevel::Serve);
        drop(first);
        assert_eq!(acceptor.open_connections(), 1);
        let mut visited = 0;
        acceptor.for_each_connection(|one| {
            assert!(std::ptr::eq(one, &*second));
            visited += 1;
        });
        assert_eq!((visited, acceptor.connections().len()), (1, 1));
        // A connection whose filter chain is being selected is open.
        acceptor.inspecting.fetch_add(1, Ordering::Relaxed);
        assert_eq!(acceptor.open_connections(), 2);
    }

    #[tokio::test]
    async fn a_tick_advances_the_clock_and_checks_timeouts() {
        let connection = connection();
        let acceptor = acceptor(&connection.worker);
        acceptor.connections().push(Arc::downgrade(&connection));
        connection.start_drain(DRAIN_GRACE);
        for now in 1..=10 {
            acceptor.tick();
            assert_eq!(acceptor.worker.now(), now);
            assert_eq!(connection.drain_level(), DrainLevel::Announce);
        }
        acceptor.tick();
        assert_eq!(connection.drain_level(), DrainLevel::Drain);
    }

    #[test]
    fn a_bound_socket_gets_connections_once_it_listens() {
        let socket = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        assert!(std::net::TcpStream::connect(address).is_err());
        listen(&socket).unwrap();
        std::net::TcpStream::connect(address).unwrap();
        // Another worker has a socket of its own at the same address.
        bind(address).unwrap();
    }
}
