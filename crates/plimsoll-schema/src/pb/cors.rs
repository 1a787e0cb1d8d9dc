//! `envoy.extensions.filters.http.cors.v3`: cross-origin resource sharing.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::route::RuntimeFractionMessage;
use super::tls::StringMatcherMessage;

/// `Cors`: the filter, which has no settings; routes have policies.
#[derive(Clone, Copy, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.cors.v3.Cors")]
pub struct CorsMessage {}

/// `CorsPolicy`: which origins may use a route. A field that is not set is taken from the virtual
/// host, then from the route configuration.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.extensions.filters.http.cors.v3.CorsPolicy")]
pub struct CorsPolicyMessage {
    /// Origins that are allowed. A matcher that matches `*` allows all.
    #[prost(message, repeated, tag = "1")]
    pub allow_origin_string_match: Vec<StringMatcherMessage>,
    /// `access-control-allow-methods` of preflight responses.
    #[prost(string, tag = "2")]
    pub allow_methods: String,
    /// `access-control-allow-headers` of preflight responses.
    #[prost(string, tag = "3")]
    pub allow_headers: String,
    /// `access-control-expose-headers` of responses to allowed origins.
    #[prost(string, tag = "4")]
    pub expose_headers: String,
    /// `access-control-max-age` of preflight responses.
    #[prost(string, tag = "5")]
    pub max_age: String,
    /// Whether responses have `access-control-allow-credentials: true`. Default false.
    #[prost(message, optional, tag = "6")]
    pub allow_credentials: Option<bool>,
    /// Fraction of requests to which the policy applies. Default all. Not taken from other levels.
    #[prost(message, optional, tag = "7")]
    pub filter_enabled: Option<RuntimeFractionMessage>,
    /// Fraction of requests whose origin is only counted. Default none. Not taken from other
    /// levels.
    #[prost(message, optional, tag = "8")]
    pub shadow_enabled: Option<RuntimeFractionMessage>,
    /// Whether preflight requests for private networks are allowed. Default false.
    #[prost(message, optional, tag = "9")]
    pub allow_private_network_access: Option<bool>,
    /// Whether preflight requests of other origins are forwarded instead of answered. Default true.
    #[prost(message, optional, tag = "10")]
    pub forward_not_matching_preflights: Option<bool>,
}
