//! Session of one host: its current stream, backoff and deadline.
//!
//! Timers, counters and actions belong to the manager.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::rng::Rng;
use plimsoll_core::time::Instant;

use super::frames::Frames;
use super::{CloseReason, ConnectionId, OobEvent};
use crate::backoff::BackoffBounds;
use crate::orca::{OrcaLimits, parse_message};

/// State of one host. `deadline`: of the watchdog with an open stream, else of the next attempt.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) hostname: Arc<str>,
    /// Reset when a report arrives.
    pub(super) backoff: BackoffBounds,
    pub(super) deadline: Option<Instant>,
    pub(super) stream: Option<Stream>,
    pub(super) terminated: bool,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: ConnectionId,
    frames: Frames,
    going_away: bool,
}

impl Session {
    pub(super) fn new(hostname: Arc<str>) -> Self {
        Self {
            hostname,
            backoff: BackoffBounds::default(),
            deadline: None,
            stream: None,
            terminated: false,
        }
    }

    /// Appends the reports of an event to `reports`; returns why the stream ended, if it did.
    pub(super) fn handle_event(
        &mut self,
        event: OobEvent<'_>,
        reports: &mut Vec<OrcaLoadReport>,
    ) -> Option<CloseReason> {
        let end = self.stream.as_mut()?.handle_event(event, reports);
        if !reports.is_empty() {
            self.backoff.reset();
        }
        end
    }
}

impl Stream {
    pub(super) fn new(connection: ConnectionId) -> Self {
        Self {
            connection,
            frames: Frames::default(),
            going_away: false,
        }
    }

    fn handle_event(
        &mut self,
        event: OobEvent<'_>,
        reports: &mut Vec<OrcaLoadReport>,
    ) -> Option<CloseReason> {
        match event {
            OobEvent::Closed => Some(CloseReason::ConnectionClosed),
            OobEvent::ConnectFailed => Some(CloseReason::ConnectFailed),
            OobEvent::Data { bytes, end_stream } => self.handle_data(bytes, end_stream, reports),
            OobEvent::GoAway { no_error: false } => Some(CloseReason::GoAway),
            OobEvent::GoAway { no_error: true } => {
                self.going_away = true;
                None
            }
            OobEvent::Headers(headers) => headers.end(),
            OobEvent::Reset => Some(CloseReason::StreamReset),
            OobEvent::Trailers { grpc_status } => Some(CloseReason::of_status(grpc_status)),
        }
    }

    fn handle_data(
        &mut self,
        bytes: &[u8],
        end_stream: bool,
        reports: &mut Vec<OrcaLoadReport>,
    ) -> Option<CloseReason> {
        let read = self.frames.push(bytes, |message| {
            let report = parse_message(message, &OrcaLimits::default());
            reports.push(report.map_err(|_| CloseReason::InvalidReport)?);
            Ok(())
        });
        match read {
            Err(reason) => Some(reason),
            Ok(()) if end_stream => Some(CloseReason::NoTrailers),
            // Graceful GOAWAY: the data in flight has arrived now.
            Ok(()) => self.going_away.then_some(CloseReason::GoAway),
        }
    }
}

/// Draws a random number of whole milliseconds below `bound`.
pub(super) fn draw(rng: &mut impl Rng, bound: Duration) -> Duration {
    let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(rng.next_u64() % millis.max(1))
}
