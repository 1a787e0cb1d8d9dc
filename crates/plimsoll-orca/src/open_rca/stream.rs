//! [`ReportStream`]: first the request is read, then reports are written until somebody has enough.
//!
//! Both happen in the body of the response, so that a stream costs a timer and no task. Framing is
//! gRPC's: a byte of flags, four of length, the message.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use plimsoll_xds::orca::oob;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::OpenRcaService;

/// Flags and length of a message.
const HEADER: usize = 5;
/// Longest request that is read; it is some ten bytes long.
const LONGEST: usize = 4 * 1024;

/// The body of a response of [`OpenRcaService`].
pub struct ReportStream<B> {
    service: Option<OpenRcaService>,
    state: State<B>,
}

enum State<B> {
    /// Reading the request.
    Asked { body: Pin<Box<B>>, read: Vec<u8> },
    /// Writing reports.
    Reporting {
        timer: Interval,
        stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    },
    /// Everything is said.
    Done,
}

/// Status of a gRPC response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(&'static str);

const CANCELLED: Code = Code("1");
const INVALID_ARGUMENT: Code = Code("3");
pub(super) const UNIMPLEMENTED: Code = Code("12");
const UNAVAILABLE: Code = Code("14");

/// How a stream ends before it reports, or after.
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
            state: State::Asked {
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
        if let State::Asked { body, read } = &mut this.state {
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

/// Due at once, and then every `period`; a report that came late does not make others follow.
fn timer(period: Duration) -> Interval {
    let mut timer = interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// The interval that the client asks for, once its message is complete.
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
                while data.has_remaining() && read.len() <= HEADER + LONGEST {
                    let chunk = data.chunk();
                    let length = chunk.len().min(HEADER + LONGEST + 1 - read.len());
                    read.extend_from_slice(&chunk[..length]);
                    data.advance(length);
                }
            }
            Some(Err(_)) => return Poll::Ready(Err((CANCELLED, "the request was cut off"))),
            None => {
                let end = (INVALID_ARGUMENT, "there is no request in the stream");
                return Poll::Ready(Err(end));
            }
        }
    }
}

/// The request in `read`: `None` while it is not complete.
fn request(read: &[u8]) -> Result<Option<Option<Duration>>, End> {
    let Some((header, rest)) = read.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let [flags, length @ ..] = header;
    if *flags != 0 {
        return Err((UNIMPLEMENTED, "compressed requests are not supported"));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err((INVALID_ARGUMENT, "the request is too long"));
    }
    let Some(message) = rest.get(..length) else {
        return Ok(None);
    };
    let invalid = |_| (INVALID_ARGUMENT, "the request is no OrcaLoadReportRequest");
    oob::parse_request(message).map(Some).map_err(invalid)
}

impl<B> fmt::Debug for ReportStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Asked { .. } => "asked",
            State::Reporting { .. } => "reporting",
            State::Done => "done",
        };
        f.debug_struct("ReportStream")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
