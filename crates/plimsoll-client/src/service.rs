//! [`ClusterService`]: picks a host for each request, sends it, keeps the accounts.
//!
//! The journey of a request: breaker, pick, connection, response headers; the rest is the response
//! body's. Tried again on another host only what no host has seen. Choosing is plimsoll-core's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use plimsoll_core::host::Host;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::picker::{PickArgs, PickResult};
use plimsoll_xds::driver::Clock;
use tower_service::Service;

use crate::body::{Account, RequestBody, ResponseBody};
use crate::cluster::{Cluster, RetryBudget, Worker};
use crate::endpoint::{Endpoint, Sent};
use crate::error::{BoxError, Error, ErrorKind};
use crate::options::RequestOptions;
use plimsoll_xds::upstream::UpstreamOptions;

/// A tower service that sends requests to one cluster. Clones are cheap and together as fair as
/// one.
#[derive(Debug)]
pub struct ClusterService {
    cluster: Arc<Cluster>,
    /// Lent by the cluster with the first request.
    worker: Option<Worker>,
    /// Which of the connection pools is used.
    pool: usize,
    /// For requests that bring none.
    defaults: RequestOptions,
}

impl ClusterService {
    pub(crate) fn new(cluster: Arc<Cluster>, pool: usize) -> Self {
        Self {
            cluster,
            worker: None,
            pool,
            defaults: RequestOptions::default(),
        }
    }

    /// Whether both send to the same cluster, not only to one of the same name.
    pub(crate) fn is_same_cluster(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cluster, &other.cluster)
    }

    /// Options of requests that bring none.
    pub const fn defaults(&self) -> &RequestOptions {
        &self.defaults
    }

    /// Options of all requests that do not bring [`RequestOptions`] as an extension.
    #[must_use]
    pub fn with_defaults(mut self, defaults: RequestOptions) -> Self {
        self.defaults = defaults;
        self
    }

    /// Name of the cluster.
    pub fn cluster_name(&self) -> &str {
        &self.cluster.name
    }
}

impl Clone for ClusterService {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.cluster), self.pool).with_defaults(self.defaults.clone())
    }
}

impl Drop for ClusterService {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.cluster.give_back(worker);
        }
    }
}

impl<B> Service<Request<B>> for ClusterService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Waiting for the first assignment is part of the call, where its timeout applies.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let worker = self
            .worker
            .get_or_insert_with(|| self.cluster.lend_worker());
        let upstream = self.cluster.options.load_full();
        let own = request.extensions_mut().remove();
        let options: RequestOptions = own.unwrap_or_else(|| self.defaults.clone());
        let args = PickArgs {
            hash: options.hash,
            avoid: &[],
        };
        let first = pick(&self.cluster, worker, &upstream, args);
        let call = Call {
            cluster: Arc::clone(&self.cluster),
            upstream,
            options,
            pool: self.pool,
            tried: Vec::new(),
        };
        let request = request.map(RequestBody::new);
        Box::pin(async move { within(call.options.timeout, call.send(first, request)).await })
    }
}

/// Where a try goes.
struct Target {
    host: Arc<Host>,
    endpoint: Arc<Endpoint>,
    config: Arc<ClusterConfig>,
}

