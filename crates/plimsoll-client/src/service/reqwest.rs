//! [`ReqwestService`]: sends requests of reqwest to a cluster or target.
//!
//! Hooks of reqwest's own client (`connector_layer`, `dns::Resolve`) see connections, not requests,
//! so they cannot balance; the adapter takes reqwest's requests and responses instead.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use plimsoll_core::model::metadata::MatchCriteria;
use reqwest::ResponseBuilderExt as _;
use tokio::time::Instant;
use tower_service::Service;

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::request::deadline_body::DeadlineBody;
use crate::request::options::RequestOptions;
use crate::service::ClusterService;
use crate::service::any::{AnyService, deadline_of};
#[cfg(feature = "xds")]
use crate::service::target::TargetService;

/// A tower service that sends [`reqwest::Request`]s to a cluster or target.
///
/// The URL's host is sent as authority and does not select the host. The timeout of the request
/// covers the response body, as in reqwest. Connections, TLS and retries are those of the cluster;
/// settings of a [`reqwest::Client`] such as redirects, cookies and proxies do not apply. A service
/// belongs to one task; clones are cheap.
///
/// ```
/// # async fn example(client: &plimsoll_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use plimsoll_client::ReqwestService;
/// use tower_service::Service as _;
///
/// let mut orders = ReqwestService::from(client.service("orders")?);
/// let request = reqwest::Client::new().get("http://orders/latest").build()?;
/// let text = orders.call(request).await?.error_for_status()?.text().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReqwestService(AnyService);

impl From<ClusterService> for ReqwestService {
    fn from(service: ClusterService) -> Self {
        Self(service.into())
    }
}

#[cfg(feature = "xds")]
impl From<TargetService> for ReqwestService {
    fn from(service: TargetService) -> Self {
        Self(service.into())
    }
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<reqwest::Response, Error>> + Send>>;

impl Service<reqwest::Request> for ReqwestService {
    type Response = reqwest::Response;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: reqwest::Request) -> Self::Future {
        self.call_with(request, None, None)
    }
}

impl ReqwestService {
    /// Sends a request; the same as [`call`](Service::call) of a clone.
    pub fn send(
        &self,
        request: reqwest::Request,
    ) -> impl Future<Output = Result<reqwest::Response, Error>> + Send + use<> {
        self.clone().call_with(request, None, None)
    }

    /// The client that the service belongs to: metrics, explanations, shutdown.
    pub const fn client(&self) -> &Client {
        self.0.client()
    }

    /// Sends a request with options that it cannot carry itself.
    pub(crate) fn call_with(
        &mut self,
        request: reqwest::Request,
        options: Option<RequestOptions>,
        criteria: Option<MatchCriteria>,
    ) -> ResponseFuture {
        let (timeout, url) = (request.timeout().copied(), request.url().clone());
        let mut request = match http::Request::try_from(request) {
            Ok(request) => request,
            Err(error) => return Box::pin(std::future::ready(Err(invalid(error)))),
        };
        if let Some(options) = options {
            request.extensions_mut().insert(options);
        }
        if let Some(criteria) = criteria {
            request.extensions_mut().insert(criteria);
        }
        let (answer, timeout) = self.0.call_within(request, timeout);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Box::pin(async move {
            let (mut parts, body) = answer.await?.into_parts();
            let deadline = deadline_of(&mut parts.extensions, deadline);
            // Only a builder can set the URL of a response.
            let located = http::Response::builder().url(url).body(());
            let located = located.map_err(invalid)?.into_parts().0;
            parts.extensions.extend(located.extensions);
            let body = reqwest::Body::wrap(DeadlineBody::new(body, deadline));
            Ok(http::Response::from_parts(parts, body).into())
        })
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = "the request of reqwest is not a valid HTTP request";
    Error::new(ErrorKind::Config, message).with_source(error)
}
