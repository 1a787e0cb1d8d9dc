//! Bodies: [`RequestBody`] hides what the caller sends, [`ResponseBody`] keeps the accounts.
//!
//! A request has ended when its response body has: then it is counted, its connection goes back,
//! and a load report in the trailers is taken. Sending lives in `service`.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use plimsoll_core::host::{ActiveRequest, RequestOutcome};
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::time::Instant;
use plimsoll_xds::content_type::is_grpc;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::orca::{
    ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN, FirstReport, OrcaError, OrcaLimits,
};

use crate::endpoint::Lease;
use crate::error::BoxError;
use crate::stats::ClusterStats;

/// gRPC's status for "no idea".
const UNKNOWN: u32 = 2;
static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Where load reports are.
static LOAD_METRICS: [HeaderName; 2] = [
    HeaderName::from_static(ENDPOINT_LOAD_METRICS),
    HeaderName::from_static(ENDPOINT_LOAD_METRICS_BIN),
];

/// A request body of any kind; `None` is an empty one, which needs no box.
pub struct RequestBody(Option<UnsyncBoxBody<Bytes, BoxError>>);

impl RequestBody {
    /// Hides the kind of `body`.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let ended = body.is_end_stream();
        Self((!ended).then(|| body.map_err(Into::into).boxed_unsync()))
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

/// A response body that counts the request when it ends: one of ours, or one of the HTTP client
/// under a [`ClusterLayer`](crate::ClusterLayer).
#[derive(Debug)]
pub struct ResponseBody<B = Incoming> {
    incoming: B,
    account: Option<Box<Account>>,
    host: SocketAddr,
}

/// What is due when a request has ended.
pub(crate) struct Account {
    pub(crate) request: ActiveRequest,
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) started: Instant,
    lease: Option<Lease>,
    grpc: bool,
    status: StatusCode,
    grpc_status: Option<u32>,
    report: FirstReport,
    /// Where there is no lease that knows them.
    stats: Option<Arc<ClusterStats>>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// The account of a request whose response headers have arrived.
    pub(crate) fn new(
        request: ActiveRequest,
        config: Arc<ClusterConfig>,
        started: Instant,
        lease: Lease,
    ) -> Self {
        Self {
            lease: Some(lease),
            ..Self::begin(request, config, started)
        }
    }

    /// The same for a request on a connection of somebody else.
    pub(crate) fn without_connection(
        request: ActiveRequest,
        config: Arc<ClusterConfig>,
        started: Instant,
        stats: Arc<ClusterStats>,
    ) -> Self {
        Self {
            stats: Some(stats),
            ..Self::begin(request, config, started)
        }
    }

    fn begin(request: ActiveRequest, config: Arc<ClusterConfig>, started: Instant) -> Self {
        Self {
            request,
            config,
            started,
            lease: None,
            stats: None,
            grpc: false,
            status: StatusCode::OK,
            grpc_status: None,
            report: FirstReport::default(),
        }
    }

    /// Response headers: what kind of response it is, and perhaps a load report.
    pub(crate) fn look_at_headers(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = status;
        let content_type = headers.get(http::header::CONTENT_TYPE);
        self.grpc = content_type.is_some_and(|value| is_grpc(value.as_bytes()));
        self.look_at_trailers(headers);
    }

    /// Trailers; of a gRPC response without body, its headers.
    fn look_at_trailers(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get(&GRPC_STATUS) {
            let number = status.to_str().ok().and_then(|status| status.parse().ok());
            self.grpc_status = Some(number.unwrap_or(UNKNOWN));
        }
        if !LOAD_METRICS.iter().any(|name| headers.contains_key(name)) {
            return;
        }
        let reports = LOAD_METRICS.iter().flat_map(|name| {
            let values = headers.get_all(name).iter();
            values.map(move |value| (name.as_str(), value.as_bytes()))
        });
        match self.report.look(reports, &OrcaLimits::default()) {
            Ok(Some(report)) => {
                let now = Clock::system().now();
                let host = self.request.host();
                host.observe_response_orca(&report, &self.config, now);
            }
            Ok(None) => {}
            // Values known so far stay as they are.
            Err(error) => self.count_broken_report(&error),
        }
    }

