//! [`TargetService`]: routes requests of an xDS target (`xds:///name`) to clusters.
//!
//! Routes come from the management server and may change at any time; a request sees one version of
//! them. `plimsoll_xds::route` matches the route, the core picks the host.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use plimsoll_core::rng::{Rng as _, Xoshiro256};
use plimsoll_xds::content_type::is_grpc;
use plimsoll_xds::route::{
    Action, HashPolicy, HashSource, RequestHead, RouteAction, RouteConfiguration,
};
use tokio::time::Instant;
use tower_service::Service;
use xxhash_rust::xxh64::xxh64;

use crate::client::Client;
use crate::error::{BoxError, Error, ErrorKind};
use crate::request::body::{RequestBody, ResponseBody};
use crate::request::options::{RequestOptions, RetryPolicy};
use crate::service::authority::set_default_authority;
use crate::service::{ClusterService, ResponseFuture};

const GRPC_TIMEOUT: &str = "grpc-timeout";

/// A tower service that routes requests with the routes of an xDS target; from [`Client::target`].
///
/// Like [`ClusterService`] it belongs to one task; clone it for others. Options of a request are
/// those of its extensions ([`RequestOptions`]), or else those of the route.
#[derive(Debug)]
pub struct TargetService {
    client: Client,
    listener: Arc<str>,
    /// Name of the target, which selects the virtual host.
    authority: Arc<str>,
    rng: Xoshiro256,
    /// Hash input that is constant for a channel and its clones (gRFC A42).
    channel_id: u64,
    services: BTreeMap<Arc<str>, ClusterService>,
}

impl Clone for TargetService {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            listener: Arc::clone(&self.listener),
            authority: Arc::clone(&self.authority),
            rng: self.client.next_rng(),
            channel_id: self.channel_id,
            services: BTreeMap::new(),
        }
    }
}

/// Deadline of a call that waited for its route; an extension of the response, since it was not
/// known when the call started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteDeadline(
    #[cfg_attr(
        not(any(feature = "tonic", feature = "reqwest")),
        expect(dead_code, reason = "read only by the adapters")
    )]
    pub(crate) Option<Instant>,
);

impl TargetService {
    pub(crate) fn new(client: Client, listener: Arc<str>, authority: Arc<str>) -> Self {
        let mut rng = client.next_rng();
        Self {
            channel_id: rng.next_u64(),
            rng,
            authority,
            listener,
            client,
            services: BTreeMap::new(),
        }
    }

    /// Name of the target without its scheme.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The client that the service belongs to: metrics, explanations, shutdown.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request. The body may be `()`, text, bytes or a [`RequestBody`].
    ///
    /// The same as [`call`](Service::call) of a clone: a task that sends many requests saves a
    /// little with a service of its own.
    pub fn send<B: Into<RequestBody>>(&self, request: Request<B>) -> ResponseFuture {
        self.clone().call(request.map(Into::into))
    }

    pub(crate) fn listener(&self) -> &str {
        &self.listener
    }

    /// Sends with the shorter of the route's timeout and `deadline`, and returns that timeout.
    pub(crate) fn call_within<B>(
        &mut self,
        request: Request<B>,
        deadline: Option<Duration>,
    ) -> (ResponseFuture, Option<Duration>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.call_routed(request, deadline, false)
    }

    /// Like [`Self::call_within`]; `waited` says that the request has waited for its routes.
    fn call_routed<B>(
        &mut self,
        mut request: Request<B>,
        deadline: Option<Duration>,
        waited: bool,
    ) -> (ResponseFuture, Option<Duration>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if !self.client.is_open() {
            let closed = self.client.ended();
            return (Box::pin(std::future::ready(Err(closed))), None);
        }
        match self.prepare(&mut request, deadline) {
            Ok(Some((service, timeout))) => (service.dispatch(request, waited), timeout),
            Ok(None) => {
                let service = self.clone();
                (
                    Box::pin(service.call_when_routed(request, deadline)),
                    deadline,
                )
            }
            Err(error) => (Box::pin(std::future::ready(Err(error))), None),
        }
    }

