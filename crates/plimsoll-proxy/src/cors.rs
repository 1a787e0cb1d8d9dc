//! The CORS filter: cross-origin resource sharing, as Envoy 1.40 does it.
//!
//! Routes, virtual hosts and route configurations have policies; each field is taken from the most
//! specific level that sets it. Preflight requests of allowed origins are answered here, other
//! responses get headers. Direct responses and redirects have no CORS, as in Envoy. Called by
//! `forward` for listeners that have the filter.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN,
};
use http::{HeaderMap, HeaderValue, Method, Response};
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{self as model, PerFilterConfig, RuntimeFraction};
use plimsoll_xds::string_match::StringMatcher;

use crate::router::{CompiledAction, RequestView, RouteTable};
use crate::stats::HttpStats;

const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const TRUE: HeaderValue = HeaderValue::from_static("true");

/// Compiled CORS policy of a route, merged from all levels.
#[derive(Debug)]
pub struct CorsPolicy {
    origins: Vec<StringMatcher>,
    any_origin: bool,
    allow_methods: Option<HeaderValue>,
    allow_headers: Option<HeaderValue>,
    expose_headers: Option<HeaderValue>,
    max_age: Option<HeaderValue>,
    allow_credentials: bool,
    allow_private_network_access: bool,
    forward_not_matching_preflights: bool,
    /// Fraction of requests to which the policy applies; `None` is all.
    enabled: Option<RuntimeFraction>,
    /// Fraction of requests whose origin is only counted; `None` is none.
    shadow_enabled: Option<RuntimeFraction>,
}

/// Policies of the levels that enclose a route, the most specific first.
pub(crate) type Levels<'a> = [&'a PerFilterConfig];

impl CorsPolicy {
    /// Merges the policies of all levels; `None` if there is none.
    pub(crate) fn merge(levels: &Levels<'_>) -> Result<Option<Self>, FieldError> {
        let policies: Vec<&model::CorsPolicy> = levels
            .iter()
            .filter_map(|level| level.cors.as_ref())
            .collect();
        let Some(first) = policies.first() else {
            return Ok(None);
        };
        let text = |field: &str, of: fn(&model::CorsPolicy) -> &String| {
            let mut values = policies.iter().map(|policy| of(policy));
            values
                .find(|value| !value.is_empty())
                .map(|value| header_value(value, field))
                .transpose()
        };
        let flag = |of: fn(&model::CorsPolicy) -> Option<bool>| {
            policies.iter().find_map(|policy| of(policy))
        };
        let origins = policies
            .iter()
            .map(|policy| &policy.allow_origin_string_match)
            .find(|origins| !origins.is_empty())
            .cloned()
            .unwrap_or_default();
        Ok(Some(Self {
            any_origin: origins.iter().any(|origin| origin.matches(b"*")),
            origins,
            allow_methods: text("allow_methods", |policy| &policy.allow_methods)?,
            allow_headers: text("allow_headers", |policy| &policy.allow_headers)?,
            expose_headers: text("expose_headers", |policy| &policy.expose_headers)?,
            max_age: text("max_age", |policy| &policy.max_age)?,
            allow_credentials: flag(|policy| policy.allow_credentials).unwrap_or(false),
            allow_private_network_access: flag(|policy| policy.allow_private_network_access)
                .unwrap_or(false),
            forward_not_matching_preflights: flag(|policy| policy.forward_not_matching_preflights)
                .unwrap_or(true),
            enabled: first.filter_enabled,
            shadow_enabled: first.shadow_enabled,
        }))
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let matches = |matcher: &StringMatcher| matcher.matches(origin.as_bytes());
        self.any_origin || self.origins.iter().any(matches)
    }

    /// Headers of a preflight response. An origin that is not allowed gets no header that names it.
    fn preflight(&self, request: &HeaderMap, origin: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: Option<&HeaderValue>| {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        };
        let private = self.allow_private_network_access
            && request.get(REQUEST_PRIVATE_NETWORK) == Some(&TRUE);
        set(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        set(
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            self.allow_credentials.then_some(&TRUE),
        );
        set(ACCESS_CONTROL_ALLOW_METHODS, self.allow_methods.as_ref());
        set(ACCESS_CONTROL_ALLOW_HEADERS, self.allow_headers.as_ref());
        set(ACCESS_CONTROL_MAX_AGE, self.max_age.as_ref());
        set(ALLOW_PRIVATE_NETWORK, private.then_some(&TRUE));
        if origin.is_some() {
            set(ACCESS_CONTROL_EXPOSE_HEADERS, self.expose_headers.as_ref());
        }
        headers
    }
}

fn header_value(text: &str, field: &str) -> Result<HeaderValue, FieldError> {
    HeaderValue::from_str(text).map_err(|_| FieldError::new(field, "is not a valid header value"))
}

/// What the filter does with a request.
pub(crate) enum CorsOutcome {
    /// Nothing: the request is not of another origin, or its route has no policy.
    Ignore,
    /// Answer with these headers.
    Preflight(HeaderMap),
    /// Add these headers to the response.
    Respond(CorsHeaders),
}

/// CORS headers of a response.
#[derive(Debug)]
pub(crate) struct CorsHeaders {
    origin: HeaderValue,
    allow_credentials: bool,
    expose_headers: Option<HeaderValue>,
}

impl CorsHeaders {
    pub(crate) fn apply<B>(self, response: &mut Response<B>) {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        if self.allow_credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        if let Some(exposed) = self.expose_headers {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }
}

/// Applies the filter to a request. `draw` returns the random number that selects the route, `dice`
/// one for the fractions of the policy.
pub(crate) fn apply(
    routes: &RouteTable,
    request: &RequestView<'_>,
    stats: &HttpStats,
    draw: impl FnOnce() -> u64,
    dice: impl Fn() -> u64,
) -> CorsOutcome {
    let origin = request.headers.get(ORIGIN);
    let Some(origin) = origin.filter(|origin| !origin.is_empty()) else {
        return CorsOutcome::Ignore;
    };
    let route = routes.route(request, draw);
    let Some(policy) = route
        .filter(|route| matches!(route.action, CompiledAction::Forward(_)))
        .and_then(|route| route.cors.as_ref())
    else {
        return CorsOutcome::Ignore;
    };
    let enabled = policy.enabled.is_none_or(|part| part.includes(dice()));
    let shadow = policy
        .shadow_enabled
        .is_some_and(|part| part.includes(dice()));
    if !enabled && !shadow {
        return CorsOutcome::Ignore;
    }
    let is_preflight = *request.method == Method::OPTIONS
        && request
            .headers
            .get(ACCESS_CONTROL_REQUEST_METHOD)
            .is_some_and(|method| !method.is_empty());
    if !policy.allows(origin) {
        stats.origin_invalid.increment();
        if enabled && is_preflight && !policy.forward_not_matching_preflights {
            return CorsOutcome::Preflight(policy.preflight(request.headers, None));
        }
        return CorsOutcome::Ignore;
    }
    stats.origin_valid.increment();
    if !enabled {
        return CorsOutcome::Ignore;
    }
    if is_preflight {
        return CorsOutcome::Preflight(policy.preflight(request.headers, Some(origin)));
    }
    CorsOutcome::Respond(CorsHeaders {
        origin: origin.clone(),
        allow_credentials: policy.allow_credentials,
        expose_headers: policy.expose_headers.clone(),
    })
}
