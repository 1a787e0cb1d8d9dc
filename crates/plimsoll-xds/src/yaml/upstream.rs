//! The part of a cluster that is not about choosing hosts, from files: raw structs of the fields,
//! one file per message, and their way into the nouns of `crate::upstream`.
//!
//! Which fields a cluster may have at all is decided in `cluster::full`. A field of a message below
//! that is not declared is refused; declared without a use are those that change nothing here, each
//! with the reason.

pub(super) mod breakers;
pub(super) mod health_check;
pub(super) mod http;
pub(super) mod load_assignment;
pub(super) mod outlier;
pub(super) mod tls;

use std::time::Duration;

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::proto_json::{Empty, Named, ProtoDuration, ProtoEnum, Uint};
use crate::upstream::{Discovery, DnsLookupFamily, DnsOptions, EdsSource, TcpKeepalive};

/// The value of an optional duration.
fn duration(value: Option<ProtoDuration>) -> Option<Duration> {
    value.map(|value| value.0)
}

/// The value of an optional number.
fn number(value: Option<Uint<u32>>) -> Option<u32> {
    value.map(|value| value.0)
}

/// `Cluster.DiscoveryType`, the values we have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DiscoveryType {
    #[default]
    Static,
    StrictDns,
    LogicalDns,
    Eds,
}

impl ProtoEnum for DiscoveryType {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("STATIC", 0, Self::Static),
        ("STRICT_DNS", 1, Self::StrictDns),
        ("LOGICAL_DNS", 2, Self::LogicalDns),
        ("EDS", 3, Self::Eds),
    ];
}

impl ProtoEnum for DnsLookupFamily {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("AUTO", 0, Self::Auto),
        ("V4_ONLY", 1, Self::V4Only),
        ("V6_ONLY", 2, Self::V6Only),
        ("V4_PREFERRED", 3, Self::V4Preferred),
        ("ALL", 4, Self::All),
    ];
}

/// The fields of a cluster that say where its endpoints come from.
pub(super) struct DiscoveryFields {
    pub(super) discovery_type: DiscoveryType,
    pub(super) eds_cluster_config: Option<EdsClusterConfig>,
    pub(super) dns_refresh_rate: Option<ProtoDuration>,
    pub(super) dns_lookup_family: Option<Named<DnsLookupFamily>>,
}

impl DiscoveryFields {
    pub(super) fn checked(self) -> Result<Discovery, FieldError> {
        if self.eds_cluster_config.is_some() && self.discovery_type != DiscoveryType::Eds {
            let reason = "has no effect unless the type is EDS";
            return Err(FieldError::new("eds_cluster_config", reason));
        }
        let mut dns = DnsOptions {
            lookup_family: self.dns_lookup_family.unwrap_or_default().0,
            ..Default::default()
        };
        match duration(self.dns_refresh_rate) {
            Some(rate) if rate < Duration::from_millis(1) => {
                let reason = "must be at least 0.001s";
                return Err(FieldError::new("dns_refresh_rate", reason));
            }
            Some(rate) => dns.refresh_rate = rate,
            None => {}
        }
        Ok(match self.discovery_type {
            DiscoveryType::Static => Discovery::Static,
            DiscoveryType::StrictDns => Discovery::StrictDns(dns),
            DiscoveryType::LogicalDns => Discovery::LogicalDns(dns),
            DiscoveryType::Eds => {
                let Some(config) = self.eds_cluster_config else {
                    let reason = "must be set with type EDS";
                    return Err(FieldError::new("eds_cluster_config", reason));
                };
                let eds = config.checked();
                eds.map_err(|error| error.under("eds_cluster_config"))?
            }
        })
    }
}

/// `Cluster.EdsClusterConfig`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct EdsClusterConfig {
    /// Where from.
    eds_config: ConfigSource,
    /// Name of the assignment. Default the name of the cluster.
    #[serde(default)]
    service_name: String,
}