    /// Waits for the first routes, within the time for the initial fetch and the timeout of the
    /// request, then sends: to the fallback cluster if no routes have arrived.
    async fn call_when_routed<B>(
        mut self,
        mut request: Request<B>,
        deadline: Option<Duration>,
    ) -> Result<Response<ResponseBody>, Error>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let options = request.extensions().get::<RequestOptions>();
        let own = options.and_then(|options| options.timeout);
        let limit = own.into_iter().chain(deadline).min();
        let started = Instant::now();
        let waited = !self.client.routes_overdue(&self.listener);
        let waiting = self.client.routed_or_fallback(&self.listener);
        let routed = match limit {
            None => waiting.await,
            Some(limit) => {
                let waited = tokio::time::timeout(limit, waiting).await;
                waited.unwrap_or_else(|_| Err(self.client.routes_timed_out(&self.listener, limit)))
            }
        };
        let fallback = routed?;
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        let (answer, timeout) = match fallback {
            None => self.call_routed(request, left, waited),
            Some(cluster) => {
                let own = request.extensions_mut().remove::<RequestOptions>();
                let options = own.unwrap_or_default().cap_timeout(left);
                set_default_authority(&mut request, &self.authority);
                request.extensions_mut().insert(options);
                let mut service = ClusterService::new(self.client.clone(), cluster, 0);
                (service.dispatch(request, waited), left)
            }
        };
        let ends = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut response = answer.await?;
        response.extensions_mut().insert(RouteDeadline(ends));
        Ok(response)
    }

    /// Matches a route, applies its settings to the request and returns the service of its cluster;
    /// `None` before the first routes have arrived.
    fn prepare<B>(
        &mut self,
        request: &mut Request<B>,
        deadline: Option<Duration>,
    ) -> Result<Option<(&mut ClusterService, Option<Duration>)>, Error> {
        let Some(mut routes) = self.client.routes_of(&self.listener) else {
            return Ok(None);
        };
        let draws = (self.rng.next_u64(), self.rng.next_u64());
        let action = loop {
            let action = match_route(&routes, &self.authority, request, draws.0)?;
            let Err(error) = self.ensure_service(route_cluster(action, draws.1)?) else {
                break action;
            };
            // Clusters are removed after the routes that name them, so there may be newer routes.
            match self.client.routes_of(&self.listener) {
                Some(newest) if !Arc::ptr_eq(&newest, &routes) => routes = newest,
                _ => return Err(error),
            }
        };
        let hash = hash(&action.hash_policy, request.headers(), self.channel_id);
        let criteria = action.criteria(draws.1).cloned();
        let own = request.extensions_mut().remove::<RequestOptions>();
        let options = own
            .unwrap_or_else(|| route_options(action))
            .cap_timeout(deadline);
        set_grpc_timeout(request.headers_mut(), options.timeout, deadline);
        set_default_authority(request, &self.authority);
        let timeout = options.timeout;
        request.extensions_mut().insert(RequestOptions {
            hash: options.hash.or(hash),
            metadata_match: options.metadata_match.or(criteria),
            ..options
        });
        let cluster = route_cluster(action, draws.1)?;
        match self.services.get_mut(cluster) {
            Some(service) => Ok(Some((service, timeout))),
            None => Err(Error::new(ErrorKind::UnknownCluster, cluster)),
        }
    }

    fn ensure_service(&mut self, cluster: &str) -> Result<(), Error> {
        let found = self.client.find(cluster)?;
        let known = self.services.get(cluster);
        if known.is_none_or(|known| !known.sends_to(&found)) {
            let service = ClusterService::new(self.client.clone(), found, 0);
            self.services.insert(cluster.into(), service);
        }
        Ok(())
    }
}

impl<B> Service<Request<B>> for TargetService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.call_within(request, None).0
    }
}

