//! Exporters: send spans to collectors, on a thread with a Tokio runtime of its own.
//!
//! A worker only puts a span into a bounded queue. Batching, encoding, connections and retries
//! happen on the thread `trace-export`, so neither a slow nor a dead collector delays a request,
//! and a proxy with one worker cannot wait for itself. Spans that do not fit into the queue, or
//! that the collector does not take, are dropped and counted.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_client::Client;
use plimsoll_core::log_line;
use plimsoll_serve::CancellationToken;
use plimsoll_serve::otlp::{ExportRequest, KeyValue};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::otlp::{self, ExportError};
use super::span::SpanRecord;
use crate::config::{CollectorConfig, NodeConfig};
use crate::log_lines;

/// Most spans of one export request, as OpenTelemetry's batch processors have by default.
const BATCH: usize = 512;
/// Time that a span waits for others to be exported with.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Attempts to export a batch; the waiting time between them doubles. Spans of two seconds are
/// kept; with more, the queue would drop newer spans in favor of older ones.
const ATTEMPTS: u32 = 3;
const BACKOFF: Duration = Duration::from_millis(500);
/// Limit of the time that a shutdown waits for the last spans.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Spans of an export request, boxed as they came from the queue.
type Batch = Vec<Box<SpanRecord>>;

/// Spans that were exported and dropped, over all collectors.
#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// All exporters of a proxy, and their thread, which starts with the first of them.
#[derive(Debug)]
pub(crate) struct Exporters {
    client: Client,
    /// Connection pool of the thread.
    pool: usize,
    /// Attributes of the proxy in every span.
    node: Arc<[KeyValue]>,
    counters: Arc<Counters>,
    running: Mutex<Running>,
    /// Canceled to export what is queued and end.
    stopping: CancellationToken,
    /// Canceled to end the thread.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Running {
    runtime: Option<Handle>,
    exporters: Vec<(Arc<CollectorConfig>, Weak<Exporter>)>,
    tasks: Vec<JoinHandle<()>>,
}

/// Queue of the spans for one collector. Its task ends when the last listener with the collector
/// is gone.
#[derive(Debug)]
pub(crate) struct Exporter {
    spans: mpsc::Sender<Box<SpanRecord>>,
    counters: Arc<Counters>,
}

