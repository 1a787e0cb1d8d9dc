//! The management server: `dynamic_resources` and `cluster_manager` of a bootstrap.
//!
//! Clusters and their endpoints may come from a server; listeners and routes are those of the file.
//! The server is a cluster of the file, as in Envoy; of its hosts the first is dialled. What is
//! done with it lives in the client.

use plimsoll_client::{LoadReporting, Variant, XdsOptions};
use plimsoll_core::model::load_report::Node;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ProxyConfig;
use crate::clusters::UpstreamCluster;

/// `DynamicResources`: an aggregated server, and clusters from it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DynamicResourcesYaml {
    ads_config: Option<ApiConfigSourceYaml>,
    cds_config: Option<ConfigSourceYaml>,
}

/// `ClusterManager`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClusterManagerYaml {
    pub(super) local_cluster_name: Option<String>,
    load_stats_config: Option<ApiConfigSourceYaml>,
}

/// `ConfigSource`, of which only the aggregated one is known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigSourceYaml {
    #[serde(rename = "ads")]
    _ads: AdsYaml,
    #[serde(default, rename = "resource_api_version")]
    _resource_api_version: Named<ApiVersion>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdsYaml {}

/// `ApiConfigSource`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiConfigSourceYaml {
    api_type: Named<ApiType>,
    #[serde(default, rename = "transport_api_version")]
    _transport_api_version: Named<ApiVersion>,
    /// We always do.
    #[serde(default, rename = "set_node_on_first_message_only")]
    _set_node_on_first_message_only: bool,
    grpc_services: Vec<GrpcServiceYaml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrpcServiceYaml {
    envoy_grpc: EnvoyGrpcYaml,
    #[serde(default, rename = "timeout")]
    _timeout: Option<ProtoDuration>,
}

/// The pauses between attempts are the client's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvoyGrpcYaml {
    cluster_name: String,
    #[serde(default, rename = "retry_policy")]
    _retry_policy: Option<IgnoredAny>,
}

/// Variants of ADS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ApiType {
    #[default]
    Grpc,
    DeltaGrpc,
}

impl ProtoEnum for ApiType {
    const VALUES: &'static [(&'static str, i64, Self)] =
        &[("GRPC", 2, Self::Grpc), ("DELTA_GRPC", 3, Self::DeltaGrpc)];
}

/// There is only one left.
#[derive(Clone, Copy, Debug, Default)]
struct ApiVersion;

impl ProtoEnum for ApiVersion {
    const VALUES: &'static [(&'static str, i64, Self)] = &[("V3", 2, Self)];
}

/// A management server, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsConfig {
    /// `http://host:port`.
    pub uri: String,
    /// Incremental instead of state of the world.
    pub delta: bool,
    /// Load is reported from the beginning, not only of clusters that ask for it.
    pub report_load: bool,
}

impl ProxyConfig {
    /// What the client is told of the server: every cluster is wanted, and the fleet.
    pub(crate) fn xds_options(&self) -> Option<XdsOptions> {
        let xds = self.xds.as_ref()?;
        let node = Node {
            id: self.node.id.as_str().into(),
            cluster: self.node.cluster.as_str().into(),
            locality: self.node.locality.clone(),
        };
        let mut options = XdsOptions::new(&xds.uri, node);
        options.all_clusters = true;
        if xds.delta {
            options.variant = Variant::Delta;
        }
        if let Some(fleet) = &self.local_cluster_name {
            options.local_cluster_name = fleet.as_str().into();
        }
        if xds.report_load {
            options.load_reporting = LoadReporting::Always;
        }
        Some(options)
    }
}