fn match_route<'r, B>(
    routes: &'r RouteConfiguration,
    authority: &str,
    request: &Request<B>,
    draw: u64,
) -> Result<&'r RouteAction, Error> {
    let no_route = |message: String| Error::new(ErrorKind::NoRoute, message);
    let host = routes.virtual_host(authority).ok_or_else(|| {
        no_route(format!(
            "route configuration {:?} has no virtual host for {authority:?}",
            routes.name
        ))
    })?;
    let path = request.uri().path_and_query();
    let header = |name: &str| joined_header(request.headers(), name);
    let head = RequestHead {
        method: request.method().as_str(),
        authority,
        path: path.map_or("/", |path| path.as_str()),
        scheme: request.uri().scheme_str().unwrap_or("http"),
        header: &header,
    };
    let path = head.path;
    let route = host
        .route(&head, draw)
        .ok_or_else(|| no_route(format!("no route of {authority:?} matches {path:?}")))?;
    match &route.action {
        Action::Forward(action) => Ok(action),
        other => Err(no_route(format!(
            "the route for {path:?} does not forward to a cluster: {other:?}"
        ))),
    }
}

fn route_cluster(action: &RouteAction, draw: u64) -> Result<&str, Error> {
    let none = || {
        Error::new(
            ErrorKind::NoRoute,
            "the route selects its cluster by cluster_header, which is not supported",
        )
    };
    action.target.cluster(draw).ok_or_else(none)
}

fn joined_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, [u8]>> {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let first = values.next()?;
    let mut all = Cow::Borrowed(first);
    for value in values {
        let all = all.to_mut();
        all.push(b',');
        all.extend_from_slice(value);
    }
    Some(all)
}

/// Combines the hashes of all policies; a terminal policy with a result ends the list (gRFC A42).
fn hash(policies: &[HashPolicy], headers: &HeaderMap, channel_id: u64) -> Option<u64> {
    let mut mixed: Option<u64> = None;
    for policy in policies {
        let hash = match &policy.source {
            HashSource::Header(name) => joined_header(headers, name).map(|value| xxh64(&value, 0)),
            HashSource::ChannelId => Some(channel_id),
            HashSource::SourceIp | HashSource::Unsupported => None,
        };
        if let Some(hash) = hash {
            mixed = Some(mixed.map_or(hash, |mixed| mixed.rotate_left(1) ^ hash));
        }
        if policy.terminal && mixed.is_some() {
            break;
        }
    }
    mixed
}

fn set_grpc_timeout(headers: &mut HeaderMap, timeout: Option<Duration>, own: Option<Duration>) {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let grpc = content_type.is_some_and(is_grpc);
    let Some(timeout) = timeout.filter(|_| grpc && timeout != own) else {
        return;
    };
    // `grpc-timeout` has at most eight digits and a unit.
    let value = match timeout.as_millis() {
        millis @ 0..100_000_000 => format!("{millis}m"),
        millis => format!("{}S", (millis / 1000).min(99_999_999)),
    };
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(GRPC_TIMEOUT, value);
    }
}

/// Unset timeouts are unlimited, as in gRPC. `max_stream_duration` of the route, or of the listener
/// (`xds::dependencies` copies it into routes), bounds the deadline of a call (gRFC A31).
fn route_options(action: &RouteAction) -> RequestOptions {
    let limit = |timeout: Option<Duration>| timeout.filter(|timeout| !timeout.is_zero());
    let longest = action
        .grpc_timeout_header_max
        .or(action.max_stream_duration);
    let retry = action.retry_policy.as_ref();
    RequestOptions {
        timeout: limit(action.timeout),
        per_try_timeout: limit(retry.and_then(|retry| retry.per_try_timeout)),
        retry: retry.map_or_else(RetryPolicy::default, RetryPolicy::from),
        hash: None,
        metadata_match: None,
    }
    .cap_timeout(limit(longest))
}

#[cfg(test)]
mod tests;
