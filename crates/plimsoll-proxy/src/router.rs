//! [`RouteTable`]: selects the route of a request. It does no IO: it takes host, path and headers
//! and returns a route. Matching is implemented in `plimsoll_xds::route`, for routes of files and
//! of management servers alike. This module adds the actions of routes (`action`), compiled once
//! per configuration (`compile`); `forward` executes them.

mod action;
mod compile;

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};
use plimsoll_xds::content_type;
use plimsoll_xds::route::{RequestHead, RouteConfiguration};

pub use action::{
    ClusterSelector, CompiledAction, DirectResponse, Forward, ForwardId, HashPolicy, HashSource,
    PathRedirect, Redirect, SelectedCluster, WeightedCluster,
};
pub use plimsoll_xds::route::PathMatcher;

use crate::cors::CorsPolicy;
use crate::header_rules::HeaderRules;

/// The parts of a request that routes match on.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// `Host` or `:authority`, unmodified.
    pub host: &'a str,
    pub path: &'a str,
    pub path_and_query: &'a str,
    pub method: &'a Method,
    pub scheme: &'a str,
    pub headers: &'a HeaderMap,
}

/// Compiled routes of a listener.
#[derive(Debug, Default)]
pub struct RouteTable {
    config: Arc<RouteConfiguration>,
    /// Indexed by virtual host and route, as in the configuration.
    routes: Vec<Vec<CompiledRoute>>,
    /// Whether a route has a `runtime_fraction`, so that matching needs a random number.
    has_fractions: bool,
    /// Whether a route has a policy of the CORS filter.
    pub(crate) has_cors: bool,
}

/// A compiled route: name, action and header rules, without match conditions.
#[derive(Debug)]
pub struct CompiledRoute {
    /// Name of the route in the access log; may be empty.
    pub name: Arc<str>,
    pub path: PathMatcher,
    pub action: CompiledAction,
    /// Mutations of request headers by the route, its virtual host and the route configuration.
    pub request_rules: HeaderRules,
    /// Mutations of response headers by the route, its virtual host and the route configuration.
    pub response_rules: HeaderRules,
    /// Policy of the CORS filter.
    pub cors: Option<CorsPolicy>,
    pub(crate) needs_request_info: bool,
}

impl RouteTable {
    /// Returns the first route that matches. `draw` returns a random number and is only called if a
    /// route has a `runtime_fraction`.
    pub fn route(
        &self,
        request: &RequestView<'_>,
        draw: impl FnOnce() -> u64,
    ) -> Option<&CompiledRoute> {
        let host = self.config.virtual_host_index(request.host)?;
        let header = |name: &str| joined(request.headers, name);
        let head = RequestHead {
            method: request.method.as_str(),
            authority: request.host,
            path: request.path_and_query,
            scheme: request.scheme,
            header: &header,
        };
        let draw = if self.has_fractions { draw() } else { 0 };
        let route = self.config.virtual_hosts()[host].route_index(&head, draw)?;
        self.routes.get(host)?.get(route)
    }

    /// Returns the `RouteConfiguration` that this table was compiled from.
    pub const fn configuration(&self) -> &Arc<RouteConfiguration> {
        &self.config
    }
}

/// Joins the values of a header with commas.
fn joined<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, [u8]>> {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut all = Cow::Borrowed(values.next()?);
    for value in values {
        let all = all.to_mut();
        all.push(b',');
        all.extend_from_slice(value);
    }
    Some(all)
}

/// Whether the content type of a request is gRPC.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| content_type::is_grpc(value.as_bytes()))
}

#[cfg(test)]
mod tests;
