//! Route configurations from bytes. Called through `wire`.
//!
//! What a client could not follow is refused (gRFCs A27, A28, A44). What only proxies do, and gRPC
//! ignores, is passed over and listed in `RouteConfiguration::unread`.

use std::time::Duration;

use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use plimsoll_core::units::FieldError;
use prost::Message;

use super::matcher::data_source;
use super::metadata::envoy_lb;
use super::pb::metadata::MetadataMessage;
use super::pb::route::{
    ClusterWeightMessage, DirectResponseMessage, HashPolicyMessage, HeaderValueOptionMessage,
    RedirectMessage, RetryHostPredicateMessage, RetryPolicyMessage, RouteActionMessage,
    RouteConfigurationMessage, RouteMessage, VirtualHostMessage, WeightedClusterMessage,
};
use super::pb::{duration, refuse, under};
use super::route_match::route_match;
use super::route_unread::unread;
use crate::error::DecodeError;
use crate::route::{
    Action, AppendAction, ClusterWeight, HashPolicy, HashSource, HeaderRules, HeaderValueOption,
    Redirect, RetryHostPredicate, RetryPolicy, Route, RouteAction, RouteConfiguration, Target,
    VirtualHost, WeightedClusters,
};

/// Pause before the first retry, in Envoy and in gRPC.
const BASE_INTERVAL: Duration = Duration::from_millis(25);
/// `RedirectResponseCode`, by number.
const REDIRECT_CODES: [u16; 5] = [301, 302, 303, 307, 308];
/// Key of the filter state that stands for the channel (gRFC A42).
const CHANNEL_ID: &str = "io.grpc.channel_id";

/// Reads a route configuration.
pub fn decode_route_configuration(bytes: &[u8]) -> Result<RouteConfiguration, DecodeError> {
    let message = RouteConfigurationMessage::decode(bytes)?;
    let mut configuration = route_configuration(message)?;
    configuration.unread = unread(bytes)?;
    Ok(configuration)
}

/// The same from a message inside another one, without looking for what was passed over.
pub(super) fn route_configuration(
    message: RouteConfigurationMessage,
) -> Result<RouteConfiguration, FieldError> {
    refuse(&[("vhds", message.vhds.is_some())])?;
    let mut virtual_hosts = Vec::with_capacity(message.virtual_hosts.len());
    for (index, host) in message.virtual_hosts.into_iter().enumerate() {
        let path = format!("virtual_hosts[{index}]");
        virtual_hosts.push(virtual_host(host).map_err(|error| error.under(&path))?);
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
    configuration.most_specific_header_mutations_wins = message.most_specific_header_mutations_wins;
    Ok(configuration)
}

fn virtual_host(message: VirtualHostMessage) -> Result<VirtualHost, FieldError> {
    refuse(&[("matcher", message.matcher.is_some())])?;
    if message.domains.is_empty() {
        return Err(FieldError::new("domains", "must not be empty"));
    }
    let retry_policy = under(message.retry_policy.map(retry_policy), "retry_policy")?;
    let mut routes = Vec::with_capacity(message.routes.len());
    for (index, entry) in message.routes.into_iter().enumerate() {
        let path = format!("routes[{index}]");
        let mut route = route(entry).map_err(|error| error.under(&path))?;
        route.inherit(retry_policy.as_ref());
        routes.push(route);
    }
    Ok(VirtualHost {
        name: message.name,
        domains: message.domains,
        routes,
        retry_policy,
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
    let action = if let Some(action) = message.route {
        forward(action).map_err(|error| error.under("route"))?
    } else if let Some(redirect) = message.redirect {
        redirect_action(redirect).map_err(|error| error.under("redirect"))?
    } else if let Some(response) = message.direct_response {
        direct_response(response).map_err(|error| error.under("direct_response"))?
    } else if message.non_forwarding_action.is_some() {
        Action::NonForwarding
    } else if message.filter_action.is_some() {
        Action::Unsupported("filter_action")
    } else {
        return Err(FieldError::new("route", "must be set"));
    };
    Ok(Route {
        name: message.name,
        route_match,
        action,
        headers: HeaderRules {
            request_add: added(message.request_headers_to_add, "request_headers_to_add")?,
            request_remove: message.request_headers_to_remove,
            response_add: added(message.response_headers_to_add, "response_headers_to_add")?,
            response_remove: message.response_headers_to_remove,
        },
    })
}

/// `HeaderValueOption`s of the field `name`.
fn added(
    messages: Vec<HeaderValueOptionMessage>,
    name: &str,
) -> Result<Vec<HeaderValueOption>, FieldError> {
    let options = messages.into_iter().enumerate();
    let options = options.map(|(index, message)| {
        let place = format!("{name}[{index}]");
        header_value_option(message).map_err(|error| error.under(&place))
    });
    options.collect()
}

fn header_value_option(message: HeaderValueOptionMessage) -> Result<HeaderValueOption, FieldError> {
    let append_action = match (message.append_action, message.append) {
        (0, Some(false)) => AppendAction::OverwriteIfExistsOrAdd,
        (0, _) => AppendAction::AppendIfExistsOrAdd,
        (_, Some(_)) => return Err(FieldError::new("append", "stands beside append_action")),
        (1, None) => AppendAction::AddIfAbsent,
        (2, None) => AppendAction::OverwriteIfExistsOrAdd,
        (3, None) => AppendAction::OverwriteIfExists,
        (other, None) => {
            let reason = format!("{other} is not an action");
            return Err(FieldError::new("append_action", reason));
        }
    };
    let header = message.header.unwrap_or_default();
    Ok(HeaderValueOption {
        key: header.key,
        value: header.value,
        append_action,
        keep_empty_value: message.keep_empty_value,
    })
}

fn forward(message: RouteActionMessage) -> Result<Action, FieldError> {
    let metadata_match = metadata_match(message.metadata_match)?.map(MatchCriteria::new);
    let target = match (message.cluster, message.weighted_clusters) {
        (Some(name), _) if name.is_empty() => {
            return Err(FieldError::new("cluster", "must not be empty"));
        }
        (Some(name), _) => Target::Cluster(name),
        (None, Some(weighted)) => Target::Weighted(
            weighted_clusters(weighted, metadata_match.as_ref())
                .map_err(|error| error.under("weighted_clusters"))?,
        ),
        (None, None) => match (message.cluster_header, message.cluster_specifier_plugin) {
            (Some(header), _) => Target::ClusterHeader(header),
            (None, Some(_)) => return Ok(Action::Unsupported("cluster_specifier_plugin")),
            (None, None) => return Err(FieldError::new("", "must have a cluster")),
        },
    };
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
    })))
}