impl Exporter {
    pub(super) fn send(&self, span: Box<SpanRecord>) {
        if self.spans.try_send(span).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Exporters {
    /// `pool` is the connection pool of the client that nothing else uses.
    pub(crate) fn new(client: Client, pool: usize, node: &NodeConfig) -> Self {
        Self {
            client,
            pool,
            node: Arc::new([
                KeyValue::text("node_id", &node.id),
                KeyValue::text("zone", node.locality.zone()),
            ]),
            counters: Arc::default(),
            running: Mutex::default(),
            stopping: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Returns the exporter for a collector, shared by the listeners that name the same.
    pub(crate) fn open(&self, collector: &Arc<CollectorConfig>) -> io::Result<Arc<Exporter>> {
        let mut running = self.lock();
        running.tasks.retain(|task| !task.is_finished());
        running.exporters.retain(|(_, of)| of.strong_count() > 0);
        let mut exporters = running.exporters.iter();
        let same = exporters.find(|(known, _)| known == collector);
        if let Some(exporter) = same.and_then(|(_, exporter)| exporter.upgrade()) {
            return Ok(exporter);
        }
        let runtime = match &running.runtime {
            Some(runtime) => runtime.clone(),
            None => running.runtime.insert(self.start_thread()?).clone(),
        };
        let (spans, queue) = mpsc::channel(collector.max_cache_size);
        let task = ExportTask {
            client: self.client.clone(),
            pool: self.pool,
            node: Arc::clone(&self.node),
            collector: Arc::clone(collector),
            counters: Arc::clone(&self.counters),
            stopping: self.stopping.clone(),
            is_failing: false,
        };
        running.tasks.push(runtime.spawn(task.run(queue)));
        let exporter = Arc::new(Exporter {
            spans,
            counters: Arc::clone(&self.counters),
        });
        let entry = (Arc::clone(collector), Arc::downgrade(&exporter));
        running.exporters.push(entry);
        Ok(exporter)
    }

    fn start_thread(&self) -> io::Result<Handle> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let ended = self.ended.clone();
        std::thread::Builder::new()
            .name("trace-export".to_owned())
            .spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(handle)
    }

    /// Exports the spans that are queued, for at most [`SHUTDOWN_TIMEOUT`], and ends the thread.
    pub(crate) async fn shut_down(&self) {
        self.stopping.cancel();
        let tasks = std::mem::take(&mut self.lock().tasks);
        let all = async {
            for task in tasks {
                // A task that panicked has nothing more to export.
                let _ = task.await;
            }
        };
        // Spans that are not exported by now are lost, as the process ends.
        let _ = timeout(SHUTDOWN_TIMEOUT, all).await;
        self.ended.cancel();
    }

    /// Returns the numbers of spans sent and dropped.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.counters.sent), load(&self.counters.dropped))
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Exporters {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Task that exports the spans of one queue.
struct ExportTask {
    client: Client,
    pool: usize,
    node: Arc<[KeyValue]>,
    collector: Arc<CollectorConfig>,
    counters: Arc<Counters>,
    stopping: CancellationToken,
    is_failing: bool,
}

impl ExportTask {
    async fn run(mut self, mut queue: mpsc::Receiver<Box<SpanRecord>>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let is_open = self.collect(&mut queue, &mut batch).await;
            if !batch.is_empty() {
                self.export(&mut batch).await;
            }
            if !is_open {
                return;
            }
        }
    }

    /// Collects a batch: full, or with all spans of an interval. Returns false after the last.
    async fn collect(
        &self,
        queue: &mut mpsc::Receiver<Box<SpanRecord>>,
        batch: &mut Batch,
    ) -> bool {
        let first = tokio::select! {
            received = queue.recv_many(batch, BATCH) => received,
            () = self.stopping.cancelled() => 0,
        };
        let deadline = Instant::now() + FLUSH_INTERVAL;
        let mut is_open = first > 0;
        while is_open && batch.len() < BATCH {
            let more = queue.recv_many(batch, BATCH - batch.len());
            tokio::select! {
                received = timeout_at(deadline, more) => match received {
                    Ok(received) => is_open = received > 0,
                    Err(_) => return true,
                },
                () = self.stopping.cancelled() => break,
            }
        }
        if self.stopping.is_cancelled() {
            while batch.len() < BATCH
                && let Ok(span) = queue.try_recv()
            {
                batch.push(span);
            }
            return !queue.is_empty();
        }
        is_open
    }

    /// Exports a batch, or drops it after [`ATTEMPTS`].
    async fn export(&mut self, batch: &mut Batch) {
        let count = batch.len() as u64;
        let message = self.message(batch);
        let mut rejected = count;
        for attempt in 0..ATTEMPTS {
            let client = &self.client;
            let result = otlp::export(client, self.pool, &self.collector, message.clone()).await;
            match result {
                Ok(refused) => {
                    rejected = refused.min(count);
                    self.log_success();
                    break;
                }
                Err(error) => {
                    self.log_failure(&error);
                    if !error.retriable || !self.back_off(attempt).await {
                        break;
                    }
                }
            }
        }
        let counters = &self.counters;
        counters.sent.fetch_add(count - rejected, Ordering::Relaxed);
        counters.dropped.fetch_add(rejected, Ordering::Relaxed);
    }

    /// Waits before another attempt; returns false if there is none.
    async fn back_off(&self, attempt: u32) -> bool {
        if attempt + 1 == ATTEMPTS {
            return false;
        }
        tokio::select! {
            () = sleep(BACKOFF * 2_u32.pow(attempt)) => true,
            // A shutdown has no time for further attempts.
            () = self.stopping.cancelled() => false,
        }
    }

    fn message(&self, batch: &mut Batch) -> Bytes {
        let spans = batch.drain(..).map(|span| span.into_otlp(&self.node));
        let program = [
            ("service.name", &*self.collector.service_name),
            ("telemetry.sdk.name", "plimsoll"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        let message = ExportRequest::new(program, spans.collect());
        otlp::encode(&message, self.collector.protocol)
    }

    fn log_failure(&mut self, error: &ExportError) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let (cluster, error) = (&self.collector.cluster, &error.reason);
            log_line!(log_lines::SPANS_NOT_EXPORTED, cluster, %error);
        }
    }

    fn log_success(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            let cluster = &self.collector.cluster;
            log_line!(log_lines::SPANS_EXPORTED_AGAIN, cluster);
        }
    }
}

#[cfg(test)]
mod tests;
