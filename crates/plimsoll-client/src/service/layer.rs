//! [`ClusterLayer`]: load balancing for an HTTP client that manages its own connections.
//!
//! The layer picks the host, puts its address into the URI and counts the request; connections, TLS
//! and retries are those of the inner client.

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
use plimsoll_xds::clock::Clock;
use plimsoll_xds::upstream::UpstreamOptions;
use tower_layer::Layer;
use tower_service::Service;

use crate::client::Client;
use crate::cluster::{Cluster, HostPicker};
use crate::error::{BoxError, Error, ErrorKind};
use crate::request::admission::{self, Receiver};
use crate::request::body::{RequestTracker, ResponseBody};
use crate::request::destination::{self, Destination, Pick};

/// A tower layer that balances the requests of another HTTP client over a cluster; from
/// [`Client::layer`].
///
/// Use it only where the inner client must keep its own connections. Connection limits, TLS,
/// retries and health-based connection handling of the cluster do not apply;
/// [`Client::service`] has all of them.
///
/// [`Client::layer`]: crate::Client::layer
/// [`Client::service`]: crate::Client::service
#[derive(Clone, Debug)]
pub struct ClusterLayer {
    client: Client,
    cluster: Arc<Cluster>,
}

/// An HTTP client behind a [`ClusterLayer`]: each request is sent to a picked host.
///
/// The authority of the request's URI becomes its `Host` header, unless it has one.
/// [`MatchCriteria`] in the request's extensions select a subset of the cluster.
#[derive(Debug)]
pub struct Balanced<S> {
    inner: S,
    client: Client,
    cluster: Arc<Cluster>,
    /// Picker of the cluster, checked out with the first request.
    picker: Option<HostPicker>,
}

impl ClusterLayer {
    pub(crate) const fn new(client: Client, cluster: Arc<Cluster>) -> Self {
        Self { client, cluster }
    }

    /// The client that the layer belongs to: metrics, explanations, shutdown.
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

impl<S> Layer<S> for ClusterLayer {
    type Service = Balanced<S>;

    fn layer(&self, inner: S) -> Balanced<S> {
        Balanced {
            inner,
            client: self.client.clone(),
            cluster: Arc::clone(&self.cluster),
            picker: None,
        }
    }
}

impl<S: Clone> Clone for Balanced<S> {
    fn clone(&self) -> Self {
        let layer = ClusterLayer::new(self.client.clone(), Arc::clone(&self.cluster));
        layer.layer(self.inner.clone())
    }
}

impl<S> Balanced<S> {
    /// The client that picks the hosts: metrics, explanations, shutdown.
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

impl<S> Drop for Balanced<S> {
    fn drop(&mut self) {
        if let Some(picker) = self.picker.take() {
            self.cluster.return_picker(picker);
        }
    }
}

type ResponseFuture<R> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, Error>> + Send>>;

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
    type Future = ResponseFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(failed)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Err(error) = self.cluster.initial_fetch.lifecycle.check_open() {
            let error = error.with_cluster(&self.cluster.name);
            return Box::pin(async { Err(error) });
        }
        let picker = self
            .picker
            .get_or_insert_with(|| self.cluster.checkout_picker());
        let criteria = request.extensions_mut().remove::<MatchCriteria>();
        let upstream = self.cluster.options.load();
        let first = pick(&self.cluster, picker, &upstream, criteria.as_ref());
        drop(upstream);
        let mut cluster = Arc::clone(&self.cluster);
        // The clone is not ready: the service that `poll_ready` was called on takes the request.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            let to = match first? {
                Pick::Host(to) => to,
                pick => wait_for_host(&mut cluster, pick, criteria.as_ref()).await?,
            };
            rewrite_uri(&mut request, &to)?;
            let limits = Arc::clone(&cluster.limits);
            limits.ask_for_load_report(request.headers_mut());
            let started = Clock::system().now();
            let active = to.host.begin_request();
            limits.stats.upstream_rq_total.increment();
            let response = match inner.call(request).await {
                Ok(response) => response,
                Err(error) => {
                    // Counts the request as failed.
                    drop(active);
                    limits.handle_error(&to.host);
                    limits.backlog.notify();
                    let error = failed(error).with_cluster(&cluster.name);
                    return Err(error.with_address(Some(to.host.address())));
                }
            };
            limits.stats.count_status(response.status().as_u16());
            let mut tracker = Box::new(RequestTracker::without_connection(active, started, limits));
            tracker.observe_headers(response.status(), response.headers());
            tracker.observe_response_time(started);
            Ok(response.map(|body| ResponseBody::tracked(body, tracker)))
        })
    }
}

fn pick(
    cluster: &Cluster,
    picker: &mut HostPicker,
    upstream: &UpstreamOptions,
    metadata_match: Option<&MatchCriteria>,
) -> Result<Pick, Error> {
    let args = PickArgs {
        metadata_match,
        ..PickArgs::default()
    };
    destination::pick(cluster, picker, upstream, args)
}

/// Waits for a host; replaces `cluster` by the fallback cluster if no endpoints arrive in time.
async fn wait_for_host(
    cluster: &mut Arc<Cluster>,
    first: Pick,
    criteria: Option<&MatchCriteria>,
) -> Result<Destination, Error> {
    let to = Receiver {
        upstream: &mut cluster.options.load_full(),
        cluster,
        waited: &mut false,
        waits_since: &mut None,
    };
    let repick = |cluster: &Cluster, upstream: &UpstreamOptions| {
        let mut picker = cluster.checkout_picker();
        let picked = pick(cluster, &mut picker, upstream, criteria);
        cluster.return_picker(picker);
        picked
    };
    admission::wait_for_host(to, first, repick).await
}

/// Rewrites the URI to the address of the host and keeps the original authority as `Host`.
fn rewrite_uri<B>(request: &mut Request<B>, to: &Destination) -> Result<(), Error> {
    let invalid = |error: http::Error| {
        let message = "the request URI cannot be rewritten to the address of the host";
        Error::new(ErrorKind::Config, message).with_source(error)
    };
    let uri = request.uri();
    let original: Option<HeaderValue> = uri
        .authority()
        .and_then(|authority| authority.as_str().parse().ok());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder()
        .scheme(uri.scheme_str().unwrap_or("http"))
        .authority(to.host.address().to_string())
        .path_and_query(path)
        .build();
    *request.uri_mut() = uri.map_err(invalid)?;
    if let Some(original) = original {
        request.headers_mut().entry(HOST).or_insert(original);
    }
    Ok(())
}

fn failed(error: impl Into<BoxError>) -> Error {
    Error::new(ErrorKind::Transport, "the inner HTTP client failed").with_source(error)
}
