//! [`BalancedMiddleware`]: sends the requests of a reqwest client to clusters, by host.

use std::collections::BTreeMap;

use http::Extensions;
use plimsoll_core::model::metadata::MatchCriteria;
use reqwest_middleware::{Error, Middleware, Next};

use crate::request::options::RequestOptions;
use crate::service::reqwest::ReqwestService;

/// A middleware of `reqwest-middleware` that balances requests to some hosts over clusters or
/// targets. Requests to other hosts pass through.
///
/// Add it last: a balanced request is sent from here, over connections of the cluster, and later
/// middleware does not see it (see [`ReqwestService`]). [`RequestOptions`] and [`MatchCriteria`]
/// are taken from the extensions of the request.
///
/// Failures are `Error::Middleware`, for which `is_timeout()` and `is_connect()` are false: ask the
/// [`Error`](crate::Error) of this crate inside, with
/// `error.downcast_ref::<plimsoll_client::Error>()`.
///
/// ```
/// # fn example(client: &plimsoll_client::Client) -> Result<(), plimsoll_client::Error> {
/// use plimsoll_client::BalancedMiddleware;
///
/// let balanced = BalancedMiddleware::default().host("orders", client.service("orders")?);
/// let http = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(balanced).build();
/// // http.get("http://orders/latest").send().await?
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct BalancedMiddleware(BTreeMap<String, ReqwestService>);

impl BalancedMiddleware {
    /// Sends requests for URLs with this host, at any port, through `service`.
    #[must_use]
    pub fn host(mut self, host: &str, service: impl Into<ReqwestService>) -> Self {
        // Hosts of URLs are in lower case.
        self.0.insert(host.to_ascii_lowercase(), service.into());
        self
    }
}

#[async_trait::async_trait]
impl Middleware for BalancedMiddleware {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let service = request.url().host_str().and_then(|host| self.0.get(host));
        let Some(service) = service else {
            return next.run(request, extensions).await;
        };
        let options = extensions.get::<RequestOptions>().cloned();
        let criteria = extensions.get::<MatchCriteria>().cloned();
        let answer = service.clone().call_with(request, options, criteria);
        answer.await.map_err(Error::middleware)
    }
}
