//! From the nouns of plimsoll-xds to [`RouteTable`]: what a proxy cannot do is an error that names
//! the field, whether it stands in a file or comes from a management server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use plimsoll_client::{RetryOn, RetryPolicy};
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{self as nouns, RouteConfiguration};
use plimsoll_xds::upstream::DataSource;

use super::{
    Action, DirectResponse, Forward, ForwardId, HashPolicy, HashSource, PathRedirect, Redirect,
    Route, RouteTable, Target, WeightedCluster,
};
use crate::header_rules::{BothRules, field_name};

/// Envoy's default of `timeout`.
const TIMEOUT: Duration = Duration::from_secs(15);

impl TryFrom<Arc<RouteConfiguration>> for RouteTable {
    type Error = FieldError;

    fn try_from(config: Arc<RouteConfiguration>) -> Result<Self, FieldError> {
        if let Some(field) = config.unread.first() {
            return Err(FieldError::new(field.as_str(), "is not supported"));
        }
        let around = BothRules::try_from(&config.headers)?;
        let mut routes = Vec::new();
        for (index, host) in config.virtual_hosts().iter().enumerate() {
            let place = format!("virtual_hosts[{index}]");
            let around = Around {
                rules: &around,
                first: config.most_specific_header_mutations_wins,
            };
            routes.push(virtual_host(host, around).map_err(|error| error.under(&place))?);
        }
        let hosts = config.virtual_hosts().iter();
        let mut all = hosts.flat_map(|host| &host.routes);
        let draws = all.any(|route| route.route_match.runtime_fraction.is_some());
        Ok(Self {
            routes,
            draws,
            config,
        })
    }
}

/// Header rules of the messages around one.
#[derive(Clone, Copy)]
struct Around<'a> {
    rules: &'a BothRules,
    /// They come first, so that the rules inside have the last word.
    first: bool,
}

impl Around<'_> {
    fn with(self, inside: BothRules) -> BothRules {
        match self.first {
            true => self.rules.clone().followed_by(&inside),
            false => inside.followed_by(self.rules),
        }
    }
}

fn virtual_host(host: &nouns::VirtualHost, around: Around<'_>) -> Result<Vec<Route>, FieldError> {
    let rules = around.with(BothRules::try_from(&host.headers)?);
    let around = Around {
        rules: &rules,
        ..around
    };
    if let Some(retry) = &host.retry_policy {
        retry_policy(retry).map_err(|error| error.under("retry_policy"))?;
    }
    let routes = host.routes.iter().enumerate().map(|(index, entry)| {
        let place = format!("routes[{index}]");
        route(entry, around).map_err(|error| error.under(&place))
    });
    routes.collect()
}

fn route(route: &nouns::Route, around: Around<'_>) -> Result<Route, FieldError> {
    for (index, header) in route.route_match.headers.iter().enumerate() {
        let pseudo = matches!(
            header.name.as_str(),
            ":method" | ":path" | ":authority" | ":scheme"
        );
        if !pseudo && HeaderName::from_bytes(header.name.as_bytes()).is_err() {
            let reason = format!("{:?} is not the name of a header field", header.name);
            let path = format!("match.headers[{index}].name");
            return Err(FieldError::new(path, reason));
        }
    }
    let action = match &route.action {
        nouns::Action::Forward(action) => {
            let forward = forward(action).map_err(|error| error.under("route"))?;
            Action::Forward(Box::new(forward))
        }
        nouns::Action::Redirect(action) => {
            Action::Redirect(redirect(action).map_err(|error| error.under("redirect"))?)
        }
        nouns::Action::DirectResponse { status, body } => {
            let direct = direct_response(*status, body.as_ref());
            Action::Direct(direct.map_err(|error| error.under("direct_response"))?)
        }
        nouns::Action::NonForwarding => {
            return Err(FieldError::new("non_forwarding_action", "is not supported"));
        }
        nouns::Action::Unsupported(field) => {
            return Err(FieldError::new(*field, "is not supported"));
        }
    };
    let rules = around.with(BothRules::try_from(&route.headers)?);
    let of_target = match &action {
        Action::Forward(forward) => forward.target.needs_facts(),
        Action::Redirect(_) | Action::Direct(_) => false,
    };
    Ok(Route {
        name: route.name.as_str().into(),
        path: route.route_match.path.clone(),
        action,
        needs_facts: rules.request.needs_facts() || rules.response.needs_facts() || of_target,
        request_rules: rules.request,
        response_rules: rules.response,
    })
}

fn forward(action: &nouns::RouteAction) -> Result<Forward, FieldError> {
    for (field, set) in [
        ("auto_host_rewrite", action.auto_host_rewrite),
        (
            "max_stream_duration",
            action.max_stream_duration.is_some() || action.grpc_timeout_header_max.is_some(),
        ),
    ] {
        if set {
            return Err(FieldError::new(field, "is not supported"));
        }
    }
    let limit = |timeout: Option<Duration>| timeout.filter(|timeout| !timeout.is_zero());
    let retry = action.retry_policy.as_ref();
    let hash_policy = action.hash_policy.iter().enumerate();
    let hash_policy = hash_policy.map(|(index, policy)| {
        let place = format!("hash_policy[{index}]");
        hash(policy).map_err(|error| error.under(&place))
    });
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let host_rewrite = text(&action.host_rewrite_literal).map(|host| {
        let reason = |_| FieldError::new("host_rewrite_literal", "is not a host");
        HeaderValue::try_from(host).map_err(reason)
    });
    Ok(Forward {
        id: ForwardId::new(),
        target: target(&action.target)?,
        metadata_match: action.metadata_match.clone(),
        timeout: limit(action.timeout.or(Some(TIMEOUT))),
        per_try_timeout: limit(retry.and_then(|retry| retry.per_try_timeout)),
        idle_timeout: limit(action.idle_timeout),
        retry: match retry {
            Some(retry) => retry_policy(retry).map_err(|error| error.under("retry_policy"))?,
            None => RetryPolicy::default(),
        },
        prefix_rewrite: text(&action.prefix_rewrite),
        host_rewrite: host_rewrite.transpose()?,
        append_x_forwarded_host: action.append_x_forwarded_host,
        hash_policy: hash_policy.collect::<Result<_, _>>()?,
    })
}

