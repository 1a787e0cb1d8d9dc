//! Bootstraps of Envoys whose clusters use the module, with endpoints in files.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::servers::Server;

/// Full name of the policy's message.
const POLICY: &str = concat!(
    "type.googleapis.com/envoy.extensions.load_balancing_policies.",
    "dynamic_modules.v3.DynamicModulesLoadBalancerConfig"
);

/// An endpoint with its health in EDS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) zone: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) health: &'static str,
}

impl From<&Arc<Server>> for Endpoint {
    fn from(server: &Arc<Server>) -> Self {
        Self {
            zone: server.zone,
            address: server.address,
            health: "HEALTHY",
        }
    }
}

/// Returns the policy with this configuration; `name` is that of the policy in the library.
pub(crate) fn policy(name: &str, config: &Value) -> Value {
    json!({ "policies": [{ "typed_extension_config": {
        "name": "envoy.load_balancing_policies.dynamic_modules",
        "typed_config": {
            "@type": POLICY,
            "dynamic_module_config": { "name": "plimsoll_envoy" },
            "lb_policy_name": name,
            "lb_policy_config": {
                "@type": "type.googleapis.com/google.protobuf.Struct",
                "value": config,
            },
        },
    } }] })
}

/// Returns a configuration of the module for an Envoy in zone-a.
pub(crate) fn module(cluster: &Value) -> Value {
    json!({
        "node": { "locality": { "zone": "zone-a" } },
        "cluster_manager": { "local_cluster_name": "fleet" },
        "cluster": cluster,
        "admin": { "address": socket(SocketAddr::from(([127, 0, 0, 1], 0))) },
    })
}

/// Returns a cluster with this policy and its endpoints in a file.
pub(crate) fn cluster(directory: &Path, name: &str, policy: &Value) -> Value {
    json!({
        "name": name,
        "type": "EDS",
        "connect_timeout": "5s",
        "eds_cluster_config": { "eds_config": {
            "path_config_source": { "path": endpoints_file(directory, name) },
        } },
        "load_balancing_policy": policy,
    })
}

/// Adds the filter that reads load reports to a cluster.
pub(crate) fn with_orca_filter(mut cluster: Value) -> Value {
    let extensions = "type.googleapis.com/envoy.extensions";
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let filter = json!({
        "@type": format!("{extensions}.filters.http.dynamic_modules.v3.DynamicModuleFilter"),
        "dynamic_module_config": { "name": "plimsoll_envoy" },
        "filter_name": "plimsoll.orca",
    });
    let codec = json!({
        "@type": format!("{extensions}.filters.http.upstream_codec.v3.UpstreamCodec"),
    });
    cluster["typed_extension_protocol_options"][options] = json!({
        "@type": format!("type.googleapis.com/{options}"),
        "explicit_http_config": { "http_protocol_options": {} },
        "http_filters": [
            { "name": "plimsoll.orca", "typed_config": filter },
            { "name": "envoy.filters.http.upstream_codec", "typed_config": codec },
        ],
    });
    cluster
}

/// Returns ring hash with bounded load.
pub(crate) fn bounded_load() -> Value {
    let policies = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let settings = json!({
        "@type": format!("{policies}.ring_hash.v3.RingHash"),
        "consistent_hashing_lb_config": { "hash_balance_factor": 120 },
    });
    let name = "envoy.load_balancing_policies.ring_hash";
    json!({ "load_balancing_policy": { "policies": [
        { "typed_extension_config": { "name": name, "typed_config": settings } },
    ] } })
}

/// Lets the filter of the module ask for unhealthy hosts, for panic mode.
pub(crate) fn with_override_status(mut cluster: Value) -> Value {
    cluster["common_lb_config"]["override_host_status"] =
        json!({ "statuses": ["UNKNOWN", "HEALTHY", "DEGRADED", "UNHEALTHY"] });
    cluster
}

/// Returns round robin with these rules of zone-aware routing.
pub(crate) fn zone_aware(rules: &Value) -> Value {
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let settings = json!({
        "@type": format!("{package}.round_robin.v3.RoundRobin"),
        "locality_lb_config": { "zone_aware_lb_config": rules },
    });
    let name = "envoy.load_balancing_policies.round_robin";
    json!({ "load_balancing_policy": { "policies": [
        { "typed_extension_config": { "name": name, "typed_config": settings } },
    ] } })
}

/// Returns load_aware_locality over round robin, with these settings.
pub(crate) fn load_aware(mut settings: Value) -> Value {
    let policies = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let typed = |name: &str, config: Value| {
        let name = format!("envoy.load_balancing_policies.{name}");
        json!({ "policies": [
            { "typed_extension_config": { "name": name, "typed_config": config } },
        ] })
    };
    let child = json!({ "@type": format!("{policies}.round_robin.v3.RoundRobin") });
    settings["@type"] = json!(format!(
        "{policies}.load_aware_locality.v3.LoadAwareLocality"
    ));
    settings["endpoint_picking_policy"] = typed("round_robin", child);
    json!({ "load_balancing_policy": typed("load_aware_locality", settings) })
}