impl EdsClusterConfig {
    fn checked(self) -> Result<Discovery, FieldError> {
        let source = self.eds_config.checked();
        Ok(Discovery::Eds {
            service_name: (!self.service_name.is_empty()).then_some(self.service_name),
            source: source.map_err(|error| error.under("eds_config"))?,
        })
    }
}

/// `ConfigSource`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConfigSource {
    /// From the management server of the client.
    ads: Option<Empty>,
    /// The same.
    #[serde(rename = "self")]
    this_server: Option<SelfConfigSource>,
    /// From a file, which is watched.
    path_config_source: Option<PathConfigSource>,
    /// Deprecated spelling of `path_config_source.path`.
    path: Option<String>,
    // There is only version 3, and nothing waits for a first answer.
    /// Without effect: there is only version 3.
    resource_api_version: Option<Named<ApiVersion>>,
    /// Without effect: nothing waits for a first answer.
    initial_fetch_timeout: Option<ProtoDuration>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct SelfConfigSource {
    /// Without effect: there is only version 3.
    transport_api_version: Option<Named<ApiVersion>>,
}

/// `watched_directory` is not here: files are watched anyway.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct PathConfigSource {
    /// A file with a `ClusterLoadAssignment`.
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ApiVersion;

impl ProtoEnum for ApiVersion {
    const VALUES: &'static [(&'static str, i64, Self)] = &[("AUTO", 0, Self), ("V3", 2, Self)];
}

impl ConfigSource {
    fn checked(self) -> Result<EdsSource, FieldError> {
        let path = self.path_config_source.map(|source| source.path);
        match (self.ads, self.this_server, path.or(self.path)) {
            (Some(_), None, None) | (None, Some(_), None) => Ok(EdsSource::Ads),
            (None, None, Some(path)) => Ok(EdsSource::Path(path)),
            _ => {
                let reason = "must be exactly one of ads, self and path_config_source";
                Err(FieldError::new("", reason))
            }
        }
    }

    /// Whether load is reported to the server that sent the cluster: nothing else is supported.
    pub(super) fn is_self(&self) -> Result<bool, FieldError> {
        match (self.this_server.is_some(), self.ads.is_some()) {
            (true, false) => Ok(true),
            _ => Err(FieldError::new("", "only self is supported")),
        }
    }
}

/// `UpstreamConnectionOptions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct UpstreamConnectionOptions {
    /// Probes of idle connections; without it none are sent.
    tcp_keepalive: Option<TcpKeepaliveYaml>,
    // Only Envoy's access logs show it.
    /// Without effect: only logs of Envoy show it.
    set_local_interface_name_on_upstream_connections: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct TcpKeepaliveYaml {
    /// Probes without an answer after which a connection is closed. Default the system's.
    keepalive_probes: Option<Uint<u32>>,
    /// Seconds of idleness before the first probe. Default the system's.
    keepalive_time: Option<Uint<u32>>,
    /// Seconds between two probes. Default the system's.
    keepalive_interval: Option<Uint<u32>>,
}

impl UpstreamConnectionOptions {
    pub(super) fn tcp_keepalive(self) -> Option<TcpKeepalive> {
        let seconds = |value| number(value).map(|value| Duration::from_secs(u64::from(value)));
        self.tcp_keepalive.map(|keepalive| TcpKeepalive {
            probes: number(keepalive.keepalive_probes),
            time: seconds(keepalive.keepalive_time),
            interval: seconds(keepalive.keepalive_interval),
        })
    }
}

/// Bytes in base64, as the JSON mapping of protobuf has them.
fn base64(text: &str, path: &str) -> Result<bytes::Bytes, FieldError> {
    use ::base64::Engine;
    let decoded = ::base64::engine::general_purpose::STANDARD.decode(text);
    let decoded = decoded.map_err(|error| FieldError::new(path, format!("no base64: {error}")))?;
    Ok(decoded.into())
}
