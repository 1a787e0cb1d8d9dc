//! [`OrcaLayer`] and [`OrcaService`], the service that it creates. `call` tracks each request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::OrcaBody;
use crate::builder::{OrcaLayerBuilder, Settings};
use crate::call::Call;
use crate::handle::OrcaHandle;
use crate::state::Shared;

/// A tower layer that reports the load of this process with every response.
///
/// Make it the outermost layer, so that it sees every request. Clones and all services made from
/// them share one report and one sampling thread.
#[derive(Clone)]
pub struct OrcaLayer {
    shared: Arc<Shared>,
}

impl OrcaLayer {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> OrcaLayerBuilder {
        OrcaLayerBuilder::new()
    }

    /// Returns a handle to set metrics of the process and to serve out-of-band reports.
    pub fn handle(&self) -> OrcaHandle {
        OrcaHandle::new(Arc::clone(&self.shared))
    }
}

impl Default for OrcaLayer {
    fn default() -> Self {
        Self::new(Shared::start(Settings::default()))
    }
}

impl fmt::Debug for OrcaLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrcaLayer").finish_non_exhaustive()
    }
}

impl<S> Layer<S> for OrcaLayer {
    type Service = OrcaService<S>;

    fn layer(&self, inner: S) -> OrcaService<S> {
        OrcaService {
            inner,
            shared: Arc::clone(&self.shared),
        }
    }
}

/// A service whose responses carry load reports; created by [`OrcaLayer`].
#[derive(Clone)]
pub struct OrcaService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S: fmt::Debug> fmt::Debug for OrcaService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrcaService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, Req, Res> Service<Request<Req>> for OrcaService<S>
where
    S: Service<Request<Req>, Response = Response<Res>>,
{
    type Response = Response<OrcaBody<Res>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Req>) -> Self::Future {
        let call = Call::begin(&self.shared, &mut request);
        ResponseFuture {
            inner: self.inner.call(request),
            call,
        }
    }
}

pin_project! {
    /// Response future of [`OrcaService`]. A request that is canceled before its response does not
    /// count as an error.
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        call: Option<Call>,
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<OrcaBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        let mut call = this.call.take();
        let response = match result {
            Ok(response) => response,
            Err(error) => {
                if let Some(call) = &mut call {
                    call.handle_error();
                }
                return Poll::Ready(Err(error));
            }
        };
        let (mut head, body) = response.into_parts();
        if let Some(call) = &mut call {
            call.handle_headers(head.status, &mut head.headers);
        }
        let body = OrcaBody::new(body, call);
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}
