//! Route configurations from bytes. Called through `wire`.
//!
//! What a client could not follow is refused (gRFCs A27, A28, A44). What only proxies do, and gRPC
//! ignores, is passed over and listed in `RouteConfiguration::unread`.

use std::time::Duration;

use plimsoll_core::units::FieldError;
use prost::Message;

use super::matcher::data_source;
use super::pb::route::{
    DirectResponseMessage, HashPolicyMessage, RedirectMessage, RetryPolicyMessage,
    RouteActionMessage, RouteConfigurationMessage, RouteMessage, VirtualHostMessage,
    WeightedClusterMessage,
};
use super::pb::{duration, refuse, under};
use super::route_match::route_match;
use crate::error::DecodeError;
use crate::route::{
    Action, HashPolicy, HashSource, Redirect, RetryPolicy, Route, RouteAction, RouteConfiguration,
    Target, VirtualHost, WeightedClusters,
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
    Ok(route_configuration(message)?)
}

/// The same from a message inside another one.
pub(super) fn route_configuration(
    message: RouteConfigurationMessage,
) -> Result<RouteConfiguration, FieldError> {
    let mut unread = Unread::default();
    refuse(&[("vhds", message.vhds.is_some())])?;
    unread.note(
        "",
        &[
            (
                "request_headers_to_add",
                !message.request_headers_to_add.is_empty(),
            ),
            (
                "response_headers_to_add",
                !message.response_headers_to_add.is_empty(),
            ),
            (
                "request_mirror_policies",
                !message.request_mirror_policies.is_empty(),
            ),
        ],
    );
    let mut virtual_hosts = Vec::with_capacity(message.virtual_hosts.len());
    for (index, host) in message.virtual_hosts.into_iter().enumerate() {
        let path = format!("virtual_hosts[{index}]");
        let host = virtual_host(host, &path, &mut unread);
        virtual_hosts.push(host.map_err(|error| error.under(&path))?);
    }
    let configuration = RouteConfiguration {
        name: message.name,
        virtual_hosts,
        ignore_port_in_host_matching: message.ignore_port_in_host_matching,
        unread: unread.0,
    };
    configuration.check_domains()?;
    Ok(configuration)
}

/// Paths of fields that are set and passed over.
#[derive(Default)]
struct Unread(Vec<String>);

impl Unread {
    fn note(&mut self, path: &str, fields: &[(&str, bool)]) {
        let dot = if path.is_empty() { "" } else { "." };
        let set = fields.iter().filter(|(_, set)| *set);
        self.0
            .extend(set.map(|(field, _)| format!("{path}{dot}{field}")));
    }
}

fn virtual_host(
    message: VirtualHostMessage,
    path: &str,
    unread: &mut Unread,
) -> Result<VirtualHost, FieldError> {
    refuse(&[("matcher", message.matcher.is_some())])?;
    unread.note(
        path,
        &[
            ("require_tls", message.require_tls != 0),
            ("rate_limits", !message.rate_limits.is_empty()),
            ("cors", message.cors.is_some()),
            ("hedge_policy", message.hedge_policy.is_some()),
            (
                "request_headers_to_add",
                !message.request_headers_to_add.is_empty(),
            ),
            (
                "response_headers_to_add",
                !message.response_headers_to_add.is_empty(),
            ),
            (
                "request_mirror_policies",
                !message.request_mirror_policies.is_empty(),
            ),
            (
                "typed_per_filter_config",
                !message.typed_per_filter_config.is_empty(),
            ),
        ],
    );
    if message.domains.is_empty() {
        return Err(FieldError::new("domains", "must not be empty"));
    }
    let retry = message.retry_policy.map(|retry| {
        note_retry(&retry, &format!("{path}.retry_policy"), unread);
        retry_policy(retry)
    });
    let retry_policy = under(retry, "retry_policy")?;
    let mut routes = Vec::with_capacity(message.routes.len());
    for (index, entry) in message.routes.into_iter().enumerate() {
        let place = format!("routes[{index}]");
        let route = route(entry, &format!("{path}.{place}"), unread);
        let mut route = route.map_err(|error| error.under(&place))?;
        if let Action::Forward(action) = &mut route.action
            && action.retry_policy.is_none()
        {
            action.retry_policy.clone_from(&retry_policy);
        }
        routes.push(route);
    }
    Ok(VirtualHost {
        name: message.name,
        domains: message.domains,
        routes,
        retry_policy,
    })
}

fn route(message: RouteMessage, path: &str, unread: &mut Unread) -> Result<Route, FieldError> {
    unread.note(
        path,
        &[
            (
                "request_headers_to_add",
                !message.request_headers_to_add.is_empty(),
            ),
            (
                "response_headers_to_add",
                !message.response_headers_to_add.is_empty(),
            ),
            (
                "request_headers_to_remove",
                !message.request_headers_to_remove.is_empty(),
            ),
            (
                "response_headers_to_remove",
                !message.response_headers_to_remove.is_empty(),
            ),
            (
                "typed_per_filter_config",
                !message.typed_per_filter_config.is_empty(),
            ),
        ],
    );
    let route_match = route_match(message.route_match.unwrap_or_default())
        .map_err(|error| error.under("match"))?;
    let action = if let Some(action) = message.route {
        note_action(&action, &format!("{path}.route"), unread);
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
    })
}

