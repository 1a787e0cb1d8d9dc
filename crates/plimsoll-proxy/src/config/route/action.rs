//! What happens to a request: `RouteAction`, `RedirectAction`, `DirectResponseAction`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use plimsoll_client::{RetryOn, RetryPolicy};
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum, Uint};
use serde::Deserialize;

use super::headers::field_name;
use crate::router::{
    DirectResponse, Forward, ForwardId, HashPolicy, HashSource, PathRedirect, Redirect, Target,
    WeightedCluster,
};

/// Envoy's default of `timeout`.
const TIMEOUT: Duration = Duration::from_secs(15);

/// `RouteAction`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteActionYaml {
    cluster: Option<String>,
    cluster_header: Option<String>,
    weighted_clusters: Option<WeightedClustersYaml>,
    timeout: Option<ProtoDuration>,
    idle_timeout: Option<ProtoDuration>,
    retry_policy: Option<RetryPolicyYaml>,
    prefix_rewrite: Option<String>,
    host_rewrite_literal: Option<String>,
    append_x_forwarded_host: bool,
    hash_policy: Vec<HashPolicyYaml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightedClustersYaml {
    clusters: Vec<ClusterWeightYaml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterWeightYaml {
    name: String,
    weight: Uint<u32>,
}

/// `RetryPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetryPolicyYaml {
    pub(super) retry_on: String,
    pub(super) num_retries: Option<Uint<u32>>,
    pub(super) per_try_timeout: Option<ProtoDuration>,
    retriable_status_codes: Vec<Uint<u32>>,
    retry_back_off: Option<BackOffYaml>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackOffYaml {
    base_interval: ProtoDuration,
    max_interval: Option<ProtoDuration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HashPolicyYaml {
    header: Option<HashHeaderYaml>,
    connection_properties: Option<ConnectionPropertiesYaml>,
    terminal: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HashHeaderYaml {
    header_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionPropertiesYaml {
    source_ip: bool,
}

impl RouteActionYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self, outer: Option<&RetryPolicyYaml>) -> Result<Forward, FieldError> {
        let target = self.target()?;
        let zero = |value: Duration| (!value.is_zero()).then_some(value);
        let retry = self.retry_policy.as_ref().or(outer);
        let per_try = retry.and_then(|retry| retry.per_try_timeout);
        let retry = retry.map(RetryPolicyYaml::checked).transpose();
        let host_rewrite = self.host_rewrite_literal.map(|host| {
            let reason = |_| FieldError::new("host_rewrite_literal", "is not a host");
            HeaderValue::from_str(&host).map_err(reason)
        });
        let mut hash_policy = Vec::new();
        for (index, policy) in self.hash_policy.into_iter().enumerate() {
            let place = format!("hash_policy[{index}]");
            hash_policy.push(policy.checked().map_err(|error| error.under(&place))?);
        }
        Ok(Forward {
            id: ForwardId::new(),
            target,
            timeout: self
                .timeout
                .map_or(Some(TIMEOUT), |timeout| zero(timeout.0)),
            per_try_timeout: per_try.and_then(|timeout| zero(timeout.0)),
            idle_timeout: self.idle_timeout.and_then(|timeout| zero(timeout.0)),
            retry: retry
                .map_err(|error| error.under("retry_policy"))?
                .unwrap_or_default(),
            prefix_rewrite: self.prefix_rewrite.filter(|prefix| !prefix.is_empty()),
            host_rewrite: host_rewrite.transpose()?,
            append_x_forwarded_host: self.append_x_forwarded_host,
            hash_policy,
        })
    }

    fn target(&self) -> Result<Target, FieldError> {
        match (&self.cluster, &self.cluster_header, &self.weighted_clusters) {
            (Some(name), None, None) if !name.is_empty() => {
                Ok(Target::Cluster(name.as_str().into()))
            }
            (None, Some(header), None) => {
                let name = field_name(header).map_err(|error| error.under("cluster_header"))?;
                Ok(Target::ClusterHeader(name))
            }
            (None, None, Some(weighted)) => {
                let target = weighted.checked();
                target.map_err(|error| error.under("weighted_clusters"))
            }
            _ => {
                let reason = "must have one of cluster, cluster_header and weighted_clusters";
                Err(FieldError::new("", reason))
            }
        }
    }
}

impl WeightedClustersYaml {
    fn checked(&self) -> Result<Target, FieldError> {
        let mut until = 0;
        let mut clusters = Vec::new();
        for cluster in &self.clusters {
            until += u64::from(cluster.weight.0);
            clusters.push(WeightedCluster {
                name: cluster.name.as_str().into(),
                until,
            });
        }
        if until == 0 || until > u64::from(u32::MAX) {
            let reason = format!("weights must sum to something from 1 to {}", u32::MAX);
            return Err(FieldError::new("clusters", reason));
        }
        Ok(Target::Weighted(clusters))
    }
}

impl RetryPolicyYaml {
    fn checked(&self) -> Result<RetryPolicy, FieldError> {
        let retry_on = RetryOn::parse(&self.retry_on);
        let retry_on = retry_on.map_err(|error| {
            let reason = error.to_string();
            FieldError::new("retry_on", reason.trim_start_matches("retry_on: "))
        })?;
        let codes = self.retriable_status_codes.iter().enumerate();
        let codes = codes.map(|(index, code)| {
            let reason = |_| {
                let path = format!("retriable_status_codes[{index}]");
                FieldError::new(path, "is not a status")
            };
            u16::try_from(code.0).map_err(reason)
        });
        let defaults = RetryPolicy::default();
        let back_off = self.retry_back_off.as_ref();
        let base = back_off.map_or(defaults.base_interval, |back_off| back_off.base_interval.0);
        if base.is_zero() {
            let path = "retry_back_off.base_interval";
            return Err(FieldError::new(path, "must be above 0"));
        }
        let max = back_off.and_then(|back_off| back_off.max_interval);
        Ok(RetryPolicy {
            num_retries: self.num_retries.map_or(1, |retries| retries.0),
            retry_on,
            retriable_status_codes: codes.collect::<Result<_, _>>()?,
            base_interval: base,
            max_interval: max.map_or(base * 10, |max| max.0.max(base)),
            ..defaults
        })
    }
}

impl HashPolicyYaml {
    fn checked(self) -> Result<HashPolicy, FieldError> {
        let source = match (self.header, self.connection_properties) {
            (Some(header), None) => {
                let name = field_name(&header.header_name);
                HashSource::Header(name.map_err(|error| error.under("header.header_name"))?)
            }
            (None, Some(ConnectionPropertiesYaml { source_ip: true })) => HashSource::SourceIp,
            _ => {
                let reason = "must have header, or connection_properties with source_ip: true";
                return Err(FieldError::new("", reason));
            }
        };
        Ok(HashPolicy {
            source,
            terminal: self.terminal,
        })
    }
}

/// `RedirectAction`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RedirectYaml {
    https_redirect: bool,
    scheme_redirect: Option<String>,
    host_redirect: Option<String>,
    port_redirect: Option<Uint<u32>>,
    path_redirect: Option<String>,
    prefix_rewrite: Option<String>,
    strip_query: bool,
    response_code: Named<RedirectCode>,
}

#[derive(Clone, Copy, Debug)]
struct RedirectCode(StatusCode);

impl Default for RedirectCode {
    fn default() -> Self {
        Self(StatusCode::MOVED_PERMANENTLY)
    }
}

impl ProtoEnum for RedirectCode {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("MOVED_PERMANENTLY", 0, Self(StatusCode::MOVED_PERMANENTLY)),
        ("FOUND", 1, Self(StatusCode::FOUND)),
        ("SEE_OTHER", 2, Self(StatusCode::SEE_OTHER)),
        (
            "TEMPORARY_REDIRECT",
            3,
            Self(StatusCode::TEMPORARY_REDIRECT),
        ),
        (
            "PERMANENT_REDIRECT",
            4,
            Self(StatusCode::PERMANENT_REDIRECT),
        ),
    ];
}

