//! Decoding of route configurations.
//!
//! Features that a client cannot honor are rejected (gRFCs A27, A28, A44). Features of proxies that
//! gRPC ignores are skipped and listed in `RouteConfiguration::unread`.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use plimsoll_core::units::FieldError;

use super::filter_config::{mirror_policies, per_filter_config};
use super::matcher::data_source;
use super::route_match::route_match;
use super::{decode_resource, exactly_one, named};
use crate::route::{
    Action, AppendAction, ClusterSpecifier, ClusterWeight, HashPolicy, HashSource, HeaderRules,
    HeaderValueOption, Redirect, RequestMirrorPolicy, RetryHostPredicate, RetryPolicy, Route,
    RouteAction, RouteConfiguration, VirtualHost, WeightedClusters, WireBytes,
};
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::metadata::envoy_lb;
use plimsoll_schema::pb::enums::RedirectCode;
use plimsoll_schema::pb::metadata::MetadataMessage;
use plimsoll_schema::pb::route::{
    ClusterWeightMessage, DirectResponseMessage, HashPolicyMessage, HeaderValueOptionMessage,
    RedirectMessage, RetryBackOffMessage, RetryHostPredicateMessage, RetryPolicyMessage,
    RouteActionMessage, RouteConfigurationMessage, RouteMessage, VirtualHostMessage,
    WeightedClusterMessage,
};
use plimsoll_schema::pb::{duration, refuse_set, under};
use plimsoll_schema::{Described, unsupported};

/// Delay before the first retry, in Envoy and in gRPC.
const BASE_INTERVAL: Duration = Duration::from_millis(25);
/// Key of the filter state that represents the channel (gRFC A42).
const CHANNEL_ID: &str = "io.grpc.channel_id";

/// Decodes a route configuration resource.
pub fn decode_route_configuration(bytes: &[u8]) -> Result<RouteConfiguration, DecodeError> {
    let message = decode_resource(bytes)?;
    let mut configuration = route_configuration(message)?;
    configuration.unread = unsupported::paths(bytes, RouteConfigurationMessage::DESCRIPTOR)?;
    configuration.message = WireBytes(Bytes::copy_from_slice(bytes));
    Ok(configuration)
}

/// Converts an embedded route configuration, without listing skipped fields.
pub(super) fn route_configuration(
    message: RouteConfigurationMessage,
) -> Result<RouteConfiguration, FieldError> {
    refuse_set(&[("vhds", message.vhds.is_some())])?;
    let mirrors = mirror_policies(message.request_mirror_policies)?;
    let mut virtual_hosts = Vec::with_capacity(message.virtual_hosts.len());
    for (index, host) in message.virtual_hosts.into_iter().enumerate() {
        let path = format!("virtual_hosts[{index}]");
        virtual_hosts.push(virtual_host(host, &mirrors).map_err(|error| error.under(&path))?);
    }
    let headers = HeaderRules {
        request_add: added(message.request_headers_to_add, "request_headers_to_add")?,
        request_remove: message.request_headers_to_remove,
        response_add: added(message.response_headers_to_add, "response_headers_to_add")?,
        response_remove: message.response_headers_to_remove,
    };
    let mut configuration = RouteConfiguration::try_new(message.name, virtual_hosts)?;
    configuration.ignore_port_in_host_matching = message.ignore_port_in_host_matching;
    configuration.headers = headers;
    configuration.filters = per_filter_config(&message.typed_per_filter_config)?;
    configuration.most_specific_header_mutations_wins = message.most_specific_header_mutations_wins;
    Ok(configuration)
}

fn virtual_host(
    message: VirtualHostMessage,
    outer_mirrors: &[RequestMirrorPolicy],
) -> Result<VirtualHost, FieldError> {
    refuse_set(&[("matcher", message.matcher.is_some())])?;
    if message.domains.is_empty() {
        return Err(FieldError::new("domains", "must not be empty"));
    }
    let retry_policy = under(message.retry_policy.map(retry_policy), "retry_policy")?;
    let own_mirrors = mirror_policies(message.request_mirror_policies)?;
    let mirrors = if own_mirrors.is_empty() {
        outer_mirrors
    } else {
        &own_mirrors
    };
    let mut routes = Vec::with_capacity(message.routes.len());
    for (index, entry) in message.routes.into_iter().enumerate() {
        let path = format!("routes[{index}]");
        let mut route = route(entry).map_err(|error| error.under(&path))?;
        route.inherit(retry_policy.as_ref());
        route.inherit_mirrors(mirrors);
        routes.push(route);
    }
    Ok(VirtualHost {
        name: message.name,
        domains: message.domains,
        routes,
        retry_policy,
        filters: per_filter_config(&message.typed_per_filter_config)?,
        headers: HeaderRules {
            request_add: added(message.request_headers_to_add, "request_headers_to_add")?,
            request_remove: message.request_headers_to_remove,
            response_add: added(message.response_headers_to_add, "response_headers_to_add")?,
            response_remove: message.response_headers_to_remove,
        },
    })
}

