//! HTTP filters of a connection manager: CORS, health check, local rate limit, buffer, router.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::cors::CorsMessage;
use plimsoll_xds::pb::endpoint::FractionalPercentMessage;
use plimsoll_xds::pb::http_filter::{
    BufferMessage, HealthCheckFilterMessage, HttpFilterMessage, LocalRateLimitMessage,
    RouterMessage,
};
use plimsoll_xds::pb::route::{HeaderMatcherMessage, RuntimeFractionMessage};
use plimsoll_xds::pb::tls::StringMatcherMessage;
use plimsoll_xds::pb::{duration, refuse_set};
use plimsoll_xds::schema::registry::HTTP_FILTERS;

use super::extension::{is, typed_config, unsupported};
use crate::rate_limit::TokenBucket;

/// Name under which routes have policies for the CORS filter.
const CORS_NAME: &str = "envoy.filters.http.cors";

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
pub(super) fn filters(messages: Vec<HttpFilterMessage>) -> Result<Filters, FieldError> {
    let mut all = Filters::default();
    let last = messages.len().saturating_sub(1);
    for (index, message) in messages.into_iter().enumerate() {
        let added = all.add(message, index == last);
        added.map_err(|error| error.under(&format!("http_filters[{index}]")))?;
    }
    Ok(all)
}

impl Filters {
    fn add(&mut self, filter: HttpFilterMessage, is_last: bool) -> Result<(), FieldError> {
        refuse_set(&[("is_optional", filter.is_optional)])?;
        let config = filter.typed_config;
        if is_last {
            let router: RouterMessage = typed_config(config)?;
            self.suppress_envoy_headers = router.suppress_envoy_headers;
        } else if is::<CorsMessage>(config.as_ref()) {
            if filter.name != CORS_NAME {
                let reason = format!("must be {CORS_NAME}: routes have policies under this name");
                return Err(FieldError::new("name", reason));
            }
            self.cors = true;
        } else if is::<HealthCheckFilterMessage>(config.as_ref()) {
            let path = typed_config(config).and_then(in_typed_config(health_check_path));
            self.health_check_path = Some(path?);
        } else if is::<LocalRateLimitMessage>(config.as_ref()) {
            let bucket = typed_config(config).and_then(in_typed_config(token_bucket));
            self.local_rate_limit = Some(Arc::new(bucket?));
        } else if is::<BufferMessage>(config.as_ref()) {
            let buffer: BufferMessage = typed_config(config)?;
            let limit = buffer.max_request_bytes;
            let required = || FieldError::new("typed_config.max_request_bytes", "must be set");
            self.max_request_bytes = Some(u64::from(limit.ok_or_else(required)?));
        } else {
            return Err(unsupported(config.as_ref(), HTTP_FILTERS));
        }
        Ok(())
    }
}

/// Prepends `typed_config` to the error paths of a converter.
fn in_typed_config<M, T>(
    convert: impl FnOnce(M) -> Result<T, FieldError>,
) -> impl FnOnce(M) -> Result<T, FieldError> {
    |message| convert(message).map_err(|error| error.under("typed_config"))
}

fn health_check_path(message: HealthCheckFilterMessage) -> Result<String, FieldError> {
    if message.pass_through_mode != Some(false) {
        let reason = "must be false; pass-through mode is not supported";
        return Err(FieldError::new("pass_through_mode", reason));
    }
    let exact = |exact: &str| HeaderMatcherMessage {
        name: ":path".to_owned(),
        string_match: Some(StringMatcherMessage {
            exact: Some(exact.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    };
    if let [only] = message.headers.as_slice()
        && let Some(path) = only
            .string_match
            .as_ref()
            .and_then(|text| text.exact.as_ref())
        && *only == exact(path)
    {
        return Ok(path.clone());
    }
    let reason = "must have exactly one entry, for :path, with string_match.exact";
    Err(FieldError::new("headers", reason))
}

fn token_bucket(message: LocalRateLimitMessage) -> Result<TokenBucket, FieldError> {
    let all = RuntimeFractionMessage {
        default_value: Some(FractionalPercentMessage {
            numerator: 100,
            denominator: 0,
        }),
    };
    for (name, fraction) in [
        ("filter_enabled", message.filter_enabled),
        ("filter_enforced", message.filter_enforced),
    ] {
        if fraction.as_ref() != Some(&all) {
            let reason = "must be set, with 100 % as default_value";
            return Err(FieldError::new(name, reason));
        }
    }
    let bucket = message.token_bucket;
    let bucket = bucket.ok_or_else(|| FieldError::new("token_bucket", "must be set"))?;
    let per_fill = bucket.tokens_per_fill.unwrap_or(1);
    if bucket.max_tokens == 0 || per_fill == 0 {
        return Err(FieldError::new("token_bucket", "needs at least one token"));
    }
    let path = "token_bucket.fill_interval";
    let interval = duration(bucket.fill_interval, path)?.unwrap_or_default();
    if interval < Duration::from_millis(50) {
        return Err(FieldError::new(path, "must be at least 0.05s"));
    }
    Ok(TokenBucket::new(bucket.max_tokens, per_fill, interval))
}
