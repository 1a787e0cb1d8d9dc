//! Compiles the route configuration of plimsoll-xds to a [`RouteTable`]. Features that the proxy
//! does not support are errors that name the field, in files and from management servers alike.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use plimsoll_client::{RetryOn, RetryPolicy};
use plimsoll_core::log_line;
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{self as model, RouteConfiguration};
use plimsoll_xds::upstream::DataSource;

use super::{
    ClusterSelector, CompiledAction, CompiledRoute, DirectResponse, Forward, ForwardId, HashPolicy,
    HashSource, PathRedirect, Redirect, RouteTable, WeightedCluster,
};
use crate::cors::CorsPolicy;
use crate::header_rules::{RequestResponseRules, header_name};
use crate::log_lines;
use crate::mirror::{MirrorPolicy, MirrorTarget};

/// Envoy's default of `RouteAction.timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
/// Field of a CORS policy.
const CORS_PATH: &str = "typed_per_filter_config[envoy.filters.http.cors]";

impl TryFrom<Arc<RouteConfiguration>> for RouteTable {
    type Error = FieldError;

    fn try_from(config: Arc<RouteConfiguration>) -> Result<Self, FieldError> {
        if let Some(field) = config.unread.first() {
            return Err(FieldError::new(field.as_str(), "is not supported"));
        }
        log_line!(log_lines::ROUTES_COMPILED, routes = config.name);
        let rules = RequestResponseRules::try_from(&config.headers)?;
        check_filters(&config.filters)?;
        let mut routes = Vec::new();
        for (index, host) in config.virtual_hosts().iter().enumerate() {
            let prefix = format!("virtual_hosts[{index}]");
            let enclosing = EnclosingRules {
                rules: &rules,
                first: config.most_specific_header_mutations_wins,
                filters: [&host.filters, &config.filters],
            };
            routes.push(virtual_host(host, enclosing).map_err(|error| error.under(&prefix))?);
        }
        let has_fractions = config
            .virtual_hosts()
            .iter()
            .flat_map(|host| &host.routes)
            .any(|route| route.route_match.runtime_fraction.is_some());
        let has_cors = routes.iter().flatten().any(|route| route.cors.is_some());
        Ok(Self {
            routes,
            has_fractions,
            has_cors,
            config,
        })
    }
}

/// Header rules of the enclosing messages (virtual host, route configuration).
#[derive(Clone, Copy)]
struct EnclosingRules<'a> {
    rules: &'a RequestResponseRules,
    /// Apply the enclosing rules first, so that the route's own rules take precedence.
    first: bool,
    /// Filter settings of the virtual host and of the route configuration.
    filters: [&'a model::PerFilterConfig; 2],
}

impl EnclosingRules<'_> {
    fn combine(self, inner: RequestResponseRules) -> RequestResponseRules {
        if self.first {
            self.rules.clone().followed_by(&inner)
        } else {
            inner.followed_by(self.rules)
        }
    }
}

fn virtual_host(
    host: &model::VirtualHost,
    enclosing: EnclosingRules<'_>,
) -> Result<Vec<CompiledRoute>, FieldError> {
    let rules = enclosing.combine(RequestResponseRules::try_from(&host.headers)?);
    let enclosing = EnclosingRules {
        rules: &rules,
        ..enclosing
    };
    check_filters(&host.filters)?;
    if let Some(retry) = &host.retry_policy {
        retry_policy(retry).map_err(|error| error.under("retry_policy"))?;
    }
    let routes = host.routes.iter().enumerate().map(|(index, entry)| {
        let prefix = format!("routes[{index}]");
        route(entry, enclosing).map_err(|error| error.under(&prefix))
    });
    routes.collect()
}

/// Rejects settings of filters that the proxy does not have.
fn check_filters(filters: &model::PerFilterConfig) -> Result<(), FieldError> {
    match &filters.unsupported {
        None => Ok(()),
        Some((key, reason)) => {
            let path = format!("typed_per_filter_config[{key}]");
            Err(FieldError::new(path, reason.as_str()))
        }
    }
}

