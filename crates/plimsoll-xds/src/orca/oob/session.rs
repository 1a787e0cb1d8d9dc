//! [`Session`]: what is remembered about one host, and what events on its stream mean.
//!
//! Deadlines, counters and actions belong to the manager.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::rng::Rng;
use plimsoll_core::time::Instant;

use super::frames::Frames;
use super::{CloseReason, ConnectionId, OobEvent};
use crate::orca::{OrcaLimits, parse_message};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One host. With a stream the deadline is the watchdog's, without one that of the next attempt.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) hostname: Arc<str>,
    pub(super) backoff: Backoff,
    pub(super) deadline: Option<Instant>,
    pub(super) stream: Option<Stream>,
    /// The host does not implement the service.
    pub(super) terminated: bool,
}

/// One attempt.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: ConnectionId,
    frames: Frames,
    going_away: bool,
}

/// Upper bound of the pause before the next attempt: doubles until a report arrives.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Session {
    pub(super) const fn new(hostname: Arc<str>) -> Self {
        Self {
            hostname,
            backoff: Backoff(FIRST_PAUSE),
            deadline: None,
            stream: None,
            terminated: false,
        }
    }

    /// Adds the reports of an event to `reports`, and tells why the stream is over if it is.
    pub(super) fn handle_event(
        &mut self,
        event: OobEvent<'_>,
        reports: &mut Vec<OrcaLoadReport>,
    ) -> Option<CloseReason> {
        let end = self.stream.as_mut()?.handle_event(event, reports);
        if !reports.is_empty() {
            self.backoff = Backoff(FIRST_PAUSE);
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
            // Asked to leave in peace: the data under way has arrived now.
            Ok(()) => self.going_away.then_some(CloseReason::GoAway),
        }
    }
}

impl Backoff {
    /// The bound for this time; the next one is longer.
    pub(super) fn next_pause(&mut self) -> Duration {
        let next = self.0.saturating_mul(2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.0, next)
    }
}

/// A random whole number of milliseconds below `bound`.
pub(super) fn draw(rng: &mut impl Rng, bound: Duration) -> Duration {
    let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(rng.next_u64() % millis.max(1))
}
