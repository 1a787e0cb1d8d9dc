//! Listeners of gRPC clients from bytes (gRFCs A27 and A39). Called through `wire`.
//!
//! Listeners with an address are for servers and proxies; those are not read.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use prost::Message;

use super::listener::{HTTP_CONNECTION_MANAGER, ROUTER};
use super::pb::listener::{
    FilterMessage, HttpConnectionManagerMessage, ListenerMessage, RdsMessage,
};
use super::pb::{duration, refuse};
use super::route_in::route_configuration;
use crate::error::DecodeError;
use crate::route::RouteConfiguration;

/// A listener of a client: how the target it is named after is routed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiListener {
    /// Its name.
    pub name: String,
    /// Where the routes are.
    pub routes: RouteSource,
    /// How long a request may take where its route does not say; `None` is no limit.
    pub max_stream_duration: Option<Duration>,
}

/// Where routes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// In a resource of this name, on the same stream.
    Rds(String),
    /// In the listener.
    Inline(Box<RouteConfiguration>),
}

/// Reads a listener.
pub fn decode_listener(bytes: &[u8]) -> Result<ApiListener, DecodeError> {
    let message = ListenerMessage::decode(bytes)?;
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
    refuse(&[
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
            .map(RouteSource::Rds)
            .map_err(|error| error.under("rds"))?,
        (None, Some(config)) => {
            let config = route_configuration(config);
            let config = config.map_err(|error| error.under("route_config"))?;
            RouteSource::Inline(Box::new(config))
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

/// Filters that we do not have are skipped if they are optional. Of the others there must be the
/// router, at the end.
fn http_filters(filters: &[FilterMessage]) -> Result<(), FieldError> {
    let mut names = BTreeSet::new();
    let mut ended = false;
    for (index, filter) in filters.iter().enumerate() {
        let error = |field: &str, reason: String| {
            let path = format!("http_filters[{index}]{field}");
            Err(FieldError::new(path, reason))
        };
        if filter.name.is_empty() || !names.insert(filter.name.as_str()) {
            let reason = format!("{:?} is empty or not the only one", filter.name);
            return error(".name", reason);
        }
        let any = filter.typed_config.as_ref();
        match any.is_some_and(|any| any.type_name() == ROUTER) {
            true if ended => return error("", "stands behind the router".to_owned()),
            true => ended = true,
            false if filter.is_optional => {}
            false => {
                let url = any.map_or("", |any| any.type_url.as_str());
                let reason = format!("{url:?} is not supported, and not optional");
                return error(".typed_config", reason);
            }
        }
    }
    if ended {
        return Ok(());
    }
    Err(FieldError::new("http_filters", "must end with the router"))
}

#[cfg(test)]
mod tests;
