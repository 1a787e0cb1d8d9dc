//! [`ChannelBody`]: the body of a call's response, which ends when the deadline of the call has
//! come, as gRPC's calls do.
//!
//! Up to the response headers the deadline is `call`'s business. A body that is all there costs no
//! timer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use crate::body::ResponseBody;

/// The body of a call's response.
#[derive(Debug)]
pub struct ChannelBody {
    /// `None` when the deadline has come.
    inner: Option<ResponseBody>,
    deadline: Option<Instant>,
    /// From the first time on that there was nothing to read.
    timer: Option<Pin<Box<Sleep>>>,
}

impl ChannelBody {
    pub(crate) const fn new(inner: ResponseBody, deadline: Option<Instant>) -> Self {
        Self {
            inner: Some(inner),
            deadline,
            timer: None,
        }
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        // Also while data flows: a timer that was needed once is looked at again.
        let mut late = is_over(&mut this.timer, cx);
        if !late {
            if let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) {
                return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
            }
            if let (None, Some(deadline)) = (&this.timer, this.deadline) {
                this.timer = Some(Box::pin(sleep_until(deadline)));
                late = is_over(&mut this.timer, cx);
            }
        }
        if !late {
            return Poll::Pending;
        }
        // Dropped before its end: the host hears of it, and it is counted as an error.
        this.inner = None;
        let late = Status::deadline_exceeded("the deadline of the call has come");
        Poll::Ready(Some(Err(late)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        (self.inner.as_ref()).map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// Whether the timer runs and has ended.
fn is_over(timer: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> bool {
    let timer = timer.as_mut();
    timer.is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
}

fn failed(error: <ResponseBody as Body>::Error) -> Status {
    Status::from_error(error.into())
}
