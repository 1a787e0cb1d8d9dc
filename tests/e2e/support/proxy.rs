//! `plimsoll proxy` as a child process, and parts of its configuration.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_testing::http::{get, get_json};
use plimsoll_testing::{Process, plimsoll};
use serde_json::{Value, json};

/// Running proxy; killed when dropped.
pub(crate) struct Proxy {
    /// Names and addresses, in the order of the file.
    pub(crate) listeners: Vec<(String, SocketAddr)>,
    pub(crate) admin: SocketAddr,
    file: PathBuf,
    process: Process,
}

impl Proxy {
    /// Starts a proxy and waits until it listens; its file and log are `directory/name.*`.
    pub(crate) fn start(directory: &Path, name: &str, config: &Value) -> Self {
        Self::start_with(directory, name, config, &["--workers", "1"])
    }

    /// Like `start`, with further arguments.
    pub(crate) fn start_with(directory: &Path, name: &str, config: &Value, args: &[&str]) -> Self {
        let file = directory.join(format!("{name}.json"));
        std::fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(plimsoll());
        command.arg("proxy").args(args);
        Self::run(command, file)
    }

    /// Starts a proxy with a file in YAML and variables of its own.
    pub(crate) fn start_in(
        directory: &Path,
        name: &str,
        yaml: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let file = directory.join(format!("{name}.yaml"));
        std::fs::write(&file, yaml).unwrap();
        let mut command = Command::new(plimsoll());
        command.arg("proxy").envs(variables.iter().copied());
        Self::run(command, file)
    }

    fn run(mut command: Command, file: PathBuf) -> Self {
        command.arg("-c").arg(&file);
        let mut process = Process::start(command, &file.with_extension("log"));
        let stdout = BufReader::new(process.child.stdout.take().unwrap());
        let mut listeners = Vec::new();
        let mut admin = None;
        for line in stdout.lines().map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("admin on http://") {
                admin = address.parse().ok();
                break;
            }
            let listener = line.strip_prefix("listener ").unwrap();
            let (name, address) = listener.split_once(" on ").unwrap();
            listeners.push((name.to_owned(), address.parse().unwrap()));
        }
        Self {
            listeners,
            admin: admin.expect("the proxy starts"),
            file,
            process,
        }
    }

    /// Returns the address of a listener.
    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        let own = self.listeners.iter().find(|(own, _)| own == name);
        own.unwrap_or_else(|| panic!("no listener {name}")).1
    }

    /// Replaces its configuration file atomically; it is polled every 500 ms.
    pub(crate) fn edit(&self, config: &Value) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, config.to_string()).unwrap();
        std::fs::rename(next, &self.file).unwrap();
    }

    /// Returns the explanation of a cluster; null while unknown.
    pub(crate) fn explain(&self, cluster: &str) -> Value {
        get_json(self.admin, &format!("/explain?cluster={cluster}")).unwrap_or_default()
    }

    /// Returns one resource list of `/config_dump`.
    pub(crate) fn config_dump(&self, resource: &str) -> Value {
        let path = format!("/config_dump?resource={resource}");
        get_json(self.admin, &path).unwrap_or_default()
    }

    /// Returns a counter; 0 if it does not exist.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        self.known_stat(name).unwrap_or(0)
    }

    /// Returns a counter if it exists.
    pub(crate) fn known_stat(&self, name: &str) -> Option<u64> {
        let page = get(self.admin, "/stats").unwrap_or_default();
        let mut lines = page.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(own, _)| *own == name);
        found.map(|(_, value)| value.parse().unwrap())
    }

    /// Returns its resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.process.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.unwrap().parse().unwrap()
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }
}

/// Returns a configuration with these listeners and clusters, for a proxy in a zone.
pub(crate) fn file(zone: &str, listeners: &[Value], clusters: &[Value]) -> Value {
    json!({
        "admin": { "address": socket(free()) },
        "node": {
            "id": format!("gateway-{zone}"),
            "cluster": "gateway",
            "locality": { "region": "r1", "zone": zone },
        },
        "static_resources": { "listeners": listeners, "clusters": clusters },
    })
}

/// Adds a management server for clusters and load reports. `api_type` is `GRPC` or `DELTA_GRPC`.
pub(crate) fn with_management_server(mut file: Value, server: SocketAddr, api_type: &str) -> Value {
    let api = |api_type: &str| {
        json!({
            "api_type": api_type,
            "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "control" } }],
        })
    };
    file["dynamic_resources"] = json!({
        "ads_config": api(api_type),
        "cds_config": { "ads": {} },
    });
    let clusters = file["static_resources"]["clusters"].as_array_mut().unwrap();
    let mut control = cluster("control", &[("", &[server])]);
    control["http2_protocol_options"] = json!({});
    clusters.push(control);
    file
}

/// Returns the file of a proxy that is steered by `plimsoll control`: all requests go to `orders`.
pub(crate) fn steered(zone: &str, control: SocketAddr) -> Value {
    let local = json!({
        "name": "local_cluster",
        "type": "EDS",
        "eds_cluster_config": { "eds_config": { "ads": {} } },
    });
    let listeners = [listener("ingress", &route_all_to("orders"))];
    let mut file = with_management_server(file(zone, &listeners, &[local]), control, "GRPC");
    file["cluster_manager"] = json!({
        "local_cluster_name": "local_cluster",
        "load_stats_config": file["dynamic_resources"]["ads_config"],
    });
    file
}

/// Returns a listener on a free port with these routes.
pub(crate) fn listener(name: &str, routes: &Value) -> Value {
    let filters = "type.googleapis.com/envoy.extensions.filters";
    let manager = format!("{filters}.network.http_connection_manager.v3.HttpConnectionManager");
    let router = format!("{filters}.http.router.v3.Router");
    json!({
        "name": name,
        "address": socket(free()),
        "filter_chains": [{ "filters": [{ "name": "http", "typed_config": {
            "@type": manager,
            "stat_prefix": name,
            "http_filters": [{ "name": "router", "typed_config": { "@type": router } }],
            "route_config": { "virtual_hosts": [
                { "name": "all", "domains": ["*"], "routes": routes },
            ] },
        } }] }],
    })
}

/// Returns routes that send all requests to one cluster.
pub(crate) fn route_all_to(cluster: &str) -> Value {
    json!([{ "match": { "prefix": "/" }, "route": { "cluster": cluster } }])
}

/// Returns a static cluster with these hosts by zone.
pub(crate) fn cluster(name: &str, zones: &[(&str, &[SocketAddr])]) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": { "cluster_name": name, "endpoints": localities(zones) },
    })
}

/// Returns `endpoints` of an assignment.
pub(crate) fn localities(zones: &[(&str, &[SocketAddr])]) -> Value {
    let endpoint = |host: &SocketAddr| json!({ "endpoint": { "address": socket(*host) } });
    let locality = |(zone, hosts): &(&str, &[SocketAddr])| {
        json!({
            "locality": { "region": "r1", "zone": zone },
            "lb_endpoints": hosts.iter().map(endpoint).collect::<Vec<_>>(),
        })
    };
    zones.iter().map(locality).collect()
}

fn socket(address: SocketAddr) -> Value {
    let (ip, port) = (address.ip(), address.port());
    json!({ "socket_address": { "address": ip, "port_value": port } })
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
