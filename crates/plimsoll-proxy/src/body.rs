//! Bodies on their way through: [`RequestStream`] up, [`ProxyBody`] down.
//!
//! Frames are handed on as they come, trailers included; nothing is copied or collected. Here are
//! counted bytes, the limit of a request's body, and the deadline of a response.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_client::ResponseBody;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::exchange::Exchange;

/// Why a body ended early.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request.
#[derive(Debug)]
pub(crate) struct RequestStream {
    incoming: Incoming,
    watch: Option<Arc<RequestWatch>>,
}

/// What is watched of a request's body, if anything.
#[derive(Debug)]
pub(crate) struct RequestWatch {
    bytes: AtomicU64,
    limit: u64,
    too_large: AtomicBool,
}

impl RequestWatch {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            limit: limit.unwrap_or(u64::MAX),
            too_large: AtomicBool::new(false),
        }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it was cut off.
    pub(crate) fn too_large(&self) -> bool {
        self.too_large.load(Ordering::Relaxed)
    }

    /// Counts a frame; false when it is one too many.
    fn count(&self, frame: &Frame<Bytes>) -> bool {
        let Some(data) = frame.data_ref() else {
            return true;
        };
        let more = u64::try_from(data.remaining()).unwrap_or(u64::MAX);
        let bytes = self
            .bytes
            .fetch_add(more, Ordering::Relaxed)
            .saturating_add(more);
        if bytes > self.limit {
            self.too_large.store(true, Ordering::Relaxed);
            return false;
        }
        true
    }
}

impl RequestStream {
    pub(crate) const fn new(incoming: Incoming, watch: Option<Arc<RequestWatch>>) -> Self {
        Self { incoming, watch }
    }
}

impl Body for RequestStream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if let (Some(watch), Some(Ok(frame))) = (&self.watch, &frame)
            && !watch.count(frame)
        {
            return Poll::Ready(Some(Err("the body of the request is too large".into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The body of a response, and with it the rest of the request's life.
#[derive(Debug)]
pub(crate) struct ProxyBody {
    kind: Kind,
    /// `None` when somebody else keeps it: a tunnel.
    exchange: Option<Exchange>,
}

#[derive(Debug)]
enum Kind {
    /// Made here.
    Own(Option<Bytes>),
    /// From upstream.
    Upstream {
        body: ResponseBody,
        deadline: Option<Instant>,
        /// Only when something is waited for.
        sleep: Option<Pin<Box<Sleep>>>,
    },
}

impl ProxyBody {
    /// A body of our own.
    pub(crate) fn own(bytes: Bytes, exchange: Exchange) -> Self {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        Self {
            kind: Kind::Own(bytes),
            exchange: Some(exchange),
        }
    }

    /// No body: what follows is a tunnel.
    pub(crate) const fn tunnel() -> Self {
        Self {
            kind: Kind::Own(None),
            exchange: None,
        }
    }

    /// The body of an upstream's response.
    pub(crate) fn upstream(
        body: ResponseBody,
        deadline: Option<Instant>,
        exchange: Exchange,
    ) -> Self {
        Self {
            kind: Kind::Upstream {
                body,
                deadline,
                sleep: None,
            },
            exchange: Some(exchange),
        }
    }

    fn failed(&mut self, flags: &'static str) {
        if let Some(exchange) = &mut self.exchange {
            exchange.note(|outcome| outcome.flags = flags);
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let (body, deadline, sleep) = match &mut this.kind {
            Kind::Own(bytes) => {
                let bytes = bytes.take();
                if let (Some(bytes), Some(exchange)) = (&bytes, &mut this.exchange) {
                    exchange.sent(bytes.len());
                }
                return Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))));
            }
            Kind::Upstream {
                body,
                deadline,
                sleep,
            } => (body, deadline, sleep),
        };
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(exchange)) = (frame.data_ref(), &mut this.exchange) {
                    exchange.sent(data.len());
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.failed("UC");
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let Some(deadline) = *deadline else {
                    return Poll::Pending;
                };
                let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                ready!(sleep.as_mut().poll(cx));
                this.failed("UT");
                Poll::Ready(Some(Err("the response took too long".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Own(bytes) => bytes.is_none(),
            Kind::Upstream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Own(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Kind::Upstream { body, .. } => body.size_hint(),
        }
    }
}
