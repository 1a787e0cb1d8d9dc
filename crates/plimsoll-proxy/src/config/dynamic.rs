//! Where clusters come from besides the file: `dynamic_resources` and `load_stats_config`.
//!
//! A server is named by a cluster of the file, as in Envoy; its first endpoint is where it is.

use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::UpstreamOptions;
use plimsoll_xds::yaml::proto_json::{Empty, Named, ProtoDuration, ProtoEnum};
use serde::Deserialize;

use super::XdsConfig;
use crate::clusters::UpstreamCluster;

/// `Bootstrap.DynamicResources`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct DynamicResourcesYaml {
    /// The server.
    ads_config: ApiConfigSourceYaml,
    /// Take all its clusters, with their endpoints; one of the file goes before one of the same
    /// name.
    cds_config: Option<ConfigSourceYaml>,
}

/// `ApiConfigSource`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ApiConfigSourceYaml {
    /// How it is spoken to.
    api_type: Named<ApiType>,
    /// Exactly one.
    grpc_services: Vec<GrpcServiceYaml>,
    // There is only version 3, and the node is sent with the first message only.
    /// Without effect: there is only version 3.
    #[serde(default, rename = "transport_api_version")]
    _transport_api_version: Option<Named<ApiVersion>>,
    /// Without effect: so it is.
    #[serde(default, rename = "set_node_on_first_message_only")]
    _set_node_on_first_message_only: bool,
}

/// `ConfigSource`: the stream that everything comes on.
#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AdsConfigSource")
)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigSourceYaml {
    /// From the server of `ads_config`.
    #[serde(rename = "ads")]
    _ads: Empty,
    /// Without effect: there is only version 3.
    #[serde(default, rename = "resource_api_version")]
    _resource_api_version: Option<Named<ApiVersion>>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct GrpcServiceYaml {
    /// The server, as a cluster of the file.
    envoy_grpc: EnvoyGrpcYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct EnvoyGrpcYaml {
    /// A cluster of the file, whose first endpoint and TLS are the server's.
    cluster_name: String,
    /// How it is dialled again.
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
    /// The pauses.
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
    /// The first pause.
    base_interval: ProtoDuration,
    /// The longest pause. Default ten times the first.
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

#[derive(Clone, Copy, Debug)]
struct ApiVersion;

impl ProtoEnum for ApiVersion {
    const VALUES: &'static [(&'static str, i64, Self)] = &[("V3", 2, Self)];
}

impl DynamicResourcesYaml {
    /// The server, with paths that start at this message.
    pub(super) fn checked(
        self,
        load_stats: Option<&ApiConfigSourceYaml>,
        clusters: &[UpstreamCluster],
    ) -> Result<XdsConfig, FieldError> {
        let delta = self.ads_config.api_type.0 == ApiType::DeltaGrpc;
        let service = self.ads_config.service();
        let service = service.map_err(|error| error.under("ads_config"))?;
        let (uri, tls) = place(&service.cluster_name, clusters)
            .map_err(|error| error.under("ads_config.grpc_services[0].envoy_grpc.cluster_name"))?;
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

    /// Load goes to the server that clusters come from.
    pub(super) fn check_is(&self, xds: Option<&XdsConfig>) -> Result<(), FieldError> {
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

/// Where a cluster of the file is, and its options if it has TLS.
fn place(
    name: &str,
    clusters: &[UpstreamCluster],
) -> Result<(String, Option<Box<UpstreamOptions>>), FieldError> {
    let cluster = clusters.iter().find(|one| &**one.config.name() == name);
    let endpoint = cluster
        .and_then(|cluster| cluster.load_assignment.as_ref())
        .and_then(|assignment| assignment.endpoints.first()?.endpoints.first());
    let Some(endpoint) = endpoint else {
        let reason = format!("no cluster {name:?} with an endpoint in static_resources");
        return Err(FieldError::new("", reason));
    };
    let options = cluster.map(|cluster| &cluster.options);
    let options = options.filter(|options| options.tls.is_some());
    let host = match endpoint.host.contains(':') {
        true => format!("[{}]", endpoint.host),
        false => endpoint.host.clone(),
    };
    let uri = format!("http://{host}:{}", endpoint.port);
    Ok((uri, options.cloned().map(Box::new)))
}
