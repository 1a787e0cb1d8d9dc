//! Decoding of API listeners for gRPC clients (gRFCs A27 and A39). Called through `wire`.
//!
//! Listeners with an address, for servers and proxies, are not supported here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;

use super::decode_resource;
use super::encode_listener::{HTTP_CONNECTION_MANAGER, ROUTER};
use super::route::route_configuration;
use crate::route::RouteConfiguration;
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::pb::http_filter::HttpFilterMessage;
use plimsoll_schema::pb::listener::{HttpConnectionManagerMessage, ListenerMessage, RdsMessage};
use plimsoll_schema::pb::{duration, refuse_set};

/// API listener of a client, which routes the target it is named after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiListener {
    pub name: String,
    pub routes: RouteSource,
    /// Default `max_stream_duration` of the listener's routes; `None` is unlimited.
    pub max_stream_duration: Option<Duration>,
}

/// Source of a listener's route configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// Name of a resource on the same stream.
    Rds(Arc<str>),
    Inline(Arc<RouteConfiguration>),
}

/// Decodes an API listener.
pub fn decode_listener(bytes: &[u8]) -> Result<ApiListener, DecodeError> {
    let message: ListenerMessage = decode_resource(bytes)?;
    let api = message.api_listener.and_then(|api| api.api_listener);
    let Some(any) = api else {
        return Err(DecodeError::new("api_listener", "must be set"));
    };
    let under = |error: FieldError| error.under("api_listener.api_listener");
    if any.type_name() != HTTP_CONNECTION_MANAGER {
        let reason = format!("{:?} is not an HttpConnectionManager", any.type_url);
        return Err(under(FieldError::new("type_url", reason)).into());
    }
    let manager = any.unpack().map_err(under)?;
    let (routes, max_stream_duration) = connection_manager(manager).map_err(under)?;
    Ok(ApiListener {
        name: message.name,
        routes,
        max_stream_duration,
    })
}

fn connection_manager(
    message: HttpConnectionManagerMessage,
) -> Result<(RouteSource, Option<Duration>), FieldError> {
    refuse_set(&[
        ("scoped_routes", message.scoped_routes.is_some()),
        ("xff_num_trusted_hops", message.xff_num_trusted_hops != 0),
        (
            "original_ip_detection_extensions",
            !message.original_ip_detection_extensions.is_empty(),
        ),
    ])?;
    http_filters(&message.http_filters)?;
    let options = message.common_http_protocol_options.unwrap_or_default();
    let path = "common_http_protocol_options.max_stream_duration";
    let limit = duration(options.max_stream_duration, path)?;
    let routes = match (message.rds, message.route_config) {
        (Some(rds), None) => rds_name(rds)
            .map(|name| RouteSource::Rds(name.into()))
            .map_err(|error| error.under("rds"))?,
        (None, Some(config)) => {
            let config =
                route_configuration(config).map_err(|error| error.under("route_config"))?;
            RouteSource::Inline(Arc::new(config))
        }
        _ => {
            let reason = "must have either rds or route_config";
            return Err(FieldError::new("", reason));
        }
    };
    Ok((routes, limit.filter(|limit| !limit.is_zero())))
}

fn rds_name(rds: RdsMessage) -> Result<String, FieldError> {
    let source = rds.config_source.unwrap_or_default();
    if source.ads.is_none() && source.this_server.is_none() {
        return Err(FieldError::new("config_source", "must be ads or self"));
    }
    if rds.route_config_name.is_empty() {
        return Err(FieldError::new("route_config_name", "must not be empty"));
    }
    Ok(rds.route_config_name)
}

/// Checks the HTTP filters: unsupported optional ones are skipped, and the router must be last.
fn http_filters(filters: &[HttpFilterMessage]) -> Result<(), FieldError> {
    let mut names = BTreeSet::new();
    let mut ended = false;
    for (index, filter) in filters.iter().enumerate() {
        let error = |field: &str, reason: String| {
            let path = format!("http_filters[{index}]{field}");
            Err(FieldError::new(path, reason))
        };
        if filter.name.is_empty() || !names.insert(filter.name.as_str()) {
            let reason = format!("{:?} is empty or not unique", filter.name);
            return error(".name", reason);
        }
        let any = filter.typed_config.as_ref();
        if any.is_some_and(|any| any.type_name() == ROUTER) {
            if ended {
                return error("", "follows the router, which must be last".to_owned());
            }
            ended = true;
        } else if !filter.is_optional {
            let url = any.map_or("", |any| any.type_url.as_str());
            let reason = format!("{url:?} is not supported, and not optional");
            return error(".typed_config", reason);
        }
    }
    if ended {
        return Ok(());
    }
    Err(FieldError::new("http_filters", "must end with the router"))
}

#[cfg(test)]
mod tests;
