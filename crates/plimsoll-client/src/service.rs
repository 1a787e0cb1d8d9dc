//! [`ClusterService`]: picks a host for each request, sends it, keeps the accounts.
//!
//! The journey of a request: breaker and pick (`target`), tries (`call`), connection (`endpoint`),
//! response headers; the rest is the response body's. Choosing is plimsoll-core's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use plimsoll_core::picker::PickArgs;
use tower_service::Service;
use tracing::Instrument as _;

use crate::body::{RequestBody, ResponseBody};
use crate::call::{Call, Supply};
use crate::cluster::{Cluster, Worker};
use crate::destination;
use crate::error::{BoxError, Error};
use crate::options::RequestOptions;

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

    /// Whether it sends to this cluster, not only to one of the same name.
    pub(crate) fn sends_to(&self, cluster: &Arc<Cluster>) -> bool {
        Arc::ptr_eq(&self.cluster, cluster)
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
        let options = options.matching(request.extensions_mut().remove());
        let args = PickArgs {
            hash: options.hash,
            avoid: &[],
            metadata_match: options.metadata_match.as_ref(),
        };
        let first = destination::pick(&self.cluster, worker, &upstream, args);
        let call = Call::new(Arc::clone(&self.cluster), upstream, options, self.pool);
        let supply = Supply::new(request.map(RequestBody::new), &call.options.retry);
        if call.span.is_disabled() {
            return Box::pin(call.run(first, supply));
        }
        let span = call.span.clone();
        Box::pin(call.run(first, supply).instrument(span))
    }
}
