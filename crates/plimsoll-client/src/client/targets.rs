//! Targets of a [`Client`] (`xds:///name`): services that follow the routes of a management server.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_xds::route::RouteConfiguration;
use tokio::time::Instant;

use super::Client;
use crate::cluster::Cluster;
use crate::error::{Error, ErrorKind, Side};
use crate::service::target::TargetService;
use crate::xds::subscriber::waiting;

impl Client {
    /// Returns a service that routes requests with the routes of an xDS target, `xds:///name`.
    ///
    /// Subscribes to the listener of the target and waits for the listener's routes; fails if the
    /// management server does not have the target, or sends no routes within
    /// [`ClientBuilder::initial_fetch_timeout`]. Needs [`ClientBuilder::xds`].
    ///
    /// [`ClientBuilder::initial_fetch_timeout`]: crate::ClientBuilder::initial_fetch_timeout
    /// [`ClientBuilder::xds`]: crate::ClientBuilder::xds
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::{Client, XdsOptions};
    /// use tower_service::Service as _;
    ///
    /// let client = Client::builder().xds(XdsOptions::from_env()?).build()?;
    /// let mut orders = client.target("xds:///orders").await?;
    /// let body = http_body_util::Empty::<bytes::Bytes>::new();
    /// let response = orders.call(http::Request::get("/").body(body)?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn target(&self, target: &str) -> Result<TargetService, Error> {
        let service = self.target_lazy(target)?;
        self.routed_or_fallback(service.listener()).await?;
        Ok(service)
    }

    /// Like [`Self::target`], without waiting: requests wait for the routes.
    ///
    /// They wait at most until their own timeout, or until
    /// [`ClientBuilder::initial_fetch_timeout`] after the target was first named; then they go to
    /// [`ClientBuilder::fallback_cluster`] or fail with the state of the management server.
    ///
    /// [`ClientBuilder::initial_fetch_timeout`]: crate::ClientBuilder::initial_fetch_timeout
    /// [`ClientBuilder::fallback_cluster`]: crate::ClientBuilder::fallback_cluster
    pub fn target_lazy(&self, target: &str) -> Result<TargetService, Error> {
        let name = target_name(target)?;
        let xds = self.xds()?;
        let listener = xds.listener_name(&name);
        xds.add_target(&listener);
        Ok(TargetService::new(self.clone(), listener, name))
    }

    /// Newest routes of a target; `None` before the first have arrived.
    pub(crate) fn routes_of(&self, listener: &str) -> Option<Arc<RouteConfiguration>> {
        let routes = self.0.xds.as_ref()?.routes.load();
        routes.targets.get(listener).cloned()
    }

    /// Waits for the first routes of a target. Returns the fallback cluster if they do not exist
    /// or do not arrive in time.
    pub(crate) async fn routed_or_fallback(
        &self,
        listener: &str,
    ) -> Result<Option<Arc<Cluster>>, Error> {
        let Err(error) = self.xds()?.wait_for_routes(listener).await else {
            return Ok(None);
        };
        let fallback = match error.kind() {
            ErrorKind::Closed => None,
            _ => self.0.initial_fetch.fall_back(&waiting(listener)),
        };
        fallback.map(Some).ok_or(error)
    }

    /// Whether requests no longer wait for the routes of a target.
    pub(crate) fn routes_overdue(&self, listener: &str) -> bool {
        let deadline = self.0.xds.as_ref().and_then(|xds| xds.deadline(listener));
        deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Error of a request whose own timeout ended while it waited for routes.
    pub(crate) fn routes_timed_out(&self, listener: &str, limit: Duration) -> Error {
        let state = self.0.initial_fetch.server_state();
        let message = format!("listener {listener:?}: no routes within {limit:?}; {state}");
        Error::new(ErrorKind::Timeout, message).with_side(Side::ManagementServer)
    }
}

/// Parses the name of `xds:///name` or `xds:name`.
fn target_name(target: &str) -> Result<Arc<str>, Error> {
    let wrong =
        |reason: &str| Error::new(ErrorKind::Config, format!("target {target:?}: {reason}"));
    let rest = target
        .strip_prefix("xds:")
        .ok_or_else(|| wrong("does not start with xds:"))?;
    let name = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => match rest.split_once('/') {
            Some(("", name)) => name,
            _ => return Err(wrong("authorities are not supported; write xds:///name")),
        },
    };
    match name {
        "" => Err(wrong("the name is empty")),
        name => Ok(name.into()),
    }
}

#[cfg(test)]
mod tests;