fn target(target: &nouns::Target) -> Result<Target, FieldError> {
    Ok(match target {
        nouns::Target::Cluster(name) => Target::Cluster(name.as_str().into()),
        nouns::Target::ClusterHeader(name) => {
            let name = field_name(name).map_err(|error| error.under("cluster_header"))?;
            Target::ClusterHeader(name)
        }
        nouns::Target::Weighted(weighted) => {
            let mut until = 0;
            let clusters = weighted.clusters().iter().enumerate();
            let clusters = clusters.map(|(index, cluster)| {
                until += u64::from(cluster.weight);
                let place = format!("weighted_clusters.clusters[{index}]");
                let rules = BothRules::try_from(&cluster.headers);
                let rules = rules.map_err(|error| error.under(&place))?;
                Ok(WeightedCluster {
                    id: ForwardId::new(),
                    metadata_match: weighted.criteria(index).cloned(),
                    name: cluster.name.as_str().into(),
                    until,
                    request_rules: rules.request,
                    response_rules: rules.response,
                })
            });
            Target::Weighted(clusters.collect::<Result<_, FieldError>>()?)
        }
    })
}

/// Conditions that the client does not have are an error, unlike for gRPC.
fn retry_policy(policy: &nouns::RetryPolicy) -> Result<RetryPolicy, FieldError> {
    RetryOn::parse(&policy.retry_on.join(",")).map_err(|error| {
        let reason = error.to_string();
        FieldError::new("retry_on", reason.trim_start_matches("retry_on: "))
    })?;
    for (index, &code) in policy.retriable_status_codes.iter().enumerate() {
        if u16::try_from(code).is_err() {
            let path = format!("retriable_status_codes[{index}]");
            return Err(FieldError::new(path, "is not a status"));
        }
    }
    // Hosts that were tried are avoided in any case, and for as long as there is another one.
    for (index, predicate) in policy.retry_host_predicate.iter().enumerate() {
        if let nouns::RetryHostPredicate::Other(name) = predicate {
            let path = format!("retry_host_predicate[{index}]");
            let known = nouns::RetryHostPredicate::PREVIOUS_HOSTS;
            let reason = format!("{name:?} is not supported, only {known}");
            return Err(FieldError::new(path, reason));
        }
    }
    Ok(RetryPolicy::from(policy))
}

fn hash(policy: &nouns::HashPolicy) -> Result<HashPolicy, FieldError> {
    let source = match &policy.source {
        nouns::HashSource::Header(name) => {
            let name = field_name(name).map_err(|error| error.under("header.header_name"))?;
            HashSource::Header(name)
        }
        nouns::HashSource::SourceIp => HashSource::SourceIp,
        nouns::HashSource::ChannelId => {
            return Err(FieldError::new("filter_state", "is not supported"));
        }
        nouns::HashSource::Unsupported => {
            let reason = "must have header, or connection_properties with source_ip: true";
            return Err(FieldError::new("", reason));
        }
    };
    Ok(HashPolicy {
        source,
        terminal: policy.terminal,
    })
}

fn redirect(redirect: &nouns::Redirect) -> Result<Redirect, FieldError> {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let path = match (
        text(&redirect.path_redirect),
        text(&redirect.prefix_rewrite),
    ) {
        (None, None) => PathRedirect::Keep,
        (Some(path), None) => PathRedirect::Replace(path),
        (None, Some(prefix)) => PathRedirect::Prefix(prefix),
        (Some(_), Some(_)) => {
            let reason = "stands beside path_redirect";
            return Err(FieldError::new("prefix_rewrite", reason));
        }
    };
    let status = StatusCode::from_u16(redirect.response_code);
    Ok(Redirect {
        scheme: text(&redirect.scheme_redirect),
        host: text(&redirect.host_redirect),
        port: redirect.port_redirect,
        path,
        strip_query: redirect.strip_query,
        status: status.map_err(|_| FieldError::new("response_code", "is not a status"))?,
    })
}

fn direct_response(status: u16, body: Option<&DataSource>) -> Result<DirectResponse, FieldError> {
    let body = match body {
        None => Bytes::new(),
        Some(DataSource::Inline(body)) => body.clone(),
        Some(_) => return Err(FieldError::new("body", "must be inline")),
    };
    let status = StatusCode::from_u16(status).ok();
    let Some(status) = status.filter(|status| (200..600).contains(&status.as_u16())) else {
        return Err(FieldError::new("status", "is not a status from 200 to 599"));
    };
    Ok(DirectResponse { status, body })
}
