//! Load generator with fixed proportions between its sources.
//!
//! All sources advance in lockstep: a tick is over when every source has its responses. A slow
//! machine makes traffic slower but does not change its distribution over zones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_testing::http::Connection;

/// Target address, zone in which requests are counted, and requests per tick.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) to: SocketAddr,
    pub(crate) from: String,
    pub(crate) per_tick: u64,
}

/// Running load generator; stopped when dropped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    /// Requests per tick, by source.
    per_tick: Vec<Arc<AtomicU64>>,
    conductor: Option<JoinHandle<()>>,
}

/// Counts the requests of a load generator.
pub(crate) struct Meter(Arc<Shared>);

impl Meter {
    /// Number of responses with status 200.
    pub(crate) fn succeeded(&self) -> u64 {
        self.0.succeeded.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Load {
    /// Starts the load; a tick of zero means full speed.
    pub(crate) fn start(sources: &[Source], tick: Duration) -> Self {
        Self::conduct(sources, tick, Duration::ZERO)
    }

    /// Starts the load and catches up on late ticks, so that the rate is exact. Longer pauses of
    /// the machine are not caught up on.
    pub(crate) fn start_at_rate(sources: &[Source], tick: Duration) -> Self {
        Self::conduct(sources, tick, 2 * tick)
    }

    fn conduct(sources: &[Source], tick: Duration, catch_up: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let (done, completions) = channel();
        let per_tick: Vec<_> = sources
            .iter()
            .map(|source| Arc::new(source.per_tick.into()))
            .collect();
        let workers: Vec<Sender<()>> = sources
            .iter()
            .zip(&per_tick)
            .map(|(source, per_tick)| {
                let (start_tick, ticks) = channel();
                let worker = Worker {
                    source: source.clone(),
                    per_tick: Arc::clone(per_tick),
                    shared: Arc::clone(&shared),
                };
                let done = done.clone();
                thread::spawn(move || worker.work(&ticks, &done));
                start_tick
            })
            .collect();
        let conducted = Arc::clone(&shared);
        let conductor = thread::spawn(move || {
            let mut next = Instant::now();
            while !conducted.stop.load(Ordering::Relaxed) {
                next = (next + tick).max(Instant::now() + tick - catch_up);
                for worker in &workers {
                    worker.send(()).unwrap();
                }
                for _ in &workers {
                    completions.recv().unwrap();
                }
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        Self {
            shared,
            per_tick,
            conductor: Some(conductor),
        }
    }

    /// Changes the requests per tick of every source, from the next tick on.
    pub(crate) fn set(&self, per_tick: &[u64]) {
        assert_eq!(per_tick.len(), self.per_tick.len());
        for (known, count) in self.per_tick.iter().zip(per_tick) {
            known.store(*count, Ordering::Relaxed);
        }
    }

    /// Number of responses with status 200.
    pub(crate) fn succeeded(&self) -> u64 {
        self.shared.succeeded.load(Ordering::Relaxed)
    }

    /// Returns a counter for another thread.
    pub(crate) fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.shared))
    }

    /// Number of all other requests.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(conductor) = self.conductor.take() {
            // A panic of a worker was already printed.
            let _ = conductor.join();
        }
    }
}

/// Thread of one source.
struct Worker {
    source: Source,
    per_tick: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Worker {
    fn work(&self, ticks: &Receiver<()>, done: &Sender<()>) {
        let from = &self.source.from;
        let head = format!("GET / HTTP/1.1\r\nhost: test\r\nx-from: {from}\r\n\r\n");
        let mut connection = None;
        while ticks.recv().is_ok() {
            for _ in 0..self.per_tick.load(Ordering::Relaxed) {
                let mut kept = match connection.take() {
                    Some(kept) => Ok(kept),
                    None => Connection::open(self.source.to),
                };
                let response = kept.as_mut().map(|kept| kept.request(&head));
                if let Ok(Ok((200, _))) = response {
                    self.shared.succeeded.fetch_add(1, Ordering::Relaxed);
                    connection = kept.ok();
                } else {
                    self.shared.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            // The conductor may have stopped.
            let _ = done.send(());
        }
    }
}
