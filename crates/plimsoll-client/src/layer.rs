//! [`ClusterLayer`]: balancing for an HTTP client that makes its own connections.
//!
//! The layer picks the host, puts its address into the URI and keeps the accounts; connections,
//! TLS and retries are those of the client below. `service` does all of it by itself and is the
//! better choice where nothing else is given.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::Body;
use plimsoll_core::model::metadata::MatchCriteria;
use plimsoll_core::picker::PickArgs;
use plimsoll_xds::driver::Clock;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{Account, ResponseBody};
use crate::cluster::{Cluster, Worker};
use crate::destination::{self, Target};
use crate::error::{BoxError, Error, ErrorKind};

/// Puts balancing over one cluster in front of an HTTP client; made by
/// [`Client::layer`](crate::Client::layer).
#[derive(Clone, Debug)]
pub struct ClusterLayer(Arc<Cluster>);

/// An HTTP client whose requests go to hosts that the engine picks. The host of the request's URI
/// becomes its `Host` header, unless it has one. [`MatchCriteria`] that it has as an extension
/// choose the subset of the cluster.
#[derive(Debug)]
pub struct Balanced<S> {
    inner: S,
    cluster: Arc<Cluster>,
    /// Lent by the cluster with the first request.
    worker: Option<Worker>,
}

impl ClusterLayer {
    pub(crate) const fn new(cluster: Arc<Cluster>) -> Self {
        Self(cluster)
    }
}

impl<S> Layer<S> for ClusterLayer {
    type Service = Balanced<S>;

    fn layer(&self, inner: S) -> Balanced<S> {
        Balanced {
            inner,
            cluster: Arc::clone(&self.0),
            worker: None,
        }
    }
}

impl<S: Clone> Clone for Balanced<S> {
    fn clone(&self) -> Self {
        ClusterLayer(Arc::clone(&self.cluster)).layer(self.inner.clone())
    }
}

impl<S> Drop for Balanced<S> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.cluster.give_back(worker);
        }
    }
}

type Answer<R> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, Error>> + Send>>;

impl<S, B, R> Service<Request<B>> for Balanced<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    R: Body<Data = Bytes> + Unpin + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = Error;
    type Future = Answer<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(failed)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let worker = self
            .worker
            .get_or_insert_with(|| self.cluster.lend_worker());
        let criteria = request.extensions_mut().remove::<MatchCriteria>();
        let first = pick(&self.cluster, worker, criteria.as_ref());
        let cluster = Arc::clone(&self.cluster);
        // The one that was ready takes the request.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            let target = match first? {
                Some(target) => target,
                None => wait(&cluster, criteria.as_ref()).await?,
            };
            send_to(&mut request, &target)?;
            let started = Clock::system().now();
            let active = target.host.begin_request();
            // Dropping what is active counts it as failed.
            let response = inner.call(request).await.map_err(failed)?;
            let stats = Arc::clone(&cluster.limits.stats);
            let account = Account::without_connection(active, target.config, started, stats);
            let mut account = Box::new(account);
            account.look_at_headers(response.status(), response.headers());
            account.observe_response_time(started);
            Ok(response.map(|body| ResponseBody::counted(body, account)))
        })
    }
}

fn pick(
    cluster: &Cluster,
    worker: &mut Worker,
    metadata_match: Option<&MatchCriteria>,
) -> Result<Option<Target>, Error> {
    let upstream = cluster.options.load();
    let args = PickArgs {
        metadata_match,
        ..PickArgs::default()
    };
    destination::pick(cluster, worker, &upstream, args)
}

/// Until the first assignment.
async fn wait(cluster: &Cluster, criteria: Option<&MatchCriteria>) -> Result<Target, Error> {
    let mut ready = cluster.ready.clone();
    let waited = ready.wait_for(|ready| *ready).await;
    let closed = || Error::new(ErrorKind::Closed, "the client is shut down");
    waited.map_err(|_| closed())?;
    let mut worker = cluster.lend_worker();
    let picked = pick(cluster, &mut worker, criteria);
    cluster.give_back(worker);
    picked?.ok_or_else(closed)
}

/// The address of the host into the URI; who was asked for stays in the headers.
fn send_to<B>(request: &mut Request<B>, target: &Target) -> Result<(), Error> {
    let wrong = |error: http::Error| Error::new(ErrorKind::Config, "the URI").because(error);
    let uri = request.uri();
    let asked = uri
        .authority()
        .and_then(|asked| asked.as_str().parse().ok());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder()
        .scheme(uri.scheme_str().unwrap_or("http"))
        .authority(target.host.address().to_string())
        .path_and_query(path)
        .build();
    *request.uri_mut() = uri.map_err(wrong)?;
    if let Some(asked) = asked {
        let headers = request.headers_mut();
        let asked: HeaderValue = asked;
        headers.entry(HOST).or_insert(asked);
    }
    Ok(())
}

fn failed(error: impl Into<BoxError>) -> Error {
    Error::new(ErrorKind::Transport, "the HTTP client failed").because(error)
}