fn endpoints_file(directory: &Path, cluster: &str) -> String {
    let file = directory.join(format!("{cluster}.eds.json"));
    file.to_str().unwrap().to_owned()
}

/// Writes the endpoints of a cluster. The file is replaced, which Envoy watches for.
pub(crate) fn write_endpoints(
    directory: &Path,
    cluster: &str,
    endpoints: impl IntoIterator<Item = Endpoint>,
) {
    let localities: Vec<_> = endpoints.into_iter().map(locality).collect();
    let resource = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster,
        "endpoints": localities,
    });
    replace(
        &endpoints_file(directory, cluster),
        &json!({ "resources": [resource] }),
    );
}

/// Adds a file with clusters to a bootstrap.
pub(crate) fn with_clusters_file(mut bootstrap: Value, file: &str) -> Value {
    bootstrap["dynamic_resources"] =
        json!({ "cds_config": { "path_config_source": { "path": file } } });
    bootstrap
}

/// Writes a file with clusters.
pub(crate) fn write_clusters(file: &str, clusters: &[Value]) {
    let resources: Vec<_> = clusters
        .iter()
        .map(|cluster| {
            let mut resource = cluster.clone();
            resource["@type"] = json!("type.googleapis.com/envoy.config.cluster.v3.Cluster");
            resource
        })
        .collect();
    replace(file, &json!({ "resources": resources }));
}

/// Replaces a watched file.
pub(crate) fn replace(file: &str, content: &Value) {
    let new = format!("{file}.new");
    std::fs::write(&new, content.to_string()).unwrap();
    std::fs::rename(&new, file).unwrap();
}

/// Returns an entry with one endpoint: Envoy merges entries of one locality.
fn locality(endpoint: Endpoint) -> Value {
    let mut host = json!({
        "endpoint": { "address": socket(endpoint.address) },
        "health_status": endpoint.health,
    });
    if endpoint.health == "DRAINING" {
        // As the control plane sends it.
        host["metadata"]["filter_metadata"]["plimsoll"] = json!({ "health_status": "DRAINING" });
    }
    json!({ "locality": { "zone": endpoint.zone }, "lb_endpoints": [host] })
}

pub(crate) fn socket(address: SocketAddr) -> Value {
    let (ip, port) = (address.ip(), address.port());
    json!({ "socket_address": { "address": ip, "port_value": port } })
}

/// Returns a bootstrap with a listener that routes `/NAME` to the cluster NAME.
pub(crate) fn bootstrap(clusters: &[Value], dynamic: &[&str]) -> Value {
    let names = clusters
        .iter()
        .map(|cluster| cluster["name"].as_str().unwrap());
    let routes: Vec<_> = names.chain(dynamic.iter().copied()).map(route).collect();
    let filters = "type.googleapis.com/envoy.extensions.filters";
    json!({
        "admin": { "address": socket(SocketAddr::from(([127, 0, 0, 1], 0))) },
        "node": { "id": "gateway", "cluster": "gateway", "locality": { "zone": "zone-a" } },
        "static_resources": { "clusters": clusters, "listeners": [{
            "name": "ingress",
            "address": socket(SocketAddr::from(([127, 0, 0, 1], 0))),
            "filter_chains": [{ "filters": [{ "name": "http", "typed_config": {
                "@type": format!(
                    "{filters}.network.http_connection_manager.v3.HttpConnectionManager"
                ),
                "stat_prefix": "ingress",
                "http_filters": [{
                    "name": "plimsoll.override",
                    "typed_config": {
                        "@type": format!("{filters}.http.dynamic_modules.v3.DynamicModuleFilter"),
                        "dynamic_module_config": { "name": "plimsoll_envoy" },
                        "filter_name": "plimsoll.override",
                    },
                }, {
                    "name": "router",
                    "typed_config": { "@type": format!("{filters}.http.router.v3.Router") },
                }],
                "route_config": { "validate_clusters": false, "virtual_hosts": [
                    { "name": "all", "domains": ["*"], "routes": routes },
                ] },
            } }] }],
        }] },
    })
}

/// Returns a route that retries a 5xx response once, at another host.
fn route(cluster: &str) -> Value {
    let retries = if cluster == "retries" { 1 } else { 0 };
    let previous =
        "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
    json!({
        "match": { "prefix": format!("/{cluster}") },
        "route": { "cluster": cluster, "hash_policy": [
            // All requests of a test have the same hash.
            { "header": { "header_name": ":path" } },
        ], "retry_policy": {
            "retry_on": "5xx",
            "num_retries": retries,
            "retry_host_predicate": [{
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": { "@type": previous },
            }],
            "host_selection_retry_max_attempts": 3,
        } },
    })
}
