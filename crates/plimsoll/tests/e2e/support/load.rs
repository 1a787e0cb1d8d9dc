//! [`Load`]: paced requests in fixed proportions.
//!
//! All sources move in step: a tick is over when every source has its answers. So a slow machine
//! makes traffic slower and never changes how it is spread over zones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::http::Connection;

/// Where requests enter, as what they are counted, and how many per tick.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) to: SocketAddr,
    pub(crate) from: String,
    pub(crate) per_tick: u64,
}

/// Traffic until it is stopped or dropped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    /// Requests per tick, by source.
    per_tick: Vec<Arc<AtomicU64>>,
    conductor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Load {
    /// Starts. A tick of zero is as fast as it goes.
    pub(crate) fn start(sources: &[Source], tick: Duration) -> Self {
        Self::conduct(sources, tick, Duration::ZERO)
    }

    /// The same, and a tick that was late is made up for, so that the rate is what was asked for.
    /// A pause of the machine is not made up for.
    pub(crate) fn start_at_rate(sources: &[Source], tick: Duration) -> Self {
        Self::conduct(sources, tick, 2 * tick)
    }

    fn conduct(sources: &[Source], tick: Duration, made_up: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let (done, answers) = channel();
        let per_tick = sources.iter().map(|source| source.per_tick);
        let per_tick: Vec<_> = per_tick.map(|count| Arc::new(count.into())).collect();
        let workers: Vec<Sender<()>> = sources
            .iter()
            .zip(&per_tick)
            .map(|(source, per_tick)| {
                let (go, orders) = channel();
                let worker = Worker {
                    source: source.clone(),
                    per_tick: Arc::clone(per_tick),
                    shared: Arc::clone(&shared),
                };
                let done = done.clone();
                thread::spawn(move || worker.work(&orders, &done));
                go
            })
            .collect();
        let conducted = Arc::clone(&shared);
        let conductor = thread::spawn(move || {
            let mut next = Instant::now();
            while !conducted.stop.load(Ordering::Relaxed) {
                next = (next + tick).max(Instant::now() + tick - made_up);
                for worker in &workers {
                    worker.send(()).unwrap();
                }
                for _ in &workers {
                    answers.recv().unwrap();
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

    /// Other requests per tick, by source, from the next tick on.
    pub(crate) fn set(&self, per_tick: &[u64]) {
        assert_eq!(per_tick.len(), self.per_tick.len());
        for (known, count) in self.per_tick.iter().zip(per_tick) {
            known.store(*count, Ordering::Relaxed);
        }
    }

    /// Requests that were answered with 200.
    pub(crate) fn succeeded(&self) -> u64 {
        self.shared.succeeded.load(Ordering::Relaxed)
    }

    /// Requests that were not.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(conductor) = self.conductor.take() {
            // A worker that panicked has said so.
            let _ = conductor.join();
        }
    }
}

/// One source at work.
struct Worker {
    source: Source,
    per_tick: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Worker {
    fn work(&self, orders: &Receiver<()>, done: &Sender<()>) {
        let from = &self.source.from;
        let head = format!("GET / HTTP/1.1\r\nhost: test\r\nx-from: {from}\r\n\r\n");
        let mut connection = None;
        while orders.recv().is_ok() {
            for _ in 0..self.per_tick.load(Ordering::Relaxed) {
                let mut kept = match connection.take() {
                    Some(kept) => Ok(kept),
                    None => Connection::open(self.source.to),
                };
                let answer = kept.as_mut().map(|kept| kept.request(&head));
                if let Ok(Ok((200, _))) = answer {
                    self.shared.succeeded.fetch_add(1, Ordering::Relaxed);
                    connection = kept.ok();
                } else {
                    self.shared.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            // Without a conductor there is nobody to tell.
            let _ = done.send(());
        }
    }
}
