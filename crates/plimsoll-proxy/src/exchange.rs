//! [`Exchange`]: the life of one request, from its header to the end of its response.
//!
//! Dropping it ends it: counters and the access log are then written, whatever happened. It travels
//! in the response's body, or in the tunnel that an upgrade became.

use std::sync::Arc;
use std::time::Instant;

use http::{Response, Version};

use crate::access_log::{Outcome, Pending};
use crate::body::RequestWatch;
use crate::connection::Connection;

/// The life of one request.
#[derive(Debug)]
pub(crate) struct Exchange {
    connection: Arc<Connection>,
    started: Instant,
    status: u16,
    /// Only for requests that are logged.
    log: Option<Box<Log>>,
}

#[derive(Debug)]
struct Log {
    pending: Vec<Pending>,
    outcome: Outcome,
    watch: Option<Arc<RequestWatch>>,
}

impl Exchange {
    /// A request begins.
    pub(crate) fn begin(connection: Arc<Connection>, version: Version) -> Self {
        connection.request_begins(version);
        Self {
            connection,
            started: Instant::now(),
            status: 0,
            log: None,
        }
    }

    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    /// This request is logged.
    pub(crate) fn log(&mut self, pending: Vec<Pending>, version: Version) {
        self.log = Some(Box::new(Log {
            pending,
            outcome: Outcome {
                protocol: protocol(version),
                peer: Some(self.connection.peer),
                ..Default::default()
            },
            watch: None,
        }));
    }

    /// Whether this request is logged.
    pub(crate) const fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Changes what is logged, if anything is.
    pub(crate) fn note(&mut self, change: impl FnOnce(&mut Outcome)) {
        if let Some(log) = &mut self.log {
            change(&mut log.outcome);
        }
    }

    /// Where bytes of the request are counted.
    pub(crate) fn watch(&mut self, watch: Arc<RequestWatch>) {
        if let Some(log) = &mut self.log {
            log.watch = Some(watch);
        }
    }

    /// There is a response.
    pub(crate) fn response<B>(&mut self, response: &Response<B>) {
        self.status = response.status().as_u16();
        if let Some(log) = &mut self.log {
            for pending in &mut log.pending {
                pending.response(response.headers());
            }
        }
    }

    /// Bytes of the response were handed on.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.note(|outcome| outcome.bytes_sent += u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

/// Its name in logs and headers.
pub(crate) fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.connection.request_ends(self.status);
        let Some(mut log) = self.log.take() else {
            return;
        };
        let outcome = &mut log.outcome;
        outcome.status = self.status;
        outcome.duration = self.started.elapsed();
        outcome.bytes_received = log.watch.map_or(0, |watch| watch.bytes());
        // Bodies that end with their header are never asked for their end.
        if self.status == 0 && outcome.flags.is_empty() {
            outcome.flags = "DC";
        }
        for pending in log.pending {
            pending.finish(outcome);
        }
    }
}
