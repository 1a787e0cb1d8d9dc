//! Load that does not wait for responses: requests start at fixed times, as those of many clients
//! who do not know each other.
//!
//! A window has the requests that started in it, whenever they end, so that hosts which answer late
//! or never change no proportions.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::wait_until;

/// After this time a client gives up, before Envoy's timeout of 15 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Requests that started in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn failed_share(self) -> f64 {
        self.failed as f64 / self.sent.max(1) as f64
    }

    pub(crate) const fn is_complete(self) -> bool {
        self.sent == self.succeeded + self.failed
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }
}

/// Running load on several targets; stopped when dropped.
pub(crate) struct OpenLoad {
    windows: Vec<Window>,
    per_tick: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The present window of one target, and its requests.
type Window = Arc<Mutex<Arc<Mutex<Tally>>>>;
/// Connections without a request.
type Idle = Rc<RefCell<Vec<BufReader<TcpStream>>>>;

impl OpenLoad {
    /// Starts requests to targets with the zones where they are counted, none at first.
    pub(crate) fn start(targets: &[(SocketAddr, String)], tick: Duration) -> Self {
        let windows: Vec<Window> = targets.iter().map(|_| Window::default()).collect();
        let per_tick: Vec<_> = targets
            .iter()
            .map(|_| Arc::<AtomicU64>::default())
            .collect();
        let stop = Arc::<AtomicBool>::default();
        let sources = targets.iter().zip(&windows).zip(&per_tick);
        let sources: Vec<_> = sources
            .map(|(((to, from), window), per_tick)| Source {
                to: *to,
                head: format!("GET / HTTP/1.1\r\nhost: test\r\nx-from: {from}\r\n\r\n"),
                window: Arc::clone(window),
                per_tick: Arc::clone(per_tick),
            })
            .collect();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, send(sources, tick, &stopped));
        });
        Self {
            windows,
            per_tick,
            stop,
            thread: Some(thread),
        }
    }

    /// Changes the requests per tick of every target.
    pub(crate) fn set(&self, per_tick: &[u64]) {
        assert_eq!(per_tick.len(), self.per_tick.len());
        for (known, count) in self.per_tick.iter().zip(per_tick) {
            known.store(*count, Ordering::Relaxed);
        }
    }

    /// Returns the requests of the present window that have been sent to all targets.
    pub(crate) fn sent(&self) -> u64 {
        let sent = |window: &Window| window.lock().unwrap().lock().unwrap().sent;
        self.windows.iter().map(sent).sum()
    }

    /// Begins the next window, and returns the last one, whose requests may not have ended.
    pub(crate) fn end_window(&self) -> EndedWindow {
        let next = |window: &Window| std::mem::take(&mut *window.lock().unwrap());
        EndedWindow(self.windows.iter().map(next).collect())
    }
}

/// A window in which no more requests start.
pub(crate) struct EndedWindow(Vec<Arc<Mutex<Tally>>>);

impl EndedWindow {
    /// Returns the requests by target when all have ended.
    pub(crate) fn wait(self) -> Vec<Tally> {
        let tally = |window: &Arc<Mutex<Tally>>| *window.lock().unwrap();
        wait_until("requests end", || {
            self.0.iter().all(|window| tally(window).is_complete())
        });
        self.0.iter().map(tally).collect()
    }
}

impl Drop for OpenLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

struct Source {
    to: SocketAddr,
    head: String,
    window: Window,
    per_tick: Arc<AtomicU64>,
}

async fn send(sources: Vec<Source>, tick: Duration, stop: &AtomicBool) {
    let sources: Vec<_> = sources
        .into_iter()
        .map(|source| (Rc::new(source), Idle::default()))
        .collect();
    let mut ticks = interval(tick);
    // All targets lose the same ticks on a busy machine.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        for (source, idle) in &sources {
            for _ in 0..source.per_tick.load(Ordering::Relaxed) {
                tokio::task::spawn_local(request(Rc::clone(source), Rc::clone(idle)));
            }
        }
    }
}

async fn request(source: Rc<Source>, idle: Idle) {
    let window = Arc::clone(&source.window.lock().unwrap());
    window.lock().unwrap().sent += 1;
    let kept = idle.borrow_mut().pop();
    let answer = timeout(PATIENCE, answer(&source, kept)).await;
    let mut tally = window.lock().unwrap();
    match answer {
        Ok(Ok((status, connection))) => {
            idle.borrow_mut().push(connection);
            if status == 200 {
                tally.succeeded += 1;
            } else {
                tally.failed += 1;
            }
        }
        _ => tally.failed += 1,
    }
}

async fn answer(
    source: &Source,
    kept: Option<BufReader<TcpStream>>,
) -> std::io::Result<(u16, BufReader<TcpStream>)> {
    let mut connection = match kept {
        Some(connection) => connection,
        None => {
            let stream = TcpStream::connect(source.to).await?;
            stream.set_nodelay(true)?;
            BufReader::new(stream)
        }
    };
    connection.write_all(source.head.as_bytes()).await?;
    let mut status = None;
    let mut length = 0;
    let mut line = String::new();
    while connection.read_line(&mut line).await? > 2 {
        let lower = line.trim_end().to_ascii_lowercase();
        if status.is_none() {
            status = lower.split(' ').nth(1).and_then(|code| code.parse().ok());
        }
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
        line.clear();
    }
    let status = status.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    Ok((status, connection))
}