impl DynamicResourcesYaml {
    /// The server, if there is one.
    pub(super) fn checked(
        &self,
        manager: &ClusterManagerYaml,
        clusters: &[UpstreamCluster],
    ) -> Result<Option<XdsConfig>, FieldError> {
        let (Some(ads), Some(_)) = (&self.ads_config, &self.cds_config) else {
            let lonely = match (&self.ads_config, &self.cds_config) {
                (None, None) => return without_reports(manager),
                (None, _) => FieldError::new("ads_config", "must be set with cds_config"),
                _ => FieldError::new("cds_config", "must be set with ads_config"),
            };
            return Err(lonely.under("dynamic_resources"));
        };
        let uri = ads.uri(clusters);
        let uri = uri.map_err(|error| error.under("dynamic_resources.ads_config"))?;
        if let Some(reports) = &manager.load_stats_config {
            let place = "cluster_manager.load_stats_config";
            if reports.uri(clusters).map_err(|error| error.under(place))? != uri {
                let reason = "must be the server of dynamic_resources.ads_config";
                return Err(FieldError::new(place, reason));
            }
        }
        Ok(Some(XdsConfig {
            uri,
            delta: ads.api_type.0 == ApiType::DeltaGrpc,
            report_load: manager.load_stats_config.is_some(),
        }))
    }
}

fn without_reports(manager: &ClusterManagerYaml) -> Result<Option<XdsConfig>, FieldError> {
    match manager.load_stats_config {
        None => Ok(None),
        Some(_) => {
            let reason = "needs dynamic_resources.ads_config";
            Err(FieldError::new("cluster_manager.load_stats_config", reason))
        }
    }
}

impl ApiConfigSourceYaml {
    fn uri(&self, clusters: &[UpstreamCluster]) -> Result<String, FieldError> {
        let [service] = &self.grpc_services[..] else {
            let reason = format!("must be one, not {}", self.grpc_services.len());
            return Err(FieldError::new("grpc_services", reason));
        };
        let name = &service.envoy_grpc.cluster_name;
        let path = "grpc_services[0].envoy_grpc.cluster_name";
        let found = clusters.iter().find(|one| &**one.config.name() == name);
        let assignment = found.and_then(|found| found.load_assignment.as_ref());
        let assignment = assignment.ok_or_else(|| {
            let reason = format!("no cluster {name:?} with endpoints in static_resources");
            FieldError::new(path, reason)
        })?;
        if found.is_some_and(|found| found.options.tls.is_some()) {
            return Err(FieldError::new(path, "TLS to the server is not supported"));
        }
        let mut endpoints = assignment.endpoints.iter().flat_map(|entry| &entry.endpoints);
        let first = endpoints.next().ok_or_else(|| {
            FieldError::new(path, format!("cluster {name:?} has no endpoint"))
        })?;
        let host = match first.host.contains(':') {
            true => format!("[{}]", first.host),
            false => first.host.clone(),
        };
        Ok(format!("http://{host}:{}", first.port))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ProxyConfig;

    const SERVER: &str = "
static_resources:
  clusters:
  - name: control
    load_assignment:
      cluster_name: control
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 18000}}}
";
    const ADS: &str = "
dynamic_resources:
  ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: control}}]}
  cds_config: {ads: {}, resource_api_version: V3}
";

    #[test]
    fn the_server_is_a_cluster_of_the_file() {
        let config = ProxyConfig::parse(&format!("{SERVER}{ADS}")).unwrap();
        let xds = config.xds.unwrap();
        assert_eq!(xds.uri, "http://127.0.0.1:18000");
        assert!(!xds.delta && !xds.report_load);
        let reports = "
cluster_manager:
  local_cluster_name: local_cluster
  load_stats_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: control}}]}
";
        let delta = ADS.replace("GRPC", "DELTA_GRPC");
        let config = ProxyConfig::parse(&format!("{SERVER}{delta}{reports}")).unwrap();
        let xds = config.xds.unwrap();
        assert!(xds.delta && xds.report_load);
        assert_eq!(config.local_cluster_name.as_deref(), Some("local_cluster"));
    }

    #[test]
    fn what_is_missing_or_elsewhere_is_named() {
        let path = |text: String| ProxyConfig::parse(&text).unwrap_err().path().to_owned();
        let source = "dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name";
        assert_eq!(path(ADS.to_owned()), source);
        let alone = "dynamic_resources: {cds_config: {ads: {}}}".to_owned();
        assert_eq!(path(alone), "dynamic_resources.ads_config");
        let listeners = format!("{SERVER}{ADS}  lds_config: {{ads: {{}}}}\n");
        assert_eq!(path(listeners), "dynamic_resources.lds_config");
        let reports = "cluster_manager: {load_stats_config: {api_type: GRPC, grpc_services: []}}";
        assert_eq!(path(reports.to_owned()), "cluster_manager.load_stats_config");
    }
}
