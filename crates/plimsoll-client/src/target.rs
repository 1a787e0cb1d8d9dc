//! [`TargetService`]: sends requests where the routes of a target say (`xds:///name`).
//!
//! Routes come from the management server and change while requests run; a request sees one
//! version of them. Matching is plimsoll-xds's, choosing the host the core's.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body::Body;
use plimsoll_core::rng::{Rng as _, Xoshiro256};
use plimsoll_xds::content_type::is_grpc;
use plimsoll_xds::route::{
    Action, HashPolicy, HashSource, RequestHead, RouteAction, RouteConfiguration,
};
use tower_service::Service;
use xxhash_rust::xxh64::xxh64;

use crate::body::ResponseBody;
use crate::client::Client;
use crate::error::{BoxError, Error, ErrorKind};
use crate::options::{RequestOptions, RetryPolicy};
use crate::service::ClusterService;

/// The deadline of a call, as gRPC writes it.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// A tower service that sends requests where the routes of a target say. Cloning is cheap.
#[derive(Debug)]
pub struct TargetService {
    client: Client,
    /// Name of the listener.
    target: Arc<str>,
    /// What virtual hosts are looked up by.
    authority: Arc<str>,
    rng: Xoshiro256,
    /// The same for all requests of a channel and its clones (gRFC A42).
    channel_id: u64,
    /// Services that were used before, by cluster.
    services: BTreeMap<Arc<str>, ClusterService>,
}

impl Clone for TargetService {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            target: Arc::clone(&self.target),
            authority: Arc::clone(&self.authority),
            rng: self.client.next_rng(),
            channel_id: self.channel_id,
            services: BTreeMap::new(),
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Error>> + Send>>;

impl TargetService {
    /// The client has routes for the listener `target`; `authority` is what was asked for.
    pub(crate) fn new(client: Client, target: Arc<str>, authority: Arc<str>) -> Self {
        let mut rng = client.next_rng();
        Self {
            channel_id: rng.next_u64(),
            rng,
            authority,
            target,
            client,
            services: BTreeMap::new(),
        }
    }

    /// What was asked for, without the scheme.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Calls with the earlier of the route's timeout and `deadline`, and says which that is.
    pub(crate) fn call_within<B>(
        &mut self,
        mut request: Request<B>,
        deadline: Option<Duration>,
    ) -> (Answer, Option<Duration>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match self.prepare(&mut request, deadline) {
            Ok((service, timeout)) => (service.call(request), timeout),
            Err(error) => (Box::pin(std::future::ready(Err(error))), None),
        }
    }

    /// Finds the cluster, and says in the request what its route asks for.
    fn prepare<B>(
        &mut self,
        request: &mut Request<B>,
        deadline: Option<Duration>,
    ) -> Result<(&mut ClusterService, Option<Duration>), Error> {
        let mut routes = self.client.routes_of(&self.target)?;
        let draws = (self.rng.next_u64(), self.rng.next_u64());
        let action = loop {
            let action = find(&routes, &self.authority, request, draws.0)?;
            let Err(error) = self.refresh(cluster_of(action, draws.1)?) else {
                break action;
            };
            // Routes are replaced before clusters that only the old ones name are removed.
            let newest = self.client.routes_of(&self.target)?;
            if Arc::ptr_eq(&newest, &routes) {
                return Err(error);
            }
            routes = newest;
        };
        let hash = hash(&action.hash_policy, request.headers(), self.channel_id);
        let criteria = action.criteria(draws.1).cloned();
        let own = request.extensions_mut().remove::<RequestOptions>();
        let options = own.unwrap_or_else(|| options_of(action)).within(deadline);
        tell_timeout(request.headers_mut(), options.timeout, deadline);
        fill_authority(request, &self.authority);
        let timeout = options.timeout;
        request.extensions_mut().insert(RequestOptions {
            hash: options.hash.or(hash),
            metadata_match: options.metadata_match.or(criteria),
            ..options
        });
        let cluster = cluster_of(action, draws.1)?;
        let found = self.services.get_mut(cluster);
        let found = found.ok_or_else(|| Error::new(ErrorKind::UnknownCluster, cluster));
        found.map(|found| (found, timeout))
    }

