//! HTTP filters of a connection manager: CORS, health check, local rate limit, buffer, router.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{ProtoDuration, Uint};
use serde::Deserialize;

use super::bootstrap::expect_type;
use crate::rate_limit::TokenBucket;

const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const BUFFER: &str = "envoy.extensions.filters.http.buffer.v3.Buffer";
const CORS: &str = "envoy.extensions.filters.http.cors.v3.Cors";
/// Name under which routes have policies for the CORS filter.
const CORS_NAME: &str = "envoy.filters.http.cors";
const HEALTH_CHECK: &str = "envoy.extensions.filters.http.health_check.v3.HealthCheck";
const LOCAL_RATE_LIMIT: &str = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";

/// An HTTP filter (`HttpFilter`): CORS, health check, local rate limit, buffer, or the router.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct HttpFilterYaml {
    /// Name of the filter; must be `envoy.filters.http.cors` for CORS, because routes have policies
    /// under this name. Has no effect for other filters.
    #[serde(default)]
    name: String,
    /// Type and settings of the filter.
    typed_config: HttpFilterConfigYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HttpFilterConfigYaml {
    /// `type.googleapis.com/envoy.extensions.filters.http.` with `router.v3.Router`,
    /// `buffer.v3.Buffer`, `cors.v3.Cors`, `health_check.v3.HealthCheck` or
    /// `local_ratelimit.v3.LocalRateLimit`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Buffer: limit of request bodies in bytes; larger ones get 413. Required.
    max_request_bytes: Option<Uint<u32>>,
    /// Router: do not add `x-envoy-upstream-service-time` to responses. Default false.
    suppress_envoy_headers: Option<bool>,
    /// Health check: must be false. The proxy answers 200, or 503 while it drains.
    pass_through_mode: Option<bool>,
    /// Health check: exactly one condition, on `:path`.
    headers: Option<Vec<PathConditionYaml>>,
    /// Local rate limit: has no effect.
    stat_prefix: Option<String>,
    /// Local rate limit: requests beyond it get 429. Required.
    token_bucket: Option<TokenBucketYaml>,
    /// Local rate limit: must be 100 %; Envoy's default is 0 %.
    filter_enabled: Option<FractionYaml>,
    /// Local rate limit: must be 100 %; Envoy's default is 0 %.
    filter_enforced: Option<FractionYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct PathConditionYaml {
    /// Must be `:path`: no other header is compared.
    name: String,
    /// The path, with its query.
    string_match: ExactYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ExactYaml {
    /// The value that is answered.
    exact: String,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TokenBucketYaml {
    /// Largest burst of requests; at least 1.
    max_tokens: Uint<u32>,
    /// Requests per `fill_interval`. Default 1.
    tokens_per_fill: Option<Uint<u32>>,
    /// Interval in which `tokens_per_fill` are added, continuously; at least `0.05s`.
    fill_interval: ProtoDuration,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FractionYaml {
    /// Has no effect: there is no runtime.
    #[serde(rename = "runtime_key", default)]
    _runtime_key: String,
    /// Must be 100 %.
    default_value: EnforcedPercentYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EnforcedPercentYaml {
    /// Must be 100: the limit holds for every request.
    numerator: Uint<u32>,
    /// Must be `HUNDRED`, the default.
    #[serde(default = "hundred")]
    denominator: String,
}

fn hundred() -> String {
    "HUNDRED".to_owned()
}

/// Settings of all filters together.
#[derive(Debug, Default)]
pub(super) struct Filters {
    pub(super) max_request_bytes: Option<u64>,
    pub(super) suppress_envoy_headers: bool,
    pub(super) local_rate_limit: Option<Arc<TokenBucket>>,
    pub(super) health_check_path: Option<String>,
    pub(super) cors: bool,
}

/// Checks the filters, of which the last must be the router. Wherever they stand, CORS comes first,
/// then the health check, then the rate limit.
pub(super) fn validate(filters: &[HttpFilterYaml]) -> Result<Filters, FieldError> {
    let mut all = Filters::default();
    let last = filters.len().saturating_sub(1);
    for (index, filter) in filters.iter().enumerate() {
        let prefix = format!("http_filters[{index}].typed_config");
        let config = &filter.typed_config;
        let added = config.add_to(&mut all, index == last);
        added.map_err(|error| error.under(&prefix))?;
        if config.is_cors() && filter.name != CORS_NAME {
            let path = format!("http_filters[{index}].name");
            let reason = format!("must be {CORS_NAME}: routes have policies under this name");
            return Err(FieldError::new(path, reason));
        }
    }
    Ok(all)
}

impl HttpFilterConfigYaml {
    fn is_cors(&self) -> bool {
        expect_type(&self.type_url, CORS).is_ok()
    }

    fn add_to(&self, all: &mut Filters, last: bool) -> Result<(), FieldError> {
        let is = |name: &str| expect_type(&self.type_url, name).is_ok();
        if last {
            expect_type(&self.type_url, ROUTER)?;
            self.allow_only(&["suppress_envoy_headers"])?;
            all.suppress_envoy_headers = self.suppress_envoy_headers.unwrap_or(false);
        } else if self.is_cors() {
            self.allow_only(&[])?;
            all.cors = true;
        } else if is(HEALTH_CHECK) {
            self.allow_only(&["pass_through_mode", "headers"])?;
            all.health_check_path = Some(self.health_check_path()?);
        } else if is(LOCAL_RATE_LIMIT) {
            let fields = [
                "stat_prefix",
                "token_bucket",
                "filter_enabled",
                "filter_enforced",
            ];
            self.allow_only(&fields)?;
            all.local_rate_limit = Some(Arc::new(self.bucket()?));
        } else {
            expect_type(&self.type_url, BUFFER)?;
            self.allow_only(&["max_request_bytes"])?;
            let limit = self.max_request_bytes;
            let required = || FieldError::new("max_request_bytes", "must be set");
            all.max_request_bytes = Some(u64::from(limit.ok_or_else(required)?.0));
        }
        Ok(())
    }

    /// Rejects fields of other filters.
    fn allow_only(&self, allowed: &[&str]) -> Result<(), FieldError> {
        let set = [
            ("max_request_bytes", self.max_request_bytes.is_some()),
            (
                "suppress_envoy_headers",
                self.suppress_envoy_headers.is_some(),
            ),
            ("pass_through_mode", self.pass_through_mode.is_some()),
            ("headers", self.headers.is_some()),
            ("stat_prefix", self.stat_prefix.is_some()),
            ("token_bucket", self.token_bucket.is_some()),
            ("filter_enabled", self.filter_enabled.is_some()),
            ("filter_enforced", self.filter_enforced.is_some()),
        ];
        match set
            .iter()
            .find(|(name, set)| *set && !allowed.contains(name))
        {
            Some((name, _)) => Err(FieldError::new(*name, "is not a field of this filter")),
            None => Ok(()),
        }
    }

    fn health_check_path(&self) -> Result<String, FieldError> {
        if self.pass_through_mode != Some(false) {
            let reason = "must be false; pass-through mode is not supported";
            return Err(FieldError::new("pass_through_mode", reason));
        }
        match self.headers.as_deref() {
            Some([only]) if only.name == ":path" => Ok(only.string_match.exact.clone()),
            _ => Err(FieldError::new(
                "headers",
                "must have exactly one entry, for :path",
            )),
        }
    }

    fn bucket(&self) -> Result<TokenBucket, FieldError> {
        let fractions = [
            ("filter_enabled", &self.filter_enabled),
            ("filter_enforced", &self.filter_enforced),
        ];
        for (name, fraction) in fractions {
            let all = fraction.as_ref().is_some_and(|fraction| {
                let percent = &fraction.default_value;
                percent.numerator.0 == 100 && percent.denominator == "HUNDRED"
            });
            if !all {
                let reason = "must be set, with 100 % as default_value";
                return Err(FieldError::new(name, reason));
            }
        }
        let bucket = self.token_bucket.as_ref();
        let bucket = bucket.ok_or_else(|| FieldError::new("token_bucket", "must be set"))?;
        let per_fill = bucket.tokens_per_fill.map_or(1, |tokens| tokens.0);
        if bucket.max_tokens.0 == 0 || per_fill == 0 {
            return Err(FieldError::new("token_bucket", "needs at least one token"));
        }
        let interval = bucket.fill_interval.0;
        if interval < Duration::from_millis(50) {
            let reason = "must be at least 0.05s";
            return Err(FieldError::new("token_bucket.fill_interval", reason));
        }
        Ok(TokenBucket::new(bucket.max_tokens.0, per_fill, interval))
    }
}
