//! Bootstrap and resources of proxies with a management server (ADS).

use std::net::SocketAddr;

use super::backend::Backend;
use super::resources::{Made, assignment, cluster};

/// Values of `api_type`: state of the world and incremental.
pub(crate) const VARIANTS: [&str; 2] = ["GRPC", "DELTA_GRPC"];

/// The listener `front`, whose routes are the resource `r`.
pub(crate) const FRONT: &str = "
  - name: front
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.\
     v3.HttpConnectionManager
          stat_prefix: front
          rds: {route_config_name: r, config_source: {ads: {}, resource_api_version: V3}}
";

/// A proxy with clusters from `server`, listeners from its file (`LDS` has those of the server
/// instead), and further static clusters in flow style.
pub(crate) fn bootstrap(
    server: SocketAddr,
    variant: &str,
    listeners: &str,
    clusters: &[String],
) -> String {
    let (lds, listeners) = match listeners {
        LDS => (LDS_CONFIG, String::new()),
        listeners => ("", format!("  listeners:{listeners}")),
    };
    let clusters = [vec![static_cluster("server", server)], clusters.to_vec()].concat();
    format!(
        "admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}
node: {{id: p1, cluster: edge, locality: {{zone: a}}}}
dynamic_resources:
  ads_config:
    api_type: {variant}
    transport_api_version: V3
    grpc_services: [{{envoy_grpc: {{cluster_name: server, retry_policy: {{retry_back_off: \
         {{base_interval: 0.01s, max_interval: 0.05s}}}}}}}}]
  cds_config: {{ads: {{}}, resource_api_version: V3}}
{lds}static_resources:
{listeners}  clusters: [{}]
",
        clusters.join(", ")
    )
}

/// Listeners of the management server, for [`bootstrap`].
pub(crate) const LDS: &str = "lds";
const LDS_CONFIG: &str = "  lds_config: {ads: {}, resource_api_version: V3}\n";

/// A static cluster with one host, in flow style.
pub(crate) fn static_cluster(name: &str, host: SocketAddr) -> String {
    let socket = format!("{{address: {}, port_value: {}}}", host.ip(), host.port());
    let endpoint = format!("{{endpoint: {{address: {{socket_address: {socket}}}}}}}");
    let assignment =
        format!("{{cluster_name: {name}, endpoints: [{{lb_endpoints: [{endpoint}]}}]}}");
    format!("{{name: {name}, type: STATIC, load_assignment: {assignment}}}")
}

/// A cluster of the management server with one host.
pub(crate) fn upstream(name: &str, backend: &Backend) -> [Made; 2] {
    let zones: [(&str, &[SocketAddr]); 1] = [("a", &[backend.address])];
    [
        cluster(name, "lb_policy: ROUND_ROBIN"),
        assignment(name, &zones),
    ]
}
