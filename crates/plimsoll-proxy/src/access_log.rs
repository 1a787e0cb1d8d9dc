//! Access logs: one line per request, written by a dedicated thread.
//!
//! A logged request carries a [`PendingEntry`] with the headers that the log format needs; the line
//! is rendered when the response has ended. Lines go through a bounded queue: if the disk is too
//! slow, lines are dropped and counted, and requests never block. Formats are in `format`.

mod format;
pub(crate) mod time;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use plimsoll_core::log_line;

pub use crate::substitution::FormatError;
pub use format::{JsonTemplate, LogFormat};

use crate::config::AccessLogConfig;
use crate::log_lines;
use crate::router::RequestView;

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
    dropped: AtomicU64,
    written: Arc<AtomicU64>,
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

    /// Returns the number of lines written and the number of lines dropped.
    pub fn counts(&self) -> (u64, u64) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let sinks = open.values();
        sinks.fold((0, 0), |(written, dropped), sink| {
            (
                written + sink.written.load(Ordering::Relaxed),
                dropped + sink.dropped.load(Ordering::Relaxed),
            )
        })
    }
}

impl Sink {
    fn start(path: Option<PathBuf>) -> io::Result<Self> {
        let (lines, queue) = sync_channel(QUEUE_CAPACITY);
        let written = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&written);
        let output: Box<dyn Write + Send> = match path {
            Some(path) => Box::new(OpenOptions::new().create(true).append(true).open(path)?),
            None => Box::new(io::stdout()),
        };
        let name = "access-log".to_owned();
        thread::Builder::new()
            .name(name)
            .spawn(move || write_lines(&queue, output, &count))?;
        Ok(Self {
            lines,
            dropped: AtomicU64::new(0),
            written,
        })
    }

    fn send(&self, line: Vec<u8>) {
        match self.lines.try_send(line) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Runs the writer thread of one file; ends when the last sender is dropped.
fn write_lines(queue: &Receiver<Vec<u8>>, output: impl Write, written: &AtomicU64) {
    let mut output = BufWriter::with_capacity(64 << 10, output);
    while let Ok(line) = queue.recv() {
        let mut lines = 1;
        let mut result = output.write_all(&line);
        while let Ok(line) = queue.try_recv() {
            lines += 1;
            result = result.and_then(|()| output.write_all(&line));
        }
        if let Err(error) = result.and_then(|()| output.flush()) {
            log_line!(log_lines::ACCESS_LOG_FAILED, %error);
            return;
        }
        written.fetch_add(lines, Ordering::Relaxed);
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
