//! [`OpenRcaService`]: the gRPC service `xds.service.orca.v3.OpenRcaService`, which streams reports
//! out of band (gRFC A51).
//!
//! Needs a tokio runtime with timers, but no tasks: a stream lives in the body of its response
//! (`stream`).

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

/// Streams reports to balancers, independent of responses; from
/// [`OrcaHandle::open_rca_service`](crate::OrcaHandle::open_rca_service).
///
/// Serve it if balancers enable out-of-band reports: then hosts without traffic report, too. The
/// first report is sent at once, further ones at the requested interval, but not below
/// [`Self::min_interval`]; the default is 10 s, as in Envoy. These streams do not count as load.
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
/// With tonic, use `Server::builder().layer(layer).add_service(service)`.
#[derive(Clone)]
pub struct OpenRcaService {
    shared: Arc<Shared>,
    min_interval: Duration,
}

impl OpenRcaService {
    /// Path of the streaming method.
    pub const PATH: &'static str = PATH;
    /// Full name of the gRPC service.
    pub const NAME: &'static str = "xds.service.orca.v3.OpenRcaService";
    /// Reporting interval of requests without one.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);

    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            min_interval: Duration::from_secs(1),
        }
    }

    /// Sets the shortest reporting interval; 1 s by default. At intervals below the tick of the
    /// layer, the same report would be sent repeatedly.
    #[must_use]
    pub const fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// Clamps the requested interval. Timers have a resolution of one millisecond.
    fn interval(&self, requested: Option<Duration>) -> Duration {
        requested
            .unwrap_or(Self::DEFAULT_INTERVAL)
            .max(self.min_interval)
            .max(Duration::from_millis(1))
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
            // Tells the client not to retry.
            stream::UNIMPLEMENTED.write(headers, "unknown method");
        }
        ready(Ok(response))
    }
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

#[cfg(test)]
mod tests;
