//! [`Exchange`]: one request, from its headers to the end of its response.
//!
//! Dropping the exchange finishes the request: counters are updated and the access log is written,
//! however the request ended. The response body owns it, or the tunnel after an upgrade.

use std::sync::Arc;
use std::time::Instant;

use http::{Response, Version};

use crate::access_log::{Outcome, PendingEntry};
use crate::body::BodyMeter;
use crate::connection::Connection;

#[derive(Debug)]
pub(crate) struct Exchange {
    connection: Arc<Connection>,
    started: Instant,
    status: u16,
    /// `None` if the request is not written to an access log.
    log: Option<Box<Log>>,
}

#[derive(Debug)]
struct Log {
    pending: Vec<PendingEntry>,
    outcome: Outcome,
    meter: Option<Arc<BodyMeter>>,
}

impl Exchange {
    /// Counts the request and starts measuring its duration.
    pub(crate) fn begin(connection: Arc<Connection>, version: Version) -> Self {
        connection.request_started(version);
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

    pub(crate) fn start_log(&mut self, pending: Vec<PendingEntry>, version: Version) {
        self.log = Some(Box::new(Log {
            pending,
            outcome: Outcome {
                protocol: protocol(version),
                peer: Some(self.connection.peer),
                ..Default::default()
            },
            meter: None,
        }));
    }

    pub(crate) const fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Updates the access log entry, if the request is logged.
    pub(crate) fn update_log(&mut self, change: impl FnOnce(&mut Outcome)) {
        if let Some(log) = &mut self.log {
            change(&mut log.outcome);
        }
    }

    pub(crate) fn set_request_meter(&mut self, meter: Arc<BodyMeter>) {
        if let Some(log) = &mut self.log {
            log.meter = Some(meter);
        }
    }

    pub(crate) fn record_response<B>(&mut self, response: &Response<B>) {
        self.status = response.status().as_u16();
        if let Some(log) = &mut self.log {
            for pending in &mut log.pending {
                pending.response(response.headers());
            }
        }
    }

    /// Counts bytes of the response body that were passed to the client.
    pub(crate) fn record_sent(&mut self, bytes: usize) {
        self.update_log(|outcome| outcome.bytes_sent += u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

pub(crate) fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.connection.request_finished(self.status);
        let Some(mut log) = self.log.take() else {
            return;
        };
        let outcome = &mut log.outcome;
        outcome.status = self.status;
        outcome.duration = self.started.elapsed();
        outcome.bytes_received = log.meter.map_or(0, |meter| meter.bytes());
        // The status is 0 only if the client disconnected before there was a response. A missing
        // end of the body would not show that: hyper does not poll empty bodies to their end.
        if self.status == 0 && outcome.flags.is_empty() {
            outcome.flags = "DC";
        }
        for pending in log.pending {
            pending.finish(outcome);
        }
    }
}
