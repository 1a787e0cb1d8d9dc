//! What happens to a request: `RouteAction`, `RedirectAction`, `DirectResponseAction`.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::metadata::MatchCriteria;
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{
    Action, ClusterWeight, HashPolicy, HashSource, Redirect, RetryHostPredicate, RetryPolicy,
    RouteAction, Target, WeightedClusters,
};
use plimsoll_xds::upstream::DataSource;
use plimsoll_xds::yaml::MetadataYaml;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum, Uint};
use serde::Deserialize;

use super::headers::{HeaderValueOptionYaml, header_rules};

/// Pause before the first retry, as in Envoy.
const BASE_INTERVAL: Duration = Duration::from_millis(25);

/// `RouteAction`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteActionYaml {
    /// One cluster.
    cluster: Option<String>,
    /// The cluster that this field of the request names.
    cluster_header: Option<String>,
    /// Several clusters, with weights.
    weighted_clusters: Option<WeightedClustersYaml>,
    /// The metadata that hosts must have, in clusters with subsets.
    metadata_match: Option<MetadataYaml>,
    /// How long an answer may take, to its end; `0s` is no limit. Default `15s`.
    timeout: Option<ProtoDuration>,
    /// How long nothing may move on a request. Default that of the listener.
    idle_timeout: Option<ProtoDuration>,
    /// When a request is tried again.
    retry_policy: Option<RetryPolicyYaml>,
    /// What the matched part of the path becomes.
    prefix_rewrite: String,
    /// What the host becomes.
    host_rewrite_literal: String,
    /// Keep the host that was asked for in `x-forwarded-host`.
    append_x_forwarded_host: bool,
    /// What is hashed under `RING_HASH` and `MAGLEV`.
    hash_policy: Vec<HashPolicyYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WeightedClustersYaml {
    /// The clusters.
    clusters: Vec<ClusterWeightYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ClusterWeightYaml {
    /// The cluster.
    name: String,
    /// Its share among its siblings.
    weight: Uint<u32>,
    /// The metadata that its hosts must have, over that of the route.
    #[serde(default)]
    metadata_match: MetadataYaml,
    /// Fields that requests to it get.
    #[serde(default)]
    request_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that requests to it lose.
    #[serde(default)]
    request_headers_to_remove: Vec<String>,
    /// Fields that responses from it get.
    #[serde(default)]
    response_headers_to_add: Vec<HeaderValueOptionYaml>,
    /// Fields that responses from it lose.
    #[serde(default)]
    response_headers_to_remove: Vec<String>,
}

/// `RetryPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetryPolicyYaml {
    /// Conditions, with commas between them, as in Envoy.
    retry_on: String,
    /// Tries after the first one. Default 1.
    num_retries: Option<Uint<u32>>,
    /// How long one try may take; `0s` is no limit. Default no limit.
    per_try_timeout: Option<ProtoDuration>,
    /// Statuses that are tried again, with the condition `retriable-status-codes`.
    retriable_status_codes: Vec<Uint<u32>>,
    /// The pauses.
    retry_back_off: Option<BackOffYaml>,
    /// Which hosts a retry avoids: only `envoy.retry_host_predicates.previous_hosts`.
    retry_host_predicate: Vec<RetryHostPredicateYaml>,
    /// How often another host is drawn before a tried one is taken all the same. Any number is
    /// accepted and none changes anything: one draw avoids every tried host.
    host_selection_retry_max_attempts: Option<Uint<u32>>,
}

#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RetryHostPredicateYaml {
    /// The name of the extension.
    name: String,
    /// Its message, which has no fields.
    typed_config: Option<EmptyTypedConfigYaml>,
}

