//! Decoding of policies of HTTP filters in routes, and of mirror policies.

use std::collections::BTreeMap;

use plimsoll_core::units::FieldError;

use super::matcher::string_matcher;
use super::route_match::fraction;
use crate::route::{CorsPolicy, MirrorTarget, PerFilterConfig, RequestMirrorPolicy};
use plimsoll_schema::Described as _;
use plimsoll_schema::pb::cors::CorsPolicyMessage;
use plimsoll_schema::pb::mirror::RequestMirrorPolicyMessage;
use plimsoll_schema::pb::{AnyMessage, under};

/// Name of the CORS filter, by which policies refer to it.
const CORS: &str = "envoy.filters.http.cors";

/// Decodes `typed_per_filter_config`; error paths start outside of it. Entries that are not
/// supported are kept as such: gRPC ignores them.
pub(super) fn per_filter_config(
    entries: &BTreeMap<String, AnyMessage>,
) -> Result<PerFilterConfig, FieldError> {
    let mut config = PerFilterConfig::default();
    for (key, any) in entries {
        let mut reject = |reason: String| {
            config
                .unsupported
                .get_or_insert_with(|| (key.clone(), reason));
        };
        if any.type_name() != CorsPolicyMessage::DESCRIPTOR.name {
            let reason = format!("{:?} is not supported", any.type_url);
            reject(reason);
        } else if key != CORS {
            let reason = format!("is not the name of a filter; policies of CORS are under {CORS}");
            reject(reason);
        } else {
            let policy = any.unpack().and_then(cors_policy);
            let path = format!("typed_per_filter_config[{key}]");
            config.cors = Some(policy.map_err(|error| error.under(&path))?);
        }
    }
    Ok(config)
}

fn cors_policy(message: CorsPolicyMessage) -> Result<CorsPolicy, FieldError> {
    let matchers = message.allow_origin_string_match.into_iter().enumerate();
    let origins = matchers.map(|(index, origin)| {
        let path = format!("allow_origin_string_match[{index}]");
        string_matcher(origin).map_err(|error| error.under(&path))
    });
    Ok(CorsPolicy {
        allow_origin_string_match: origins.collect::<Result<_, _>>()?,
        allow_methods: message.allow_methods,
        allow_headers: message.allow_headers,
        expose_headers: message.expose_headers,
        max_age: message.max_age,
        allow_credentials: message.allow_credentials,
        filter_enabled: under(message.filter_enabled.map(fraction), "filter_enabled")?,
        shadow_enabled: under(message.shadow_enabled.map(fraction), "shadow_enabled")?,
        allow_private_network_access: message.allow_private_network_access,
        forward_not_matching_preflights: message.forward_not_matching_preflights,
    })
}

/// Decodes `request_mirror_policies`; error paths start outside of it.
pub(super) fn mirror_policies(
    messages: Vec<RequestMirrorPolicyMessage>,
) -> Result<Vec<RequestMirrorPolicy>, FieldError> {
    let policies = messages.into_iter().enumerate().map(|(index, message)| {
        let path = format!("request_mirror_policies[{index}]");
        mirror_policy(message).map_err(|error| error.under(&path))
    });
    policies.collect()
}

fn mirror_policy(message: RequestMirrorPolicyMessage) -> Result<RequestMirrorPolicy, FieldError> {
    let target = match (&*message.cluster, &*message.cluster_header) {
        ("", "") => return Err(FieldError::new("", "must have cluster or cluster_header")),
        (_, "") => MirrorTarget::Cluster(message.cluster),
        ("", _) => MirrorTarget::ClusterHeader(message.cluster_header),
        _ => {
            let reason = "cannot be combined with cluster";
            return Err(FieldError::new("cluster_header", reason));
        }
    };
    Ok(RequestMirrorPolicy {
        target,
        runtime_fraction: under(message.runtime_fraction.map(fraction), "runtime_fraction")?,
        disable_shadow_host_suffix_append: message.disable_shadow_host_suffix_append,
    })
}