/// What hosts are matched by, of the fields that have that name.
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
        weight: message.weight.unwrap_or(0),
        metadata_match: metadata_match(message.metadata_match)?,
        headers: HeaderRules {
            request_add: added(message.request_headers_to_add, "request_headers_to_add")?,
            request_remove: message.request_headers_to_remove,
            response_add: added(message.response_headers_to_add, "response_headers_to_add")?,
            response_remove: message.response_headers_to_remove,
        },
    })
}

fn hash_policy(message: HashPolicyMessage) -> HashPolicy {
    let by_address = message
        .connection_properties
        .is_some_and(|properties| properties.source_ip);
    let source = match (message.header, message.filter_state) {
        (Some(header), _) if header.regex_rewrite.is_none() => {
            HashSource::Header(header.header_name.to_ascii_lowercase())
        }
        (None, Some(state)) if state.key == CHANNEL_ID => HashSource::ChannelId,
        (None, None) if by_address => HashSource::SourceIp,
        _ => HashSource::Unsupported,
    };
    HashPolicy {
        source,
        terminal: message.terminal,
    }
}

fn retry_policy(message: RetryPolicyMessage) -> Result<RetryPolicy, FieldError> {
    let conditions = message.retry_on.split(',').map(str::trim);
    let conditions = conditions.filter(|condition| !condition.is_empty());
    let back_off = message.retry_back_off.unwrap_or_default();
    let base = duration(back_off.base_interval, "retry_back_off.base_interval")?;
    let base_interval = base.unwrap_or(BASE_INTERVAL);
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
    let attempts = u32::try_from(message.host_selection_retry_max_attempts);
    let attempts = attempts.map_err(|_| {
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
    let code = usize::try_from(message.response_code).ok();
    let Some(&response_code) = code.and_then(|code| REDIRECT_CODES.get(code)) else {
        let reason = format!("{} is not a response code", message.response_code);
        return Err(FieldError::new("response_code", reason));
    };
    let port = u16::try_from(message.port_redirect);
    let port = port.map_err(|_| FieldError::new("port_redirect", "must be at most 65535"))?;
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
