//! HTTP bodies: [`MeteredBody`] towards the upstream, [`ProxyBody`] towards the client.
//!
//! Frames, including trailers, are passed on without copying or buffering. These types count bytes,
//! enforce the size limit of requests, and record progress for the limits of the stream. Trailers
//! lose the fields that only headers may have (`trailers`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use plimsoll_client::{RequestEnd, ResponseBody};
use plimsoll_xds::pb::enums::HeadersWithUnderscoresAction;

use crate::config::HttpOptions;
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::mirror::BodyMirrors;
use crate::stream_timeouts::StreamTimeouts;
use crate::trailers;

/// Error of a body that ended early.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Request body with an optional size limit. A body that is empty from the start has no meter.
#[derive(Debug)]
pub(crate) struct MeteredBody {
    incoming: Incoming,
    meter: Option<Arc<BodyMeter>>,
    mirrors: Option<Box<BodyMirrors>>,
}

/// Counts the bytes of a request body, enforces its size limit, and notes its end.
#[derive(Debug)]
pub(crate) struct BodyMeter {
    connection: Arc<Connection>,
    stream: Option<Arc<StreamTimeouts>>,
    /// Starts the timeouts of the client.
    end: RequestEnd,
    bytes: AtomicU64,
    limit: u64,
    limit_exceeded: AtomicBool,
    malformed: AtomicBool,
    /// Whether trailers may have underscores in their names.
    allow_underscores: bool,
}

impl BodyMeter {
    pub(crate) fn new(exchange: &Exchange, options: &HttpOptions) -> Self {
        let underscores = options.headers_with_underscores;
        Self {
            connection: Arc::clone(exchange.connection()),
            stream: exchange.stream().cloned(),
            end: RequestEnd::default(),
            bytes: AtomicU64::new(0),
            limit: options.max_request_bytes.unwrap_or(u64::MAX),
            limit_exceeded: AtomicBool::new(false),
            malformed: AtomicBool::new(false),
            allow_underscores: underscores == HeadersWithUnderscoresAction::Allow,
        }
    }