    /// Sees to it that there is a service for a cluster; another one if the cluster was replaced
    /// meanwhile.
    fn refresh(&mut self, cluster: &str) -> Result<(), Error> {
        let found = self.client.find(cluster)?;
        let known = self.services.get(cluster);
        if known.is_none_or(|known| !known.sends_to(&found)) {
            let service = ClusterService::new(found, 0);
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
    type Future = Answer;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.call_within(request, None).0
    }
}

/// Requests that say only a path, as those of generated clients do, are for whoever was asked for.
pub(crate) fn fill_authority<B>(request: &mut Request<B>, authority: &str) {
    let uri = request.uri();
    if uri.authority().is_some() {
        return;
    }
    let path = uri.path_and_query().cloned();
    let whole = Uri::builder()
        .scheme(http::uri::Scheme::HTTP)
        .authority(authority)
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    // Names that are no authority stay out of requests.
    if let Ok(whole) = whole.build() {
        *request.uri_mut() = whole;
    }
}

fn find<'r, B>(
    routes: &'r RouteConfiguration,
    authority: &str,
    request: &Request<B>,
    draw: u64,
) -> Result<&'r RouteAction, Error> {
    let no_route = |why: String| Error::new(ErrorKind::NoRoute, why);
    let host = routes.virtual_host(authority).ok_or_else(|| {
        no_route(format!(
            "routes {:?} have no virtual host for {authority:?}",
            routes.name
        ))
    })?;
    let path = request.uri().path_and_query();
    let header = |name: &str| joined(request.headers(), name);
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
        .ok_or_else(|| no_route(format!("no route of {authority:?} fits {path:?}")))?;
    match &route.action {
        Action::Forward(action) => Ok(action),
        other => Err(no_route(format!(
            "the route of {path:?} does not forward: {other:?}"
        ))),
    }
}

/// The cluster of a route. Clients have no headers that name one.
fn cluster_of(action: &RouteAction, draw: u64) -> Result<&str, Error> {
    let none = || {
        Error::new(
            ErrorKind::NoRoute,
            "the route wants a header to name the cluster",
        )
    };
    action.target.cluster(draw).ok_or_else(none)
}

/// The values of a header, joined with commas.
fn joined<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, [u8]>> {
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

/// gRFC A42: hashes of several policies are mixed, a terminal one ends the list.
fn hash(policies: &[HashPolicy], headers: &HeaderMap, channel_id: u64) -> Option<u64> {
    let mut mixed: Option<u64> = None;
    for policy in policies {
        let hash = match &policy.source {
            HashSource::Header(name) => joined(headers, name).map(|value| xxh64(&value, 0)),
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

/// A gRPC server hears of a deadline that its client did not set: the one of the route.
fn tell_timeout(headers: &mut HeaderMap, timeout: Option<Duration>, own: Option<Duration>) {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let grpc = content_type.is_some_and(is_grpc);
    let Some(timeout) = timeout.filter(|_| grpc && timeout != own) else {
        return;
    };
    // Eight digits at most.
    let value = match timeout.as_millis() {
        millis @ 0..100_000_000 => format!("{millis}m"),
        millis => format!("{}S", (millis / 1000).min(99_999_999)),
    };
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(GRPC_TIMEOUT, value);
    }
}

/// What a route asks for. Unset timeouts are none, as in gRPC. `max_stream_duration` bounds the
/// deadline of a call (gRFC A31): the route's, or else the listener's, which is put into routes
/// before they come here.
fn options_of(action: &RouteAction) -> RequestOptions {
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
    .within(limit(longest))
}

#[cfg(test)]
mod tests;
