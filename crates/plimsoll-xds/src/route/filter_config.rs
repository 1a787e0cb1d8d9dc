//! Settings of routes that only proxies use: policies of HTTP filters, and mirroring.

use super::RuntimeFraction;
use crate::string_match::StringMatcher;

/// Settings of HTTP filters (`typed_per_filter_config`) of one level: route, virtual host or route
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerFilterConfig {
    /// Policy of the filter `envoy.filters.http.cors`.
    pub cors: Option<CorsPolicy>,
    /// Key and reason of the first entry that is not supported. gRPC ignores it; a proxy must not.
    pub unsupported: Option<(String, String)>,
}

/// Cross-origin resource sharing (`CorsPolicy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsPolicy {
    pub allow_origin_string_match: Vec<StringMatcher>,
    pub allow_methods: String,
    pub allow_headers: String,
    pub expose_headers: String,
    pub max_age: String,
    pub allow_credentials: Option<bool>,
    pub filter_enabled: Option<RuntimeFraction>,
    pub shadow_enabled: Option<RuntimeFraction>,
    pub allow_private_network_access: Option<bool>,
    pub forward_not_matching_preflights: Option<bool>,
}

/// A cluster that gets copies of requests (`RequestMirrorPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestMirrorPolicy {
    pub target: MirrorTarget,
    /// Fraction of requests that are mirrored; unset is all.
    pub runtime_fraction: Option<RuntimeFraction>,
    pub disable_shadow_host_suffix_append: bool,
}

/// How a mirror policy names its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorTarget {
    Cluster(String),
    /// Named by a request header.
    ClusterHeader(String),
}