    pub(crate) const fn end(&self) -> &RequestEnd {
        &self.end
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the body was aborted because it exceeds the limit.
    pub(crate) fn limit_exceeded(&self) -> bool {
        self.limit_exceeded.load(Ordering::Relaxed)
    }

    /// Whether the body could not be read, such as an invalid chunk size.
    pub(crate) fn is_malformed(&self) -> bool {
        self.malformed.load(Ordering::Relaxed)
    }

    fn timeouts(&self) -> &StreamTimeouts {
        self.stream.as_deref().unwrap_or(&self.connection.stream)
    }

    fn record_end(&self) {
        if self.end.mark() {
            self.timeouts().request_ended(self.connection.worker.now());
        }
    }

    /// Counts a frame; returns false if the body now exceeds the limit.
    fn count(&self, frame: &Frame<Bytes>) -> bool {
        self.timeouts()
            .record_progress(self.connection.worker.now());
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
    pub(crate) const fn new(
        incoming: Incoming,
        meter: Option<Arc<BodyMeter>>,
        mirrors: Option<Box<BodyMirrors>>,
    ) -> Self {
        Self {
            incoming,
            meter,
            mirrors,
        }
    }

    /// Meters a frame, and removes fields of trailers that the upstream must not get.
    fn meter(
        meter: &BodyMeter,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Option<Result<Frame<Bytes>, BoxError>> {
        let mut frame = match frame? {
            Ok(frame) => frame,
            Err(error) => {
                meter.malformed.store(true, Ordering::Relaxed);
                return Some(Err(error.into()));
            }
        };
        if !meter.count(&frame) {
            return Some(Err("request body exceeds the limit".into()));
        }
        if let Some(trailers) = frame.trailers_mut() {
            if meter.connection.is_http2() && trailers::is_malformed_http2(trailers) {
                meter.malformed.store(true, Ordering::Relaxed);
                return Some(Err("trailers of the request are malformed".into()));
            }
            trailers::sanitize_request(trailers, meter.allow_underscores);
        }
        Some(Ok(frame))
    }

    fn mirror(&mut self, frame: Option<&Result<Frame<Bytes>, BoxError>>) {
        let ended = frame.is_none() || self.incoming.is_end_stream();
        match (&mut self.mirrors, frame) {
            // A copy must not end like a request that is complete.
            (_, Some(Err(_))) => {
                self.mirrors = None;
                return;
            }
            (Some(mirrors), Some(Ok(frame))) => mirrors.push(frame),
            _ => {}
        }
        if ended && let Some(mirrors) = &mut self.mirrors {
            mirrors.end();
        }
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
        let frame = match &self.meter {
            None => frame.map(|frame| frame.map_err(Into::into)),
            Some(meter) => {
                let ended = frame.is_none() || self.incoming.is_end_stream();
                let frame = Self::meter(meter, frame);
                if ended {
                    meter.record_end();
                }
                frame
            }
        };
        if self.mirrors.is_some() {
            self.mirror(frame.as_ref());
        }
        Poll::Ready(frame)
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
    Upstream(ResponseBody),
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

    pub(crate) const fn upstream(body: ResponseBody, exchange: Exchange) -> Self {
        Self {
            kind: Kind::Upstream(body),
            exchange: Some(exchange),
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
        let mut frame = ready!(Pin::new(body).poll_frame(cx));
        match &mut frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    trailers::sanitize_response(trailers);
                }
                if let Some(exchange) = &mut this.exchange {
                    match (frame.data_ref(), frame.trailers_ref()) {
                        (Some(data), _) => exchange.record_sent(data.len()),
                        (None, Some(trailers)) => exchange.record_grpc_status(trailers),
                        (None, None) => {}
                    }
                }
            }
            Some(Err(_)) => {
                if let Some(exchange) = &mut this.exchange {
                    exchange.update_log(|outcome| outcome.flags = "UC");
                }
            }
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn exchange(stream: Option<Arc<StreamTimeouts>>) -> Exchange {
        let connection = crate::connection::tests::connection();
        let options = HttpOptions::default();
        Exchange::begin(connection, stream, http::Version::HTTP_11, &options)
    }

    fn data(length: usize) -> Frame<Bytes> {
        Frame::data(Bytes::from(vec![b'a'; length]))
    }

    #[tokio::test]
    async fn bytes_are_counted_up_to_the_limit() {
        let exchange = exchange(None);
        let limited = HttpOptions {
            max_request_bytes: Some(10),
            ..Default::default()
        };
        let meter = BodyMeter::new(&exchange, &limited);
        assert!(meter.count(&data(4)) && meter.count(&data(6)));
        assert!(meter.count(&Frame::trailers(http::HeaderMap::new())));
        assert_eq!((meter.bytes(), meter.limit_exceeded()), (10, false));
        assert!(!meter.count(&data(1)));
        assert_eq!((meter.bytes(), meter.limit_exceeded()), (11, true));
        let unlimited = BodyMeter::new(&exchange, &HttpOptions::default());
        assert!(unlimited.count(&data(1 << 20)));
    }

    #[tokio::test]
    async fn the_end_of_a_request_is_recorded_once_for_its_own_limits() {
        for stream in [None, Some(Arc::new(StreamTimeouts::default()))] {
            let exchange = exchange(stream.clone());
            let meter = BodyMeter::new(&exchange, &HttpOptions::default());
            assert!(!exchange.timeouts().has_request_ended());
            assert_eq!(meter.end().elapsed(), None);
            meter.record_end();
            assert!(exchange.timeouts().has_request_ended());
            assert!(meter.end().elapsed().is_some());
            let of_connection = exchange.connection().stream.has_request_ended();
            assert_eq!(of_connection, stream.is_none());
        }
    }

    #[tokio::test]
    async fn local_bodies_have_a_length_and_an_end() {
        let mut body = ProxyBody::local(Bytes::from_static(b"hello"), exchange(None));
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(5));
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "hello");
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(body.frame().await.is_none());
        let empty = ProxyBody::local(Bytes::new(), exchange(None));
        assert!(empty.is_end_stream());
        let tunnel = ProxyBody::tunnel();
        assert!(tunnel.is_end_stream() && tunnel.exchange.is_none());
    }
}
