//! Access logs: one line per request, written by a dedicated thread.
//!
//! A logged request carries a [`PendingEntry`] with the headers that the log format needs; the line
//! is rendered when the response has ended. Lines go through a bounded queue: if the disk is too
//! slow, lines are dropped and counted, and requests never block. Formats are in `format`.

mod format;
pub(crate) mod time;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};

pub use crate::substitution::FormatError;
pub use format::{JsonTemplate, LogFormat};

use crate::config::AccessLogConfig;
use crate::router::RequestView;
use writer::{LogFile, Shared, Writer};

/// Lines that may be queued per file; more are dropped.
const QUEUE_CAPACITY: usize = 8192;

/// All open log files, by path. Access logs with the same path share one file.
#[derive(Debug, Default)]
pub struct Sinks {
    open: std::sync::Mutex<BTreeMap<Option<PathBuf>, Arc<Sink>>>,
}

/// A log file, or standard output, with its writer thread.
#[derive(Debug)]
pub struct Sink {
    lines: SyncSender<Vec<u8>>,
    shared: Arc<Shared>,
}

/// Lines and errors of all access logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    pub completed: u64,
    pub dropped: u64,
    pub failed: u64,
    pub reopen_failed: u64,
}

/// One access log of a listener.
#[derive(Clone, Debug)]
pub struct AccessLog {
    format: Arc<LogFormat>,
    sink: Arc<Sink>,
}

/// Log entry of a request that has not ended.
#[derive(Debug)]
pub struct PendingEntry {
    log: AccessLog,
    start: SystemTime,
    request: Vec<Option<HeaderValue>>,
    response: Vec<Option<HeaderValue>>,
}

/// Values for the access log that are known when a request has ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub protocol: &'static str,
    /// Status code; 0 if the client disconnected before there was a response.
    pub status: u16,
    /// Envoy's response flags; empty if nothing failed.
    pub flags: &'static str,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Time from the arrival of the request headers to the end of the response.
    pub duration: Duration,
    pub cluster: Option<Arc<str>>,
    pub upstream_host: Option<std::net::SocketAddr>,
    pub route: Arc<str>,
    pub peer: Option<std::net::SocketAddr>,
    /// `grpc-status` of the response.
    pub grpc_status: Option<HeaderValue>,
}

impl Sinks {
    /// Opens an access log, sharing its file with logs of the same path.
    pub fn open(&self, config: &AccessLogConfig) -> io::Result<AccessLog> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let sink = match open.get(&config.path) {
            Some(sink) => Arc::clone(sink),
            None => {
                let sink = Arc::new(Sink::start(config.path.clone())?);
                open.insert(config.path.clone(), Arc::clone(&sink));
                sink
            }
        };
        Ok(AccessLog {
            format: Arc::clone(&config.format),
            sink,
        })
    }

    /// Opens all files again, for programs that rotate logs: a moved file is written until this.
    pub fn reopen(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for sink in open.values() {
            sink.shared.reopen.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the number of lines written and dropped, and of errors.
    pub fn counts(&self) -> WriteCounts {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = WriteCounts::default();
        for sink in open.values() {
            counts.completed += sink.shared.completed.load(Ordering::Relaxed);
            counts.dropped += sink.shared.dropped.load(Ordering::Relaxed);
            counts.failed += sink.shared.failed.load(Ordering::Relaxed);
            counts.reopen_failed += sink.shared.reopen_failed.load(Ordering::Relaxed);
        }
        counts
    }
}

impl Sink {
    fn start(path: Option<PathBuf>) -> io::Result<Self> {
        let (lines, queue) = sync_channel(QUEUE_CAPACITY);
        let shared = Arc::new(Shared::default());
        let writer = Writer::new(LogFile::open(path)?, Arc::clone(&shared));
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&queue))?;
        Ok(Self { lines, shared })
    }

    fn send(&self, line: Vec<u8>) {
        if self.lines.try_send(line).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl AccessLog {
    /// Starts the entry of a request with the values that the format needs.
    pub fn begin(&self, request: &RequestView<'_>) -> PendingEntry {
        PendingEntry {
            request: self.format.capture_request(request),
            response: Vec::new(),
            start: SystemTime::now(),
            log: self.clone(),
        }
    }
}

impl PendingEntry {
    /// Captures the response headers that the format needs.
    pub fn response(&mut self, headers: &HeaderMap) {
        self.response = self.log.format.capture_response(headers);
    }

    /// Renders the line and queues it for the writer thread.
    pub fn finish(self, outcome: &Outcome) {
        let line = self.log.format.line(&self, outcome);
        self.log.sink.send(line);
    }
}

#[cfg(test)]
mod tests;