fn note_action(message: &RouteActionMessage, path: &str, unread: &mut Unread) {
    unread.note(
        path,
        &[
            ("metadata_match", message.metadata_match.is_some()),
            ("priority", message.priority != 0),
            ("rate_limits", !message.rate_limits.is_empty()),
            ("cors", message.cors.is_some()),
            ("upgrade_configs", !message.upgrade_configs.is_empty()),
            ("hedge_policy", message.hedge_policy.is_some()),
            (
                "host_rewrite_header",
                !message.host_rewrite_header.is_empty(),
            ),
            (
                "request_mirror_policies",
                !message.request_mirror_policies.is_empty(),
            ),
            ("regex_rewrite", message.regex_rewrite.is_some()),
            (
                "internal_redirect_policy",
                message.internal_redirect_policy.is_some(),
            ),
            (
                "host_rewrite_path_regex",
                message.host_rewrite_path_regex.is_some(),
            ),
        ],
    );
    if let Some(retry) = &message.retry_policy {
        note_retry(retry, &format!("{path}.retry_policy"), unread);
    }
}

fn note_retry(message: &RetryPolicyMessage, path: &str, unread: &mut Unread) {
    unread.note(
        path,
        &[
            ("retriable_headers", !message.retriable_headers.is_empty()),
            (
                "retriable_request_headers",
                !message.retriable_request_headers.is_empty(),
            ),
            (
                "rate_limited_retry_back_off",
                message.rate_limited_retry_back_off.is_some(),
            ),
            (
                "per_try_idle_timeout",
                message.per_try_idle_timeout.is_some(),
            ),
        ],
    );
}

fn forward(message: RouteActionMessage) -> Result<Action, FieldError> {
    let target = match (message.cluster, message.weighted_clusters) {
        (Some(name), _) if name.is_empty() => {
            return Err(FieldError::new("cluster", "must not be empty"));
        }
        (Some(name), _) => Target::Cluster(name),
        (None, Some(weighted)) => Target::Weighted(
            weighted_clusters(weighted).map_err(|error| error.under("weighted_clusters"))?,
        ),
        (None, None) if message.cluster_header.is_some() => {
            return Ok(Action::Unsupported("cluster_header"));
        }
        (None, None) if message.cluster_specifier_plugin.is_some() => {
            return Ok(Action::Unsupported("cluster_specifier_plugin"));
        }
        (None, None) => return Err(FieldError::new("", "must have a cluster")),
    };
    let limits = message.max_stream_duration.unwrap_or_default();
    let limit = |value, field| duration(value, &format!("max_stream_duration.{field}"));
    Ok(Action::Forward(Box::new(RouteAction {
        target,
        timeout: duration(message.timeout, "timeout")?,
        idle_timeout: duration(message.idle_timeout, "idle_timeout")?,
        max_stream_duration: limit(limits.max_stream_duration, "max_stream_duration")?,
        grpc_timeout_header_max: limit(limits.grpc_timeout_header_max, "grpc_timeout_header_max")?,
        retry_policy: under(message.retry_policy.map(retry_policy), "retry_policy")?,
        hash_policy: message.hash_policy.into_iter().map(hash_policy).collect(),
        prefix_rewrite: message.prefix_rewrite,
        host_rewrite_literal: message.host_rewrite_literal,
        auto_host_rewrite: message.auto_host_rewrite.unwrap_or(false),
    })))
}

fn weighted_clusters(message: WeightedClusterMessage) -> Result<WeightedClusters, FieldError> {
    let clusters = message.clusters.into_iter();
    let clusters = clusters.map(|entry| (entry.name, entry.weight.unwrap_or(0)));
    WeightedClusters::try_new(clusters.collect())
}

fn hash_policy(message: HashPolicyMessage) -> HashPolicy {
    let source = match (message.header, message.filter_state) {
        (Some(header), _) if header.regex_rewrite.is_none() => {
            HashSource::Header(header.header_name.to_ascii_lowercase())
        }
        (None, Some(state)) if state.key == CHANNEL_ID => HashSource::ChannelId,
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
    Ok(RetryPolicy {
        retry_on: conditions.map(str::to_owned).collect(),
        num_retries: message.num_retries.unwrap_or(1),
        per_try_timeout: duration(message.per_try_timeout, "per_try_timeout")?
            .filter(|timeout| !timeout.is_zero()),
        retriable_status_codes: message.retriable_status_codes,
        base_interval,
        max_interval,
    })
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
