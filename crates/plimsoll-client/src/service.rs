//! Tower services: [`ClusterService`] here; `target` routes by xDS, `layer` balances another HTTP
//! client, `tonic` and `channel` serve generated gRPC clients, `reqwest` and `middleware` programs
//! that use reqwest.
//!
//! A request passes the circuit breaker and the pick (`request::destination`), its attempts
//! (`request::call`) and a connection (`upstream::endpoint`); it ends with its response body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response};
use http_body::Body;
use plimsoll_core::picker::PickArgs;
use tower_service::Service;
use tracing::Instrument as _;

use crate::client::Client;
use crate::cluster::{Cluster, HostPicker};
use crate::error::{BoxError, Error};
use crate::request::body::{RequestBody, ResponseBody};
use crate::request::call::{Call, RequestSource};
use crate::request::destination;
use crate::request::options::RequestOptions;

#[cfg(any(feature = "tonic", feature = "reqwest"))]
mod any;
#[cfg(any(feature = "tonic", feature = "reqwest", feature = "xds"))]
pub(crate) mod authority;
#[cfg(all(feature = "tonic", feature = "xds"))]
pub(crate) mod channel;
pub(crate) mod layer;
#[cfg(feature = "reqwest-middleware")]
pub(crate) mod middleware;
#[cfg(feature = "reqwest")]
pub(crate) mod reqwest;
#[cfg(feature = "xds")]
pub(crate) mod target;
#[cfg(feature = "tonic")]
pub(crate) mod tonic;

/// Response of a service, as it arrives.
pub type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Error>> + Send>>;

/// A tower service that sends requests to one cluster; from [`Client::service`].
///
/// A service belongs to one task. Clone it for others: clones are cheap, and requests are balanced
/// over all clones together. `poll_ready` is always ready; waiting for the first assignment is part
/// of the call, bounded by its timeout.
///
/// [`Client::service`]: crate::Client::service
#[derive(Debug)]
pub struct ClusterService {
    client: Client,
    cluster: Arc<Cluster>,
    /// Picker of the cluster, checked out with the first request.
    picker: Option<HostPicker>,
    pool: usize,
    defaults: RequestOptions,
    /// Whether `https` in a request's URI says nothing about the connection to the host.
    ignores_scheme: bool,
}

impl ClusterService {
    pub(crate) fn new(client: Client, cluster: Arc<Cluster>, pool: usize) -> Self {
        Self {
            client,
            cluster,
            picker: None,
            pool,
            defaults: RequestOptions::default(),
            ignores_scheme: false,
        }
    }

    /// Whether the service sends to this `Cluster`, not to a later one of the same name.
    #[cfg(feature = "xds")]
    pub(crate) fn sends_to(&self, cluster: &Arc<Cluster>) -> bool {
        Arc::ptr_eq(&self.cluster, cluster)
    }

    /// Options of requests that carry no [`RequestOptions`] of their own.
    pub const fn defaults(&self) -> &RequestOptions {
        &self.defaults
    }

    /// Sets the options of requests that carry no [`RequestOptions`] as an extension.
    #[must_use]
    pub fn with_defaults(mut self, defaults: RequestOptions) -> Self {
        self.defaults = defaults;
        self
    }

    /// Sends requests with the scheme `https`, too, to a cluster without TLS, in plain text: for
    /// proxies, which forward the scheme that a request arrived with. Without this they fail with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config).
    #[must_use]
    pub const fn ignore_scheme(mut self) -> Self {
        self.ignores_scheme = true;
        self
    }

    /// Sends a request. The body may be `()`, text, bytes or a [`RequestBody`].
    ///
    /// The same as [`call`](Service::call) of a clone: a task that sends many requests saves a
    /// little with a service of its own.
    ///
    /// ```
    /// # type Done = Result<(), Box<dyn std::error::Error>>;
    /// # async fn example(client: &plimsoll_client::Client) -> Done {
    /// use plimsoll_client::Request;
    ///
    /// let orders = client.service("orders")?;
    /// let request = Request::post("/orders").body("two apples")?;
    /// let response = orders.send(request).await?;
    /// println!("{} {}", response.status(), response.into_body().text().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn send<B: Into<RequestBody>>(&self, request: Request<B>) -> ResponseFuture {
        self.clone().dispatch(request.map(Into::into), false)
    }

    /// The client that the service belongs to: metrics, explanations, shutdown. A client lives as
    /// long as its services.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request; `waited` says that it has waited for the routes that name this cluster.
    pub(crate) fn dispatch<B>(&mut self, mut request: Request<B>, waited: bool) -> ResponseFuture
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Err(error) = self.cluster.initial_fetch.lifecycle.check_open() {
            return Box::pin(std::future::ready(Err(
                error.with_cluster(&self.cluster.name)
            )));
        }
        let picker = self
            .picker
            .get_or_insert_with(|| self.cluster.checkout_picker());
        let upstream = self.cluster.options.load_full();
        let options = request
            .extensions_mut()
            .remove::<RequestOptions>()
            .unwrap_or_else(|| self.defaults.clone())
            .merge_metadata_match(request.extensions_mut().remove());
        let args = PickArgs {
            hash: options.hash,
            avoid: &[],
            metadata_match: options.metadata_match.as_ref(),
            _non_exhaustive: (),
        };
        let first = destination::pick(&self.cluster, picker, &upstream, args);
        let secure = request.uri().scheme() == Some(&Scheme::HTTPS);
        let call = Call::new(Arc::clone(&self.cluster), upstream, options, self.pool)
            .with_waited(waited)
            .with_request_end(request.extensions_mut().remove())
            .with_needs_tls(secure && !self.ignores_scheme)
            .with_parent(self.cluster.tracing.parent(&request));
        let source = RequestSource::new(request.map(RequestBody::new), &call.options.retry);
        if call.span.is_disabled() {
            return Box::pin(call.run(first, source));
        }
        let span = call.span.clone();
        Box::pin(call.run(first, source).instrument(span))
    }

    /// Name of the cluster that requests are sent to.
    pub fn cluster_name(&self) -> &str {
        &self.cluster.name
    }
}

impl Clone for ClusterService {
    fn clone(&self) -> Self {
        let mut clone = Self::new(self.client.clone(), Arc::clone(&self.cluster), self.pool);
        clone.defaults = self.defaults.clone();
        clone.ignores_scheme = self.ignores_scheme;
        clone
    }
}

impl Drop for ClusterService {
    fn drop(&mut self) {
        if let Some(picker) = self.picker.take() {
            self.cluster.return_picker(picker);
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
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Waiting for the first assignment is part of the call, where its timeout applies.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.dispatch(request, false)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_clone_has_the_cluster_and_the_options_of_its_service() {
        let clusters = ["orders", "users"].map(crate::Cluster::new);
        let mut builder = Client::builder();
        for cluster in clusters {
            builder = builder.cluster(cluster.endpoints(["127.0.0.1:1"]));
        }
        let client = builder.build().unwrap();
        let service = client.service("orders").unwrap();
        assert_eq!(service.cluster_name(), "orders");
        assert_eq!(*service.defaults(), RequestOptions::default());
        let options = RequestOptions {
            timeout: Some(Duration::from_secs(7)),
            ..RequestOptions::default()
        };
        let clone = service.with_defaults(options.clone()).clone();
        assert_eq!(*clone.defaults(), options);
        assert_eq!(clone.cluster_name(), "orders");
        #[cfg(feature = "xds")]
        for name in ["orders", "users"] {
            let found = client.find(name).unwrap();
            assert_eq!(clone.sends_to(&found), name == "orders");
        }
        assert!(client.service("others").is_err());
    }
}