/// Where a request goes. `None` = no assignment yet.
fn pick(
    cluster: &Cluster,
    worker: &mut Worker,
    upstream: &UpstreamOptions,
    args: PickArgs<'_>,
) -> Result<Option<Target>, Error> {
    let limit = upstream.circuit_breakers.max_requests;
    if cluster.load.active() >= u64::from(limit) {
        cluster.load.record_drop();
        let message = format!("cluster {}: {limit} requests in flight", cluster.name);
        return Err(Error::new(ErrorKind::Overflow, message));
    }
    let host = match worker.picker.pick(args) {
        PickResult::Complete(pick) => Arc::clone(pick.host),
        PickResult::Queue => return Ok(None),
        PickResult::Drop { category } => {
            let message = format!("dropped by order of the assignment ({category})");
            return Err(Error::new(ErrorKind::Dropped, message));
        }
        PickResult::Fail(error) => {
            let message = format!("cluster {}: {error}", cluster.name);
            return Err(Error::new(ErrorKind::NoHost, message));
        }
    };
    let address = host.address();
    let endpoint = worker.endpoints.latest().get(&address).cloned();
    // Endpoints are published before the snapshot that knows them, and removed after it.
    let endpoint = endpoint.ok_or_else(|| {
        Error::new(
            ErrorKind::NoHost,
            format!("{address} has just been removed"),
        )
    })?;
    Ok(Some(Target {
        host,
        endpoint,
        config: Arc::clone(worker.picker.snapshot().config()),
    }))
}

/// One call, over all its tries.
struct Call {
    cluster: Arc<Cluster>,
    upstream: Arc<UpstreamOptions>,
    options: RequestOptions,
    pool: usize,
    tried: Vec<Arc<Host>>,
}

impl Call {
    /// Sends `request`, again on another host as long as nobody has seen it and the budget lasts.
    async fn send(
        mut self,
        first: Result<Option<Target>, Error>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Error> {
        let mut target = first?;
        let mut retry = None;
        loop {
            let Some(found) = target else {
                self.wait_until_ready().await?;
                target = self.pick_again()?;
                continue;
            };
            let host = Arc::clone(&found.host);
            let attempt = self.attempt(found, request);
            let (unsent, error) = match within(self.options.per_try_timeout, attempt).await? {
                Ok(response) => return Ok(response),
                Err(Unsent(unsent, error)) => (unsent, error),
            };
            drop(retry.take());
            let tries = u32::try_from(self.tried.len()).unwrap_or(u32::MAX);
            if tries >= self.options.retry.num_retries {
                return Err(error);
            }
            retry = RetryBudget::take(&self.cluster, &self.upstream);
            if retry.is_none() {
                return Err(error);
            }
            self.tried.push(host);
            request = unsent;
            target = self.pick_again()?;
        }
    }

    async fn attempt(
        &self,
        target: Target,
        request: Request<RequestBody>,
    ) -> Result<Result<Response<ResponseBody>, Unsent>, Error> {
        let started = Clock::system().now();
        // Reserved before the first await: a request counts while its connection is dialled.
        let reserved = target.host.reserve_request();
        match target.endpoint.send(request, reserved, self.pool).await {
            Sent::Unsent(request, error) => Ok(Err(Unsent(request, error))),
            Sent::Failed(error) => Err(error),
            Sent::Response {
                response,
                active,
                lease,
            } => {
                let mut account = Account::new(active, target.config, started, lease);
                account.look_at_headers(response.status(), response.headers());
                Ok(Ok(response.map(|body| ResponseBody::new(body, account))))
            }
        }
    }

    fn pick_again(&self) -> Result<Option<Target>, Error> {
        let mut worker = self.cluster.lend_worker();
        let args = PickArgs {
            hash: self.options.hash,
            avoid: &self.tried,
        };
        let picked = pick(&self.cluster, &mut worker, &self.upstream, args);
        self.cluster.give_back(worker);
        picked
    }

    async fn wait_until_ready(&self) -> Result<(), Error> {
        let mut ready = self.cluster.ready.clone();
        let waited = ready.wait_for(|ready| *ready).await;
        let closed = |_| Error::new(ErrorKind::Closed, "the client is shut down");
        waited.map(|_| ()).map_err(closed)
    }
}

/// A request that no host has seen, and why.
struct Unsent(Request<RequestBody>, Error);

async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(limit) = limit else {
        return work.await;
    };
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => {
            let message = format!("no response within {limit:?}");
            Err(Error::new(ErrorKind::Timeout, message))
        }
    }
}
