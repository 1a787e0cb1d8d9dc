//! Bodies of requests and responses, and [`RequestTracker`], which counts a request when it ends.
//!
//! A request ends with its response body: then the outcome is counted, the connection returns to
//! the pool, and a load report in the trailers is stored.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use plimsoll_core::host::{ActiveRequest, RequestOutcome};
use plimsoll_core::log_line;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::time::Instant;
use plimsoll_xds::clock::Clock;
use plimsoll_xds::content_type::is_grpc;
use plimsoll_xds::orca::{
    ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN, FirstReport, OrcaError, OrcaLimits,
};

use crate::error::{BoxError, Error, ErrorKind};
use crate::log_lines;
use crate::request::attempt_span::AttemptSpan;
use crate::upstream::connection::ConnectionLimits;
use crate::upstream::endpoint::Lease;

const UNKNOWN: u32 = 2;
static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static LOAD_METRICS: [HeaderName; 2] = [
    HeaderName::from_static(ENDPOINT_LOAD_METRICS),
    HeaderName::from_static(ENDPOINT_LOAD_METRICS_BIN),
];

/// A type-erased request body. Services accept any [`Body`] of [`Bytes`]; use this where one type
/// is needed for several kinds. An empty body needs no allocation.
pub struct RequestBody(Option<UnsyncBoxBody<Bytes, BoxError>>);

impl RequestBody {
    /// Erases the type of `body`.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let ended = body.is_end_stream();
        Self((!ended).then(|| body.map_err(Into::into).boxed_unsync()))
    }

    /// A body without content.
    pub const fn empty() -> Self {
        Self(None)
    }
}

impl Default for RequestBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<()> for RequestBody {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(Full::new(bytes))
    }
}

impl From<Vec<u8>> for RequestBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for RequestBody {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for RequestBody {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestBody")
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// A response body that counts the request when it ends. Wraps hyper's body, or that of the HTTP
/// client under a [`ClusterLayer`](crate::ClusterLayer).
///
/// Read it to its end or drop it: until then the request counts as in flight, and an HTTP/1.1
/// connection returns to the pool only after the end.
#[derive(Debug)]
pub struct ResponseBody<B = Incoming> {
    incoming: B,
    tracker: Option<Box<RequestTracker>>,
    host: SocketAddr,
}

/// Bookkeeping of a request from its response headers to its end.
pub(crate) struct RequestTracker {
    pub(crate) request: ActiveRequest,
    pub(crate) started: Instant,
    lease: Option<Lease>,
    grpc: bool,
    status: StatusCode,
    grpc_status: Option<u32>,
    report: FirstReport,
    /// Counters of the cluster, for requests without a lease (under a `ClusterLayer`).
    limits: Option<Arc<ConnectionLimits>>,
    /// Ends with the response.
    pub(crate) span: AttemptSpan,
}

impl std::fmt::Debug for RequestTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestTracker")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl RequestTracker {
    pub(crate) fn new(request: ActiveRequest, started: Instant, lease: Lease) -> Self {
        Self {
            lease: Some(lease),
            ..Self::begin(request, started)
        }
    }

    /// Tracks a request on a connection of the HTTP client under a layer.
    pub(crate) fn without_connection(
        request: ActiveRequest,
        started: Instant,
        limits: Arc<ConnectionLimits>,
    ) -> Self {
        Self {
            limits: Some(limits),
            ..Self::begin(request, started)
        }
    }

    fn begin(request: ActiveRequest, started: Instant) -> Self {
        Self {
            request,
            started,
            lease: None,
            limits: None,
            span: AttemptSpan::default(),
            grpc: false,
            status: StatusCode::OK,
            grpc_status: None,
            report: FirstReport::default(),
        }
    }

    pub(crate) fn observe_headers(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = status;
        let content_type = headers.get(http::header::CONTENT_TYPE);
        self.grpc = content_type.is_some_and(|value| is_grpc(value.as_bytes()));
        self.observe_trailers(headers);
    }

    /// Reads trailers, or the headers of a trailers-only response.
    fn observe_trailers(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get(&GRPC_STATUS) {
            let number = status.to_str().ok().and_then(|status| status.parse().ok());
            self.grpc_status = Some(number.unwrap_or(UNKNOWN));
        }
        // Comparing the names that are there costs less than to look up those that may be there.
        if !headers.keys().any(|name| LOAD_METRICS.contains(name)) {
            return;
        }
        let reports = LOAD_METRICS.iter().flat_map(|name| {
            let values = headers.get_all(name).iter();
            values.map(move |value| (name.as_str(), value.as_bytes()))
        });
        match self.report.parse(reports, &OrcaLimits::default()) {
            Ok(Some(report)) => {
                let (host, now) = (self.request.host(), Clock::system().now());
                self.with_config(|config| host.observe_response_orca(&report, config, now));
            }
            Ok(None) => {}
            // The host keeps the values of its earlier load reports.
            Err(error) => self.count_report_error(&error),
        }
    }

    fn count_report_error(&self, error: &OrcaError) {
        let host = self.request.host().address();
        self.with_config(|config| {
            let cluster = config.name();
            log_line!(log_lines::LOAD_REPORT_MALFORMED, %cluster, %host, %error);
        });
        if let Some(limits) = self.limits() {
            limits.stats.orca_report_errors.increment();
        }
    }

    fn limits(&self) -> Option<&ConnectionLimits> {
        let leased = self.lease.as_ref().map(|lease| lease.endpoint().limits());
        leased.or(self.limits.as_ref()).map(|limits| &**limits)
    }

