//! HTTP bodies: [`MeteredBody`] towards the upstream, [`ProxyBody`] towards the client.
//!
//! Frames, including trailers, are passed on without copying or buffering. These types count bytes,
//! enforce the size limit of requests and the deadline of responses.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_client::{DeadlineBody, ErrorKind, ResponseBody};
use tokio::time::Instant;

use crate::exchange::Exchange;

/// Error of a body that ended early.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Request body with an optional size limit.
#[derive(Debug)]
pub(crate) struct MeteredBody {
    incoming: Incoming,
    meter: Option<Arc<BodyMeter>>,
}

/// Counts the bytes of a request body and enforces its size limit.
#[derive(Debug)]
pub(crate) struct BodyMeter {
    bytes: AtomicU64,
    limit: u64,
    limit_exceeded: AtomicBool,
}

impl BodyMeter {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            limit: limit.unwrap_or(u64::MAX),
            limit_exceeded: AtomicBool::new(false),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the body was aborted because it exceeds the limit.
    pub(crate) fn limit_exceeded(&self) -> bool {
        self.limit_exceeded.load(Ordering::Relaxed)
    }

    /// Counts a frame; returns false if the body now exceeds the limit.
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
            self.limit_exceeded.store(true, Ordering::Relaxed);
            return false;
        }
        true
    }
}

impl MeteredBody {
    pub(crate) const fn new(incoming: Incoming, meter: Option<Arc<BodyMeter>>) -> Self {
        Self { incoming, meter }
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if let (Some(meter), Some(Ok(frame))) = (&self.meter, &frame)
            && !meter.count(frame)
        {
            return Poll::Ready(Some(Err("request body exceeds the limit".into())));
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

/// Response body; keeps the [`Exchange`] alive until the response ends.
#[derive(Debug)]
pub(crate) struct ProxyBody {
    kind: Kind,
    /// `None` after an upgrade: the tunnel owns the exchange.
    exchange: Option<Exchange>,
}

#[derive(Debug)]
enum Kind {
    Local(Option<Bytes>),
    Upstream(DeadlineBody),
}

impl ProxyBody {
    /// Creates the body of a response that the proxy generates itself.
    pub(crate) fn local(bytes: Bytes, exchange: Exchange) -> Self {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        Self {
            kind: Kind::Local(bytes),
            exchange: Some(exchange),
        }
    }

    /// Creates the empty body of a `101 Switching Protocols` response.
    pub(crate) const fn tunnel() -> Self {
        Self {
            kind: Kind::Local(None),
            exchange: None,
        }
    }

    pub(crate) fn upstream(
        body: ResponseBody,
        deadline: Option<Instant>,
        exchange: Exchange,
    ) -> Self {
        Self {
            kind: Kind::Upstream(DeadlineBody::new(body, deadline)),
            exchange: Some(exchange),
        }
    }

    fn failed(&mut self, flags: &'static str) {
        if let Some(exchange) = &mut self.exchange {
            exchange.update_log(|outcome| outcome.flags = flags);
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
        let body = match &mut this.kind {
            Kind::Local(bytes) => {
                let bytes = bytes.take();
                if let (Some(bytes), Some(exchange)) = (&bytes, &mut this.exchange) {
                    exchange.record_sent(bytes.len());
                }
                return Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))));
            }
            Kind::Upstream(body) => body,
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(exchange)) = (frame.data_ref(), &mut this.exchange) {
                    exchange.record_sent(data.len());
                }
            }
            Some(Err(error)) if error.kind() == ErrorKind::Timeout => this.failed("UT"),
            Some(Err(_)) => this.failed("UC"),
            None => {}
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Local(bytes) => bytes.is_none(),
            Kind::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Local(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Kind::Upstream(body) => body.size_hint(),
        }
    }
}