    fn count_broken_report(&self, error: &OrcaError) {
        let (cluster, host) = (self.config.name(), self.request.host().address());
        tracing::debug!(%cluster, %host, %error, "load report in a response cannot be read");
        let leased = self.lease.as_ref();
        let leased = leased.map(|lease| &lease.endpoint().limits().stats);
        if let Some(stats) = leased.or(self.stats.as_ref()) {
            stats.orca_report_errors.increment();
        }
    }

    /// The headers have arrived: from here on only the body lasts, which may be a stream or a
    /// tunnel, and what it takes says nothing about the host's load (`OBSERVED_LOAD`).
    pub(crate) fn observe_response_time(&mut self, issued_at: Instant) {
        if self.config.observes_response_times() {
            let latency = Clock::system().now().saturating_duration_since(issued_at);
            // A gRPC response whose headers have no status is not over: so far it is a success.
            let failed = self.status.as_u16() >= 500
                || (self.grpc && self.grpc_status.is_some_and(|status| status != 0));
            let outcome = match failed {
                true => RequestOutcome::Error,
                false => RequestOutcome::Success,
            };
            self.request.answered(outcome, latency);
        }
    }

    /// The status, and that of gRPC where the headers have one.
    pub(crate) const fn statuses(&self) -> (StatusCode, Option<u32>) {
        (self.status, self.grpc_status)
    }

    /// The response has ended, or nobody wants the rest.
    pub(crate) fn close(self: Box<Self>) {
        self.end(false);
    }

    /// The response is not good enough and the request tried again: an error of the host.
    pub(crate) fn fail(self: Box<Self>, complete: bool) {
        self.count(RequestOutcome::Error, complete);
    }

    /// `complete`: it was read to its end.
    fn end(self: Box<Self>, complete: bool) {
        let success = match (self.grpc, self.grpc_status) {
            (true, Some(status)) => status == 0,
            (true, None) => false,
            (false, _) => self.status.as_u16() < 500,
        };
        let outcome = match success {
            true => RequestOutcome::Success,
            false => RequestOutcome::Error,
        };
        self.count(outcome, complete);
    }

    #[expect(
        clippy::boxed_local,
        reason = "it is in a box, and moving it out is a copy"
    )]
    fn count(self: Box<Self>, outcome: RequestOutcome, complete: bool) {
        let now = Clock::system().now();
        let latency = now.saturating_duration_since(self.started);
        let failed = (outcome == RequestOutcome::Error).then(|| Arc::clone(self.request.host()));
        self.request.finish(outcome);
        if let Some(lease) = self.lease {
            let limits = lease.endpoint().limits();
            if let Some(host) = failed {
                limits.handle_error(&host);
            }
            limits.stats.upstream_rq_time.observe(latency);
            lease.end(complete, now);
        }
    }
}

impl ResponseBody {
    /// A body that closes `account` when it ends; with a tunnel, when the tunnel does.
    pub(crate) fn new(incoming: Incoming, mut account: Box<Account>) -> Self {
        let host = account.request.host().address();
        if account.status == StatusCode::SWITCHING_PROTOCOLS
            && let Some(lease) = account.lease.take_if(|lease| lease.is_exclusive())
        {
            let connection = Arc::clone(lease.connection());
            drop(lease);
            connection.become_tunnel(account);
            return Self {
                incoming,
                account: None,
                host,
            };
        }
        Self::counted(incoming, account)
    }
}

impl<B: Body> ResponseBody<B> {
    /// A body that closes `account` when it ends.
    pub(crate) fn counted(incoming: B, account: Box<Account>) -> Self {
        let ended = incoming.is_end_stream();
        let mut body = Self {
            incoming,
            host: account.request.host().address(),
            account: Some(account),
        };
        if ended {
            body.close(true);
        }
        body
    }
}

impl<B> ResponseBody<B> {
    /// The host that answered.
    pub const fn host(&self) -> SocketAddr {
        self.host
    }

    fn close(&mut self, complete: bool) {
        if let Some(account) = self.account.take() {
            account.end(complete);
        }
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
                if let (Some(trailers), Some(account)) = (frame.trailers_ref(), &mut self.account) {
                    account.look_at_trailers(trailers);
                }
                if self.incoming.is_end_stream() {
                    self.close(true);
                }
            }
            Some(Err(_)) => {
                if let Some(account) = self.account.take() {
                    account.fail(false);
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