fn route(route: &model::Route, enclosing: EnclosingRules<'_>) -> Result<CompiledRoute, FieldError> {
    for (index, header) in route.route_match.headers.iter().enumerate() {
        let pseudo = matches!(
            header.name.as_str(),
            ":method" | ":path" | ":authority" | ":scheme"
        );
        if !pseudo && HeaderName::from_bytes(header.name.as_bytes()).is_err() {
            let reason = format!("{:?} is not a valid header name", header.name);
            let path = format!("match.headers[{index}].name");
            return Err(FieldError::new(path, reason));
        }
    }
    let action = match &route.action {
        model::Action::Forward(action) => {
            let forward = forward(action).map_err(|error| error.under("route"))?;
            CompiledAction::Forward(Box::new(forward))
        }
        model::Action::Redirect(action) => {
            CompiledAction::Redirect(redirect(action).map_err(|error| error.under("redirect"))?)
        }
        model::Action::DirectResponse { status, body } => {
            let direct = direct_response(*status, body.as_ref());
            CompiledAction::Direct(direct.map_err(|error| error.under("direct_response"))?)
        }
        model::Action::NonForwarding => {
            return Err(FieldError::new("non_forwarding_action", "is not supported"));
        }
        model::Action::Unsupported(field) => {
            return Err(FieldError::new(*field, "is not supported"));
        }
    };
    check_filters(&route.filters)?;
    let [host, config] = enclosing.filters;
    let cors = CorsPolicy::merge(&[&route.filters, host, config])
        .map_err(|error| error.under(CORS_PATH))?;
    let rules = enclosing.combine(RequestResponseRules::try_from(&route.headers)?);
    let selector_needs_info = match &action {
        CompiledAction::Forward(forward) => forward.cluster.needs_request_info(),
        CompiledAction::Redirect(_) | CompiledAction::Direct(_) => false,
    };
    Ok(CompiledRoute {
        name: route.name.as_str().into(),
        path: route.route_match.path.clone(),
        action,
        needs_request_info: rules.request.needs_request_info()
            || rules.response.needs_request_info()
            || selector_needs_info,
        request_rules: rules.request,
        response_rules: rules.response,
        cors,
    })
}

fn mirrors(policies: &[model::RequestMirrorPolicy]) -> Result<Vec<MirrorPolicy>, FieldError> {
    let compiled = policies.iter().enumerate().map(|(index, policy)| {
        let target = match &policy.target {
            model::MirrorTarget::Cluster(name) => MirrorTarget::Cluster(name.as_str().into()),
            model::MirrorTarget::ClusterHeader(name) => {
                let path = format!("request_mirror_policies[{index}].cluster_header");
                let name = header_name(name).map_err(|error| error.under(&path))?;
                MirrorTarget::ClusterHeader(name)
            }
        };
        Ok(MirrorPolicy {
            id: ForwardId::new(),
            target,
            fraction: policy.runtime_fraction,
            append_suffix: !policy.disable_shadow_host_suffix_append,
        })
    });
    compiled.collect()
}

fn forward(action: &model::RouteAction) -> Result<Forward, FieldError> {
    for (field, set) in [
        ("auto_host_rewrite", action.auto_host_rewrite),
        (
            "max_stream_duration.grpc_timeout_header_max",
            action.grpc_timeout_header_max.is_some(),
        ),
    ] {
        if set {
            return Err(FieldError::new(field, "is not supported"));
        }
    }
    let nonzero = |timeout: Option<Duration>| timeout.filter(|timeout| !timeout.is_zero());
    let retry = action.retry_policy.as_ref();
    let hash_policy = action
        .hash_policy
        .iter()
        .enumerate()
        .map(|(index, policy)| {
            let path = format!("hash_policy[{index}]");
            hash(policy).map_err(|error| error.under(&path))
        });
    let non_empty = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let host_rewrite = non_empty(&action.host_rewrite_literal).map(|host| {
        let reason = |_| FieldError::new("host_rewrite_literal", "is not a valid host");
        HeaderValue::try_from(host).map_err(reason)
    });
    Ok(Forward {
        id: ForwardId::new(),
        cluster: cluster_selector(&action.target)?,
        metadata_match: action.metadata_match.clone(),
        timeout: nonzero(action.timeout.or(Some(DEFAULT_TIMEOUT))),
        per_try_timeout: nonzero(retry.and_then(|retry| retry.per_try_timeout)),
        idle_timeout: action.idle_timeout,
        max_stream_duration: action.max_stream_duration,
        retry: match retry {
            Some(retry) => retry_policy(retry).map_err(|error| error.under("retry_policy"))?,
            None => RetryPolicy::default(),
        },
        prefix_rewrite: non_empty(&action.prefix_rewrite),
        host_rewrite: host_rewrite.transpose()?,
        append_x_forwarded_host: action.append_x_forwarded_host,
        hash_policy: hash_policy.collect::<Result<_, _>>()?,
        mirrors: mirrors(&action.request_mirror_policies)?,
    })
}

