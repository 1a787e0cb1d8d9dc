//! The management server: `dynamic_resources` and `load_stats_config`. As in Envoy, the server is
//! given as a cluster of the file. The first endpoint of this cluster is used.

use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::ConfigSourceMessage;
use plimsoll_xds::pb::enums::ApiVersion;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::upstream::UpstreamOptions;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum};
use serde::Deserialize;

use super::XdsConfig;
use crate::clusters::UpstreamCluster;

/// Resources of a management server (`Bootstrap.DynamicResources`).
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct DynamicResourcesYaml {
    /// Management server for all subscriptions (ADS).
    ads_config: ApiConfigSourceYaml,
    /// Subscribe to all clusters of the server and their endpoints; must be `ads: {}`. A cluster of
    /// the file takes precedence over one of the same name. Default only what the file refers to.
    cds_config: Option<FileMessage<ConfigSourceMessage>>,
    /// Subscribe to all listeners of the server and their routes; must be `ads: {}`. A listener of
    /// the file takes precedence over one of the same name or address. Default only listeners of
    /// the file.
    lds_config: Option<FileMessage<ConfigSourceMessage>>,
}

/// A management server (`ApiConfigSource`).
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ApiConfigSourceYaml {
    /// Protocol variant: `GRPC` (state of the world) or `DELTA_GRPC` (incremental).
    api_type: Named<ApiType>,
    /// The server; exactly one entry.
    grpc_services: Vec<AdsGrpcServiceYaml>,
    /// Has no effect: only version 3 of the API is supported.
    #[serde(default, rename = "transport_api_version")]
    _transport_api_version: Option<Named<ApiVersion>>,
    /// Has no effect: the node is always sent with the first message only.
    #[serde(default, rename = "set_node_on_first_message_only")]
    _set_node_on_first_message_only: bool,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct AdsGrpcServiceYaml {
    /// The server, given as a cluster of this file.
    envoy_grpc: EnvoyGrpcYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EnvoyGrpcYaml {
    /// Name of a static cluster. Its first endpoint and its TLS settings are used.
    cluster_name: String,
    /// Back-off of reconnection attempts.
    retry_policy: Option<RetryPolicyYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "GrpcRetryPolicy")
)]
#[serde(deny_unknown_fields)]
struct RetryPolicyYaml {
    /// Intervals between reconnection attempts.
    retry_back_off: BackOffYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "GrpcBackOff")
)]
#[serde(deny_unknown_fields)]
struct BackOffYaml {
    /// Initial back-off; doubles with every failed attempt.
    base_interval: ProtoDuration,
    /// Maximum back-off. Default ten times `base_interval`.
    max_interval: Option<ProtoDuration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiType {
    Grpc,
    DeltaGrpc,
}

impl ProtoEnum for ApiType {
    const VALUES: &'static [(&'static str, i64, Self)] =
        &[("GRPC", 2, Self::Grpc), ("DELTA_GRPC", 3, Self::DeltaGrpc)];
}

impl DynamicResourcesYaml {
    /// Validates the `DynamicResources` message; error paths are relative to it.
    pub(super) fn validate(
        self,
        load_stats: Option<&ApiConfigSourceYaml>,
        clusters: &[UpstreamCluster],
    ) -> Result<XdsConfig, FieldError> {
        let delta = self.ads_config.api_type.0 == ApiType::DeltaGrpc;
        let service = self
            .ads_config
            .service()
            .map_err(|error| error.under("ads_config"))?;
        let (uri, tls) = server_address(&service.cluster_name, clusters)
            .map_err(|error| error.under("ads_config.grpc_services[0].envoy_grpc.cluster_name"))?;
        let sources = [
            ("cds_config", &self.cds_config),
            ("lds_config", &self.lds_config),
        ];
        for (field, source) in sources {
            if let Some(written) = source {
                written
                    .message()
                    .and_then(|source| check_ads(Some(source)))
                    .map_err(|error| error.under(field))?;
            }
        }
        let back_off = service.retry_policy.as_ref().map(|policy| {
            let base = policy.retry_back_off.base_interval.0;
            let max = policy.retry_back_off.max_interval;
            (base, max.map_or(base * 10, |max| max.0))
        });
        Ok(XdsConfig {
            server: service.cluster_name.clone(),
            uri,
            tls,
            delta,
            clusters: self.cds_config.is_some(),
            listeners: self.lds_config.is_some(),
            report_load: load_stats.is_some(),
            back_off: back_off.filter(|(base, _)| *base > Duration::ZERO),
        })
    }
}

impl ApiConfigSourceYaml {
    fn service(&self) -> Result<&EnvoyGrpcYaml, FieldError> {
        match self.grpc_services.as_slice() {
            [one] => Ok(&one.envoy_grpc),
            _ => Err(FieldError::new(
                "grpc_services",
                "must have exactly one entry",
            )),
        }
    }

    /// Checks that load is reported to the same server that `ads_config` names.
    pub(super) fn check_same_server(&self, xds: Option<&XdsConfig>) -> Result<(), FieldError> {
        let name = &self.service()?.cluster_name;
        match xds {
            Some(xds) if xds.server == *name => Ok(()),
            _ => {
                let reason = "must be the server of dynamic_resources.ads_config";
                Err(FieldError::new(
                    "grpc_services[0].envoy_grpc.cluster_name",
                    reason,
                ))
            }
        }
    }
}

pub(super) fn check_ads(source: Option<ConfigSourceMessage>) -> Result<(), FieldError> {
    let source = source.unwrap_or_default();
    let ads = ConfigSourceMessage {
        resource_api_version: source.resource_api_version,
        ..ConfigSourceMessage::ads()
    };
    if source == ads {
        Ok(())
    } else {
        Err(FieldError::new("", "only `ads: {}` is supported"))
    }
}

/// Returns the URI of a static cluster's first endpoint, and the TLS options of the cluster.
fn server_address(
    name: &str,
    clusters: &[UpstreamCluster],
) -> Result<(String, Option<Box<UpstreamOptions>>), FieldError> {
    let cluster = clusters.iter().find(|one| &**one.config.name() == name);
    let endpoint = cluster
        .and_then(|cluster| cluster.load_assignment.as_ref())
        .and_then(|assignment| assignment.endpoints.first()?.endpoints.first());
    let Some(endpoint) = endpoint else {
        let reason = format!("no cluster {name:?} with an endpoint in static_resources.clusters");
        return Err(FieldError::new("", reason));
    };
    let options = cluster
        .map(|cluster| &cluster.options)
        .filter(|options| options.tls.is_some());
    let host = if endpoint.host.contains(':') {
        format!("[{}]", endpoint.host)
    } else {
        endpoint.host.clone()
    };
    let uri = format!("http://{host}:{}", endpoint.port);
    Ok((uri, options.cloned().map(Box::new)))
}
