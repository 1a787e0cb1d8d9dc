//! [`ReportStream`]: response body that reads the request and then sends reports until either side
//! ends the stream. A stream costs a timer and no task.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use plimsoll_xds::grpc_frame::{FrameError, HEADER, split};
use plimsoll_xds::orca::oob;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::OpenRcaService;

/// Longest request that is read; a valid one has about ten bytes.
const MAX_REQUEST_BYTES: usize = 4 * 1024;

/// Response body of [`OpenRcaService`]: a stream of reports.
pub struct ReportStream<B> {
    service: Option<OpenRcaService>,
    state: State<B>,
}

enum State<B> {
    ReadingRequest {
        body: Pin<Box<B>>,
        read: Vec<u8>,
    },
    Reporting {
        timer: Interval,
        stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(&'static str);

const CANCELLED: Code = Code("1");
const INVALID_ARGUMENT: Code = Code("3");
pub(super) const UNIMPLEMENTED: Code = Code("12");
const UNAVAILABLE: Code = Code("14");

type End = (Code, &'static str);

impl<B> ReportStream<B> {
    pub(super) const fn empty() -> Self {
        Self {
            service: None,
            state: State::Done,
        }
    }

    pub(super) fn new(service: OpenRcaService, body: B) -> Self {
        Self {
            service: Some(service),
            state: State::ReadingRequest {
                body: Box::pin(body),
                read: Vec::new(),
            },
        }
    }

    fn end(&mut self, (code, message): End) -> Frame<Bytes> {
        self.state = State::Done;
        let mut trailers = HeaderMap::new();
        code.write(&mut trailers, message);
        Frame::trailers(trailers)
    }
}

impl Code {
    pub(super) fn write(self, headers: &mut HeaderMap, message: &'static str) {
        let status = HeaderName::from_static("grpc-status");
        headers.insert(status, HeaderValue::from_static(self.0));
        let name = HeaderName::from_static("grpc-message");
        headers.insert(name, HeaderValue::from_static(message));
    }
}

impl<B: Body> Body for ReportStream<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Some(service) = &this.service else {
            return Poll::Ready(None);
        };
        if let State::ReadingRequest { body, read } = &mut this.state {
            match ready!(poll_request(body.as_mut(), read, cx)) {
                Ok(asked) => {
                    let timer = timer(service.interval(asked));
                    let stopped = Box::pin(service.shared.stopped());
                    this.state = State::Reporting { timer, stopped };
                }
                Err(end) => return Poll::Ready(Some(Ok(this.end(end)))),
            }
        }
        let State::Reporting { timer, stopped } = &mut this.state else {
            return Poll::Ready(None);
        };
        if stopped.as_mut().poll(cx).is_ready() {
            let end = (UNAVAILABLE, "the server is shutting down");
            return Poll::Ready(Some(Ok(this.end(end))));
        }
        ready!(timer.poll_tick(cx));
        let report = service.shared.published().frame();
        Poll::Ready(Some(Ok(Frame::data(report))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Done)
    }
}

/// Ticks at once and then every `period`, without catching up after a late tick.
fn timer(period: Duration) -> Interval {
    let mut timer = interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// Returns the requested interval, once the request message is complete.
fn poll_request<B: Body>(
    mut body: Pin<&mut B>,
    read: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Duration>, End>> {
    loop {
        match request(read) {
            Ok(None) => {}
            Ok(Some(interval)) => return Poll::Ready(Ok(interval)),
            Err(end) => return Poll::Ready(Err(end)),
        }
        match ready!(body.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) => {
                let Ok(mut data) = frame.into_data() else {
                    continue;
                };
                while data.has_remaining() && read.len() <= HEADER + MAX_REQUEST_BYTES {
                    let chunk = data.chunk();
                    let length = chunk.len().min(HEADER + MAX_REQUEST_BYTES + 1 - read.len());
                    read.extend_from_slice(&chunk[..length]);
                    data.advance(length);
                }
            }
            Some(Err(_)) => return Poll::Ready(Err((CANCELLED, "the request body failed"))),
            None => {
                let end = (
                    INVALID_ARGUMENT,
                    "the stream ended without a complete request",
                );
                return Poll::Ready(Err(end));
            }
        }
    }
}

/// Parses the request in `read`; `None` while it is incomplete.
fn request(read: &[u8]) -> Result<Option<Option<Duration>>, End> {
    match split(read, MAX_REQUEST_BYTES) {
        Ok(None) => Ok(None),
        Ok(Some((message, _))) => {
            let invalid = |_| (INVALID_ARGUMENT, "cannot decode OrcaLoadReportRequest");
            oob::parse_request(message).map(Some).map_err(invalid)
        }
        Err(FrameError::Flags(_)) => Err((UNIMPLEMENTED, "compressed requests are not supported")),
        Err(FrameError::TooLong(_)) => Err((INVALID_ARGUMENT, "the request is too long")),
    }
}

impl<B> fmt::Debug for ReportStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::ReadingRequest { .. } => "reading request",
            State::Reporting { .. } => "reporting",
            State::Done => "done",
        };
        f.debug_struct("ReportStream")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