/// A message that is known by its type and has no fields.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EmptyTypedConfigYaml {
    /// The type of the message.
    #[serde(rename = "@type")]
    type_url: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct BackOffYaml {
    /// The first pause, above 0. Default `0.025s` without the message.
    base_interval: ProtoDuration,
    /// The longest pause. Default ten times the first.
    max_interval: Option<ProtoDuration>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct HashPolicyYaml {
    /// Hash a field of the request.
    header: Option<HashHeaderYaml>,
    /// Hash the client's address.
    connection_properties: Option<ConnectionPropertiesYaml>,
    /// Do not look further when this one has something.
    terminal: bool,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HashHeaderYaml {
    /// The field.
    header_name: String,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ConnectionPropertiesYaml {
    /// Must be true.
    source_ip: bool,
}

impl RouteActionYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(mut self) -> Result<RouteAction, FieldError> {
        let metadata_match = self.metadata_match.take();
        let metadata_match = metadata_match.and_then(MetadataYaml::into_envoy_lb);
        let metadata_match = metadata_match.map(MatchCriteria::new);
        let target = self.target(metadata_match.as_ref())?;
        let retry = self.retry_policy.as_ref().map(RetryPolicyYaml::checked);
        let retry = retry.transpose();
        let hash_policy = self.hash_policy.into_iter().map(HashPolicyYaml::noun);
        Ok(RouteAction {
            target,
            metadata_match,
            timeout: self.timeout.map(|timeout| timeout.0),
            idle_timeout: self.idle_timeout.map(|timeout| timeout.0),
            max_stream_duration: None,
            grpc_timeout_header_max: None,
            retry_policy: retry.map_err(|error| error.under("retry_policy"))?,
            hash_policy: hash_policy.collect(),
            prefix_rewrite: self.prefix_rewrite,
            host_rewrite_literal: self.host_rewrite_literal,
            auto_host_rewrite: false,
            append_x_forwarded_host: self.append_x_forwarded_host,
        })
    }

    fn target(&mut self, criteria: Option<&MatchCriteria>) -> Result<Target, FieldError> {
        let weighted = self.weighted_clusters.take();
        match (self.cluster.take(), self.cluster_header.take(), weighted) {
            (Some(name), None, None) if !name.is_empty() => Ok(Target::Cluster(name)),
            (None, Some(header), None) => Ok(Target::ClusterHeader(header)),
            (None, None, Some(weighted)) => {
                let weighted = weighted.checked(criteria);
                let weighted = weighted.map_err(|error| error.under("weighted_clusters"))?;
                Ok(Target::Weighted(weighted))
            }
            _ => {
                let reason = "must have one of cluster, cluster_header and weighted_clusters";
                Err(FieldError::new("", reason))
            }
        }
    }
}

impl WeightedClustersYaml {
    fn checked(self, criteria: Option<&MatchCriteria>) -> Result<WeightedClusters, FieldError> {
        let mut clusters = Vec::with_capacity(self.clusters.len());
        for (index, cluster) in self.clusters.into_iter().enumerate() {
            let headers = header_rules(
                (
                    cluster.request_headers_to_add,
                    cluster.request_headers_to_remove,
                ),
                (
                    cluster.response_headers_to_add,
                    cluster.response_headers_to_remove,
                ),
            );
            let place = format!("clusters[{index}]");
            clusters.push(ClusterWeight {
                name: cluster.name,
                weight: cluster.weight.0,
                metadata_match: cluster.metadata_match.into_envoy_lb(),
                headers: headers.map_err(|error| error.under(&place))?,
            });
        }
        WeightedClusters::try_new(clusters, criteria)
    }
}

impl RetryPolicyYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(&self) -> Result<RetryPolicy, FieldError> {
        let conditions = self.retry_on.split(',').map(str::trim);
        let conditions = conditions.filter(|condition| !condition.is_empty());
        let back_off = self.retry_back_off.as_ref();
        let base_interval = back_off.map_or(BASE_INTERVAL, |back_off| back_off.base_interval.0);
        if base_interval.is_zero() {
            let path = "retry_back_off.base_interval";
            return Err(FieldError::new(path, "must be above 0"));
        }
        let longest = back_off.and_then(|back_off| back_off.max_interval);
        let max_interval = longest.map_or(base_interval.saturating_mul(10), |max| max.0);
        if max_interval < base_interval {
            let path = "retry_back_off.max_interval";
            return Err(FieldError::new(path, "must be at least base_interval"));
        }
        let per_try = self.per_try_timeout.map(|timeout| timeout.0);
        let codes = self.retriable_status_codes.iter();
        let predicates = self.retry_host_predicate.iter().map(|predicate| {
            let config = predicate.typed_config.as_ref();
            RetryHostPredicate::new(&predicate.name, config.map(|any| any.type_url.as_str()))
        });
        let attempts = self.host_selection_retry_max_attempts;
        Ok(RetryPolicy {
            retry_host_predicate: predicates.collect(),
            host_selection_retry_max_attempts: attempts.map_or(0, |attempts| attempts.0),
            retry_on: conditions.map(str::to_owned).collect(),
            num_retries: self.num_retries.map_or(1, |retries| retries.0),
            per_try_timeout: per_try.filter(|timeout| !timeout.is_zero()),
            retriable_status_codes: codes.map(|code| code.0).collect(),
            base_interval,
            max_interval,
        })
    }
}

impl HashPolicyYaml {
    fn noun(self) -> HashPolicy {
        let source = match (self.header, self.connection_properties) {
            (Some(header), None) => HashSource::Header(header.header_name.to_ascii_lowercase()),
            (None, Some(ConnectionPropertiesYaml { source_ip: true })) => HashSource::SourceIp,
            _ => HashSource::Unsupported,
        };
        HashPolicy {
            source,
            terminal: self.terminal,
        }
    }
}

/// `RedirectAction`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RedirectYaml {
    /// To HTTPS.
    https_redirect: bool,
    /// To this scheme.
    scheme_redirect: String,
    /// To this host.
    host_redirect: String,
    /// To this port.
    port_redirect: Option<Uint<u32>>,
    /// To this path.
    path_redirect: String,
    /// What the matched part of the path becomes.
    prefix_rewrite: String,
    /// Without the query.
    strip_query: bool,
    /// The status. Default `MOVED_PERMANENTLY`.
    response_code: Named<RedirectCode>,
}

