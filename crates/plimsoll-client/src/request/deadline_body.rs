//! [`DeadlineBody`]: a response body that fails at the deadline of a gRPC call or the timeout of a
//! route.
//!
//! `call` applies the deadline until the response headers. No timer is created while data is ready.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::{Error, ErrorKind};
use crate::request::body::ResponseBody;

/// A response body that fails with [`ErrorKind::Timeout`] at a deadline.
#[derive(Debug)]
pub struct DeadlineBody {
    /// `None` after the deadline.
    inner: Option<ResponseBody>,
    deadline: Option<Instant>,
    /// Created when the body is first pending.
    timer: Option<Pin<Box<Sleep>>>,
}

impl DeadlineBody {
    /// Wraps `inner`; without a `deadline` the body has no time limit.
    pub(crate) const fn new(inner: ResponseBody, deadline: Option<Instant>) -> Self {
        Self {
            inner: Some(inner),
            deadline,
            timer: None,
        }
    }
}

impl Body for DeadlineBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        // Once created, the timer is polled even while data is ready.
        let mut late = is_elapsed(&mut this.timer, cx);
        if !late {
            if let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) {
                return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
            }
            if let (None, Some(deadline)) = (&this.timer, this.deadline) {
                this.timer = Some(Box::pin(sleep_until(deadline)));
                late = is_elapsed(&mut this.timer, cx);
            }
        }
        if !late {
            return Poll::Pending;
        }
        // Dropping the body early resets the stream and counts the request as an error.
        this.inner = None;
        let message = "deadline exceeded before the end of the response";
        Poll::Ready(Some(Err(Error::new(ErrorKind::Timeout, message))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        (self.inner.as_ref()).map_or_else(SizeHint::default, Body::size_hint)
    }
}

fn is_elapsed(timer: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> bool {
    let timer = timer.as_mut();
    timer.is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
}

fn failed(error: <ResponseBody as Body>::Error) -> Error {
    Error::new(ErrorKind::Transport, "the response body failed").with_source(error)
}