fn route(message: RouteMessage) -> Result<Route, FieldError> {
    let route_match = route_match(message.route_match.unwrap_or_default())
        .map_err(|error| error.under("match"))?;
    let forward = under(message.route.map(forward), "route")?;
    let redirect = under(message.redirect.map(redirect_action), "redirect")?;
    let response = under(
        message.direct_response.map(direct_response),
        "direct_response",
    )?;
    let other = message
        .non_forwarding_action
        .map(|()| Action::NonForwarding);
    let filter = message
        .filter_action
        .map(|()| Action::Unsupported("filter_action"));
    let reason = "must have exactly one of route, redirect and direct_response";
    let action = exactly_one([forward, redirect, response, other, filter], reason)?;
    Ok(Route {
        name: message.name,
        route_match,
        action,
        filters: per_filter_config(&message.typed_per_filter_config)?,
        headers: HeaderRules {
            request_add: added(message.request_headers_to_add, "request_headers_to_add")?,
            request_remove: message.request_headers_to_remove,
            response_add: added(message.response_headers_to_add, "response_headers_to_add")?,
            response_remove: message.response_headers_to_remove,
        },
    })
}

fn added(
    messages: Vec<HeaderValueOptionMessage>,
    name: &str,
) -> Result<Vec<HeaderValueOption>, FieldError> {
    messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| {
            let place = format!("{name}[{index}]");
            header_value_option(message).map_err(|error| error.under(&place))
        })
        .collect()
}

fn header_value_option(message: HeaderValueOptionMessage) -> Result<HeaderValueOption, FieldError> {
    let append_action = match (message.append_action, message.append) {
        (0, Some(false)) => AppendAction::OverwriteIfExistsOrAdd,
        (0, Some(true)) => AppendAction::AppendIfExistsOrAdd,
        (_, Some(_)) => return Err(FieldError::new("append", "conflicts with append_action")),
        (number, None) => named(number, "append_action")?,
    };
    let header = message.header.unwrap_or_default();
    let raw = String::from_utf8(header.raw_value)
        .map_err(|_| FieldError::new("header.raw_value", "is not UTF-8"))?;
    Ok(HeaderValueOption {
        key: header.key,
        value: if header.value.is_empty() {
            raw
        } else {
            header.value
        },
        append_action,
        keep_empty_value: message.keep_empty_value,
    })
}

fn forward(message: RouteActionMessage) -> Result<Action, FieldError> {
    let metadata_match = metadata_match(message.metadata_match)?.map(MatchCriteria::new);
    if message.cluster_specifier_plugin.is_some() {
        return Ok(Action::Unsupported("route.cluster_specifier_plugin"));
    }
    if message.cluster.as_ref().is_some_and(String::is_empty) {
        return Err(FieldError::new("cluster", "must not be empty"));
    }
    let weighted = message
        .weighted_clusters
        .map(|weighted| weighted_clusters(weighted, metadata_match.as_ref()));
    let targets = [
        message.cluster.map(ClusterSpecifier::Cluster),
        message.cluster_header.map(ClusterSpecifier::ClusterHeader),
        under(weighted, "weighted_clusters")?.map(ClusterSpecifier::Weighted),
    ];
    let reason = "must have exactly one of cluster, cluster_header and weighted_clusters";
    let target = exactly_one(targets, reason)?;
    let limits = message.max_stream_duration.unwrap_or_default();
    let limit = |value, field| duration(value, &format!("max_stream_duration.{field}"));
    Ok(Action::Forward(Box::new(RouteAction {
        target,
        metadata_match,
        timeout: duration(message.timeout, "timeout")?,
        idle_timeout: duration(message.idle_timeout, "idle_timeout")?,
        max_stream_duration: limit(limits.max_stream_duration, "max_stream_duration")?,
        grpc_timeout_header_max: limit(limits.grpc_timeout_header_max, "grpc_timeout_header_max")?,
        retry_policy: under(message.retry_policy.map(retry_policy), "retry_policy")?,
        hash_policy: message.hash_policy.into_iter().map(hash_policy).collect(),
        prefix_rewrite: message.prefix_rewrite,
        host_rewrite_literal: message.host_rewrite_literal,
        auto_host_rewrite: message.auto_host_rewrite.unwrap_or(false),
        append_x_forwarded_host: message.append_x_forwarded_host,
        request_mirror_policies: mirror_policies(message.request_mirror_policies)?,
    })))
}

fn metadata_match(message: Option<MetadataMessage>) -> Result<Option<Metadata>, FieldError> {
    envoy_lb(message).map_err(|error| error.under("metadata_match"))
}

fn weighted_clusters(
    message: WeightedClusterMessage,
    metadata_match: Option<&MatchCriteria>,
) -> Result<WeightedClusters, FieldError> {
    let mut clusters = Vec::with_capacity(message.clusters.len());
    for (index, entry) in message.clusters.into_iter().enumerate() {
        let path = format!("clusters[{index}]");
        clusters.push(cluster_weight(entry).map_err(|error| error.under(&path))?);
    }
    WeightedClusters::try_new(clusters, metadata_match)
}