    fn with_config<T>(&self, read: impl FnOnce(&ClusterConfig) -> T) -> Option<T> {
        let config = self.limits()?.config.load();
        config.as_deref().map(read)
    }

    /// Records the time to the response headers, for `OBSERVED_LOAD`. The body is excluded: it may
    /// be a stream or a tunnel, whose duration says nothing about the load of the host.
    pub(crate) fn observe_response_time(&mut self, sent_at: Instant) {
        if self.with_config(ClusterConfig::observes_response_times) == Some(true) {
            let latency = Clock::system().now().saturating_duration_since(sent_at);
            let succeeded = !self.headers_are_an_error();
            self.request.response_started(outcome(succeeded), latency);
        }
    }

    /// A gRPC response without a status in its headers is a success so far.
    fn headers_are_an_error(&self) -> bool {
        self.status.as_u16() >= 500
            || (self.grpc && self.grpc_status.is_some_and(|status| status != 0))
    }

    pub(crate) const fn statuses(&self) -> (StatusCode, Option<u32>) {
        (self.status, self.grpc_status)
    }

    pub(crate) fn close(self: Box<Self>) {
        self.end(false);
    }

    /// Counts the request as an error of the host, because it is retried or its body failed.
    pub(crate) fn fail(self: Box<Self>, complete: bool) {
        self.count(RequestOutcome::Error, complete);
    }

    /// Counts the request by its status; `complete` if the response was read to its end.
    fn end(self: Box<Self>, complete: bool) {
        let success = match (self.grpc, self.grpc_status) {
            (true, Some(status)) => status == 0,
            (true, None) => false,
            (false, _) => self.status.as_u16() < 500,
        };
        self.count(outcome(success), complete);
    }

    #[expect(clippy::boxed_local, reason = "moving it out of its box would copy it")]
    fn count(self: Box<Self>, outcome: RequestOutcome, complete: bool) {
        let now = Clock::system().now();
        let latency = now.saturating_duration_since(self.started);
        let failed = (outcome == RequestOutcome::Error).then(|| Arc::clone(self.request.host()));
        let leased = self.lease.as_ref().map(|lease| lease.endpoint().limits());
        let limits = leased.or(self.limits.as_ref());
        self.request.finish(outcome);
        self.span.end(self.status, self.grpc_status);
        if let Some(limits) = limits {
            if let Some(host) = failed {
                limits.handle_error(&host);
            }
            limits.stats.upstream_rq_time.observe(latency);
            limits.backlog.notify();
        }
        if let Some(lease) = self.lease {
            lease.end(complete, now);
        }
    }
}

const fn outcome(success: bool) -> RequestOutcome {
    if success {
        RequestOutcome::Success
    } else {
        RequestOutcome::Error
    }
}

impl ResponseBody {
    /// Ends `tracker` with the body; for an upgraded connection, with the tunnel.
    pub(crate) fn new(incoming: Incoming, mut tracker: Box<RequestTracker>) -> Self {
        let host = tracker.request.host().address();
        if tracker.status == StatusCode::SWITCHING_PROTOCOLS
            && let Some(lease) = tracker.lease.take_if(|lease| lease.is_exclusive())
        {
            let connection = Arc::clone(lease.state());
            drop(lease);
            connection.become_tunnel(tracker);
            return Self {
                incoming,
                tracker: None,
                host,
            };
        }
        Self::tracked(incoming, tracker)
    }
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn tracked(incoming: B, tracker: Box<RequestTracker>) -> Self {
        let ended = incoming.is_end_stream();
        let mut body = Self {
            incoming,
            host: tracker.request.host().address(),
            tracker: Some(tracker),
        };
        if ended {
            body.close(true);
        }
        body
    }
}

impl<B> ResponseBody<B> {
    /// Address of the host that sent the response.
    pub const fn host(&self) -> SocketAddr {
        self.host
    }

    fn close(&mut self, complete: bool) {
        if let Some(tracker) = self.tracker.take() {
            tracker.end(complete);
        }
    }
}

impl<B> ResponseBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// Reads the whole body, of any size: see [`Self::bytes_within`].
    pub async fn bytes(self) -> Result<Bytes, Error> {
        self.bytes_within(usize::MAX).await
    }

    /// Reads the whole body; fails once it is longer than `limit` bytes.
    pub async fn bytes_within(self, limit: usize) -> Result<Bytes, Error> {
        let host = self.host;
        let read = Limited::new(self, limit).collect().await;
        let read = read.map_err(|error| {
            let message = if error.is::<LengthLimitError>() {
                format!("the response of {host} is longer than {limit} bytes")
            } else {
                format!("the response of {host} ended early")
            };
            let failed = Error::new(ErrorKind::Transport, message).with_source(error);
            failed.with_address(Some(host))
        })?;
        Ok(read.to_bytes())
    }

    /// Reads the whole body as text; bytes that are not UTF-8 become U+FFFD.
    pub async fn text(self) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.bytes().await?).into_owned())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(trailers), Some(tracker)) = (frame.trailers_ref(), &mut self.tracker) {
                    tracker.observe_trailers(trailers);
                }
                if self.incoming.is_end_stream() {
                    self.close(true);
                }
            }
            Some(Err(_)) => {
                if let Some(tracker) = self.tracker.take() {
                    tracker.fail(false);
                }
            }
            None => self.close(true),
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

impl<B> Drop for ResponseBody<B> {
    fn drop(&mut self) {
        self.close(false);
    }
}

#[cfg(test)]
mod tests;
