//! `envoy.extensions.filters.http`: HTTP filters of a listener. `cors` has the CORS filter.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::route::{HeaderMatcherMessage, RuntimeFractionMessage};
use super::{AnyMessage, DurationMessage};

/// `HttpFilter`: CORS, health check, local rate limit, buffer, or the router.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
    changes_request = "5 config_discovery, 7 disabled?"
)]
pub struct HttpFilterMessage {
    /// Name of the filter; must be `envoy.filters.http.cors` for CORS, because routes have policies
    /// under this name. Has no effect for other filters.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type and settings of the filter. Must be set.
    #[prost(message, optional, tag = "4")]
    #[schema(types = HTTP_FILTERS)]
    pub typed_config: Option<AnyMessage>,
    #[prost(bool, tag = "6")]
    pub is_optional: bool,
}

/// `envoy.extensions.filters.http.router.v3.Router`: the filter that forwards requests.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.router.v3.Router")]
#[schema(harmless = "1 dynamic_stats, 2 start_child_span")]
pub struct RouterMessage {
    /// Do not add `x-envoy-upstream-service-time` to responses. Default false.
    #[prost(bool, tag = "4")]
    pub suppress_envoy_headers: bool,
}

/// `envoy.extensions.filters.http.buffer.v3.Buffer`: limit of request bodies.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.buffer.v3.Buffer")]
pub struct BufferMessage {
    /// Limit of request bodies in bytes; larger ones get 413. Must be set.
    #[prost(message, optional, tag = "1")]
    pub max_request_bytes: Option<u32>,
}

/// `envoy.extensions.filters.http.health_check.v3.HealthCheck`: the proxy answers health checks
/// itself, with 200, or 503 while it drains.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.health_check.v3.HealthCheck")]
#[schema(title = "HealthCheckFilter")]
#[schema(
    unused = "3 cache_time",
    changes_request = "4 cluster_min_healthy_percentages"
)]
pub struct HealthCheckFilterMessage {
    /// Must be false: the backends are not asked. Must be set.
    #[prost(message, optional, tag = "1")]
    pub pass_through_mode: Option<bool>,
    /// Requests that are answered: exactly one condition, `string_match.exact` on `:path`, which
    /// includes the query. Must be set.
    #[prost(message, repeated, tag = "5")]
    pub headers: Vec<HeaderMatcherMessage>,
}

/// `envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit`: a token bucket for all
/// requests of a filter chain.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit")]
#[schema(
    changes_request = "2 status, 6 response_headers_to_add, 8 descriptors, 9 stage, \
          10 request_headers_to_add_when_not_enforced, \
          11 local_rate_limit_per_downstream_connection?, 12 enable_x_ratelimit_headers, \
          13 vh_rate_limits, 14 always_consume_default_token_bucket, \
          15 rate_limited_as_resource_exhausted?, 16 local_cluster_rate_limit, 17 rate_limits, \
          18 max_dynamic_descriptors"
)]
pub struct LocalRateLimitMessage {
    /// Prefix of Envoy's counters; has no effect here.
    #[prost(string, tag = "1")]
    pub stat_prefix: String,
    /// Requests beyond it get 429. Must be set.
    #[prost(message, optional, tag = "3")]
    pub token_bucket: Option<TokenBucketMessage>,
    /// Must be 100 %; Envoy's default is 0 %. `runtime_key` has no effect. Must be set.
    #[prost(message, optional, tag = "4")]
    #[schema(opaque)]
    pub filter_enabled: Option<RuntimeFractionMessage>,
    /// Must be 100 %; Envoy's default is 0 %. `runtime_key` has no effect. Must be set.
    #[prost(message, optional, tag = "5")]
    #[schema(opaque)]
    pub filter_enforced: Option<RuntimeFractionMessage>,
}

/// `envoy.type.v3.TokenBucket`: a rate and a burst of requests.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.type.v3.TokenBucket")]
pub struct TokenBucketMessage {
    /// Largest burst of requests; at least 1. Must be set.
    #[prost(uint32, tag = "1")]
    pub max_tokens: u32,
    /// Requests per `fill_interval`. Default 1.
    #[prost(message, optional, tag = "2")]
    pub tokens_per_fill: Option<u32>,
    /// Interval in which `tokens_per_fill` are added, continuously; at least `0.05s`. Must be set.
    #[prost(message, optional, tag = "3")]
    pub fill_interval: Option<DurationMessage>,
}
