//! [`OpenRcaService`]: `xds.service.orca.v3.OpenRcaService`, reports out of band (gRFC A51).
//!
//! Here are the request and its refusal; the stream of reports is in `stream`. It needs a tokio
//! runtime with timers, and no tasks: a stream lives in the body of its response.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use plimsoll_xds::orca::oob::PATH;
use tower_service::Service;

mod stream;

pub use stream::ReportStream;

use crate::call::is_grpc;
use crate::state::Shared;

/// Streams reports to whoever asks; from
/// [`OrcaHandle::open_rca_service`](crate::OrcaHandle::open_rca_service).
///
/// Reports come at once and then at the interval that was asked for, if it is not below
/// [`Self::min_interval`]. Who names none gets one every ten seconds, as Envoy asks for by
/// default. The layer does not count these streams as load.
///
/// ```
/// use axum::{Router, routing::get};
/// use plimsoll_orca::OpenRcaService;
///
/// let layer = plimsoll_orca::layer();
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .route_service(OpenRcaService::PATH, layer.handle().open_rca_service())
///     .layer(layer);
/// ```
///
/// With tonic it is `Server::builder().layer(layer).add_service(service)`.
#[derive(Clone)]
pub struct OpenRcaService {
    shared: Arc<Shared>,
    min_interval: Duration,
}

impl OpenRcaService {
    /// The path it answers to.
    pub const PATH: &'static str = PATH;
    /// The name of the service.
    pub const NAME: &'static str = "xds.service.orca.v3.OpenRcaService";
    /// The interval of those who name none.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);

    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            min_interval: Duration::from_secs(1),
        }
    }

    /// The shortest interval that is granted; 1 s. Below the tick of the layer reports would only
    /// repeat themselves.
    #[must_use]
    pub const fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// What is granted to a client that asks for `asked`. A timer cannot be shorter than a
    /// millisecond.
    fn interval(&self, asked: Option<Duration>) -> Duration {
        let asked = asked.unwrap_or(Self::DEFAULT_INTERVAL);
        asked.max(self.min_interval).max(Duration::from_millis(1))
    }
}

impl fmt::Debug for OpenRcaService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRcaService")
            .field("min_interval", &self.min_interval)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tonic")]
impl tonic::server::NamedService for OpenRcaService {
    const NAME: &'static str = Self::NAME;
}

impl<B: Body> Service<Request<B>> for OpenRcaService {
    type Response = Response<ReportStream<B>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut response = Response::new(ReportStream::empty());
        if !is_grpc(request.headers()) {
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return ready(Ok(response));
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, GRPC);
        if request.uri().path() == PATH {
            *response.body_mut() = ReportStream::new(self.clone(), request.into_body());
        } else {
            // The same for every method that is not there: the client need not try again.
            stream::UNIMPLEMENTED.write(headers, "no such method here");
        }
        ready(Ok(response))
    }
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

#[cfg(test)]
mod tests;
