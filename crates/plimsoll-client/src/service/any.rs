//! [`AnyService`]: the service of a cluster or of a target, with a deadline per call; for the
//! adapters `tonic` and `reqwest`.

use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Request};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service as _;

use crate::client::Client;
use crate::error::BoxError;
use crate::request::options::RequestOptions;
use crate::service::authority::set_default_authority;
#[cfg(feature = "xds")]
use crate::service::target::{RouteDeadline, TargetService};
use crate::service::{ClusterService, ResponseFuture};

#[derive(Clone, Debug)]
pub(crate) enum AnyService {
    Cluster(Box<ClusterService>),
    #[cfg(feature = "xds")]
    Target(TargetService),
}

impl From<ClusterService> for AnyService {
    fn from(service: ClusterService) -> Self {
        Self::Cluster(Box::new(service))
    }
}

#[cfg(feature = "xds")]
impl From<TargetService> for AnyService {
    fn from(service: TargetService) -> Self {
        Self::Target(service)
    }
}

impl AnyService {
    pub(crate) const fn client(&self) -> &Client {
        match self {
            Self::Cluster(service) => service.client(),
            #[cfg(feature = "xds")]
            Self::Target(service) => service.client(),
        }
    }

    /// Sends with the shorter of `deadline` and the route's timeout, and returns that timeout.
    pub(crate) fn call_within<B>(
        &mut self,
        mut request: Request<B>,
        deadline: Option<Duration>,
    ) -> (ResponseFuture, Option<Duration>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match self {
            Self::Cluster(service) => {
                set_default_authority(&mut request, service.cluster_name());
                if deadline.is_some() {
                    let own = request.extensions_mut().remove::<RequestOptions>();
                    let options = own.unwrap_or_else(|| service.defaults().clone());
                    let extensions = request.extensions_mut();
                    extensions.insert(options.cap_timeout(deadline));
                }
                (service.call(request), deadline)
            }
            #[cfg(feature = "xds")]
            Self::Target(service) => service.call_within(request, deadline),
        }
    }
}

/// Deadline of a response: that of the call, or the one that its route set meanwhile.
#[cfg(feature = "xds")]
pub(crate) fn deadline_of(
    extensions: &mut Extensions,
    deadline: Option<Instant>,
) -> Option<Instant> {
    let routed = extensions.remove::<RouteDeadline>();
    routed.map_or(deadline, |RouteDeadline(routed)| routed)
}

/// Deadline of a response: that of the call, since clusters have no routes.
#[cfg(not(feature = "xds"))]
pub(crate) const fn deadline_of(_: &mut Extensions, deadline: Option<Instant>) -> Option<Instant> {
    deadline
}
