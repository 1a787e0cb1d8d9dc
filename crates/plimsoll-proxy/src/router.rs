//! [`RouteTable`]: which route a request takes.
//!
//! Pure: host, path and headers in, a route out. What is matched, and in which order, is
//! `plimsoll_xds::route`'s, whose nouns files and management servers become; here are the actions
//! beside them (`action`), made once (`compile`), and the request as HTTP has it. Reading routes
//! from files is in `config::route`, doing what they say in `forward`.

mod action;
mod compile;

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};
use plimsoll_xds::content_type;
use plimsoll_xds::route::{RequestHead, RouteConfiguration};

pub use action::{
    Action, Chosen, DirectResponse, Forward, ForwardId, HashPolicy, HashSource, PathRedirect,
    Redirect, Target, WeightedCluster,
};
pub use plimsoll_xds::route::PathMatcher;

use crate::header_rules::HeaderRules;

/// What a request says that routes look at.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// `Host` or `:authority`, as it came.
    pub host: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// With the query.
    pub path_and_query: &'a str,
    /// The method.
    pub method: &'a Method,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Header fields.
    pub headers: &'a HeaderMap,
}

/// All routes of a listener.
#[derive(Debug, Default)]
pub struct RouteTable {
    config: Arc<RouteConfiguration>,
    /// By virtual host and route, as in the configuration.
    routes: Vec<Vec<Route>>,
    /// Whether a route is for a fraction of requests, so that a draw is needed.
    draws: bool,
}

/// What a route does, besides matching.
#[derive(Debug)]
pub struct Route {
    /// For people; may be empty.
    pub name: Arc<str>,
    /// What the path was matched with.
    pub path: PathMatcher,
    /// What happens.
    pub action: Action,
    /// Changes of the request, those of the virtual host and the table included.
    pub request_rules: HeaderRules,
    /// Changes of the response.
    pub response_rules: HeaderRules,
    /// Whether these make values for each message.
    pub(crate) needs_facts: bool,
}

impl RouteTable {
    /// The first route that matches. A draw, which may be any number, is taken if one is needed.
    pub fn route(&self, request: &RequestView<'_>, draw: impl FnOnce() -> u64) -> Option<&Route> {
        let host = self.config.virtual_host_index(request.host)?;
        let header = |name: &str| joined(request.headers, name);
        let head = RequestHead {
            method: request.method.as_str(),
            authority: request.host,
            path: request.path_and_query,
            scheme: request.scheme,
            header: &header,
        };
        let draw = if self.draws { draw() } else { 0 };
        let route = self.config.virtual_hosts()[host].route_index(&head, draw)?;
        self.routes.get(host)?.get(route)
    }

    /// What it was made of.
    pub const fn configuration(&self) -> &Arc<RouteConfiguration> {
        &self.config
    }
}

/// The values of a field, joined with commas.
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

/// Whether a request is gRPC.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| content_type::is_grpc(value.as_bytes()))
}

#[cfg(test)]
mod tests;