impl RedirectYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<Redirect, FieldError> {
        let port = self.port_redirect.map(|port| {
            let reason = |_| FieldError::new("port_redirect", "is not a port");
            u16::try_from(port.0).map_err(reason)
        });
        let path = match (self.path_redirect, self.prefix_rewrite) {
            (None, None) => PathRedirect::Keep,
            (Some(path), None) => PathRedirect::Replace(path),
            (None, Some(prefix)) => PathRedirect::Prefix(prefix),
            (Some(_), Some(_)) => {
                return Err(FieldError::new(
                    "prefix_rewrite",
                    "stands beside path_redirect",
                ));
            }
        };
        let https = self.https_redirect.then(|| "https".to_owned());
        Ok(Redirect {
            scheme: https.or(self.scheme_redirect),
            host: self.host_redirect,
            port: port.transpose()?,
            path,
            strip_query: self.strip_query,
            status: self.response_code.0.0,
        })
    }
}

/// `DirectResponseAction`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DirectResponseYaml {
    status: Uint<u32>,
    #[serde(default)]
    body: BodyYaml,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BodyYaml {
    inline_string: String,
}

impl DirectResponseYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<DirectResponse, FieldError> {
        let status = u16::try_from(self.status.0).ok();
        let status = status.and_then(|status| StatusCode::from_u16(status).ok());
        let Some(status) = status.filter(|status| status.as_u16() >= 200) else {
            let reason = format!("{} is not a status from 200 to 599", self.status.0);
            return Err(FieldError::new("status", reason));
        };
        Ok(DirectResponse {
            status,
            body: Bytes::from(self.body.inline_string),
        })
    }
}
