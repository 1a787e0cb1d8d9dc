//! Access logs: one line per request, written by a thread of its own.
//!
//! A request that is logged carries a [`Pending`] with what must be remembered of its header; the
//! line is made when the response has ended. Lines go over a bounded queue: a slow disk costs lines
//! (counted), never requests. Formats are in `format`.

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

pub use format::{JsonTemplate, LogFormat};

use crate::config::AccessLogConfig;
use crate::router::RequestView;

/// Lines that may wait for the disk.
const QUEUE: usize = 8192;

/// All sinks of a process, by path: listeners that log to one file share it.
#[derive(Debug, Default)]
pub struct Sinks {
    open: std::sync::Mutex<BTreeMap<Option<PathBuf>, Arc<Sink>>>,
}

/// One file or standard output, and the thread that writes to it.
#[derive(Debug)]
pub struct Sink {
    lines: SyncSender<Vec<u8>>,
    dropped: AtomicU64,
    written: Arc<AtomicU64>,
}

/// One log of a listener.
#[derive(Clone, Debug)]
pub struct AccessLog {
    format: Arc<LogFormat>,
    sink: Arc<Sink>,
}

/// A request that will be logged.
#[derive(Debug)]
pub struct Pending {
    log: AccessLog,
    start: SystemTime,
    request: Vec<Option<HeaderValue>>,
    response: Vec<Option<HeaderValue>>,
}

/// What is known when a request has ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// Status; 0 when the client went away before there was one.
    pub status: u16,
    /// Envoy's short words for what went wrong.
    pub flags: &'static str,
    /// Bytes of the request's body.
    pub bytes_received: u64,
    /// Bytes of the response's body.
    pub bytes_sent: u64,
    /// From the first byte of the header to the last of the response.
    pub duration: Duration,
    /// The cluster, if any.
    pub cluster: Option<Arc<str>>,
    /// The host, if any.
    pub upstream_host: Option<std::net::SocketAddr>,
    /// The route, may be empty.
    pub route: Arc<str>,
    /// The client.
    pub peer: Option<std::net::SocketAddr>,
}

impl Sinks {
    /// The sink for `config`, opened when it is new.
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

    /// Lines written and lines dropped so far.
    pub fn counts(&self) -> (u64, u64) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let sinks = open.values();
        sinks.fold((0, 0), |(written, dropped), sink| {
            let more = sink.dropped.load(Ordering::Relaxed);
            (
                written + sink.written.load(Ordering::Relaxed),
                dropped + more,
            )
        })
    }
}

impl Sink {
    fn start(path: Option<PathBuf>) -> io::Result<Self> {
        let (lines, queue) = sync_channel(QUEUE);
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

/// Ends with the last sender.
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
            tracing::error!(%error, "the access log cannot be written");
            return;
        }
        written.fetch_add(lines, Ordering::Relaxed);
    }
}

impl AccessLog {
    /// Remembers what the format wants of a request.
    pub fn begin(&self, request: &RequestView<'_>) -> Pending {
        Pending {
            request: self.format.capture_request(request),
            response: Vec::new(),
            start: SystemTime::now(),
            log: self.clone(),
        }
    }
}

impl Pending {
    /// Remembers what the format wants of a response.
    pub fn response(&mut self, headers: &HeaderMap) {
        self.response = self.log.format.capture_response(headers);
    }

    /// The response has ended.
    pub fn finish(self, outcome: &Outcome) {
        let line = self.log.format.line(&self, outcome);
        self.log.sink.send(line);
    }
}

#[cfg(test)]
mod tests;
