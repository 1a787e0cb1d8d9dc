//! `plimsoll proxy` as a child process, configured by a control plane.

use std::net::SocketAddr;
use std::process::Command;

use plimsoll_testing::{Process, plimsoll};
use serde_json::{Value, json};

use super::http::request;
use super::scratch;

/// Running proxy; killed when dropped.
pub(crate) struct DataPlane {
    pub(crate) admin: SocketAddr,
    pub(crate) listener: SocketAddr,
    _process: Process,
}

impl DataPlane {
    /// Starts a proxy in `zone` on free ports; requests for `/billing` go to the cluster `billing`,
    /// all others to `orders`.
    pub(crate) fn start(zone: &str, xds: SocketAddr) -> Self {
        let directory = scratch(&format!("proxy-{zone}"));
        let config = directory.join("proxy.yaml");
        std::fs::write(&config, bootstrap(zone, xds).to_string()).unwrap();
        let mut command = Command::new(plimsoll());
        command.args(["proxy", "--workers", "1", "-c"]).arg(config);
        let mut process = Process::start(command, &directory.join("proxy.log"));
        let [listener, admin] = process.addresses(["listener http on ", "admin on http://"]);
        Self {
            admin,
            listener,
            _process: process,
        }
    }

    /// URL of the dashboard.
    pub(crate) fn address(&self) -> String {
        format!("http://{}/", self.admin)
    }

    /// Fetches a path of the admin API.
    pub(crate) fn page(&self, path: &str) -> Value {
        request(self.admin, "GET", path, "")
    }
}

fn socket(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip(), "port_value": address.port() } })
}

fn bootstrap(zone: &str, xds: SocketAddr) -> Value {
    let free = socket(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = json!({
        "api_type": "GRPC", "transport_api_version": "V3",
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "control" } }],
    });
    let manager = "type.googleapis.com/envoy.extensions.filters.network.\
                   http_connection_manager.v3.HttpConnectionManager";
    let route =
        |prefix, cluster| json!({ "match": { "prefix": prefix }, "route": { "cluster": cluster } });
    let routes = [route("/billing", "billing"), route("/", "orders")];
    json!({
        "admin": { "address": free },
        "node": {
            "id": format!("proxy-{zone}"), "cluster": "gateway",
            "locality": { "region": "r1", "zone": zone },
        },
        "cluster_manager": { "local_cluster_name": "local_cluster", "load_stats_config": server },
        "dynamic_resources": { "ads_config": server, "cds_config": { "ads": {} } },
        "static_resources": {
            "listeners": [{
                "name": "http", "address": free,
                "filter_chains": [{ "filters": [{ "typed_config": {
                    "@type": manager, "stat_prefix": "http",
                    "route_config": { "virtual_hosts": [
                        { "name": "all", "domains": ["*"], "routes": routes },
                    ] },
                } }] }],
            }],
            "clusters": [{
                "name": "control",
                "load_assignment": {
                    "cluster_name": "control",
                    "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket(xds) } }] }],
                },
            }, {
                "name": "local_cluster", "type": "EDS",
                "eds_cluster_config": { "eds_config": { "ads": {} } },
            }],
        },
    })
}