fn cluster_selector(target: &model::ClusterSpecifier) -> Result<ClusterSelector, FieldError> {
    Ok(match target {
        model::ClusterSpecifier::Cluster(name) => ClusterSelector::Cluster(name.as_str().into()),
        model::ClusterSpecifier::ClusterHeader(name) => {
            let name = header_name(name).map_err(|error| error.under("cluster_header"))?;
            ClusterSelector::ClusterHeader(name)
        }
        model::ClusterSpecifier::Weighted(weighted) => {
            let mut until = 0;
            let entries = weighted.clusters().iter().enumerate();
            let clusters = entries.map(|(index, cluster)| {
                until += u64::from(cluster.weight);
                let prefix = format!("weighted_clusters.clusters[{index}]");
                let rules = RequestResponseRules::try_from(&cluster.headers)
                    .map_err(|error| error.under(&prefix))?;
                Ok(WeightedCluster {
                    id: ForwardId::new(),
                    metadata_match: weighted.criteria(index).cloned(),
                    name: cluster.name.as_str().into(),
                    until,
                    request_rules: rules.request,
                    response_rules: rules.response,
                })
            });
            ClusterSelector::Weighted(clusters.collect::<Result<_, FieldError>>()?)
        }
    })
}

/// Rejects `retry_on` conditions that the client does not implement. (gRPC ignores them.)
fn retry_policy(policy: &model::RetryPolicy) -> Result<RetryPolicy, FieldError> {
    RetryOn::parse(&policy.retry_on.join(",")).map_err(|error| {
        let reason = error.to_string();
        FieldError::new("retry_on", reason.trim_start_matches("retry_on: "))
    })?;
    for (index, &code) in policy.retriable_status_codes.iter().enumerate() {
        if u16::try_from(code).is_err() {
            let path = format!("retriable_status_codes[{index}]");
            return Err(FieldError::new(path, "is not a valid HTTP status"));
        }
    }
    // `previous_hosts` needs no handling: retries always avoid hosts that were tried.
    for (index, predicate) in policy.retry_host_predicate.iter().enumerate() {
        if let model::RetryHostPredicate::Other(name) = predicate {
            let path = format!("retry_host_predicate[{index}]");
            let known = model::RetryHostPredicate::PREVIOUS_HOSTS;
            let reason = format!("{name:?} is not supported; supported: {known}");
            return Err(FieldError::new(path, reason));
        }
    }
    Ok(RetryPolicy::from(policy))
}

fn hash(policy: &model::HashPolicy) -> Result<HashPolicy, FieldError> {
    let source = match &policy.source {
        model::HashSource::Header(name) => {
            let name = header_name(name).map_err(|error| error.under("header.header_name"))?;
            HashSource::Header(name)
        }
        model::HashSource::SourceIp => HashSource::SourceIp,
        model::HashSource::ChannelId => {
            return Err(FieldError::new("filter_state", "is not supported"));
        }
        model::HashSource::Unsupported => {
            let reason = "must have header, or connection_properties with source_ip: true";
            return Err(FieldError::new("", reason));
        }
    };
    Ok(HashPolicy {
        source,
        terminal: policy.terminal,
    })
}

fn redirect(redirect: &model::Redirect) -> Result<Redirect, FieldError> {
    let non_empty = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let path = match (
        non_empty(&redirect.path_redirect),
        non_empty(&redirect.prefix_rewrite),
    ) {
        (None, None) => PathRedirect::Keep,
        (Some(path), None) => PathRedirect::Replace(path),
        (None, Some(prefix)) => PathRedirect::Prefix(prefix),
        (Some(_), Some(_)) => {
            let reason = "cannot be combined with path_redirect";
            return Err(FieldError::new("prefix_rewrite", reason));
        }
    };
    let status = StatusCode::from_u16(redirect.response_code);
    Ok(Redirect {
        scheme: non_empty(&redirect.scheme_redirect),
        host: non_empty(&redirect.host_redirect),
        port: redirect.port_redirect,
        path,
        strip_query: redirect.strip_query,
        status: status
            .map_err(|_| FieldError::new("response_code", "is not a valid HTTP status"))?,
    })
}

fn direct_response(status: u16, body: Option<&DataSource>) -> Result<DirectResponse, FieldError> {
    let body = match body {
        None => Bytes::new(),
        Some(DataSource::Inline(body)) => body.clone(),
        Some(_) => {
            return Err(FieldError::new(
                "body",
                "must be inline; files are not supported",
            ));
        }
    };
    let status = StatusCode::from_u16(status).ok();
    let Some(status) = status.filter(|status| (200..600).contains(&status.as_u16())) else {
        return Err(FieldError::new(
            "status",
            "must be an HTTP status from 200 to 599",
        ));
    };
    Ok(DirectResponse { status, body })
}