#[derive(Clone, Copy, Debug)]
struct RedirectCode(u16);

impl Default for RedirectCode {
    fn default() -> Self {
        Self(301)
    }
}

impl ProtoEnum for RedirectCode {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("MOVED_PERMANENTLY", 0, Self(301)),
        ("FOUND", 1, Self(302)),
        ("SEE_OTHER", 2, Self(303)),
        ("TEMPORARY_REDIRECT", 3, Self(307)),
        ("PERMANENT_REDIRECT", 4, Self(308)),
    ];
}

impl RedirectYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<Redirect, FieldError> {
        let port = self.port_redirect.map_or(0, |port| port.0);
        let port = u16::try_from(port);
        let port = port.map_err(|_| FieldError::new("port_redirect", "is not a port"))?;
        let scheme_redirect = match self.https_redirect {
            true => "https".to_owned(),
            false => self.scheme_redirect,
        };
        Ok(Redirect {
            host_redirect: self.host_redirect,
            port_redirect: (port > 0).then_some(port),
            scheme_redirect,
            path_redirect: self.path_redirect,
            prefix_rewrite: self.prefix_rewrite,
            strip_query: self.strip_query,
            response_code: self.response_code.0.0,
        })
    }
}

/// `DirectResponseAction`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct DirectResponseYaml {
    /// The status, 200 to 599.
    status: Uint<u32>,
    /// The body. Default empty.
    #[serde(default)]
    body: BodyYaml,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct BodyYaml {
    /// The text.
    inline_string: String,
}

impl DirectResponseYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<Action, FieldError> {
        let status = u16::try_from(self.status.0).ok();
        let Some(status) = status.filter(|status| (200..600).contains(status)) else {
            let reason = format!("{} is not a status from 200 to 599", self.status.0);
            return Err(FieldError::new("status", reason));
        };
        let body = Bytes::from(self.body.inline_string);
        Ok(Action::DirectResponse {
            status,
            body: Some(DataSource::Inline(body)),
        })
    }
}
