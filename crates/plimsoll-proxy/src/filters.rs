//! HTTP filters of a listener, applied to the headers of a request before it is routed: CORS,
//! health check, local rate limit. `forward` calls them; `config::filters` reads their settings.

use std::cell::OnceCell;

use http::{HeaderMap, Response};

use crate::body::ProxyBody;
use crate::config::HttpOptions;
use crate::connection::{Connection, DrainLevel};
use crate::cors::{self, CorsHeaders, CorsOutcome};
use crate::exchange::Exchange;
use crate::listener::ChainRuntime;
use crate::local_reply::{self, LocalReply};
use crate::router::{CompiledRoute, RequestView};

/// A response that a filter gives instead of the route.
pub(crate) enum FilterReply {
    Local(LocalReply),
    Preflight(HeaderMap),
}

impl FilterReply {
    pub(crate) fn response(
        self,
        grpc: bool,
        exchange: Exchange,
        cors: Option<CorsHeaders>,
    ) -> Response<ProxyBody> {
        let mut response = match self {
            Self::Local(reply) => reply.response(grpc, exchange),
            Self::Preflight(headers) => local_reply::preflight(headers, exchange),
        };
        if let Some(cors) = cors {
            cors.apply(&mut response);
        }
        response
    }
}

/// Applies the filters and selects the route. Also returns the CORS headers of the response.
pub(crate) fn apply_filters<'r>(
    runtime: &'r ChainRuntime,
    view: &RequestView<'_>,
    connection: &Connection,
) -> (Result<&'r CompiledRoute, FilterReply>, Option<CorsHeaders>) {
    let options = &runtime.config().http;
    let (stats, worker) = (&connection.stats, &connection.worker);
    // One random number selects the route, for the CORS filter too.
    let drawn = OnceCell::new();
    let draw = || *drawn.get_or_init(|| worker.draw());
    let mut cors = None;
    if options.cors {
        match cors::apply(&runtime.routes, view, stats, draw, || worker.draw()) {
            CorsOutcome::Ignore => {}
            CorsOutcome::Preflight(headers) => return (Err(FilterReply::Preflight(headers)), None),
            CorsOutcome::Respond(headers) => cors = Some(headers),
        }
    }
    if let Some(reply) = filter(view, options, connection) {
        return (Err(FilterReply::Local(reply)), cors);
    }
    let route = runtime.routes.route(view, draw);
    if route.is_none() {
        stats.no_route.increment();
    }
    let no_route = FilterReply::Local(LocalReply::NO_ROUTE);
    (route.ok_or(no_route), cors)
}

/// Applies the health check filter and the local rate limit; returns their reply.
fn filter(
    view: &RequestView<'_>,
    options: &HttpOptions,
    connection: &Connection,
) -> Option<LocalReply> {
    if options.health_check_path.as_deref() == Some(view.path_and_query) {
        let draining = connection.drain_level() != DrainLevel::Serve;
        return Some(if draining {
            LocalReply::DRAINING
        } else {
            LocalReply::HEALTHY
        });
    }
    let bucket = options.local_rate_limit.as_ref()?;
    if bucket.try_take() {
        return None;
    }
    connection.stats.rate_limited.increment();
    Some(LocalReply::RATE_LIMITED)
}