fn cluster_weight(message: ClusterWeightMessage) -> Result<ClusterWeight, FieldError> {
    Ok(ClusterWeight {
        name: message.name,
        metadata_match: metadata_match(message.metadata_match)?,
        weight: message.weight.unwrap_or(0),
        headers: HeaderRules {
            request_add: added(message.request_headers_to_add, "request_headers_to_add")?,
            request_remove: message.request_headers_to_remove,
            response_add: added(message.response_headers_to_add, "response_headers_to_add")?,
            response_remove: message.response_headers_to_remove,
        },
    })
}

fn hash_policy(message: HashPolicyMessage) -> HashPolicy {
    let connection = message.connection_properties;
    let source = match (message.header, message.filter_state, connection) {
        (Some(header), None, None) if header.regex_rewrite.is_none() => {
            HashSource::Header(header.header_name.to_ascii_lowercase())
        }
        (None, Some(state), None) if state.key == CHANNEL_ID => HashSource::ChannelId,
        (None, None, Some(connection)) if connection.source_ip => HashSource::SourceIp,
        _ => HashSource::Unsupported,
    };
    HashPolicy {
        source,
        terminal: message.terminal,
    }
}

fn retry_policy(message: RetryPolicyMessage) -> Result<RetryPolicy, FieldError> {
    let conditions = message
        .retry_on
        .split(',')
        .map(str::trim)
        .filter(|condition| !condition.is_empty());
    let back_off = message.retry_back_off.unwrap_or(RetryBackOffMessage {
        base_interval: Some(BASE_INTERVAL.into()),
        max_interval: None,
    });
    let base = duration(back_off.base_interval, "retry_back_off.base_interval")?;
    let base_interval = base.unwrap_or_default();
    if base_interval.is_zero() {
        let path = "retry_back_off.base_interval";
        return Err(FieldError::new(path, "must be above 0"));
    }
    let longest = duration(back_off.max_interval, "retry_back_off.max_interval")?;
    let max_interval = longest.unwrap_or(base_interval.saturating_mul(10));
    if max_interval < base_interval {
        let path = "retry_back_off.max_interval";
        return Err(FieldError::new(path, "must be at least base_interval"));
    }
    let attempts = u32::try_from(message.host_selection_retry_max_attempts).map_err(|_| {
        let path = "host_selection_retry_max_attempts";
        FieldError::new(path, "must be 0 to 4294967295")
    })?;
    let predicates = message.retry_host_predicate.iter();
    Ok(RetryPolicy {
        retry_host_predicate: predicates.map(retry_host_predicate).collect(),
        host_selection_retry_max_attempts: attempts,
        retry_on: conditions.map(str::to_owned).collect(),
        num_retries: message.num_retries.unwrap_or(1),
        per_try_timeout: duration(message.per_try_timeout, "per_try_timeout")?
            .filter(|timeout| !timeout.is_zero()),
        retriable_status_codes: message.retriable_status_codes,
        base_interval,
        max_interval,
    })
}

fn retry_host_predicate(message: &RetryHostPredicateMessage) -> RetryHostPredicate {
    let config = message.typed_config.as_ref();
    RetryHostPredicate::new(&message.name, config.map(|any| any.type_url.as_str()))
}

fn redirect_action(message: RedirectMessage) -> Result<Action, FieldError> {
    if message.regex_rewrite.is_some() {
        return Ok(Action::Unsupported("redirect.regex_rewrite"));
    }
    let response_code = match named(message.response_code, "response_code")? {
        RedirectCode::MovedPermanently => 301,
        RedirectCode::Found => 302,
        RedirectCode::SeeOther => 303,
        RedirectCode::TemporaryRedirect => 307,
        RedirectCode::PermanentRedirect => 308,
    };
    let port = u16::try_from(message.port_redirect)
        .map_err(|_| FieldError::new("port_redirect", "must be at most 65535"))?;
    let scheme = if message.https_redirect {
        "https".to_owned()
    } else {
        message.scheme_redirect
    };
    Ok(Action::Redirect(Redirect {
        host_redirect: message.host_redirect,
        port_redirect: (port > 0).then_some(port),
        scheme_redirect: scheme,
        path_redirect: message.path_redirect,
        prefix_rewrite: message.prefix_rewrite,
        strip_query: message.strip_query,
        response_code,
    }))
}

fn direct_response(message: DirectResponseMessage) -> Result<Action, FieldError> {
    match u16::try_from(message.status) {
        Ok(status @ 200..600) => Ok(Action::DirectResponse {
            status,
            body: under(message.body.map(data_source), "body")?,
        }),
        _ => {
            let reason = format!("{} is not a status from 200 to 599", message.status);
            Err(FieldError::new("status", reason))
        }
    }
}

#[cfg(test)]
mod tests;
